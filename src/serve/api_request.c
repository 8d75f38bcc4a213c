#include "serve/api_request.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

/* Nobody writes a longer conversation by hand; the bytes are limited by the server. */
enum { MESSAGES_MAX = 10000 };

struct parse {
    struct tt_api_request *request;
    const struct tt_json_value *root;
    bool chat;
    const char *param;
};

/* Members that are supported only at values without effect. */
static const struct neutral {
    const char *name;
    enum { ABSENT, ZERO, ONE, FALSE, TRUE, EMPTY, FREE_CHOICE, TEXT_ALONE, AS_IS } only;
} neutrals[] = {
    {"best_of", ONE},
    {"echo", FALSE},
    {"suffix", EMPTY},
    {"presence_penalty", ZERO},
    {"frequency_penalty", ZERO},
    {"logit_bias", EMPTY},
    {"tool_choice", FREE_CHOICE},
    {"parallel_tool_calls", TRUE},
    {"function_call", FREE_CHOICE},
    {"functions", EMPTY},
    {"audio", ABSENT},
    {"modalities", TEXT_ALONE},
    {"reasoning_effort", ABSENT},
    {"verbosity", ABSENT},
    {"web_search_options", ABSENT},
    /* vLLM: https://docs.vllm.ai, "OpenAI-Compatible Server", extra parameters */
    {"continue_final_message", FALSE},
    {"add_generation_prompt", TRUE},
    {"add_special_tokens", AS_IS},
    {"chat_template", ABSENT},
    {"mm_processor_kwargs", EMPTY},
    {"prompt_embeds", ABSENT},
    {"truncate_prompt_tokens", ABSENT},
    {"use_beam_search", FALSE},
    {"length_penalty", ONE},
    {"min_tokens", ZERO},
    {"stop_token_ids", EMPTY},
    {"include_stop_str_in_output", FALSE},
    {"skip_special_tokens", TRUE},
    {"spaces_between_special_tokens", TRUE},
    {"bad_words", EMPTY},
    {"allowed_token_ids", EMPTY},
    {"logits_processors", EMPTY},
    {"prompt_logprobs", ABSENT},
    {"return_tokens_as_token_ids", FALSE},
    {"return_token_ids", FALSE},
    {"include_reasoning", TRUE},
    {"thinking_token_budget", ABSENT},
    {"kv_transfer_params", ABSENT},
    {"vllm_xargs", EMPTY},
    {"structured_outputs", EMPTY},
    {"structural_tag", EMPTY},
    {"guided_json", EMPTY},
    {"guided_regex", EMPTY},
    {"guided_choice", EMPTY},
    {"guided_grammar", EMPTY},
    {"guided_whitespace_pattern", EMPTY},
    /* of llama.cpp's server and SGLang */
    {"grammar", EMPTY},
    {"json_schema", EMPTY},
    {"mirostat", ZERO},
    {"dynatemp_range", ZERO},
    {"xtc_probability", ZERO},
    {"dry_multiplier", ZERO},
    {"typical_p", ONE},
    {"repeat_penalty", ONE},
    {"n_probs", ZERO},
    {"return_tokens", FALSE},
    {"regex", EMPTY},
    {"ebnf", EMPTY},
    {"stop_regex", EMPTY},
    {"min_new_tokens", ZERO},
    {"no_stop_trim", FALSE},
    {"return_hidden_states", FALSE},
    {"custom_logit_processor", EMPTY},
};

static bool is_text(const struct tt_json_value *value, const char *text)
{
    struct tt_span span = tt_json_span(value);
    return span.data != NULL && tt_span_equals(span, text);
}

static bool is_neutral(const struct neutral *row, const struct tt_json_value *value, bool chat)
{
    if (tt_json_is_null(value)) return true;
    switch (row->only) {
    case ZERO:
        return tt_json_is_number(value) && tt_json_number(value) == 0;
    case ONE:
        return tt_json_is_number(value) && tt_json_number(value) == 1;
    case FALSE:
        return tt_json_is_false(value);
    case TRUE:
        return tt_json_is_true(value);
    case EMPTY:
        return tt_json_count(value) == 0 && tt_json_span(value).bytes == 0 && !tt_json_is_number(value);
    case FREE_CHOICE:
        return is_text(value, "auto") || is_text(value, "none");
    case TEXT_ALONE:
        return tt_json_is_list(value) && tt_json_count(value) == 1 && is_text(tt_json_at(value, 0), "text");
    case AS_IS: /* the template of a conversation writes them */
        return chat ? tt_json_is_false(value) : tt_json_is_true(value);
    default:
        return false;
    }
}

static tt_status check_neutrals(struct parse *p)
{
    for (size_t i = 0; i < sizeof neutrals / sizeof *neutrals; i++) {
        const struct tt_json_value *value = tt_json_get(p->root, neutrals[i].name);
        if (value == NULL || is_neutral(&neutrals[i], value, p->chat)) continue;
        p->param = neutrals[i].name;
        return tt_fail(TT_ERR_USAGE, "'%s' is not supported with this value: leave it out", p->param);
    }
    return TT_OK;
}

/* Answers are text: no grammar restricts them. */
static tt_status check_format(struct parse *p)
{
    static const char member[] = "response_format";
    const struct tt_json_value *value = tt_json_get(p->root, member), *type = tt_json_get(value, "type");
    struct tt_span given = tt_json_span(type);
    if (value == NULL || tt_json_is_null(value) || is_text(type, "text")) return TT_OK;
    p->param = member;
    if (given.data == NULL) return tt_fail(TT_ERR_USAGE, "'response_format' must be {\"type\": \"text\"}");
    return tt_fail(TT_ERR_USAGE,
                   "the response_format '%.40s' is not supported: {\"type\": \"text\"} is, or none",
                   given.data);
}

/* A number of the request; false: not given. */
static tt_status read_number(struct parse *p, const char *name, double least, double most, double *out)
{
    const struct tt_json_value *value = tt_json_get(p->root, name);
    if (value == NULL || tt_json_is_null(value)) return TT_OK;
    p->param = name;
    double number = tt_json_number(value);
    if (!tt_json_is_number(value) || !(number >= least && number <= most))
        return tt_fail(TT_ERR_USAGE, "'%s' must be a number from %.9g to %.9g", name, least, most);
    *out = number;
    p->param = NULL;
    return TT_OK;
}

/* An integer of the request; *out stays where it is not given. */
static tt_status read_integer(struct parse *p, const char *name, double least, double most, int64_t *out)
{
    double number = (double)*out;
    TT_TRY(read_number(p, name, least, most, &number));
    p->param = name;
    if (number != floor(number)) return tt_fail(TT_ERR_USAGE, "'%s' must be an integer", name);
    *out = (int64_t)number;
    p->param = NULL;
    return TT_OK;
}

/* Members that OpenAI's API does not have, under the names of other servers. */
static tt_status read_more_sampling(struct parse *p)
{
    int64_t count = -2; /* -1, as 0, is all tokens elsewhere */
    TT_TRY(read_integer(p, "top_k", -1, 1 << 20, &count));
    if (count > -2) p->request->top_k = count > 0 ? count : 0;
    TT_TRY(read_number(p, "min_p", 0, 1, &p->request->min_p));
    return read_number(p, "repetition_penalty", 1e-3, 1e3, &p->request->repetition_penalty);
}

static tt_status read_flag(struct parse *p, const struct tt_json_value *object, const char *name, bool *out)
{
    const struct tt_json_value *value = tt_json_get(object, name);
    if (value == NULL || tt_json_is_null(value)) return TT_OK;
    p->param = name;
    if (!tt_json_is_bool(value)) return tt_fail(TT_ERR_USAGE, "'%s' must be true or false", name);
    *out = tt_json_is_true(value);
    p->param = NULL;
    return TT_OK;
}

static tt_status add_stop(struct parse *p, const struct tt_json_value *value)
{
    struct tt_span text = tt_json_span(value);
    p->param = "stop";
    if (text.bytes == 0 || text.bytes > TT_API_STOP_BYTES_MAX || p->request->stop_count == TT_API_STOPS_MAX)
        return tt_fail(TT_ERR_USAGE,
                       "'stop' must be a text of 1 to %d bytes, or a list of at most %d of them",
                       TT_API_STOP_BYTES_MAX, TT_API_STOPS_MAX);
    p->request->stops[p->request->stop_count++] = text;
    p->param = NULL;
    return TT_OK;
}

static tt_status read_stops(struct parse *p)
{
    const struct tt_json_value *value = tt_json_get(p->root, "stop");
    if (value == NULL || tt_json_is_null(value)) return TT_OK;
    if (!tt_json_is_list(value)) return add_stop(p, value);
    for (size_t i = 0; i < tt_json_count(value); i++) TT_TRY(add_stop(p, tt_json_at(value, i)));
    return TT_OK;
}

static tt_status read_stream_options(struct parse *p)
{
    const struct tt_json_value *options = tt_json_get(p->root, "stream_options");
    const struct tt_json_value *each = tt_json_get(options, "continuous_usage_stats");
    TT_TRY(read_flag(p, options, "include_usage", &p->request->wants_usage));
    if (each == NULL || tt_json_is_null(each) || tt_json_is_false(each)) return TT_OK;
    p->param = "stream_options";
    return tt_fail(TT_ERR_USAGE,
                   "'continuous_usage_stats' is not supported: include_usage counts at the end");
}

static tt_status read_common(struct parse *p)
{
    struct tt_api_request *request = p->request;
    const struct tt_json_value *value = tt_json_get(p->root, "model");
    request->temperature = request->top_p = request->min_p = request->repetition_penalty = -1;
    request->top_k = -1;
    if (value != NULL && !tt_json_is_null(value)) {
        p->param = "model";
        request->model = tt_json_text(value);
        if (request->model == NULL) return tt_fail(TT_ERR_USAGE, "'model' must be a text");
        p->param = NULL;
    }
    request->n = 1;
    TT_TRY(check_neutrals(p));
    TT_TRY(check_format(p));
    TT_TRY(read_integer(p, "n", 1, TT_API_CHOICES_MAX, &request->n));
    TT_TRY(read_flag(p, p->root, "stream", &request->stream));
    TT_TRY(read_flag(p, p->root, "ignore_eos", &request->ignore_eos));
    TT_TRY(read_stream_options(p));
    TT_TRY(read_integer(p, "max_tokens", 1, 1 << 20, &request->max_tokens));
    TT_TRY(read_integer(p, "max_completion_tokens", 1, 1 << 20, &request->max_tokens));
    TT_TRY(read_number(p, "temperature", 0, 2, &request->temperature));
    TT_TRY(read_number(p, "top_p", 1e-6, 1, &request->top_p));
    TT_TRY(read_more_sampling(p));
    value = tt_json_get(p->root, "seed");
    if (value != NULL && !tt_json_is_null(value)) {
        p->param = "seed";
        if (!tt_json_is_integer(value)) return tt_fail(TT_ERR_USAGE, "'seed' must be an integer of 64 bits");
        request->seed = tt_json_integer(value);
        request->has_seed = true;
        p->param = NULL;
    }
    return read_stops(p);
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

static tt_status read_messages(struct parse *p)
{
    const struct tt_json_value *messages = tt_json_get(p->root, "messages");
    size_t count = tt_json_count(messages);
    p->param = "messages";
    if (!tt_json_is_list(messages) || count == 0 || count > MESSAGES_MAX)
        return tt_fail(TT_ERR_USAGE, "'messages' must be a list of 1 to %d messages", MESSAGES_MAX);
    for (size_t i = 0; i < count; i++)
        if (tt_json_text(tt_json_get(tt_json_at(messages, i), "role")) == NULL)
            return tt_fail(TT_ERR_USAGE, "each of 'messages' must be an object with a role");
    p->request->row = make_row(p->root, messages);
    if (p->request->row == NULL) return TT_ERR_MEMORY;
    bool may_call = !is_text(tt_json_get(p->root, "tool_choice"), "none");
    if (may_call && tt_json_count(tt_json_get(p->root, "tools")) > 0)
        p->request->tools = tt_json_get(p->root, "tools");
    p->param = NULL;
    return TT_OK;
}

/* A conversation's form: logprobs is a flag, top_logprobs a number beside it. */
static tt_status read_chat_logprobs(struct parse *p)
{
    struct tt_api_request *request = p->request;
    TT_TRY(read_flag(p, p->root, "logprobs", &request->wants_logprobs));
    TT_TRY(read_integer(p, "top_logprobs", 0, TT_API_TOP_LOGPROBS_MAX, &request->top_logprobs));
    if (request->wants_logprobs || request->top_logprobs == 0) return TT_OK;
    p->param = "top_logprobs";
    return tt_fail(TT_ERR_USAGE, "'top_logprobs' needs 'logprobs': true");
}

/* A prompt's form: logprobs is the number. */
static tt_status read_logprobs(struct parse *p)
{
    int64_t count = -1;
    const struct tt_json_value *value = tt_json_get(p->root, "logprobs");
    if (tt_json_is_false(value)) return TT_OK;
    TT_TRY(read_integer(p, "logprobs", 0, TT_API_TOP_LOGPROBS_MAX, &count));
    p->request->wants_logprobs = count >= 0;
    p->request->top_logprobs = count > 0 ? count : 0;
    return TT_OK;
}

static tt_status add_prompt(struct parse *p, const struct tt_json_value *value)
{
    static const char message[] = "'prompt' must be a text, a list of token ids, or a list of such prompts";
    struct tt_api_prompt prompt = {.text = tt_json_span(value)};
    if (prompt.text.bytes == 0 && (!tt_json_is_list(value) || tt_json_count(value) == 0))
        return tt_fail(TT_ERR_USAGE, "%s", message);
    for (size_t i = 0; i < tt_json_count(value); i++) {
        const struct tt_json_value *id = tt_json_at(value, i);
        if (!tt_json_is_integer(id) || tt_json_integer(id) < 0 || tt_json_integer(id) > INT32_MAX)
            return tt_fail(TT_ERR_USAGE, "%s", message);
    }
    if (tt_json_is_list(value)) prompt.ids = value;
    p->request->prompts[p->request->prompt_count++] = prompt;
    return TT_OK;
}

static tt_status read_prompts(struct parse *p)
{
    const struct tt_json_value *value = tt_json_get(p->root, "prompt");
    bool several =
        tt_json_is_list(value) && tt_json_count(value) > 0 && !tt_json_is_number(tt_json_at(value, 0));
    size_t count = several ? tt_json_count(value) : 1;
    p->param = "prompt";
    if (count > TT_API_CHOICES_MAX || (int64_t)count * p->request->n > TT_API_CHOICES_MAX)
        return tt_fail(TT_ERR_USAGE, "%zu prompts with %lld answers each are more than %d answers", count,
                       (long long)p->request->n, TT_API_CHOICES_MAX);
    p->request->prompts = tt_calloc(count, sizeof *p->request->prompts);
    if (p->request->prompts == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) TT_TRY(add_prompt(p, several ? tt_json_at(value, i) : value));
    p->param = NULL;
    return TT_OK;
}

tt_status tt_api_request_parse(struct tt_span body, bool chat, struct tt_api_request *request,
                               const char **param)
{
    struct parse p = {.request = request, .chat = chat};
    *param = NULL;
    TT_TRY(tt_json_parse(body.data, body.bytes, "the request", &request->json));
    p.root = request->json.root;
    if (!tt_json_is_object(p.root)) return tt_fail(TT_ERR_USAGE, "the request must be a JSON object");
    tt_status status = read_common(&p);
    if (status == TT_OK) status = chat ? read_chat_logprobs(&p) : read_logprobs(&p);
    if (status == TT_OK) status = chat ? read_messages(&p) : read_prompts(&p);
    if (chat) request->prompt_count = 1;
    *param = p.param;
    return status;
}

void tt_api_request_deinit(struct tt_api_request *request)
{
    tt_json_release(request->row);
    tt_free(request->prompts);
    tt_json_deinit(&request->json);
    *request = (struct tt_api_request){0};
}
