/* Sequences that begin alike, computed with their beginning once (data/fold.h), against the same sequences one by one:
 * the loss of every row, and the gradient of every parameter, which is the sum over both copies of a token. Every kind
 * of layer of unit/model/gradient_variants.h but those with a state, without dropout and noise, at both levels that
 * keep results, with queries of the own tokens of a sequence and of all of it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "support/folded_batch.h"
#include "unit/model/gradient_variants.h"

/* Three answers to a prompt of 6 tokens, a sequence alone, two answers to one of 4, of which the second is the prompt
 * and one more token. */
enum { SEQUENCES = 6, TOKENS = 12 + 7 + 9 + 5 + 11 + 5, SHARED = 6 + 6 + 4, VOCAB = 37 };
static const int64_t lengths[SEQUENCES] = {12, 7, 9, 5, 11, 5};
static const int32_t parent[SEQUENCES] = {0, 0, 0, 3, 4, 4}, prefix[SEQUENCES] = {0, 6, 6, 0, 0, 4};

struct rows {
    int32_t ids[TOKENS], labels[TOKENS];
    float scales[TOKENS], folded[TOKENS];
    int64_t count;
};

static void make_rows(struct rows *rows)
{
    int64_t t = 0, starts[SEQUENCES];
    struct tt_rng rng = tt_rng_make(3);
    memset(rows, 0, sizeof *rows);
    for (int b = 0; b < SEQUENCES; b++) {
        starts[b] = t;
        for (int64_t i = 0; i < lengths[b]; i++, t++) {
            rows->ids[t] = (int32_t)((t * 7 + 3) % VOCAB);
            rows->labels[t] = t % 4 == 1 || i + 1 == lengths[b] ? -100 : (int32_t)((t * 11 + 5) % VOCAB);
            if (i >= prefix[b]) continue;
            rows->ids[t] = rows->ids[starts[parent[b]] + i];
            rows->labels[t] = rows->labels[starts[parent[b]] + i];
        }
    }
    for (t = 0; t < TOKENS; t++) {
        if (rows->labels[t] < 0) continue;
        rows->scales[rows->count] = (float)(0.1 + tt_rng_uniform(rng, (uint64_t)t) / 8);
        rows->count++;
    }
}

static struct tt_model_runner *make(const struct variant *variant, tt_dtype dtype, const struct rows *rows)
{
    struct tt_model_runner *runner = variant_runner(variant, dtype);
    tt_runner_set_batch(runner, rows->ids, lengths, SEQUENCES, rows->labels);
    runner->pass.in.training = true;
    return runner;
}

static bool has_state(const struct tt_model_facts *facts)
{
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if (facts->layers[i].state.heads > 0 || facts->layers[i].state.conv_rows > 0) return true;
    return false;
}

/* The losses of the rows, which lie in the workspace until the next pass. */
static void read_losses(struct tt_model_runner *runner, float *losses)
{
    (void)tt_runner_loss(runner, false);
    memcpy(losses, tt_pass_result(&runner->results, TT_RESULT_LOSS, 0).data,
           (size_t)runner->batch.row_count * sizeof *losses);
}

static double compare_gradients(const struct tt_model_runner *a, const struct tt_model_runner *b)
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
    assert_true(norm > 0);
    return sqrt(difference / norm);
}

static double compare(const struct variant *variant, tt_dtype dtype, enum tt_level level, bool wholes,
                      double *loss)
{
    struct rows rows;
    float losses[TOKENS], folded[TOKENS];
    struct tt_batch_storage storage = {0};
    struct tt_batch_fold fold;
    make_rows(&rows);
    struct tt_model_runner *whole = make(variant, dtype, &rows), *shared = make(variant, dtype, &rows);
    test_fold_batch(shared, parent, prefix, &storage, &fold);
    shared->batch.branches.whole = wholes;
    assert_int_equal(shared->batch.token_count, TOKENS - SHARED);
    assert_int_equal(shared->batch.branches.key_count, TOKENS);
    assert_int_equal(whole->batch.row_count, rows.count);
    assert_true(shared->batch.row_count < rows.count);
    read_losses(whole, losses);
    read_losses(shared, folded);
    *loss = 0;
    for (int64_t n = 0; n < rows.count; n++) {
        *loss = fmax(*loss, fabs((double)losses[n] - (double)folded[fold.row_of[n]]));
        rows.folded[fold.row_of[n]] += rows.scales[n];
    }
    whole->pass.in.scale_N = tt_tensor_1d(rows.scales, TT_F32, rows.count);
    shared->pass.in.scale_N = tt_tensor_1d(rows.folded, TT_F32, shared->batch.row_count);
    whole->pass.in.level = shared->pass.in.level = level;
    (void)tt_runner_loss(whole, true);
    (void)tt_runner_loss(shared, true);
    double distance = compare_gradients(shared, whole);
    tt_runner_destroy(shared);
    tt_runner_destroy(whole);
    tt_batch_storage_deinit(&storage);
    return distance;
}

static void check(const struct variant *given)
{
    static const enum tt_level levels[] = {TT_KEEP_ALL, TT_KEEP_CHEAP};
    struct variant variant = *given;
    double loss;
    variant.dropout = variant.noise = 0;
    for (size_t i = 0; i < 4; i++) {
        double distance = compare(&variant, TT_F32, levels[i / 2], i % 2 != 0, &loss);
        if (!(distance < 1e-5 && loss < 2e-5))
            fail_msg("%s, recomputing %s, %s: the gradient differs by %g, a loss by %g", variant.name,
                     tt_level_name(levels[i / 2]), i % 2 != 0 ? "whole sequences" : "own queries", distance,
                     loss);
    }
}

static void shared_is_the_sum_of_all(void **state)
{
    int checked = 0;
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        struct tt_model_runner *runner = variant_runner(&variants[i], TT_F32);
        bool skipped = has_state(&runner->model->facts);
        tt_runner_destroy(runner);
        if (skipped) continue;
        check(&variants[i]);
        checked++;
    }
    assert_true(checked > 50);
}

/* In bf16 each copy of a gradient is rounded before the sum: the results differ by roundings alone. */
static void shared_in_bf16_is_near(void **state)
{
    static const char *const texts[] = {NULL, gemma2, gpt_oss, deepseek_v3};
    double loss;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct variant variant = {.name = "bf16", .text = texts[i], .target_modules = "all-linear"};
        double distance = compare(&variant, TT_BF16, TT_KEEP_ALL, i % 2 == 0, &loss);
        if (!(distance < 0.03 && loss < 0.03))
            fail_msg("text %zu: the gradient differs by %g, a loss by %g", i, distance, loss);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_is_the_sum_of_all),
        cmocka_unit_test(shared_in_bf16_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
