/* The gradient of every parameter of whole small models against finite differences in fp32, for every variant
 * of the layers. A direction of random signs is followed from the current values: the change of the loss
 * along it must be the inner product with the gradient. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "support/model_runner.h"
#include "unit/model/gradient_variants.h"

enum { TOKENS = 19, VOCAB = 37 };
static const int64_t lengths[] = {7, 1, 11};

static struct tt_model_runner *make(const struct variant *variant, tt_dtype dtype)
{
    struct tt_model_runner *runner = variant_runner(variant, dtype);
    int32_t ids[TOKENS], labels[TOKENS];
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (t * 7 + 3) % VOCAB;
        labels[t] = t % 3 == 1 ? -100 : (t * 11 + 5) % VOCAB;
    }
    tt_runner_set_batch(runner, ids, lengths, 3, labels);
    runner->pass.in.loss_scale = 1.0f / 8;
    runner->pass.in.training = true;
    return runner;
}

static double sign_of(struct tt_rng rng, int64_t element)
{
    return tt_rng_u64(rng, (uint64_t)element) & 1 ? 1 : -1;
}

/* Moves a parameter along the direction by `step` from `start`. */
static void move(const tt_param *param, const float *start, struct tt_rng rng, double step)
{
    float *value = param->value.data;
    for (int64_t e = 0; e < tt_param_count(param); e++) value[e] = (float)(start[e] + step * sign_of(rng, e));
}

static double loss_at(struct tt_model_runner *runner, const tt_param *param, const float *start,
                      struct tt_rng rng, double step)
{
    move(param, start, rng, step);
    return tt_runner_loss(runner, false);
}

/* Fourth-order central difference: (8 (f1 - f-1) - (f2 - f-2)) / 12 h. The gradient along random signs is of
 * the size of the gradient's norm, so that is what the error is compared with. */
static void check_param(struct tt_model_runner *runner, const struct variant *variant, tt_param *param)
{
    int64_t count = tt_param_count(param);
    float *start = tt_calloc((size_t)count, sizeof *start);
    const float *grad = param->grad.data;
    const double h = 4e-3 / sqrt(sqrt((double)count));
    double norm = 0, worst = 0;
    assert_non_null(start);
    memcpy(start, param->value.data, (size_t)count * sizeof *start);
    for (int64_t e = 0; e < count; e++) norm += (double)grad[e] * grad[e];
    norm = sqrt(norm);
    if (!(norm > 1e-5)) fail_msg("%s: the gradient of %s is %g", variant->name, param->name, norm);
    for (uint64_t direction = 0; direction < 3; direction++) {
        struct tt_rng rng = tt_rng_derive_index(tt_rng_make(99), direction);
        double expected = 0;
        for (int64_t e = 0; e < count; e++) expected += grad[e] * sign_of(rng, e);
        double first = loss_at(runner, param, start, rng, h) - loss_at(runner, param, start, rng, -h);
        double second =
            loss_at(runner, param, start, rng, 2 * h) - loss_at(runner, param, start, rng, -2 * h);
        worst = fmax(worst, fabs((8 * first - second) / (12 * h) - expected));
    }
    memcpy(param->value.data, start, (size_t)count * sizeof *start);
    tt_free(start);
    /* 2e-4: rounding of the loss (about 1e-6) over 2 h */
    if (!(worst <= 0.01 * norm + 2e-4)) {
        fail_msg("%s: %s: the loss changes by %g more or less than the gradient (norm %g) says",
                 variant->name, param->name, worst, norm);
    }
}

static void check_variant(const struct variant *variant)
{
    struct tt_model_runner *runner = make(variant, TT_F32);
    (void)tt_runner_loss(runner, true);
    size_t checked = 0;
    for (size_t i = 0; i < runner->model->param_count; i++) {
        if (!runner->model->params[i]->trainable) continue;
        check_param(runner, variant, runner->model->params[i]);
        checked++;
    }
    assert_true(checked > 0);
    tt_runner_destroy(runner);
}

static void gradients_agree_with_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) check_variant(&variants[i]);
}

/* Distance of all gradients of two runs of the same model, relative to the second's. */
static double distance(const struct tt_model_runner *a, const struct tt_model_runner *b)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a->model->param_count; i++) {
        const tt_param *param = a->model->params[i];
        if (!param->trainable) continue;
        const float *x = param->grad.data, *y = b->model->params[i]->grad.data;
        for (int64_t e = 0; e < tt_param_count(param); e++) {
            difference += ((double)x[e] - y[e]) * ((double)x[e] - y[e]);
            norm += (double)y[e] * y[e];
        }
    }
    return sqrt(difference / norm);
}

/* So that both start from weights that bf16 can hold. */
static void take_values(const struct tt_model_runner *to, const struct tt_model_runner *from)
{
    for (size_t i = 0; i < to->model->param_count; i++) {
        tt_tensor value = from->model->params[i]->value;
        assert_true(tt_dtype_convert(to->model->params[i]->value.data, TT_F32, value.data, value.dtype,
                                     (size_t)tt_tensor_count(value)));
    }
}

/* The yardstick is how much the fp32 gradient changes when the weights alone are rounded to bf16, once: a
 * pass in bf16 rounds in some dozen more places. A wrong formula is of order 1. */
static void bf16_gradients_are_near(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        struct tt_model_runner *exact = make(&variants[i], TT_F32), *rough = make(&variants[i], TT_BF16);
        struct tt_model_runner *rounded = make(&variants[i], TT_F32);
        take_values(rounded, rough);
        (void)tt_runner_loss(exact, true);
        (void)tt_runner_loss(rounded, true);
        (void)tt_runner_loss(rough, true);
        double yardstick = distance(rounded, exact), error = distance(rough, rounded);
        if (!(error < 5 * yardstick && error > 1e-6)) {
            fail_msg("%s: relative error %g, weights rounded %g", variants[i].name, error, yardstick);
        }
        tt_runner_destroy(rough);
        tt_runner_destroy(rounded);
        tt_runner_destroy(exact);
    }
}

/* Where the head's gradients are not lent in forward, backward computes its chunks again: the same gradients.
 */
static void late_head_gradients_are_the_same(void **state)
{
    (void)state;
    struct tt_model_runner *early = make(&variants[0], TT_F32), *late = make(&variants[0], TT_F32);
    double loss = tt_runner_loss(early, true);
    tt_param *head = tt_model_find_param(late->model, "lm_head.weight");
    const struct tt_block *last = &late->model->blocks[late->model->block_count - 1];
    tt_tensor grad = head->grad;
    void *saved[4] = {NULL};
    tt_tensor x[4] = {{0}}, dy;
    late->pass.in.gradient = true;
    for (int i = 0; i < 4; i++) {
        struct tt_block *block = &late->model->blocks[i];
        if (i < 3)
            assert_int_equal(
                tt_workspace_2d(late->workspace, "x", TT_F32, TOKENS, 16, &x[i + 1 < 4 ? i + 1 : 3]), TT_OK);
        saved[i] = tt_calloc(1, block->ops->saved_bytes);
        head->grad = (tt_tensor){0};
        assert_int_equal(
            block->ops->forward(block, &late->pass, x[i], saved[i], i < 3 ? x[i + 1] : (tt_tensor){0}),
            TT_OK);
    }
    head->grad = grad;
    assert_int_equal(tt_workspace_2d(late->workspace, "dy", TT_F32, TOKENS, 16, &dy), TT_OK);
    double late_loss = 0;
    const float *loss_N = tt_pass_result(&late->results, TT_RESULT_LOSS, 0).data;
    for (int64_t n = 0; n < late->batch.row_count; n++) late_loss += loss_N[n];
    for (int i = 3; i >= 0; i--) {
        struct tt_block *block = &late->model->blocks[i];
        assert_int_equal(
            block->ops->backward(block, &late->pass, x[i], saved[i], dy, i > 0 ? dy : (tt_tensor){0}), TT_OK);
        tt_free(saved[i]);
    }
    assert_true(last->trains);
    assert_true(fabs(late_loss / 8 - loss) < 1e-9);
    assert_true(distance(late, early) == 0);
    tt_runner_destroy(late);
    tt_runner_destroy(early);
}

static void check_packed(const struct variant *variant)
{
    struct tt_model_runner *packed = make(variant, TT_F32), *alone = make(variant, TT_F32);
    double loss = tt_runner_loss(packed, true), sum = 0;
    int32_t ids[TOKENS], labels[TOKENS];
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (t * 7 + 3) % VOCAB;
        labels[t] = t % 3 == 1 ? -100 : (t * 11 + 5) % VOCAB;
    }
    int64_t first = 0;
    for (int64_t b = 0; b < 3; b++) {
        tt_runner_set_batch(alone, ids + first, lengths + b, 1, labels + first);
        int64_t *keys = alone->batch.row_keys_T.data;
        for (int64_t t = 0; t < lengths[b]; t++) keys[t] = (b << 24) | t;
        sum += tt_runner_loss(alone, true);
        first += lengths[b];
    }
    if (!(fabs(loss - sum) < 1e-5 * loss) || !(distance(alone, packed) < 1e-5))
        fail_msg("%s: packed %g, alone %g, gradients apart by %g", variant->name, loss, sum,
                 distance(alone, packed));
    tt_runner_destroy(alone);
    tt_runner_destroy(packed);
}

/* The gradient of a packed batch is the sum of the gradients of its sequences; dropout goes with the token.
 */
static void packed_is_the_sum_of_alone(void **state)
{
    static const char *const texts[] = {NULL,       glm4,    granite, olmo2,  exaone4,  hunyuan,
                                        ministral3, cohere2, muse,    gemma4, gemma4_e, gemma4_moe};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        check_packed(&(struct variant){.name = texts[i] != NULL ? texts[i] : "llama",
                                       .text = texts[i],
                                       .target_modules = "all-linear",
                                       .dropout = 0.4,
                                       .qk_norm = texts[i] == NULL});
}

/* A micro batch without a label: no loss, no gradient, no error. */
static void no_labels_no_gradient(void **state)
{
    (void)state;
    struct tt_model_runner *runner = make(&variants[0], TT_F32);
    int32_t ids[TOKENS] = {0}, labels[TOKENS];
    for (int t = 0; t < TOKENS; t++) labels[t] = -100;
    tt_runner_set_batch(runner, ids, lengths, 3, labels);
    assert_true(tt_runner_loss(runner, true) == 0);
    for (size_t i = 0; i < runner->model->param_count; i++) {
        const tt_param *param = runner->model->params[i];
        for (int64_t e = 0; e < tt_param_count(param); e++) assert_true(((float *)param->grad.data)[e] == 0);
    }
    tt_runner_destroy(runner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_differences),
        cmocka_unit_test(bf16_gradients_are_near),
        cmocka_unit_test(late_head_gradients_are_the_same),
        cmocka_unit_test(packed_is_the_sum_of_alone),
        cmocka_unit_test(no_labels_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
