/* Objectives of pairs without a reference against the losses of TRL's ORPOTrainer and CPOTrainer (tests/golden/orpo,
 * cpo): loss, the gradient by every log p of prompts and answers, and every metric that both have. TRL computes in
 * fp32. Answers of probability 1. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "objective/objective.h"

enum { ROWS_MAX = 64, SEQUENCES_MAX = 8 };

struct values {
    float logp[ROWS_MAX], mean[ROWS_MAX], scale[ROWS_MAX], entropy[ROWS_MAX];
    double gradient[ROWS_MAX];
    int32_t correct[ROWS_MAX], rows[ROWS_MAX], borders[SEQUENCES_MAX + 1];
    uint8_t answer[ROWS_MAX];
    struct tt_batch batch;
    struct tt_objective_counts counts;
    double sums[TT_OBJECTIVE_SUMS], metrics[TT_OBJECTIVE_METRICS_MAX];
};

static double number_at(const struct tt_json_value *object, const char *key, size_t index)
{
    return tt_json_number(tt_json_at(tt_json_get(object, key), index));
}

/* Every token but the first is the label of a row; where nothing says which are of the answer, all are. */
static void add_side(struct values *v, const struct tt_json_value *side, bool leads)
{
    struct tt_batch *batch = &v->batch;
    size_t count = tt_json_count(tt_json_get(side, "logp"));
    bool prompt = tt_json_get(side, "answer") != NULL;
    assert_true(count > 0 && batch->row_count + (int64_t)count <= ROWS_MAX);
    for (size_t i = 0; i < count; i++) {
        int64_t n = batch->row_count++;
        v->rows[n] = (int32_t)(batch->token_count + (int64_t)i);
        v->logp[n] = (float)number_at(side, "logp", i);
        v->mean[n] = prompt ? (float)number_at(side, "mean_logits", i) : 0;
        v->gradient[n] = number_at(side, "gradient", i);
        v->answer[n] = !prompt || number_at(side, "answer", i) != 0;
    }
    if (leads) v->counts.leading_tokens += (int64_t)count;
    batch->token_count += 1 + (int64_t)count;
    v->borders[++batch->sequence_count] = (int32_t)batch->token_count;
}

static void read_pairs(const struct tt_json_value *pairs, struct values *v)
{
    *v = (struct values){.batch = {.group_size = 2}};
    for (size_t p = 0; p < tt_json_count(pairs); p++) {
        add_side(v, tt_json_get(tt_json_at(pairs, p), "chosen"), true);
        add_side(v, tt_json_get(tt_json_at(pairs, p), "rejected"), false);
        v->counts.groups = ++v->batch.group_count;
    }
    v->counts.tokens = v->batch.row_count;
    v->batch.rows = v->rows;
    v->batch.cu_seqlens = v->borders;
    v->batch.supervised = v->answer;
}

static void run(const struct tt_objective *objective, struct values *v)
{
    const struct tt_objective_rows rows = {.batch = &v->batch,
                                           .counts = &v->counts,
                                           .logp_N = v->logp,
                                           .correct_N = v->correct,
                                           .entropy_N = v->entropy,
                                           .mean_N = v->mean,
                                           .scale_N = v->scale,
                                           .sums = v->sums};
    assert_int_equal(tt_objective_run(objective, &rows, NULL), TT_OK);
    tt_objective_metrics(objective, v->sums, &v->counts, NAN, v->metrics);
}

static void check_close(const char *what, size_t index, double got, double wanted)
{
    double absolute =
        strcmp(what, "rewards/margins") == 0 ? 4e-6 : 2e-7; /* a margin is a difference of larger values */
    if (!(fabs(got - wanted) <= 4e-6 * fabs(wanted) + absolute))
        fail_msg("case %zu: %s is %.9g, not %.9g", index, what, got, wanted);
}

/* TRL's alpha of AlphaPO, which is LoRA's here. */
static const char *trl_name(const char *name)
{
    return strcmp(name, "alphapo_alpha") == 0 ? "alpha" : name;
}

/* Sets what the case names. */
static void read_settings(const struct tt_json_value *from, struct tt_objective *objective)
{
    const struct tt_json_value *loss = tt_json_get(from, "loss_type");
    if (loss != NULL) assert_int_equal(tt_objective_set_loss(objective, tt_json_text(loss)), TT_OK);
    for (int i = 0; objective->ops->settings[i].name != NULL; i++)
        objective->values[i] = tt_json_number(tt_json_get(from, trl_name(objective->ops->settings[i].name)));
}

/* Logits are compared where TRL has means of them without padding; *logits counts these cases. */
static void check_case(const char *name, size_t index, const struct tt_json_value *from, int *logits)
{
    struct values v;
    struct tt_objective objective;
    read_pairs(tt_json_get(from, "pairs"), &v);
    assert_int_equal(tt_objective_init(name, &objective), TT_OK);
    read_settings(from, &objective);
    run(&objective, &v);
    check_close("loss", index, v.metrics[TT_METRIC_LOSS], tt_json_number(tt_json_get(from, "loss")));
    /* A scale is the derivative by -log p. */
    for (int64_t n = 0; n < v.batch.row_count; n++)
        check_close("a gradient", index, -(double)v.scale[n], v.gradient[n]);
    for (int i = 1; i < objective.ops->metric_count; i++) {
        const char *metric = objective.ops->metrics[i].name;
        const struct tt_json_value *value = tt_json_get(tt_json_get(from, "metrics"), metric);
        bool of_logits = strncmp(metric, "logits/", 7) == 0, unweighted = strcmp(metric, "nll_loss") == 0;
        if (value == NULL && !of_logits && !unweighted) fail_msg("TRL does not log %s", metric);
        if (value != NULL) check_close(metric, index, v.metrics[i], tt_json_number(value));
        *logits += value != NULL && of_logits;
    }
}

static void check_cases(const char *name, size_t count, int logits_wanted)
{
    struct tt_json json = {0};
    char path[300];
    int logits = 0;
    snprintf(path, sizeof path, TT_TEST_ROOT "/golden/%s/%s.json", name, name);
    if (tt_json_read(path, 1 << 20, &json) != TT_OK) fail_msg("%s", tt_error_last()->message);
    const struct tt_json_value *cases = tt_json_get(json.root, "cases");
    assert_int_equal(tt_json_count(cases), count);
    for (size_t i = 0; i < count; i++) check_case(name, i, tt_json_at(cases, i), &logits);
    assert_int_equal(logits, logits_wanted);
    tt_json_deinit(&json);
}

static void as_trl(void **state)
{
    (void)state;
    check_cases("orpo", 6, 6);
    check_cases("cpo", 8, 0);
}

/* Odds of probability 1 are infinite, where TRL's gradient is NaN: ours is finite, and the loss that of the limit. */
static void certain_answers(void **state)
{
    (void)state;
    struct values v = {.logp = {-1, 0, -1, 0},
                       .answer = {0, 1, 0, 1},
                       .rows = {0, 1, 3, 4},
                       .borders = {0, 3, 6},
                       .batch = {.token_count = 6, .sequence_count = 2, .row_count = 4, .group_size = 2},
                       .counts = {.tokens = 4, .leading_tokens = 2, .groups = 1}};
    struct tt_objective orpo;
    v.batch.rows = v.rows;
    v.batch.cu_seqlens = v.borders;
    v.batch.supervised = v.answer;
    v.batch.group_count = 1;
    assert_int_equal(tt_objective_init("orpo", &orpo), TT_OK);
    run(&orpo, &v);
    assert_true(fabs(v.metrics[TT_METRIC_LOSS] - (0.5 + 0.1 * log(2))) < 1e-12);
    for (int n = 0; n < 4; n++) assert_true(isfinite(v.scale[n]));
    memset(v.sums, 0, sizeof v.sums);
    v.logp[3] = -1;
    run(&orpo, &v);
    assert_true(v.metrics[TT_METRIC_LOSS] >= 0.5 && v.metrics[TT_METRIC_LOSS] < 0.5 + 1e-6);
    for (int n = 0; n < 4; n++) assert_true(isfinite(v.scale[n]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_trl), cmocka_unit_test(certain_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
