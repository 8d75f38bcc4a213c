/* Internals of JSON values, for base/json*.c only. */
#ifndef TT_BASE_JSON_VALUE_H
#define TT_BASE_JSON_VALUE_H

#include "base/json.h"

struct tt_json_value {
    uint8_t type;     /* enum tt_json_type */
    bool in_arena;    /* of a parsed document */
    bool has_nul;     /* a string with U+0000 */
    bool is_outlined; /* a list or an object stored as a position in the text; its count is 0 */
    bool lacks;       /* a list or an object without what it was to hold: an addition failed */
    uint32_t count;   /* bytes, elements or members */
    union {
        int64_t integer;
        double real;
        char *text; /* of strings and huge integers; terminated */
        struct tt_json_value *elements;
        struct json_members *members;
        struct json_outlined *outlined;
    };
};

/* Text that has been checked and is not copied. */
struct json_outlined {
    const char *text; /* from its opening bracket on */
    uint32_t count;   /* of elements or members */
};

struct json_member {
    char *key; /* terminated */
    uint32_t key_bytes;
    struct tt_json_value value;
};

/* Small objects are searched linearly. Larger ones have an index: open addressing with linear probing, slots
 * with member + 1 or 0, at most half full. The hash is keyed, so that no file can choose keys that collide. */
enum { JSON_UNINDEXED_MAX = 16 };
struct json_members {
    struct json_member *list;
    uint32_t *index; /* NULL: none yet */
    uint32_t slots;  /* a power of two */
    uint64_t seed[2];
};

/* Makes a secret of this process, by addresses if there is no entropy; `address` is one of the heap. */
void json_make_seed(uint64_t seed[2], const void *address);
uint64_t json_hash_key(const uint64_t seed[2], const char *key, size_t bytes);
/* Number of slots in an index of `count` members. */
uint32_t json_index_slots(uint32_t count);
/* Fills members->index (zeroed, with members->slots). Returns `count`, or the first member whose key equals an
 * earlier one. */
uint32_t json_index_fill(struct json_members *members, uint32_t count);

#endif
