#include "serve/call_format.h"

#include <stdio.h>
#include <string.h>

static const struct tt_call_format *const formats[] = {
#define CALL_FORMAT(name) &tt_call_format_##name,
#include "serve/call_formats.def"
#undef CALL_FORMAT
};
enum { FORMATS = sizeof formats / sizeof *formats };

const struct tt_call_format *tt_call_format_at(size_t index)
{
    return index < FORMATS ? formats[index] : NULL;
}

const struct tt_call_format *tt_call_format_of(const char *chat_template)
{
    for (size_t i = 0; chat_template != NULL && i < FORMATS; i++)
        for (const char *const *mark = formats[i]->marks; *mark != NULL; mark++)
            if (strstr(chat_template, *mark) != NULL) return formats[i];
    return formats[FORMATS - 1];
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

struct tt_span tt_call_trim(struct tt_span text)
{
    while (text.bytes > 0 && is_blank(text.data[text.bytes - 1])) text.bytes--;
    while (text.bytes > 0 && is_blank(*text.data)) text.data++, text.bytes--;
    return text;
}

const struct tt_json_value *tt_call_function(const struct tt_json_value *tools, struct tt_span name)
{
    for (size_t i = 0; i < tt_json_count(tools) && name.data != NULL; i++) {
        const struct tt_json_value *tool = tt_json_at(tools, i), *function = tt_json_get(tool, "function");
        if (function == NULL) function = tool;
        const char *known = tt_json_text(tt_json_get(function, "name"));
        if (known != NULL && tt_span_equals(name, known)) return function;
    }
    return NULL;
}

/* Nine letters and digits, which Mistral's templates demand. */
static void make_id(uint64_t seed, size_t index, char id[10])
{
    uint64_t bits = (seed + 1) * UINT64_C(0x9E3779B97F4A7C15) + index;
    bits = (bits ^ bits >> 31) * UINT64_C(0xD6E8FEB86659FD93);
    bits ^= bits >> 32;
    for (size_t i = 0; i < 9; i++, bits /= 36) id[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[bits % 36];
    id[9] = 0;
}

tt_status tt_call_add(struct tt_call_search *search, struct tt_span name,
                      const struct tt_json_value *arguments, bool *is)
{
    struct tt_str text = {0};
    char id[10];
    tt_status status = TT_OK;
    *is = tt_call_function(search->tools, name) != NULL &&
          (tt_json_is_object(arguments) || tt_json_is_string(arguments));
    if (!*is) return TT_OK;
    if (tt_json_is_object(arguments)) TT_GO(tt_json_write(arguments, 0, false, &text));
    make_id(search->seed, tt_json_count(search->calls), id);
    struct tt_span shown = tt_json_is_object(arguments) ? (struct tt_span){tt_str_text(&text), text.bytes}
                                                        : tt_json_span(arguments);
    struct tt_json_value *call = tt_json_pack("{s:s, s:s, s:{s:t, s:t}}", "id", id, "type", "function",
                                              "function", "name", name, "arguments", shown);
    if (tt_json_append(search->calls, call) != 0) status = TT_ERR_MEMORY;
out:
    tt_str_deinit(&text);
    return status;
}

static tt_status add_value(struct tt_call_search *search, const struct tt_json_value *value, bool *is)
{
    const struct tt_json_value *arguments = tt_json_get(value, "arguments");
    if (arguments == NULL) arguments = tt_json_get(value, "parameters");
    return tt_call_add(search, tt_json_span(tt_json_get(value, "name")), arguments, is);
}

tt_status tt_call_add_json(struct tt_call_search *search, struct tt_span text, bool *are)
{
    struct tt_json json = {0};
    tt_status status = tt_json_parse(text.data, text.bytes, "the answer", &json);
    *are = status == TT_OK;
    if (status == TT_ERR_DATA) {
        tt_error_clear();
        return TT_OK;
    }
    if (status != TT_OK) return status;
    size_t count = tt_json_is_list(json.root) ? tt_json_count(json.root) : 1;
    *are = count > 0;
    for (size_t i = 0; i < count && *are; i++)
        TT_GO(add_value(search, tt_json_is_list(json.root) ? tt_json_at(json.root, i) : json.root, are));
out:
    tt_json_deinit(&json);
    return status;
}

size_t tt_call_object_bytes(struct tt_span text)
{
    size_t depth = 0;
    bool quoted = false;
    if (text.bytes == 0 || *text.data != '{') return 0;
    for (size_t i = 0; i < text.bytes; i++) {
        char c = text.data[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && c == '{')
            depth++;
        else if (!quoted && c == '}' && --depth == 0)
            return i + 1;
    }
    return 0;
}

struct tt_json_value *tt_call_schema(const struct tt_json_value *function)
{
    const struct tt_json_value *schema = tt_json_get(function, "parameters");
    return schema != NULL && !tt_json_is_null(schema)
               ? tt_json_copy(schema)
               : tt_json_pack("{s:s, s:{}}", "type", "object", "properties");
}

bool tt_call_is_text(const struct tt_json_value *schema)
{
    struct tt_span type = tt_json_span(tt_json_get(schema, "type"));
    const struct tt_json_value *values = tt_json_get(schema, "enum"),
                               *constant = tt_json_get(schema, "const");
    if (type.data != NULL) return tt_span_equals(type, "string");
    bool plain = tt_json_get(schema, "type") == NULL && tt_json_get(schema, "$ref") == NULL &&
                 tt_json_get(schema, "anyOf") == NULL && tt_json_get(schema, "oneOf") == NULL &&
                 tt_json_get(schema, "allOf") == NULL;
    for (size_t i = 0; i < tt_json_count(values); i++)
        plain = plain && tt_json_is_string(tt_json_at(values, i));
    return plain && (constant == NULL || tt_json_is_string(constant));
}

bool tt_call_is_required(const struct tt_json_value *parameters, struct tt_span key)
{
    const struct tt_json_value *required = tt_json_get(parameters, "required");
    for (size_t i = 0; i < tt_json_count(required); i++) {
        struct tt_span name = tt_json_span(tt_json_at(required, i));
        if (name.bytes == key.bytes && memcmp(name.data, key.data, key.bytes) == 0) return true;
    }
    return false;
}

tt_status tt_call_check_keywords(const struct tt_json_value *schema, const char *known)
{
    static const char silent[] = " title description default examples ";
    for (size_t i = 0; i < tt_json_count(schema); i++) {
        char word[64];
        const char *key = tt_json_member(schema, i).key.data;
        snprintf(word, sizeof word, " %s ", key);
        if (strstr(known, word) == NULL && strstr(silent, word) == NULL)
            return tt_fail(TT_ERR_USAGE, "the keyword '%.60s' is not supported in calls of this model's form",
                           key);
    }
    return TT_OK;
}

tt_status tt_call_text_part(const struct tt_json_value *schema, const char *end, struct tt_json_value **part)
{
    const struct tt_json_value *values = tt_json_get(schema, "enum"),
                               *constant = tt_json_get(schema, "const");
    TT_TRY(tt_call_check_keywords(schema, " type enum const "));
    struct tt_json_value *choices = tt_json_new_list();
    for (size_t i = 0; i < tt_json_count(values) && constant == NULL; i++)
        tt_json_append(choices, tt_json_pack("{s:O}", "text", tt_json_at(values, i)));
    if (constant != NULL) tt_json_append(choices, tt_json_pack("{s:O}", "text", constant));
    if (values == NULL && constant == NULL) tt_json_append(choices, tt_json_pack("{s:s}", "without", end));
    *part = tt_json_pack("{s:o}", "choice", choices);
    return *part != NULL ? TT_OK : TT_ERR_MEMORY;
}

struct tt_json_value *tt_call_name_part(const struct tt_json_value *function, const char *before, bool quotes,
                                        const char *behind)
{
    const struct tt_json_value *name = tt_json_get(function, "name");
    struct tt_span plain = tt_json_span(name);
    struct tt_str text = {0};
    tt_status status = tt_str_append_text(&text, before);
    if (status == TT_OK)
        status =
            quotes ? tt_json_write(name, 0, false, &text) : tt_str_append(&text, plain.data, plain.bytes);
    if (status == TT_OK) status = tt_str_append_text(&text, behind);
    struct tt_json_value *part = status == TT_OK ? tt_json_pack("{s:s}", "text", tt_str_text(&text)) : NULL;
    tt_str_deinit(&text);
    return part;
}

struct tt_json_value *tt_call_token_part(const struct tt_tokenizer *tokenizer, const char *token)
{
    int32_t id = tt_tokenizer_token_id(tokenizer, token);
    if (id >= 0 && tt_tokenizer_is_special(tokenizer, id)) return tt_json_pack("{s:i}", "token", (int)id);
    return tt_json_pack("{s:s}", "text", token);
}
