/* Which ranks share what, for each way to split a world of four. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "engine/mesh.h"
#include "support/ranks.h"

enum { WORLD = 4 };

struct wanted {
    enum tt_shard_strategy strategy;
    int part_count, copies;
    int part[WORLD];
    bool first_copy[WORLD];
    int shard, replicate; /* sizes; 0: none */
};

static const struct wanted cases[] = {
    {TT_FULL_SHARD, 4, 1, {0, 1, 2, 3}, {true, true, true, true}, 4, 0},
    {TT_NO_SHARD, 1, 4, {0, 0, 0, 0}, {true, false, false, false}, 4, 0},
    {TT_HYBRID_SHARD, 2, 2, {0, 1, 0, 1}, {true, true, false, false}, 2, 2},
};

static struct tt_mesh_config config_of(struct tt_comm *comm, const struct wanted *wanted)
{
    int rank = tt_comm_rank(comm);
    return (struct tt_mesh_config){
        .world = comm, .machine = rank / 2, .local_rank = rank % 2, .strategy = wanted->strategy};
}

/* A group of `size` in which this rank and those beside it, `stride` apart, stand in order. */
static tt_status check_group(struct tt_comm *group, int size, int stride, int rank)
{
    int all[WORLD];
    TEST_RANK_CHECK((group == NULL) == (size == 0));
    if (group == NULL) return TT_OK;
    TEST_RANK_CHECK(tt_comm_world_size(group) == size);
    TT_TRY(tt_comm_host_all_gather(group, &rank, all, sizeof rank));
    TEST_RANK_CHECK(all[tt_comm_rank(group)] == rank);
    for (int i = 1; i < size; i++) TEST_RANK_CHECK(all[i] == all[i - 1] + stride);
    return TT_OK;
}

static tt_status check_mesh(const struct tt_mesh *mesh, const struct wanted *wanted, int rank)
{
    const struct tt_mesh_axis *axes = mesh->axes;
    TEST_RANK_CHECK(axes[TT_AXIS_DATA].rank == rank && axes[TT_AXIS_DATA].size == WORLD);
    TEST_RANK_CHECK(axes[TT_AXIS_SHARD].rank == tt_comm_rank(axes[TT_AXIS_SHARD].comm));
    TEST_RANK_CHECK(axes[TT_AXIS_EXPERT].comm == NULL && axes[TT_AXIS_EXPERT].size == 1);
    TEST_RANK_CHECK(mesh->part_count == wanted->part_count && mesh->part == wanted->part[rank]);
    TEST_RANK_CHECK(mesh->copies == wanted->copies && mesh->first_copy == wanted->first_copy[rank]);
    TT_TRY(check_group(mesh->world, WORLD, 1, rank));
    TT_TRY(check_group(axes[TT_AXIS_SHARD].comm, wanted->shard, 1, rank));
    return check_group(axes[TT_AXIS_REPLICATE].comm, wanted->replicate, 2, rank);
}

static tt_status mesh_rank(struct tt_comm *comm, void *argument)
{
    const struct wanted *wanted = argument;
    struct tt_device *device = NULL;
    struct tt_mesh mesh = {0};
    tt_status status = TT_OK;
    const struct tt_mesh_config config = config_of(comm, wanted);
    TT_GO(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &device));
    TT_GO(tt_mesh_init(&config, device, &mesh));
    TT_GO(check_mesh(&mesh, wanted, tt_comm_rank(comm)));
out:
    tt_mesh_deinit(&mesh);
    tt_device_close(device);
    return status;
}

static void every_split(void **state)
{
    (void)state;
    uint64_t live = tt_alloc_live();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        test_ranks(WORLD, mesh_rank, (void *)(uintptr_t)&cases[i]);
    assert_true(tt_alloc_live() == live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
