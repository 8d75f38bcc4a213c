/* Values of a template: Python's, as far as templates see them. A value is 16 bytes; what it points to lives in the
 * arena of the rendering, in the parsed template (literals) or in the input (bytes of texts), and never changes, but
 * for namespaces, iterators and the state of loops. */
#ifndef TT_TEXT_JINJA_VALUE_H
#define TT_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum jinja_type {
    JINJA_MISSING, /* a variable without a value: never seen by an expression */
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INTEGER,
    JINJA_HUGE, /* an integer beyond 64 bits, kept as text: printed, never computed with */
    JINJA_FLOAT,
    JINJA_TEXT,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_VIEW, /* dict.keys(), .values(), .items(): `kind` is an enum jinja_view */
    JINJA_RANGE,
    JINJA_ITERATOR, /* a generator: it can be read once */
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_METHOD,   /* bound to a value */
    JINJA_FUNCTION, /* `integer` is an enum jinja_function */
    JINJA_TYPE_COUNT,
};

enum jinja_view { JINJA_KEYS, JINJA_VALUES, JINJA_ITEMS };

/* A part of a text with one origin, which ends before byte `end`. The top bit of an origin says "in generation". */
enum { JINJA_GENERATION_SHIFT = 31 };
#define JINJA_GENERATION ((uint32_t)1 << JINJA_GENERATION_SHIFT)
struct jinja_run {
    uint32_t end, origin;
};

struct jinja_text {
    const char *data; /* UTF-8, not terminated */
    uint32_t bytes;
    uint32_t points;              /* code points; JINJA_UNCOUNTED until asked for */
    const struct jinja_run *runs; /* NULL: all of it has the origin of the value */
    uint32_t run_count;
};
#define JINJA_UNCOUNTED UINT32_MAX

struct jinja_value {
    uint8_t type; /* enum jinja_type */
    uint8_t kind; /* JINJA_VIEW; JINJA_UNDEFINED: 1 + the type of what has no such member, 0 for a variable */
    bool is_markup; /* JINJA_TEXT: Python's Markup */
    uint32_t origin;
    union {
        bool boolean;
        int64_t integer;
        double real;
        /* also of JINJA_HUGE; the name of JINJA_UNDEFINED, which may be NULL */
        const struct jinja_text *text;
        struct jinja_list *list; /* also of JINJA_TUPLE */
        struct jinja_dict *dict; /* also of JINJA_VIEW and JINJA_NAMESPACE */
        struct jinja_range *range;
        struct jinja_iterator *iterator;
        struct jinja_loop *loop;
        struct jinja_macro *macro;
        struct jinja_method *method;
    };
};

struct jinja_list {
    size_t count;
    struct jinja_value *elements;
};

struct jinja_entry {
    struct jinja_value key, value;
};

/* Entries in order of insertion. Larger dicts have an index by hash, open addressing: entry + 1 or 0. */
enum { JINJA_UNINDEXED_MAX = 12 };
struct jinja_dict {
    size_t count, capacity;
    struct jinja_entry *entries;
    uint32_t *index;
    size_t slots;
};

struct jinja_range {
    int64_t start, stop, step;
    int64_t count;
};

/* The elements of anything that can be iterated over, one after the other. */
struct jinja_iterator {
    struct jinja_value source;
    size_t at; /* element; byte of a text */
};

struct jinja_method {
    struct jinja_value self;
    int id; /* enum jinja_method_id */
};

struct jinja_render;

/* ---- value.c ---- */
static inline struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.type = JINJA_NONE};
}
static inline struct jinja_value jinja_bool(bool value)
{
    return (struct jinja_value){.type = JINJA_BOOL, .boolean = value};
}
static inline struct jinja_value jinja_integer(int64_t value)
{
    return (struct jinja_value){.type = JINJA_INTEGER, .integer = value};
}
static inline struct jinja_value jinja_float(double value)
{
    return (struct jinja_value){.type = JINJA_FLOAT, .real = value};
}
static inline bool jinja_is_text(const struct jinja_value *value)
{
    return value->type == JINJA_TEXT;
}
/* bool counts as a number of Python's int. */
static inline bool jinja_is_int(const struct jinja_value *value)
{
    return value->type == JINJA_INTEGER || value->type == JINJA_BOOL;
}
static inline int64_t jinja_int_of(const struct jinja_value *value)
{
    return value->type == JINJA_BOOL ? value->boolean : value->integer;
}
static inline bool jinja_is_number(const struct jinja_value *value)
{
    return jinja_is_int(value) || value->type == JINJA_FLOAT || value->type == JINJA_HUGE;
}
static inline struct tt_span jinja_span(const struct jinja_value *text)
{
    return (struct tt_span){text->text->data, text->text->bytes};
}

const char *jinja_type_name(const struct jinja_value *value); /* Python's */
bool jinja_truth(const struct jinja_value *value);
/* Python's len(); false where it has none. */
bool jinja_length(const struct jinja_value *value, int64_t *length);
bool jinja_is_iterable(const struct jinja_value *value);
/* Errors (not comparable, too deep, too many steps) are reported at the node that is evaluated. */
tt_status jinja_equal(struct jinja_render *render, const struct jinja_value *a, const struct jinja_value *b,
                      bool *equal);
/* -1, 0, 1; for numbers 2 where one is NaN. */
tt_status jinja_order(struct jinja_render *render, const struct jinja_value *a, const struct jinja_value *b,
                      const char *sign, int *order);
/* a in b */
tt_status jinja_contains(struct jinja_render *render, const struct jinja_value *a,
                         const struct jinja_value *b, bool *found);

/* ---- container.c ---- */
tt_status jinja_new_list(struct jinja_render *render, size_t count, bool tuple, struct jinja_value *out);
tt_status jinja_list_append(struct jinja_render *render, struct jinja_list *list, size_t *capacity,
                            struct jinja_value value);
tt_status jinja_new_dict(struct jinja_render *render, struct jinja_value *out);
tt_status jinja_dict_set(struct jinja_render *render, struct jinja_dict *dict, struct jinja_value key,
                         struct jinja_value value);
/* NULL when missing; TT_ERR_DATA for a key that cannot be hashed. */
tt_status jinja_dict_find(struct jinja_render *render, const struct jinja_dict *dict,
                          const struct jinja_value *key, const struct jinja_value **out);
const struct jinja_value *jinja_dict_get(const struct jinja_dict *dict, const char *key, size_t bytes);
bool jinja_is_hashable(const struct jinja_value *value);
/* TT_ERR_DATA where the value cannot be iterated over. */
tt_status jinja_iterate(struct jinja_render *render, const struct jinja_value *value,
                        struct jinja_iterator *iterator);
/* *more is false at the end. */
tt_status jinja_next(struct jinja_render *render, struct jinja_iterator *iterator, struct jinja_value *out,
                     bool *more);
/* All elements as a new list. */
tt_status jinja_collect(struct jinja_render *render, const struct jinja_value *value,
                        struct jinja_value *list);
tt_status jinja_new_iterator(struct jinja_render *render, struct jinja_value list, struct jinja_value *out);

/* ---- text.c ---- */
/* A text that grows, with the origins of its parts. Its memory is the rendering's. */
struct jinja_writer {
    struct jinja_render *render;
    char *data;
    size_t bytes, capacity, limit;
    const char *limit_name;
    struct jinja_run *runs;
    size_t run_count, run_capacity;
};
struct jinja_writer jinja_writer_new(struct jinja_render *render);
/* Makes room for so many more bytes, all at once. */
tt_status jinja_reserve(struct jinja_writer *writer, size_t bytes);
tt_status jinja_write(struct jinja_writer *writer, const char *data, size_t bytes, uint32_t origin);
tt_status jinja_write_literal(struct jinja_writer *writer, const char *text, uint32_t origin);
/* A part of a text value with its origins, in bytes. */
tt_status jinja_write_part(struct jinja_writer *writer, const struct jinja_value *text, size_t from,
                           size_t to);
/* The text of Python's str() of any value. */
tt_status jinja_write_value(struct jinja_writer *writer, const struct jinja_value *value);
/* Marks all from byte `from` on as generation. */
tt_status jinja_write_mark(struct jinja_writer *writer, size_t from);
/* The text with & < > ' " as entities. */
tt_status jinja_write_escaped(struct jinja_writer *writer, const struct jinja_value *text);
tt_status jinja_writer_value(struct jinja_writer *writer, struct jinja_value *out);

tt_status jinja_new_text(struct jinja_render *render, const char *data, size_t bytes,
                         struct jinja_value *out);
/* Borrows `data`. */
tt_status jinja_text_of(struct jinja_render *render, const char *data, size_t bytes, uint32_t origin,
                        struct jinja_value *out);
tt_status jinja_part(struct jinja_render *render, const struct jinja_value *text, size_t from, size_t to,
                     struct jinja_value *out);
/* Python's str(). */
tt_status jinja_to_text(struct jinja_render *render, const struct jinja_value *value,
                        struct jinja_value *out);
size_t jinja_points(const struct jinja_value *text);
/* The byte where the code point of this index begins. */
size_t jinja_byte_of(const struct jinja_value *text, size_t point);
uint32_t jinja_origin_at(const struct jinja_value *text, size_t byte);
/* Where `part` begins in `text` from byte `from` on; SIZE_MAX: nowhere. */
size_t jinja_find(struct tt_span text, struct tt_span part, size_t from);
size_t jinja_rfind(struct tt_span text, struct tt_span part);
uint32_t jinja_point_at(const char *text, size_t bytes, size_t *length);
size_t jinja_encode(uint32_t point, char out[4]);
bool jinja_is_space(uint32_t point); /* str.isspace() */

/* ---- repr.c, tojson.c ---- */
tt_status jinja_write_repr(struct jinja_writer *writer, const struct jinja_value *value, int depth);
const char *jinja_format_float(double value, char text[40]); /* Python's repr() */
struct jinja_json_style {
    bool ensure_ascii, sort_keys, is_indented;
    struct tt_span indent, item_separator, key_separator;
};
tt_status jinja_write_json(struct jinja_writer *writer, const struct jinja_value *value,
                           const struct jinja_json_style *style);

/* ---- case.c ---- */
enum jinja_case { JINJA_UPPER, JINJA_LOWER, JINJA_TITLE, JINJA_CAPITALIZE, JINJA_SWAPCASE };
/* Appends bytes `from` to `to` of a text in another case. */
tt_status jinja_write_case(struct jinja_writer *writer, const struct jinja_value *text, size_t from,
                           size_t to, enum jinja_case mode);
bool jinja_is_printable(uint32_t point); /* str.isprintable() */
enum jinja_class {
    JINJA_IS_ALPHA,
    JINJA_IS_DECIMAL,
    JINJA_IS_ALNUM,
    JINJA_IS_SPACE,
    JINJA_IS_PRINTABLE,
    JINJA_IS_UPPER,
    JINJA_IS_LOWER,
    JINJA_IS_TITLE,
    JINJA_IS_ASCII,
};
bool jinja_text_is(struct tt_span text, enum jinja_class class);

#endif
