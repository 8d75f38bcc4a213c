/* Gemma's calls: call:NAME{key:value, ...} between <|tool_call> and <tool_call|> (Gemma 4) or <start_function_call>
 * and <end_function_call> (FunctionGemma). Texts stand between <|"|> or <escape>; where these are special tokens,
 * which are not shown, a text goes to the next comma or brace. Other values are numbers, words, lists and objects
 * of the same form. Such calls are read, and cannot be forced. */
#include <string.h>

#include "serve/call_format.h"

enum { DEPTH_MAX = 32 };
static const char *const marks[] = {"<|tool_call>", "<start_function_call>", NULL};
static const char *const ends[] = {"<tool_call|>", "<end_function_call>"};
static const char *const quotes[] = {"<|\"|>", "<escape>", "\""};

static bool take(struct tt_span *text, const char *word)
{
    if (!tt_span_starts_with(*text, word)) return false;
    text->data += strlen(word);
    text->bytes -= strlen(word);
    return true;
}

static void take_one_of(struct tt_span *text, const char *const *words, size_t count)
{
    *text = tt_call_trim(*text);
    for (size_t i = 0; i < count; i++)
        if (take(text, words[i])) break;
    *text = tt_call_trim(*text);
}

/* The bytes up to one of the characters of `stops`, without them. */
static struct tt_span take_plain(struct tt_span *text, const char *stops)
{
    struct tt_span out = {text->data, 0};
    while (out.bytes < text->bytes && strchr(stops, text->data[out.bytes]) == NULL) out.bytes++;
    text->data += out.bytes;
    text->bytes -= out.bytes;
    return tt_call_trim(out);
}

static struct tt_json_value *take_value(struct tt_span *text, int depth);

/* A text between quotes; false: none begins here, or it has no end. */
static bool take_quoted(struct tt_span *text, struct tt_span *out)
{
    for (size_t i = 0; i < sizeof quotes / sizeof *quotes; i++) {
        struct tt_span rest = *text;
        if (!take(&rest, quotes[i])) continue;
        const char *end = rest.bytes > 0 ? memmem(rest.data, rest.bytes, quotes[i], strlen(quotes[i])) : NULL;
        if (end == NULL) return false;
        *out = (struct tt_span){rest.data, (size_t)(end - rest.data)};
        text->bytes = rest.bytes - out->bytes - strlen(quotes[i]);
        text->data = end + strlen(quotes[i]);
        return true;
    }
    return false;
}

/* The members or elements up to the closing bracket, which is taken; NULL: the form is broken. */
static struct tt_json_value *take_items(struct tt_span *text, char close, int depth)
{
    struct tt_json_value *out = close == '}' ? tt_json_new_object() : tt_json_new_list();
    const char end[2] = {close, 0};
    for (bool good = depth < DEPTH_MAX; good;) {
        struct tt_span key = {0};
        *text = tt_call_trim(*text);
        if (take(text, end)) return out;
        if (close == '}' && !take_quoted(text, &key)) key = take_plain(text, ":,{}[]");
        good = close == ']' || take(text, ":");
        struct tt_json_value *value = good ? take_value(text, depth + 1) : NULL;
        good = value != NULL &&
               (close == '}' ? tt_json_set_span(out, key, value) : tt_json_append(out, value)) == 0;
        *text = tt_call_trim(*text);
        good = good && (take(text, ",") || tt_span_starts_with(*text, end));
    }
    tt_json_release(out);
    return NULL;
}

static struct tt_json_value *take_value(struct tt_span *text, int depth)
{
    struct tt_span quoted;
    struct tt_json json = {0};
    *text = tt_call_trim(*text);
    if (take_quoted(text, &quoted)) return tt_json_new_text(quoted);
    if (take(text, "{")) return take_items(text, '}', depth);
    if (take(text, "[")) return take_items(text, ']', depth);
    struct tt_span plain = take_plain(text, ",{}[]");
    if (plain.bytes == 0) return NULL;
    struct tt_json_value *value = NULL;
    tt_status status = tt_json_parse(plain.data, plain.bytes, "a value", &json);
    if (status == TT_ERR_DATA) tt_error_clear();
    if (status != TT_ERR_MEMORY) value = status == TT_OK ? tt_json_copy(json.root) : tt_json_new_text(plain);
    tt_json_deinit(&json);
    return value;
}

static tt_status add_one(struct tt_call_search *search, struct tt_span *text, bool *is)
{
    take_one_of(text, marks, 2);
    *is = take(text, "call:");
    struct tt_span name = *is ? take_plain(text, "{") : (struct tt_span){0};
    *is = *is && tt_call_function(search->tools, name) != NULL && take(text, "{");
    struct tt_json_value *arguments = *is ? take_items(text, '}', 0) : NULL;
    if (*is && arguments == NULL && tt_error_last()->status == TT_ERR_MEMORY) return TT_ERR_MEMORY;
    *is = arguments != NULL;
    tt_status status = *is ? tt_call_add(search, name, arguments, is) : TT_OK;
    tt_json_release(arguments);
    take_one_of(text, ends, 2);
    return status;
}

static tt_status find(struct tt_call_search *search, struct tt_span text, bool *are)
{
    *are = false;
    if (text.bytes == 0) return TT_OK;
    for (*are = true; *are && text.bytes > 0;) TT_TRY(add_one(search, &text, are));
    return TT_OK;
}

const struct tt_call_format tt_call_format_gemma = {
    .name = "gemma", .marks = marks, .begins = marks, .find = find};
