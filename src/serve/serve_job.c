#include "serve/serve_job.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "serve/api_answer.h"
#include "serve/call_format.h"
#include "serve/job_tokens.h"
#include "serve/refuse.h"
#include "serve/tool_calls.h"

struct tt_serve_adapter_call tt_serve_adapter_call_of(const struct tt_serve_config *config,
                                                      const struct tt_serve_job *job)
{
    return (struct tt_serve_adapter_call){.exchange = job->exchange,
                                          .request = &job->request,
                                          .base = config->model_name,
                                          .adapters = config->adapters,
                                          .takes = config->takes_adapters};
}

void tt_serve_job_cancel(const struct tt_serve_config *config, struct tt_serve_job *job)
{
    for (; job->ended < job->asked; job->ended++) {
        job->client->running--;
        tt_serve_count_end(config->metrics, TT_SERVE_CANCELLED);
    }
}

void tt_serve_job_destroy(const struct tt_serve_config *config, struct tt_serve_job *job)
{
    if (job == NULL) return;
    for (size_t i = 0; i < job->choice_count; i++) {
        tt_talk_answer_deinit(config->talk, &job->choices[i].answer);
        tt_str_deinit(&job->choices[i].text);
        tt_str_deinit(&job->choices[i].raw);
        tt_str_deinit(&job->choices[i].thought);
        tt_json_release(job->choices[i].calls);
    }
    for (size_t i = 0; job->prompts != NULL && i < job->request.prompt_count; i++)
        tt_serve_prompt_deinit(&job->prompts[i]);
    tt_ids_deinit(&job->banned);
    tt_free(job->choices);
    tt_free(job->prompts);
    if (job->uses) tt_serve_adapters_leave(config->adapters, job->adapter);
    if (job->loads) tt_serve_adapters_end(config->adapters, job->adapter, false);
    tt_api_request_deinit(&job->request);
    tt_http_release(job->exchange);
    tt_free(job);
}

/* ---- The begin ---- */

static struct tt_sampling_options make_sampling(const struct tt_serve_config *config,
                                                const struct tt_api_request *request)
{
    struct tt_sampling_options sampling = config->sampling;
    if (request->temperature >= 0) {
        sampling.sample = request->temperature > 0;
        sampling.temperature = request->temperature;
    }
    if (request->top_p > 0) {
        sampling.top_p = request->top_p;
        if (request->temperature < 0) sampling.sample = true;
    }
    if (request->top_k >= 0) sampling.top_k = request->top_k;
    if (request->min_p >= 0) sampling.min_p = request->min_p;
    if (request->repetition_penalty > 0) sampling.repetition_penalty = request->repetition_penalty;
    return sampling;
}

/* The seed of answer `sample` to a prompt: prompts in one request with a seed have the answers that each has alone. */
static uint64_t make_seed(const struct tt_serve_config *config, const struct tt_serve_job *job, size_t choice)
{
    const struct tt_api_request *request = &job->request;
    uint64_t sample = choice % (uint64_t)request->n;
    return request->has_seed ? tt_generation_seed((uint64_t)request->seed, sample)
                             : tt_generation_seed(config->seed, job->number + choice);
}

/* New tokens that the request asks for; 0: none. */
static int64_t wanted_tokens(const struct tt_serve_config *config, const struct tt_api_request *request)
{
    return request->max_tokens >= 0 ? request->max_tokens : config->max_new_tokens;
}

/* Likeliest tokens beside each token of a prompt; -1: its log p is not wanted. */
static int64_t prompt_top(const struct tt_api_request *request)
{
    int64_t top = request->echo && request->wants_logprobs ? request->top_logprobs : -1;
    return request->prompt_logprobs > top ? request->prompt_logprobs : top;
}

/* The generation that prompt `index` asks for. */
static struct tt_generation_request make_ask(const struct tt_serve_config *config,
                                             const struct tt_serve_job *job, size_t index)
{
    const struct tt_api_request *request = &job->request;
    const struct tt_ids *ids = &job->prompts[index].ids;
    int64_t top = prompt_top(request);
    return (struct tt_generation_request){
        .prompt = ids->data,
        .prompt_count = ids->count,
        .max_new_tokens = tt_talk_room(config->talk, ids->count, wanted_tokens(config, request)),
        .sampling = make_sampling(config, request),
        .ignore_end = config->ignore_end || request->ignore_eos,
        .adapter_off = job->adapter_off,
        .adapter = job->adapter,
        .stop_ids = request->stop_ids.data,
        .stop_count = request->stop_ids.count,
        .adjust = {.presence = request->presence_penalty,
                   .frequency = request->frequency_penalty,
                   .min_tokens = request->min_tokens,
                   .bias = request->biases,
                   .bias_count = request->bias_count},
        .rules = {request->allowed.data, request->allowed.count, job->banned.data, job->banned.count},
        .wants_logprobs = request->wants_logprobs,
        .top_logprobs = (int)request->top_logprobs,
        .wants_prompt_logprobs = top >= 0,
        .prompt_top_logprobs = top >= 0 ? (int)top : 0,
        .grammar = {request->grammar.data, request->grammar.bytes},
    };
}

/* Makes prompt `index` and checks what it asks for. */
static tt_status prepare_prompt(const struct tt_serve_config *config, struct tt_serve_job *job, size_t index)
{
    struct tt_serve_prompt *prompt = &job->prompts[index];
    int64_t wanted = wanted_tokens(config, &job->request);
    TT_TRY(tt_serve_prompt_make(config->talk, &job->request, index, wanted, prompt));
    job->prompt_tokens += prompt->ids.count;
    const struct tt_generation_request ask = make_ask(config, job, index);
    if (ask.max_new_tokens < 1 && wanted > 0)
        return tt_fail(TT_ERR_USAGE, "the prompt has %zu tokens, which leaves no room for an answer in %lld",
                       prompt->ids.count, (long long)tt_talk_length(config->talk));
    return tt_generation_check(tt_generation_team_engine(config->talk->team), &ask);
}

static tt_status prepare(const struct tt_serve_config *config, struct tt_serve_job *job)
{
    job->prompts = tt_calloc(job->request.prompt_count, sizeof *job->prompts);
    if (job->prompts == NULL) return TT_ERR_MEMORY;
    TT_TRY(tt_serve_bad_words(config->talk, job->request.bad_words, &job->banned));
    for (size_t i = 0; i < job->request.prompt_count; i++) TT_TRY(prepare_prompt(config, job, i));
    tt_serve_count_prompt(config->metrics, (int64_t)job->prompt_tokens);
    return TT_OK;
}

/* Reasoning is kept apart in conversations, unless the answer follows a grammar, which has none; harmony's is a message
 * of its form. */
static enum tt_thought_form thought_form(const struct tt_serve_config *config, const struct tt_serve_job *job)
{
    enum tt_thought_form form = config->talk->thoughts;
    bool apart = job->chat && (job->request.grammar.bytes == 0 || form == TT_THOUGHT_HARMONY);
    return apart ? form : TT_THOUGHT_NONE;
}

/* The marks of reasoning and of calls may be special tokens. */
static bool shows_marks(const struct tt_serve_config *config, const struct tt_serve_job *job)
{
    enum tt_thought_form form = thought_form(config, job);
    if (form == TT_THOUGHT_HARMONY || form == TT_THOUGHT_CHANNEL) return true;
    return job->request.tools != NULL && tt_call_format_of(config->talk->chat_template)->shown;
}

/* A template may have opened the reasoning at the end of the prompt. */
static tt_status find_inside(const struct tt_serve_config *config, const struct tt_serve_job *job,
                             struct tt_serve_choice *choice)
{
    enum { ENDING = 8 }; /* tokens of the mark, at most */
    const struct tt_ids *ids = &tt_serve_prompt_of(job, choice)->ids;
    size_t count = ids->count < ENDING ? ids->count : ENDING;
    struct tt_str end = {0};
    if (thought_form(config, job) == TT_THOUGHT_NONE) return TT_OK;
    tt_status status = tt_tokenizer_decode(config->talk->inputs->tokenizer, ids->data + ids->count - count,
                                           count, false, &end);
    choice->inside =
        status == TT_OK &&
        tt_thought_begins_inside(config->talk->thoughts, (struct tt_span){tt_str_text(&end), end.bytes});
    tt_str_deinit(&end);
    return status;
}

/* The text of a choice begins with the prompt where the request wants it. */
static tt_status submit_choice(const struct tt_serve_config *config, struct tt_serve_job *job, size_t index)
{
    struct tt_serve_choice *choice = &job->choices[index];
    const struct tt_str *text = &tt_serve_prompt_of(job, choice)->text;
    struct tt_generation_request ask = make_ask(config, job, index / (size_t)job->request.n);
    ask.seed = make_seed(config, job, index);
    choice->ready = !ask.wants_prompt_logprobs;
    choice->echoed = text->bytes;
    if (text->bytes > 0) TT_TRY(tt_str_append(&choice->text, text->data, text->bytes));
    TT_TRY(tt_talk_ask(config->talk, &ask, &choice->answer));
    choice->answer.stream.skip_special = !job->request.keeps_special && !shows_marks(config, job);
    choice->answer.shows_end = job->request.keeps_stop;
    TT_TRY(find_inside(config, job, choice));
    return TT_OK;
}

bool tt_serve_job_ask(const struct tt_serve_config *config, struct tt_serve_job *job)
{
    tt_status status = submit_choice(config, job, job->asked);
    if (status == TT_OK) {
        if (job->asked++ == 0) {
            job->begun = tt_clock_seconds();
            tt_serve_observe(config->metrics, TT_SERVE_QUEUE_TIME, job->begun - job->arrived);
        }
        job->client->running++;
        return true;
    }
    if (!job->request.stream) tt_serve_fail(job->exchange, status, NULL);
    tt_error_clear();
    tt_http_end(job->exchange, NULL, 0);
    return false;
}

/* Answers a request that generates nothing. */
static void answer_tokens(const struct tt_serve_config *config, struct tt_serve_job *job)
{
    struct tt_str out = {0};
    tt_status status = job->form == TT_API_TOKENIZE ? tt_serve_tokenize(config->talk, &job->request, &out)
                                                    : tt_serve_detokenize(config->talk, &job->request, &out);
    if (status == TT_OK)
        tt_http_answer(job->exchange, 200, "application/json", out.data, out.bytes);
    else
        tt_serve_fail(job->exchange, status, job->form == TT_API_TOKENIZE ? "prompt" : "tokens");
    tt_str_deinit(&out);
}

static void load_adapter(const struct tt_serve_config *config, struct tt_serve_job *job)
{
    const struct tt_serve_adapter_call call = tt_serve_adapter_call_of(config, job);
    tt_serve_load(&call, config->talk->team, job->adapter);
    job->loads = false;
}

bool tt_serve_job_begin(const struct tt_serve_config *config, struct tt_serve_job *job)
{
    if (job->form == TT_API_LOAD)
        load_adapter(config, job);
    else if ((job->form & TT_API_BOTH) == 0)
        answer_tokens(config, job);
    if ((job->form & TT_API_BOTH) == 0) return false;
    snprintf(job->id, sizeof job->id, "%s-%llx-%llu", job->chat ? "chatcmpl" : "cmpl",
             (unsigned long long)job->created, (unsigned long long)job->number);
    tt_status status = prepare(config, job);
    if (status != TT_OK) {
        tt_serve_count_refusal(config->metrics, TT_SERVE_INVALID);
        tt_serve_fail(job->exchange, status, job->chat ? "messages" : "prompt");
        return false;
    }
    if (job->request.stream) tt_http_begin(job->exchange, 200, "text/event-stream");
    return true;
}

/* ---- The text ---- */

/* Cuts the text at the first stop text behind `from`, or behind it. */
static void find_stop(const struct tt_api_request *request, struct tt_serve_choice *choice,
                      struct tt_str *text, size_t from)
{
    const char *first = NULL;
    size_t kept = 0;
    if ((int64_t)choice->answer.tokens < request->min_tokens) return;
    for (size_t i = 0; i < request->stop_count; i++) {
        struct tt_span stop = request->stops[i];
        size_t begin = from > choice->echoed + stop.bytes ? from - stop.bytes : choice->echoed;
        if (text->bytes == 0) return;
        const char *found = memmem(text->data + begin, text->bytes - begin, stop.data, stop.bytes);
        if (found == NULL || (first != NULL && found >= first)) continue;
        first = found;
        kept = request->keeps_stop ? stop.bytes : 0;
    }
    if (first == NULL) return;
    text->bytes = (size_t)(first - text->data) + kept;
    text->data[text->bytes] = 0;
    choice->stopped = true;
}

static bool is_finished(const struct tt_serve_choice *choice)
{
    return choice->stopped || tt_generation_is_finished(choice->answer.state);
}

static size_t held_bytes(const struct tt_api_request *request)
{
    size_t held = 1;
    for (size_t i = 0; i < request->stop_count; i++)
        if (request->stops[i].bytes > held) held = request->stops[i].bytes;
    return held - 1;
}

/* Divides the answer so far into its reasoning and its text; an end that may become a stop text waits. */
static tt_status divide(enum tt_thought_form form, const struct tt_api_request *request,
                        struct tt_serve_choice *choice)
{
    bool finished = is_finished(choice);
    size_t held = finished ? 0 : held_bytes(request),
           bytes = choice->raw.bytes > held ? choice->raw.bytes - held : 0;
    while (bytes > 0 && bytes < choice->raw.bytes && ((unsigned char)choice->raw.data[bytes] & 0xC0) == 0x80)
        bytes--;
    struct tt_span answer = {tt_str_text(&choice->raw), bytes};
    return tt_thought_split(form, choice->inside, answer, finished, &choice->thought, &choice->text);
}

/* Bytes that can be sent: an end that may become a stop text or a call of a tool, or is part of a character, waits. */
static size_t count_visible(const struct tt_api_request *request, const struct tt_serve_choice *choice)
{
    size_t held = 0, bytes = choice->text.bytes;
    for (size_t i = 0; i < request->stop_count; i++)
        if (request->stops[i].bytes > held) held = request->stops[i].bytes;
    if (is_finished(choice)) return bytes;
    size_t visible = held == 0 ? bytes : bytes > held - 1 ? bytes - (held - 1) : 0;
    if (request->tools != NULL) {
        size_t settled = tt_tool_calls_settled((struct tt_span){choice->text.data, bytes}, request->tools);
        if (settled < visible) visible = settled;
    }
    while (visible > 0 && visible < bytes && ((unsigned char)choice->text.data[visible] & 0xC0) == 0x80)
        visible--;
    return visible;
}

/* ---- Answers ---- */

static struct tt_api_answer describe(const struct tt_serve_job *job)
{
    struct tt_api_answer answer = {.chat = job->chat,
                                   .id = job->id,
                                   .model = job->model,
                                   .created = job->created,
                                   .usage_each = job->request.usage_each,
                                   .prompt_tokens = job->prompt_tokens};
    for (size_t i = 0; i < job->choice_count; i++) answer.new_tokens += job->choices[i].answer.tokens;
    return answer;
}

static const char *finish_of(const struct tt_serve_choice *choice)
{
    if (choice->calls != NULL && choice->answer.state != TT_GENERATION_LENGTH) return "tool_calls";
    if (choice->stopped || choice->answer.state == TT_GENERATION_ENDED) return "stop";
    return choice->answer.state == TT_GENERATION_LENGTH ? "length" : NULL;
}

static tt_status keep_first(struct tt_json_value **calls)
{
    struct tt_json_value *first = tt_json_new_list();
    tt_json_append_copy(first, tt_json_at(*calls, 0));
    tt_json_release(*calls);
    *calls = tt_json_finish(first);
    return *calls != NULL ? TT_OK : TT_ERR_MEMORY;
}

/* Takes the calls of tools out of the text of a finished choice. */
static tt_status seek_calls(const struct tt_serve_job *job, struct tt_serve_choice *choice)
{
    size_t content, index = (size_t)(choice - job->choices);
    uint64_t seed = (uint64_t)job->created << 24 ^ (job->number + index) << 8;
    if (choice->sought || job->request.tools == NULL || !is_finished(choice)) return TT_OK;
    choice->sought = true;
    struct tt_span text = {tt_str_text(&choice->text), choice->text.bytes};
    TT_TRY(tt_tool_calls_find(text, job->request.tools, seed, &choice->calls, &content));
    if (choice->calls == NULL) return TT_OK;
    if (job->request.one_call) TT_TRY(keep_first(&choice->calls));
    choice->text.bytes = content;
    choice->text.data[content] = 0;
    return TT_OK;
}

/* A piece of a choice; `length` bytes that were not sent. */
static tt_status write_piece(const struct tt_serve_config *config, struct tt_serve_job *job, size_t index,
                             size_t length, struct tt_str *out)
{
    struct tt_serve_choice *choice = &job->choices[index];
    const struct tt_api_answer answer = describe(job);
    struct tt_api_choice piece = {.index = index};
    TT_TRY(tt_serve_tell_tokens(config, job, choice, &piece));
    piece.reasoning = (struct tt_span){tt_str_text(&choice->thought) + choice->thought_sent,
                                       choice->thought.bytes - choice->thought_sent};
    choice->thought_sent = choice->thought.bytes;
    if (length > 0) piece.content = (struct tt_span){choice->text.data + choice->sent, length};
    choice->sent += length;
    return tt_api_write_chunk(&answer, &piece, false, out);
}

/* The first event of a conversation's choice: its role, and what is said once. */
static tt_status write_first(const struct tt_serve_config *config, struct tt_serve_job *job,
                             struct tt_api_choice *piece, struct tt_str *out)
{
    struct tt_api_answer answer = describe(job);
    TT_TRY(tt_serve_tell_conversation(config, job, &answer.more));
    tt_status status = tt_api_write_chunk(&answer, piece, true, out);
    tt_json_release(answer.more);
    return status;
}

static tt_status write_choice(const struct tt_serve_config *config, struct tt_serve_job *job, size_t index,
                              struct tt_str *out)
{
    struct tt_serve_choice *choice = &job->choices[index];
    const struct tt_api_answer answer = describe(job);
    struct tt_api_choice piece = {.index = index};
    size_t visible = count_visible(&job->request, choice);
    bool finished = is_finished(choice);
    if (!choice->begun && job->chat) TT_TRY(write_first(config, job, &piece, out));
    choice->begun = true;
    bool untold = finished && tt_serve_has_untold(job, choice);
    if (visible > choice->sent || untold || choice->thought.bytes > choice->thought_sent)
        TT_TRY(write_piece(config, job, index, visible - choice->sent, out));
    if (!finished) return TT_OK;
    choice->over = true;
    if (choice->calls != NULL) {
        piece.tool_calls = choice->calls;
        TT_TRY(tt_api_write_chunk(&answer, &piece, false, out));
        piece.tool_calls = NULL;
    }
    piece.finish = finish_of(choice);
    return tt_api_write_chunk(&answer, &piece, false, out);
}

static tt_status write_events(const struct tt_serve_config *config, struct tt_serve_job *job, bool finished,
                              struct tt_str *out)
{
    for (size_t i = 0; i < job->choice_count; i++)
        if (!job->choices[i].over && job->choices[i].ready && job->choices[i].answer.id != 0)
            TT_TRY(write_choice(config, job, i, out));
    if (!finished) return TT_OK;
    const struct tt_api_answer answer = describe(job);
    if (job->request.wants_usage) TT_TRY(tt_api_write_usage(&answer, out));
    return tt_str_append_text(out, "data: [DONE]\n\n");
}

static tt_status write_whole(const struct tt_serve_config *config, struct tt_serve_job *job,
                             struct tt_str *out)
{
    struct tt_api_answer answer = describe(job);
    struct tt_api_choice *choices = tt_calloc(job->choice_count, sizeof *choices);
    tt_status status = choices != NULL ? TT_OK : TT_ERR_MEMORY;
    if (status == TT_OK && job->chat) status = tt_serve_tell_conversation(config, job, &answer.more);
    size_t made = 0;
    for (; made < job->choice_count && status == TT_OK; made++) {
        struct tt_serve_choice *choice = &job->choices[made];
        choices[made] = (struct tt_api_choice){.index = made,
                                               .content = {choice->text.data, choice->text.bytes},
                                               .reasoning = {choice->thought.data, choice->thought.bytes},
                                               .tool_calls = choice->calls,
                                               .finish = finish_of(choice)};
        status = tt_serve_tell_tokens(config, job, choice, &choices[made]);
    }
    if (status == TT_OK)
        status = tt_api_write_answer(&answer, choices, made, out);
    else
        for (size_t i = 0; i < made; i++) {
            tt_json_release(choices[i].logprobs);
            tt_json_release(choices[i].more);
        }
    tt_json_release(answer.more);
    tt_free(choices);
    return status;
}

/* Sends what there is. A client that has not taken the last events gets the text in fewer, larger ones. */
static tt_status deliver(const struct tt_serve_config *config, struct tt_serve_job *job, bool finished)
{
    struct tt_str out = {0};
    tt_status status = TT_OK;
    if (!job->request.stream) {
        if (!finished) return TT_OK;
        TT_GO(write_whole(config, job, &out));
        tt_http_answer(job->exchange, 200, "application/json", out.data, out.bytes);
    } else if (finished || tt_http_pending(job->exchange) == 0) {
        TT_GO(write_events(config, job, finished, &out));
        if (finished)
            tt_http_end(job->exchange, tt_str_text(&out), out.bytes);
        else
            tt_http_write(job->exchange, tt_str_text(&out), out.bytes);
    }
out:
    tt_str_deinit(&out);
    return status;
}

/* Brings an answer up to the engine's state; *news: there is something to send. A generation that a stop text ends is
 * cancelled; its answer so far stays. */
static tt_status advance_choice(const struct tt_serve_config *config, const struct tt_serve_job *job,
                                struct tt_serve_choice *choice, bool *news)
{
    enum tt_thought_form form = thought_form(config, job);
    struct tt_str *text = form != TT_THOUGHT_NONE ? &choice->raw : &choice->text;
    size_t before = text->bytes, tokens = choice->answer.tokens;
    bool ended = is_finished(choice);
    if (choice->answer.id == 0) return TT_OK; /* not asked for yet */
    if (!ended) TT_TRY(tt_talk_advance(config->talk, &choice->answer, text));
    if (choice->answer.tokens > tokens)
        tt_serve_count_tokens(config->metrics, (int64_t)(choice->answer.tokens - tokens));
    TT_TRY(tt_serve_await_prompt(config, job, choice));
    if (text->bytes > before) find_stop(&job->request, choice, text, before);
    if (choice->stopped) tt_generation_team_cancel(config->talk->team, choice->answer.id);
    if (form != TT_THOUGHT_NONE && !ended) TT_TRY(divide(form, &job->request, choice));
    TT_TRY(seek_calls(job, choice));
    bool more = text->bytes > before || !choice->begun || (is_finished(choice) && !choice->over);
    *news = *news || (choice->ready && more);
    return TT_OK;
}

/* Counts a choice that has ended in this step. */
static void count_end(const struct tt_serve_config *config, struct tt_serve_job *job,
                      const struct tt_serve_choice *choice)
{
    const char *finish = finish_of(choice);
    enum tt_serve_end end = finish == NULL                      ? TT_SERVE_CANCELLED
                            : strcmp(finish, "length") == 0     ? TT_SERVE_LENGTH
                            : strcmp(finish, "tool_calls") == 0 ? TT_SERVE_TOOL_CALLS
                                                                : TT_SERVE_STOP;
    job->ended++;
    job->client->running--;
    tt_serve_count_end(config->metrics, end);
    if (choice->answer.tokens > 1)
        tt_serve_observe(config->metrics, TT_SERVE_TOKEN_TIME,
                         (tt_clock_seconds() - job->begun) / (double)choice->answer.tokens);
}

static tt_status advance_choices(const struct tt_serve_config *config, struct tt_serve_job *job, bool *news)
{
    for (size_t i = 0; i < job->asked; i++) {
        struct tt_serve_choice *choice = &job->choices[i];
        bool ended = is_finished(choice);
        TT_TRY(advance_choice(config, job, choice, news));
        if (job->first == 0 && choice->answer.tokens > 0) {
            job->first = tt_clock_seconds();
            tt_serve_observe(config->metrics, TT_SERVE_FIRST_TOKEN, job->first - job->arrived);
        }
        if (!ended && is_finished(choice)) count_end(config, job, choice);
    }
    return TT_OK;
}

bool tt_serve_job_advance(const struct tt_serve_config *config, struct tt_serve_job *job)
{
    bool news = false;
    if (tt_http_is_gone(job->exchange)) return true;
    tt_status status = advance_choices(config, job, &news);
    bool finished = job->ended == job->choice_count;
    if (finished) tt_serve_observe(config->metrics, TT_SERVE_REQUEST_TIME, tt_clock_seconds() - job->arrived);
    if (status == TT_OK && news) status = deliver(config, job, finished);
    if (status != TT_OK && !job->request.stream) tt_serve_fail(job->exchange, status, NULL);
    if (status != TT_OK) tt_http_end(job->exchange, NULL, 0);
    return finished || status != TT_OK;
}
