/* Ranks that read each other's memory: on cpus too, where streams run at once, every call gives what its
 * header says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "comm/comm_impl.h"
#include "support/comm_calls.h"
#include "support/gpu_comm.h"
#include "support/ranks.h"

enum { COUNT = 1003, SEED = 5 };

/* What this rank works with. */
struct desk {
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_comm *comm;
};

static tt_status open_desk(struct tt_comm *control, struct desk *desk)
{
    struct tt_device_config config = {.kind = "cpu", .threads = 1, .index = tt_comm_rank(control)};
    bool shares = false;
    TT_TRY(tt_device_open(&config, &desk->device));
    TT_TRY(tt_stream_create(desk->device, &desk->stream));
    TT_TRY(tt_comm_shares_memory(control, desk->device, true, &shares));
    TEST_RANK_CHECK(shares);
    return tt_comm_create_peers(control, desk->device, &desk->comm);
}

static void close_desk(struct desk *desk)
{
    tt_comm_destroy(desk->comm);
    if (desk->stream != NULL) tt_stream_destroy(desk->stream);
    tt_device_close(desk->device);
}

/* `to` = own, plus the others beginning with the next rank after `owner`, each addition rounded to the type.
 */
static void sum_in_turn(void *to, tt_dtype dtype, size_t count, int owner, int world)
{
    size_t element = tt_dtype_bytes(dtype);
    char *other = tt_calloc(count, element);
    test_comm_fill(to, dtype, count, SEED, owner);
    for (int i = 1; i < world; i++) {
        test_comm_fill(other, dtype, count, SEED, (owner + i) % world);
        const void *both[] = {to, other};
        test_reduce_scalar(to, both, 2, count, dtype, TT_REDUCE_SUM);
    }
    tt_free(other);
}

static tt_status check_reduce(struct desk *desk, tt_dtype dtype)
{
    struct tt_comm *comm = desk->comm;
    int world = tt_comm_world_size(comm), rank = tt_comm_rank(comm);
    size_t element = tt_dtype_bytes(dtype), total = (size_t)world * COUNT;
    char *data = tt_calloc(total, element), *wanted = tt_calloc(total, element);
    tt_status status = TT_OK;
    test_comm_fill(data, dtype, total, SEED, rank);
    sum_in_turn(wanted, dtype, total, rank, world);
    char *own = data + (size_t)rank * COUNT * element;
    TT_GO(tt_comm_reduce_scatter(comm, desk->stream, data, own, COUNT, dtype)); /* in place */
    if (memcmp(own, wanted + (size_t)rank * COUNT * element, COUNT * element) != 0)
        TT_GO(tt_fail(TT_ERR_INTERNAL, "reduce-scatter of %s", tt_dtype_name(dtype)));

    test_comm_fill(data, dtype, total, SEED, rank);
    TT_GO(tt_comm_all_reduce(comm, desk->stream, data, COUNT, dtype, TT_REDUCE_SUM));
    size_t slice = (COUNT + (size_t)world * 8 - 1) / ((size_t)world * 8) * 8;
    for (int owner = 0; owner < world; owner++) {
        size_t first = (size_t)owner * slice, last = first + slice < COUNT ? first + slice : COUNT;
        sum_in_turn(wanted, dtype, total, owner, world);
        if (first < last &&
            memcmp(data + first * element, wanted + first * element, (last - first) * element) != 0)
            TT_GO(tt_fail(TT_ERR_INTERNAL, "all-reduce of %s, slice %d", tt_dtype_name(dtype), owner));
    }
out:
    tt_free(data);
    tt_free(wanted);
    return status;
}

static tt_status check_gather(struct desk *desk, bool in_place)
{
    struct tt_comm *comm = desk->comm;
    int world = tt_comm_world_size(comm), rank = tt_comm_rank(comm);
    char *all = tt_calloc((size_t)world, COUNT), *own = tt_calloc(1, COUNT);
    tt_status status = TT_OK;
    char *send = in_place ? all + (size_t)rank * COUNT : own;
    memset(send, 'a' + rank, COUNT);
    TT_GO(tt_comm_all_gather(comm, desk->stream, send, all, COUNT));
    for (size_t i = 0; i < (size_t)world * COUNT; i++)
        if (all[i] != 'a' + (int)(i / COUNT)) TT_GO(tt_fail(TT_ERR_INTERNAL, "all-gather at %zu", i));
out:
    tt_free(all);
    tt_free(own);
    return status;
}

static tt_status calls_rank(struct tt_comm *control, void *argument)
{
    struct desk desk = {0};
    tt_status status = TT_OK;
    (void)argument;
    TT_GO(open_desk(control, &desk));
    for (int round = 0; round < 20; round++) {
        TT_GO(check_gather(&desk, round % 2 == 0));
        TT_GO(check_reduce(&desk, round % 2 == 0 ? TT_F32 : TT_BF16));
    }
    int64_t number = tt_comm_rank(desk.comm);
    TT_GO(tt_comm_agree(desk.comm, TT_OK));
    tt_status wanted = tt_comm_world_size(control) == 1 ? TT_OK : TT_ERR_UNSUPPORTED; /* nothing to add */
    if (tt_comm_all_reduce(desk.comm, desk.stream, &number, 1, TT_I64, TT_REDUCE_MAX) != wanted)
        TT_GO(tt_fail(TT_ERR_INTERNAL, "a maximum of integers was taken"));
out:
    close_desk(&desk);
    return status;
}

static void every_call(void **state)
{
    (void)state;
    for (int world = 1; world <= 5; world++) test_ranks(world, calls_rank, NULL);
}

static tt_status split_rank(struct tt_comm *control, void *argument)
{
    struct desk desk = {0}, part = {0};
    tt_status status = TT_OK;
    (void)argument;
    TT_GO(open_desk(control, &desk));
    part = desk;
    TT_GO(tt_comm_split(desk.comm, tt_comm_rank(control) % 2, &part.comm));
    TT_GO(check_gather(&part, true));
    TT_GO(check_reduce(&part, TT_F32));
    tt_comm_destroy(part.comm);
    TT_GO(check_reduce(&desk, TT_F32));
out:
    close_desk(&desk);
    return status;
}

static void parts(void **state)
{
    (void)state;
    test_ranks(4, split_rank, NULL);
}

static tt_status exchange_rank(struct tt_comm *control, void *argument)
{
    struct desk desk = {0};
    tt_status status = TT_OK;
    (void)argument;
    TT_GO(open_desk(control, &desk));
    TT_GO(test_gpu_comm_exchange(desk.comm, desk.device, desk.stream));
    TT_GO(check_gather(&desk, true)); /* what the exchange left behind disturbs nothing */
    TT_GO(test_gpu_comm_exchange(desk.comm, desk.device, desk.stream));
out:
    close_desk(&desk);
    return status;
}

static void exchanges(void **state)
{
    (void)state;
    for (int world = 1; world <= 5; world++) test_ranks(world, exchange_rank, NULL);
}

/* Rank 0 sends a byte more than rank 1 expects: both end, and rank 1 has said why. */
static tt_status uneven_rank(struct tt_comm *control, void *argument)
{
    struct desk desk = {0};
    tt_status status = TT_OK;
    char sent[2] = "a", got[2] = "";
    struct tt_comm_part parts[2] = {0};
    (void)argument;
    int rank = tt_comm_rank(control);
    TT_GO(open_desk(control, &desk));
    if (rank == 0) parts[1] = (struct tt_comm_part){.send = sent, .send_bytes = 2};
    if (rank == 1) parts[0] = (struct tt_comm_part){.recv = got, .recv_bytes = 1};
    status = desk.comm->table->exchange(desk.comm,
                                        &(struct tt_comm_exchange){.stream = desk.stream, .parts = parts});
    if (status != TT_OK) tt_comm_abort(desk.comm);
out:
    close_desk(&desk);
    return status;
}

static void uneven_parts(void **state)
{
    (void)state;
    struct tt_error outcomes[2];
    test_ranks_outcomes(2, uneven_rank, NULL, outcomes);
    assert_int_equal(outcomes[1].status, TT_ERR_INTERNAL);
    assert_string_equal(outcomes[1].message, "rank 0 sends 2 bytes to rank 1, which expects 1");
    assert_int_equal(outcomes[0].status, TT_ERR_PEER);
}

static tt_status ordered_rank(struct tt_comm *control, void *argument)
{
    struct desk desk = {0}, part = {0};
    tt_status status = TT_OK;
    (void)argument;
    TT_GO(open_desk(control, &desk));
    TT_GO(test_gpu_comm_ordered(desk.comm, desk.device, desk.stream, 5003, 0));
    TT_GO(test_gpu_comm_ordered(desk.comm, desk.device, desk.stream, 5003, 768));
    part = desk;
    TT_GO(tt_comm_split(desk.comm, tt_comm_rank(control) % 2, &part.comm));
    TT_GO(check_reduce(&part, TT_BF16)); /* in turn: a part is ordered by itself */
    TT_GO(test_gpu_comm_ordered(part.comm, desk.device, desk.stream, 2000, 0));
    tt_comm_destroy(part.comm);
    TT_GO(test_gpu_comm_ordered(desk.comm, desk.device, desk.stream, 2000, 256));
    tt_comm_release_sums(desk.comm);
    TT_GO(check_reduce(&desk, TT_BF16));
out:
    close_desk(&desk);
    return status;
}

static void sums_in_order_of_rank(void **state)
{
    (void)state;
    for (int world = 1; world <= 5; world++) test_ranks(world, ordered_rank, NULL);
}

/* Rank 1 fails where the others are in a call: they end with its message, and all memory is given back. */
static tt_status failing_rank(struct tt_comm *control, void *argument)
{
    struct desk desk = {0};
    tt_status status = TT_OK;
    (void)argument;
    TT_GO(open_desk(control, &desk));
    TT_GO(check_gather(&desk, true));
    if (tt_comm_rank(control) == 1) {
        status = tt_fail(TT_ERR_DATA, "rank 1 has had enough");
        tt_comm_abort(desk.comm);
    } else {
        status = check_reduce(&desk, TT_F32);
    }
out:
    close_desk(&desk);
    return status;
}

static void a_rank_that_fails(void **state)
{
    (void)state;
    struct tt_error outcomes[3];
    test_ranks_outcomes(3, failing_rank, NULL, outcomes);
    assert_int_equal(outcomes[1].status, TT_ERR_DATA);
    assert_int_equal(outcomes[0].status, TT_ERR_PEER);
    assert_int_equal(outcomes[2].status, TT_ERR_PEER);
    assert_non_null(strstr(outcomes[0].message, "rank 1 has had enough"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call),
        cmocka_unit_test(parts),
        cmocka_unit_test(exchanges),
        cmocka_unit_test(uneven_parts),
        cmocka_unit_test(sums_in_order_of_rank),
        cmocka_unit_test(a_rank_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
