/* Whether a schema has a value: for the values of enum and const beside other keywords. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/pattern.h"
#include "grammar/schema.h"

enum { DEPTH_MAX = 512 };

static bool accepts(struct schema *schema, const struct tt_json_value *from,
                    const struct tt_json_value *value, int depth);

static bool is_whole(const struct tt_json_value *value)
{
    double number = tt_json_number(value);
    return tt_json_is_number(value) && isfinite(number) && number == floor(number);
}

static bool has_type(const struct tt_json_value *value, struct tt_span name)
{
    switch (schema_type_of(name)) {
    case SCHEMA_NULL:
        return tt_json_is_null(value);
    case SCHEMA_BOOLEAN:
        return tt_json_is_bool(value);
    case SCHEMA_OBJECT:
        return tt_json_is_object(value);
    case SCHEMA_ARRAY:
        return tt_json_is_list(value);
    case SCHEMA_INTEGER:
        return is_whole(value);
    case SCHEMA_NUMBER:
        return tt_json_is_number(value);
    default:
        return tt_json_is_string(value);
    }
}

static bool fits_type(const struct tt_json_value *type, const struct tt_json_value *value)
{
    if (type == NULL) return true;
    if (!tt_json_is_list(type)) return has_type(value, tt_json_span(type));
    for (size_t i = 0; i < tt_json_count(type); i++)
        if (has_type(value, tt_json_span(tt_json_at(type, i)))) return true;
    return false;
}

static bool is_same(const struct tt_json_value *a, const struct tt_json_value *b)
{
    if (tt_json_is_number(a) && tt_json_is_number(b)) return tt_json_number(a) == tt_json_number(b);
    return tt_json_equal(a, b);
}

static bool fits_values(const struct tt_json_value *from, const struct tt_json_value *value)
{
    const struct tt_json_value *values = tt_json_get(from, "enum"), *constant = tt_json_get(from, "const");
    bool found = values == NULL;
    for (size_t i = 0; i < tt_json_count(values) && !found; i++)
        found = is_same(tt_json_at(values, i), value);
    return found && (constant == NULL || is_same(constant, value));
}

/* The limit is not there, or holds. */
static bool at_least(const struct tt_json_value *limit, double value)
{
    return limit == NULL || value >= tt_json_number(limit);
}

static bool at_most(const struct tt_json_value *limit, double value)
{
    return limit == NULL || value <= tt_json_number(limit);
}

static bool fits_number(const struct tt_json_value *from, double value)
{
    const struct tt_json_value *above = tt_json_get(from, "exclusiveMinimum");
    const struct tt_json_value *below = tt_json_get(from, "exclusiveMaximum"),
                               *multiple = tt_json_get(from, "multipleOf");
    return at_least(tt_json_get(from, "minimum"), value) && at_most(tt_json_get(from, "maximum"), value) &&
           (above == NULL || value > tt_json_number(above)) &&
           (below == NULL || value < tt_json_number(below)) &&
           (multiple == NULL || fmod(value, tt_json_number(multiple)) == 0);
}

static bool matches(struct schema *schema, struct tt_span pattern, struct tt_span text)
{
    struct dfa dfa = {0};
    pattern_compile(schema->work, pattern, &(struct pattern_options){.search = true}, &dfa);
    uint32_t at = dfa.states > 0 ? 0 : DFA_DEAD;
    for (size_t i = 0; i < text.bytes && at != DFA_DEAD; i++) at = dfa_step(&dfa, at, (uint8_t)text.data[i]);
    bool matched = at != DFA_DEAD && dfa.accepts[at];
    dfa_deinit(&dfa);
    return matched;
}

static bool fits_string(struct schema *schema, const struct tt_json_value *from, struct tt_span text)
{
    const struct tt_json_value *pattern = tt_json_get(from, "pattern"), *format = tt_json_get(from, "format");
    size_t characters = 0;
    for (size_t i = 0; i < text.bytes; i++) characters += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    grammar_spend(schema->work, text.bytes, 0);
    return at_least(tt_json_get(from, "minLength"), (double)characters) &&
           at_most(tt_json_get(from, "maxLength"), (double)characters) &&
           (pattern == NULL || matches(schema, tt_json_span(pattern), text)) &&
           (format == NULL || matches(schema, tt_span_of(schema_format(tt_json_span(format))), text));
}

static bool fits_list(struct schema *schema, const struct tt_json_value *from,
                      const struct tt_json_value *list, int depth)
{
    const struct tt_json_value *prefix = tt_json_get(from, "prefixItems"),
                               *items = tt_json_get(from, "items");
    size_t count = tt_json_count(list);
    if (!at_least(tt_json_get(from, "minItems"), (double)count)) return false;
    if (!at_most(tt_json_get(from, "maxItems"), (double)count)) return false;
    for (size_t i = 0; i < count; i++) {
        const struct tt_json_value *item = i < tt_json_count(prefix) ? tt_json_at(prefix, i) : items;
        if (item != NULL && !accepts(schema, item, tt_json_at(list, i), depth)) return false;
    }
    return true;
}

static bool fits_object(struct schema *schema, const struct tt_json_value *from,
                        const struct tt_json_value *object, int depth)
{
    const struct tt_json_value *properties = tt_json_get(from, "properties"),
                               *required = tt_json_get(from, "required");
    const struct tt_json_value *additional = tt_json_get(from, "additionalProperties");
    size_t count = tt_json_count(object);
    if (!at_least(tt_json_get(from, "minProperties"), (double)count)) return false;
    if (!at_most(tt_json_get(from, "maxProperties"), (double)count)) return false;
    for (size_t i = 0; i < tt_json_count(required); i++)
        if (tt_json_get_span(object, tt_json_span(tt_json_at(required, i))) == NULL) return false;
    for (size_t i = 0; i < count; i++) {
        struct tt_json_member member = tt_json_member(object, i);
        const struct tt_json_value *own = tt_json_get_span(properties, member.key);
        if (own == NULL) own = additional;
        if (own != NULL && !accepts(schema, own, member.value, depth)) return false;
    }
    return true;
}

/* How many of the schemas have the value. */
static size_t count_accepting(struct schema *schema, const struct tt_json_value *list,
                              const struct tt_json_value *value, int depth)
{
    size_t count = 0;
    for (size_t i = 0; i < tt_json_count(list); i++)
        count += accepts(schema, tt_json_at(list, i), value, depth);
    return count;
}

static bool fits_others(struct schema *schema, const struct tt_json_value *from,
                        const struct tt_json_value *value, int depth)
{
    const struct tt_json_value *all = tt_json_get(from, "allOf"), *any = tt_json_get(from, "anyOf");
    const struct tt_json_value *one = tt_json_get(from, "oneOf"), *reference = tt_json_get(from, "$ref");
    if (reference != NULL) {
        const struct tt_json_value *named = schema_refer(schema, reference);
        if (named == NULL || !accepts(schema, named, value, depth)) return false;
    }
    return (all == NULL || count_accepting(schema, all, value, depth) == tt_json_count(all)) &&
           (any == NULL || count_accepting(schema, any, value, depth) > 0) &&
           (one == NULL || count_accepting(schema, one, value, depth) == 1);
}

static bool accepts(struct schema *schema, const struct tt_json_value *from,
                    const struct tt_json_value *value, int depth)
{
    if (!grammar_spend(schema->work, 8, 0) || depth > DEPTH_MAX) return false;
    if (tt_json_is_bool(from)) return tt_json_is_true(from);
    if (!fits_type(tt_json_get(from, "type"), value) || !fits_values(from, value)) return false;
    if (tt_json_is_number(value) && !fits_number(from, tt_json_number(value))) return false;
    if (tt_json_is_string(value) && !fits_string(schema, from, tt_json_span(value))) return false;
    if (tt_json_is_list(value) && !fits_list(schema, from, value, depth + 1)) return false;
    if (tt_json_is_object(value) && !fits_object(schema, from, value, depth + 1)) return false;
    return fits_others(schema, from, value, depth + 1);
}

bool schema_accepts(struct schema *schema, const struct tt_json_value *from,
                    const struct tt_json_value *value)
{
    return accepts(schema, from, value, 0);
}
