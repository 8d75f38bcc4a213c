/* Values that ranks share over their hosts (comm/host_values.h, and the smallest one of comm/comm.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "comm/host_values.h"
#include "support/ranks.h"

/* In order of rank 1e16 + 1 + -1e16 + 1 is 1; in any other order the ones are lost or kept otherwise. */
static tt_status sum_rank(struct tt_comm *comm, void *argument)
{
    static const double large[] = {1e16, 1, -1e16, 1};
    int rank = tt_comm_rank(comm);
    double values[3] = {large[rank], rank, -0.5};
    (void)argument;
    TT_TRY(tt_comm_host_sum(comm, values, 3));
    TEST_RANK_CHECK(values[0] == 1 && values[1] == 6 && values[2] == -2);
    return TT_OK;
}

static tt_status share_rank(struct tt_comm *comm, void *argument)
{
    char text[16] = "not rank 0";
    (void)argument;
    if (tt_comm_rank(comm) == 0) strcpy(text, "of rank 0");
    TT_TRY(tt_comm_host_share(comm, text, sizeof text));
    TEST_RANK_CHECK(strcmp(text, "of rank 0") == 0);
    return TT_OK;
}

static tt_status min_rank(struct tt_comm *comm, void *argument)
{
    int rank = tt_comm_rank(comm);
    int64_t values[] = {rank == 1 ? -7 : rank, INT64_MAX - rank};
    (void)argument;
    for (int i = 0; i < 2; i++) TT_TRY(tt_comm_host_min(comm, &values[i]));
    TEST_RANK_CHECK(values[0] == -7 && values[1] == INT64_MAX - 2);
    return TT_OK;
}

static void sums_are_in_order_of_rank(void **state)
{
    (void)state;
    test_ranks(4, sum_rank, NULL);
}

static void rank_0_shares(void **state)
{
    (void)state;
    for (int world_size = 1; world_size <= 3; world_size++) test_ranks(world_size, share_rank, NULL);
}

static void all_have_the_smallest(void **state)
{
    (void)state;
    test_ranks(3, min_rank, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_in_order_of_rank),
        cmocka_unit_test(rank_0_shares),
        cmocka_unit_test(all_have_the_smallest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
