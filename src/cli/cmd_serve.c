#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/crowd.h"
#include "cli/serve_call.h"
#include "cli/signals.h"
#include "serve/server.h"

/* The last part of a path, with `ending` where it is `taken` already; NULL: memory is exhausted. */
static char *make_name(const char *path, const char *taken)
{
    size_t bytes = strlen(path);
    struct tt_str name = {0};
    while (bytes > 1 && path[bytes - 1] == '/') bytes--;
    size_t begin = bytes;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    tt_status status = tt_str_append(&name, path + begin, bytes - begin);
    if (status == TT_OK && taken != NULL && strcmp(tt_str_text(&name), taken) == 0)
        status = tt_str_append_text(&name, "-adapter");
    if (status == TT_OK && name.bytes == 0) status = tt_str_append_text(&name, "model");
    if (status == TT_OK) return name.data;
    tt_str_deinit(&name);
    return NULL;
}

/* Requests that run end by themselves, for a time; the second signal ends the process. */
static void drain(struct tt_server *server, double seconds)
{
    static const struct timespec pause = {.tv_nsec = 20000000};
    double end = tt_clock_seconds() + seconds;
    tt_serve_drain(server);
    while (!tt_serve_is_idle(server) && !tt_serve_has_failed(server) && tt_clock_seconds() < end)
        nanosleep(&pause, NULL);
}

/* Serves until a request to stop. */
static tt_status serve(struct tt_cli *cli, const struct tt_serve_call *command,
                       const struct tt_serve_config *config)
{
    static const struct timespec pause = {.tv_nsec = 50000000};
    struct tt_server *server = NULL;
    char address[100], line[300];
    bool v6 = strchr(command->host, ':') != NULL;
    TT_TRY(tt_serve_open(config, &server));
    if (!tt_host_is_loopback(command->host))
        tt_warn("%s is open to everybody who can reach this machine: there is no %s", command->host,
                config->keys != NULL ? "encryption, which keys need" : "key and no encryption");
    snprintf(address, sizeof address, "http://%s%.60s%s:%d", v6 ? "[" : "", command->host, v6 ? "]" : "",
             tt_serve_port(server));
    snprintf(line, sizeof line, "serving '%.100s' at %s/v1",
             config->adapter_count > 0 ? config->adapter_names[0] : config->model_name, address);
    tt_signals_announce(command->drain_seconds > 0
                            ? "stopping: requests that run may end, new ones are refused"
                            : "stopping: requests that run end now");
    tt_report_line(cli->report, line);
    if (config->page != NULL) {
        snprintf(line, sizeof line, "a page to talk to it: %s/", address);
        tt_report_line(cli->report, line);
    }
    while (atomic_load(&cli->cancel->requests) == 0 && !tt_serve_has_failed(server)) nanosleep(&pause, NULL);
    if (command->drain_seconds > 0) drain(server, command->drain_seconds);
    return tt_serve_close(server);
}

static struct tt_http_config http_config(const struct tt_serve_call *command)
{
    return (struct tt_http_config){.host = command->host,
                                   .port = (int)command->port,
                                   .connections = (int)command->connections,
                                   .allowed_hosts = command->allowed_hosts,
                                   .body_bytes = command->request_bytes,
                                   .seconds = command->request_seconds};
}

struct serving {
    struct tt_cli *cli;
    const struct tt_serve_call *command;
    const char *name;
    struct tt_keys *keys;      /* NULL: none */
    struct tt_chat_page *page; /* NULL: none */
};

static tt_status serve_named(const struct serving *serving, struct tt_talk *talk, char *const *adapters)
{
    const struct tt_serve_call *command = serving->command;
    struct tt_sampling_options sampling;
    TT_TRY(tt_talk_call_sampling(&command->call, talk->inputs, serving->cli->report, &sampling));
    const struct tt_serve_config config = {
        .talk = talk,
        .sampling = sampling,
        .max_new_tokens = command->call.spec.generate.max_new_tokens,
        .seed = (uint64_t)command->call.spec.job.run.seed,
        .ignore_end = command->call.spec.generate.ignore_eos,
        .model_name = serving->name,
        .adapter_names = (const char *const *)adapters,
        .adapter_count = talk->inputs->adapter_count,
        .takes_adapters = command->call.spec.job.model.adapter_places > 0,
        .waiting = command->waiting,
        .per_client = command->per_client,
        .keys = serving->keys,
        .page = serving->page,
        .http = http_config(command),
    };
    return serve(serving->cli, command, &config);
}

/* Tokens of prompts whose log p one pass computes. */
enum { PROMPT_ROWS = 256 };

/* An address that is taken is refused before the weights are loaded. */
static tt_status begin(void *context, struct tt_generation_limits *limits)
{
    const struct serving *serving = context;
    const struct tt_http_config http = http_config(serving->command);
    char line[160];
    TT_TRY(tt_serve_check(&http));
    limits->rows = PROMPT_ROWS;
    limits->adjusts = true;
    snprintf(
        line, sizeof line,
        "loading the model, with memory for %lld requests of %lld tokens (--max_running, --context_length)",
        (long long)limits->slots, (long long)limits->length);
    tt_report_line(serving->cli->report, line);
    return TT_OK;
}

static tt_status lead(void *context, struct tt_talk *talk)
{
    const struct serving *serving = context;
    size_t count = talk->inputs->adapter_count, made = 0;
    char **adapters = tt_calloc(count + 1, sizeof *adapters);
    if (adapters == NULL) return TT_ERR_MEMORY;
    while (made < count &&
           (adapters[made] = make_name(talk->inputs->adapters[made].name, serving->name)) != NULL)
        made++;
    tt_status status = made == count ? serve_named(serving, talk, adapters) : TT_ERR_MEMORY;
    for (size_t i = 0; i < made; i++) tt_free(adapters[i]);
    tt_free(adapters);
    return status;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct tt_serve_call *command = call->target;
    const struct tt_model_spec *model = &command->call.spec.job.model;
    const char *path = command->served_model_name;
    char *name = make_name(path != NULL ? path : model->model_name_or_path, NULL);
    if (name == NULL) return TT_ERR_MEMORY;
    tt_signals_outlive_readers();
    struct tt_chat_page page = {0};
    struct serving serving = {cli, command, name, NULL, command->chat_page ? &page : NULL};
    tt_status status =
        command->api_key_file != NULL ? tt_keys_read(command->api_key_file, &serving.keys) : TT_OK;
    if (status == TT_OK && command->chat_page) status = tt_chat_page_init(&page);
    if (status == TT_OK)
        status = tt_talk_call_run(&command->call, cli->cancel, command->slots, begin, lead, &serving);
    tt_chat_page_deinit(&page);
    tt_keys_destroy(serving.keys);
    tt_free(name);
    return status;
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    return tt_talk_call_resolve(target, settings);
}

const struct tt_command_ops tt_cmd_serve = {
    .usage = " --model_name_or_path FOLDER [--adapter_name_or_path FOLDER] [--host ADDRESS] [--port N]",
    .sections = tt_serve_call_sections,
    .target_bytes = sizeof(struct tt_serve_call),
    .resolve = resolve,
    .run = run,
};
