/* Ranks over TCP inside one test program: the processes are threads, which share nothing that was created apart.
 * Failing system calls fail the running test. */
#ifndef TT_TESTS_SUPPORT_TCP_RANKS_H
#define TT_TESTS_SUPPORT_TCP_RANKS_H

#include "base/thread.h"
#include "comm/comm.h"
#include "comm/proof.h"
#include "support/ranks.h"

void test_sleep(double seconds);

struct test_tcp_process {
    struct tt_tcp_config config;
    test_rank_main *main;
    void *argument;
    double delay; /* before it begins */
    struct tt_thread *thread;
    tt_status status;
    struct tt_error error;
    int machines[TEST_RANKS_MAX];
};

/* `count` processes of `ranks_each` ranks that meet at a free port of the loopback interface, with the same
 * settings. */
void test_tcp_prepare(struct test_tcp_process *processes, int count, int ranks_each, test_rank_main *main,
                      void *argument);
/* Starts them and waits for them; a hang ends the program. */
void test_tcp_run(struct test_tcp_process *processes, int count);
void test_tcp_expect_ok(const struct test_tcp_process *processes, int count);
/* It ended with `status`, and its message contains `text`. */
void test_tcp_expect(const struct test_tcp_process *process, tt_status status, const char *text);
tt_status test_tcp_barrier(struct tt_comm *comm, void *argument); /* a rank that meets the others once */

#endif
