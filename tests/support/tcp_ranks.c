#include "support/tcp_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "support/port.h"

enum { HANG_SECONDS = 120 };

struct rank {
    struct tt_comm *comm;
    struct test_tcp_process *process;
    struct tt_thread *thread;
};

void test_sleep(double seconds)
{
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (time_t)seconds) * 1e9)},
        NULL);
}

static tt_status run_rank(void *argument)
{
    struct rank *rank = argument;
    tt_status status = rank->process->main(rank->comm, rank->process->argument);
    if (status != TT_OK) tt_comm_abort(rank->comm);
    tt_comm_destroy(rank->comm);
    return status;
}

static tt_status run_process(void *argument)
{
    struct test_tcp_process *process = argument;
    struct tt_comm *comms[TEST_RANKS_MAX];
    struct rank ranks[TEST_RANKS_MAX];
    tt_status worst = TT_OK;
    struct tt_error error = {0};
    test_sleep(process->delay);
    TT_TRY(tt_comm_create_tcp(&process->config, comms, process->machines));
    for (int r = 0; r < process->config.local_count; r++) {
        ranks[r] = (struct rank){comms[r], process, NULL};
        tt_status status = tt_thread_start("rank", run_rank, &ranks[r], &ranks[r].thread);
        if (status == TT_OK) continue;
        worst = status;
        tt_error_copy(&error);
        tt_comm_abort(comms[r]);
        tt_comm_destroy(comms[r]);
    }
    for (int r = 0; r < process->config.local_count; r++) {
        tt_status status = ranks[r].thread != NULL ? tt_thread_join(ranks[r].thread) : TT_OK;
        if (status == TT_OK || (worst != TT_OK && status == TT_ERR_PEER)) continue;
        worst = status;
        tt_error_copy(&error);
    }
    return worst == TT_OK ? TT_OK : tt_error_restore(&error);
}

void test_tcp_prepare(struct test_tcp_process *processes, int count, int ranks_each, test_rank_main *main,
                      void *argument)
{
    int port = test_free_port();
    for (int p = 0; p < count; p++) {
        processes[p] = (struct test_tcp_process){
            .config = {.host = "127.0.0.1",
                       .port = port,
                       .local = true,
                       .world_size = count * ranks_each,
                       .first_rank = p * ranks_each,
                       .local_count = ranks_each,
                       .machine = p % 2 == 0 ? "even" : "odd",
                       .settings = "command: train\nlearning_rate: 0.1\nseed: 1\n",
                       .timeout_seconds = 20},
            .main = main,
            .argument = argument,
        };
    }
}

void test_tcp_run(struct test_tcp_process *processes, int count)
{
    alarm(HANG_SECONDS);
    for (int p = 0; p < count; p++)
        assert_int_equal(tt_thread_start("process", run_process, &processes[p], &processes[p].thread), TT_OK);
    for (int p = 0; p < count; p++) {
        processes[p].status = tt_thread_join(processes[p].thread);
        tt_error_copy(&processes[p].error);
    }
    alarm(0);
}

void test_tcp_expect_ok(const struct test_tcp_process *processes, int count)
{
    for (int p = 0; p < count; p++)
        if (processes[p].status != TT_OK) fail_msg("process %d: %s", p, processes[p].error.message);
}

void test_tcp_expect(const struct test_tcp_process *process, tt_status status, const char *text)
{
    if (process->status != status || strstr(process->error.message, text) == NULL)
        fail_msg("status %d: '%s' without '%s'", (int)process->status, process->error.message, text);
}

tt_status test_tcp_barrier(struct tt_comm *comm, void *argument)
{
    (void)argument;
    return tt_comm_barrier(comm);
}
