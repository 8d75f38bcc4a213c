/* Ranks as threads of a test. What runs in them may not use cmocka's asserts, which jump to another thread's frame: a
 * check that fails is an error of the rank, and the thread of the test reports it. */
#ifndef TT_TESTS_SUPPORT_RANKS_H
#define TT_TESTS_SUPPORT_RANKS_H

#include "comm/comm.h"

enum { TEST_RANKS_MAX = 16 };

/* `comm` is lent. */
typedef tt_status test_rank_main(struct tt_comm *comm, void *argument);

/* Runs `main` on all ranks of a new group; a rank that fails aborts the group. Fails the test when one did. */
void test_ranks(int world_size, test_rank_main *main, void *argument);
/* The same, but what became of each rank is handed back. */
void test_ranks_outcomes(int world_size, test_rank_main *main, void *argument, struct tt_error *outcomes);

#define TEST_RANK_CHECK(condition)                                                                           \
    do {                                                                                                     \
        if (!(condition)) return tt_fail(TT_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #condition);      \
    } while (0)

/* Whether `call` gave `wanted` with a message that contains `text`. */
bool test_failed_with(tt_status status, tt_status wanted, const char *text);

#endif
