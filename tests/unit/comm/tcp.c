/* Ranks over TCP. The processes are threads here: nothing in comm/tcp.c is shared between two that were
 * created apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "comm/comm_impl.h"
#include "support/comm_calls.h"
#include "support/ranks.h"
#include "support/tcp_ranks.h"

struct digests {
    uint64_t calls[TEST_RANKS_MAX], parts[TEST_RANKS_MAX];
};

static tt_status calls_rank(struct tt_comm *comm, void *argument)
{
    struct digests *digests = argument;
    int rank = tt_comm_rank(comm);
    TT_TRY(test_comm_calls(comm, 1, &digests->calls[rank]));
    if (tt_comm_world_size(comm) <= 4) TT_TRY(test_comm_agreement(comm));
    TT_TRY(tt_comm_poll(comm));
    return test_comm_splits(comm, &digests->parts[rank]);
}

static void check_world(int count, int ranks_each)
{
    struct test_tcp_process processes[TEST_RANKS_MAX];
    struct digests got = {0}, wanted = {0};
    uint64_t live = tt_alloc_live();
    test_tcp_prepare(processes, count, ranks_each, calls_rank, &got);
    test_tcp_run(processes, count);
    test_tcp_expect_ok(processes, count);
    test_ranks(count * ranks_each, calls_rank, &wanted);
    assert_memory_equal(&got, &wanted, sizeof got);
    for (int q = 0; q < count * ranks_each; q++)
        assert_int_equal(processes[0].machines[q], q / ranks_each % 2);
    assert_true(tt_alloc_live() == live);
}

static void the_same_bits_as_threads(void **state)
{
    (void)state;
    check_world(2, 1);
    check_world(3, 1);
    check_world(2, 2);
    check_world(5, 1);
}

/* More than one message of the largest kind. */
static tt_status large_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    enum { COUNT = 2500001 };
    tt_status status = TT_OK;
    struct tt_device *device = NULL;
    struct tt_stream *stream = NULL;
    int rank = tt_comm_rank(comm);
    float *data = tt_calloc(2 * COUNT, sizeof *data);
    if (data == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &device));
    TT_GO(tt_stream_create(device, &stream));
    for (int i = 0; i < COUNT; i++) data[rank * COUNT + i] = (float)(i % 1000 + rank);
    TT_GO(tt_comm_all_gather(comm, stream, data + rank * COUNT, data, COUNT * sizeof *data));
    for (int i = 0; i < 2 * COUNT && status == TT_OK; i++)
        if (data[i] != (float)(i % COUNT % 1000 + i / COUNT))
            status = tt_fail(TT_ERR_INTERNAL, "gathered %d", i);
    if (status == TT_OK)
        status = tt_comm_reduce_scatter(comm, stream, data, data + rank * COUNT, COUNT, TT_F32);
    for (int i = 0; i < COUNT && status == TT_OK; i++)
        if (data[rank * COUNT + i] != 2.0f * (float)(i % 1000 + rank))
            status = tt_fail(TT_ERR_INTERNAL, "scattered %d", i);
    if (status == TT_OK) status = tt_comm_host_broadcast(comm, data, COUNT * sizeof *data, 1);
out:
    if (stream != NULL) tt_stream_destroy(stream);
    tt_device_close(device);
    tt_free(data);
    return status;
}

static void large_calls(void **state)
{
    (void)state;
    struct test_tcp_process processes[2];
    test_tcp_prepare(processes, 2, 1, large_rank, NULL);
    test_tcp_run(processes, 2);
    test_tcp_expect_ok(processes, 2);
}

static void ranks_that_come_late(void **state)
{
    (void)state;
    struct test_tcp_process processes[3];
    test_tcp_prepare(processes, 3, 1, test_tcp_barrier, NULL);
    processes[0].delay = 0.8;
    processes[2].delay = 0.4;
    test_tcp_run(processes, 3);
    test_tcp_expect_ok(processes, 3);
}

static void a_rank_that_never_comes(void **state)
{
    (void)state;
    struct test_tcp_process processes[3];
    test_tcp_prepare(processes, 3, 1, test_tcp_barrier, NULL);
    processes[0].config.timeout_seconds = processes[1].config.timeout_seconds = 1;
    test_tcp_run(processes, 2);
    test_tcp_expect(&processes[0], TT_ERR_COMM, "rank 2 of 3 did not connect");
    test_tcp_expect(&processes[1], TT_ERR_PEER, "rank 0 failed: rank 2 of 3 did not connect");
    assert_true(processes[1].error.reported_elsewhere);
    test_tcp_prepare(processes, 2, 1, test_tcp_barrier, NULL);
    processes[1].config.timeout_seconds = 1;
    test_tcp_run(processes + 1, 1);
    test_tcp_expect(&processes[1], TT_ERR_COMM, "rank 0 cannot be reached");
}

static void a_wait_that_is_cancelled(void **state)
{
    (void)state;
    struct test_tcp_process processes[2];
    struct tt_cancel cancel = {.requests = 1};
    test_tcp_prepare(processes, 2, 1, test_tcp_barrier, NULL);
    processes[0].config.cancel = processes[1].config.cancel = &cancel;
    test_tcp_run(processes, 1);
    test_tcp_expect(&processes[0], TT_ERR_CANCELLED, "stopped on request");
    test_tcp_run(processes + 1, 1);
    test_tcp_expect(&processes[1], TT_ERR_CANCELLED, "stopped on request");
}

/* Without a secret the process may be a stranger: it ends alone, and rank 0 knows at its own end whom it refused. */
static void settings_that_differ_without_a_secret(void **state)
{
    (void)state;
    struct test_tcp_process processes[2];
    test_tcp_prepare(processes, 2, 1, test_tcp_barrier, NULL);
    processes[1].config.settings = "command: train\nlearning_rate: 0.2\nseed: 1\n";
    processes[0].config.timeout_seconds = 2;
    test_tcp_run(processes, 2);
    test_tcp_expect(&processes[1], TT_ERR_USAGE,
                    "the settings of rank 1 differ from rank 0's in 'learning_rate'");
    test_tcp_expect(&processes[0], TT_ERR_COMM, "rank 1 of 2 did not connect");
    assert_non_null(
        strstr(processes[0].error.hint, "'learning_rate: 0.2', where rank 0 has 'learning_rate: 0.1'"));
}

static void settings_that_differ(void **state)
{
    (void)state;
    struct tt_proof_key key;
    assert_int_equal(tt_proof_key_make("the secret of this run", 22, &key), TT_OK);
    for (int late = 0; late < 2; late++) {
        struct test_tcp_process processes[3];
        test_tcp_prepare(processes, 3, 1, test_tcp_barrier, NULL);
        for (int p = 0; p < 3; p++) processes[p].config.key = &key;
        processes[1].config.settings = "command: train\nlearning_rate: 0.2\nseed: 1\n";
        /* Rank 2 has come before rank 1 ends everything: one that comes later finds nobody. */
        processes[0].delay = late ? 0 : 0.3;
        processes[1].delay = 1.5;
        test_tcp_run(processes, 3);
        test_tcp_expect(
            &processes[1], TT_ERR_USAGE,
            "the settings of rank 1 differ: 'learning_rate: 0.2', where rank 0 has 'learning_rate: 0.1'");
        test_tcp_expect(&processes[0], TT_ERR_PEER, "rank 1 failed: the settings of rank 1 differ");
        test_tcp_expect(&processes[2], TT_ERR_PEER, "rank 1 failed: the settings of rank 1 differ");
        assert_true(processes[0].error.reported_elsewhere && !processes[1].error.reported_elsewhere);
    }
}

static void worlds_that_differ(void **state)
{
    (void)state;
    struct test_tcp_process processes[2];
    test_tcp_prepare(processes, 2, 1, test_tcp_barrier, NULL);
    processes[0].config.timeout_seconds = 1;
    processes[1].config.world_size = 4;
    test_tcp_run(processes, 2);
    test_tcp_expect(&processes[1], TT_ERR_USAGE, "rank 0 was started for 2 ranks, this process for 4");
    test_tcp_expect(&processes[0], TT_ERR_COMM, "rank 1 of 2 did not connect");
}

static void two_that_claim_one_rank(void **state)
{
    (void)state;
    struct test_tcp_process processes[3];
    test_tcp_prepare(processes, 3, 1, test_tcp_barrier, NULL);
    processes[2].config.first_rank = 1;
    processes[2].delay = 1;
    for (int p = 0; p < 3; p++) processes[p].config.timeout_seconds = 2.5;
    test_tcp_run(processes, 3);
    test_tcp_expect(&processes[2], TT_ERR_COMM, "rank 1 is process");
    test_tcp_expect(&processes[0], TT_ERR_COMM, "rank 2 of 3 did not connect");
}

static tt_status failing_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    if (tt_comm_rank(comm) == 1) {
        test_sleep(0.2);
        tt_fail(TT_ERR_DATA, "a bad row");
        tt_while("reading rows");
        tt_hint("mend it");
        return TT_ERR_DATA;
    }
    for (;;) TT_TRY(tt_comm_poll(comm)); /* no call: the word comes all the same */
}

static void a_rank_that_fails(void **state)
{
    (void)state;
    struct test_tcp_process processes[4];
    test_tcp_prepare(processes, 4, 1, failing_rank, NULL);
    test_tcp_run(processes, 4);
    test_tcp_expect(&processes[1], TT_ERR_DATA, "a bad row");
    for (int p = 0; p < 4; p += p == 0 ? 2 : 1) {
        test_tcp_expect(&processes[p], TT_ERR_PEER, "rank 1 failed: a bad row");
        assert_string_equal(processes[p].error.context[0], "reading rows");
        assert_string_equal(processes[p].error.hint, "mend it");
        assert_true(processes[p].error.reported_elsewhere && processes[p].error.cause == TT_ERR_DATA);
    }
}

static tt_status leaving_rank(struct tt_comm *comm, void *argument)
{
    int leaver = *(const int *)argument;
    if (tt_comm_rank(comm) == leaver) return TT_OK;
    TEST_RANK_CHECK(tt_comm_barrier(comm) == TT_ERR_PEER);
    char wanted[40];
    snprintf(wanted, sizeof wanted, "rank %d", leaver);
    TEST_RANK_CHECK(strstr(tt_error_last()->message, wanted) != NULL);
    return TT_OK;
}

static void a_rank_that_leaves_has_failed(void **state)
{
    (void)state;
    for (int leaver = 0; leaver < 3; leaver++) {
        struct test_tcp_process processes[3];
        test_tcp_prepare(processes, 3, 1, leaving_rank, &leaver);
        test_tcp_run(processes, 3);
        test_tcp_expect_ok(processes, 3);
    }
}

static tt_status differing_rank(struct tt_comm *comm, void *argument)
{
    (void)argument;
    int rank = tt_comm_rank(comm);
    int64_t mine = rank, all[3] = {0};
    tt_status status = rank == 2 ? tt_comm_barrier(comm) : tt_comm_host_all_gather(comm, &mine, all, 8);
    TEST_RANK_CHECK(
        test_failed_with(status, TT_ERR_INTERNAL, "rank 0 calls all-gather of 8 while rank 2 calls barrier"));
    status = tt_comm_host_all_gather(comm, &mine, all, rank == 1 ? 4 : 8);
    TEST_RANK_CHECK(test_failed_with(status, TT_ERR_INTERNAL, "all-gather of 8 while rank 1"));
    TT_TRY(tt_comm_host_all_gather(comm, &mine, all, 8)); /* nothing is broken by it */
    TEST_RANK_CHECK(all[0] == 0 && all[1] == 1 && all[2] == 2);
    return test_comm_orders(comm);
}

static void ranks_that_call_different_things(void **state)
{
    (void)state;
    struct test_tcp_process processes[3];
    test_tcp_prepare(processes, 3, 1, differing_rank, NULL);
    test_tcp_run(processes, 3);
    test_tcp_expect_ok(processes, 3);
}

static void without_memory(void **state)
{
    (void)state;
    struct test_tcp_process process;
    uint64_t live = tt_alloc_live();
    for (uint64_t nth = 1; nth < 12; nth++) {
        test_tcp_prepare(&process, 1, 1, test_tcp_barrier, NULL);
        process.config.timeout_seconds = 0.5;
        struct tt_comm *comm = NULL;
        tt_alloc_fail_at(nth);
        tt_status status = tt_comm_create_tcp(&process.config, &comm, process.machines);
        tt_alloc_fail_at(0);
        assert_true((status == TT_OK) == (comm != NULL));
        tt_comm_destroy(comm);
        assert_true(tt_alloc_live() == live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_as_threads),
        cmocka_unit_test(large_calls),
        cmocka_unit_test(ranks_that_come_late),
        cmocka_unit_test(a_rank_that_never_comes),
        cmocka_unit_test(a_wait_that_is_cancelled),
        cmocka_unit_test(settings_that_differ),
        cmocka_unit_test(settings_that_differ_without_a_secret),
        cmocka_unit_test(worlds_that_differ),
        cmocka_unit_test(two_that_claim_one_rank),
        cmocka_unit_test(a_rank_that_fails),
        cmocka_unit_test(a_rank_that_leaves_has_failed),
        cmocka_unit_test(ranks_that_call_different_things),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
