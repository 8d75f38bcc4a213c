/* The form of a schema: keywords and their values; names of types and formats; references. */
#include <math.h>
#include <string.h>

#include "grammar/schema.h"

enum { DEPTH_MAX = 64, NAME_SHOWN = 60 };

enum keyword_kind { NOTE, SCHEMA, SCHEMAS, SCHEMAS_BY_NAME, TEXT, TEXTS, TYPE, VALUES, COUNT, NUMBER };

static const struct keyword {
    const char *name;
    enum keyword_kind kind;
} keywords[] = {
#define KEYWORD(name, kind, types) {name, kind},
#include "grammar/keywords.def"
#undef KEYWORD
};

unsigned schema_type_of(struct tt_span name)
{
    static const struct {
        const char *name;
        unsigned types;
    } types[] = {{"null", SCHEMA_NULL},    {"boolean", SCHEMA_BOOLEAN}, {"object", SCHEMA_OBJECT},
                 {"array", SCHEMA_ARRAY},  {"integer", SCHEMA_INTEGER}, {"number", SCHEMA_NUMBER},
                 {"string", SCHEMA_STRING}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (tt_span_equals(name, types[i].name)) return types[i].types;
    return 0;
}

const char *schema_format(struct tt_span name)
{
    static const char *const formats[][2] = {
#define FORMAT(name, pattern) {name, pattern},
#include "grammar/formats.def"
#undef FORMAT
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (tt_span_equals(name, formats[i][0])) return formats[i][1];
    return NULL;
}

static void refuse_value(struct schema *schema, const char *keyword, const char *form)
{
    grammar_refuse(schema->work, "the value of the keyword '%s' must be %s", keyword, form);
}

static void check(struct schema *schema, const struct tt_json_value *from, int depth);

static void check_all(struct schema *schema, const struct tt_json_value *value, int depth)
{
    for (size_t i = 0; i < tt_json_count(value); i++)
        check(schema, tt_json_is_list(value) ? tt_json_at(value, i) : tt_json_member(value, i).value, depth);
}

static bool are_texts(const struct tt_json_value *value)
{
    for (size_t i = 0; i < tt_json_count(value); i++)
        if (!tt_json_is_string(tt_json_at(value, i))) return false;
    return tt_json_is_list(value);
}

static void check_type(struct schema *schema, const struct tt_json_value *value)
{
    bool good = tt_json_is_list(value) ? tt_json_count(value) > 0 : schema_type_of(tt_json_span(value)) != 0;
    for (size_t i = 0; tt_json_is_list(value) && i < tt_json_count(value); i++)
        good = good && schema_type_of(tt_json_span(tt_json_at(value, i))) != 0;
    if (!good)
        refuse_value(schema, "type",
                     "null, boolean, object, array, number, integer or string, or a list of them");
}

static void check_value(struct schema *schema, const struct keyword *keyword,
                        const struct tt_json_value *value, int depth)
{
    switch (keyword->kind) {
    case NOTE:
        return;
    case SCHEMA:
        check(schema, value, depth + 1);
        return;
    case SCHEMAS:
        if (!tt_json_is_list(value) || tt_json_count(value) == 0)
            refuse_value(schema, keyword->name, "a list of schemas");
        check_all(schema, value, depth + 1);
        return;
    case SCHEMAS_BY_NAME:
        if (!tt_json_is_object(value)) refuse_value(schema, keyword->name, "an object of schemas");
        check_all(schema, value, depth + 1);
        return;
    case TEXT:
        if (!tt_json_is_string(value)) refuse_value(schema, keyword->name, "a text");
        return;
    case TEXTS:
        if (!are_texts(value)) refuse_value(schema, keyword->name, "a list of texts");
        return;
    case TYPE:
        check_type(schema, value);
        return;
    case VALUES:
        if (!tt_json_is_list(value) || tt_json_count(value) == 0)
            refuse_value(schema, keyword->name, "a list of values");
        return;
    case COUNT:
        if (!tt_json_is_number(value) || !(tt_json_number(value) >= 0) || !(tt_json_number(value) < 1e15) ||
            tt_json_number(value) != floor(tt_json_number(value)))
            refuse_value(schema, keyword->name, "an integer that is not negative");
        return;
    case NUMBER:
        if (!tt_json_is_number(value) || !isfinite(tt_json_number(value)))
            refuse_value(schema, keyword->name, "a number");
        return;
    }
}

/* Rules that the kind of a keyword does not say. */
static void check_more(struct schema *schema, const struct tt_json_value *from)
{
    const struct tt_json_value *format = tt_json_get(from, "format"),
                               *multiple = tt_json_get(from, "multipleOf");
    struct tt_span name = tt_json_span(format);
    if (format != NULL && schema_format(name) == NULL)
        grammar_refuse(schema->work, "the format '%.*s' is not supported",
                       (int)(name.bytes < NAME_SHOWN ? name.bytes : NAME_SHOWN), name.data);
    double number = tt_json_number(multiple);
    if (multiple != NULL && (!(number >= 1 && number < 1e15) || number != floor(number)))
        refuse_value(schema, "multipleOf", "an integer above 0: rests of fractions are not exact");
    if (from != schema->root && tt_json_get(from, "$id") != NULL)
        grammar_refuse(schema->work, "the keyword '$id' is supported at the root alone");
}

static void check(struct schema *schema, const struct tt_json_value *from, int depth)
{
    if (!grammar_spend(schema->work, 4, 0) || tt_json_is_bool(from)) return;
    if (!tt_json_is_object(from)) {
        grammar_refuse(schema->work, "a schema must be an object, true or false");
        return;
    }
    if (depth > DEPTH_MAX) {
        grammar_refuse(schema->work, "the schema is more than %d levels deep", DEPTH_MAX);
        return;
    }
    for (size_t i = 0; i < tt_json_count(from) && grammar_is_well(schema->work); i++) {
        struct tt_json_member member = tt_json_member(from, i);
        size_t k = 0;
        while (k < sizeof keywords / sizeof *keywords && !tt_span_equals(member.key, keywords[k].name)) k++;
        grammar_spend(schema->work, k, 0);
        if (k < sizeof keywords / sizeof *keywords)
            check_value(schema, &keywords[k], member.value, depth);
        else
            grammar_refuse(schema->work, "the keyword '%.*s' of JSON Schema is not supported",
                           (int)(member.key.bytes < NAME_SHOWN ? member.key.bytes : NAME_SHOWN),
                           member.key.data);
    }
    if (grammar_is_well(schema->work)) check_more(schema, from);
}

void schema_check(struct schema *schema)
{
    check(schema, schema->root, 0);
}

/* ---- References ---- */

/* The next part of a JSON pointer (RFC 6901) in a fragment of a URI; false: an escape is broken. */
static bool take_part(struct tt_span *pointer, struct tt_str *part, tt_status *status)
{
    tt_str_clear(part);
    while (pointer->bytes > 0 && *pointer->data != '/') {
        char c = *pointer->data;
        size_t taken = 1;
        if (c == '~') {
            if (pointer->bytes < 2 || (pointer->data[1] != '0' && pointer->data[1] != '1')) return false;
            c = pointer->data[1] == '0' ? '~' : '/';
            taken = 2;
        } else if (c == '%') {
            static const char digits[] = "0123456789abcdef";
            const char *high = pointer->bytes >= 3 ? strchr(digits, pointer->data[1] | 0x20) : NULL;
            const char *low = pointer->bytes >= 3 ? strchr(digits, pointer->data[2] | 0x20) : NULL;
            if (high == NULL || low == NULL || *high == 0 || *low == 0) return false;
            c = (char)((high - digits) * 16 + (low - digits));
            taken = 3;
        }
        *status = tt_str_append_char(part, c);
        if (*status != TT_OK) return false;
        pointer->data += taken;
        pointer->bytes -= taken;
    }
    return true;
}

static const struct tt_json_value *step_into(const struct tt_json_value *at, const struct tt_str *part)
{
    if (tt_json_is_object(at)) return tt_json_get_span(at, (struct tt_span){tt_str_text(part), part->bytes});
    size_t index = 0;
    for (size_t i = 0; i < part->bytes && index < 1000000; i++) {
        if (part->data[i] < '0' || part->data[i] > '9') return NULL;
        index = index * 10 + (size_t)(part->data[i] - '0');
    }
    return tt_json_is_list(at) && part->bytes > 0 ? tt_json_at(at, index) : NULL;
}

const struct tt_json_value *schema_refer(struct schema *schema, const struct tt_json_value *reference)
{
    struct tt_span text = tt_json_span(reference), pointer = text;
    struct tt_str part = {0};
    const struct tt_json_value *at = schema->root;
    tt_status status = TT_OK;
    bool good = pointer.bytes > 0 && *pointer.data == '#';
    if (good) pointer.data++, pointer.bytes--;
    while (good && at != NULL && pointer.bytes > 0) {
        good = *pointer.data == '/';
        pointer.data++, pointer.bytes--;
        good = good && take_part(&pointer, &part, &status);
        if (good) at = step_into(at, &part);
    }
    tt_str_deinit(&part);
    if (status != TT_OK) {
        grammar_fail(schema->work, status);
        return NULL;
    }
    if (good && (tt_json_is_object(at) || tt_json_is_bool(at))) {
        /* A place that no keyword of schemas leads to was not looked at yet. */
        check(schema, at, 0);
        return grammar_is_well(schema->work) ? at : NULL;
    }
    grammar_refuse(schema->work,
                   "the $ref '%.*s' names no part of the schema: it must be like '#/$defs/name'",
                   (int)(text.bytes < NAME_SHOWN ? text.bytes : NAME_SHOWN), text.data);
    return NULL;
}
