/* Ranks that are threads: every call in every world, agreement, splitting, and that nobody waits for a rank
 * that stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/thread.h"
#include "comm/comm_impl.h"
#include "support/comm_calls.h"
#include "support/ranks.h"

static const int worlds[] = {1, 2, 3, 4, 8};
enum { WORLD_COUNT = sizeof worlds / sizeof *worlds, HANG_SECONDS = 240 };

static tt_status calls_rank(struct tt_comm *comm, void *argument)
{
    uint64_t digest;
    TEST_RANK_CHECK(strcmp(tt_comm_kind(comm), "threads") == 0);
    TEST_RANK_CHECK(tt_comm_local_size(comm) == tt_comm_world_size(comm));
    return test_comm_calls(comm, *(uint64_t *)argument, &digest);
}

static void every_call_in_every_world(void **state)
{
    (void)state;
    for (int w = 0; w < WORLD_COUNT; w++) test_ranks(worlds[w], calls_rank, &(uint64_t){(uint64_t)w});
}

static tt_status agree_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    return test_comm_agreement(comm);
}

static void agreement(void **state)
{
    (void)state;
    for (int world_size = 1; world_size <= 4; world_size++) test_ranks(world_size, agree_rank, NULL);
}

static tt_status silent_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    tt_error_clear();
    tt_status status = tt_comm_agree(comm, tt_comm_rank(comm) == 1 ? TT_ERR_DATA : TT_OK);
    if (tt_comm_rank(comm) == 1)
        TEST_RANK_CHECK(status == TT_ERR_DATA);
    else
        TEST_RANK_CHECK(test_failed_with(status, TT_ERR_PEER, "rank 1 failed"));
    return TT_OK;
}

static void a_status_without_a_record(void **state)
{
    (void)state;
    test_ranks(3, silent_rank, NULL);
}

static tt_status differing_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    int rank = tt_comm_rank(comm);
    int64_t mine = rank, all[3] = {0};
    tt_status status = rank == 2 ? tt_comm_barrier(comm) : tt_comm_host_all_gather(comm, &mine, all, 8);
    TEST_RANK_CHECK(
        test_failed_with(status, TT_ERR_INTERNAL, "rank 0 calls all-gather of 8 while rank 2 calls barrier"));
    char bytes[24];
    status = tt_comm_host_all_gather(comm, &mine, rank == 1 ? bytes : (char *)all, rank == 1 ? 4 : 8);
    TEST_RANK_CHECK(test_failed_with(status, TT_ERR_INTERNAL, "all-gather of 8 while rank 1"));
    TT_TRY(tt_comm_host_all_gather(comm, &mine, all, 8)); /* nothing is broken by it */
    TEST_RANK_CHECK(all[0] == 0 && all[1] == 1 && all[2] == 2);
    return test_comm_orders(comm);
}

static void ranks_that_call_different_things(void **state)
{
    (void)state;
    test_ranks(3, differing_rank, NULL);
}

static tt_status split_rank(struct tt_comm *comm, void *argument)
{
    uint64_t digest;
    (void)argument;
    return test_comm_splits(comm, &digest);
}

static void splitting(void **state)
{
    (void)state;
    for (int w = 0; w < WORLD_COUNT; w++) test_ranks(worlds[w], split_rank, NULL);
}

static tt_status abort_in_part_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    int rank = tt_comm_rank(comm);
    struct tt_comm *part = NULL;
    TT_TRY(tt_comm_split(comm, rank / 2, &part));
    tt_status status;
    if (rank == 3) {
        tt_fail(TT_ERR_DATA, "a bad row");
        tt_comm_abort(part);
        status = tt_comm_barrier(comm);
    } else {
        status = tt_comm_barrier(rank == 1 ? comm : part);
        if (rank == 0 && status == TT_OK) status = tt_comm_barrier(comm);
    }
    tt_comm_destroy(part);
    TEST_RANK_CHECK(test_failed_with(status, TT_ERR_PEER, "rank 3 failed: a bad row"));
    return TT_OK;
}

/* Rank 1 waits in the world, rank 0 and 2 in their parts: all hear of rank 3, by its number in the world. */
static void groups_of_a_family_fail_together(void **state)
{
    (void)state;
    test_ranks(4, abort_in_part_rank, NULL);
}

static tt_status leaving_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    if (tt_comm_rank(comm) == 1) return TT_OK;
    for (int again = 0; again < 2; again++)
        TEST_RANK_CHECK(test_failed_with(tt_comm_barrier(comm), TT_ERR_PEER, "rank 1 stopped"));
    return TT_OK;
}

static void a_rank_that_leaves_has_failed(void **state)
{
    (void)state;
    test_ranks(3, leaving_rank, NULL);
}

/* Calls without end, until one fails. */
static tt_status endless_rank(struct tt_comm *comm, void *argument)
{
    uint64_t seed = *(uint64_t *)argument;
    struct tt_device *device = NULL;
    struct tt_stream *stream = NULL;
    struct tt_comm *part = NULL;
    enum { COUNT = 600 };
    float *data = tt_calloc(COUNT * TEST_RANKS_MAX, sizeof *data);
    tt_status status = data == NULL ? TT_ERR_MEMORY : TT_OK;
    if (status != TT_OK) goto out;
    TT_GO(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &device));
    TT_GO(tt_stream_create(device, &stream));
    for (uint64_t i = 0; status == TT_OK; i++) {
        switch (tt_rng_below(tt_rng_make(seed), i, 6)) {
        case 0:
            status = tt_comm_all_gather(comm, stream, data + COUNT * tt_comm_rank(comm), data, COUNT * 4);
            break;
        case 1:
            status =
                tt_comm_reduce_scatter(comm, stream, data, data + COUNT * tt_comm_rank(comm), COUNT, TT_F32);
            break;
        case 2:
            status = tt_comm_all_reduce(comm, stream, data, COUNT, TT_F32, TT_REDUCE_SUM);
            break;
        case 3:
            status = tt_comm_agree(comm, TT_OK);
            break;
        case 4:
            status = tt_comm_split(comm, tt_comm_rank(comm) % 2, &part);
            if (status == TT_OK) status = tt_comm_barrier(part);
            tt_comm_destroy(part);
            part = NULL;
            break;
        default:
            status = tt_comm_host_broadcast(comm, data, COUNT, 0);
        }
    }
out:
    if (stream != NULL) tt_stream_destroy(stream);
    tt_device_close(device);
    tt_free(data);
    return status;
}

struct endless {
    struct tt_comm *comm;
    uint64_t seed;
    struct tt_thread *thread;
};

static tt_status endless_main(void *argument)
{
    struct endless *endless = argument;
    return endless_rank(endless->comm, &endless->seed);
}

/* Each run stops at another moment; a rank that is not woken shows as a test that never ends. */
static void an_abort_from_outside_wakes_all(void **state)
{
    (void)state;
    enum { RUNS = 200, WORLD = 4 };
    struct tt_rng rng = tt_rng_make(11);
    alarm(HANG_SECONDS);
    for (uint64_t run = 0; run < RUNS; run++) {
        struct tt_comm *comms[WORLD];
        struct endless ranks[WORLD];
        char wanted[80];
        int victim = (int)(run % WORLD);
        uint64_t live = tt_alloc_live();
        assert_int_equal(tt_comm_create_threads(WORLD, comms), TT_OK);
        for (int q = 0; q < WORLD; q++) {
            ranks[q] = (struct endless){comms[q], run, NULL};
            assert_int_equal(tt_thread_start("rank", endless_main, &ranks[q], &ranks[q].thread), TT_OK);
        }
        assert_int_equal(tt_comm_poll(comms[0]), TT_OK);
        nanosleep(&(struct timespec){.tv_nsec = (long)tt_rng_below(rng, run, 3000000)}, NULL);
        tt_fail(TT_ERR_CANCELLED, "no more in run %d", (int)run);
        tt_comm_abort(comms[victim]);
        tt_fail(TT_ERR_CANCELLED, "too late");
        tt_comm_abort(comms[(victim + 1) % WORLD]); /* the first cause stays */
        snprintf(wanted, sizeof wanted, "rank %d failed: no more in run %d", victim, (int)run);
        for (int q = 0; q < WORLD; q++) {
            assert_int_equal(tt_thread_join(ranks[q].thread), TT_ERR_PEER);
            assert_string_equal(tt_error_last()->message, wanted);
        }
        assert_int_equal(tt_comm_barrier(comms[0]), TT_ERR_PEER);
        assert_int_equal(tt_comm_poll(comms[1]), TT_ERR_PEER);
        assert_string_equal(tt_error_last()->message, wanted);
        for (int q = 0; q < WORLD; q++) tt_comm_destroy(comms[q]);
        assert_true(tt_alloc_live() == live);
    }
    alarm(0);
}

static tt_status plan_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    struct tt_device *device = NULL;
    struct tt_stream *stream = NULL;
    tt_status status = TT_OK;
    void *nowhere = (void *)((uintptr_t)1 << 53);
    TT_GO(tt_device_open(&(struct tt_device_config){.kind = "plan"}, &device));
    TT_GO(tt_stream_create(device, &stream));
    /* Without the others: nothing waits, nothing is read. */
    for (int i = 0; i < tt_comm_rank(comm); i++) {
        TT_GO(tt_comm_all_gather(comm, stream, nowhere, nowhere, 4096));
        TT_GO(tt_comm_reduce_scatter(comm, stream, nowhere, nowhere, 4096, TT_BF16));
        TT_GO(tt_comm_all_reduce(comm, stream, nowhere, 4096, TT_F64, TT_REDUCE_MAX));
    }
    if (tt_comm_reduce_scatter(comm, stream, nowhere, nowhere, 4, TT_I64) != TT_ERR_INTERNAL)
        status = tt_fail(TT_ERR_INTERNAL, "the plan device checks no types");
    if (status == TT_OK) status = tt_comm_barrier(comm);
out:
    if (stream != NULL) tt_stream_destroy(stream);
    tt_device_close(device);
    return status;
}

static void the_plan_device_moves_nothing(void **state)
{
    (void)state;
    test_ranks(4, plan_rank, NULL);
}

static void groups_that_cannot_be(void **state)
{
    (void)state;
    struct tt_comm *comms[4] = {NULL};
    assert_int_equal(tt_comm_create_threads(0, comms), TT_ERR_USAGE);
    assert_int_equal(tt_comm_create_threads(-3, comms), TT_ERR_USAGE);
    tt_status status = TT_ERR_MEMORY;
    for (uint64_t nth = 1; status != TT_OK; nth++) {
        uint64_t live = tt_alloc_live();
        tt_alloc_fail_at(nth);
        status = tt_comm_create_threads(4, comms);
        tt_alloc_fail_at(0);
        if (status == TT_OK) break;
        assert_int_equal(status, TT_ERR_MEMORY);
        assert_null(comms[0]);
        assert_true(tt_alloc_live() == live);
        assert_true(nth < 100);
    }
    for (int q = 0; q < 4; q++) tt_comm_destroy(comms[q]);
}

struct scarcity {
    uint64_t nth;
    atomic_int failures;
};

static tt_status failing_split_rank(struct tt_comm *comm, void *argument)
{
    struct scarcity *scarcity = argument;
    struct tt_comm *part = NULL;
    int rank = tt_comm_rank(comm);
    TT_TRY(tt_comm_barrier(comm));
    if (rank == 0) tt_alloc_fail_at(scarcity->nth);
    TT_TRY(tt_comm_barrier(comm));
    tt_status status = tt_comm_split(comm, rank % 2, &part);
    TEST_RANK_CHECK((status == TT_OK) == (part != NULL));
    TEST_RANK_CHECK(status == TT_OK || test_failed_with(status, TT_ERR_MEMORY, "memory"));
    if (status != TT_OK) scarcity->failures++;
    if (part != NULL) TT_TRY(tt_comm_barrier(part));
    tt_comm_destroy(part);
    TT_TRY(tt_comm_barrier(comm)); /* which still works */
    if (rank == 0) tt_alloc_fail_at(0);
    return TT_OK;
}

/* A part is made for all of its ranks or for none. */
static void splits_without_memory(void **state)
{
    (void)state;
    struct scarcity scarcity = {0};
    uint64_t live = tt_alloc_live();
    do {
        scarcity.nth++;
        scarcity.failures = 0;
        test_ranks(4, failing_split_rank, &scarcity);
        assert_true(tt_alloc_live() == live);
        assert_true(scarcity.failures == 0 || scarcity.failures == 2);
    } while (scarcity.failures > 0);
    assert_in_range(scarcity.nth, 15, 100);
}

/* Rank 1 fails while the others poll without a pause. */
static tt_status polling_rank(struct tt_comm *comm, void *argument)
{
    uint64_t run = *(uint64_t *)argument;
    char wanted[80];
    tt_status status = TT_OK;
    if (tt_comm_rank(comm) == 1) {
        usleep((useconds_t)tt_rng_below(tt_rng_make(12), run, 500));
        (void)!tt_fail(TT_ERR_DATA, "a bad row in run %d", (int)run);
        tt_comm_abort(comm);
        return TT_OK;
    }
    while (status == TT_OK) status = tt_comm_poll(comm);
    snprintf(wanted, sizeof wanted, "rank 1 failed: a bad row in run %d", (int)run);
    TEST_RANK_CHECK(test_failed_with(status, TT_ERR_PEER, wanted));
    return TT_OK;
}

/* A rank that sees a failure also sees its cause, however closely it polls. */
static void a_failure_is_polled(void **state)
{
    (void)state;
    enum { RUNS = 400 };
    for (uint64_t run = 0; run < RUNS; run++) test_ranks(2 + (int)(run % 2), polling_rank, &run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_in_every_world),
        cmocka_unit_test(agreement),
        cmocka_unit_test(a_status_without_a_record),
        cmocka_unit_test(ranks_that_call_different_things),
        cmocka_unit_test(splitting),
        cmocka_unit_test(groups_of_a_family_fail_together),
        cmocka_unit_test(a_rank_that_leaves_has_failed),
        cmocka_unit_test(an_abort_from_outside_wakes_all),
        cmocka_unit_test(a_failure_is_polled),
        cmocka_unit_test(the_plan_device_moves_nothing),
        cmocka_unit_test(groups_that_cannot_be),
        cmocka_unit_test(splits_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
