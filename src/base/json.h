/* JSON (RFC 8259): a parser, values, and a writer.
 *
 * The values of a parsed document are in one arena and cannot be changed. Values made by the functions below are on the
 * heap, form trees, and are released with their root. The errors of getters name the path of the key and the value that
 * was found; a document stores its origin for them.
 *
 * Two extensions of RFC 8259, those of Python's json module: NaN, Infinity and -Infinity are numbers, and integers and
 * exponents have no limit. Getters return only integers of 64 bits and finite numbers, so other numbers are errors only
 * where they are read. Stricter than Python: duplicate keys, lone surrogates and invalid UTF-8 are errors, and nesting
 * and size have limits. tests/golden/readers has the table. */
#ifndef TT_BASE_JSON_H
#define TT_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

enum { TT_JSON_DEPTH_MAX = 512 };

enum tt_json_type {
    TT_JSON_NULL,
    TT_JSON_FALSE,
    TT_JSON_TRUE,
    TT_JSON_INTEGER, /* of 64 bits */
    TT_JSON_HUGE,    /* an integer beyond 64 bits, kept as text */
    TT_JSON_REAL,    /* a double, which may be infinite or NaN */
    TT_JSON_STRING,
    TT_JSON_LIST,
    TT_JSON_OBJECT,
};

struct tt_json_value;

/* An owned document. A zeroed struct is empty; deinit takes it. */
struct tt_json {
    struct tt_json_value *root;
    char *origin; /* "config.json", "train.jsonl row 17": used in messages; lives in the arena */
    struct tt_arena arena;
};

/* ---- Parsing. Errors are TT_ERR_DATA with origin, line, column (in bytes, from 1) and byte (from 0). ---- */

struct tt_json_source {
    const char *text; /* borrowed during the call; needs no terminator */
    size_t bytes;     /* below 4 GiB */
    const char *origin;
    unsigned long long first_line; /* 0: 1 */
    bool nul;                      /* keys and strings may contain U+0000, which is an error otherwise */
    /* The whole text is checked but not all of it is stored: for lists and objects in the root only their position in
     * the text, which then must live as long as the document; with `members` only those members of the root. */
    bool outline;
    const struct tt_span *members; /* names; NULL: all */
    size_t member_count;
};

TT_MUST_USE tt_status tt_json_parse_source(const struct tt_json_source *source, struct tt_json *json);
TT_MUST_USE tt_status tt_json_parse(const char *text, size_t bytes, const char *origin, struct tt_json *json);
/* Reads a file, which may begin with a byte order mark. */
TT_MUST_USE tt_status tt_json_read(const char *path, size_t max_bytes, struct tt_json *json);
/* The same with U+0000 allowed in keys and strings: for vocabularies, and for records of texts that models made. */
TT_MUST_USE tt_status tt_json_parse_nul(const char *text, size_t bytes, const char *origin,
                                        struct tt_json *json);
TT_MUST_USE tt_status tt_json_read_nul(const char *path, size_t max_bytes, struct tt_json *json);
void tt_json_deinit(struct tt_json *json);
/* Makes the values of a parsed document editable by copying them to the heap. Pointers into the document become
 * invalid. */
TT_MUST_USE tt_status tt_json_make_editable(struct tt_json *json);

/* ---- Members with a type. A required member that is missing or of another type is TT_ERR_DATA. `object` is any object
 * inside `json`. Numbers are finite, strings contain no U+0000. ---- */

TT_MUST_USE tt_status tt_json_int(const struct tt_json *json, const struct tt_json_value *object,
                                  const char *key, int64_t *out);
TT_MUST_USE tt_status tt_json_double(const struct tt_json *json, const struct tt_json_value *object,
                                     const char *key, double *out);
TT_MUST_USE tt_status tt_json_bool(const struct tt_json *json, const struct tt_json_value *object,
                                   const char *key, bool *out);
TT_MUST_USE tt_status tt_json_string(const struct tt_json *json, const struct tt_json_value *object,
                                     const char *key, const char **out);
TT_MUST_USE tt_status tt_json_array(const struct tt_json *json, const struct tt_json_value *object,
                                    const char *key, const struct tt_json_value **out);
TT_MUST_USE tt_status tt_json_object(const struct tt_json *json, const struct tt_json_value *object,
                                     const char *key, const struct tt_json_value **out);
/* Optional members: missing or null leaves *out unchanged; another type is an error. */
TT_MUST_USE tt_status tt_json_opt_int(const struct tt_json *json, const struct tt_json_value *object,
                                      const char *key, int64_t *out);
TT_MUST_USE tt_status tt_json_opt_double(const struct tt_json *json, const struct tt_json_value *object,
                                         const char *key, double *out);
TT_MUST_USE tt_status tt_json_opt_bool(const struct tt_json *json, const struct tt_json_value *object,
                                       const char *key, bool *out);
TT_MUST_USE tt_status tt_json_opt_string(const struct tt_json *json, const struct tt_json_value *object,
                                         const char *key, const char **out);

/* ---- Values. All take NULL and values of any type. ---- */

enum tt_json_type tt_json_type(const struct tt_json_value *value); /* NULL: TT_JSON_NULL */
bool tt_json_is_null(const struct tt_json_value *value);           /* false when `value` is NULL */
bool tt_json_is_bool(const struct tt_json_value *value);
bool tt_json_is_true(const struct tt_json_value *value);
bool tt_json_is_false(const struct tt_json_value *value);
bool tt_json_is_integer(const struct tt_json_value *value); /* of 64 bits */
bool tt_json_is_number(const struct tt_json_value *value); /* any number: also a huge one, an infinity, NaN */
bool tt_json_is_string(const struct tt_json_value *value);
bool tt_json_is_list(const struct tt_json_value *value);
bool tt_json_is_object(const struct tt_json_value *value);

int64_t tt_json_integer(const struct tt_json_value *value); /* 0 if not an integer of 64 bits */
double tt_json_number(const struct tt_json_value *value);   /* 0 if not a number */
/* NULL if not a string, or a string with U+0000, which cannot be a C string */
const char *tt_json_text(const struct tt_json_value *value);
/* The bytes of any string, followed by a 0 byte; {NULL, 0} if not a string. */
struct tt_span tt_json_span(const struct tt_json_value *value);

size_t tt_json_count(const struct tt_json_value *value); /* elements or members; 0 for other types */
/* NULL beyond the end */
const struct tt_json_value *tt_json_at(const struct tt_json_value *list, size_t index);
/* NULL when missing */
const struct tt_json_value *tt_json_get(const struct tt_json_value *object, const char *key);
const struct tt_json_value *tt_json_get_span(const struct tt_json_value *object, struct tt_span key);
/* Visits the elements of a list of an outlined document in order; tt_json_at and tt_json_get find nothing in
 * such a list. The walk ends with the first string, list or object. *integer is 0 for other types than integers of
 * 64 bits. */
struct tt_json_walk {
    const char *at;
    size_t left;
};
struct tt_json_walk tt_json_walk(const struct tt_json_value *list);
/* false at the end */
bool tt_json_walk_next(struct tt_json_walk *walk, enum tt_json_type *type, int64_t *integer);
/* Members in the order of the text; `value` is NULL beyond the end. */
struct tt_json_member {
    struct tt_span key; /* a 0 byte follows it */
    const struct tt_json_value *value;
};
struct tt_json_member tt_json_member(const struct tt_json_value *object, size_t index);
/* for (size_t at = 0; tt_json_next_member(object, &at, &key, &value);): for documents whose keys are C strings. */
bool tt_json_next_member(const struct tt_json_value *object, size_t *index, const char **key,
                         const struct tt_json_value **value);
/* Whether type and content are equal; the order of members does not matter. NaN equals NaN. */
bool tt_json_equal(const struct tt_json_value *a, const struct tt_json_value *b);

/* ---- Making values. All functions return NULL or -1 with the error record set when memory is exhausted. Nobody has to
 * look: a list or an object keeps its first failure, and so does what it is added to. A document with a failure is not
 * written, and tt_json_finish has none. ---- */

struct tt_json_value *tt_json_new_null(void);
struct tt_json_value *tt_json_new_bool(bool value);
struct tt_json_value *tt_json_new_integer(int64_t value);
/* null for values that JSON cannot express: NaN and infinities */
struct tt_json_value *tt_json_new_real(double value);
struct tt_json_value *tt_json_new_string(const char *text);  /* valid UTF-8; invalid bytes become U+FFFD */
struct tt_json_value *tt_json_new_text(struct tt_span text); /* the same of any bytes, U+0000 among them */
struct tt_json_value *tt_json_new_list(void);
struct tt_json_value *tt_json_new_object(void);
struct tt_json_value *tt_json_copy(const struct tt_json_value *value);
/* takes NULL; does nothing to values of parsed documents */
void tt_json_release(struct tt_json_value *value);

/* The value, or NULL for NULL and after a failure: then it has been released. */
struct tt_json_value *tt_json_finish(struct tt_json_value *value);
/* Forgets a failure where the caller goes on without the value: a log that lost a row is written again. Takes NULL. */
void tt_json_forgive(struct tt_json_value *value);

/* These take over `value`, also when they fail (-1). They fail for NULL. Afterwards the pointer to it is
 * invalid, and so are pointers to other members of the same object or list. `object` and `list` must not be of a
 * parsed document. */
int tt_json_set(struct tt_json_value *object, const char *key, struct tt_json_value *value); /* replaces */
int tt_json_set_span(struct tt_json_value *object, struct tt_span key, struct tt_json_value *value);
int tt_json_append(struct tt_json_value *list, struct tt_json_value *value);
/* The same with a copy of `value`. */
int tt_json_set_copy(struct tt_json_value *object, const char *key, const struct tt_json_value *value);
int tt_json_append_copy(struct tt_json_value *list, const struct tt_json_value *value);
/* Sets copies of all members of `from`; fails for NULL. */
int tt_json_update(struct tt_json_value *object, const struct tt_json_value *from);
/* Returns whether the member existed. */
bool tt_json_remove(struct tt_json_value *object, const char *key);
/* Makes a value by a format such as "{s:I, s:[f, b]}": s is a C string, t a struct tt_span of any bytes, I an int64_t,
 * i an int, f a double, b an int as a truth value, n null, o a value that is taken over, also on failure, O a value
 * that is copied. Keys are s. */
struct tt_json_value *tt_json_pack(const char *format, ...);

/* ---- Writing ---- */

/* Writes the text of Python's json.dumps(value, indent=2, sort_keys=True): floats in the shortest form that
 * parses back to the same value, NaN and infinities as Python does, no newline at the end. indent 0 gives one
 * line with ", " and ": ". TT_ERR_MEMORY for NULL, and after a failure while the document was made. */
TT_MUST_USE tt_status tt_json_write(const struct tt_json_value *value, int indent, bool sort_keys,
                                    struct tt_str *text);
/* Writes the text and a newline to folder/name, atomically. */
TT_MUST_USE tt_status tt_json_write_file(const struct tt_json_value *value, int indent, bool sort_keys,
                                         const char *folder, const char *name);

#endif
