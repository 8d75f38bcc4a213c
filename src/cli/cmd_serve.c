#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/crowd.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "cli/talk_call.h"
#include "serve/server.h"

struct serve_command {
    struct tt_talk_call call; /* must be first: the offsets of its settings apply here */
    const char *host, *allowed_hosts, *served_model_name;
    int64_t port, slots, waiting, connections;
    size_t request_bytes;
    double request_seconds;
};

#define OWN(member) .offset = offsetof(struct serve_command, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "host", .type = TT_SETTING_STRING, OWN(host), .default_text = "127.0.0.1",
     .help = "Address to listen at. Other addresses than those of this machine itself are open to everybody who can "
             "reach them."},
    {.name = "port", .type = TT_SETTING_INT, OWN(port), .default_text = "8000", .minimum = 0, .maximum = 65535,
     .help = "Port to listen at; 0: a free one, which is printed."},
    {.name = "allowed_hosts", .type = TT_SETTING_JSON, OWN(allowed_hosts),
     .help = "Host names by which clients may ask, as trimtab.example.com or *.example.com, besides localhost and "
             "addresses in numbers. Not given: no others at loopback, all elsewhere; a proxy that keeps the name of "
             "the client's request needs it."},
    {.name = "served_model_name", .type = TT_SETTING_STRING, OWN(served_model_name),
     .help = "Name of the base model for clients; not given: the last part of its path. Adapters have the last parts "
             "of theirs."},
    {.name = "max_running", .aliases = "max_num_seqs", .type = TT_SETTING_INT, OWN(slots), .default_text = "16",
     .minimum = 1, .maximum = 4096,
     .help = "Requests that run at the same time; memory is kept for context_length tokens of each."},
    {.name = "max_waiting", .type = TT_SETTING_INT, OWN(waiting), .default_text = "256", .minimum = 0,
     .maximum = 1 << 16, .help = "Requests that wait for others to end; further ones get the status 429."},
    {.name = "max_connections", .type = TT_SETTING_INT, OWN(connections), .default_text = "512", .minimum = 1,
     .maximum = 1 << 16,
     .help = "Connections; for a further one the oldest idle one is closed, of the client that has most of them."},
    {.name = "max_request_size", .type = TT_SETTING_BYTES, OWN(request_bytes), .default_text = "1MiB",
     .help = "Largest body of a request; larger ones get the status 413."},
    {.name = "request_timeout", .type = TT_SETTING_DOUBLE, OWN(request_seconds), .default_text = "60",
     .minimum = 0.5, .maximum = 86400,
     .help = "Seconds in which a client must send its request, and fetch the rest of an answer that is complete."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    return tt_talk_call_sections("Server", own_settings, sections);
}

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

/* Serves until a request to stop. */
static tt_status serve(struct tt_cli *cli, const struct serve_command *command,
                       const struct tt_serve_config *config)
{
    static const struct timespec pause = {.tv_nsec = 50000000};
    struct tt_server *server = NULL;
    char line[300];
    bool v6 = strchr(command->host, ':') != NULL;
    TT_TRY(tt_serve_open(config, &server));
    if (!tt_host_is_loopback(command->host))
        tt_warn("%s is open to everybody who can reach this machine: there is no key and no encryption",
                command->host);
    snprintf(line, sizeof line, "serving '%.100s' at http://%s%.60s%s:%d/v1",
             config->adapter_count > 0 ? config->adapter_names[0] : config->model_name, v6 ? "[" : "",
             command->host, v6 ? "]" : "", tt_serve_port(server));
    tt_signals_announce("stopping: requests that run end now");
    tt_report_line(cli->report, line);
    while (atomic_load(&cli->cancel->requests) == 0 && !tt_serve_has_failed(server)) nanosleep(&pause, NULL);
    return tt_serve_close(server);
}

static struct tt_http_config http_config(const struct serve_command *command)
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
    const struct serve_command *command;
    const char *name;
};

static tt_status serve_named(const struct serving *serving, struct tt_talk *talk, char *const *adapters)
{
    const struct serve_command *command = serving->command;
    const struct tt_serve_config config = {
        .talk = talk,
        .sampling = tt_sampling_options_of(&command->call.spec.generate),
        .max_new_tokens = command->call.spec.generate.max_new_tokens,
        .seed = (uint64_t)command->call.spec.job.run.seed,
        .ignore_end = command->call.spec.generate.ignore_eos,
        .model_name = serving->name,
        .adapter_names = (const char *const *)adapters,
        .adapter_count = talk->inputs->adapter_count,
        .waiting = command->waiting,
        .http = http_config(command),
    };
    return serve(serving->cli, command, &config);
}

/* An address that is taken is refused before the weights are loaded. */
static tt_status begin(void *context, const struct tt_generation_limits *limits)
{
    const struct serving *serving = context;
    const struct tt_http_config http = http_config(serving->command);
    char line[160];
    TT_TRY(tt_serve_check(&http));
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
    const struct serve_command *command = call->target;
    const struct tt_model_spec *model = &command->call.spec.job.model;
    const char *path = command->served_model_name;
    char *name = make_name(path != NULL ? path : model->model_name_or_path, NULL);
    if (name == NULL) return TT_ERR_MEMORY;
    tt_signals_outlive_readers();
    struct serving serving = {cli, command, name};
    tt_status status = tt_talk_call_run(&command->call, cli->cancel, command->slots, begin, lead, &serving);
    tt_free(name);
    return status;
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    return tt_talk_call_resolve(target, settings);
}

const struct tt_command_ops tt_cmd_serve = {
    .usage = " --model_name_or_path FOLDER [--adapter_name_or_path FOLDER] [--host ADDRESS] [--port N]",
    .sections = list_sections,
    .target_bytes = sizeof(struct serve_command),
    .resolve = resolve,
    .run = run,
};
