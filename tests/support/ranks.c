#include "support/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/thread.h"

struct rank_thread {
    struct tt_comm *comm;
    test_rank_main *main;
    void *argument;
    struct tt_thread *thread;
};

static tt_status run_rank(void *argument)
{
    struct rank_thread *rank = argument;
    tt_status status = rank->main(rank->comm, rank->argument);
    if (status != TT_OK) tt_comm_abort(rank->comm);
    tt_comm_destroy(rank->comm);
    return status;
}

void test_ranks_outcomes(int world_size, test_rank_main *main, void *argument, struct tt_error *outcomes)
{
    struct tt_comm *comms[TEST_RANKS_MAX];
    struct rank_thread ranks[TEST_RANKS_MAX];
    assert_in_range(world_size, 1, TEST_RANKS_MAX);
    assert_int_equal(tt_comm_create_threads(world_size, comms), TT_OK);
    for (int q = 0; q < world_size; q++) {
        ranks[q] = (struct rank_thread){comms[q], main, argument, NULL};
        assert_int_equal(tt_thread_start("rank", run_rank, &ranks[q], &ranks[q].thread), TT_OK);
    }
    for (int q = 0; q < world_size; q++) {
        outcomes[q] = (struct tt_error){0};
        if (tt_thread_join(ranks[q].thread) != TT_OK) tt_error_copy(&outcomes[q]);
    }
}

void test_ranks(int world_size, test_rank_main *main, void *argument)
{
    struct tt_error outcomes[TEST_RANKS_MAX];
    test_ranks_outcomes(world_size, main, argument, outcomes);
    for (int q = 0; q < world_size; q++) {
        if (outcomes[q].status != TT_OK && outcomes[q].status != TT_ERR_PEER)
            fail_msg("rank %d of %d: %s (%s)", q, world_size, outcomes[q].message, outcomes[q].context[0]);
    }
    for (int q = 0; q < world_size; q++) {
        if (outcomes[q].status != TT_OK) fail_msg("rank %d of %d: %s", q, world_size, outcomes[q].message);
    }
}

bool test_failed_with(tt_status status, tt_status wanted, const char *text)
{
    return status == wanted && tt_error_last()->status == wanted &&
           strstr(tt_error_last()->message, text) != NULL;
}
