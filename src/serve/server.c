#include "serve/server.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"
#include "http/hosts.h"
#include "monitor/exposition.h"
#include "serve/adapters.h"
#include "serve/constraint.h"
#include "serve/model_list.h"
#include "serve/refuse.h"
#include "serve/serve_job.h"
#include "serve/trial.h"

static const char json_type[] = "application/json";
static const char *const probes[] = {"/healthz", "/health", "/readyz", NULL};

struct tt_server {
    struct tt_serve_config config;
    struct tt_http_server *http;
    struct tt_thread *thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tt_serve_job *pending, **pending_end; /* the rest under the lock */
    struct tt_serve_client *clients;             /* that have requests here */
    size_t load;                                 /* answers of jobs, pending or running */
    uint64_t numbers;
    bool closes;
    atomic_bool failed, drains;
    struct tt_serve_job *running; /* of the thread */
    int64_t turns;                /* answers that were begun; of the thread */
};

/* ---- The thread of the HTTP server ---- */

/* The base model, or the model with an adapter; without a name that of the first adapter. */
static bool choose_model(const struct tt_server *server, struct tt_serve_job *job)
{
    const struct tt_serve_config *config = &server->config;
    const char *asked = job->request.model;
    bool base = asked != NULL && strcmp(asked, config->model_name) == 0;
    job->uses = !base && tt_serve_adapters_use(config->adapters, asked, &job->adapter, &job->model);
    if (job->uses) return true;
    job->model = config->model_name;
    job->adapter_off = true;
    return base || asked == NULL;
}

/* Answers that run or wait at the same time. */
static size_t most_answers(const struct tt_server *server)
{
    return (size_t)(tt_generation_team_slots(server->config.talk->team) + server->config.waiting);
}

/* The record of whoever has this name; NULL: memory is exhausted. The caller holds the lock. */
static struct tt_serve_client *find_client(struct tt_server *server, const unsigned char *name)
{
    for (struct tt_serve_client *client = server->clients; client != NULL; client = client->next)
        if (memcmp(client->name, name, sizeof client->name) == 0) return client;
    struct tt_serve_client *client = tt_calloc(1, sizeof *client);
    if (client == NULL) return NULL;
    memcpy(client->name, name, sizeof client->name);
    client->next = server->clients;
    server->clients = client;
    return client;
}

/* Takes the answers of a job off its client's load, and forgets a client without any. The caller holds the lock. */
static void leave_client(struct tt_server *server, struct tt_serve_client *client, size_t answers)
{
    struct tt_serve_client **at = &server->clients;
    client->load -= answers;
    if (client->load > 0) return;
    while (*at != client) at = &(*at)->next;
    *at = client->next;
    tt_free(client);
}

/* Answers that a job counts for; it is one where it generates nothing. */
static size_t weight_of(const struct tt_serve_job *job)
{
    return job->choice_count > 0 ? job->choice_count : 1;
}

/* Why a job may not wait here; TT_SERVE_REFUSALS: it may, and is in the queue. */
static enum tt_serve_refusal enqueue(struct tt_server *server, struct tt_serve_job *job,
                                     const unsigned char *name)
{
    enum tt_serve_refusal refusal = TT_SERVE_REFUSALS;
    size_t answers = weight_of(job);
    pthread_mutex_lock(&server->lock);
    struct tt_serve_client *client = find_client(server, name);
    if (client == NULL || server->load + answers > most_answers(server) || server->closes)
        refusal = TT_SERVE_QUEUE_FULL;
    else if (server->config.per_client > 0 && client->load + answers > (size_t)server->config.per_client)
        refusal = TT_SERVE_CLIENT_LIMIT;
    if (refusal == TT_SERVE_REFUSALS) {
        job->client = client;
        client->load += answers;
        job->number = server->numbers;
        server->numbers += job->choice_count;
        *server->pending_end = job;
        server->pending_end = &job->next;
        server->load += answers;
        pthread_cond_signal(&server->changed);
    } else if (client != NULL && client->load == 0) {
        leave_client(server, client, 0);
    }
    pthread_mutex_unlock(&server->lock);
    return refusal;
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
    /* whole characters */
    while (name[bytes] != 0 && bytes > 0 && ((unsigned char)name[bytes] & 0xc0) == 0x80) bytes--;
    char text[SHOWN + 100];
    snprintf(text, sizeof text, "there is no model '%.*s' here; GET /v1/models lists those there are",
             (int)bytes, name);
    tt_serve_refuse(exchange, 404, "invalid_request_error", "model", "model_not_found", text);
}

static tt_status make_choices(const struct tt_server *server, struct tt_serve_job *job, const char **param)
{
    size_t count = job->request.prompt_count * (size_t)job->request.n;
    if (count > most_answers(server)) {
        *param = job->request.n > 1 ? "n" : "prompt";
        return tt_fail(TT_ERR_USAGE, "the request asks for %zu answers; at most %zu run or wait here", count,
                       most_answers(server));
    }
    job->choices = tt_calloc(count, sizeof *job->choices);
    if (job->choices == NULL) return TT_ERR_MEMORY;
    job->choice_count = count;
    return TT_OK;
}

/* False: it has been answered. */
static bool begin_load(const struct tt_serve_adapter_call *call, struct tt_serve_job *job)
{
    bool begun = tt_serve_load_begin(call, &job->adapter);
    job->loads = job->adapter >= 0;
    return begun;
}

/* Takes over the exchange. */
static void accept_job(struct tt_server *server, struct tt_http_exchange *exchange, enum tt_api_form form,
                       const unsigned char *name)
{
    const char *param = NULL;
    struct tt_serve_job *job = tt_calloc(1, sizeof *job);
    if (job == NULL) {
        tt_serve_fail(exchange, TT_ERR_MEMORY, NULL);
        tt_http_release(exchange);
        return;
    }
    *job = (struct tt_serve_job){.exchange = exchange,
                                 .form = form,
                                 .chat = form == TT_API_CHAT,
                                 .created = (int64_t)tt_clock_unix_seconds(),
                                 .arrived = tt_clock_seconds()};
    enum tt_serve_refusal refusal = TT_SERVE_INVALID;
    tt_status status = tt_api_request_parse(tt_http_body(exchange), form, &job->request, &param);
    if (status == TT_OK && (form & TT_API_BOTH) != 0) status = make_choices(server, job, &param);
    if (status == TT_OK) status = tt_serve_constrain(server->config.talk, job->chat, &job->request, &param);
    bool answers = form != TT_API_LOAD && form != TT_API_UNLOAD;
    const struct tt_serve_adapter_call call = tt_serve_adapter_call_of(&server->config, job);
    if (status != TT_OK)
        tt_serve_fail(exchange, status, param);
    else if (form == TT_API_UNLOAD)
        tt_serve_unload(&call);
    else if (answers && !choose_model(server, job))
        answer_unknown_model(exchange, job->request.model);
    else if (!answers && !begin_load(&call, job))
        refusal = TT_SERVE_INVALID;
    else if ((refusal = enqueue(server, job, name)) == TT_SERVE_REFUSALS)
        return;
    else if (refusal == TT_SERVE_CLIENT_LIMIT)
        tt_serve_refuse(exchange, 429, "rate_limit_error", NULL, "client_limit",
                        "too many requests of this client run or wait already");
    else
        tt_serve_refuse(exchange, 429, "rate_limit_error", NULL, "too_many_requests",
                        "too many requests wait already");
    if (form != TT_API_UNLOAD) tt_serve_count_refusal(server->config.metrics, refusal);
    tt_serve_job_destroy(&server->config, job);
}

static void handle_post(struct tt_server *server, struct tt_http_exchange *exchange, enum tt_api_form form,
                        const unsigned char *name)
{
    if (strcmp(tt_http_method(exchange), "POST") != 0)
        tt_serve_refuse(exchange, 405, "invalid_request_error", NULL, NULL, "this address takes POST only");
    else if (atomic_load(&server->drains)) {
        tt_serve_count_refusal(server->config.metrics, TT_SERVE_STOPPING);
        tt_serve_refuse(exchange, 503, "server_error", NULL, "stopping", "this server stops: ask another");
    } else if (!is_json(exchange))
        tt_serve_refuse(exchange, 415, "invalid_request_error", NULL, NULL,
                        "the header Content-Type must be application/json");
    else {
        accept_job(server, exchange, form, name);
        return;
    }
    tt_http_release(exchange);
}

/* ---- The addresses ---- */

static void answer_probe(struct tt_server *server, struct tt_http_exchange *exchange, const char *path)
{
    bool well =
        !atomic_load(&server->failed) && (strcmp(path, "/readyz") != 0 || !atomic_load(&server->drains));
    tt_http_answer(exchange, well ? 200 : 503, "text/plain", "ok\n", well ? 3 : 0);
}

static void answer_text(struct tt_http_exchange *exchange, tt_status status, struct tt_str *text)
{
    if (status == TT_OK) tt_http_answer(exchange, 200, json_type, text->data, text->bytes);
    tt_error_clear();
    tt_str_deinit(text);
}

static void answer_models(struct tt_server *server, struct tt_http_exchange *exchange, const char *path)
{
    const char *name = strchr(path + sizeof "/v1/models" - 1, '/');
    const struct tt_model_names names = {server->config.model_name, server->config.adapters};
    struct tt_str text = {0};
    if (name != NULL && !tt_serve_has_model(&names, name + 1))
        answer_unknown_model(exchange, name + 1);
    else
        answer_text(exchange, tt_serve_write_models(&names, name != NULL ? name + 1 : NULL, &text), &text);
}

static void answer_tokenizer(struct tt_server *server, struct tt_http_exchange *exchange, const char *path)
{
    struct tt_str text = {0};
    (void)path;
    answer_text(exchange, tt_serve_describe_tokenizer(server->config.talk, &text), &text);
}

static void answer_metrics(struct tt_server *server, struct tt_http_exchange *exchange, const char *path)
{
    struct tt_str text = {0};
    bool open_metrics = tt_exposition_wants_open_metrics(tt_http_header(exchange, "Accept"));
    (void)path;
    if (tt_serve_metrics_write(server->config.metrics, open_metrics, &text) == TT_OK)
        tt_http_answer(exchange, 200, tt_exposition_type(open_metrics), tt_str_text(&text), text.bytes);
    tt_error_clear();
    tt_str_deinit(&text);
}

static void answer_nothing(struct tt_http_exchange *exchange)
{
    tt_serve_refuse(exchange, 404, "invalid_request_error", NULL, NULL,
                    "there is nothing here: /v1/chat/completions, /v1/completions, /v1/models, /healthz");
}

static void answer_page(struct tt_server *server, struct tt_http_exchange *exchange, const char *path)
{
    (void)path;
    if (server->config.page != NULL)
        tt_chat_page_answer(server->config.page, exchange);
    else
        answer_nothing(exchange);
}

typedef void answer_get(struct tt_server *server, struct tt_http_exchange *exchange, const char *path);

/* The addresses of a server. */
static const struct route {
    const char *path;
    bool with_name;        /* and a name may follow it */
    enum tt_api_form form; /* of a body that is posted */
    answer_get *get;       /* NULL: it is posted */
    bool open;             /* without a key */
} routes[] = {
    {"/v1/chat/completions", .form = TT_API_CHAT},
    {"/v1/completions", .form = TT_API_PROMPT},
    {"/tokenize", .form = TT_API_TOKENIZE},
    {"/detokenize", .form = TT_API_DETOKENIZE},
    {"/v1/load_lora_adapter", .form = TT_API_LOAD},
    {"/v1/unload_lora_adapter", .form = TT_API_UNLOAD},
    {"/tokenizer_info", .get = answer_tokenizer},
    {"/v1/models", .with_name = true, .get = answer_models},
    {"/metrics", .get = answer_metrics},
    {"/", .get = answer_page, .open = true},
    {"/healthz", .get = answer_probe, .open = true},
    {"/health", .get = answer_probe, .open = true},
    {"/readyz", .get = answer_probe, .open = true},
};

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t bytes = strlen(routes[i].path);
        if (strncmp(path, routes[i].path, bytes) != 0) continue;
        if (path[bytes] == 0 || (routes[i].with_name && path[bytes] == '/')) return &routes[i];
    }
    return NULL;
}

static void handle_get(struct tt_server *server, struct tt_http_exchange *exchange, answer_get *get)
{
    const char *method = tt_http_method(exchange);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        tt_serve_refuse(exchange, 405, "invalid_request_error", NULL, NULL, "this address takes GET only");
    else
        get(server, exchange, tt_http_path(exchange));
    tt_http_release(exchange);
}

/* The name of whoever asks. False: there are keys, and the request has none of them. */
static bool name_client(const struct tt_server *server, const struct tt_http_exchange *exchange,
                        unsigned char name[TT_ORIGIN_BYTES])
{
    tt_http_origin(exchange, name);
    if (server->config.keys == NULL) return true;
    int64_t client = tt_keys_find(server->config.keys, tt_http_header(exchange, "Authorization"));
    memset(name, 0, TT_ORIGIN_BYTES);
    memcpy(name, &client, sizeof client);
    return client >= 0;
}

static void handle(void *context, struct tt_http_exchange *exchange)
{
    struct tt_server *server = context;
    const struct route *route = find_route(tt_http_path(exchange));
    unsigned char name[TT_ORIGIN_BYTES];
    if (route == NULL) {
        answer_nothing(exchange);
        tt_http_release(exchange);
    } else if (!name_client(server, exchange, name) && !route->open) {
        tt_serve_count_refusal(server->config.metrics, TT_SERVE_NO_KEY);
        tt_serve_refuse(exchange, 401, "invalid_request_error", NULL, "invalid_api_key",
                        "the header Authorization must be 'Bearer' and a key of this server");
        tt_http_release(exchange);
    } else if (route->get != NULL) {
        handle_get(server, exchange, route->get);
    } else {
        handle_post(server, exchange, route->form, name);
    }
}

/* ---- The thread of the engine ---- */

/* A client that knows the end of its answer finds its place free: the exchange is released behind the job's load. */
static void end_job(struct tt_server *server, struct tt_serve_job **at)
{
    struct tt_serve_job *job = *at;
    size_t answers = weight_of(job);
    *at = job->next;
    tt_serve_job_cancel(&server->config, job);
    pthread_mutex_lock(&server->lock);
    server->load -= answers;
    leave_client(server, job->client, answers);
    pthread_mutex_unlock(&server->lock);
    tt_serve_job_destroy(&server->config, job);
}

/* Waits for requests if nothing runs, and begins them. False: the server closes. */
static bool take_pending(struct tt_server *server)
{
    pthread_mutex_lock(&server->lock);
    while (server->running == NULL && server->pending == NULL && !server->closes)
        pthread_cond_wait(&server->changed, &server->lock);
    struct tt_serve_job *jobs = server->pending;
    server->pending = NULL;
    server->pending_end = &server->pending;
    bool closes = server->closes;
    pthread_mutex_unlock(&server->lock);
    struct tt_serve_job **end = &server->running;
    while (*end != NULL) end = &(*end)->next;
    *end = jobs;
    while (*end != NULL && !closes) {
        if (!tt_http_is_gone((*end)->exchange) && tt_serve_job_begin(&server->config, *end))
            end = &(*end)->next;
        else
            end_job(server, end);
    }
    return !closes;
}

/* The client whose turn it is has fewer answers running; of as many, its last one was begun earlier. */
static bool goes_before(const struct tt_serve_client *a, const struct tt_serve_client *b)
{
    return a->running != b->running ? a->running < b->running : a->turn < b->turn;
}

/* The oldest job, with choices left, of the client whose turn it is; NULL: none waits. */
static struct tt_serve_job **choose_job(struct tt_server *server)
{
    struct tt_serve_job **chosen = NULL;
    for (struct tt_serve_job **at = &server->running; *at != NULL; at = &(*at)->next)
        if ((*at)->asked < (*at)->choice_count &&
            (chosen == NULL || goes_before((*at)->client, (*chosen)->client)))
            chosen = at;
    return chosen;
}

/* Gives free slots to the clients in turn. */
static void fill_slots(struct tt_server *server)
{
    int64_t slots = tt_generation_team_slots(server->config.talk->team), running = 0;
    struct tt_serve_job **job;
    for (struct tt_serve_job *each = server->running; each != NULL; each = each->next)
        running += (int64_t)(each->asked - each->ended);
    while (running < slots && (job = choose_job(server)) != NULL) {
        (*job)->client->turn = ++server->turns;
        if (tt_serve_job_ask(&server->config, *job))
            running++;
        else
            end_job(server, job);
    }
}

/* Tells scrapers how much runs and waits. */
static void publish(struct tt_server *server)
{
    const struct tt_generation_engine *engine = tt_generation_team_engine(server->config.talk->team);
    const struct tt_generation_limits *limits = tt_generation_limits_of(engine);
    const struct tt_generation_load load = tt_generation_load_of(engine);
    struct tt_serve_state state = {.slots = tt_generation_team_slots(server->config.talk->team),
                                   .passes = load.passes,
                                   .cached = load.cached,
                                   .cache = limits->slots * limits->length,
                                   .reused = load.reused};
    for (const struct tt_serve_job *job = server->running; job != NULL; job = job->next) {
        state.running += (int64_t)(job->asked - job->ended);
        state.waiting += (int64_t)(job->choice_count - job->asked);
    }
    tt_serve_publish(server->config.metrics, &state);
}

/* Brings the jobs up to the engine's state. Returns those that are over, which are no longer among the running ones. */
static struct tt_serve_job *advance_jobs(struct tt_server *server)
{
    struct tt_serve_job *over = NULL, **end = &over;
    for (struct tt_serve_job **at = &server->running; *at != NULL;) {
        struct tt_serve_job *job = *at;
        if (!tt_serve_job_advance(&server->config, job)) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        job->next = NULL;
        *end = job;
        end = &job->next;
    }
    return over;
}

static tt_status generate(void *argument)
{
    struct tt_server *server = argument;
    tt_status status = TT_OK;
    while (status == TT_OK && take_pending(server)) {
        bool busy;
        fill_slots(server);
        status = tt_generation_team_step(server->config.talk->team, &busy);
        struct tt_serve_job *over = status == TT_OK ? advance_jobs(server) : NULL;
        publish(server);
        while (over != NULL) end_job(server, &over);
    }
    if (status != TT_OK) atomic_store(&server->failed, true);
    return status;
}

/* ---- The begin ---- */

static void handle_early(void *context, struct tt_http_exchange *exchange)
{
    (void)context;
    tt_http_release(exchange); /* unanswered: the status 500 */
}

tt_status tt_serve_check(const struct tt_http_config *http)
{
    struct tt_http_config config = *http;
    struct tt_http_server *server = NULL;
    config.handler = handle_early;
    TT_TRY(tt_http_open(&config, &server));
    tt_http_close(server);
    return TT_OK;
}

tt_status tt_serve_open(const struct tt_serve_config *config, struct tt_server **out)
{
    tt_status status = TT_OK;
    TT_TRY(tt_serve_try(config->talk, config->adapter_count));
    struct tt_server *server = tt_calloc(1, sizeof *server);
    if (server == NULL) return TT_ERR_MEMORY;
    server->config = *config;
    server->config.http.probes = probes;
    server->config.http.handler = handle;
    server->config.http.context = server;
    server->pending_end = &server->pending;
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->changed, NULL);
    TT_GO(tt_serve_metrics_create(&server->config.metrics));
    size_t places = config->adapter_count;
    const struct tt_generation_engine *engine = tt_generation_team_engine(config->talk->team);
    if (config->takes_adapters) places = tt_generation_count_adapters(engine);
    TT_GO(tt_serve_adapters_create(config->adapter_names, config->adapter_count, places,
                                   &server->config.adapters));
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

void tt_serve_drain(struct tt_server *server)
{
    atomic_store(&server->drains, true);
}

bool tt_serve_is_idle(struct tt_server *server)
{
    pthread_mutex_lock(&server->lock);
    size_t load = server->load;
    pthread_mutex_unlock(&server->lock);
    return load == 0 && tt_http_busy(server->http) == 0;
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
    tt_serve_metrics_destroy(server->config.metrics);
    tt_serve_adapters_destroy(server->config.adapters);
    pthread_mutex_destroy(&server->lock);
    pthread_cond_destroy(&server->changed);
    tt_free(server);
    return status;
}
