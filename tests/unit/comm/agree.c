/* Ranks that fail alike, one of which is slow to read what was agreed on: whoever knows aborts at once, and
 * still one rank tells and the others leave it to that one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "comm/comm_impl.h"
#include "support/ranks.h"

enum { WORLD = 3, SLOW_MS = 30 };

/* Over a communicator of threads: an answer travels so long to one rank that the word of a failure comes
 * first, as it may over a network, where the two have connections of their own. */
struct slow_comm {
    struct tt_comm base;
    struct tt_comm *inner;
    bool slow;
};

static struct tt_comm *inner_of(struct tt_comm *comm)
{
    return ((struct slow_comm *)comm)->inner;
}

static tt_status travel(const struct slow_comm *comm, tt_status status)
{
    if (!comm->slow || status != TT_OK) return status;
    nanosleep(&(struct timespec){.tv_nsec = SLOW_MS * 1000000L}, NULL);
    return tt_comm_poll(comm->inner);
}

static tt_status slow_exchange(struct tt_comm *comm, const struct tt_comm_exchange *exchange)
{
    struct tt_comm *inner = inner_of(comm);
    return travel((struct slow_comm *)comm, inner->table->exchange(inner, exchange));
}

static const struct tt_comm_table slow_table = {.kind = "slow", .exchange = slow_exchange};

struct trouble {
    int slow_rank;
    unsigned failed; /* a bit for each rank */
};

static tt_status fail_rank(struct tt_comm *comm, void *argument)
{
    const struct trouble *trouble = argument;
    int rank = tt_comm_rank(comm);
    struct slow_comm slow = {.base = *comm, .inner = comm, .slow = rank == trouble->slow_rank};
    slow.base.table = &slow_table;
    tt_status status =
        (trouble->failed >> rank & 1) != 0 ? tt_fail(TT_ERR_DATA, "the loss of step 7 is NaN") : TT_OK;
    return tt_comm_agree(&slow.base, status); /* what fails is aborted at once: test_ranks_outcomes */
}

static void one_tells(void **state)
{
    (void)state;
    for (unsigned failed = 1; failed < 1u << WORLD; failed++) {
        for (int slow_rank = 0; slow_rank < WORLD; slow_rank++) {
            struct tt_error outcomes[WORLD];
            struct trouble trouble = {slow_rank, failed};
            int lowest = __builtin_ctz(failed);
            test_ranks_outcomes(WORLD, fail_rank, &trouble, outcomes);
            for (int q = 0; q < WORLD; q++) {
                tt_status wanted = (failed >> q & 1) != 0 ? TT_ERR_DATA : TT_ERR_PEER;
                bool tells = outcomes[q].status != TT_OK && !outcomes[q].reported_elsewhere;
                if (outcomes[q].status != wanted || tells != (q == lowest))
                    fail_msg("ranks %#x failed, rank %d is slow: rank %d has status %d, told %d: %s", failed,
                             slow_rank, q, (int)outcomes[q].status, (int)outcomes[q].reported_elsewhere,
                             outcomes[q].message);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_tells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
