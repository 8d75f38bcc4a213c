/* Joining keywords that hold together, and listing alternatives. */
#include <string.h>

#include "grammar/schema.h"

enum { DEPTH_MAX = 64, FLATS_MAX = 256 };

void schema_deinit(struct schema *schema)
{
    tt_arena_deinit(&schema->arena);
}

void *schema_alloc(struct schema *schema, size_t bytes)
{
    if (!grammar_spend(schema->work, bytes / 64 + 1, bytes)) return NULL;
    void *memory = tt_arena_alloc(&schema->arena, bytes);
    if (memory == NULL) grammar_fail(schema->work, TT_ERR_MEMORY);
    return memory;
}

struct schema_list schema_list_with(struct schema *schema, struct schema_list list,
                                    const struct tt_json_value *more)
{
    const struct tt_json_value **data = schema_alloc(schema, (list.count + 1) * sizeof *data);
    if (data == NULL) return list;
    if (list.count > 0) memcpy(data, list.data, list.count * sizeof *data);
    data[list.count] = more;
    return (struct schema_list){data, list.count + 1};
}

/* Equal numbers are the same value, however they are written. */
static bool is_same(const struct tt_json_value *a, const struct tt_json_value *b)
{
    if (tt_json_is_number(a) && tt_json_is_number(b)) return tt_json_number(a) == tt_json_number(b);
    return tt_json_equal(a, b);
}

/* ---- Keywords ---- */

static void join_types(struct schema *schema, struct schema_flat *flat, const struct tt_json_value *from)
{
    static const struct {
        const char *name;
        unsigned types;
    } keywords[] = {
#define KEYWORD(name, kind, types) {name, types},
#include "grammar/keywords.def"
#undef KEYWORD
    };
    const struct tt_json_value *value = tt_json_get(from, "type");
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (keywords[i].types != 0 && tt_json_get(from, keywords[i].name) != NULL)
            flat->hinted |= keywords[i].types;
    grammar_spend(schema->work, sizeof keywords / sizeof *keywords, 0);
    if (value == NULL) return;
    unsigned types = schema_type_of(tt_json_span(value));
    for (size_t i = 0; tt_json_is_list(value) && i < tt_json_count(value); i++)
        types |= schema_type_of(tt_json_span(tt_json_at(value, i)));
    flat->types &= types;
    flat->is_typed = true;
}

/* Keeps those values of `list` that others have left. */
static void join_values(struct schema *schema, struct schema_flat *flat, const struct tt_json_value *list,
                        bool single)
{
    struct schema_list kept = {0};
    size_t count = single ? 1 : tt_json_count(list);
    for (size_t i = 0; i < count && grammar_is_well(schema->work); i++) {
        const struct tt_json_value *value = single ? list : tt_json_at(list, i);
        bool keeps = !flat->has_values;
        for (size_t k = 0; k < flat->values.count && !keeps; k++)
            keeps = is_same(flat->values.data[k], value);
        grammar_spend(schema->work, flat->values.count, 0);
        if (keeps) kept = schema_list_with(schema, kept, value);
    }
    flat->values = kept;
    flat->has_values = true;
}

static void raise_to(const struct tt_json_value *from, const char *keyword, int64_t *least)
{
    int64_t value = (int64_t)tt_json_number(tt_json_get(from, keyword));
    if (value > *least) *least = value;
}

static void lower_to(const struct tt_json_value *from, const char *keyword, int64_t *most)
{
    const struct tt_json_value *given = tt_json_get(from, keyword);
    int64_t value = (int64_t)tt_json_number(given);
    if (given != NULL && (*most < 0 || value < *most)) *most = value;
}

static void join_minimum(struct lexical_number *number, const struct tt_json_value *given, bool above)
{
    double value = tt_json_number(given);
    if (given == NULL || (number->has_min && number->min > value)) return;
    number->above_min = above || (number->has_min && number->min == value && number->above_min);
    number->has_min = true;
    number->min = value;
}

static void join_maximum(struct lexical_number *number, const struct tt_json_value *given, bool below)
{
    double value = tt_json_number(given);
    if (given == NULL || (number->has_max && number->max < value)) return;
    number->below_max = below || (number->has_max && number->max == value && number->below_max);
    number->has_max = true;
    number->max = value;
}

static void join_multiple(struct schema *schema, struct lexical_number *number,
                          const struct tt_json_value *given)
{
    if (given == NULL) return;
    int64_t value = (int64_t)tt_json_number(given), a = value,
            b = number->multiple > 0 ? number->multiple : 1, rest;
    int64_t other = b;
    while ((rest = a % b) != 0) a = b, b = rest;
    if (__builtin_mul_overflow(value / b, other, &number->multiple))
        grammar_refuse(schema->work, "the common multiple of multipleOf is too large");
}

static void join_numbers(struct schema *schema, struct schema_flat *flat, const struct tt_json_value *from)
{
    join_minimum(&flat->number, tt_json_get(from, "minimum"), false);
    join_minimum(&flat->number, tt_json_get(from, "exclusiveMinimum"), true);
    join_maximum(&flat->number, tt_json_get(from, "maximum"), false);
    join_maximum(&flat->number, tt_json_get(from, "exclusiveMaximum"), true);
    join_multiple(schema, &flat->number, tt_json_get(from, "multipleOf"));
}

static void add_pattern(struct schema *schema, struct schema_flat *flat, struct tt_span pattern)
{
    struct tt_span *list = schema_alloc(schema, (flat->pattern_count + 1) * sizeof *list);
    if (list == NULL) return;
    if (flat->pattern_count > 0) memcpy(list, flat->patterns, flat->pattern_count * sizeof *list);
    list[flat->pattern_count++] = pattern;
    flat->patterns = list;
}

static void join_strings(struct schema *schema, struct schema_flat *flat, const struct tt_json_value *from)
{
    const struct tt_json_value *pattern = tt_json_get(from, "pattern"), *format = tt_json_get(from, "format");
    raise_to(from, "minLength", &flat->min_length);
    lower_to(from, "maxLength", &flat->max_length);
    if (pattern != NULL) add_pattern(schema, flat, tt_json_span(pattern));
    const char *described = format != NULL ? schema_format(tt_json_span(format)) : NULL;
    if (described != NULL) add_pattern(schema, flat, tt_span_of(described));
}

static void join_arrays(struct schema *schema, struct schema_flat *flat, const struct tt_json_value *from)
{
    const struct tt_json_value *prefix = tt_json_get(from, "prefixItems"),
                               *items = tt_json_get(from, "items");
    raise_to(from, "minItems", &flat->min_items);
    lower_to(from, "maxItems", &flat->max_items);
    if (prefix == NULL && items == NULL) return;
    size_t count = tt_json_count(prefix), most = count > flat->prefix_count ? count : flat->prefix_count;
    struct schema_list *joined = schema_alloc(schema, (most + 1) * sizeof *joined);
    if (joined == NULL) return;
    for (size_t i = 0; i < most && grammar_is_well(schema->work); i++) {
        joined[i] = i < flat->prefix_count ? flat->prefix[i] : flat->items;
        if (i < count)
            joined[i] = schema_list_with(schema, joined[i], tt_json_at(prefix, i));
        else if (items != NULL)
            joined[i] = schema_list_with(schema, joined[i], items);
    }
    flat->prefix = joined;
    flat->prefix_count = most;
    if (items != NULL) flat->items = schema_list_with(schema, flat->items, items);
    flat->has_items = flat->has_items || items != NULL;
}

/* ---- Objects ---- */

static struct schema_property *find_property(const struct schema_flat *flat, struct tt_span key)
{
    for (size_t i = 0; i < flat->property_count; i++) {
        struct tt_span known = flat->properties[i].key;
        if (known.bytes == key.bytes && memcmp(known.data, key.data, key.bytes) == 0)
            return &flat->properties[i];
    }
    return NULL;
}

static struct schema_property *add_property(struct schema *schema, struct schema_flat *flat,
                                            struct tt_span key)
{
    if (flat->property_count == flat->property_capacity) {
        size_t wanted = flat->property_capacity > 0 ? 2 * flat->property_capacity : 8;
        if (wanted < flat->property_count + 1) wanted = flat->property_count + 1;
        struct schema_property *list = schema_alloc(schema, wanted * sizeof *list);
        if (list == NULL) return NULL;
        if (flat->property_count > 0) memcpy(list, flat->properties, flat->property_count * sizeof *list);
        flat->properties = list;
        flat->property_capacity = wanted;
    }
    struct schema_property *property = &flat->properties[flat->property_count++];
    *property = (struct schema_property){.key = key, .schemas = flat->additional};
    return property;
}

/* additionalProperties holds for the keys that `properties` beside it has not. */
static void join_objects(struct schema *schema, struct schema_flat *flat, const struct tt_json_value *from)
{
    const struct tt_json_value *properties = tt_json_get(from, "properties");
    const struct tt_json_value *additional = tt_json_get(from, "additionalProperties");
    const struct tt_json_value *required = tt_json_get(from, "required");
    raise_to(from, "minProperties", &flat->min_properties);
    lower_to(from, "maxProperties", &flat->max_properties);
    size_t known = flat->property_count;
    grammar_spend(schema->work, (tt_json_count(properties) + tt_json_count(required)) * (known + 4), 0);
    for (size_t i = 0; i < known && additional != NULL && grammar_is_well(schema->work); i++) {
        struct schema_property *property = &flat->properties[i];
        if (tt_json_get_span(properties, property->key) == NULL)
            property->schemas = schema_list_with(schema, property->schemas, additional);
    }
    for (size_t i = 0; i < tt_json_count(properties) && grammar_is_well(schema->work); i++) {
        struct tt_json_member member = tt_json_member(properties, i);
        struct schema_property *property = known > 0 ? find_property(flat, member.key) : NULL;
        if (property == NULL) property = add_property(schema, flat, member.key);
        if (property != NULL) property->schemas = schema_list_with(schema, property->schemas, member.value);
    }
    if (additional != NULL) flat->additional = schema_list_with(schema, flat->additional, additional);
    flat->has_additional = flat->has_additional || additional != NULL;
    flat->has_properties = flat->has_properties || properties != NULL;
    for (size_t i = 0; i < tt_json_count(required) && grammar_is_well(schema->work); i++) {
        struct tt_span key = tt_json_span(tt_json_at(required, i));
        struct schema_property *property = find_property(flat, key);
        grammar_spend(schema->work, flat->property_count, 0);
        if (property == NULL) property = add_property(schema, flat, key);
        if (property != NULL) property->required = true;
    }
}

/* ---- Alternatives ---- */

static struct schema_flat *copy_flat(struct schema *schema, const struct schema_flat *flat)
{
    struct schema_flat *copy = schema_alloc(schema, sizeof *copy);
    if (copy == NULL) return NULL;
    *copy = *flat;
    copy->properties = NULL;
    copy->property_capacity = 0;
    if (flat->property_count == 0) return copy;
    copy->properties = schema_alloc(schema, flat->property_count * sizeof *copy->properties);
    if (copy->properties == NULL) return NULL;
    memcpy(copy->properties, flat->properties, flat->property_count * sizeof *copy->properties);
    copy->property_capacity = flat->property_count;
    return copy;
}

static void add_flat(struct schema *schema, struct schema_flats *flats, struct schema_flat *flat)
{
    if (flat == NULL) return;
    if (flats->count == FLATS_MAX) {
        grammar_refuse(schema->work, "anyOf, oneOf and allOf make more than %d alternatives", FLATS_MAX);
        return;
    }
    if (flats->count == flats->capacity) {
        size_t wanted = flats->capacity > 0 ? 2 * flats->capacity : 4;
        struct schema_flat **data = schema_alloc(schema, wanted * sizeof(struct schema_flat *));
        if (data == NULL) return;
        if (flats->count > 0) memcpy(data, flats->data, flats->count * sizeof *data);
        flats->data = data;
        flats->capacity = wanted;
    }
    flats->data[flats->count++] = flat;
}

static struct schema_flats copy_flats(struct schema *schema, const struct schema_flats *flats)
{
    struct schema_flats copy = {0};
    for (size_t i = 0; i < flats->count && grammar_is_well(schema->work); i++)
        add_flat(schema, &copy, copy_flat(schema, flats->data[i]));
    return copy;
}

static unsigned types_of(const struct schema_flat *flat)
{
    if (flat->is_typed || flat->hinted == 0) return flat->types;
    return flat->types & flat->hinted;
}

/* The constant values of a schema by itself; an empty list: it has others. */
static bool given_values(const struct tt_json_value *from, const struct tt_json_value **list, bool *single)
{
    const struct tt_json_value *constant = tt_json_get(from, "const");
    *single = constant != NULL;
    *list = constant != NULL ? constant : tt_json_get(from, "enum");
    return *list != NULL;
}

static bool share_value(const struct tt_json_value *a, bool a_single, const struct tt_json_value *b,
                        bool b_single)
{
    size_t count_a = a_single ? 1 : tt_json_count(a), count_b = b_single ? 1 : tt_json_count(b);
    for (size_t i = 0; i < count_a; i++)
        for (size_t k = 0; k < count_b; k++)
            if (is_same(a_single ? a : tt_json_at(a, i), b_single ? b : tt_json_at(b, k))) return true;
    return false;
}

/* Both need a property, and no value of it is in both. */
static bool differ_by_property(const struct schema_flat *a, const struct schema_flat *b)
{
    for (size_t i = 0; i < a->property_count; i++) {
        const struct schema_property *x = &a->properties[i], *y = find_property(b, x->key);
        if (!x->required || y == NULL || !y->required) continue;
        for (size_t k = 0; k < x->schemas.count; k++)
            for (size_t l = 0; l < y->schemas.count; l++) {
                const struct tt_json_value *p, *q;
                bool p_single, q_single;
                if (given_values(x->schemas.data[k], &p, &p_single) &&
                    given_values(y->schemas.data[l], &q, &q_single) && !share_value(p, p_single, q, q_single))
                    return true;
            }
    }
    return false;
}

static unsigned type_of_value(const struct tt_json_value *value)
{
    switch (tt_json_type(value)) {
    case TT_JSON_NULL:
        return SCHEMA_NULL;
    case TT_JSON_STRING:
        return SCHEMA_STRING;
    case TT_JSON_LIST:
        return SCHEMA_ARRAY;
    case TT_JSON_OBJECT:
        return SCHEMA_OBJECT;
    default:
        return tt_json_is_bool(value) ? SCHEMA_BOOLEAN : SCHEMA_NUMBER;
    }
}

static unsigned first_types(const struct schema_flat *flat)
{
    unsigned types = 0;
    if (!flat->has_values) types = flat->types;
    for (size_t i = 0; i < flat->values.count; i++)
        types |= type_of_value(flat->values.data[i]) & flat->types;
    return (types & SCHEMA_NUMBER) != 0 ? types | SCHEMA_NUMBER : types;
}

/* Whether no value can be in both: by its first byte, by given values, or by a property with given values. */
static bool are_apart(const struct schema_flat *a, const struct schema_flat *b)
{
    unsigned both = first_types(a) & first_types(b);
    if (both == 0) return true;
    if (a->has_values && b->has_values) {
        for (size_t i = 0; i < a->values.count; i++)
            for (size_t k = 0; k < b->values.count; k++)
                if (is_same(a->values.data[i], b->values.data[k])) return false;
        return true;
    }
    return both == SCHEMA_OBJECT && differ_by_property(a, b);
}

static void apply(struct schema *schema, struct schema_flats *flats, const struct tt_json_value *from,
                  int depth);

static void apply_branches(struct schema *schema, struct schema_flats *flats,
                           const struct tt_json_value *branches, bool one, int depth)
{
    struct schema_flats all = {0};
    for (size_t i = 0; i < tt_json_count(branches) && grammar_is_well(schema->work); i++) {
        struct schema_flats branch = copy_flats(schema, flats);
        size_t before = all.count;
        apply(schema, &branch, tt_json_at(branches, i), depth);
        for (size_t k = 0; k < branch.count && grammar_is_well(schema->work); k++) {
            for (size_t other = 0; one && other < before; other++)
                if (!are_apart(all.data[other], branch.data[k])) {
                    grammar_refuse(schema->work,
                                   "the schemas of 'oneOf' may have the same value: they must begin "
                                   "with other bytes, or need a property with other values; "
                                   "'anyOf' may overlap");
                    return;
                }
            grammar_spend(schema->work, 1 + (one ? 4 * before : 0), 0);
            add_flat(schema, &all, branch.data[k]);
        }
    }
    *flats = all;
}

static void apply(struct schema *schema, struct schema_flats *flats, const struct tt_json_value *from,
                  int depth)
{
    if (!grammar_spend(schema->work, 8, 0) || tt_json_is_true(from)) return;
    if (tt_json_is_false(from)) {
        flats->count = 0;
        return;
    }
    if (depth > DEPTH_MAX) {
        grammar_refuse(schema->work, "a $ref leads to itself without a value between");
        return;
    }
    const struct tt_json_value *values = tt_json_get(from, "enum"), *constant = tt_json_get(from, "const");
    for (size_t i = 0; i < flats->count && grammar_is_well(schema->work); i++) {
        struct schema_flat *flat = flats->data[i];
        join_types(schema, flat, from);
        if (values != NULL) join_values(schema, flat, values, false);
        if (constant != NULL) join_values(schema, flat, constant, true);
        join_numbers(schema, flat, from);
        join_strings(schema, flat, from);
        join_arrays(schema, flat, from);
        join_objects(schema, flat, from);
    }
    const struct tt_json_value *reference = tt_json_get(from, "$ref"), *all = tt_json_get(from, "allOf");
    const struct tt_json_value *any = tt_json_get(from, "anyOf"), *one = tt_json_get(from, "oneOf");
    if (reference != NULL) {
        const struct tt_json_value *named = schema_refer(schema, reference);
        if (named != NULL) apply(schema, flats, named, depth + 1);
    }
    for (size_t i = 0; i < tt_json_count(all); i++) apply(schema, flats, tt_json_at(all, i), depth + 1);
    if (any != NULL) apply_branches(schema, flats, any, false, depth + 1);
    if (one != NULL) apply_branches(schema, flats, one, true, depth + 1);
}

void schema_flatten(struct schema *schema, const struct schema_list *list, struct schema_flats *out)
{
    struct schema_flat *flat = schema_alloc(schema, sizeof *flat);
    *out = (struct schema_flats){0};
    if (flat == NULL) return;
    *flat =
        (struct schema_flat){.types = SCHEMA_ANY, .max_length = -1, .max_items = -1, .max_properties = -1};
    add_flat(schema, out, flat);
    for (size_t i = 0; i < list->count && grammar_is_well(schema->work); i++)
        apply(schema, out, list->data[i], 0);
    for (size_t i = 0; i < out->count; i++) out->data[i]->types = types_of(out->data[i]);
}
