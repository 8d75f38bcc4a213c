/* A detector under the executor: the losses and gradients of a global step do not depend on the ranks that share its
 * images, on the strategy, or on the micro steps, also where a rank has no image. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/workspace.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "checkpoint/load.h"
#include "comm/host_values.h"
#include "detect/anchors.h"
#include "engine/executor.h"
#include "model/retinanet.h"
#include "support/ranks.h"
#include "support/shard_world.h"

enum { IMAGES = 4, HEIGHT = 64, WIDTH = 96, CHANNELS = 8, CLASSES = 4, UNITS_MAX = 8, BOXES_MAX = 3 };

struct split {
    const char *name;
    int ranks, micro_steps;
    enum tt_shard_strategy strategy;
    int stages; /* trainable */
    enum tt_level level;
    bool batch_norm;
};

struct outcome {
    const struct split *split;
    double losses[2];  /* sums over ranks */
    float *gradients;  /* of all parameters, in order of the model */
    float *statistics; /* frozen parameters at their places: what batch norm has changed */
    int64_t count;
};

struct rank_state {
    struct outcome *outcome;
    struct test_shard_world world;
    struct tt_model *model;
    struct tt_unit *units[UNITS_MAX];
    struct tt_workspace *workspace;
    struct tt_executor *executor;
    struct tt_mesh mesh; /* of the data axis alone */
    struct tt_device_batch batch;
    struct tt_pass_results results;
    float *pixels, *anchors;
    double sums[2];
    /* boxes of the rank's images */
    float boxes[IMAGES * BOXES_MAX][4];
    int32_t labels[IMAGES * BOXES_MAX], offsets[IMAGES + 1];
};

static tt_status make_model(struct rank_state *rank)
{
    struct tt_retinanet_config config = tt_retinanet_config_default(CLASSES);
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    if (facts == NULL) return TT_ERR_MEMORY;
    config.width = 4;
    config.pyramid = 8;
    for (int i = 0; i < TT_RETINANET_STAGES; i++) config.blocks[i] = 1;
    config.trainable_stages = rank->outcome->split->stages;
    config.batch_norm = rank->outcome->split->batch_norm;
    tt_status status = tt_retinanet_facts(&config, facts);
    const struct tt_model_options options = {.compute_dtype = TT_F32, .random_init = true};
    if (status == TT_OK) status = tt_model_create(facts, &options, &rank->model);
    tt_free(facts);
    return status;
}

static tt_status make_units(struct rank_state *rank)
{
    const struct tt_load_source source = {.seed = 5};
    for (int i = 0; i < rank->model->block_count; i++) {
        struct tt_block *block = &rank->model->blocks[i];
        TT_TRY(tt_unit_create(rank->world.context, block->name, block->params, block->param_count, 1,
                              &rank->units[i]));
    }
    TT_TRY(tt_shard_context_seal(rank->world.context, 2));
    TT_TRY(tt_load_units(rank->model, rank->units, rank->world.compute, &source));
    return tt_shard_context_share(rank->world.context);
}

/* Images first .. first + count of the global step. */
static void make_batch(struct rank_state *rank, int first, int count)
{
    struct tt_anchor_grid grid = tt_anchor_grid_make(HEIGHT, WIDTH);
    struct tt_rng rng = tt_rng_make(9);
    int64_t pixels = HEIGHT * WIDTH;
    int boxes = 0;
    for (int n = 0; n < count; n++) {
        uint64_t at = (uint64_t)(first + n) << 32;
        for (int64_t i = 0; i < pixels * CHANNELS; i++)
            rank->pixels[n * pixels * CHANNELS + i] =
                i % CHANNELS < 3 ? (float)tt_rng_normal(rng, at + (uint64_t)i) : 0.0f;
        rank->offsets[n] = boxes;
        for (int b = 0; b < (first + n) % (BOXES_MAX + 1); b++, boxes++) {
            const float left = (float)(7 * b + 3 * (first + n)), top = (float)(5 * b + 2);
            const float box[4] = {left, top, left + 20 + (float)b, top + 30};
            memcpy(rank->boxes[boxes], box, sizeof box);
            rank->labels[boxes] = 1 + (first + n + b) % (CLASSES - 1);
        }
    }
    rank->offsets[count] = boxes;
    tt_anchor_grid_write(&grid, rank->anchors);
    rank->batch = (struct tt_device_batch){.attachment_count = 1};
    rank->batch.attachments[0] = (struct tt_attachment){
        .kind = TT_ATTACHED_IMAGES,
        .count = count,
        .height = HEIGHT,
        .width = WIDTH,
        .pixels_PC = tt_tensor_2d(rank->pixels, TT_F32, count * pixels, CHANNELS),
        .boxes = {.boxes_M4 = tt_tensor_2d(rank->boxes, TT_F32, boxes, 4),
                  .labels_M = tt_tensor_1d(rank->labels, TT_I32, boxes),
                  .offsets = tt_tensor_1d(rank->offsets, TT_I32, count + 1),
                  .anchors_A4 = tt_tensor_2d(rank->anchors, TT_F32, grid.count, 4),
                  .weight = 1.0f / IMAGES},
    };
}

static tt_status run_step(struct rank_state *rank)
{
    const struct split *split = rank->outcome->split;
    int parts = split->ranks * split->micro_steps;
    for (int micro = 0; micro < split->micro_steps; micro++) {
        int part = micro * split->ranks + rank->world.rank;
        int first = IMAGES * part / parts, end = IMAGES * (part + 1) / parts;
        make_batch(rank, first, end - first);
        struct tt_pass pass = {
            .lent = {.stream = rank->world.compute, .workspace = rank->workspace},
            .in = {.batch = &rank->batch, .compute_dtype = TT_F32, .training = true, .gradient = true},
            .out = &rank->results};
        tt_status status = tt_executor_forward(rank->executor, &pass);
        if (status == TT_OK)
            status = tt_executor_backward(rank->executor, &pass, micro + 1 == split->micro_steps);
        tt_executor_end(rank->executor);
        TT_TRY(status);
    }
    return tt_shard_context_join(rank->world.context);
}

/* Every rank writes its slices at their places; replicas write the same values, so the first does. */
static void keep_gradients(struct rank_state *rank)
{
    struct outcome *outcome = rank->outcome;
    bool replicated = outcome->split->strategy == TT_NO_SHARD;
    if (replicated && rank->world.rank > 0) return;
    int64_t at = 0;
    for (size_t p = 0; p < rank->model->param_count; p++) {
        const tt_param *param = rank->model->params[p];
        for (int u = 0; u < rank->model->unit_count; u++) {
            struct tt_slices slices = tt_unit_slices(rank->units[u]);
            for (size_t i = 0; i < tt_unit_piece_count(rank->units[u]); i++) {
                struct tt_piece piece = tt_unit_piece(rank->units[u], i);
                if (piece.param == param && !param->trainable && piece.dtype == TT_F32 && replicated)
                    memcpy(outcome->statistics + at + piece.first, piece.data,
                           (size_t)piece.count * sizeof(float));
                if (piece.param != param || piece.slice_offset < 0 || piece.count == 0) continue;
                memcpy(outcome->gradients + at + piece.first, slices.grad + piece.slice_offset,
                       (size_t)piece.count * sizeof(float));
            }
        }
        at += tt_param_count(param);
    }
}

static tt_status run_rank(struct rank_state *rank, struct tt_comm *comm)
{
    const struct split *split = rank->outcome->split;
    const struct test_how how = {
        .strategy = split->strategy, .compute_dtype = TT_F32, .reduce_dtype = TT_F32, .shard_size = 1};
    size_t pixels = (size_t)IMAGES * HEIGHT * WIDTH * CHANNELS;
    TT_TRY(test_shard_world_open(comm, &how, &rank->world));
    TT_TRY(make_model(rank));
    TT_TRY(make_units(rank));
    TT_TRY(tt_workspace_create(rank->world.device, (size_t)64 << 20, &rank->workspace));
    rank->pixels = tt_alloc_aligned(pixels * sizeof(float));
    rank->anchors = tt_alloc_aligned((size_t)tt_anchor_grid_make(HEIGHT, WIDTH).count * 4 * sizeof(float));
    if (rank->pixels == NULL || rank->anchors == NULL) return TT_ERR_MEMORY;
    enum tt_level levels[UNITS_MAX];
    for (int i = 0; i < UNITS_MAX; i++) levels[i] = split->level;
    rank->mesh.axes[TT_AXIS_DATA] =
        (struct tt_mesh_axis){.comm = comm, .rank = tt_comm_rank(comm), .size = tt_comm_world_size(comm)};
    struct tt_executor_config config = {.model = rank->model,
                                        .levels = levels,
                                        .units = rank->units,
                                        .workspace = rank->workspace,
                                        .device = rank->world.device,
                                        .mesh = &rank->mesh,
                                        .backward_prefetch = TT_PREFETCH_PRE,
                                        .forward_prefetch = true};
    TT_TRY(tt_executor_create(&config, &rank->executor));
    TT_TRY(tt_pass_lend_sum(&rank->results, TT_SUM_CLASSIFICATION, &rank->sums[0]));
    TT_TRY(tt_pass_lend_sum(&rank->results, TT_SUM_BOX_REGRESSION, &rank->sums[1]));
    TT_TRY(run_step(rank));
    double sums[2];
    memcpy(sums, rank->sums, sizeof sums);
    TT_TRY(tt_comm_host_sum(comm, sums, 2));
    memcpy(rank->outcome->losses, sums, sizeof sums); /* equal on all ranks, but written by each */
    keep_gradients(rank);
    return TT_OK;
}

static tt_status rank_main(struct tt_comm *comm, void *argument)
{
    struct rank_state *rank = tt_calloc(1, sizeof *rank);
    if (rank == NULL) return TT_ERR_MEMORY;
    rank->outcome = argument;
    tt_status status = run_rank(rank, comm);
    tt_executor_destroy(rank->executor);
    tt_workspace_destroy(rank->workspace);
    for (int u = 0; u < UNITS_MAX; u++) tt_unit_destroy(rank->units[u]);
    test_shard_world_close(&rank->world);
    tt_model_destroy(rank->model);
    tt_free(rank->pixels);
    tt_free(rank->anchors);
    tt_free(rank);
    return status;
}

enum { GRADIENTS_MAX = 1 << 20 };

static void run_split(const struct split *split, struct outcome *outcome)
{
    *outcome = (struct outcome){.split = split,
                                .gradients = calloc(GRADIENTS_MAX, sizeof(float)),
                                .statistics = calloc(GRADIENTS_MAX, sizeof(float))};
    assert_non_null(outcome->gradients);
    assert_non_null(outcome->statistics);
    test_ranks(split->ranks, rank_main, outcome);
}

static double distance(const float *a, const float *b)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < GRADIENTS_MAX; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return size > 0 ? sqrt(difference / size) : INFINITY;
}

/* The losses, gradients and statistics of all splits are those of the first. */
static void compare(const struct split *splits, size_t count)
{
    struct outcome first, other;
    run_split(&splits[0], &first);
    assert_true(first.losses[0] > 0 && first.losses[1] > 0);
    for (size_t i = 1; i < count; i++) {
        run_split(&splits[i], &other);
        for (int l = 0; l < 2; l++)
            if (!(fabs(other.losses[l] - first.losses[l]) <= 1e-6 * first.losses[l]))
                fail_msg("%s: loss %d is %.9g, of one rank %.9g", splits[i].name, l, other.losses[l],
                         first.losses[l]);
        double off = distance(other.gradients, first.gradients);
        if (!(off <= 1e-5)) fail_msg("%s: gradients are off by %g", splits[i].name, off);
        if (splits[i].strategy == TT_NO_SHARD && splits[0].strategy == TT_NO_SHARD) {
            off = distance(other.statistics, first.statistics);
            if (!(off <= 1e-6)) fail_msg("%s: statistics are off by %g", splits[i].name, off);
        }
        free(other.gradients);
        free(other.statistics);
    }
    free(first.gradients);
    free(first.statistics);
}

static void one_step_for_every_split(void **state)
{
    (void)state;
    for (int stages = 3; stages <= 5; stages += 2) {
        const struct split splits[] = {
            {"one rank", 1, 1, TT_NO_SHARD, stages, TT_KEEP_CHEAP, false},
            {"two micro steps", 1, 2, TT_NO_SHARD, stages, TT_KEEP_CHEAP, false},
            {"two replicas", 2, 1, TT_NO_SHARD, stages, TT_KEEP_CHEAP, false},
            {"two shards", 2, 1, TT_FULL_SHARD, stages, TT_KEEP_CHEAP, false},
            {"two shards, two micro steps", 2, 2, TT_FULL_SHARD, stages, TT_KEEP_CHEAP, false},
            {"three shards of gradients", 3, 1, TT_SHARD_GRAD_OP, stages, TT_KEEP_CHEAP, false},
            {"a rank without images", 3, 2, TT_FULL_SHARD, stages, TT_KEEP_CHEAP, false},
            {"recomputed", 1, 1, TT_NO_SHARD, stages, TT_RECOMPUTE_BLOCK, false},
            {"recomputed on two shards", 2, 2, TT_FULL_SHARD, stages, TT_RECOMPUTE_OFFLOAD, false},
        };
        compare(splits, sizeof splits / sizeof *splits);
    }
}

/* The statistics are those of the images of all ranks, of frozen stages too. Micro steps have their own, so there is
 * one. */
static void batch_norm_for_every_split(void **state)
{
    (void)state;
    const int stages[] = {5, 4, 2};
    for (int i = 0; i < 3; i++) {
        const struct split splits[] = {
            {"one rank", 1, 1, TT_NO_SHARD, stages[i], TT_KEEP_CHEAP, true},
            {"two replicas", 2, 1, TT_NO_SHARD, stages[i], TT_KEEP_CHEAP, true},
            {"three replicas", 3, 1, TT_NO_SHARD, stages[i], TT_KEEP_CHEAP, true},
            {"ranks without images", 6, 1, TT_NO_SHARD, stages[i], TT_KEEP_CHEAP, true},
            {"recomputation is not for batch norm", 2, 1, TT_NO_SHARD, stages[i], TT_RECOMPUTE_BLOCK, true},
        };
        const struct split without = {"without", 1, 1, TT_NO_SHARD, stages[i], TT_KEEP_CHEAP, false};
        struct outcome frozen, first;
        compare(splits, sizeof splits / sizeof *splits);
        run_split(&without, &frozen);
        run_split(&splits[0], &first);
        assert_true(distance(first.statistics, frozen.statistics) > 1e-2); /* they have moved */
        free(frozen.gradients);
        free(frozen.statistics);
        free(first.gradients);
        free(first.statistics);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_step_for_every_split),
        cmocka_unit_test(batch_norm_for_every_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
