/* Ranks over TCP inside one test program: each process is a thread, which shares no object with the others. A
 * failing system call fails the running test. */
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
    double delay; /* seconds before it starts */
    struct tt_thread *thread;
    tt_status status;
    struct tt_error error;
    int machines[TEST_RANKS_MAX];
};

/* Prepares `count` processes of `ranks_each` ranks that connect to a free port of the loopback interface, with
 * the same settings. */
void test_tcp_prepare(struct test_tcp_process *processes, int count, int ranks_each, test_rank_main *main,
                      void *argument);
/* Starts them and waits for them; a hang ends the program. */
void test_tcp_run(struct test_tcp_process *processes, int count);
void test_tcp_expect_ok(const struct test_tcp_process *processes, int count);
/* Checks that the process ended with `status` and a message that contains `text`. */
void test_tcp_expect(const struct test_tcp_process *process, tt_status status, const char *text);
tt_status test_tcp_barrier(struct tt_comm *comm, void *argument); /* a rank that calls one barrier */

#endif
