#include "serve/api_request.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/adapters.h"
#include "serve/api_grammar.h"

/* Nobody writes a longer conversation by hand; the bytes are limited by the server. */
enum { MESSAGES_MAX = 10000 };

#define FIELD(name) .offset = offsetof(struct tt_api_request, name)

/* -1, as 0, is all tokens elsewhere. */
static tt_status read_top_k(struct tt_api_parse *p, const struct tt_api_member *member,
                            const struct tt_json_value *value)
{
    TT_TRY(tt_api_read_integer(p, member, value));
    if (p->request->top_k < 0) p->request->top_k = 0;
    return TT_OK;
}

static tt_status read_model(struct tt_api_parse *p, const struct tt_api_member *member,
                            const struct tt_json_value *value)
{
    p->request->model = tt_json_text(value);
    return p->request->model != NULL ? TT_OK : tt_fail(TT_ERR_USAGE, "'%s' must be a text", member->name);
}

static tt_status read_seed(struct tt_api_parse *p, const struct tt_api_member *member,
                           const struct tt_json_value *value)
{
    if (!tt_json_is_integer(value))
        return tt_fail(TT_ERR_USAGE, "'%s' must be an integer of 64 bits", member->name);
    p->request->seed = tt_json_integer(value);
    p->request->has_seed = true;
    return TT_OK;
}

static tt_status add_stop(struct tt_api_request *request, const struct tt_json_value *value)
{
    struct tt_span text = tt_json_span(value);
    if (text.bytes == 0 || text.bytes > TT_API_STOP_BYTES_MAX || request->stop_count == TT_API_STOPS_MAX)
        return tt_fail(TT_ERR_USAGE,
                       "'stop' must be a text of 1 to %d bytes, or a list of at most %d of them",
                       TT_API_STOP_BYTES_MAX, TT_API_STOPS_MAX);
    request->stops[request->stop_count++] = text;
    return TT_OK;
}

static tt_status read_stops(struct tt_api_parse *p, const struct tt_api_member *member,
                            const struct tt_json_value *value)
{
    (void)member;
    if (!tt_json_is_list(value)) return add_stop(p->request, value);
    for (size_t i = 0; i < tt_json_count(value); i++) TT_TRY(add_stop(p->request, tt_json_at(value, i)));
    return TT_OK;
}

static tt_status read_stop_ids(struct tt_api_parse *p, const struct tt_api_member *member,
                               const struct tt_json_value *value)
{
    struct tt_ids *ids = &p->request->stop_ids;
    bool few = tt_json_is_list(value) && tt_json_count(value) <= TT_STOP_IDS_MAX;
    for (size_t i = 0; few && i < tt_json_count(value); i++) {
        const struct tt_json_value *id = tt_json_at(value, i);
        few = tt_json_is_integer(id) && tt_json_integer(id) >= 0 && tt_json_integer(id) <= INT32_MAX;
        if (few) TT_TRY(tt_ids_append(ids, (int32_t)tt_json_integer(id)));
    }
    if (few) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "'%s' must be a list of at most %d token ids", member->name,
                   TT_STOP_IDS_MAX);
}

static int compare_ids(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Ids beyond the model's are found later. */
static tt_status read_allowed(struct tt_api_parse *p, const struct tt_api_member *member,
                              const struct tt_json_value *value)
{
    struct tt_ids *ids = &p->request->allowed;
    bool well =
        tt_json_is_list(value) && tt_json_count(value) > 0 && tt_json_count(value) <= TT_ALLOWED_IDS_MAX;
    for (size_t i = 0; well && i < tt_json_count(value); i++) {
        const struct tt_json_value *id = tt_json_at(value, i);
        well = tt_json_is_integer(id) && tt_json_integer(id) >= 0 && tt_json_integer(id) <= INT32_MAX;
        if (well) TT_TRY(tt_ids_append(ids, (int32_t)tt_json_integer(id)));
    }
    if (!well)
        return tt_fail(TT_ERR_USAGE, "'%s' must be a list of 1 to %d token ids", member->name,
                       TT_ALLOWED_IDS_MAX);
    qsort(ids->data, ids->count, sizeof *ids->data, compare_ids);
    return TT_OK;
}

static tt_status read_bad_words(struct tt_api_parse *p, const struct tt_api_member *member,
                                const struct tt_json_value *value)
{
    bool well = tt_json_is_list(value) && tt_json_count(value) <= TT_API_BAD_WORDS_MAX;
    for (size_t i = 0; well && i < tt_json_count(value); i++) {
        struct tt_span word = tt_json_span(tt_json_at(value, i));
        well = word.bytes > 0 && word.bytes <= TT_API_STOP_BYTES_MAX;
    }
    if (!well)
        return tt_fail(TT_ERR_USAGE, "'%s' must be a list of at most %d texts of 1 to %d bytes", member->name,
                       TT_API_BAD_WORDS_MAX, TT_API_STOP_BYTES_MAX);
    p->request->bad_words = value;
    return TT_OK;
}

/* A name of the object is the id, in digits. False: it is no id. */
static bool read_id(struct tt_span name, int32_t *id)
{
    int64_t value = 0;
    for (size_t i = 0; i < name.bytes; i++) {
        if (name.data[i] < '0' || name.data[i] > '9' || i == 10) return false;
        value = value * 10 + (name.data[i] - '0');
    }
    *id = (int32_t)value;
    return name.bytes > 0 && value <= INT32_MAX;
}

static tt_status read_biases(struct tt_api_parse *p, const struct tt_api_member *member,
                             const struct tt_json_value *value)
{
    struct tt_api_request *request = p->request;
    size_t count = tt_json_count(value);
    bool well = tt_json_is_object(value) && count <= TT_LOGIT_BIASES_MAX;
    if (well && count == 0) return TT_OK;
    request->biases = well ? tt_calloc(count, sizeof *request->biases) : NULL;
    if (well && request->biases == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; well && i < count; i++) {
        const struct tt_json_member one = tt_json_member(value, i);
        double bias = tt_json_number(one.value);
        well = read_id(one.key, &request->biases[i].id) && tt_json_is_number(one.value) && bias >= -100 &&
               bias <= 100;
        request->biases[i].value = (float)bias;
        for (size_t k = 0; well && k < i; k++) well = request->biases[k].id != request->biases[i].id;
    }
    request->bias_count = count;
    if (well) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "'%s' must be an object of at most %d numbers from -100 to 100, by token id",
                   member->name, TT_LOGIT_BIASES_MAX);
}

/* The members of stream_options. */
static const struct tt_api_member stream_options[] = {
    {"include_usage", TT_API_BOTH, tt_api_read_flag, FIELD(wants_usage)},
    {"continuous_usage_stats", TT_API_BOTH, tt_api_read_flag, FIELD(usage_each)},
};

static tt_status read_stream_options(struct tt_api_parse *p, const struct tt_api_member *member,
                                     const struct tt_json_value *value)
{
    struct tt_api_parse inner = {.request = p->request, .root = value, .form = p->form};
    (void)member;
    return tt_api_read_members(&inner, stream_options, sizeof stream_options / sizeof *stream_options);
}

/* The members of the request that the chat template reads. */
static struct tt_json_value *make_row(const struct tt_json_value *root, const struct tt_json_value *messages)
{
    static const char *const others[] = {"tools", "documents", "chat_template_kwargs"};
    struct tt_json_value *row = tt_json_new_object();
    bool made = row != NULL && tt_json_set_copy(row, "messages", messages) == 0;
    for (size_t i = 0; i < sizeof others / sizeof *others && made; i++) {
        const struct tt_json_value *value = tt_json_get(root, others[i]);
        if (value != NULL && !tt_json_is_null(value)) made = tt_json_set_copy(row, others[i], value) == 0;
    }
    if (made) return row;
    tt_json_release(row);
    return NULL;
}

static tt_status read_messages(struct tt_api_parse *p, const struct tt_api_member *member,
                               const struct tt_json_value *value)
{
    size_t count = tt_json_count(value);
    if (!tt_json_is_list(value) || count == 0 || count > MESSAGES_MAX)
        return tt_fail(TT_ERR_USAGE, "'%s' must be a list of 1 to %d messages", member->name, MESSAGES_MAX);
    for (size_t i = 0; i < count; i++)
        if (tt_json_text(tt_json_get(tt_json_at(value, i), "role")) == NULL)
            return tt_fail(TT_ERR_USAGE, "each of '%s' must be an object with a role", member->name);
    p->request->row = make_row(p->root, value);
    if (p->request->row == NULL) return TT_ERR_MEMORY;
    p->request->prompt_count = 1;
    return TT_OK;
}

static tt_status read_tools(struct tt_api_parse *p, const struct tt_api_member *member,
                            const struct tt_json_value *value)
{
    (void)member;
    bool may_call = !tt_api_is_text(tt_json_get(p->root, "tool_choice"), "none");
    if (may_call && tt_json_count(value) > 0) p->request->tools = value;
    return TT_OK;
}

/* A prompt's form of logprobs is a number; a conversation's is a flag, with the number beside it. */
static tt_status read_logprobs(struct tt_api_parse *p, const struct tt_api_member *member,
                               const struct tt_json_value *value)
{
    if (tt_json_is_false(value)) return TT_OK;
    TT_TRY(tt_api_read_integer(p, member, value));
    p->request->wants_logprobs = true;
    return TT_OK;
}

static tt_status read_top_logprobs(struct tt_api_parse *p, const struct tt_api_member *member,
                                   const struct tt_json_value *value)
{
    TT_TRY(tt_api_read_integer(p, member, value));
    if (p->request->wants_logprobs || p->request->top_logprobs == 0) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "'%s' needs 'logprobs': true", member->name);
}

/* An empty list of it in the answer is vLLM's, too, but no stream has it there. */
static tt_status read_prompt_logprobs(struct tt_api_parse *p, const struct tt_api_member *member,
                                      const struct tt_json_value *value)
{
    TT_TRY(tt_api_read_integer(p, member, value));
    if (!p->request->stream) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "'%s' is not supported in a stream: leave 'stream' out", member->name);
}

static tt_status read_truncation(struct tt_api_parse *p, const struct tt_api_member *member,
                                 const struct tt_json_value *value)
{
    TT_TRY(tt_api_read_integer(p, member, value));
    if (p->request->truncate_prompt != 0) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "'%s' leaves nothing of the prompt: give a number from 1, or -1",
                   member->name);
}

static tt_status check_ids(const struct tt_json_value *value, const char *message)
{
    for (size_t i = 0; i < tt_json_count(value); i++) {
        const struct tt_json_value *id = tt_json_at(value, i);
        if (!tt_json_is_integer(id) || tt_json_integer(id) < 0 || tt_json_integer(id) > INT32_MAX)
            return tt_fail(TT_ERR_USAGE, "%s", message);
    }
    return TT_OK;
}

static tt_status add_prompt(struct tt_api_request *request, const struct tt_json_value *value)
{
    static const char message[] = "'prompt' must be a text, a list of token ids, or a list of such prompts";
    struct tt_api_prompt prompt = {.text = tt_json_span(value)};
    if (prompt.text.bytes == 0 && (!tt_json_is_list(value) || tt_json_count(value) == 0))
        return tt_fail(TT_ERR_USAGE, "%s", message);
    TT_TRY(check_ids(value, message));
    if (tt_json_is_list(value)) prompt.ids = value;
    request->prompts[request->prompt_count++] = prompt;
    return TT_OK;
}

static tt_status read_prompts(struct tt_api_parse *p, const struct tt_api_member *member,
                              const struct tt_json_value *value)
{
    struct tt_api_request *request = p->request;
    bool several =
        tt_json_is_list(value) && tt_json_count(value) > 0 && !tt_json_is_number(tt_json_at(value, 0));
    size_t count = several ? tt_json_count(value) : 1;
    (void)member;
    if (count > TT_API_CHOICES_MAX || (int64_t)count * request->n > TT_API_CHOICES_MAX)
        return tt_fail(TT_ERR_USAGE, "%zu prompts with %lld answers each are more than %d answers", count,
                       (long long)request->n, TT_API_CHOICES_MAX);
    request->prompts = tt_calloc(count, sizeof *request->prompts);
    if (request->prompts == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) TT_TRY(add_prompt(request, several ? tt_json_at(value, i) : value));
    return TT_OK;
}

/* The text of /tokenize, which may be empty. */
static tt_status read_text(struct tt_api_parse *p, const struct tt_api_member *member,
                           const struct tt_json_value *value)
{
    struct tt_api_request *request = p->request;
    if (!tt_json_is_string(value)) return tt_fail(TT_ERR_USAGE, "'%s' must be a text", member->name);
    request->prompts = tt_calloc(1, sizeof *request->prompts);
    if (request->prompts == NULL) return TT_ERR_MEMORY;
    request->prompts[0].text = tt_json_span(value);
    request->prompt_count = 1;
    return TT_OK;
}

static tt_status read_tokens(struct tt_api_parse *p, const struct tt_api_member *member,
                             const struct tt_json_value *value)
{
    static const char message[] = "'tokens' must be a list of token ids";
    (void)member;
    if (!tt_json_is_list(value)) return tt_fail(TT_ERR_USAGE, "%s", message);
    TT_TRY(check_ids(value, message));
    p->request->ids.ids = value;
    p->request->prompt_count = 1;
    return TT_OK;
}

static tt_status read_adapter_text(const struct tt_api_member *member, const struct tt_json_value *value,
                                   const char **text)
{
    struct tt_span span = tt_json_span(value);
    if (!tt_json_is_string(value) || memchr(span.data, 0, span.bytes) != NULL)
        return tt_fail(TT_ERR_USAGE, "'%s' must be a text", member->name);
    *text = span.bytes > 0 ? tt_json_text(value) : NULL;
    return TT_OK;
}

static tt_status read_adapter_name(struct tt_api_parse *p, const struct tt_api_member *member,
                                   const struct tt_json_value *value)
{
    if (tt_json_span(value).bytes > TT_SERVE_ADAPTER_NAME_MAX)
        return tt_fail(TT_ERR_USAGE, "'%s' must have at most %d bytes", member->name,
                       TT_SERVE_ADAPTER_NAME_MAX);
    return read_adapter_text(member, value, &p->request->lora_name);
}

static tt_status read_adapter_path(struct tt_api_parse *p, const struct tt_api_member *member,
                                   const struct tt_json_value *value)
{
    return read_adapter_text(member, value, &p->request->lora_path);
}

enum { ANY = TT_API_BOTH | TT_API_TOKENIZE | TT_API_DETOKENIZE };

/* One row a member. A reader may look at what the rows before it have set. */
static const struct tt_api_member members[] = {
    {.name = "model", .forms = ANY, .read = read_model},
    {"best_of", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_ONE},
    {"echo", TT_API_CHAT, tt_api_read_neutral, .only = TT_API_FALSE},
    {"suffix", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"function_call", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_FREE_CHOICE},
    {"functions", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"audio", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_NONE},
    {"modalities", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_TEXT_ALONE},
    {"reasoning_effort", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_NONE},
    {"verbosity", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_NONE},
    {"web_search_options", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_NONE},
    /* vLLM: https://docs.vllm.ai, "OpenAI-Compatible Server", extra parameters */
    {"continue_final_message", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_FALSE},
    {"add_generation_prompt", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_TRUE},
    /* the template of a conversation writes them */
    {"add_special_tokens", TT_API_CHAT, tt_api_read_neutral, .only = TT_API_FALSE},
    {"chat_template", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_NONE},
    {"mm_processor_kwargs", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"prompt_embeds", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_NONE},
    {"use_beam_search", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_FALSE},
    {"length_penalty", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_ONE},
    {"spaces_between_special_tokens", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_TRUE},
    {"logits_processors", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"include_reasoning", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_TRUE},
    {"thinking_token_budget", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_NONE},
    {"kv_transfer_params", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_NONE},
    {"vllm_xargs", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"structural_tag", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"guided_grammar", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"guided_whitespace_pattern", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    /* of llama.cpp's server and SGLang */
    {"grammar", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"json_schema", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"mirostat", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_ZERO},
    {"dynatemp_range", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_ZERO},
    {"xtc_probability", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_ZERO},
    {"dry_multiplier", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_ZERO},
    {"typical_p", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_ONE},
    {"repeat_penalty", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_ONE},
    {"n_probs", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_ZERO},
    {"return_tokens", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_FALSE},
    {"regex", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"ebnf", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"stop_regex", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"min_new_tokens", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_ZERO},
    {"no_stop_trim", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_FALSE},
    {"return_hidden_states", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_FALSE},
    {"custom_logit_processor", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {.name = "response_format", .forms = TT_API_BOTH, .read = tt_api_read_format},
    {.name = "structured_outputs", .forms = TT_API_BOTH, .read = tt_api_read_structured},
    {.name = "guided_json", .forms = TT_API_BOTH, .read = tt_api_read_guided_json},
    {.name = "guided_regex", .forms = TT_API_BOTH, .read = tt_api_read_guided_regex},
    {.name = "guided_choice", .forms = TT_API_BOTH, .read = tt_api_read_guided_choice},
    {"n", TT_API_BOTH, tt_api_read_integer, FIELD(n), 1, TT_API_CHOICES_MAX},
    {"stream", TT_API_BOTH, tt_api_read_flag, FIELD(stream)},
    {.name = "stream_options", .forms = TT_API_BOTH, .read = read_stream_options},
    {"ignore_eos", TT_API_BOTH, tt_api_read_flag, FIELD(ignore_eos)},
    {"max_tokens", TT_API_CHAT, tt_api_read_integer, FIELD(max_tokens), 1, 1 << 20},
    {"max_tokens", TT_API_PROMPT, tt_api_read_integer, FIELD(max_tokens), 0, 1 << 20},
    {"max_completion_tokens", TT_API_BOTH, tt_api_read_integer, FIELD(max_tokens), 1, 1 << 20},
    {"temperature", TT_API_BOTH, tt_api_read_number, FIELD(temperature), 0, 2},
    {"top_p", TT_API_BOTH, tt_api_read_number, FIELD(top_p), 1e-6, 1},
    {.name = "seed", .forms = TT_API_BOTH, .read = read_seed},
    {.name = "stop", .forms = TT_API_BOTH, .read = read_stops},
    {"presence_penalty", TT_API_BOTH, tt_api_read_number, FIELD(presence_penalty), -2, 2},
    {"frequency_penalty", TT_API_BOTH, tt_api_read_number, FIELD(frequency_penalty), -2, 2},
    {.name = "logit_bias", .forms = TT_API_BOTH, .read = read_biases},
    /* under the names that other servers gave them */
    {"top_k", TT_API_BOTH, read_top_k, FIELD(top_k), -1, 1 << 20},
    {"min_p", TT_API_BOTH, tt_api_read_number, FIELD(min_p), 0, 1},
    {"repetition_penalty", TT_API_BOTH, tt_api_read_number, FIELD(repetition_penalty), 1e-3, 1e3},
    {"min_tokens", TT_API_BOTH, tt_api_read_integer, FIELD(min_tokens), 0, 1 << 20},
    {.name = "stop_token_ids", .forms = TT_API_BOTH, .read = read_stop_ids},
    {"include_stop_str_in_output", TT_API_BOTH, tt_api_read_flag, FIELD(keeps_stop)},
    {.name = "allowed_token_ids", .forms = TT_API_BOTH, .read = read_allowed},
    {.name = "bad_words", .forms = TT_API_BOTH, .read = read_bad_words},
    {"skip_special_tokens", TT_API_BOTH, tt_api_read_not_flag, FIELD(keeps_special)},
    {"return_tokens_as_token_ids", TT_API_BOTH, tt_api_read_flag, FIELD(ids_as_texts)},
    {"prompt_logprobs", TT_API_BOTH, read_prompt_logprobs, FIELD(prompt_logprobs), 0,
     TT_API_TOP_LOGPROBS_MAX},
    {"return_token_ids", TT_API_BOTH, tt_api_read_flag, FIELD(return_token_ids)},
    {"truncate_prompt_tokens", TT_API_BOTH, read_truncation, FIELD(truncate_prompt), -1, 1 << 20},
    /* of a conversation, and of prompts */
    {"logprobs", TT_API_CHAT, tt_api_read_flag, FIELD(wants_logprobs)},
    {"top_logprobs", TT_API_CHAT, read_top_logprobs, FIELD(top_logprobs), 0, TT_API_TOP_LOGPROBS_MAX},
    {.name = "tools", .forms = TT_API_CHAT, .read = read_tools},
    {.name = "tool_choice", .forms = TT_API_CHAT, .read = tt_api_read_tool_choice},
    {"tool_choice", TT_API_PROMPT, tt_api_read_neutral, .only = TT_API_FREE_CHOICE},
    {"parallel_tool_calls", TT_API_CHAT, tt_api_read_not_flag, FIELD(one_call)},
    {"parallel_tool_calls", TT_API_PROMPT, tt_api_read_neutral, .only = TT_API_TRUE},
    {.name = "messages", .forms = TT_API_CHAT | TT_API_TOKENIZE, .read = read_messages},
    {"echo", TT_API_PROMPT, tt_api_read_flag, FIELD(echo)},
    {"add_special_tokens", TT_API_PROMPT | TT_API_TOKENIZE, tt_api_read_not_flag, FIELD(plain_prompt)},
    {"logprobs", TT_API_PROMPT, read_logprobs, FIELD(top_logprobs), 0, TT_API_TOP_LOGPROBS_MAX},
    {.name = "prompt", .forms = TT_API_PROMPT, .read = read_prompts},
    /* of /tokenize and /detokenize */
    {.name = "prompt", .forms = TT_API_TOKENIZE, .read = read_text},
    {"add_generation_prompt", TT_API_TOKENIZE, tt_api_read_neutral, .only = TT_API_TRUE},
    {"continue_final_message", TT_API_TOKENIZE, tt_api_read_neutral, .only = TT_API_FALSE},
    {"chat_template", TT_API_TOKENIZE, tt_api_read_neutral, .only = TT_API_NONE},
    {"return_token_strs", TT_API_TOKENIZE, tt_api_read_flag, FIELD(return_token_strs)},
    {.name = "tokens", .forms = TT_API_DETOKENIZE, .read = read_tokens},
    /* of adapters */
    {.name = "lora_name", .forms = TT_API_LOAD | TT_API_UNLOAD, .read = read_adapter_name},
    {.name = "lora_path", .forms = TT_API_LOAD, .read = read_adapter_path},
    {"load_inplace", TT_API_LOAD, tt_api_read_neutral, .only = TT_API_FALSE},
    {"is_3d_lora_weight", TT_API_LOAD, tt_api_read_neutral, .only = TT_API_FALSE},
};

/* Every body must have a prompt of some kind. */
static tt_status check_prompts(struct tt_api_parse *p)
{
    if (p->request->prompt_count > 0 || (p->form & (TT_API_LOAD | TT_API_UNLOAD)) != 0) return TT_OK;
    p->param = p->form == TT_API_CHAT ? "messages" : p->form == TT_API_DETOKENIZE ? "tokens" : "prompt";
    return tt_fail(TT_ERR_USAGE, "'%s' is missing", p->param);
}

tt_status tt_api_request_parse(struct tt_span body, enum tt_api_form form, struct tt_api_request *request,
                               const char **param)
{
    struct tt_api_parse p = {.request = request, .form = form};
    *param = NULL;
    TT_TRY(tt_json_parse(body.data, body.bytes, "the request", &request->json));
    p.root = request->json.root;
    if (!tt_json_is_object(p.root)) return tt_fail(TT_ERR_USAGE, "the request must be a JSON object");
    request->temperature = request->top_p = request->min_p = request->repetition_penalty = -1;
    request->top_k = -1;
    request->n = 1;
    request->max_tokens = request->prompt_logprobs = -1;
    tt_status status = tt_api_read_members(&p, members, sizeof members / sizeof *members);
    if (status == TT_OK) status = check_prompts(&p);
    *param = p.param;
    return status;
}

void tt_api_request_deinit(struct tt_api_request *request)
{
    tt_json_release(request->row);
    tt_free(request->prompts);
    tt_free(request->biases);
    tt_ids_deinit(&request->stop_ids);
    tt_ids_deinit(&request->allowed);
    tt_str_deinit(&request->grammar);
    tt_json_deinit(&request->json);
    *request = (struct tt_api_request){0};
}
