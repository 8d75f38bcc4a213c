/* Moments of 8 bits on one, two and four ranks: the same gradients give the same masters, codes and sizes, bit for bit,
 * because no border of ranks cuts a block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "backend/ops/optim.h"
#include "optim/moments.h"
#include "shard/unit.h"
#include "support/ranks.h"

enum { PARAMS = 4, ELEMENTS_MAX = 20000, STEPS = 5, RUNS_MAX = PARAMS };

/* 5110 elements are no whole number of blocks; the third keeps 32 bits for its place, the second for its size. */
static const struct {
    int64_t rows, cols;
    enum tt_param_place place;
    enum tt_decay decay;
} shapes[PARAMS] = {{70, 73, TT_PLACE_INSIDE, TT_DECAY_FULL},
                    {3, 100, TT_PLACE_INSIDE, TT_DECAY_NONE},
                    {50, 100, TT_PLACE_EMBEDDING, TT_DECAY_FULL},
                    {90, 211, TT_PLACE_INSIDE, TT_DECAY_FULL}};

/* Of the whole parameters, written by all ranks: each its own pieces. */
struct result {
    float masters[PARAMS][ELEMENTS_MAX];
    char values[PARAMS][TT_STATE_VALUES][ELEMENTS_MAX * sizeof(float)];
};

struct scene {
    const char *optim;
    struct result *result;
    int cuts[TEST_RANKS_MAX]; /* pieces that begin inside of a coded tensor */
};

static float gradient_of(int param, int64_t element, int step)
{
    uint32_t x = (uint32_t)(element * 2654435761u + (uint32_t)(param * 97 + step) * 40503u);
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    float unit = (float)(x >> 8) / (float)(1 << 24) - 0.5f;
    return unit * unit * unit * 0.1f;
}

static int index_of(const tt_param *params, const tt_param *param)
{
    return (int)(param - params);
}

static tt_status collect(const struct scene *scene, const struct tt_optimizer *optimizer,
                         const tt_param *params, const struct tt_piece *piece,
                         const struct tt_moments *moments)
{
    int p = index_of(params, piece->param);
    struct tt_state_value value;
    memcpy(scene->result->masters[p] + piece->first, piece->data, (size_t)piece->count * sizeof(float));
    for (int i = 0; i < TT_STATE_VALUES; i++) {
        if (!tt_optimizer_value(optimizer, piece->param, i, &value)) continue;
        size_t size = tt_dtype_bytes(value.dtype);
        TEST_RANK_CHECK(piece->first % value.block == 0);
        memcpy(scene->result->values[p][i] + (size_t)(piece->first / value.block) * size,
               tt_moments_value(moments, i, piece->slice_offset),
               (size_t)((piece->count + value.block - 1) / value.block) * size);
    }
    return TT_OK;
}

static tt_status train(const struct scene *scene, const struct tt_optim_config *config, tt_param *params,
                       struct tt_unit *unit, struct tt_device *device, struct tt_stream *stream, int *cuts)
{
    const struct tt_optimizer *optimizer = tt_optimizer_of(config);
    struct tt_slices slices = tt_unit_slices(unit);
    struct tt_moments_run runs[RUNS_MAX];
    struct tt_moments moments;
    size_t count = tt_unit_run_count(unit);
    TEST_RANK_CHECK(count <= RUNS_MAX);
    for (size_t r = 0; r < count; r++) {
        struct tt_slice_run run = tt_unit_run(unit, r);
        runs[r] = (struct tt_moments_run){.param = run.param, .offset = run.offset, .count = run.count};
    }
    TT_TRY(tt_moments_init(device, optimizer, runs, count, slices.count, false, &moments));
    tt_status status = TT_OK;
    for (int step = 1; step <= STEPS; step++) {
        for (size_t i = 0; i < tt_unit_piece_count(unit); i++) {
            struct tt_piece piece = tt_unit_piece(unit, i);
            int p = index_of(params, piece.param);
            for (int64_t e = 0; e < piece.count; e++) {
                if (step == 1) ((float *)piece.data)[e] = gradient_of(p, piece.first + e, 99);
                slices.grad[piece.slice_offset + e] = gradient_of(p, piece.first + e, step);
            }
        }
        const struct tt_moments_step update = {slices.master, slices.grad, 1e-3, 0.7f, step};
        TT_GO(tt_moments_update(stream, optimizer, config, &moments, &update));
    }
    for (size_t i = 0; i < tt_unit_piece_count(unit); i++) {
        struct tt_piece piece = tt_unit_piece(unit, i);
        *cuts += piece.first > 0 && tt_optimizer_codes(optimizer, piece.param);
        if (piece.count > 0) TT_GO(collect(scene, optimizer, params, &piece, &moments));
    }
out:
    tt_moments_deinit(&moments);
    return status;
}

static tt_status rank_main(struct tt_comm *comm, void *argument)
{
    struct scene *scene = argument;
    const struct tt_optim_config config = {.optim = scene->optim,
                                           .adam_beta1 = 0.9,
                                           .adam_beta2 = 0.99,
                                           .adam_epsilon = 1e-8,
                                           .weight_decay = 0.1};
    tt_param params[PARAMS], *list[PARAMS];
    struct tt_shard_config shard = {.strategy = TT_FULL_SHARD,
                                    .shard_comm = comm,
                                    .compute_dtype = TT_F32,
                                    .reduce_dtype = TT_F32,
                                    .trainable_alignment = tt_optimizer_alignment(tt_optimizer_of(&config)),
                                    .train = true};
    struct tt_shard_context *context = NULL;
    struct tt_unit *unit = NULL;
    tt_status status = TT_OK;
    for (int p = 0; p < PARAMS; p++) {
        params[p] =
            (tt_param){.name = "x", .stored_dtype = TT_F32, .rank = 2, .trainable = true, .lr_scale = 1.0};
        params[p].dims[0] = shapes[p].rows, params[p].dims[1] = shapes[p].cols;
        params[p].place = shapes[p].place, params[p].weight_decay = shapes[p].decay;
        list[p] = &params[p];
    }
    TT_GO(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &shard.device));
    TT_GO(tt_stream_create(shard.device, &shard.compute));
    TT_GO(tt_shard_context_create(&shard, &context));
    TT_GO(tt_unit_create(context, "unit", list, PARAMS, 1, &unit));
    TT_GO(tt_shard_context_seal(context, 1));
    TT_GO(train(scene, &config, params, unit, shard.device, shard.compute, &scene->cuts[tt_comm_rank(comm)]));
out:
    tt_unit_destroy(unit);
    tt_shard_context_destroy(context);
    if (shard.compute != NULL) tt_stream_destroy(shard.compute);
    if (shard.device != NULL) tt_device_close(shard.device);
    return status;
}

static void check_optimizer(const char *optim)
{
    static struct result results[3];
    memset(results, 0, sizeof results);
    for (int i = 0; i < 3; i++) {
        struct scene scene = {.optim = optim, .result = &results[i]};
        int cuts = 0;
        test_ranks(1 << i, rank_main, &scene);
        for (int r = 0; r < 1 << i; r++) cuts += scene.cuts[r];
        assert_true(i < 2 || cuts > 0); /* four ranks share coded tensors */
        for (int p = 0; p < PARAMS; p++) {
            assert_memory_equal(results[i].masters[p], results[0].masters[p], sizeof results[i].masters[p]);
            for (int v = 0; v < TT_STATE_VALUES; v++)
                assert_memory_equal(results[i].values[p][v], results[0].values[p][v],
                                    sizeof results[i].values[p][v]);
        }
    }
    /* There is something to compare: sizes of the last tensor's blocks. */
    assert_true(((float *)(void *)results[0].values[3][TT_MOMENTS_MAX])[74] > 0);
}

static void ranks_change_no_bit(void **state)
{
    (void)state;
    check_optimizer("adamw_8bit");
    check_optimizer("paged_lion_8bit");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_change_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
