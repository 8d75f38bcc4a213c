/* Pickles as data: reads the opcodes that torch.save writes (protocols 2 to 4, Python's pickletools.py) into a
 * tree of values. Nothing is imported, called or executed: a global is its two names, and what calling it would
 * have made is an object that keeps the callable and its arguments. Ordered dictionaries are dictionaries.
 *
 * Values, elements, stack, memo and nesting are bounded; every fault is TT_ERR_DATA with the file and the byte. */
#ifndef TT_IO_PICKLE_H
#define TT_IO_PICKLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum tt_pickle_kind {
    TT_PICKLE_NONE,
    TT_PICKLE_BOOL,
    TT_PICKLE_INTEGER, /* of 64 bits */
    TT_PICKLE_HUGE,    /* an integer beyond 64 bits: `text` is its little-endian bytes */
    TT_PICKLE_REAL,
    TT_PICKLE_TEXT, /* and bytes */
    TT_PICKLE_LIST, /* and tuples and sets */
    TT_PICKLE_DICT, /* items: key, value, key, value ... */
    TT_PICKLE_GLOBAL,
    TT_PICKLE_OBJECT,
    TT_PICKLE_STORED, /* a persistent id: where torch keeps a storage */
};

struct tt_pickle_value {
    enum tt_pickle_kind kind;
    bool truth; /* of a BOOL */
    union {
        int64_t integer;
        double real;
        struct {
            const char *data; /* with a terminator behind its bytes */
            size_t bytes;
        } text;
        struct {
            struct tt_pickle_value **items;
            uint32_t count, capacity;
        } list;
        struct {
            const char *module, *name;
        } global;
        struct {
            const struct tt_pickle_value *callee, *arguments;
        } object;
        const struct tt_pickle_value *id; /* of a STORED */
    };
};

/* The values of one pickle. A zeroed struct is empty; values live in the arena. */
struct tt_pickle {
    struct tt_arena arena;
    const struct tt_pickle_value *root;
    const struct tt_pickle_value **stored; /* all STORED values, in order; owned */
    size_t stored_count, stored_capacity;
};

/* Reads the pickle that begins at *offset of an open file and ends before `end`; *offset becomes the byte after it.
 * `path` is for messages. */
TT_MUST_USE tt_status tt_pickle_read(int descriptor, const char *path, uint64_t *offset, uint64_t end,
                                     struct tt_pickle *pickle);
void tt_pickle_deinit(struct tt_pickle *pickle);

/* All take NULL and values of any kind. */
bool tt_pickle_is_global(const struct tt_pickle_value *value, const char *module, const char *name);
/* The text if it can be a C string; else NULL. */
const char *tt_pickle_text(const struct tt_pickle_value *value);
/* Element of a list or tuple; NULL beyond its end. */
const struct tt_pickle_value *tt_pickle_at(const struct tt_pickle_value *value, uint32_t index);
/* The last member of a dictionary with this key, as Python keeps it; or NULL. */
const struct tt_pickle_value *tt_pickle_get(const struct tt_pickle_value *dict, const char *key);

#endif
