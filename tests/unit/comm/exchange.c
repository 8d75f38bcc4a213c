/* All-to-all over threads, tcp and peers: a rank that fails inside ends the wait of all others, parts whose sizes
 * differ are an error, and the plan device counts. The bytes themselves: support/comm_calls.c, for every kind of
 * communicator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "backend/plan/plan.h"
#include "base/alloc.h"
#include "support/ranks.h"
#include "support/tcp_ranks.h"

enum { BYTES = 1 << 20, ROUNDS = 100 };

enum way {
    FAILS_BETWEEN, /* rank 1 fails after some exchanges, while the others are in the next one */
    EXPECTS_LESS,  /* rank 1 expects fewer bytes of rank 0 than that sends */
    SENDS_TO_ITSELF
};

struct desk {
    struct tt_device *device;
    struct tt_stream *stream;
    char *memory;
    struct tt_comm_part parts[TEST_RANKS_MAX];
};

static tt_status open_desk(struct tt_comm *comm, struct desk *desk)
{
    int world = tt_comm_world_size(comm);
    *desk = (struct desk){0};
    TT_TRY(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &desk->device));
    TT_TRY(tt_stream_create(desk->device, &desk->stream));
    desk->memory = tt_calloc((size_t)world * 2, BYTES);
    if (desk->memory == NULL) return TT_ERR_MEMORY;
    for (int q = 0; q < world; q++)
        desk->parts[q] = (struct tt_comm_part){.send = desk->memory + (size_t)q * BYTES,
                                               .send_bytes = BYTES,
                                               .recv = desk->memory + (size_t)(world + q) * BYTES,
                                               .recv_bytes = BYTES};
    return TT_OK;
}

static void close_desk(struct desk *desk)
{
    tt_free(desk->memory);
    if (desk->stream != NULL) tt_stream_destroy(desk->stream);
    tt_device_close(desk->device);
}

static tt_status exchange(struct tt_comm *comm, struct desk *desk, enum way way)
{
    int rank = tt_comm_rank(comm);
    if (way == EXPECTS_LESS && rank == 1) desk->parts[0].recv_bytes = 7;
    if (way == SENDS_TO_ITSELF) desk->parts[rank].send_bytes = 9;
    for (int round = 0; round < ROUNDS; round++) {
        if (way == FAILS_BETWEEN && rank == 1 && round == 3) return tt_fail(TT_ERR_DATA, "a bad row");
        TT_TRY(tt_comm_exchange(comm, desk->stream, desk->parts));
    }
    return TT_OK;
}

static tt_status rank_main(struct tt_comm *comm, void *argument)
{
    struct desk desk;
    tt_status status = open_desk(comm, &desk);
    if (status == TT_OK) status = exchange(comm, &desk, *(enum way *)argument);
    close_desk(&desk);
    return status;
}

/* The same over copies of threads that read each other's memory. */
static tt_status peers_main(struct tt_comm *control, void *argument)
{
    struct desk desk;
    struct tt_comm *comm = NULL;
    tt_status status = open_desk(control, &desk);
    if (status == TT_OK) status = tt_comm_create_peers(control, desk.device, &comm);
    if (status == TT_OK) status = exchange(comm, &desk, *(enum way *)argument);
    if (status != TT_OK) tt_comm_abort(control);
    tt_comm_destroy(comm);
    close_desk(&desk);
    return status;
}

static void check_failed(const struct tt_error *errors, int world)
{
    for (int q = 0; q < world; q++) {
        assert_int_equal(errors[q].status, q == 1 ? TT_ERR_DATA : TT_ERR_PEER);
        assert_non_null(strstr(errors[q].message, q == 1 ? "a bad row" : "rank 1 failed: a bad row"));
    }
}

static void a_rank_that_fails_inside(void **state)
{
    (void)state;
    enum way way = FAILS_BETWEEN;
    struct tt_error errors[TEST_RANKS_MAX];
    struct test_tcp_process processes[4];
    for (int world = 2; world <= 4; world *= 2) {
        test_ranks_outcomes(world, rank_main, &way, errors);
        check_failed(errors, world);
        test_ranks_outcomes(world, peers_main, &way, errors);
        check_failed(errors, world);
        test_tcp_prepare(processes, world, 1, rank_main, &way);
        test_tcp_run(processes, world);
        for (int q = 0; q < world; q++) errors[q] = processes[q].error;
        check_failed(errors, world);
    }
}

static void sizes_that_differ(void **state)
{
    (void)state;
    enum way way = EXPECTS_LESS;
    struct tt_error errors[2];
    struct test_tcp_process processes[2];
    static const char wanted[] = "rank 0 sends 1048576 bytes to rank 1, which expects 7";
    test_ranks_outcomes(2, rank_main, &way, errors);
    assert_int_equal(errors[1].status, TT_ERR_INTERNAL);
    assert_string_equal(errors[1].message, wanted);
    test_ranks_outcomes(2, peers_main, &way, errors);
    assert_string_equal(errors[1].message, wanted);
    test_tcp_prepare(processes, 2, 1, rank_main, &way);
    test_tcp_run(processes, 2);
    assert_int_equal(processes[1].status, TT_ERR_INTERNAL);
    assert_string_equal(processes[1].error.message, wanted);
}

static void a_part_of_its_own(void **state)
{
    (void)state;
    enum way way = SENDS_TO_ITSELF;
    struct tt_error error;
    test_ranks_outcomes(1, rank_main, &way, &error);
    assert_int_equal(error.status, TT_ERR_INTERNAL);
    assert_string_equal(error.message, "rank 0 sends itself 9 bytes and expects 1048576");
}

/* Seconds of an exchange of rank 0 with seven others, `local` on each machine. */
static double planned(int local, size_t inside, size_t outside)
{
    struct tt_comm *comm = NULL;
    struct tt_device *device = NULL;
    struct tt_stream *stream = NULL;
    struct tt_comm_part parts[8] = {{0}};
    const struct tt_device_config config = {
        .kind = "plan", .stands_for = "h200", .network_bytes_per_second = 1e9};
    for (int q = 1; q < 8; q++) parts[q].recv_bytes = q < 4 ? inside : outside;
    assert_int_equal(tt_device_open(&config, &device), TT_OK);
    assert_int_equal(tt_stream_create(device, &stream), TT_OK);
    assert_int_equal(tt_comm_create_planned(8, local, &comm), TT_OK);
    assert_int_equal(tt_comm_exchange(comm, stream, parts), TT_OK);
    double seconds = tt_plan_seconds(device);
    tt_comm_destroy(comm);
    tt_stream_destroy(stream);
    tt_device_close(device);
    return seconds;
}

/* Parts from other machines come over the network, which is slow here. */
static void a_plan_counts(void **state)
{
    (void)state;
    assert_true(planned(8, 0, 0) == 0);
    double linked = planned(8, BYTES, BYTES), networked = planned(4, BYTES, BYTES);
    assert_true(linked > 0);
    assert_true(networked > 4.0 * BYTES / 1e9 && networked > 2 * linked);
    assert_true(planned(4, BYTES, 0) < networked / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_fails_inside),
        cmocka_unit_test(sizes_that_differ),
        cmocka_unit_test(a_part_of_its_own),
        cmocka_unit_test(a_plan_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
