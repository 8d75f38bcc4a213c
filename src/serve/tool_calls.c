#include "serve/tool_calls.h"

#include <string.h>

static const char begin_tag[] = "<tool_call>", end_tag[] = "</tool_call>";

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static struct tt_span trim(struct tt_span text)
{
    while (text.bytes > 0 && is_blank(text.data[text.bytes - 1])) text.bytes--;
    while (text.bytes > 0 && is_blank(*text.data)) text.data++, text.bytes--;
    return text;
}

/* The text without blanks at its end. */
static size_t trimmed_bytes(const char *text, size_t bytes)
{
    while (bytes > 0 && is_blank(text[bytes - 1])) bytes--;
    return bytes;
}

static const char *find(struct tt_span text, const char *word)
{
    return text.bytes > 0 ? memmem(text.data, text.bytes, word, strlen(word)) : NULL;
}

size_t tt_tool_calls_settled(struct tt_span text)
{
    struct tt_span inner = trim(text);
    if (inner.bytes == 0 || *inner.data == '{' || *inner.data == '[') return 0;
    const char *tag = find(text, begin_tag);
    if (tag != NULL) return trimmed_bytes(text.data, (size_t)(tag - text.data));
    size_t part = sizeof begin_tag - 2; /* the beginning of a tag at the end of the text */
    while (part > 0 && (part > text.bytes || memcmp(text.data + text.bytes - part, begin_tag, part) != 0))
        part--;
    return trimmed_bytes(text.data, text.bytes - part);
}

static bool is_declared(const struct tt_json_value *tools, struct tt_span name)
{
    for (size_t i = 0; i < tt_json_count(tools); i++) {
        const struct tt_json_value *tool = tt_json_at(tools, i), *function = tt_json_get(tool, "function");
        const char *known = tt_json_text(tt_json_get(function != NULL ? function : tool, "name"));
        if (known != NULL && tt_span_equals(name, known)) return true;
    }
    return false;
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

struct search {
    const struct tt_json_value *tools;
    uint64_t seed;
    struct tt_json_value *calls; /* owned */
};

/* *is: `value` is a call, and was added. */
static tt_status add_call(struct search *s, const struct tt_json_value *value, bool *is)
{
    struct tt_str text = {0};
    char id[10];
    const struct tt_json_value *arguments = tt_json_get(value, "arguments");
    struct tt_span name = tt_json_span(tt_json_get(value, "name"));
    if (arguments == NULL) arguments = tt_json_get(value, "parameters");
    *is = name.data != NULL && is_declared(s->tools, name) &&
          (tt_json_is_object(arguments) || tt_json_is_string(arguments));
    if (!*is) return TT_OK;
    tt_status status = TT_OK;
    if (tt_json_is_object(arguments)) TT_GO(tt_json_write(arguments, 0, false, &text));
    make_id(s->seed, tt_json_count(s->calls), id);
    struct tt_span shown = tt_json_is_object(arguments) ? (struct tt_span){tt_str_text(&text), text.bytes}
                                                        : tt_json_span(arguments);
    struct tt_json_value *call = tt_json_pack("{s:s, s:s, s:{s:t, s:t}}", "id", id, "type", "function",
                                              "function", "name", name, "arguments", shown);
    if (tt_json_append(s->calls, call) != 0) status = TT_ERR_MEMORY;
out:
    tt_str_deinit(&text);
    return status;
}

/* *are: the text is one call or a list of calls, which were added. */
static tt_status add_calls(struct search *s, struct tt_span text, bool *are)
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
        TT_GO(add_call(s, tt_json_is_list(json.root) ? tt_json_at(json.root, i) : json.root, are));
out:
    tt_json_deinit(&json);
    return status;
}

/* Nothing but calls may follow from the first tag on. */
static tt_status add_tagged(struct search *s, struct tt_span text, bool *are)
{
    for (*are = true; *are && text.bytes > 0;) {
        *are = tt_span_starts_with(text, begin_tag);
        if (!*are) return TT_OK;
        struct tt_span inner = {text.data + strlen(begin_tag), text.bytes - strlen(begin_tag)};
        const char *end = find(inner, end_tag), *after = text.data + text.bytes;
        text = (struct tt_span){after, 0};
        if (end != NULL) {
            inner.bytes = (size_t)(end - inner.data);
            end += strlen(end_tag);
            text = trim((struct tt_span){end, (size_t)(after - end)});
        }
        TT_TRY(add_calls(s, trim(inner), are));
    }
    return TT_OK;
}

tt_status tt_tool_calls_find(struct tt_span text, const struct tt_json_value *tools, uint64_t seed,
                             struct tt_json_value **calls, size_t *content)
{
    struct search s = {.tools = tools, .seed = seed, .calls = tt_json_new_list()};
    struct tt_span inner = trim(text);
    const char *tag = find(text, begin_tag);
    bool are = false;
    tt_status status = s.calls != NULL ? TT_OK : TT_ERR_MEMORY;
    *content = text.bytes;
    *calls = NULL;
    if (status == TT_OK && tag != NULL)
        status = add_tagged(&s, trim((struct tt_span){tag, (size_t)(text.data + text.bytes - tag)}), &are);
    else if (status == TT_OK && inner.bytes > 0 && (*inner.data == '{' || *inner.data == '['))
        status = add_calls(&s, inner, &are);
    if (status == TT_OK && are) {
        *content = tag != NULL ? trimmed_bytes(text.data, (size_t)(tag - text.data)) : 0;
        *calls = s.calls;
        return TT_OK;
    }
    tt_json_release(s.calls);
    return status;
}
