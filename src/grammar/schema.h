/* JSON Schema 2020-12 (https://json-schema.org/draft/2020-12/json-schema-validation) as plain alternatives: the
 * keywords that hold together are joined, $ref is followed, anyOf and oneOf are alternatives. Internal to
 * src/grammar. */
#ifndef TT_GRAMMAR_SCHEMA_H
#define TT_GRAMMAR_SCHEMA_H

#include "base/arena.h"
#include "base/json.h"
#include "grammar/lexical.h"

enum schema_type {
    SCHEMA_NULL = 1,
    SCHEMA_BOOLEAN = 2,
    SCHEMA_OBJECT = 4,
    SCHEMA_ARRAY = 8,
    SCHEMA_INTEGER = 16,
    SCHEMA_FRACTION = 32, /* numbers that are no integers */
    SCHEMA_STRING = 64,
    SCHEMA_NUMBER = SCHEMA_INTEGER | SCHEMA_FRACTION,
    SCHEMA_ANY = 127,
};

/* Schemas that hold together; none: anything. */
struct schema_list {
    const struct tt_json_value **data;
    size_t count;
};

struct schema_property {
    struct tt_span key;
    struct schema_list schemas;
    bool required;
};

/* One alternative. Lists are in the arena of the schema, and are not changed once others have them. */
struct schema_flat {
    unsigned types;
    unsigned hinted; /* types of keywords, where no type is given */
    bool is_typed;
    bool has_values; /* of enum and const */
    struct schema_list values;
    struct lexical_number number;
    int64_t min_length, max_length; /* -1: no limit, as below */
    struct tt_span *patterns;
    size_t pattern_count;
    int64_t min_items, max_items;
    struct schema_list *prefix;
    size_t prefix_count;
    struct schema_list items; /* behind the prefix */
    bool has_items;
    int64_t min_properties, max_properties;
    struct schema_property *properties;
    size_t property_count, property_capacity;
    struct schema_list additional;
    bool has_additional, has_properties; /* has_properties: a `properties` was there */
};

struct schema {
    struct grammar_work *work;
    const struct tt_json_value *root; /* lent */
    struct tt_arena arena;
};
void schema_deinit(struct schema *schema);

/* Refuses by its name each keyword anywhere in the schema that is not supported. */
void schema_check(struct schema *schema);
/* The alternatives of schemas that hold together, in the arena; empty where nothing is left. */
struct schema_flats {
    struct schema_flat **data;
    size_t count, capacity;
};
void schema_flatten(struct schema *schema, const struct schema_list *list, struct schema_flats *out);
/* The schema that a $ref names; fails where there is none. NULL after an error. */
const struct tt_json_value *schema_refer(struct schema *schema, const struct tt_json_value *reference);
/* Whether the schema has the value (grammar/check.c). */
bool schema_accepts(struct schema *schema, const struct tt_json_value *from,
                    const struct tt_json_value *value);
/* A list with one more schema. */
struct schema_list schema_list_with(struct schema *schema, struct schema_list list,
                                    const struct tt_json_value *more);
/* Memory of the arena; NULL after an error. */
void *schema_alloc(struct schema *schema, size_t bytes);
/* The bits of a type's name; 0: unknown. */
unsigned schema_type_of(struct tt_span name);
/* The pattern of a format that is supported; NULL: none. */
const char *schema_format(struct tt_span name);

#endif
