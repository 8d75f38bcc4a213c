/* <tool_call>{"name": ..., "arguments": {...}}</tool_call>, once or more: Qwen's and Hermes' calls. The last one
 * may lack its end. */
#include <string.h>

#include "serve/call_format.h"

static const char begin_tag[] = "<tool_call>", end_tag[] = "</tool_call>";
static const char *const marks[] = {begin_tag, NULL};

static tt_status find(struct tt_call_search *search, struct tt_span text, bool *are)
{
    for (*are = true; *are && text.bytes > 0;) {
        *are = tt_span_starts_with(text, begin_tag);
        if (!*are) return TT_OK;
        struct tt_span inner = {text.data + strlen(begin_tag), text.bytes - strlen(begin_tag)};
        const char *after = text.data + text.bytes;
        const char *end = inner.bytes > 0 ? memmem(inner.data, inner.bytes, end_tag, strlen(end_tag)) : NULL;
        text = (struct tt_span){after, 0};
        if (end != NULL) {
            inner.bytes = (size_t)(end - inner.data);
            end += strlen(end_tag);
            text = tt_call_trim((struct tt_span){end, (size_t)(after - end)});
        }
        TT_TRY(tt_call_add_json(search, tt_call_trim(inner), are));
    }
    return TT_OK;
}

static tt_status write(const struct tt_call_model *model, const struct tt_json_value *function,
                       struct tt_json_value **part)
{
    (void)model;
    *part = tt_json_pack("{s:[o, {s:o}, {s:s}]}", "sequence",
                         tt_call_name_part(function, "<tool_call>\n{\"name\": ", true, ", \"arguments\": "),
                         "json", tt_call_schema(function), "text", "}\n</tool_call>");
    return *part != NULL ? TT_OK : TT_ERR_MEMORY;
}

const struct tt_call_format tt_call_format_hermes = {
    .name = "hermes", .marks = marks, .begins = marks, .find = find, .write = write, .between = "\n"};
