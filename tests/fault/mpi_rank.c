/* One rank of fault/comm_mpi.sh:
 *   calls mpi COUNT_MAX   all calls over MPI, at most COUNT_MAX units per MPI call; prints digests of the
 * results calls threads WORLD   the same with threads: the same lines kill WAIT_MS          rank 1 is killed
 * while all call abort WAIT_MS         rank 1 fails while all call; the others print why they end By itself
 * it tests how a launch is recognised. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/comm_impl.h"
#include "comm/launcher.h"
#include "support/axis_calls.h"
#include "support/comm_calls.h"
#include "support/ranks.h"

static tt_status calls_rank(struct tt_comm *comm, void *argument)
{
    uint64_t calls = 0, parts = 0;
    (void)argument;
    TT_TRY(test_comm_calls(comm, 1, &calls));
    if (tt_comm_world_size(comm) <= 4) TT_TRY(test_comm_agreement(comm));
    TT_TRY(test_comm_splits(comm, &parts));
    TT_TRY(test_axis_calls(comm));
    printf("rank %d of %d: calls %016llx, parts %016llx\n", tt_comm_rank(comm), tt_comm_world_size(comm),
           (unsigned long long)calls, (unsigned long long)parts);
    return TT_OK;
}

static int report(tt_status status)
{
    if (status != TT_OK) printf("%s\n", tt_error_last()->message);
    fflush(stdout);
    return status == TT_OK ? 0 : 1;
}

static int calls_over_mpi(int count_max)
{
    struct tt_comm *comm = NULL;
    tt_status status = tt_comm_create_mpi_limited(count_max, &comm);
    if (status == TT_OK) status = calls_rank(comm, NULL);
    int code = report(status);
    if (status != TT_OK) tt_comm_abort(comm);
    tt_comm_destroy(comm);
    return code;
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

struct fate {
    struct tt_comm *comm;
    long wait_ms;
    bool killed;
};

static tt_status meet_fate(void *argument)
{
    const struct fate *fate = argument;
    sleep_ms(fate->wait_ms);
    if (fate->killed) kill(getpid(), SIGKILL);
    tt_fail(TT_ERR_DATA, "a bad row");
    tt_comm_abort(fate->comm);
    return TT_OK;
}

static int calls_until_the_end(bool killed, long wait_ms)
{
    struct tt_comm *comm = NULL;
    struct tt_thread *thread = NULL;
    int64_t all[TEST_RANKS_MAX];
    tt_status status = tt_comm_create_mpi(&comm);
    if (status != TT_OK) return report(status);
    struct fate fate = {comm, wait_ms, killed};
    if (tt_comm_rank(comm) == 1 && tt_thread_start("fate", meet_fate, &fate, &thread) != TT_OK)
        return report(TT_ERR_MEMORY);
    for (int64_t i = 0; status == TT_OK; i++) {
        if (i % 2 == 0)
            status = tt_comm_host_all_gather(comm, &i, all, sizeof i);
        else
            status = tt_comm_agree(comm, TT_OK);
    }
    printf("rank %d ends: %s\n", tt_comm_rank(comm), tt_error_last()->message);
    fflush(stdout);
    if (thread != NULL) (void)!tt_thread_join(thread);
    sleep_ms(1000); /* the launcher ends all when the first has ended: let them say why before */
    tt_comm_destroy(comm);
    return 3;
}

static int launches(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                                            "SLURM_STEP_NUM_TASKS"};
    int failures = 0;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    failures += tt_launcher_is_mpi();
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        setenv(variables[i], "2", 1);
        failures += !tt_launcher_is_mpi();
        setenv(variables[i], "1", 1);
        failures += tt_launcher_is_mpi();
        setenv(variables[i], "many", 1);
        failures += tt_launcher_is_mpi();
        unsetenv(variables[i]);
    }
    if (failures > 0) printf("%d launches taken for something else\n", failures);
    return failures > 0;
}

int main(int argc, char **argv)
{
    if (argc == 1) return launches();
    if (argc == 4 && strcmp(argv[1], "calls") == 0 && strcmp(argv[2], "mpi") == 0)
        return calls_over_mpi(atoi(argv[3]));
    if (argc == 4 && strcmp(argv[1], "calls") == 0) {
        test_ranks(atoi(argv[3]), calls_rank, NULL);
        return 0;
    }
    if (argc == 3) return calls_until_the_end(strcmp(argv[1], "kill") == 0, atol(argv[2]));
    printf("usage: see the beginning of mpi_rank.c\n");
    return 2;
}
