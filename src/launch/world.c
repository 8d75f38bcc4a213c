#include "launch/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "launch/launch.h"

enum { RANKS_PER_PROCESSOR_MAX = 4 }; /* a warning with more */

/* True if the machine has a GPU, usable or not. */
static bool machine_has_gpu(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible != NULL && (visible[0] == '\0' || visible[0] == '-')) return false;
    return tt_path_exists("/proc/driver/nvidia/version") && tt_path_exists("/dev/nvidiactl");
}

tt_status tt_world_choose_device(enum tt_device_choice device, const char **kind, int *count)
{
    char reason[512] = "";
    bool automatic = device == TT_DEVICE_AUTO;
    *kind = "cpu";
    *count = 1;
    if (device == TT_DEVICE_CPU) return TT_OK;
    int gpus = tt_cuda_device_count(reason, sizeof reason);
    if (gpus > 0) {
        *kind = "cuda";
        *count = gpus;
        return TT_OK;
    }
    if (automatic && !machine_has_gpu()) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_DEVICE,
                automatic ? "there is a GPU, but it cannot be used: %s" : "no GPU can be used: %s", reason);
    tt_hint("--device cpu runs without a GPU");
    return status;
}

/* The number of ranks of this process, if no launcher started one process per rank. */
static tt_status count_ranks(const struct tt_launch *launch, const char *kind, int devices, int *count)
{
    *count = launch->ranks > 0 ? launch->ranks : devices;
    if (strcmp(kind, "cuda") != 0 || *count <= devices) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "%d ranks, but this process sees %d GPU%s", *count, devices,
                               devices == 1 ? "" : "s");
    tt_hint("each rank needs a GPU; CUDA_VISIBLE_DEVICES selects the visible ones");
    return status;
}

/* Exchanges, in processes of one MPI job, the machines' names and fills machines[world_size]. */
static tt_status exchange_machines(struct tt_comm *comm, const char *machine, int *machines)
{
    enum { BYTES = 80 };
    int world_size = tt_comm_world_size(comm);
    char own[BYTES] = "";
    char(*all)[BYTES] = tt_calloc((size_t)world_size, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    snprintf(own, sizeof own, "%s", machine);
    tt_status status = tt_comm_host_all_gather(comm, own, all, sizeof own);
    for (int q = 0, count = 0; status == TT_OK && q < world_size; q++) {
        int same = 0;
        while (same < q && memcmp(all[same], all[q], sizeof all[q]) != 0) same++;
        machines[q] = same < q ? machines[same] : count++;
    }
    tt_free(all);
    return status;
}

/* Creates the communicators of the ranks of this process. Except with MPI, fills machines[] with the machine of every
 * rank of the run, numbered from 0. */
static tt_status connect_ranks(const struct tt_launch *launch, const struct tt_tcp_config *tcp,
                               struct tt_comm **comms, int *machines)
{
    if (launch->kind == TT_LAUNCH_MPI) return tt_comm_create_mpi(&comms[0]);
    if (tcp->world_size > tcp->local_count) return tt_comm_create_tcp(tcp, comms, machines);
    if (tcp->world_size > 1) return tt_comm_create_threads(tcp->world_size, comms);
    return tt_comm_create_self(&comms[0]);
}

static int machine_count_of(const int *machines, int world_size)
{
    int count = 0;
    for (int q = 0; q < world_size; q++)
        if (machines[q] >= count) count = machines[q] + 1;
    return count;
}

static int ranks_on(const int *machines, int end, int machine)
{
    int count = 0;
    for (int q = 0; q < end; q++) count += machines[q] == machine;
    return count;
}

/* Chooses the index of the rank's device, of `count`. A launcher may make only its own device visible to a process. */
static tt_status choose_index(const struct tt_world *world, const struct tt_launch *launch, int r, int count,
                              const char *kind, int *index)
{
    *index = world->ranks[r].local_rank;
    if (strcmp(kind, "cpu") == 0) return TT_OK;
    if (launch->kind == TT_LAUNCH_ALONE || launch->kind == TT_LAUNCH_MACHINES)
        *index = r;
    else if (launch->local_rank >= 0)
        *index = launch->local_rank;
    if (*index < count) return TT_OK;
    if (count == 1) {
        *index = 0;
        return TT_OK;
    }
    return tt_fail(TT_ERR_USAGE, "local rank %d, but this process sees %d GPUs", *index, count);
}

/* Sets the machine, local number and device of each rank of this process. */
static tt_status assign_devices(const struct tt_device_spec *device, const struct tt_launch *launch,
                                const int *machines, const char *kind, int devices, struct tt_world *world)
{
    world->machine_count = machine_count_of(machines, world->world_size);
    world->ranks_per_machine = ranks_on(machines, world->world_size, 0);
    for (int m = 1; m < world->machine_count; m++)
        if (ranks_on(machines, world->world_size, m) != world->ranks_per_machine)
            world->ranks_per_machine = 0;
    int sharing = ranks_on(machines, world->world_size, machines[world->first_rank]);
    int processors = tt_cpu_count(), threads = processors / (sharing > 0 ? sharing : 1);
    struct tt_machine_memory memory = {.ranks = sharing};
    memory.bytes = tt_memory_bytes(&memory.grouped);
    bool first_here = ranks_on(machines, world->first_rank, machines[world->first_rank]) == 0;
    if (strcmp(kind, "cpu") == 0 && first_here && sharing > RANKS_PER_PROCESSOR_MAX * processors)
        tt_warn("%d ranks on %d processor%s: more than %d per processor mostly wait for each other", sharing,
                processors, processors == 1 ? "" : "s", RANKS_PER_PROCESSOR_MAX);
    world->threads_per_rank = device->threads > 0 ? (int)device->threads : threads > 0 ? threads : 1;
    for (int r = 0; r < world->local_count; r++) {
        struct tt_world_rank *rank = &world->ranks[r];
        rank->machine = machines[world->first_rank + r];
        rank->local_rank = ranks_on(machines, world->first_rank + r, rank->machine);
        rank->device = (struct tt_device_config){.kind = kind,
                                                 .threads = world->threads_per_rank,
                                                 .memory_limit = device->device_memory,
                                                 .machine = memory,
                                                 .tuning = device->tuning};
        TT_TRY(choose_index(world, launch, r, devices, kind, &rank->device.index));
    }
    return TT_OK;
}

/* Sets the ranks of this process and the world size, before it connects. */
static tt_status count_world(const struct tt_launch *launch, const char *kind, int devices,
                             struct tt_tcp_config *tcp)
{
    tcp->local_count = 1;
    tcp->world_size = launch->world_size;
    tcp->first_rank = launch->rank;
    if (launch->kind == TT_LAUNCH_PROCESSES || launch->kind == TT_LAUNCH_MPI) return TT_OK;
    TT_TRY(count_ranks(launch, kind, devices, &tcp->local_count));
    tcp->world_size = launch->machines * tcp->local_count;
    tcp->first_rank = launch->machine_rank * tcp->local_count;
    return TT_OK;
}

static tt_status connect_world(const struct tt_device_spec *device, const struct tt_launch *launch,
                               const char *machine, const char *kind, int devices, struct tt_tcp_config *tcp,
                               struct tt_world *world)
{
    tt_status status = TT_OK;
    int *machines = NULL;
    struct tt_comm **comms = tt_calloc((size_t)tcp->local_count, sizeof(struct tt_comm *));
    world->ranks = tt_calloc((size_t)tcp->local_count, sizeof *world->ranks);
    world->pulses = tt_calloc((size_t)tcp->local_count, sizeof *world->pulses);
    machines = tt_calloc((size_t)tcp->world_size, sizeof *machines);
    if (comms == NULL || machines == NULL || world->ranks == NULL || world->pulses == NULL)
        TT_GO(TT_ERR_MEMORY);
    TT_GO(connect_ranks(launch, tcp, comms, machines));
    world->local_count = tcp->local_count;
    for (int r = 0; r < world->local_count; r++) {
        world->ranks[r].comm = comms[r];
        world->ranks[r].pulse = &world->pulses[r];
    }
    world->world_size = tt_comm_world_size(comms[0]);
    world->first_rank = tt_comm_rank(comms[0]);
    if (launch->kind == TT_LAUNCH_MPI) {
        tt_free(machines);
        machines = tt_calloc((size_t)world->world_size, sizeof *machines);
        TT_GO(tt_comm_agree(comms[0], machines != NULL ? TT_OK : TT_ERR_MEMORY));
        TT_GO(exchange_machines(comms[0], machine, machines));
    }
    TT_GO(assign_devices(device, launch, machines, kind, devices, world));
out:
    tt_free(machines);
    tt_free(comms);
    return status;
}

static tt_status log_unused(const char *kind)
{
    struct tt_str text = {0};
    tt_status status = tt_launch_list_unused(strcmp(kind, "cuda") == 0, &text);
    if (status == TT_OK && text.bytes > 0) tt_info("%s", tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

tt_status tt_world_open(const struct tt_world_config *config, struct tt_world *world)
{
    tt_status status = TT_OK;
    const char *kind = NULL;
    int devices = 0;
    struct tt_launch launch;
    char machine[80] = "";
    struct tt_proof_key key = {0};
    *world = (struct tt_world){.cancel = config->cancel};
    TT_GO(tt_launch_detect(config->launch, &launch));
    TT_GO(tt_world_choose_device(config->device->choice, &kind, &devices));
    TT_GO(tt_str_printf(&world->settings, "command: %s\ndevice: %s\n%s", config->command, kind,
                        config->settings));
    if (gethostname(machine, sizeof machine - 1) != 0) machine[0] = '\0';
    if (launch.machine[0] != '\0') snprintf(machine, sizeof machine, "%s", launch.machine);
    struct tt_tcp_config tcp = {
        .host = launch.host,
        .port = launch.port,
        .local = launch.local,
        .bind = config->launch->rendezvous_bind,
        .key = &key,
        .machine = machine,
        .settings = tt_str_text(&world->settings),
        .run = launch.run,
        .attempt = launch.attempt,
        .timeout_seconds = (double)config->launch->rendezvous_timeout,
        .cancel = config->cancel,
    };
    TT_GO(count_world(&launch, kind, devices, &tcp));
    if (launch.kind != TT_LAUNCH_MPI && tcp.world_size > tcp.local_count) TT_GO(tt_launch_secret(&key));
    TT_GO(connect_world(config->device, &launch, machine, kind, devices, &tcp, world));
    if (launch.kind != TT_LAUNCH_MPI && world->world_size > world->local_count)
        snprintf(world->host, sizeof world->host, "%s", launch.host);
    world->local = launch.local;
    world->bind = tcp.bind;
    memcpy(world->run, launch.run, sizeof world->run);
    world->restarts = launch.run[0] != '\0' || launch.attempt >= 0;
    if (world->first_rank == 0) TT_GO(log_unused(kind));
out:
    tt_proof_wipe(&key, sizeof key);
    if (status != TT_OK) tt_world_close(world);
    return status;
}

int tt_world_ranks_here(const struct tt_world *world)
{
    return world->ranks_per_machine > world->local_count ? world->ranks_per_machine : world->local_count;
}

void tt_world_close(struct tt_world *world)
{
    for (int r = 0; r < world->local_count && world->ranks != NULL; r++)
        tt_comm_destroy(world->ranks[r].comm);
    tt_free(world->ranks);
    tt_free(world->pulses);
    tt_str_deinit(&world->settings);
    *world = (struct tt_world){0};
}

/* A device may fail because the memory of another rank, which it reads, is gone. The error of that rank comes over
 * control soon, and explains more. */
static void explain_device(struct tt_comm *comm)
{
    enum { EXPLAIN_SECONDS = 3 };
    struct tt_error own;
    tt_error_copy(&own);
    for (double start = tt_clock_seconds(); tt_clock_seconds() - start < EXPLAIN_SECONDS;) {
        bool failed = tt_comm_poll(comm) != TT_OK;
        /* Another rank may have heard of this one's error already, and passes it on. */
        if (failed && strstr(tt_error_last()->message, own.message) == NULL) return;
        if (failed) break;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    (void)tt_error_restore(&own);
}

void tt_world_rank_failed(struct tt_comm *comm, tt_status status)
{
    if (status == TT_OK || status == TT_ERR_CANCELLED) return;
    if (tt_comm_world_size(comm) > 1 && status == TT_ERR_DEVICE) {
        explain_device(comm);
        status = tt_error_last()->status;
    }
    if (tt_comm_world_size(comm) > 1 && status != TT_ERR_PEER)
        tt_while("on rank %d of %d", tt_comm_rank(comm), tt_comm_world_size(comm));
    tt_comm_abort(comm);
}

struct local_rank {
    tt_rank_main *main;
    void *context;
    const struct tt_world_rank *place;
    struct tt_thread *thread;
};

static tt_status run_rank(void *argument)
{
    struct local_rank *rank = argument;
    return rank->main(rank->context, rank->place);
}

/* Order in which statuses are reported: a larger number for a cause than for its consequences. */
static int precedence(tt_status status)
{
    if (status == TT_OK) return 0;
    if (status == TT_ERR_PEER) return 1;
    if (status == TT_ERR_COMM) return 2;
    return 3;
}

/* Ends the start of ranks after a stop request, since thousands of ranks on one machine take long to start. Not on
 * GPUs: there are few, and NCCL waits for all of them. */
static tt_status check_cancel(const struct tt_world *world, int started)
{
    bool requested = world->cancel != NULL && atomic_load(&world->cancel->requests) > 0;
    if (!requested || started == 0 || strcmp(world->ranks[started].device.kind, "cpu") != 0) return TT_OK;
    return tt_fail(TT_ERR_CANCELLED, "stopped on request while rank %d of %d started",
                   world->first_rank + started, world->world_size);
}

tt_status tt_world_run(struct tt_world *world, tt_rank_main *main, void *context)
{
    struct local_rank *ranks = tt_calloc((size_t)world->local_count, sizeof *ranks);
    if (ranks == NULL) return TT_ERR_MEMORY;
    struct tt_error error = {0};
    struct tt_pulse_watch *watch = NULL;
    int started = 0;
    tt_status worst =
        tt_pulse_watch_start(world->pulses, world->local_count, world->first_rank, world->ranks[0].comm,
                             world->ranks[0].device.tuning.hang_seconds, &watch);
    if (worst != TT_OK) {
        tt_free(ranks);
        return worst;
    }
    for (; started < world->local_count; started++) {
        char name[16];
        ranks[started] = (struct local_rank){main, context, &world->ranks[started], NULL};
        snprintf(name, sizeof name, "rank %d", world->first_rank + started);
        worst = check_cancel(world, started);
        if (worst == TT_OK) worst = tt_thread_start(name, run_rank, &ranks[started], &ranks[started].thread);
        if (worst != TT_OK) {
            tt_error_copy(&error);
            tt_comm_abort(world->ranks[0].comm);
            break;
        }
    }
    for (int r = 0; r < started; r++) {
        tt_status status = tt_thread_join(ranks[r].thread);
        if (precedence(status) <= precedence(worst)) continue;
        worst = status;
        tt_error_copy(&error);
    }
    tt_pulse_watch_stop(watch);
    tt_free(ranks);
    return worst == TT_OK ? TT_OK : tt_error_restore(&error);
}

struct agreement {
    tt_status status;
    struct tt_error error;
};

static tt_status agree_rank(void *context, const struct tt_world_rank *rank)
{
    const struct agreement *agreement = context;
    (void)tt_error_restore(&agreement->error);
    return tt_comm_agree(rank->comm, agreement->status);
}

tt_status tt_world_agree(struct tt_world *world, tt_status status)
{
    if (world->local_count == world->world_size) return status;
    if (world->local_count == 1) return tt_comm_agree(world->ranks[0].comm, status);
    struct agreement agreement = {.status = status};
    tt_error_copy(&agreement.error);
    return tt_world_run(world, agree_rank, &agreement);
}

struct tt_compare_share tt_world_share(const struct tt_world *world)
{
    if (world->local_count == world->world_size) return (struct tt_compare_share){0};
    return (struct tt_compare_share){world->first_rank, world->local_count, world->world_size};
}

struct finding {
    bool own, any; /* of this process, of one of them */
    int first_rank;
};

static tt_status gather_finding(void *context, const struct tt_world_rank *rank)
{
    struct finding *finding = context;
    int count = tt_comm_world_size(rank->comm);
    bool *findings = tt_calloc((size_t)count, sizeof *findings), any = false;
    TT_TRY(tt_comm_agree(rank->comm, findings != NULL ? TT_OK : TT_ERR_MEMORY));
    tt_status status = tt_comm_host_all_gather(rank->comm, &finding->own, findings, sizeof finding->own);
    for (int r = 0; r < count; r++) any |= findings[r];
    if (tt_comm_rank(rank->comm) == finding->first_rank) finding->any = any;
    tt_free(findings);
    return status;
}

tt_status tt_world_settle_inputs(struct tt_world *world, struct tt_inputs *inputs)
{
    struct finding finding = {.own = inputs->head_differs, .first_rank = world->first_rank};
    if (world->local_count == world->world_size || inputs->source.folder == NULL) return TT_OK;
    TT_TRY(tt_world_run(world, gather_finding, &finding));
    tt_inputs_settle(inputs, finding.any);
    return TT_OK;
}
