/* Mistral's calls behind the token [TOOL_CALLS], which is not shown where it is special: a list of objects with
 * name and arguments, or, of later tokenizers, NAME[ARGS]{...} or NAME{...} for each. */
#include <string.h>

#include "serve/call_format.h"

static const char begin_tag[] = "[TOOL_CALLS]", args_tag[] = "[ARGS]";
static const char *const marks[] = {begin_tag, NULL};

static bool take(struct tt_span *text, const char *word)
{
    if (!tt_span_starts_with(*text, word)) return false;
    text->data += strlen(word);
    text->bytes -= strlen(word);
    return true;
}

static tt_status add_named(struct tt_call_search *search, struct tt_span *text, bool *is)
{
    struct tt_json json = {0};
    struct tt_span name = {text->data, 0};
    while (name.bytes < text->bytes && text->data[name.bytes] != '{' && text->data[name.bytes] != '[')
        name.bytes++;
    text->data += name.bytes;
    text->bytes -= name.bytes;
    take(text, args_tag);
    size_t bytes = tt_call_object_bytes(*text);
    *is = bytes > 0 && tt_call_function(search->tools, name) != NULL;
    if (!*is) return TT_OK;
    tt_status status = tt_json_parse(text->data, bytes, "the answer", &json);
    text->data += bytes;
    text->bytes -= bytes;
    *is = status == TT_OK;
    if (status == TT_ERR_DATA) {
        tt_error_clear();
        return TT_OK;
    }
    if (status == TT_OK) status = tt_call_add(search, name, json.root, is);
    tt_json_deinit(&json);
    return status;
}

static tt_status find(struct tt_call_search *search, struct tt_span text, bool *are)
{
    *are = false;
    if (text.bytes == 0) return TT_OK;
    for (*are = true; *are && text.bytes > 0; text = tt_call_trim(text)) {
        take(&text, begin_tag);
        text = tt_call_trim(text);
        if (text.bytes > 0 && *text.data == '[') return tt_call_add_json(search, text, are);
        TT_TRY(add_named(search, &text, are));
    }
    return TT_OK;
}

static tt_status write(const struct tt_call_model *model, const struct tt_json_value *function,
                       struct tt_json_value **part)
{
    if (strstr(model->chat_template, args_tag) != NULL)
        *part =
            tt_json_pack("{s:[o, o, {s:o}]}", "sequence", tt_call_name_part(function, "", false, ""),
                         tt_call_token_part(model->tokenizer, args_tag), "json", tt_call_schema(function));
    else
        *part = tt_json_pack("{s:[o, {s:o}, {s:s}]}", "sequence",
                             tt_call_name_part(function, "[{\"name\": ", true, ", \"arguments\": "), "json",
                             tt_call_schema(function), "text", "}]");
    return *part != NULL ? TT_OK : TT_ERR_MEMORY;
}

static struct tt_json_value *before(const struct tt_call_model *model)
{
    return tt_call_token_part(model->tokenizer, begin_tag);
}

const struct tt_call_format tt_call_format_mistral = {
    .name = "mistral", .marks = marks, .begins = marks, .find = find, .write = write, .before = before};
