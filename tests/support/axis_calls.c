#include "support/axis_calls.h"

#include "support/ranks.h"

enum { ROWS_MOST = 3, WIDTH = 2, ROOM = TEST_RANKS_MAX * ROWS_MOST };

static const enum tt_axis added = TT_AXIS_COUNT;

tt_status test_axis_open(struct tt_comm *comm, struct test_axis_desk *desk)
{
    int world = tt_comm_world_size(comm), first = world % 2 == 0 ? 2 : world;
    *desk = (struct test_axis_desk){
        .specs = {{TT_AXIS_EXPERT, first, false}, {added, world / first % 2 == 0 ? 2 : 1, true}}};
    const struct tt_mesh_config config = {.world = comm, .axes = {desk->specs, 2}, .strategy = TT_FULL_SHARD};
    tt_status status = TT_OK;
    TT_GO(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &desk->device));
    TT_GO(tt_stream_create(desk->device, &desk->stream));
    TT_GO(tt_mesh_init(&config, desk->device, &desk->mesh));
    TT_GO(tt_axis_exchange_init(&desk->mesh, &desk->exchange));
out:
    if (status != TT_OK) test_axis_close(desk);
    return status;
}

void test_axis_close(struct test_axis_desk *desk)
{
    tt_axis_exchange_deinit(&desk->exchange);
    tt_mesh_deinit(&desk->mesh);
    if (desk->stream != NULL) tt_stream_destroy(desk->stream);
    tt_device_close(desk->device);
    *desk = (struct test_axis_desk){.device = NULL};
}

/* Whether two ranks are in one group: all their other places agree. */
static bool are_together(const struct test_axis_desk *desk, enum tt_axis axis, int a, int b)
{
    int first = desk->specs[0].size, second = desk->specs[1].size;
    bool same_second = a / first % second == b / first % second,
         same_rest = a / first / second == b / first / second;
    if (axis == TT_AXIS_DATA) return same_second;
    return axis == TT_AXIS_EXPERT ? same_second && same_rest : a % first == b % first && same_rest;
}

/* The ranks of the group in order; returns their number. */
static int find_members(const struct test_axis_desk *desk, enum tt_axis axis, int rank, int *members)
{
    int count = 0;
    for (int q = 0; q < tt_comm_world_size(desk->mesh.world); q++)
        if (are_together(desk, axis, rank, q)) members[count++] = q;
    return count;
}

static tt_status check_sum(const struct test_axis_desk *desk, enum tt_axis axis, int rank, const int *members,
                           int size)
{
    float values[2] = {(float)rank + 1, (float)(rank * rank)}, wanted[2] = {0};
    int64_t whole = rank + 1, wanted_whole = 0;
    for (int i = 0; i < size; i++) {
        wanted[0] += (float)members[i] + 1;
        wanted[1] += (float)(members[i] * members[i]);
        wanted_whole += members[i] + 1;
    }
    TT_TRY(tt_axis_sum(&desk->exchange, desk->stream, axis, tt_tensor_1d(values, TT_F32, 2)));
    TT_TRY(tt_axis_sum(&desk->exchange, desk->stream, axis, tt_tensor_1d(&whole, TT_I64, 1)));
    TEST_RANK_CHECK(values[0] == wanted[0] && values[1] == wanted[1] && whole == wanted_whole);
    return TT_OK;
}

static tt_status check_gather(const struct test_axis_desk *desk, enum tt_axis axis, int rank,
                              const int *members, int size)
{
    float values[2] = {(float)rank, (float)-rank}, all[2 * TEST_RANKS_MAX] = {0};
    TT_TRY(tt_axis_gather(&desk->exchange, desk->stream, axis, tt_tensor_1d(values, TT_F32, 2),
                          tt_tensor_1d(all, TT_F32, 2 * (int64_t)size)));
    for (int i = 0; i < size; i++)
        TEST_RANK_CHECK(all[2 * i] == (float)members[i] && all[2 * i + 1] == (float)-members[i]);
    return TT_OK;
}

/* The last rank has no rows, and nobody has any for it. */
static int64_t rows_between(const struct test_axis_desk *desk, enum tt_axis axis, int from, int to)
{
    int last = tt_comm_world_size(desk->mesh.world) - 1;
    if (last > 0 && (from == last || to == last)) return 0;
    return (from * 3 + to * 5 + (int)axis) % (ROWS_MOST + 1);
}

static float value_of(int from, int to, int64_t row)
{
    return (float)(from * 1000 + to * 10 + (int)row);
}

static tt_status check_rows(const struct test_axis_desk *desk, enum tt_axis axis, int rank,
                            const int *members, int size)
{
    float send[ROOM * WIDTH] = {0}, recv[ROOM * WIDTH] = {0};
    int64_t sent[TEST_RANKS_MAX], received[TEST_RANKS_MAX], send_count = 0, recv_count = 0;
    for (int i = 0; i < size; i++) {
        sent[i] = rows_between(desk, axis, rank, members[i]);
        received[i] = rows_between(desk, axis, members[i], rank);
        for (int64_t row = 0; row < sent[i]; row++, send_count++)
            send[send_count * WIDTH] = value_of(rank, members[i], row);
        recv_count += received[i];
    }
    const struct tt_all_to_all rows = {tt_tensor_2d(send, TT_F32, send_count, WIDTH),
                                       tt_tensor_2d(recv, TT_F32, recv_count, WIDTH), sent, received};
    TT_TRY(tt_axis_all_to_all(&desk->exchange, desk->stream, axis, &rows));
    int64_t at = 0;
    for (int i = 0; i < size; i++)
        for (int64_t row = 0; row < received[i]; row++, at++)
            TEST_RANK_CHECK(recv[at * WIDTH] == value_of(members[i], rank, row));
    return TT_OK;
}

static tt_status check_axes(const struct test_axis_desk *desk, int rank)
{
    const enum tt_axis axes[] = {TT_AXIS_DATA, TT_AXIS_EXPERT, added};
    int members[TEST_RANKS_MAX];
    for (int i = 0; i < 3; i++) {
        int size = find_members(desk, axes[i], rank, members);
        const struct tt_mesh_axis *group = &desk->mesh.axes[axes[i]];
        TEST_RANK_CHECK(group->size == size && members[group->rank] == rank);
        TT_TRY(check_sum(desk, axes[i], rank, members, size));
        TT_TRY(check_gather(desk, axes[i], rank, members, size));
        TT_TRY(check_rows(desk, axes[i], rank, members, size));
    }
    return TT_OK;
}

tt_status test_axis_calls(struct tt_comm *comm)
{
    struct test_axis_desk desk;
    TT_TRY(test_axis_open(comm, &desk));
    tt_status status = check_axes(&desk, tt_comm_rank(comm));
    test_axis_close(&desk);
    return status;
}
