/* Calls of Qwen3-Coder and Qwen3.5, which are tags of names and plain values:
 *     <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n ... </function>\n</tool_call>
 * A value is a text where the schema of the function says that the parameter is one, or nothing; else it is JSON. */
#include <string.h>

#include "serve/call_format.h"

static const char begin_tag[] = "<tool_call>", value_end[] = "</parameter>";
static const char *const marks[] = {"<function=", NULL}, *const begins[] = {begin_tag, "<function=", NULL};

static const struct tt_json_value *schema_of(const struct tt_json_value *function, struct tt_span key)
{
    return tt_json_get_span(tt_json_get(tt_json_get(function, "parameters"), "properties"), key);
}

/* The text is taken from `*text` if it begins with it. */
static bool take(struct tt_span *text, const char *word)
{
    if (!tt_span_starts_with(*text, word)) return false;
    text->data += strlen(word);
    text->bytes -= strlen(word);
    return true;
}

/* Takes the text before `end`, and `end` too. */
static bool take_until(struct tt_span *text, const char *end, struct tt_span *out)
{
    const char *found = text->bytes > 0 ? memmem(text->data, text->bytes, end, strlen(end)) : NULL;
    if (found == NULL) return false;
    *out = (struct tt_span){text->data, (size_t)(found - text->data)};
    text->bytes -= out->bytes + strlen(end);
    text->data = found + strlen(end);
    return true;
}

static tt_status add_value(const struct tt_json_value *function, struct tt_span key, struct tt_span value,
                           struct tt_json_value *arguments)
{
    struct tt_json json = {0};
    struct tt_json_value *made = NULL;
    if (value.bytes > 0 && *value.data == '\n') value.data++, value.bytes--;
    if (value.bytes > 0 && value.data[value.bytes - 1] == '\n') value.bytes--;
    tt_status status = TT_ERR_DATA;
    if (!tt_call_is_text(schema_of(function, key)))
        status = tt_json_parse(value.data, value.bytes, "a value", &json);
    if (status == TT_ERR_MEMORY) return status;
    tt_error_clear();
    made = status == TT_OK ? tt_json_copy(json.root) : tt_json_new_text(value);
    tt_json_deinit(&json);
    return tt_json_set_span(arguments, key, made) == 0 ? TT_OK : TT_ERR_MEMORY;
}

/* <function=NAME> ... </function> */
static tt_status add_function(struct tt_call_search *search, struct tt_span *text, bool *is)
{
    struct tt_span name, key, value;
    *is = take(text, "<function=") && take_until(text, ">", &name);
    const struct tt_json_value *function = *is ? tt_call_function(search->tools, name) : NULL;
    struct tt_json_value *arguments = tt_json_new_object();
    tt_status status = TT_OK;
    if (arguments == NULL) return TT_ERR_MEMORY;
    *is = function != NULL;
    *text = tt_call_trim(*text);
    while (*is && status == TT_OK && take(text, "<parameter=")) {
        *is = take_until(text, ">", &key) && take_until(text, value_end, &value);
        if (*is) status = add_value(function, key, value, arguments);
        *text = tt_call_trim(*text);
    }
    *is = *is && take(text, "</function>");
    if (*is && status == TT_OK) status = tt_call_add(search, name, arguments, is);
    tt_json_release(arguments);
    return status;
}

static tt_status find(struct tt_call_search *search, struct tt_span text, bool *are)
{
    for (*are = text.bytes > 0; *are && text.bytes > 0; text = tt_call_trim(text)) {
        bool tagged = take(&text, begin_tag);
        text = tt_call_trim(text);
        TT_TRY(add_function(search, &text, are));
        text = tt_call_trim(text);
        if (*are && tagged && text.bytes > 0) *are = take(&text, "</tool_call>");
    }
    return TT_OK;
}

/* A value of JSON, with what its $ref may name. */
static struct tt_json_value *write_json(const struct tt_json_value *parameters,
                                        const struct tt_json_value *schema)
{
    static const char *const places[] = {"$defs", "definitions"};
    struct tt_json_value *whole = tt_json_pack("{s:[O]}", "allOf", schema);
    for (size_t i = 0; i < 2; i++)
        if (tt_json_get(parameters, places[i]) != NULL)
            tt_json_set_copy(whole, places[i], tt_json_get(parameters, places[i]));
    return tt_json_pack("{s:o}", "json", whole);
}

static tt_status write_parameter(const struct tt_json_value *parameters, struct tt_json_member member,
                                 struct tt_json_value *parts)
{
    struct tt_str begin = {0};
    struct tt_json_value *value = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_str_append_text(&begin, "<parameter="));
    TT_GO(tt_str_append(&begin, member.key.data, member.key.bytes));
    TT_GO(tt_str_append_text(&begin, ">\n"));
    if (tt_call_is_text(member.value))
        TT_GO(tt_call_text_part(member.value, "\n</parameter>", &value));
    else
        value = write_json(parameters, member.value);
    struct tt_json_value *part = tt_json_pack("{s:[{s:s}, o, {s:s}]}", "sequence", "text",
                                              tt_str_text(&begin), value, "text", "\n</parameter>\n");
    if (!tt_call_is_required(parameters, member.key))
        part = tt_json_pack("{s:[{s:s}, o]}", "choice", "text", "", part);
    tt_json_append(parts, part);
out:
    tt_str_deinit(&begin);
    return status;
}

static tt_status write(const struct tt_call_model *model, const struct tt_json_value *function,
                       struct tt_json_value **part)
{
    const struct tt_json_value *parameters = tt_json_get(function, "parameters");
    const struct tt_json_value *properties = tt_json_get(parameters, "properties");
    struct tt_json_value *parts = tt_json_new_list();
    tt_status status = TT_OK;
    (void)model;
    tt_json_append(parts, tt_call_name_part(function, "<tool_call>\n<function=", false, ">\n"));
    for (size_t i = 0; i < tt_json_count(properties) && status == TT_OK; i++)
        status = write_parameter(parameters, tt_json_member(properties, i), parts);
    tt_json_append(parts, tt_json_pack("{s:s}", "text", "</function>\n</tool_call>"));
    *part = tt_json_pack("{s:o}", "sequence", parts);
    if (status == TT_OK && *part == NULL) status = TT_ERR_MEMORY;
    if (status != TT_OK) tt_json_release(*part);
    return status;
}

const struct tt_call_format tt_call_format_qwen_xml = {
    .name = "qwen_xml", .marks = marks, .begins = begins, .find = find, .write = write, .between = "\n"};
