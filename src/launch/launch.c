#include "launch/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "comm/launcher.h"
#include "config/value.h"

enum { PORT_DEFAULT = 29500, COUNT_MAX = 1 << 20 };

/* Reads a whole number from the environment. *there: the variable is set; otherwise *number is unchanged. */
static tt_status read_number(const char *name, int minimum, int maximum, int *number, bool *there)
{
    const char *text = tt_launcher_read(name);
    int64_t value;
    *there = text != NULL;
    if (!*there) return TT_OK;
    if (!tt_value_parse_int(text, &value) || value < minimum || value > maximum)
        return tt_fail(TT_ERR_USAGE, "environment variable %s is '%.40s', not a number from %d to %d", name,
                       text, minimum, maximum);
    *number = (int)value;
    return TT_OK;
}

static bool is_set(const char *name)
{
    return tt_launcher_read(name) != NULL;
}

static const struct tt_launcher *const torchrun = &tt_launchers[TT_LAUNCHER_TORCHRUN];
static const struct tt_launcher *const srun = &tt_launchers[TT_LAUNCHER_SRUN];
static const struct tt_launcher *const kubeflow = &tt_launchers[TT_LAUNCHER_KUBEFLOW];
static const struct tt_launcher *const indexed = &tt_launchers[TT_LAUNCHER_INDEXED_JOB];
static const struct tt_launcher *const volcano = &tt_launchers[TT_LAUNCHER_VOLCANO];
static const struct tt_launcher *const volcano_pods = &tt_launchers[TT_LAUNCHER_VOLCANO_PYTORCH];

/* TRIMTAB_NODE overrides the launcher's number of the machine. */
static void name_machine(const struct tt_launch_spec *config, struct tt_launch *launch)
{
    const char *const names[] = {"TRIMTAB_NODE", torchrun->machine, srun->machine};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = tt_launcher_read(names[i]);
        if (text == NULL) continue;
        snprintf(launch->machine, sizeof launch->machine, "%.60s", text);
        return;
    }
    if (config->num_machines > 1)
        snprintf(launch->machine, sizeof launch->machine, "%lld", (long long)config->machine_rank);
}

/* All ranks are on this machine where rank 0 has a loopback address. Exception: older operators for Kubernetes set
 * "localhost" for rank 0 only. */
static bool is_loopback(const char *host)
{
    if (strcmp(host, "localhost") == 0) return getenv("KUBERNETES_SERVICE_HOST") == NULL;
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

/* Sets launch->local if the variable `count_name` (torchrun: processes on this machine; srun: machines) is `wanted`. */
static tt_status find_local(const char *count_name, int wanted, struct tt_launch *launch)
{
    int count = 0;
    bool there = false;
    TT_TRY(read_number(count_name, 1, COUNT_MAX, &count, &there));
    launch->local = launch->local || (there && count == wanted);
    return TT_OK;
}

/* An address alone: neither a URL, nor brackets, nor a port. Any other text would be looked up as a name until the time
 * is over. */
static tt_status check_host(const char *host)
{
    const char *colon = strchr(host, ':');
    bool url = strstr(host, "://") != NULL, bracket = host[0] == '[',
         port = colon != NULL && colon == strrchr(host, ':');
    if (!url && !bracket && !port) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "the address of rank 0 is '%s', which is not an address alone", host);
    tt_hint(
        "%s",
        url ? "leave out the scheme: a name or a number, as node1 or 10.0.0.1; the port is MASTER_PORT or "
              "--main_process_port"
        : bracket ? "leave out the brackets, as ::1; the port is MASTER_PORT or --main_process_port"
                  : "leave out the port, which is MASTER_PORT or --main_process_port");
    return status;
}

static tt_status set_address(const struct tt_launch_spec *config, const struct tt_launcher *launcher,
                             struct tt_launch *launch)
{
    const char *host = tt_launcher_read(launcher->host), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    bool there = false;
    if (host == NULL) host = tt_launcher_read(torchrun->host);
    if (config->main_process_ip != NULL) host = config->main_process_ip;
    if (host == NULL || host[0] == '\0') {
        tt_status status = tt_fail(TT_ERR_USAGE, "the address of rank 0 is missing");
        tt_hint("set MASTER_ADDR and MASTER_PORT, or --main_process_ip and --main_process_port");
        return status;
    }
    size_t bytes = strcspn(host, "\n");
    if (bytes >= sizeof launch->host)
        return tt_fail(TT_ERR_USAGE, "the address of rank 0 has %zu characters", bytes);
    snprintf(launch->host, sizeof launch->host, "%.*s", (int)bytes, host);
    TT_TRY(check_host(launch->host));
    launch->local = is_loopback(launch->host);
    launch->port = PORT_DEFAULT;
    TT_TRY(read_number(launcher->port, 1, 65535, &launch->port, &there));
    if (!there) TT_TRY(read_number(torchrun->port, 1, 65535, &launch->port, &there));
    /* torchrun itself listens on MASTER_PORT for as long as its processes live. */
    if (there && agent != NULL && strcmp(agent, "True") == 0) launch->port += launch->port < 65535 ? 1 : -1;
    if (config->main_process_port > 0) launch->port = (int)config->main_process_port;
    return TT_OK;
}

/* A setting and a launcher's variable with different numbers for the same thing. */
static tt_status contradict(const char *setting, int64_t value, const char *variable, int other)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "%s is %lld, but the environment variable %s is %d", setting,
                               (long long)value, variable, other);
    tt_hint("leave out %s, or start with: env -u %s trimtab ...", setting, variable);
    return status;
}

/* Some operators count machines in RANK and WORLD_SIZE, and some processes: without LOCAL_RANK the settings decide
 * whether one process a rank is meant. */
static tt_status check_world_size(const struct tt_launch_spec *config, const struct tt_launcher *launcher,
                                  const struct tt_launch *launch)
{
    if (launcher != torchrun || launch->local_rank >= 0 || config->num_machines <= 1) return TT_OK;
    if (config->num_processes <= 0 || config->num_processes == launch->world_size) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "num_processes is %lld, but the environment variable WORLD_SIZE is %d",
                (long long)config->num_processes, launch->world_size);
    tt_hint("RANK and WORLD_SIZE count processes of one rank each; where they count machines, give "
            "--machine_rank $RANK and start with: env -u RANK -u WORLD_SIZE trimtab ...");
    return status;
}

/* Two variables of one process with different numbers. */
static tt_status contradict_variables(const char *variable, int value, const char *other, int number,
                                      const char *why)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "the environment variable %s is %d, but %s is %d", variable,
                               value, other, number);
    tt_hint("%s", why);
    return status;
}

/* Numbers of the same pod that other variables of its cluster have. */
static tt_status check_pod_number(const struct tt_launcher *pods, int machine_rank)
{
    const char *const others[] = {torchrun->rank, indexed->machine};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        int number = machine_rank;
        bool there;
        if (strcmp(others[i], pods->machine) == 0) continue;
        TT_TRY(read_number(others[i], 0, COUNT_MAX, &number, &there));
        if (number != machine_rank)
            return contradict_variables(others[i], number, pods->machine, machine_rank,
                                        "both are the number of this machine; a launcher sets them alike");
    }
    return TT_OK;
}

/* `ranks` or num_processes of the settings against the launcher's number of ranks of a pod. */
static tt_status check_pod_ranks(const struct tt_launch_spec *config, const struct tt_launcher *pods,
                                 const struct tt_launch *launch, int per_node)
{
    if (config->ranks > 0 && config->ranks != per_node)
        return contradict("ranks", config->ranks, pods->ranks, per_node);
    if (config->num_machines <= 1 || config->num_processes <= 0 ||
        config->num_processes == (int64_t)per_node * launch->machines)
        return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "num_processes is %lld, but the environment variables %s and %s are %d and %d",
                (long long)config->num_processes, pods->machines, pods->ranks, launch->machines, per_node);
    tt_hint("num_processes counts the ranks of all machines together");
    return status;
}

/* The numbers of this machine's processes against those of all. */
static tt_status check_local(const struct tt_launcher *launcher, const struct tt_launch *launch)
{
    const char *counter = launcher->world_size;
    int count = launch->world_size;
    bool there = false;
    TT_TRY(read_number(launcher->local_size, 1, COUNT_MAX, &count, &there));
    if (there) counter = launcher->local_size;
    if (count > launch->world_size)
        return contradict_variables(counter, count, launcher->world_size, launch->world_size,
                                    "a machine has no more processes than all machines together");
    if (launch->local_rank < count) return TT_OK;
    return contradict_variables(launcher->local_rank, launch->local_rank, counter, count,
                                "processes are counted from 0; a launcher sets these variables together");
}

static tt_status set_processes(const struct tt_launch_spec *config, const struct tt_launcher *launcher,
                               struct tt_launch *launch)
{
    bool there = false;
    launch->kind = TT_LAUNCH_PROCESSES;
    TT_TRY(read_number(launcher->world_size, 1, COUNT_MAX, &launch->world_size, &there));
    TT_TRY(read_number(launcher->rank, 0, launch->world_size - 1, &launch->rank, &there));
    TT_TRY(read_number(launcher->local_rank, 0, COUNT_MAX, &launch->local_rank, &there));
    TT_TRY(check_local(launcher, launch));
    TT_TRY(check_world_size(config, launcher, launch));
    if (config->ranks > 1)
        return tt_fail(TT_ERR_USAGE, "--ranks %lld, but %s is set, so each process is one rank",
                       (long long)config->ranks, launcher->rank);
    if (launch->world_size == 1) return TT_OK;
    TT_TRY(set_address(config, launcher, launch));
    if (launcher->local_size != NULL) return find_local(launcher->local_size, launch->world_size, launch);
    return find_local(launcher->machines, 1, launch);
}

/* One process per pod or machine; RANK, if set, is the number of the pod. PET_NPROC_PER_NODE of Kubeflow is the
 * number of its ranks, or a word that means one per device. */
static tt_status set_pods(const struct tt_launch_spec *config, const struct tt_launcher *pods,
                          struct tt_launch *launch)
{
    const char *per_node = tt_launcher_read(pods->ranks), *nodes = tt_launcher_read(pods->machines);
    bool there = false;
    if (strchr(nodes, ':') != NULL)
        return tt_fail(TT_ERR_UNSUPPORTED,
                       "%s is '%.20s': the number of machines must not change during a run", pods->machines,
                       nodes);
    TT_TRY(read_number(pods->machines, 1, COUNT_MAX, &launch->machines, &there));
    TT_TRY(read_number(pods->machine, 0, launch->machines - 1, &launch->machine_rank, &there));
    if (config->num_machines > 1 && config->num_machines != launch->machines)
        return contradict("num_machines", config->num_machines, pods->machines, launch->machines);
    if (config->machine_rank > 0 && config->machine_rank != launch->machine_rank)
        return contradict("machine_rank", config->machine_rank, pods->machine, launch->machine_rank);
    TT_TRY(check_pod_number(pods, launch->machine_rank));
    if (per_node != NULL && per_node[0] >= '0' && per_node[0] <= '9') {
        TT_TRY(read_number(pods->ranks, 1, COUNT_MAX, &launch->ranks, &there));
        TT_TRY(check_pod_ranks(config, pods, launch, launch->ranks));
    }
    if (config->num_machines > 1 && per_node == NULL) TT_TRY(tt_launch_count_ranks(config, &launch->ranks));
    if (launch->machines == 1) return TT_OK;
    launch->kind = TT_LAUNCH_MACHINES;
    snprintf(launch->machine, sizeof launch->machine, "%d", launch->machine_rank);
    return set_address(config, pods, launch);
}

tt_status tt_launch_count_ranks(const struct tt_launch_spec *config, int *ranks)
{
    *ranks = (int)config->ranks;
    if (*ranks > 0 || config->num_processes <= 0) return TT_OK;
    if (config->num_processes % config->num_machines != 0)
        return tt_fail(TT_ERR_USAGE, "num_processes %lld is not a multiple of num_machines %lld",
                       (long long)config->num_processes, (long long)config->num_machines);
    *ranks = (int)(config->num_processes / config->num_machines);
    return TT_OK;
}

static bool is_number(const char *variable, int64_t number)
{
    int64_t value;
    return tt_value_parse_int(tt_launcher_read(variable), &value) && value == number;
}

/* Half of a launcher's variables: a process that went on alone would be one of several runs in the same output_dir.
 * `machine_rank`: the number that the settings give to this machine, which a launcher's number alone must not
 * contradict; -1: they give none. */
static tt_status check_halves(int64_t machine_rank)
{
    static const int launchers[] = {TT_LAUNCHER_TORCHRUN, TT_LAUNCHER_KUBEFLOW, TT_LAUNCHER_LEADER_WORKER_SET,
                                    TT_LAUNCHER_SKYPILOT, TT_LAUNCHER_OPEN_MPI, TT_LAUNCHER_PMI,
                                    TT_LAUNCHER_MVAPICH};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct tt_launcher *half = &tt_launchers[launchers[i]];
        const char *number = half->rank != NULL ? half->rank : half->machine;
        const char *count = half->rank != NULL ? half->world_size : half->machines;
        bool several = is_set(count) && strcmp(tt_launcher_read(count), "1") != 0;
        if (is_set(number) == is_set(count) || (is_set(count) && !several)) continue;
        if (machine_rank >= 0 && (is_set(count) || is_number(number, machine_rank))) continue;
        tt_status status = tt_fail(TT_ERR_USAGE, "the environment variable %s is set, but %s is not",
                                   is_set(number) ? number : count, is_set(number) ? count : number);
        if (machine_rank >= 0)
            tt_hint("a launcher sets both; where it counts the machines: --machine_rank $%s", number);
        else
            tt_hint("a launcher sets both; for a run of this process alone start with: env -u %s trimtab ...",
                    is_set(number) ? number : count);
        return status;
    }
    return TT_OK;
}

static tt_status set_machines(const struct tt_launch_spec *config, struct tt_launch *launch)
{
    launch->kind = TT_LAUNCH_MACHINES;
    launch->machines = (int)config->num_machines;
    launch->machine_rank = (int)config->machine_rank;
    bool there = false;
    const char *index = is_set(indexed->machine) ? indexed->machine : volcano->machine;
    TT_TRY(read_number(index, 0, launch->machines - 1, &launch->machine_rank, &there));
    if (config->machine_rank > 0 && config->machine_rank != launch->machine_rank)
        return contradict("machine_rank", config->machine_rank, index, launch->machine_rank);
    TT_TRY(check_halves(launch->machine_rank));
    if (there && !is_set("TRIMTAB_NODE"))
        snprintf(launch->machine, sizeof launch->machine, "%d", launch->machine_rank);
    TT_TRY(tt_launch_count_ranks(config, &launch->ranks));
    return set_address(config, torchrun, launch);
}

static tt_status check_alone(const struct tt_launch_spec *config)
{
    TT_TRY(check_halves(-1));
    if (is_set(torchrun->local_rank)) {
        tt_status status = tt_fail(TT_ERR_USAGE, "the environment variable %s is set, but %s is not",
                                   torchrun->local_rank, torchrun->rank);
        tt_hint("a launcher sets both; for a run of this process alone start with: env -u %s trimtab ...",
                torchrun->local_rank);
        return status;
    }
    const char *index = is_set(indexed->machine) ? indexed->machine : volcano->machine;
    if (!is_set(index) || (config->main_process_ip == NULL && !is_set(torchrun->host))) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "%s and the address of rank 0 are set, but not the number of machines", index);
    tt_hint("give --num_machines N; without an address each pod is a run of its own");
    return status;
}

/* The cluster's name of this start of the run. */
static tt_status read_start(struct tt_launch *launch)
{
    const char *run = tt_launcher_read("RUN_UID");
    int attempt = -1;
    bool there;
    if (run != NULL && strlen(run) >= sizeof launch->run)
        return tt_fail(TT_ERR_USAGE, "the environment variable RUN_UID has more than %zu characters",
                       sizeof launch->run - 1);
    if (run != NULL) snprintf(launch->run, sizeof launch->run, "%s", run);
    TT_TRY(read_number("RUN_ATTEMPT", 0, COUNT_MAX, &attempt, &there));
    launch->attempt = attempt;
    return TT_OK;
}

bool tt_launch_kills_all(void)
{
    return tt_launcher_is_mpi();
}

tt_status tt_launch_detect(const struct tt_launch_spec *config, struct tt_launch *launch)
{
    *launch =
        (struct tt_launch){.world_size = 1, .local_rank = -1, .machines = 1, .ranks = (int)config->ranks};
    name_machine(config, launch);
    TT_TRY(read_start(launch));
    bool address = is_set(srun->host) || config->main_process_ip != NULL;
    if (is_set(kubeflow->machines) && is_set(kubeflow->machine) && !is_set(torchrun->local_rank))
        return set_pods(config, kubeflow, launch);
    if (is_set(volcano->machine) && is_set(torchrun->rank) && is_set(torchrun->world_size) &&
        !is_set(torchrun->local_rank))
        return set_pods(config, volcano_pods, launch);
    if (is_set(torchrun->rank) && is_set(torchrun->world_size))
        return set_processes(config, torchrun, launch);
    if (address && is_set(srun->rank) && is_set(srun->world_size) && is_set(srun->started[0]))
        return set_processes(config, srun, launch);
    if (tt_launcher_is_mpi()) {
        launch->kind = TT_LAUNCH_MPI;
        if (config->ranks <= 1) return TT_OK;
        return tt_fail(TT_ERR_USAGE, "--ranks %lld under mpirun, where each process is one rank",
                       (long long)config->ranks);
    }
    for (int i = TT_LAUNCHER_LEADER_WORKER_SET; i <= TT_LAUNCHER_SKYPILOT; i++)
        if (is_set(tt_launchers[i].machines) && is_set(tt_launchers[i].machine))
            return set_pods(config, &tt_launchers[i], launch);
    return config->num_machines > 1 ? set_machines(config, launch) : check_alone(config);
}

tt_status tt_launch_list_unused(bool on_gpus, struct tt_str *text)
{
    static const struct {
        const char *name, *reason;
        bool gpus; /* read with ranks on GPUs */
    } unused[] = {
#define UNUSED(name, reason) {name, reason, false},
#define ON_GPUS(name, reason) {name, reason, true},
#include "launch/unused.def"
#undef ON_GPUS
#undef UNUSED
    };
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
        if (tt_launcher_read(unused[i].name) == NULL || (unused[i].gpus && on_gpus)) continue;
        TT_TRY(tt_str_printf(text, "%s%s (%s)",
                             text->bytes > 0 ? ", " : "environment variables without effect: ",
                             unused[i].name, unused[i].reason));
    }
    return TT_OK;
}

static void trim_line_end(struct tt_str *text)
{
    while (text->bytes > 0 && (text->data[text->bytes - 1] == '\n' || text->data[text->bytes - 1] == '\r'))
        text->data[--text->bytes] = '\0';
}

static tt_status read_secret(const char *path, struct tt_str *text)
{
    int file = -1;
    uint64_t bytes = 0;
    TT_TRY(tt_file_open_read(path, &file, &bytes));
    char buffer[TT_PROOF_SECRET_BYTES_MAX + 2];
    tt_status status = TT_OK;
    if (bytes > sizeof buffer)
        status = tt_fail(TT_ERR_USAGE, "'%s' has %llu bytes; a job secret has at most %d", path,
                         (unsigned long long)bytes, TT_PROOF_SECRET_BYTES_MAX);
    if (status == TT_OK) status = tt_file_pread(file, path, buffer, (size_t)bytes, 0);
    if (status == TT_OK) status = tt_str_append(text, buffer, (size_t)bytes);
    tt_file_close(file);
    tt_proof_wipe(buffer, sizeof buffer);
    if (status == TT_OK) trim_line_end(text);
    return status;
}

tt_status tt_launch_secret(struct tt_proof_key *key)
{
    const char *secret = getenv("TRIMTAB_JOB_SECRET"), *path = getenv("TRIMTAB_JOB_SECRET_FILE");
    struct tt_str text = {0};
    *key = (struct tt_proof_key){0};
    if (secret == NULL && path == NULL) return TT_OK;
    if (secret != NULL && path != NULL)
        return tt_fail(TT_ERR_USAGE, "TRIMTAB_JOB_SECRET and TRIMTAB_JOB_SECRET_FILE are both set");
    if (secret != NULL) {
        tt_status status = tt_proof_key_make(secret, strlen(secret), key);
        if (status != TT_OK) tt_while("reading TRIMTAB_JOB_SECRET");
        return status;
    }
    tt_status status = read_secret(path, &text);
    if (status == TT_OK) status = tt_proof_key_make(tt_str_text(&text), text.bytes, key);
    if (status != TT_OK) tt_while("reading the job secret from the file of TRIMTAB_JOB_SECRET_FILE");
    if (text.data != NULL) tt_proof_wipe(text.data, text.bytes);
    tt_str_deinit(&text);
    return status;
}
