#include "serve/tool_calls.h"

#include <string.h>

#include "serve/call_format.h"

/* The text without blanks at its end. */
static size_t trimmed_bytes(const char *text, size_t bytes)
{
    while (bytes > 0 && strchr(" \n\r\t", text[bytes - 1]) != NULL) bytes--;
    return bytes;
}

static const char *seek(struct tt_span text, const char *word)
{
    return text.bytes > 0 ? memmem(text.data, text.bytes, word, strlen(word)) : NULL;
}

/* Bytes before the first `begin` of calls, or before its first bytes at the end of the text. */
static size_t settled_by(struct tt_span text, const char *begin)
{
    const char *found = seek(text, begin);
    if (found != NULL) return (size_t)(found - text.data);
    size_t part = strlen(begin) - 1;
    while (part > 0 && (part > text.bytes || memcmp(text.data + text.bytes - part, begin, part) != 0)) part--;
    return text.bytes - part;
}

/* An answer may be a call as a whole while it begins with a bracket, or is the begin of one by its name. */
static bool may_be_call(struct tt_span text, const struct tt_json_value *tools)
{
    static const char gemma[] = "call:";
    if (text.bytes == 0 || *text.data == '{' || *text.data == '[') return true;
    size_t common = text.bytes < sizeof gemma - 1 ? text.bytes : sizeof gemma - 1;
    if (memcmp(text.data, gemma, common) == 0) return true;
    for (size_t i = 0; i < tt_json_count(tools); i++) {
        const struct tt_json_value *tool = tt_json_at(tools, i), *function = tt_json_get(tool, "function");
        struct tt_span name = tt_json_span(tt_json_get(function != NULL ? function : tool, "name"));
        common = text.bytes < name.bytes ? text.bytes : name.bytes;
        bool follows =
            text.bytes <= name.bytes || text.data[name.bytes] == '{' || text.data[name.bytes] == '[';
        if (name.bytes > 0 && memcmp(text.data, name.data, common) == 0 && follows) return true;
    }
    return false;
}

size_t tt_tool_calls_settled(struct tt_span text, const struct tt_json_value *tools)
{
    size_t settled = text.bytes;
    if (may_be_call(tt_call_trim(text), tools)) return 0;
    const struct tt_call_format *format;
    for (size_t i = 0; (format = tt_call_format_at(i)) != NULL; i++) {
        for (const char *const *begin = format->begins; begin != NULL && *begin != NULL; begin++) {
            size_t own = settled_by(text, *begin);
            if (own < settled) settled = own;
        }
    }
    return trimmed_bytes(text.data, settled);
}

/* The calls of one format: from its beginning on, or as the whole answer. */
static tt_status try_format(const struct tt_call_format *format, struct tt_call_search *search,
                            struct tt_span text, size_t *content, bool *are)
{
    const char *first = NULL;
    for (const char *const *begin = format->begins; begin != NULL && *begin != NULL; begin++) {
        const char *found = seek(text, *begin);
        if (found != NULL && (first == NULL || found < first)) first = found;
    }
    struct tt_span calls = text;
    *content = first != NULL ? trimmed_bytes(text.data, (size_t)(first - text.data)) : 0;
    if (first != NULL) calls = (struct tt_span){first, (size_t)(text.data + text.bytes - first)};
    return format->find(search, tt_call_trim(calls), are);
}

tt_status tt_tool_calls_find(struct tt_span text, const struct tt_json_value *tools, uint64_t seed,
                             struct tt_json_value **calls, size_t *content)
{
    const struct tt_call_format *format;
    tt_status status = TT_OK;
    size_t before;
    *content = text.bytes;
    *calls = NULL;
    for (size_t i = 0; status == TT_OK && (format = tt_call_format_at(i)) != NULL; i++) {
        struct tt_call_search search = {.tools = tools, .seed = seed, .calls = tt_json_new_list()};
        bool are = false;
        if (search.calls == NULL) return TT_ERR_MEMORY;
        status = try_format(format, &search, text, &before, &are);
        if (status == TT_OK && are && tt_json_count(search.calls) > 0) {
            *content = before;
            *calls = search.calls;
            return TT_OK;
        }
        tt_json_release(search.calls);
    }
    return status;
}
