/* trimtab render: the objects of Kubernetes, or the batch script, that run a training, from its settings and plan. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hub_cache.h"
#include "base/log.h"
#include "base/store.h"
#include "cli/exit_codes.h"
#include "cli/job_call.h"
#include "config/flags.h"
#include "job/data_files.h"
#include "job/paths.h"
#include "job/task.h"
#include "launch/launch.h"
#include "render/render.h"
#include "planning/offline.h"

enum { DEFAULT_PORT = 29500, METRICS_PORT = 9400, FIRST_FREE_PORT = 1024 };
/* Pods start one after another: images are pulled and replacements wait for minutes. */
static const char rendezvous_seconds[] = "1200";
static const char origin[] = "trimtab render";

struct render_command {
    struct tt_job_spec job; /* must be first: the offsets of its settings apply here */
    struct tt_job_call call;
    struct tt_render_spec spec;
    int ranks; /* of a node, where the settings no longer have them */
};

static const struct tt_render_exits exits = {
    .permanent = {TT_EXIT_USAGE, TT_EXIT_DATA, TT_EXIT_MEMORY, TT_EXIT_BUG},
    .permanent_count = 4,
    .resumable = {TT_EXIT_STOPPED},
    .resumable_count = 1,
};

static size_t list_sections(struct tt_setting_section *sections)
{
    size_t count = tt_job_call_sections(TT_JOB_TRAIN, NULL, offsetof(struct render_command, call), sections);
    const size_t at = offsetof(struct render_command, spec);
    sections[count++] = (struct tt_setting_section){"Cluster", tt_render_settings, at};
    sections[count++] = (struct tt_setting_section){"Pods", tt_render_pod_settings, at};
    return count;
}

static bool find_kind(const char *word, enum tt_render_kind *kind)
{
    for (enum tt_render_kind i = 0; i < TT_RENDER_KINDS; i++) {
        if (tt_render_kind_facts(i)->serves || strcmp(tt_render_kind_facts(i)->word, word) != 0) continue;
        *kind = i;
        return true;
    }
    return false;
}

/* The kind is a JobSet where no word names one. */
static tt_status parse_words(int argc, char *const *argv, int *count)
{
    enum tt_render_kind kind;
    *count = argc > 0 && argv[0][0] != '-';
    if (*count == 0 || find_kind(argv[0], &kind)) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "cannot render a '%.60s'", argv[0]);
    tt_hint(
        "trimtab render jobset, job, trainjob, runtime, pytorchjob, mpijob, volcano, sbatch or deployment");
    return status;
}

static tt_status set_number(struct tt_settings *settings, const char *name, int64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)number);
    return tt_settings_set(settings, name, text, origin);
}

/* A process is one rank under srun and mpirun. */
static bool has_launcher(enum tt_render_kind kind)
{
    return tt_render_kind_facts(kind)->has_launcher;
}

static bool is_script(enum tt_render_kind kind)
{
    return tt_render_kind_facts(kind)->is_script;
}

static bool is_shared(enum tt_render_kind kind)
{
    return tt_render_kind_facts(kind)->is_shared;
}

/* Its pods answer probes. */
static bool has_metrics(enum tt_render_kind kind)
{
    return !has_launcher(kind) || is_shared(kind);
}

static tt_status set_batch(struct render_command *command, struct tt_settings *settings)
{
    struct tt_launch_spec launch = command->job.launch;
    launch.num_machines = command->spec.nodes;
    TT_TRY(tt_launch_count_ranks(&launch, &command->ranks));
    TT_TRY(set_number(settings, "num_machines", 1));
    TT_TRY(set_number(settings, "num_processes", 0));
    return set_number(settings, "ranks", 0);
}

/* Probes and Prometheus ask every pod at its own address. */
static tt_status set_metrics(struct tt_settings *settings)
{
    if (!tt_settings_is_set(settings, "metrics_port"))
        TT_TRY(set_number(settings, "metrics_port", METRICS_PORT));
    if (tt_settings_is_set(settings, "metrics_host")) return TT_OK;
    return tt_settings_set(settings, "metrics_host", "0.0.0.0", origin);
}

/* The settings that the cluster decides: who runs, where the ranks meet, and that a restart resumes. */
static tt_status set_cluster(struct render_command *command, struct tt_settings *settings,
                             enum tt_render_kind kind)
{
    struct tt_render_spec *spec = &command->spec;
    char host[TT_RENDER_HOST_BYTES];
    if (spec->nodes == 0) spec->nodes = command->job.launch.num_machines;
    TT_TRY(tt_render_check(kind, spec));
    TT_TRY(set_number(settings, "machine_rank", 0));
    if (has_launcher(kind))
        TT_TRY(set_batch(command, settings));
    else
        TT_TRY(set_number(settings, "num_machines", spec->nodes));
    if (!has_launcher(kind) && spec->gpus_per_node > 0 && !tt_settings_is_set(settings, "ranks") &&
        !tt_settings_is_set(settings, "num_processes"))
        TT_TRY(set_number(settings, "ranks", spec->gpus_per_node));
    if (!tt_settings_is_set(settings, "device") && !tt_settings_is_set(settings, "use_cpu"))
        TT_TRY(tt_settings_set(settings, "device", "cuda", origin));
    if (!tt_settings_is_set(settings, "resume_from_checkpoint"))
        TT_TRY(tt_settings_set(settings, "resume_from_checkpoint", "true", origin));
    /* The logs of a cluster are read and kept by others than those of the data. */
    if (!tt_settings_is_set(settings, "log_sample"))
        TT_TRY(tt_settings_set(settings, "log_sample", "false", origin));
    if (has_metrics(kind)) TT_TRY(set_metrics(settings));
    if (!is_script(kind) && command->job.watch.report_to >= TT_REPORT_TRACKER)
        tt_warn("report_to: the image of deploy/image.sh has no Python, which trackers need: give an --image "
                "that has python3 and their packages");
    if (is_shared(kind) && !tt_settings_is_set(settings, "rendezvous_timeout"))
        TT_TRY(tt_settings_set(settings, "rendezvous_timeout", rendezvous_seconds, origin));
    if (spec->nodes == 1 || has_launcher(kind)) return TT_OK;
    tt_render_host(kind, spec->name, host);
    TT_TRY(tt_settings_set(settings, "main_process_ip", host, origin));
    if (!tt_settings_is_set(settings, "rendezvous_timeout"))
        TT_TRY(tt_settings_set(settings, "rendezvous_timeout", rendezvous_seconds, origin));
    if (command->job.launch.main_process_port > 0) return TT_OK;
    return set_number(settings, "main_process_port", DEFAULT_PORT);
}

static tt_status fail_usage(const char *message, const char *hint)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "%s", message);
    tt_hint("%s", hint);
    return status;
}

/* Ranks of a pod by the settings; GPUs and ranks of a pod are the same number. */
static tt_status count_ranks(const struct render_command *command, bool is_cpu, int *ranks)
{
    const struct tt_render_spec *spec = &command->spec;
    TT_TRY(tt_launch_count_ranks(&command->job.launch, ranks));
    if (*ranks == 0) *ranks = command->ranks > 0 ? command->ranks : (int)spec->gpus_per_node;
    if (is_cpu && spec->gpus_per_node > 0)
        return fail_usage("gpus_per_node is given, but the device is cpu", "leave gpus_per_node out");
    if (*ranks == 0 && is_cpu) *ranks = 1;
    if (*ranks == 0)
        return fail_usage("the number of GPUs of a node is not known", "give --gpus_per_node, or ranks");
    if (spec->gpus_per_node > 0 && spec->gpus_per_node != *ranks) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "gpus_per_node %lld, but the configuration has %d ranks on a node",
                    (long long)spec->gpus_per_node, *ranks);
        tt_hint("a rank has one GPU: give one of them");
        return status;
    }
    if (!is_cpu && spec->chip == NULL)
        return fail_usage("the kind of the GPUs is not known",
                          "give --chip h200, or another of trimtab plan --device");
    return TT_OK;
}

static tt_status make_plan(const struct render_command *command, bool is_cpu, int ranks, struct tt_plan *plan)
{
    struct tt_plan_spec spec = {.job = command->job,
                                .config_json = command->spec.config_json,
                                .device = is_cpu ? "cpu" : command->spec.chip};
    spec.job.launch.ranks = ranks;
    spec.job.launch.num_machines = command->spec.nodes;
    int64_t threads = command->spec.cpus_per_node / ranks;
    if (is_cpu && spec.job.device.threads == 0) spec.job.device.threads = threads > 0 ? threads : 1;
    const struct tt_task_ops *task = tt_tasks[spec.job.task];
    if (command->spec.weights_file != NULL && task->plan_from != NULL)
        TT_TRY(task->plan_from(&spec.job, command->spec.weights_file));
    tt_status status = tt_plan_offline(&spec, plan);
    if (status == TT_OK) return tt_plan_check(plan);
    if (command->spec.weights_file == NULL && spec.config_json == NULL)
        tt_while("planning: %s", task->planned_file);
    return status;
}

/* The port of probes; 0: none. */
static tt_status find_metrics_port(const struct render_command *command, enum tt_render_kind kind, int *port)
{
    int64_t given = command->job.monitor.metrics_port;
    *port = !has_metrics(kind) || given < 0 ? 0 : (int)given;
    if (has_metrics(kind) && given == 0)
        return fail_usage("metrics_port is 0, a free port, which probes (containers[0].ports) cannot know",
                          "leave it out, or give a port; -1: no probes");
    if (command->spec.monitoring_namespace != NULL && *port == 0)
        return fail_usage("monitoring_namespace is given, but the pods have no port for metrics",
                          "leave metrics_port out; processes of an MPIJob and of Slurm have none here");
    return TT_OK;
}

static tt_status check_port(const char *name, int64_t port)
{
    char text[160];
    if (port <= 0 || port >= FIRST_FREE_PORT) return TT_OK;
    snprintf(text, sizeof text, "%s %lld needs a privilege that the pods do not have (securityContext)", name,
             (long long)port);
    return fail_usage(text, "give a port from 1024 on");
}

/* Probes that no pod would answer keep it from starting, which shows half an hour later. */
static tt_status check_ports(const struct render_command *command, const struct tt_render_run *run)
{
    const struct tt_monitor_spec *monitor = &command->job.monitor;
    const char *host = monitor->metrics_host;
    if (is_script(run->kind)) return TT_OK;
    TT_TRY(check_port("main_process_port", run->port));
    TT_TRY(check_port("metrics_port", run->metrics_port));
    if (run->metrics_port == 0) return TT_OK;
    if (command->spec.nodes > 1 && run->metrics_port == run->port)
        return fail_usage("metrics_port is main_process_port, at which the pods meet",
                          "leave it out, or give another port");
    if (monitor->dashboard && run->metrics_port == monitor->dashboard_port)
        return fail_usage("metrics_port is dashboard_port, at which rank 0 shows its page",
                          "leave one of them out, or give another port");
    if (strcmp(host, "0.0.0.0") != 0 && strcmp(host, "::") != 0)
        return fail_usage(
            "probes (containers[0].startupProbe) ask a pod at its own address, and metrics_host is "
            "another",
            "leave metrics_host out; metrics_port -1: no probes");
    return TT_OK;
}

static int64_t count_save_steps(const struct tt_watch_spec *watch)
{
    return watch->save_strategy == TT_INTERVAL_STEPS && watch->save_steps >= 1 ? (int64_t)watch->save_steps
                                                                               : 0;
}

static int count_copies(const struct render_command *command, const struct tt_plan *plan)
{
    enum tt_shard_strategy strategy = command->job.shard.sharding_strategy;
    if (strategy == TT_NO_SHARD) return plan->ranks.count;
    return strategy == TT_HYBRID_SHARD ? plan->ranks.machines : 1;
}

struct path_list {
    const struct tt_settings *settings;
    struct tt_arena arena; /* of the texts */
    struct tt_render_path *items;
    size_t count, capacity;
    bool has_names, has_stored; /* another value is a name of the hub, or in a store */
    bool stores_output;
};

/* "owner/name" and for a data set "owner/name:configuration". */
static bool is_hub_name(const struct tt_setting *row, const char *path)
{
    char name[TT_HUB_NAME_BYTES], revision[TT_HUB_NAME_BYTES];
    const bool is_rows = row->path == TT_PATH_ROWS || row->path == TT_PATH_MIXTURE;
    if (row->path == TT_PATH_HUB) return tt_hub_parse_name(path, name, revision);
    if (!is_rows || tt_data_files_has_ending(path) || strlen(path) >= sizeof name) return false;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(path, ":"), path);
    return strchr(name, '/') != NULL && tt_hub_is_name(name);
}

static tt_status add_path(void *context, const struct tt_setting *row, const char *path)
{
    struct path_list *list = context;
    const bool is_name = is_hub_name(row, path);
    list->has_names |= is_name;
    if (is_name) return TT_OK; /* no volume of the pods has it */
    if (tt_store_covers(path)) {
        list->has_stored = true;
        list->stores_output |= row->path == TT_PATH_WRITE;
        return TT_OK;
    }
    bool optional = row->must_write != NULL && !tt_settings_hold(list->settings, row->must_write);
    TT_TRY(tt_grow(&list->items, list->count + 1, &list->capacity));
    path = tt_arena_strdup(&list->arena, path);
    if (path == NULL) return TT_ERR_MEMORY;
    list->items[list->count++] =
        (struct tt_render_path){row->name, path, row->path == TT_PATH_WRITE && !optional};
    return TT_OK;
}

static bool is_named(const struct tt_render_pairs *pairs, const char *name)
{
    for (int i = 0; i < pairs->count; i++)
        if (strcmp(pairs->items[i].name, name) == 0) return true;
    return false;
}

/* The servers of the trackers that the run reports to. */
static tt_status add_trackers(const struct render_command *command, struct tt_render_run *run)
{
    static const struct {
        const char *name, *server;
        bool is_public;
    } trackers[] = {
#define TRACKER(...) {__VA_ARGS__},
#include "job/trackers.def"
#undef TRACKER
    };
    const struct tt_watch_spec *watch = &command->job.watch;
    struct tt_render_pairs env, secrets;
    TT_TRY(tt_render_read_pairs("pod_env", command->spec.pod_env, &env));
    TT_TRY(tt_render_read_secrets(command->spec.pod_secrets, &secrets));
    for (size_t i = 0; i < sizeof trackers / sizeof *trackers; i++) {
        if ((watch->report_to & (unsigned)TT_REPORT_TRACKER << i) == 0) continue;
        if (is_named(&env, trackers[i].server))
            run->has_server = true;
        else if (is_named(&secrets, trackers[i].server))
            tt_warn(
                "%s is in a Secret: the NetworkPolicy lets the pods out to port 443 only; name another port "
                "of %s in pod_env",
                trackers[i].server, trackers[i].name);
        run->leaves_cluster |= is_named(&secrets, trackers[i].server) ||
                               (trackers[i].is_public && !is_named(&env, trackers[i].server));
    }
    run->leaves_cluster |= watch->trackio_space_id != NULL || is_named(&env, "TRACKIO_SPACE_ID");
    return TT_OK;
}

static tt_status render(struct tt_cli *cli, const struct render_command *command,
                        struct tt_settings *settings, enum tt_render_kind kind)
{
    const struct tt_job_spec *job = &command->job;
    tt_status status = TT_OK;
    bool is_cpu = job->device.choice == TT_DEVICE_CPU;
    struct tt_plan plan;
    struct tt_str config = {0}, flags = {0}, text = {0};
    struct path_list paths = {.settings = settings};
    struct tt_render_run run = {.kind = kind,
                                .spec = &command->spec,
                                .exits = &exits,
                                .plan = &plan,
                                .kept = job->watch.save_total_limit,
                                .save_steps = count_save_steps(&job->watch),
                                .port = job->launch.main_process_port > 0 ? (int)job->launch.main_process_port
                                                                          : DEFAULT_PORT};
    bool claims;
    TT_GO(tt_job_paths_visit(job, add_path, &paths));
    run.paths = paths.items;
    run.path_count = (int)paths.count;
    run.has_names = paths.has_names;
    run.stores_output = paths.stores_output;
    run.leaves_cluster = paths.has_names || paths.has_stored || job->watch.push_to_hub;
    TT_GO(add_trackers(command, &run));
    TT_GO(count_ranks(command, is_cpu, &run.ranks));
    TT_GO(find_metrics_port(command, kind, &run.metrics_port));
    TT_GO(check_ports(command, &run));
    if (!is_script(kind)) TT_GO(tt_render_check_paths(&run, &claims));
    TT_GO(make_plan(command, is_cpu, run.ranks, &plan));
    run.copies = count_copies(command, &plan);
    run.moments = tt_optimizer_of(&job->optim)->rule->moment_count;
    TT_GO(tt_render_size(&run));
    if (!tt_settings_is_set(settings, "grace_seconds"))
        TT_GO(set_number(settings, "grace_seconds", run.sizes.grace));
    TT_GO(tt_settings_write_yaml(settings, &config));
    run.config = tt_str_text(&config);
    if (is_shared(kind)) TT_GO(tt_settings_write_flags(settings, &flags));
    run.flags = tt_str_text(&flags);
    TT_GO(tt_render_write(&run, &text));
    TT_GO(tt_report_print(cli->report, tt_str_text(&text)));
out:
    tt_str_deinit(&config);
    tt_str_deinit(&flags);
    tt_str_deinit(&text);
    tt_free(paths.items);
    tt_arena_deinit(&paths.arena);
    return status;
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    struct render_command *command = target;
    return tt_job_call_read(&command->call, settings);
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    struct render_command *command = call->target;
    enum tt_render_kind kind = TT_RENDER_JOBSET;
    if (call->argc > 0) (void)find_kind(call->argv[0], &kind);
    TT_TRY(set_cluster(command, call->settings, kind));
    TT_TRY(tt_train_resolve(call->settings, &command->job));
    if (command->call.print_config) return tt_job_call_print(cli, call->settings);
    return render(cli, command, call->settings, kind);
}

const struct tt_command_ops tt_cmd_render = {
    .usage = " [jobset|job|trainjob|runtime|pytorchjob|mpijob|volcano|sbatch] --image IMAGE --nodes N "
             "--gpus_per_node N --chip h200 --config FILE.yaml "
             "[--volumes CLAIM:PATH,...]",
    .sections = list_sections,
    .target_bytes = sizeof(struct render_command),
    .parse_words = parse_words,
    .resolve = resolve,
    .run = run,
};
