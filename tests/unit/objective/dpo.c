/* objective/dpo.c by itself (tests/golden/dpo.c compares it with TRL): its gradient against finite differences of its
 * loss, parts of a step against the whole, far values, and what it refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "objective/dpo_losses.h"
#include "objective/objective.h"
#include "objective/pairs.h"

/* Its settings in their order. */
enum { BETA, LABEL_SMOOTHING, DISCOPOP_TAU };
enum { PAIRS = 4, PROMPT = 3, ROWS = 20, LOSS = TT_PAIR_SUMS };

/* Rows of each answer; one rejected answer has none. */
static const int counts[2 * PAIRS] = {2, 3, 5, 1, 1, 0, 4, 4};

struct problem {
    float logp[ROWS], reference[ROWS], entropy[ROWS], mean[ROWS], scale[ROWS];
    int32_t correct[ROWS], rows[ROWS], borders[2 * PAIRS + 1];
    struct tt_batch batch;
    struct tt_objective_counts counts;
    double sums[TT_OBJECTIVE_SUMS];
};

/* Pairs first .. end - 1 of a step of all PAIRS pairs. */
static void make(struct problem *p, int first, int end)
{
    struct tt_rng rng = tt_rng_make(21);
    int64_t value = 0;
    *p = (struct problem){.batch = {.group_size = 2, .group_count = end - first},
                          .counts = {.tokens = ROWS, .groups = PAIRS}};
    for (int a = 0; a < 2 * end; a++) {
        for (int i = 0; i < counts[a]; i++, value++) {
            if (a < 2 * first) continue;
            int64_t n = p->batch.row_count++;
            p->logp[n] = -(float)fabs(tt_rng_normal(rng, (uint64_t)(3 * value)));
            p->reference[n] = -(float)fabs(tt_rng_normal(rng, (uint64_t)(3 * value + 1)));
            p->entropy[n] = (float)fabs(tt_rng_normal(rng, (uint64_t)(3 * value + 2)));
            p->mean[n] = (float)value;
            p->correct[n] = value % 3 == 0;
            p->rows[n] = (int32_t)(p->batch.token_count + PROMPT - 1 + i);
        }
        if (a < 2 * first) continue;
        p->batch.token_count += PROMPT + counts[a];
        p->borders[++p->batch.sequence_count] = (int32_t)p->batch.token_count;
    }
    p->batch.rows = p->rows;
    p->batch.cu_seqlens = p->borders;
}

static struct tt_objective dpo(double beta, double label_smoothing)
{
    struct tt_objective objective;
    assert_int_equal(tt_objective_init("dpo", &objective), TT_OK);
    objective.values[BETA] = beta;
    objective.values[LABEL_SMOOTHING] = label_smoothing;
    assert_int_equal(tt_objective_set_loss(&objective, label_smoothing > 0 ? "robust" : "sigmoid"), TT_OK);
    return objective;
}

static tt_status run(const struct tt_objective *objective, struct problem *p)
{
    struct tt_objective_rows rows = {.batch = &p->batch,
                                     .counts = &p->counts,
                                     .logp_N = p->logp,
                                     .ref_logp_N = p->reference,
                                     .correct_N = p->correct,
                                     .entropy_N = p->entropy,
                                     .mean_N = p->mean,
                                     .scale_N = p->scale,
                                     .sums = p->sums};
    memset(p->sums, 0, sizeof p->sums);
    return tt_objective_run(objective, &rows, NULL);
}

static double loss_at(const struct tt_objective *objective, struct problem p)
{
    assert_int_equal(run(objective, &p), TT_OK);
    return p.sums[LOSS] / PAIRS;
}

static void scales_are_the_gradient(void **state)
{
    (void)state;
    static const double settings[][2] = {{0.1, 0.01}, {2, 0.01}, {0.5, 0.1}, {1, 0.4}};
    for (size_t s = 0; s < 4 * TT_DPO_LOSSES; s++) {
        struct tt_objective objective = dpo(settings[s % 4][0], settings[s % 4][1]);
        objective.losses[0] = (int)(s / 4);
        objective.values[DISCOPOP_TAU] = 0.5;
        struct problem p;
        make(&p, 0, PAIRS);
        assert_int_equal(p.batch.row_count, ROWS);
        assert_int_equal(run(&objective, &p), TT_OK);
        for (int n = 0; n < ROWS; n++) {
            struct problem up = p, down = p;
            up.logp[n] += 0x1p-6f;
            down.logp[n] -= 0x1p-6f;
            double step = (double)up.logp[n] - (double)down.logp[n];
            double slope = (loss_at(&objective, up) - loss_at(&objective, down)) / step;
            if (fabs(-slope - (double)p.scale[n]) > 4e-4 * fabs(slope) + 1e-6)
                fail_msg("loss %d, row %d: scale %g, not %g", objective.losses[0], n, (double)p.scale[n],
                         -slope);
        }
    }
}

/* Micro batches of one step: the same scales, and sums that add up. */
static void parts_are_the_whole(void **state)
{
    (void)state;
    struct tt_objective objective = dpo(0.3, 0.05);
    struct problem whole, part;
    double sums[TT_OBJECTIVE_SUMS] = {0};
    int64_t row = 0;
    make(&whole, 0, PAIRS);
    assert_int_equal(run(&objective, &whole), TT_OK);
    for (int pair = 0; pair < PAIRS; pair++) {
        make(&part, pair, pair + 1);
        assert_int_equal(run(&objective, &part), TT_OK);
        assert_memory_equal(part.scale, whole.scale + row, (size_t)part.batch.row_count * sizeof(float));
        row += part.batch.row_count;
        for (int i = 0; i < TT_OBJECTIVE_SUMS; i++) sums[i] += part.sums[i];
    }
    assert_int_equal(row, ROWS);
    for (int i = 0; i < TT_OBJECTIVE_SUMS; i++)
        assert_true(fabs(sums[i] - whole.sums[i]) < 1e-12 * (1 + fabs(sums[i])));
}

/* At the reference the loss is log 2 with any settings but smoothing, and no pair is right. */
static void it_begins_at_log_2(void **state)
{
    (void)state;
    struct tt_objective objective = dpo(0.7, 0);
    struct problem p;
    double metrics[TT_OBJECTIVE_METRICS_MAX];
    make(&p, 0, PAIRS);
    memcpy(p.reference, p.logp, sizeof p.logp);
    assert_int_equal(run(&objective, &p), TT_OK);
    tt_objective_metrics(&objective, p.sums, &p.counts, NAN, metrics);
    assert_true(fabs(metrics[TT_METRIC_LOSS] - log(2)) < 1e-15);
    for (int i = 5; i <= 8; i++) assert_true(metrics[i] == 0); /* rewards, and the share of right pairs */
    for (int n = 0, a = 0; a < 2 * PAIRS; a++)
        for (int i = 0; i < counts[a]; i++, n++)
            assert_true(fabs((double)p.scale[n] - (a % 2 == 0 ? 1 : -1) * 0.7 / 2 / PAIRS) < 1e-8);
}

static void far_values_stay_finite(void **state)
{
    (void)state;
    static const double sizes[] = {1e3, 1e6, 1e30};
    for (int s = 0; s < 6; s++) {
        struct tt_objective objective = dpo(1, s % 2 == 0 ? 0 : 0.25);
        struct problem p;
        make(&p, 0, 1);
        for (int n = 0; n < counts[0]; n++)
            p.logp[n] = (float)-sizes[s / 2]; /* the wrong one is far likelier */
        assert_int_equal(run(&objective, &p), TT_OK);
        assert_true(isfinite(p.sums[LOSS]) && p.sums[LOSS] > 0.9 * 2 * sizes[s / 2]);
        for (int n = 0; n < p.batch.row_count; n++) assert_true(isfinite(p.scale[n]));
        assert_true(p.scale[0] > 0 && p.scale[counts[0]] < 0);
    }
}

static void refusals(void **state)
{
    (void)state;
    struct problem p;
    struct tt_objective objective;
    assert_int_equal(tt_objective_init("dpo", &objective), TT_OK);
    assert_true(objective.values[BETA] == 0.1 && objective.values[LABEL_SMOOTHING] == 0);
    assert_int_equal(tt_objective_check(&objective), TT_OK);
    objective.values[BETA] = 0;
    assert_int_equal(tt_objective_check(&objective), TT_ERR_USAGE);
    objective.values[BETA] = INFINITY;
    assert_int_equal(tt_objective_check(&objective), TT_ERR_USAGE);
    objective = dpo(0.1, 0.5);
    assert_int_equal(tt_objective_check(&objective), TT_ERR_USAGE);
    objective = dpo(0.1, 0);
    make(&p, 0, PAIRS);
    p.batch.group_size = 1;
    assert_int_equal(run(&objective, &p), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "groups of 2 sequences, and the data has groups of 1"));
    assert_string_equal(tt_objective_best_metric(&objective, "eval_rewards/accuracies")->name,
                        "rewards/accuracies");
    assert_null(tt_objective_best_metric(&objective, "rewards/chosen"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_are_the_gradient),
        cmocka_unit_test(parts_are_the_whole),
        cmocka_unit_test(it_begins_at_log_2),
        cmocka_unit_test(far_values_stay_finite),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
