/* trimtab render deployment: the objects of Kubernetes that run a server, from its settings and plan. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hub_cache.h"
#include "base/store.h"
#include "cli/serve_call.h"
#include "launch/launch.h"
#include "planning/offline.h"
#include "render/render.h"

static const char origin[] = "trimtab render deployment";
enum { FIRST_FREE_PORT = 1024 };

struct deployment_command {
    struct tt_serve_call call; /* must be first: the offsets of its settings apply here */
    struct tt_render_spec spec;
};

/* The kind whose pods serve. */
static enum tt_render_kind find_kind(void)
{
    enum tt_render_kind kind = 0;
    while (kind + 1 < TT_RENDER_KINDS && !tt_render_kind_facts(kind)->serves) kind++;
    return kind;
}

static size_t list_sections(struct tt_setting_section *sections)
{
    size_t count = tt_serve_call_sections(sections);
    const size_t at = offsetof(struct deployment_command, spec);
    sections[count++] = (struct tt_setting_section){"Deployment", tt_render_server_settings, at};
    sections[count++] = (struct tt_setting_section){"Pods", tt_render_pod_settings, at};
    return count;
}

static tt_status fail_usage(const char *message, const char *hint)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "%s", message);
    tt_hint("%s", hint);
    return status;
}

static tt_status set_if_open(struct tt_settings *settings, const char *name, const char *value)
{
    return tt_settings_is_set(settings, name) ? TT_OK : tt_settings_set(settings, name, value, origin);
}

/* Kubernetes decides who may reach the pods, and every pod has an address of its own. */
static tt_status set_cluster(struct deployment_command *command, struct tt_settings *settings)
{
    struct tt_render_spec *spec = &command->spec;
    char ranks[32];
    spec->nodes = 1;
    TT_TRY(tt_render_check(find_kind(), spec));
    TT_TRY(set_if_open(settings, "host", "0.0.0.0"));
    TT_TRY(set_if_open(settings, "drain_timeout", "30"));
    if (!tt_settings_is_set(settings, "use_cpu")) TT_TRY(set_if_open(settings, "device", "cuda"));
    snprintf(ranks, sizeof ranks, "%lld", (long long)spec->gpus_per_node);
    return spec->gpus_per_node > 0 ? set_if_open(settings, "ranks", ranks) : TT_OK;
}

/* A rank of a pod for each of its GPUs. */
static tt_status count_ranks(const struct deployment_command *command, bool is_cpu, int *ranks)
{
    const struct tt_render_spec *spec = &command->spec;
    TT_TRY(tt_launch_count_ranks(&command->call.call.spec.job.launch, ranks));
    if (*ranks == 0) *ranks = 1;
    if (is_cpu && spec->gpus_per_node > 0)
        return fail_usage("gpus_per_node is given, but the device is cpu", "leave gpus_per_node out");
    if (spec->gpus_per_node > 0 && spec->gpus_per_node != *ranks)
        return fail_usage("gpus_per_node and ranks differ: a rank has one GPU", "give one of them");
    if (!is_cpu && spec->chip == NULL)
        return fail_usage("the kind of the GPUs is not known",
                          "give --chip h200, or another of trimtab plan --device");
    return TT_OK;
}

static tt_status check_server(const struct tt_serve_call *call)
{
    if (call->port < FIRST_FREE_PORT)
        return fail_usage(
            "port needs a privilege that the pods do not have (securityContext), or is a free one",
            "give a port from 1024 on; the Service has port 80");
    if (strcmp(call->host, "0.0.0.0") != 0 && strcmp(call->host, "::") != 0)
        return fail_usage(
            "probes (containers[0].startupProbe) ask a pod at its own address, and host is another",
            "leave host out");
    return TT_OK;
}

enum { PATHS = 16 };
struct paths {
    struct tt_render_path items[PATHS];
    int count;
    bool has_names, has_stored;
};

static void add_path(struct paths *paths, const struct tt_setting *row, const char *path)
{
    char name[TT_HUB_NAME_BYTES], revision[TT_HUB_NAME_BYTES];
    bool is_name = row->path == TT_PATH_HUB && tt_hub_parse_name(path, name, revision);
    bool is_stored = !is_name && tt_store_covers(path);
    paths->has_names |= is_name;
    paths->has_stored |= is_stored;
    if (!is_name && !is_stored && paths->count < PATHS)
        paths->items[paths->count++] = (struct tt_render_path){row->name, path, row->path == TT_PATH_WRITE};
}

/* The paths of the settings. */
static void list_paths(const struct deployment_command *command, struct paths *paths)
{
    struct tt_setting_section sections[TT_COMMAND_SECTIONS_MAX];
    size_t count = tt_serve_call_sections(sections);
    for (size_t s = 0; s < count; s++) {
        const char *base = (const char *)command + sections[s].base_offset;
        for (const struct tt_setting *row = sections[s].rows; row->name != NULL; row++) {
            if (row->path == TT_PATH_NONE || row->transient || row->offset == TT_SETTING_NO_FIELD) continue;
            const char *value = *(const char *const *)(base + row->offset);
            if (tt_setting_is_path(row, value)) add_path(paths, row, value);
        }
    }
}

static tt_status make_plan(const struct deployment_command *command, bool is_cpu, int ranks,
                           struct tt_plan *plan)
{
    const struct tt_talk_call *talk = &command->call.call;
    struct tt_plan_spec spec = {.job = talk->spec.job,
                                .config_json = command->spec.config_json,
                                .device = is_cpu ? "cpu" : command->spec.chip,
                                .generation_length = talk->context_length,
                                .chooses_sharding = talk->spec.generate.chooses_sharding};
    const char *adapter = spec.job.model.adapter_name_or_path;
    int64_t threads = command->spec.cpus_per_node / ranks;
    /* Adapters of the pods are not here; they are small beside reserve_memory. */
    if (adapter != NULL && !tt_path_exists(adapter)) spec.job.model.adapter_name_or_path = NULL;
    spec.job.launch.ranks = ranks;
    spec.job.launch.num_machines = 1;
    spec.job.run.per_device_eval_batch_size = command->call.slots;
    if (is_cpu && spec.job.device.threads == 0) spec.job.device.threads = threads > 0 ? threads : 1;
    TT_TRY(tt_plan_offline(&spec, plan));
    return tt_plan_check(plan);
}

static tt_status render(struct tt_cli *cli, const struct deployment_command *command,
                        const struct tt_settings *settings)
{
    tt_status status = TT_OK;
    bool is_cpu = command->call.call.spec.job.device.choice == TT_DEVICE_CPU, claims;
    struct tt_plan plan;
    struct paths paths = {0};
    struct tt_str config = {0}, text = {0};
    list_paths(command, &paths);
    struct tt_render_run run = {.kind = find_kind(),
                                .spec = &command->spec,
                                .plan = &plan,
                                .paths = paths.items,
                                .path_count = paths.count,
                                .port = (int)command->call.port,
                                .drain_seconds = (int64_t)ceil(command->call.drain_seconds),
                                .has_names = paths.has_names,
                                .leaves_cluster = paths.has_names || paths.has_stored};
    TT_GO(count_ranks(command, is_cpu, &run.ranks));
    TT_GO(check_server(&command->call));
    TT_GO(tt_render_check_paths(&run, &claims));
    if (claims)
        TT_GO(fail_usage("a path of the server lies in /run/trimtab, which only trainings have",
                         "mount the claim of the training elsewhere: --volumes sft-run:/trained:ro"));
    TT_GO(make_plan(command, is_cpu, run.ranks, &plan));
    TT_GO(tt_render_size_server(&run));
    TT_GO(tt_settings_write_yaml(settings, &config));
    run.config = tt_str_text(&config);
    TT_GO(tt_render_write(&run, &text));
    TT_GO(tt_report_print(cli->report, tt_str_text(&text)));
out:
    tt_str_deinit(&config);
    tt_str_deinit(&text);
    return status;
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    (void)target, (void)settings;
    return TT_OK; /* after the settings of the cluster */
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    struct deployment_command *command = call->target;
    TT_TRY(set_cluster(command, call->settings));
    TT_TRY(tt_talk_call_resolve(&command->call.call, call->settings));
    return render(cli, command, call->settings);
}

const struct tt_command_ops tt_cmd_render_deployment = {
    .usage = " --model_name_or_path FOLDER --image IMAGE [--gpus_per_node N --chip h200] [--replicas N] "
             "[--volumes CLAIM:PATH,...]",
    .sections = list_sections,
    .target_bytes = sizeof(struct deployment_command),
    .resolve = resolve,
    .run = run,
};
