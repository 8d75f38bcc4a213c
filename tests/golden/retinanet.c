/* Narrow RetinaNets of both versions against torchvision (golden/detect/make_retinanet.py): the heads' outputs, both
 * losses, the gradient of every trainable parameter, five steps of SGD; the full networks' names and shapes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/workspace.h"
#include "base/alloc.h"
#include "detect/anchors.h"
#include "io/pth.h"
#include "model/retinanet.h"
#include "optim/optimizer.h"
#include "support/must.h"
#include "support/tuning.h"

enum { IMAGES = 2, HEIGHT = 96, WIDTH = 64, CLASSES = 5, CHANNELS = 8, BOXES = 4, STEPS = 5, BLOCKS_MAX = 8 };
/* FIRST has frozen norms, SECOND batch norms. */
enum version { FIRST, SECOND };

/* The network with all values in host memory, driven block by block. */
struct runner {
    enum version version;
    struct tt_model *model;
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_workspace *workspace;
    struct tt_safetensors *weights, *expected;
    struct tt_device_batch batch;
    struct tt_pass_results results;
    struct tt_pass pass;
    float **momentum;
    double sums[2];
    void *saved[BLOCKS_MAX];
    tt_tensor x[BLOCKS_MAX + 1];
};

static struct tt_retinanet_config narrow_config(enum version version, int trainable)
{
    struct tt_retinanet_config config = tt_retinanet_config_default(CLASSES);
    config.width = 4;
    config.pyramid = 12;
    config.blocks[0] = config.blocks[2] = config.blocks[3] = 1;
    config.blocks[1] = 2;
    config.trainable_stages = trainable;
    config.batch_norm = version == SECOND;
    config.head_groups = version == SECOND ? 4 : 0;
    return config;
}

static void *zeros(size_t bytes)
{
    void *memory = tt_alloc_aligned(bytes + 64);
    assert_non_null(memory);
    memset(memory, 0, bytes + 64);
    return memory;
}

static struct tt_safetensors *open_golden(enum version version, const char *name)
{
    char path[512];
    struct tt_safetensors *file;
    (void)snprintf(path, sizeof path, "%s/golden/detect/retinanet%s/%s", TT_TEST_ROOT,
                   version == SECOND ? "_v2" : "", name);
    test_must(tt_pth_open(path, &file));
    return file;
}

static void read_tensor(const struct tt_safetensors *file, const char *name, int64_t count, void *to)
{
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, name);
    if (entry == NULL) fail_msg("no tensor %s", name);
    int64_t elements = 1;
    for (int d = 0; d < entry->rank; d++) elements *= entry->dims[d];
    assert_int_equal(elements, count);
    test_must(tt_safetensors_read(file, entry, 0, count, to, TT_F32));
}

static void load_params(struct runner *r, tt_dtype dtype)
{
    r->momentum = calloc(r->model->param_count, sizeof *r->momentum);
    assert_non_null(r->momentum);
    for (size_t i = 0; i < r->model->param_count; i++) {
        tt_param *param = r->model->params[i];
        int64_t count = tt_param_count(param);
        float *values = zeros((size_t)count * sizeof *values);
        read_tensor(r->weights, param->name, count, values);
        param->value = (tt_tensor){.data = values, .dtype = TT_F32, .rank = param->rank};
        int64_t stride = 1;
        for (int d = param->rank - 1; d >= 0; d--) {
            param->value.dims[d] = param->dims[d];
            param->value.strides[d] = stride;
            stride *= param->dims[d];
        }
        bool in_fp32 = param->rank == 1 && !param->trainable;
        if (dtype == TT_BF16 && !in_fp32) {
            void *halves = zeros((size_t)count * 2);
            assert_true(tt_dtype_convert(halves, TT_BF16, values, TT_F32, (size_t)count));
            param->value.data = halves;
            param->value.dtype = TT_BF16;
            tt_free(values);
        }
        if (!param->trainable) continue;
        param->grad = param->value;
        param->grad.dtype = TT_F32;
        param->grad.data = zeros((size_t)count * sizeof(float));
        r->momentum[i] = zeros((size_t)count * sizeof(float));
    }
}

static tt_tensor make_pixels(tt_dtype dtype)
{
    int64_t pixels = IMAGES * HEIGHT * WIDTH;
    float *values = zeros((size_t)(pixels * CHANNELS) * sizeof *values);
    uint32_t state = 1;
    for (int64_t p = 0; p < pixels; p++)
        for (int c = 0; c < 3; c++) {
            state = state * 1664525u + 1013904223u;
            values[p * CHANNELS + c] = (float)(state >> 24) / 64.0f - 2.0f;
        }
    if (dtype == TT_F32) return tt_tensor_2d(values, TT_F32, pixels, CHANNELS);
    void *halves = zeros((size_t)(pixels * CHANNELS) * 2);
    assert_true(tt_dtype_convert(halves, TT_BF16, values, TT_F32, (size_t)(pixels * CHANNELS)));
    tt_free(values);
    return tt_tensor_2d(halves, TT_BF16, pixels, CHANNELS);
}

static void make_batch(struct runner *r, tt_dtype dtype)
{
    static float boxes[BOXES][4] = {{4, 6, 40, 50}, {10, 40, 62, 94}, {30, 8, 50, 30}, {20, 20, 52, 60}};
    static int32_t labels[BOXES] = {1, 4, 2, 3}, offsets[IMAGES + 1] = {0, 3, 4};
    struct tt_anchor_grid grid = tt_anchor_grid_make(HEIGHT, WIDTH);
    float *anchors = zeros((size_t)grid.count * 4 * sizeof *anchors);
    tt_anchor_grid_write(&grid, anchors);
    r->batch.attachment_count = 1;
    r->batch.attachments[0] =
        (struct tt_attachment){.kind = TT_ATTACHED_IMAGES,
                               .count = IMAGES,
                               .height = HEIGHT,
                               .width = WIDTH,
                               .pixels_PC = make_pixels(dtype),
                               .boxes = {.boxes_M4 = tt_tensor_2d(boxes, TT_F32, BOXES, 4),
                                         .labels_M = tt_tensor_1d(labels, TT_I32, BOXES),
                                         .offsets = tt_tensor_1d(offsets, TT_I32, IMAGES + 1),
                                         .anchors_A4 = tt_tensor_2d(anchors, TT_F32, grid.count, 4),
                                         .weight = 1.0f / IMAGES}};
}

static struct runner *make_runner(enum version version, int trainable, tt_dtype dtype)
{
    struct runner *r = calloc(1, sizeof *r);
    struct tt_retinanet_config config = narrow_config(version, trainable);
    struct tt_model_facts *facts = calloc(1, sizeof *facts);
    assert_non_null(r);
    assert_non_null(facts);
    r->version = version;
    test_must(tt_retinanet_facts(&config, facts));
    test_must(tt_model_create(facts, &(struct tt_model_options){.compute_dtype = dtype}, &r->model));
    free(facts);
    test_must(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 2, .tuning = test_tuning()},
                             &r->device));
    test_must(tt_stream_create(r->device, &r->stream));
    test_must(tt_workspace_create(r->device, (size_t)64 << 20, &r->workspace));
    r->weights = open_golden(version, "weights.pth");
    r->expected = open_golden(version, "expected.pth");
    load_params(r, dtype);
    make_batch(r, dtype);
    test_must(tt_pass_lend_sum(&r->results, TT_SUM_CLASSIFICATION, &r->sums[0]));
    test_must(tt_pass_lend_sum(&r->results, TT_SUM_BOX_REGRESSION, &r->sums[1]));
    r->pass = (struct tt_pass){.lent = {.stream = r->stream, .workspace = r->workspace},
                               .in = {.batch = &r->batch, .compute_dtype = dtype, .training = true},
                               .out = &r->results};
    return r;
}

static void free_runner(struct runner *r)
{
    for (size_t i = 0; i < r->model->param_count; i++) {
        tt_free(r->model->params[i]->value.data);
        tt_free(r->model->params[i]->grad.data);
        tt_free(r->momentum[i]);
    }
    free(r->momentum);
    tt_free(r->batch.attachments[0].pixels_PC.data);
    tt_free(r->batch.attachments[0].boxes.anchors_A4.data);
    tt_workspace_destroy(r->workspace);
    tt_stream_destroy(r->stream);
    tt_device_close(r->device);
    tt_safetensors_close(r->weights);
    tt_safetensors_close(r->expected);
    tt_model_destroy(r->model);
    free(r);
}

static int first_trainable(const struct runner *r)
{
    int first = 0;
    while (!r->model->blocks[first].trains) first++;
    return first;
}

static void forward(struct runner *r, bool gradient, bool want_logits)
{
    memset(r->sums, 0, sizeof r->sums);
    r->pass.in.training = !want_logits; /* outputs are those of running statistics */
    for (int i = 0; i < r->model->block_count; i++) {
        struct tt_block *block = &r->model->blocks[i];
        int64_t dims[2];
        r->pass.in.want_logits = want_logits;
        r->pass.in.gradient = gradient && i >= first_trainable(r);
        r->x[i + 1] = (tt_tensor){0};
        block->ops->output(block, &r->pass, dims);
        if (i + 1 < r->model->block_count)
            test_must(tt_workspace_2d(r->workspace, "an output", r->pass.in.compute_dtype, dims[0], dims[1],
                                      &r->x[i + 1]));
        r->saved[i] = r->pass.in.gradient ? zeros(block->ops->saved_bytes) : NULL;
        test_must(block->ops->forward(block, &r->pass, r->x[i], r->saved[i], r->x[i + 1]));
    }
}

static void backward(struct runner *r)
{
    tt_tensor dy = {0};
    for (int i = r->model->block_count - 1; i >= first_trainable(r); i--) {
        struct tt_block *block = &r->model->blocks[i];
        tt_tensor dx = {0};
        if (i > first_trainable(r))
            test_must(tt_workspace_2d(r->workspace, "a gradient", r->x[i].dtype, r->x[i].dims[0],
                                      r->x[i].dims[1], &dx));
        test_must(block->ops->backward(block, &r->pass, r->x[i], r->saved[i], dy, dx));
        dy = dx;
    }
}

static void end_pass(struct runner *r)
{
    tt_workspace_release(r->workspace, 0);
    for (int i = 0; i < r->model->block_count; i++) {
        tt_free(r->saved[i]);
        r->saved[i] = NULL;
    }
}

static double distance(const float *got, const float *expected, int64_t count)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)got[i] - (double)expected[i]) * ((double)got[i] - (double)expected[i]);
        size += (double)expected[i] * (double)expected[i];
    }
    return sqrt(difference / size);
}

static void compare_outputs(struct runner *r, const char *name, int64_t columns)
{
    struct tt_anchor_grid grid = tt_anchor_grid_make(HEIGHT, WIDTH);
    int64_t count = IMAGES * grid.count * columns;
    float *expected = zeros((size_t)count * sizeof *expected), *got = zeros((size_t)count * sizeof *got);
    read_tensor(r->expected, name, count, expected);
    for (int level = 0; level < TT_ANCHOR_LEVELS; level++) {
        int64_t each = grid.levels[level].height * grid.levels[level].width * TT_ANCHORS_A_PLACE * columns;
        for (int64_t n = 0; n < IMAGES; n++)
            memcpy(got + n * grid.count * columns + grid.levels[level].first * columns,
                   (const float *)tt_pass_result(&r->results, name, level).data + n * each,
                   (size_t)each * sizeof *got);
    }
    assert_true(distance(got, expected, count) <= 1e-5);
    tt_free(expected);
    tt_free(got);
}

static void check_outputs(enum version version, int trainable)
{
    struct runner *r = make_runner(version, trainable, TT_F32);
    forward(r, false, true);
    compare_outputs(r, TT_RESULT_CLASSES, CLASSES);
    compare_outputs(r, TT_RESULT_BOXES, 4);
    end_pass(r);
    free_runner(r);
}

static void outputs_equal_torchvision(void **state)
{
    (void)state;
    check_outputs(FIRST, 3);
    check_outputs(SECOND, 5);
}

static void check_losses(const struct runner *r, const float *expected, double allowed)
{
    for (int i = 0; i < 2; i++)
        assert_true(fabs(r->sums[i] - (double)expected[i]) <= allowed * (double)expected[i]);
}

static void check_gradients(enum version version, int trainable)
{
    struct runner *r = make_runner(version, trainable, TT_F32);
    float losses[2];
    int trained = 0;
    read_tensor(r->expected, "losses", 2, losses);
    forward(r, false, false);
    check_losses(r, losses, 1e-5);
    end_pass(r);
    forward(r, true, false);
    check_losses(r, losses, 1e-5);
    backward(r);
    for (size_t i = 0; i < r->model->param_count; i++) {
        const tt_param *param = r->model->params[i];
        char name[160];
        if (!param->trainable) continue;
        int64_t count = tt_param_count(param);
        float *expected = zeros((size_t)count * sizeof *expected);
        (void)snprintf(name, sizeof name, "grad.%s", param->name);
        read_tensor(r->expected, name, count, expected);
        double off = distance(param->grad.data, expected, count);
        if (!(off <= 1e-4)) fail_msg("the gradient of %s is off by %g", param->name, off);
        tt_free(expected);
        trained++;
    }
    /* torchvision trains the same ones: those, the four others of the file, and running statistics. */
    int running = version == SECOND ? (int)r->model->param_count - trained : 0;
    assert_int_equal(trained + 4 + running, (int)tt_safetensors_count(r->expected));
    end_pass(r);
    free_runner(r);
}

static void losses_and_gradients_equal_torchvision(void **state)
{
    (void)state;
    check_gradients(FIRST, 3);
    check_gradients(SECOND, 5);
}

static void update(struct runner *r, const struct tt_optim_config *optim, int64_t step)
{
    const struct tt_optimizer *sgd = tt_optimizer_of(optim);
    for (size_t i = 0; i < r->model->param_count; i++) {
        const tt_param *param = r->model->params[i];
        int64_t count = tt_param_count(param);
        if (!param->trainable) continue;
        bool decays = param->weight_decay != TT_DECAY_NONE;
        bool of_norm = param->weight_decay == TT_DECAY_NORM && optim->norm_weight_decay >= 0;
        const struct tt_optimizer_update update = {.master = param->value.data,
                                                   .grad = param->grad.data,
                                                   .count = count,
                                                   .values = {r->momentum[i]},
                                                   .weight_decay = !decays   ? 0
                                                                   : of_norm ? optim->norm_weight_decay
                                                                             : optim->weight_decay,
                                                   .lr = 0.002,
                                                   .grad_scale = 1.0f,
                                                   .step = step};
        test_must(sgd->rule->update(r->stream, optim, &update));
        memset(param->grad.data, 0, (size_t)count * sizeof(float));
    }
}

/* Frozen values are those of the file, running statistics torchvision's. */
static void check_values(const struct runner *r, const tt_param *param)
{
    char name[160];
    int64_t count = tt_param_count(param);
    float *before = zeros((size_t)count * sizeof *before);
    read_tensor(r->weights, param->name, count, before);
    bool same = memcmp(before, param->value.data, (size_t)count * sizeof *before) == 0;
    assert_true(same != (param->trainable || r->version == SECOND));
    if (!param->trainable && r->version == SECOND) {
        (void)snprintf(name, sizeof name, "running.%s", param->name);
        read_tensor(r->expected, name, count, before);
        double off = distance(param->value.data, before, count);
        if (!(off <= 1e-4)) fail_msg("%s is off by %g", param->name, off);
    }
    tt_free(before);
}

static void check_steps(enum version version, int trainable)
{
    static const struct tt_optim_config optim = {
        .optim = "sgd", .momentum = 0.9, .weight_decay = 1e-3, .norm_weight_decay = -1};
    struct runner *r = make_runner(version, trainable, TT_F32);
    float steps[STEPS][2];
    read_tensor(r->expected, "steps", STEPS * 2, steps);
    for (int step = 0; step < STEPS; step++) {
        forward(r, true, false);
        check_losses(r, steps[step], 1e-4);
        backward(r);
        end_pass(r);
        update(r, &optim, step + 1);
    }
    for (size_t i = 0; i < r->model->param_count; i++) check_values(r, r->model->params[i]);
    free_runner(r);
}

static void five_steps_equal_torchvision(void **state)
{
    (void)state;
    check_steps(FIRST, 3);
    check_steps(SECOND, 5);
}

/* With stages that do not train: their batch norms take the statistics of the batch, and their running statistics
 * change, but nothing else does. Norms have a weight decay of their own. */
static void check_frozen_stages(int stages)
{
    static const struct tt_optim_config optim = {
        .optim = "sgd", .momentum = 0.9, .weight_decay = 1e-3, .norm_weight_decay = 0.05};
    struct runner *r = make_runner(SECOND, stages, TT_F32);
    float steps[STEPS][2];
    char name[160];
    int compared = 0;
    tt_safetensors_close(r->expected);
    r->expected = open_golden(SECOND, "frozen.pth");
    (void)snprintf(name, sizeof name, "steps.%d", stages);
    read_tensor(r->expected, name, STEPS * 2, steps);
    for (int step = 0; step < STEPS; step++) {
        forward(r, true, false);
        check_losses(r, steps[step], 1e-4);
        backward(r);
        end_pass(r);
        update(r, &optim, step + 1);
    }
    for (size_t i = 0; i < r->model->param_count; i++) {
        const tt_param *param = r->model->params[i];
        int64_t count = tt_param_count(param);
        float *expected = zeros((size_t)count * sizeof *expected);
        (void)snprintf(name, sizeof name, "after.%d.%s", stages, param->name);
        if (tt_safetensors_find(r->expected, name) != NULL) {
            read_tensor(r->expected, name, count, expected);
            double off = distance(param->value.data, expected, count);
            if (!(off <= 1e-4)) fail_msg("%s with %d stages is off by %g", param->name, stages, off);
            compared++;
        }
        read_tensor(r->weights, param->name, count, expected);
        bool same = memcmp(expected, param->value.data, (size_t)count * sizeof *expected) == 0;
        assert_true(same != (param->trainable || strstr(param->name, ".running_") != NULL));
        tt_free(expected);
    }
    assert_true(compared == (int)r->model->param_count || (stages == 4 && compared >= 25));
    free_runner(r);
}

static void frozen_stages_equal_torchvision(void **state)
{
    (void)state;
    check_frozen_stages(3);
    check_frozen_stages(4);
}

static void check_bf16(enum version version, int trainable)
{
    struct runner *r = make_runner(version, trainable, TT_BF16);
    float losses[2];
    read_tensor(r->expected, "losses", 2, losses);
    forward(r, true, false);
    check_losses(r, losses, 0.02);
    backward(r);
    end_pass(r);
    free_runner(r);
}

static void bf16_is_near(void **state)
{
    (void)state;
    check_bf16(FIRST, 3);
    check_bf16(SECOND, 5);
}

/* With all stages the gradient reaches the stem; checked along a random direction of each parameter. */
static void gradients_of_all_stages(void **state)
{
    (void)state;
    struct runner *r = make_runner(FIRST, 5, TT_F32);
    forward(r, true, false);
    backward(r);
    end_pass(r);
    for (size_t i = 0; i < r->model->param_count; i++) {
        tt_param *param = r->model->params[i];
        if (!param->trainable) continue;
        int64_t count = tt_param_count(param);
        const float *gradient = param->grad.data;
        double norm = 0, losses[2];
        for (int64_t j = 0; j < count; j++) norm += (double)gradient[j] * (double)gradient[j];
        if (!(norm > 0)) fail_msg("no gradient in %s", param->name);
        if (strcmp(param->name, "backbone.body.conv1.weight") != 0 &&
            strcmp(param->name, "backbone.body.layer1.0.conv1.weight") != 0)
            continue;
        /* A step along the gradient: relu and maxima have kinks, so a few percent are allowed. */
        float *values = param->value.data;
        double h = 2e-3 / sqrt(norm);
        for (int side = 0; side < 2; side++) {
            for (int64_t j = 0; j < count; j++)
                values[j] += (float)((side == 0 ? h : -2 * h) * (double)gradient[j]);
            forward(r, false, false);
            losses[side] = r->sums[0] + r->sums[1];
            end_pass(r);
        }
        for (int64_t j = 0; j < count; j++) values[j] += (float)(h * (double)gradient[j]);
        double slope = (losses[0] - losses[1]) / (2 * h);
        if (!(fabs(slope - norm) <= 0.05 * norm))
            fail_msg("%s: slope %g, gradient %g", param->name, slope, norm);
    }
    free_runner(r);
}

static const tt_param *full_param(const struct tt_model *model, const char *name)
{
    const tt_param *param = tt_model_find_param(model, name);
    if (param == NULL) fail_msg("no parameter %s", name);
    return param;
}

/* detection.md's counts of torchvision's retinanet_resnet50_fpn with 91 classes. */
static void the_full_network(void **state)
{
    (void)state;
    static const struct {
        int stages;
        int64_t elements;
        int tensors;
    } rows[] = {{0, 10560087, 36}, {1, 25502295, 46}, {2, 32580183, 65},
                {3, 33792599, 78}, {4, 34005591, 88}, {5, 34014999, 89}};
    struct tt_model_facts *facts = calloc(1, sizeof *facts);
    assert_non_null(facts);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tt_retinanet_config config = tt_retinanet_config_default(91);
        struct tt_model *model;
        int64_t elements = 0, all = 0;
        int tensors = 0;
        config.trainable_stages = rows[i].stages;
        test_must(tt_retinanet_facts(&config, facts));
        test_must(tt_model_create(facts, &(struct tt_model_options){.compute_dtype = TT_F32}, &model));
        for (size_t p = 0; p < model->param_count; p++) {
            all += tt_param_count(model->params[p]);
            elements += model->params[p]->trainable ? tt_param_count(model->params[p]) : 0;
            tensors += model->params[p]->trainable;
        }
        assert_int_equal(elements, rows[i].elements);
        assert_int_equal(tensors, rows[i].tensors);
        assert_int_equal(all, 34121239);
        assert_int_equal(model->param_count, 301);
        assert_int_equal(full_param(model, "head.classification_head.cls_logits.weight")->dims[0], 819);
        assert_int_equal(full_param(model, "backbone.body.layer4.0.downsample.0.weight")->dims[1], 1024);
        tt_model_destroy(model);
    }
    free(facts);
}

/* torchvision's retinanet_resnet50_fpn_v2: 362 tensors, of which 53 count batches; 38,198,935 parameters. */
static void the_full_second_network(void **state)
{
    (void)state;
    struct tt_model_facts *facts = calloc(1, sizeof *facts);
    struct tt_retinanet_config config = tt_retinanet_config_default(91);
    struct tt_model *model;
    int64_t elements = 0;
    assert_non_null(facts);
    config.trainable_stages = 5;
    config.batch_norm = true;
    config.head_groups = TT_RETINANET_GROUPS;
    test_must(tt_retinanet_facts(&config, facts));
    test_must(tt_model_create(facts, &(struct tt_model_options){.compute_dtype = TT_F32}, &model));
    for (size_t p = 0; p < model->param_count; p++)
        elements += model->params[p]->trainable ? tt_param_count(model->params[p]) : 0;
    assert_int_equal(elements, 38198935);
    assert_int_equal(model->param_count, 362 - 53);
    assert_int_equal(full_param(model, "backbone.fpn.extra_blocks.p6.weight")->dims[1], 2048);
    assert_int_equal(full_param(model, "head.regression_head.conv.3.1.weight")->dims[0], 256);
    assert_null(tt_model_find_param(model, "head.regression_head.conv.3.0.bias"));
    tt_model_destroy(model);
    config.pyramid = 48;
    assert_int_equal(tt_retinanet_facts(&config, facts), TT_ERR_USAGE);
    free(facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_equal_torchvision),
        cmocka_unit_test(losses_and_gradients_equal_torchvision),
        cmocka_unit_test(five_steps_equal_torchvision),
        cmocka_unit_test(frozen_stages_equal_torchvision),
        cmocka_unit_test(bf16_is_near),
        cmocka_unit_test(gradients_of_all_stages),
        cmocka_unit_test(the_full_network),
        cmocka_unit_test(the_full_second_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
