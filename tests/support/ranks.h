/* Ranks as threads of a test. They must not use cmocka's asserts, which jump to another thread's frame: a failed
 * check is an error of the rank, and the test's own thread reports it. */
#ifndef TT_TESTS_SUPPORT_RANKS_H
#define TT_TESTS_SUPPORT_RANKS_H

#include "comm/comm.h"

enum { TEST_RANKS_MAX = 16 };

/* `comm` is lent. */
typedef tt_status test_rank_main(struct tt_comm *comm, void *argument);

/* Runs `main` on all ranks of a new group; a rank that fails aborts the group and the test. */
void test_ranks(int world_size, test_rank_main *main, void *argument);
/* The same, but the test does not fail; `outcomes` gets the error of each rank. */
void test_ranks_outcomes(int world_size, test_rank_main *main, void *argument, struct tt_error *outcomes);

#define TEST_RANK_CHECK(condition)                                                                           \
    do {                                                                                                     \
        if (!(condition)) return tt_fail(TT_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #condition);      \
    } while (0)

/* Whether `status` is `wanted` and the message contains `text`. */
bool test_failed_with(tt_status status, tt_status wanted, const char *text);

#endif
