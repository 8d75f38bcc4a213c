#include "serve/api_answer.h"

/* Takes over `value`. */
static tt_status write(struct tt_json_value *value, struct tt_str *text)
{
    tt_status status = tt_json_write(value, 0, false, text);
    tt_json_release(value);
    return status;
}

static struct tt_json_value *text_or_null(const char *text)
{
    return text != NULL ? tt_json_new_string(text) : tt_json_new_null();
}

static struct tt_json_value *usage_of(const struct tt_api_answer *answer)
{
    return tt_json_pack("{s:I, s:I, s:I}", "prompt_tokens", (int64_t)answer->prompt_tokens,
                        "completion_tokens", (int64_t)answer->new_tokens, "total_tokens",
                        (int64_t)(answer->prompt_tokens + answer->new_tokens));
}

/* The object around `choices`, which is taken over. `usage`: NULL, or taken over. */
static struct tt_json_value *envelope(const struct tt_api_answer *answer, const char *object,
                                      struct tt_json_value *choices, struct tt_json_value *usage)
{
    struct tt_json_value *value =
        tt_json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", answer->id, "object", object, "created",
                     answer->created, "model", answer->model, "choices", choices);
    if (answer->more != NULL) tt_json_update(value, answer->more);
    if (usage != NULL) tt_json_set(value, "usage", usage);
    return value;
}

static struct tt_json_value *list_of(struct tt_json_value *choice)
{
    struct tt_json_value *list = tt_json_new_list();
    tt_json_append(list, choice);
    return list;
}

/* `name`: "message", "delta" or "text", whose value is taken over. */
static struct tt_json_value *choice_of(const struct tt_api_choice *choice, const char *name,
                                       struct tt_json_value *value)
{
    struct tt_json_value *logprobs = choice->logprobs != NULL ? choice->logprobs : tt_json_new_null();
    struct tt_json_value *made =
        tt_json_pack("{s:i, s:o, s:o, s:o}", "index", (int)choice->index, name, value, "logprobs", logprobs,
                     "finish_reason", text_or_null(choice->finish));
    if (choice->more != NULL) tt_json_update(made, choice->more);
    tt_json_release(choice->more);
    return made;
}

/* The message of an answer; its content is null where it only calls tools. */
static struct tt_json_value *message_of(const struct tt_api_choice *choice)
{
    struct tt_span content = choice->content;
    struct tt_json_value *made = NULL;
    if (choice->tool_calls == NULL)
        made = tt_json_pack("{s:s, s:t}", "role", "assistant", "content", content);
    else
        made = tt_json_pack("{s:s, s:o, s:O}", "role", "assistant", "content",
                            content.bytes > 0 ? tt_json_new_text(content) : tt_json_new_null(), "tool_calls",
                            choice->tool_calls);
    if (choice->reasoning.bytes > 0)
        tt_json_set(made, "reasoning_content", tt_json_new_text(choice->reasoning));
    return made;
}

/* {"tool_calls": [...]} with the number of each. */
static struct tt_json_value *delta_of_calls(const struct tt_json_value *calls)
{
    struct tt_json_value *list = tt_json_new_list();
    for (size_t i = 0; i < tt_json_count(calls); i++) {
        struct tt_json_value *call = tt_json_pack("{s:i}", "index", (int)i);
        tt_json_update(call, tt_json_at(calls, i));
        tt_json_append(list, call);
    }
    return tt_json_pack("{s:o}", "tool_calls", list);
}

static struct tt_json_value *whole_choice(const struct tt_api_answer *answer,
                                          const struct tt_api_choice *choice)
{
    return choice_of(choice, answer->chat ? "message" : "text",
                     answer->chat ? message_of(choice) : tt_json_new_text(choice->content));
}

tt_status tt_api_write_answer(const struct tt_api_answer *answer, const struct tt_api_choice *choices,
                              size_t count, struct tt_str *text)
{
    struct tt_json_value *list = tt_json_new_list();
    for (size_t i = 0; i < count; i++) tt_json_append(list, whole_choice(answer, &choices[i]));
    return write(
        envelope(answer, answer->chat ? "chat.completion" : "text_completion", list, usage_of(answer)), text);
}

static const char *chunk_object(const struct tt_api_answer *answer)
{
    return answer->chat ? "chat.completion.chunk" : "text_completion";
}

static struct tt_json_value *delta_of(const struct tt_api_choice *choice, bool first)
{
    if (choice->tool_calls != NULL) return delta_of_calls(choice->tool_calls);
    if (first) return tt_json_pack("{s:s, s:t}", "role", "assistant", "content", choice->content);
    struct tt_json_value *delta = tt_json_new_object();
    if (choice->reasoning.bytes > 0)
        tt_json_set(delta, "reasoning_content", tt_json_new_text(choice->reasoning));
    if (choice->content.bytes > 0) tt_json_set(delta, "content", tt_json_new_text(choice->content));
    return delta;
}

tt_status tt_api_write_chunk(const struct tt_api_answer *answer, const struct tt_api_choice *choice,
                             bool first, struct tt_str *text)
{
    TT_TRY(tt_str_append_text(text, "data: "));
    struct tt_json_value *value = answer->chat ? delta_of(choice, first) : tt_json_new_text(choice->content);
    struct tt_json_value *choices = list_of(choice_of(choice, answer->chat ? "delta" : "text", value));
    TT_TRY(write(
        envelope(answer, chunk_object(answer), choices, answer->usage_each ? usage_of(answer) : NULL), text));
    return tt_str_append_text(text, "\n\n");
}

tt_status tt_api_write_usage(const struct tt_api_answer *answer, struct tt_str *text)
{
    TT_TRY(tt_str_append_text(text, "data: "));
    TT_TRY(write(envelope(answer, chunk_object(answer), tt_json_new_list(), usage_of(answer)), text));
    return tt_str_append_text(text, "\n\n");
}

tt_status tt_api_write_error(const char *message, const char *type, const char *param, const char *code,
                             struct tt_str *text)
{
    struct tt_json_value *error = tt_json_pack("{s:s, s:s, s:o, s:o}", "message", message, "type", type,
                                               "param", text_or_null(param), "code", text_or_null(code));
    return write(tt_json_pack("{s:o}", "error", error), text);
}
