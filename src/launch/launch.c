#include "launch/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/number.h"
#include "base/str.h"
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

static const struct tt_launcher *const torchrun = &tt_launchers[TT_LAUNCHER_TORCHRUN];
static const struct tt_launcher *const srun = &tt_launchers[TT_LAUNCHER_SRUN];
static const struct tt_launcher *const kubeflow = &tt_launchers[TT_LAUNCHER_KUBEFLOW];

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

/* With a loopback address of rank 0 all ranks are on this machine. Exception: older operators for Kubernetes set
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
    if (strlen(host) >= sizeof launch->host)
        return tt_fail(TT_ERR_USAGE, "the address of rank 0 has %zu characters", strlen(host));
    snprintf(launch->host, sizeof launch->host, "%s", host);
    launch->local = is_loopback(host);
    launch->port = PORT_DEFAULT;
    TT_TRY(read_number(launcher->port, 1, 65535, &launch->port, &there));
    if (!there) TT_TRY(read_number(torchrun->port, 1, 65535, &launch->port, &there));
    /* torchrun itself listens on MASTER_PORT for as long as its processes live. */
    if (there && agent != NULL && strcmp(agent, "True") == 0) launch->port += launch->port < 65535 ? 1 : -1;
    if (config->main_process_port > 0) launch->port = (int)config->main_process_port;
    return TT_OK;
}

static tt_status set_processes(const struct tt_launch_spec *config, const struct tt_launcher *launcher,
                               struct tt_launch *launch)
{
    bool there = false;
    launch->kind = TT_LAUNCH_PROCESSES;
    TT_TRY(read_number(launcher->world_size, 1, COUNT_MAX, &launch->world_size, &there));
    TT_TRY(read_number(launcher->rank, 0, launch->world_size - 1, &launch->rank, &there));
    TT_TRY(read_number(launcher->local_rank, 0, COUNT_MAX, &launch->local_rank, &there));
    if (config->ranks > 1)
        return tt_fail(TT_ERR_USAGE, "--ranks %lld, but %s is set, so each process is one rank",
                       (long long)config->ranks, launcher->rank);
    if (launch->world_size == 1) return TT_OK;
    TT_TRY(set_address(config, launcher, launch));
    if (launcher->local_size != NULL) return find_local(launcher->local_size, launch->world_size, launch);
    return find_local(launcher->machines, 1, launch);
}

static bool is_set(const char *name)
{
    return tt_launcher_read(name) != NULL;
}

/* Kubeflow's jobs: one process per pod, whose RANK is the number of the pod. PET_NPROC_PER_NODE is the number of its
 * ranks, or a word that means one per device. */
static tt_status set_pods(const struct tt_launch_spec *config, struct tt_launch *launch)
{
    const char *per_node = tt_launcher_read(kubeflow->ranks), *nodes = tt_launcher_read(kubeflow->machines);
    bool there = false;
    if (strchr(nodes, ':') != NULL)
        return tt_fail(TT_ERR_UNSUPPORTED,
                       "%s is '%.20s': the number of machines must not change during a run",
                       kubeflow->machines, nodes);
    TT_TRY(read_number(kubeflow->machines, 1, COUNT_MAX, &launch->machines, &there));
    TT_TRY(read_number(kubeflow->machine, 0, launch->machines - 1, &launch->machine_rank, &there));
    if (launch->ranks == 0 && per_node != NULL && per_node[0] >= '0' && per_node[0] <= '9')
        TT_TRY(read_number(kubeflow->ranks, 1, COUNT_MAX, &launch->ranks, &there));
    if (launch->machines == 1) return TT_OK;
    launch->kind = TT_LAUNCH_MACHINES;
    snprintf(launch->machine, sizeof launch->machine, "%d", launch->machine_rank);
    return set_address(config, kubeflow, launch);
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

static tt_status set_machines(const struct tt_launch_spec *config, struct tt_launch *launch)
{
    launch->kind = TT_LAUNCH_MACHINES;
    launch->machines = (int)config->num_machines;
    launch->machine_rank = (int)config->machine_rank;
    TT_TRY(tt_launch_count_ranks(config, &launch->ranks));
    return set_address(config, torchrun, launch);
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
    bool address = is_set(srun->host) || config->main_process_ip != NULL;
    if (is_set(kubeflow->machines) && is_set(kubeflow->machine) && !is_set(torchrun->local_rank))
        return set_pods(config, launch);
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
    return config->num_machines > 1 ? set_machines(config, launch) : TT_OK;
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
