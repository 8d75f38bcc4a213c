#include "serve/server.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"
#include "serve/api_answer.h"
#include "serve/api_request.h"

static const char json_type[] = "application/json";

/* One request, from its parsing to the end of its answer. */
struct job {
    struct job *next;
    struct tt_http_exchange *exchange; /* owned reference */
    struct tt_api_request request;
    bool chat, adapter_off, begun; /* begun: the first event of a stream was written */
    int adapter;
    const char *model; /* the name in answers */
    char id[48];
    int64_t created;
    uint64_t number;
    size_t prompt_tokens;
    struct tt_talk_answer answer;
    struct tt_str text; /* of the answer so far */
    size_t sent;        /* of it, as events */
    bool stopped;       /* by a stop text */
};

struct tt_server {
    struct tt_serve_config config;
    struct tt_http_server *http;
    struct tt_thread *thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job *pending, **pending_end; /* the rest under the lock */
    size_t load;                        /* jobs, pending or running */
    uint64_t numbers;
    bool closes;
    atomic_bool failed;
    struct job *running; /* of the thread */
};

static void answer_error(struct tt_http_exchange *exchange, int code, const char *type, const char *param,
                         const char *word, const char *message)
{
    struct tt_str text = {0};
    if (tt_api_write_error(message, type, param, word, &text) == TT_OK)
        tt_http_answer(exchange, code, json_type, text.data, text.bytes);
    tt_error_clear();
    tt_str_deinit(&text);
}

/* Answers with the error record of this thread and clears it. */
static void answer_failure(struct tt_http_exchange *exchange, tt_status status, const char *param)
{
    char message[sizeof tt_error_record()->message];
    bool theirs = status == TT_ERR_USAGE || status == TT_ERR_DATA || status == TT_ERR_UNSUPPORTED;
    snprintf(message, sizeof message, "%s", tt_error_record()->message);
    tt_error_clear();
    if (theirs)
        answer_error(exchange, 400, "invalid_request_error", param, NULL, message);
    else
        answer_error(exchange, 500, "server_error", NULL, NULL, "the server cannot answer this request");
}

static void job_destroy(struct tt_server *server, struct job *job)
{
    if (job == NULL) return;
    tt_talk_answer_deinit(server->config.talk, &job->answer);
    tt_api_request_deinit(&job->request);
    tt_http_release(job->exchange);
    tt_str_deinit(&job->text);
    tt_free(job);
}

/* ---- The thread of the HTTP server ---- */

static const char *model_name(const struct tt_serve_config *config, size_t index)
{
    return index == 0 ? config->model_name : config->adapter_names[index - 1];
}

/* The base model, then the adapters. */
static struct tt_json_value *describe_model(const struct tt_server *server, size_t index)
{
    return tt_json_pack("{s:s, s:s, s:i, s:s}", "id", model_name(&server->config, index), "object", "model",
                        "created", 0, "owned_by", "trimtab");
}

/* The number of the model of that name; false: there is none. */
static bool find_model(const struct tt_server *server, const char *name, size_t *index)
{
    for (*index = 0; *index <= server->config.adapter_count; ++*index)
        if (strcmp(name, model_name(&server->config, *index)) == 0) return true;
    return false;
}

/* `index`: one model alone; NULL: the list of all. */
static tt_status write_models(const struct tt_server *server, const size_t *index, struct tt_str *text)
{
    struct tt_json_value *list = index == NULL ? tt_json_new_list() : NULL;
    for (size_t i = 0; list != NULL && i <= server->config.adapter_count; i++)
        if (tt_json_append(list, describe_model(server, i)) != 0) break;
    struct tt_json_value *value = index == NULL ? tt_json_pack("{s:s, s:o}", "object", "list", "data", list)
                                                : describe_model(server, *index);
    if (value == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_json_write(value, 0, false, text);
    tt_json_release(value);
    return status;
}

/* The base model, or the model with an adapter; without a name that of the first adapter. */
static bool choose_model(const struct tt_server *server, struct job *job)
{
    const struct tt_serve_config *config = &server->config;
    const char *asked = job->request.model;
    size_t index = config->adapter_count > 0 ? 1 : 0;
    if (asked != NULL && !find_model(server, asked, &index)) return false;
    job->model = model_name(config, index);
    job->adapter_off = index == 0;
    job->adapter = index > 0 ? (int)index - 1 : 0;
    return true;
}

/* False: too many wait already. */
static bool enqueue(struct tt_server *server, struct job *job)
{
    size_t most = (size_t)(tt_generation_team_slots(server->config.talk->team) + server->config.waiting);
    pthread_mutex_lock(&server->lock);
    bool taken = server->load < most && !server->closes;
    if (taken) {
        job->number = server->numbers++;
        *server->pending_end = job;
        server->pending_end = &job->next;
        server->load++;
        pthread_cond_signal(&server->changed);
    }
    pthread_mutex_unlock(&server->lock);
    return taken;
}

/* A browser's page can post other types to any server without asking. */
static bool is_json(const struct tt_http_exchange *exchange)
{
    const char *type = tt_http_header(exchange, "Content-Type");
    return type != NULL && tt_ascii_same_start(type, json_type, sizeof json_type - 1);
}

static void answer_unknown_model(struct tt_http_exchange *exchange, const char *name)
{
    enum { SHOWN = 60 };
    size_t bytes = strnlen(name, SHOWN);
    while (name[bytes] != 0 && bytes > 0 && ((unsigned char)name[bytes] & 0xc0) == 0x80)
        bytes--; /* whole characters */
    char text[SHOWN + 100];
    snprintf(text, sizeof text, "there is no model '%.*s' here; GET /v1/models lists those there are",
             (int)bytes, name);
    answer_error(exchange, 404, "invalid_request_error", "model", "model_not_found", text);
}

/* Takes over the exchange. */
static void accept_job(struct tt_server *server, struct tt_http_exchange *exchange, bool chat)
{
    const char *param = NULL;
    struct job *job = tt_calloc(1, sizeof *job);
    if (job == NULL) {
        answer_failure(exchange, TT_ERR_MEMORY, NULL);
        tt_http_release(exchange);
        return;
    }
    *job = (struct job){.exchange = exchange, .chat = chat, .created = (int64_t)tt_clock_unix_seconds()};
    tt_status status = tt_api_request_parse(tt_http_body(exchange), chat, &job->request, &param);
    if (status != TT_OK)
        answer_failure(exchange, status, param);
    else if (!choose_model(server, job))
        answer_unknown_model(exchange, job->request.model);
    else if (enqueue(server, job))
        return;
    else
        answer_error(exchange, 429, "rate_limit_error", NULL, "too_many_requests",
                     "too many requests wait already");
    job_destroy(server, job);
}

static void handle_post(struct tt_server *server, struct tt_http_exchange *exchange, bool chat)
{
    if (strcmp(tt_http_method(exchange), "POST") != 0)
        answer_error(exchange, 405, "invalid_request_error", NULL, NULL, "this address takes POST only");
    else if (!is_json(exchange))
        answer_error(exchange, 415, "invalid_request_error", NULL, NULL,
                     "the header Content-Type must be application/json");
    else {
        accept_job(server, exchange, chat);
        return;
    }
    tt_http_release(exchange);
}

static void handle_get(struct tt_server *server, struct tt_http_exchange *exchange, const char *path)
{
    static const char models[] = "/v1/models";
    struct tt_str text = {0};
    bool lists = tt_starts_with(path, models);
    const char *name = lists && path[sizeof models - 1] == '/' ? path + sizeof models : NULL;
    size_t index = 0;
    if (strcmp(tt_http_method(exchange), "GET") != 0 && strcmp(tt_http_method(exchange), "HEAD") != 0)
        answer_error(exchange, 405, "invalid_request_error", NULL, NULL, "this address takes GET only");
    else if (!lists)
        tt_http_answer(exchange, atomic_load(&server->failed) ? 503 : 200, "text/plain", "ok\n",
                       atomic_load(&server->failed) ? 0 : 3);
    else if (name != NULL && !find_model(server, name, &index))
        answer_unknown_model(exchange, name);
    else if (write_models(server, name != NULL ? &index : NULL, &text) == TT_OK)
        tt_http_answer(exchange, 200, json_type, text.data, text.bytes);
    tt_error_clear();
    tt_str_deinit(&text);
    tt_http_release(exchange);
}

static void handle(void *context, struct tt_http_exchange *exchange)
{
    struct tt_server *server = context;
    const char *path = tt_http_path(exchange);
    bool chat = strcmp(path, "/v1/chat/completions") == 0;
    if (chat || strcmp(path, "/v1/completions") == 0) {
        handle_post(server, exchange, chat);
    } else if (strcmp(path, "/v1/models") == 0 || tt_starts_with(path, "/v1/models/") ||
               strcmp(path, "/healthz") == 0 || strcmp(path, "/readyz") == 0) {
        handle_get(server, exchange, path);
    } else {
        answer_error(exchange, 404, "invalid_request_error", NULL, NULL,
                     "there is nothing here: /v1/chat/completions, /v1/completions, /v1/models, /healthz");
        tt_http_release(exchange);
    }
}

/* ---- The thread of the engine ---- */

static struct tt_api_answer describe(const struct job *job)
{
    const char *finish = job->stopped || job->answer.state == TT_GENERATION_ENDED ? "stop"
                         : job->answer.state == TT_GENERATION_LENGTH              ? "length"
                                                                                  : NULL;
    return (struct tt_api_answer){
        .chat = job->chat,
        .id = job->id,
        .model = job->model,
        .created = job->created,
        .finish = finish,
        .prompt_tokens = job->prompt_tokens,
        .new_tokens = job->answer.tokens,
    };
}

static tt_status make_prompt(struct tt_server *server, const struct job *job, struct tt_ids *ids)
{
    struct tt_talk *talk = server->config.talk;
    const struct tt_api_request *request = &job->request;
    if (job->chat) return tt_talk_prompt(talk, request->row, "the request", ids);
    if (request->prompt_ids == NULL)
        return tt_tokenizer_encode(talk->inputs->tokenizer, talk->scratch, request->prompt.data,
                                   request->prompt.bytes, true, ids);
    for (size_t i = 0; i < tt_json_count(request->prompt_ids); i++)
        TT_TRY(tt_ids_append(ids, (int32_t)tt_json_integer(tt_json_at(request->prompt_ids, i))));
    return TT_OK;
}

static struct tt_sampling_options make_sampling(const struct tt_server *server, const struct job *job)
{
    struct tt_sampling_options sampling = server->config.sampling;
    const struct tt_api_request *request = &job->request;
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

static tt_status submit(struct tt_server *server, struct job *job, struct tt_ids *ids)
{
    const struct tt_serve_config *config = &server->config;
    const struct tt_api_request *request = &job->request;
    int64_t wanted = request->max_tokens > 0 ? request->max_tokens : config->max_new_tokens;
    snprintf(job->id, sizeof job->id, "%s-%llx-%llu", job->chat ? "chatcmpl" : "cmpl",
             (unsigned long long)job->created, (unsigned long long)job->number);
    TT_TRY(make_prompt(server, job, ids));
    job->prompt_tokens = ids->count;
    const struct tt_generation_request ask = {
        .prompt = ids->data,
        .prompt_count = ids->count,
        .max_new_tokens = tt_talk_room(config->talk, ids->count, wanted),
        .sampling = make_sampling(server, job),
        .seed = request->has_seed ? (uint64_t)request->seed : tt_generation_seed(config->seed, job->number),
        .ignore_end = config->ignore_end,
        .adapter_off = job->adapter_off,
        .adapter = job->adapter,
    };
    if (ask.max_new_tokens < 1)
        return tt_fail(TT_ERR_USAGE, "the prompt has %zu tokens, which leaves no room for an answer in %lld",
                       ids->count, (long long)tt_talk_length(config->talk));
    TT_TRY(tt_talk_ask(config->talk, &ask, &job->answer));
    if (request->stream) tt_http_begin(job->exchange, 200, "text/event-stream");
    return TT_OK;
}

/* Begins a job; false: it has been answered with an error. */
static bool begin_job(struct tt_server *server, struct job *job)
{
    struct tt_ids ids = {0};
    tt_status status = submit(server, job, &ids);
    tt_ids_deinit(&ids);
    if (status == TT_OK) return true;
    answer_failure(job->exchange, status, job->chat ? "messages" : "prompt");
    return false;
}

/* Cuts the text at the first stop text behind `from`. */
static void find_stop(struct job *job, size_t from)
{
    const struct tt_api_request *request = &job->request;
    const char *first = NULL;
    for (size_t i = 0; i < request->stop_count; i++) {
        struct tt_span stop = request->stops[i];
        size_t begin = from > stop.bytes ? from - stop.bytes : 0;
        if (job->text.bytes == 0) return;
        const char *found = memmem(job->text.data + begin, job->text.bytes - begin, stop.data, stop.bytes);
        if (found != NULL && (first == NULL || found < first)) first = found;
    }
    if (first == NULL) return;
    job->text.bytes = (size_t)(first - job->text.data);
    job->text.data[job->text.bytes] = 0;
    job->stopped = true;
}

/* Bytes that can be sent: an end that may become a stop text, or is part of a character, waits. */
static size_t count_visible(const struct job *job, bool finished)
{
    size_t held = 0, bytes = job->text.bytes;
    for (size_t i = 0; i < job->request.stop_count; i++)
        if (job->request.stops[i].bytes > held) held = job->request.stops[i].bytes;
    if (finished || held == 0) return bytes;
    size_t visible = bytes > held - 1 ? bytes - (held - 1) : 0;
    while (visible > 0 && visible < bytes && ((unsigned char)job->text.data[visible] & 0xC0) == 0x80)
        visible--;
    return visible;
}

static tt_status write_events(struct job *job, bool finished, struct tt_str *out)
{
    struct tt_api_answer answer = describe(job);
    const char *finish = answer.finish;
    size_t visible = count_visible(job, finished);
    answer.finish = NULL;
    if (!job->begun && job->chat) TT_TRY(tt_api_write_chunk(&answer, (struct tt_span){0}, true, out));
    job->begun = true;
    if (visible > job->sent) {
        struct tt_span piece = {job->text.data + job->sent, visible - job->sent};
        TT_TRY(tt_api_write_chunk(&answer, piece, false, out));
        job->sent = visible;
    }
    if (!finished) return TT_OK;
    answer.finish = finish;
    TT_TRY(tt_api_write_chunk(&answer, (struct tt_span){0}, false, out));
    if (job->request.wants_usage) TT_TRY(tt_api_write_usage(&answer, out));
    return tt_str_append_text(out, "data: [DONE]\n\n");
}

/* Sends what there is. A client that has not taken the last events gets the text in fewer, larger ones. */
static tt_status deliver(struct job *job, bool finished)
{
    struct tt_str out = {0};
    struct tt_api_answer answer = describe(job);
    tt_status status = TT_OK;
    if (!job->request.stream) {
        if (!finished) return TT_OK;
        TT_GO(tt_api_write_answer(&answer, (struct tt_span){job->text.data, job->text.bytes}, &out));
        tt_http_answer(job->exchange, 200, json_type, out.data, out.bytes);
    } else if (finished || tt_http_pending(job->exchange) == 0) {
        TT_GO(write_events(job, finished, &out));
        tt_http_write(job->exchange, tt_str_text(&out), out.bytes);
        if (finished) tt_http_end(job->exchange);
    }
out:
    tt_str_deinit(&out);
    return status;
}

/* Brings a job up to the engine's state; true: it is over. */
static bool advance(struct tt_server *server, struct job *job)
{
    size_t before = job->text.bytes;
    if (tt_http_is_gone(job->exchange)) return true;
    tt_status status = tt_talk_advance(server->config.talk, &job->answer, &job->text);
    if (job->text.bytes > before) find_stop(job, before);
    bool finished = job->stopped || tt_generation_is_finished(job->answer.state);
    if (status == TT_OK && (finished || job->text.bytes > before || !job->begun))
        status = deliver(job, finished);
    if (status != TT_OK && !job->request.stream) answer_failure(job->exchange, status, NULL);
    if (status != TT_OK) tt_http_end(job->exchange);
    return finished || status != TT_OK;
}

static void end_job(struct tt_server *server, struct job **at)
{
    struct job *job = *at;
    *at = job->next;
    job_destroy(server, job);
    pthread_mutex_lock(&server->lock);
    server->load--;
    pthread_mutex_unlock(&server->lock);
}

/* Waits for requests if nothing runs, and begins them. False: the server closes. */
static bool take_pending(struct tt_server *server)
{
    pthread_mutex_lock(&server->lock);
    while (server->running == NULL && server->pending == NULL && !server->closes)
        pthread_cond_wait(&server->changed, &server->lock);
    struct job *jobs = server->pending;
    server->pending = NULL;
    server->pending_end = &server->pending;
    bool closes = server->closes;
    pthread_mutex_unlock(&server->lock);
    struct job **end = &server->running;
    while (*end != NULL) end = &(*end)->next;
    *end = jobs;
    while (*end != NULL && !closes) {
        if (!tt_http_is_gone((*end)->exchange) && begin_job(server, *end))
            end = &(*end)->next;
        else
            end_job(server, end);
    }
    return !closes;
}

static tt_status generate(void *argument)
{
    struct tt_server *server = argument;
    tt_status status = TT_OK;
    while (status == TT_OK && take_pending(server)) {
        bool busy;
        status = tt_generation_team_step(server->config.talk->team, &busy);
        for (struct job **at = &server->running; status == TT_OK && *at != NULL;) {
            if (advance(server, *at))
                end_job(server, at);
            else
                at = &(*at)->next;
        }
    }
    if (status != TT_OK) atomic_store(&server->failed, true);
    return status;
}

tt_status tt_serve_open(const struct tt_serve_config *config, struct tt_server **out)
{
    tt_status status = TT_OK;
    struct tt_server *server = tt_calloc(1, sizeof *server);
    if (server == NULL) return TT_ERR_MEMORY;
    server->config = *config;
    server->config.http.handler = handle;
    server->config.http.context = server;
    server->pending_end = &server->pending;
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->changed, NULL);
    TT_GO(tt_thread_start("serve", generate, server, &server->thread));
    TT_GO(tt_http_open(&server->config.http, &server->http));
    *out = server;
    return TT_OK;
out:
    if (tt_serve_close(server) != TT_OK) status = tt_error_record()->status;
    return status;
}

int tt_serve_port(const struct tt_server *server)
{
    return tt_http_port(server->http);
}

bool tt_serve_has_failed(const struct tt_server *server)
{
    return atomic_load(&server->failed);
}

/* Jobs are destroyed after the HTTP server, which then waits for no answer of theirs. */
tt_status tt_serve_close(struct tt_server *server)
{
    tt_status status = TT_OK;
    pthread_mutex_lock(&server->lock);
    server->closes = true;
    pthread_cond_signal(&server->changed);
    pthread_mutex_unlock(&server->lock);
    if (server->thread != NULL) status = tt_thread_join(server->thread);
    tt_http_close(server->http);
    while (server->running != NULL) end_job(server, &server->running);
    while (server->pending != NULL) end_job(server, &server->pending);
    pthread_mutex_destroy(&server->lock);
    pthread_cond_destroy(&server->changed);
    tt_free(server);
    return status;
}
