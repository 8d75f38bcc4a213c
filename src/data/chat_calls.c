#include "data/chat_calls.h"

#include <string.h>

static const struct tt_json_value *arguments_of(const struct tt_json_value *call)
{
    const struct tt_json_value *function = tt_json_get(call, "function");
    return tt_json_get(function != NULL ? function : call, "arguments");
}

bool tt_chat_calls_have_texts(const struct tt_json_value *messages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct tt_json_value *calls = tt_json_get(tt_json_at(messages, i), "tool_calls");
        for (size_t j = 0; j < tt_json_count(calls); j++)
            if (tt_json_is_string(arguments_of(tt_json_at(calls, j)))) return true;
    }
    return false;
}

/* A copy of `object` with `value`, which is copied, as its member `key`. */
static struct tt_json_value *copy_with(const struct tt_json_value *object, const char *key,
                                       const struct tt_json_value *value)
{
    struct tt_json_value *copy = tt_json_copy(object);
    if (copy != NULL && tt_json_set_copy(copy, key, value) == 0) return copy;
    tt_json_release(copy);
    return NULL;
}

static struct tt_json_value *call_with(const struct tt_json_value *call,
                                       const struct tt_json_value *arguments)
{
    const struct tt_json_value *function = tt_json_get(call, "function");
    if (function == NULL) return copy_with(call, "arguments", arguments);
    struct tt_json_value *made = copy_with(function, "arguments", arguments);
    struct tt_json_value *copy = made != NULL ? copy_with(call, "function", made) : NULL;
    tt_json_release(made);
    return copy;
}

/* A text that is no JSON object stays a text. */
static struct tt_json_value *call_with_object(const struct tt_json_value *call)
{
    struct tt_span text = tt_json_span(arguments_of(call));
    struct tt_json json = {0};
    struct tt_json_value *copy = NULL;
    if (text.data == NULL) return tt_json_copy(call);
    tt_status status = tt_json_parse(text.data, text.bytes, "arguments", &json);
    if (status == TT_ERR_DATA) tt_error_clear();
    if (status == TT_OK && tt_json_is_object(json.root))
        copy = call_with(call, json.root);
    else if (status != TT_ERR_MEMORY)
        copy = tt_json_copy(call);
    tt_json_deinit(&json);
    return copy;
}

tt_status tt_chat_calls_make_objects(struct tt_json_value *message)
{
    const struct tt_json_value *calls = tt_json_get(message, "tool_calls");
    if (!tt_json_is_list(calls)) return TT_OK;
    struct tt_json_value *list = tt_json_new_list();
    bool made = list != NULL;
    for (size_t i = 0; i < tt_json_count(calls) && made; i++)
        made = tt_json_append(list, call_with_object(tt_json_at(calls, i))) == 0;
    if (made && tt_json_set(message, "tool_calls", list) == 0) return TT_OK;
    if (!made) tt_json_release(list);
    return TT_ERR_MEMORY;
}

/* A call with the id of nine letters and digits, and the turns, that some templates demand. */
struct tt_json_value *tt_chat_calls_probe(void)
{
    return tt_json_pack("[{s:s, s:s}, {s:s, s:s, s:[{s:s, s:s, s:{s:s, s:s}}]}]", "role", "user", "content",
                        "q", "role", "assistant", "content", "", "tool_calls", "id", "call00001", "type",
                        "function", "function", "name", "f", "arguments", "{\"probed\": 1}");
}

bool tt_chat_calls_are_quoted(struct tt_span rendering)
{
    static const char quoted[] = "\\\"probed\\\"";
    return rendering.bytes > 0 && memmem(rendering.data, rendering.bytes, quoted, sizeof quoted - 1) != NULL;
}
