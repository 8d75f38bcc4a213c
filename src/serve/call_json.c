/* Nothing but a JSON object, or a list of objects, with "name" and "parameters" or "arguments": Llama 3's calls, and
 * Mistral's behind a token that is not shown. */
#include "serve/call_format.h"

static const char *const marks[] = {NULL};

static tt_status find(struct tt_call_search *search, struct tt_span text, bool *are)
{
    *are = false;
    if (text.bytes == 0 || (*text.data != '{' && *text.data != '[')) return TT_OK;
    return tt_call_add_json(search, text, are);
}

static tt_status write(const struct tt_call_model *model, const struct tt_json_value *function,
                       struct tt_json_value **part)
{
    (void)model;
    *part = tt_json_pack("{s:[o, {s:o}, {s:s}]}", "sequence",
                         tt_call_name_part(function, "{\"name\": ", true, ", \"parameters\": "), "json",
                         tt_call_schema(function), "text", "}");
    return *part != NULL ? TT_OK : TT_ERR_MEMORY;
}

const struct tt_call_format tt_call_format_json = {
    .name = "json", .marks = marks, .find = find, .write = write};
