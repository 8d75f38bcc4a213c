#include "support/gradient_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "support/must.h"

double tt_runner_grad_norm(const tt_param *param)
{
    const float *grad = param->grad.data;
    double squares = 0;
    for (int64_t e = 0; e < tt_param_count(param); e++) squares += (double)grad[e] * grad[e];
    return sqrt(squares);
}

static double sign_of(int64_t element)
{
    return tt_rng_u64(tt_rng_make(99), (uint64_t)element) & 1 ? 1 : -1;
}

static double loss_at(struct tt_model_runner *runner, const tt_param *param, const float *start, double step)
{
    float *value = param->value.data;
    for (int64_t e = 0; e < tt_param_count(param); e++) value[e] = (float)(start[e] + step * sign_of(e));
    return tt_runner_loss(runner, false);
}

void tt_runner_check_param(struct tt_model_runner *runner, const char *name, tt_param *param)
{
    int64_t count = tt_param_count(param);
    float *start = tt_calloc((size_t)count, sizeof *start);
    const float *grad = param->grad.data;
    const double h = 4e-3 / sqrt(sqrt((double)count));
    double norm = tt_runner_grad_norm(param), expected = 0;
    assert_non_null(start);
    memcpy(start, param->value.data, (size_t)count * sizeof *start);
    for (int64_t e = 0; e < count; e++) expected += grad[e] * sign_of(e);
    double first = loss_at(runner, param, start, h) - loss_at(runner, param, start, -h);
    double second = loss_at(runner, param, start, 2 * h) - loss_at(runner, param, start, -2 * h);
    double error = fabs((8 * first - second) / (12 * h) - expected);
    memcpy(param->value.data, start, (size_t)count * sizeof *start);
    tt_free(start);
    if (!(error <= 0.01 * norm + 2e-4))
        fail_msg("%s: %s: the loss changes by %g more or less than the gradient (norm %g) says", name,
                 param->name, error, norm);
}

static tt_tensor new_rows(struct tt_model_runner *runner)
{
    tt_tensor rows;
    test_must(tt_workspace_2d(runner->workspace, "rows", runner->pass.in.compute_dtype,
                              runner->batch.token_count, runner->model->facts.hidden_size, &rows));
    return rows;
}

/* The level of a block; of the first and the last one that which keeps. */
static enum tt_level level_of(const struct tt_model *model, struct tt_runner_way way, int block)
{
    enum tt_level level = way.mixed ? (enum tt_level)(block % TT_RECOMPUTE_OFFLOAD) : way.level;
    bool layer = model->blocks[block].ops->role == TT_ROLE_LAYER;
    return layer || level < TT_RECOMPUTE_BLOCK ? level : TT_KEEP_CHEAP;
}

static void run_forward(struct tt_model_runner *runner, struct tt_runner_way way, tt_tensor *x, void **saved)
{
    struct tt_model *model = runner->model;
    int last = model->block_count - 1;
    for (int i = 0; i <= last; i++) {
        struct tt_block *block = &model->blocks[i];
        struct tt_pass pass = runner->pass;
        pass.in.level = level_of(model, way, i);
        pass.in.gradient = pass.in.level < TT_RECOMPUTE_BLOCK;
        saved[i] = tt_calloc(1, block->ops->saved_bytes);
        if (i < last) x[i + 1] = new_rows(runner);
        test_must(block->ops->forward(block, &pass, x[i], pass.in.gradient ? saved[i] : NULL,
                                      i < last ? x[i + 1] : (tt_tensor){0}));
    }
}

void tt_runner_pass(struct tt_model_runner *runner, struct tt_runner_way way)
{
    struct tt_model *model = runner->model;
    int last = model->block_count - 1, first = 0;
    tt_tensor x[TT_MODEL_LAYERS_MAX] = {{0}}, none = {0};
    void *saved[TT_MODEL_LAYERS_MAX] = {NULL};
    size_t mark = tt_workspace_mark(runner->workspace);
    while (!model->blocks[first].trains) first++;
    runner->pass.in.gradient = true;
    tt_runner_push_sides(runner);
    run_forward(runner, way, x, saved);
    tt_tensor dy = new_rows(runner);
    for (int i = last; i >= first; i--) {
        struct tt_block *block = &model->blocks[i];
        struct tt_pass again = runner->pass;
        again.in.level = TT_KEEP_CHEAP;
        again.in.again = true;
        if (level_of(model, way, i) == TT_RECOMPUTE_BLOCK)
            test_must(block->ops->forward(block, &again, x[i], saved[i], none));
        tt_tensor dx = i == first ? none : way.apart ? new_rows(runner) : dy;
        test_must(block->ops->backward(block, &runner->pass, x[i], saved[i], dy, dx));
        dy = dx;
    }
    for (int i = 0; i <= last; i++) tt_free(saved[i]);
    tt_workspace_release(runner->workspace, mark);
}

void tt_runner_check_same(const struct tt_model_runner *runner, const struct tt_model_runner *like,
                          const char *name, const char *what)
{
    for (size_t i = 0; i < runner->model->param_count; i++) {
        const tt_param *param = runner->model->params[i], *other = like->model->params[i];
        if (param->trainable && memcmp(param->grad.data, other->grad.data, tt_tensor_bytes(param->grad)) != 0)
            fail_msg("%s: %s: the gradient of %s differs", name, what, param->name);
    }
}
