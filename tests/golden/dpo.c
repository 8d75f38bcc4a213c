/* The DPO objective against the loss of TRL's DPOTrainer (tests/golden/dpo): loss, the gradient by every log p, and
 * every metric that both have. TRL computes in fp32. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "objective/dpo_losses.h"
#include "objective/objective.h"

enum { ROWS_MAX = 64, SEQUENCES_MAX = 10, F_DIVERGENCE = 3 };

struct values {
    float logp[ROWS_MAX], reference[ROWS_MAX], entropy[ROWS_MAX], mean[ROWS_MAX], scale[ROWS_MAX];
    double gradient[ROWS_MAX];
    int32_t correct[ROWS_MAX], rows[ROWS_MAX], borders[SEQUENCES_MAX + 1];
    struct tt_batch batch;
    int64_t chosen_tokens;
};

static double number_at(const struct tt_json_value *object, const char *key, size_t index)
{
    return tt_json_number(tt_json_at(tt_json_get(object, key), index));
}

/* A prompt of two tokens, then the answer: its first token is the label of row 1. */
static void add_answer(struct values *v, const struct tt_json_value *answer)
{
    struct tt_batch *batch = &v->batch;
    size_t count = tt_json_count(tt_json_get(answer, "logp"));
    assert_true(count > 0 && batch->row_count + (int64_t)count <= ROWS_MAX);
    for (size_t i = 0; i < count; i++) {
        int64_t n = batch->row_count++;
        v->rows[n] = (int32_t)(batch->token_count + 1 + (int64_t)i);
        v->logp[n] = (float)number_at(answer, "logp", i);
        v->reference[n] = (float)number_at(answer, "reference", i);
        v->entropy[n] = (float)number_at(answer, "entropy", i);
        v->mean[n] = (float)number_at(answer, "mean_logits", i);
        v->correct[n] = (int32_t)number_at(answer, "correct", i);
        v->gradient[n] = number_at(answer, "gradient", i);
    }
    batch->token_count += 2 + (int64_t)count;
    v->borders[++batch->sequence_count] = (int32_t)batch->token_count;
}

static void read_pairs(const struct tt_json_value *pairs, struct values *v)
{
    *v = (struct values){.batch = {.group_size = 2}};
    for (size_t p = 0; p < tt_json_count(pairs); p++) {
        const struct tt_json_value *pair = tt_json_at(pairs, p);
        add_answer(v, tt_json_get(pair, "chosen"));
        v->chosen_tokens += (int64_t)tt_json_count(tt_json_get(tt_json_get(pair, "chosen"), "logp"));
        add_answer(v, tt_json_get(pair, "rejected"));
        v->batch.group_count++;
    }
    v->batch.rows = v->rows;
    v->batch.cu_seqlens = v->borders;
}

static void check_close(const char *what, size_t index, double got, double wanted, double size)
{
    if (!(fabs(got - wanted) <= 2e-6 * size + 1e-7))
        fail_msg("case %zu: %s is %.9g, not %.9g", index, what, got, wanted);
}

static void set_text(struct tt_objective *objective, const struct tt_json_value *value,
                     tt_status (*set)(struct tt_objective *, const char *))
{
    struct tt_str text = {0};
    if (value == NULL) return;
    if (tt_json_is_string(value))
        assert_int_equal(tt_str_append_text(&text, tt_json_text(value)), TT_OK);
    else
        assert_int_equal(tt_json_write(value, 0, false, &text), TT_OK);
    assert_int_equal(set(objective, tt_str_text(&text)), TT_OK);
    tt_str_deinit(&text);
}

/* A setting that the case does not name has its default. */
static void read_losses(const struct tt_json_value *from, struct tt_objective *objective)
{
    const struct tt_setting *rows = objective->ops->settings;
    for (int i = 0; rows[i].name != NULL; i++) {
        const struct tt_json_value *value = tt_json_get(from, rows[i].name);
        char word[TT_OBJECTIVE_WORD_BYTES];
        if (tt_json_is_number(value)) objective->values[i] = tt_json_number(value);
        for (int w = 0; tt_json_is_string(value) && *tt_setting_word(&rows[i], w, word, sizeof word) != '\0';
             w++)
            if (strcmp(word, tt_json_text(value)) == 0) objective->values[i] = w;
    }
    set_text(objective, tt_json_get(from, "loss_type"), tt_objective_set_loss);
    set_text(objective, tt_json_get(from, "loss_weights"), tt_objective_set_loss_weights);
}

/* The lists of a step that is this batch alone. */
static void share(const struct tt_objective *objective, struct tt_objective_rows rows,
                  struct tt_step_lists *lists)
{
    double sums[TT_OBJECTIVE_SHARED_MAX] = {0};
    tt_step_lists_begin(lists, objective->ops->listed);
    rows.listed = tt_step_lists_add(lists, rows.batch->group_count);
    rows.scale_N = NULL;
    rows.sums = NULL;
    assert_non_null(rows.listed);
    assert_int_equal(tt_objective_run(objective, &rows, sums), TT_OK);
    assert_int_equal(tt_step_lists_sort(lists, lists->own, rows.batch->group_count, 0), TT_OK);
}

static void check_case(size_t index, const struct tt_json_value *from)
{
    struct values v;
    struct tt_objective objective;
    double sums[TT_OBJECTIVE_SUMS] = {0}, metrics[TT_OBJECTIVE_METRICS_MAX];
    const struct tt_json_value *wanted = tt_json_get(from, "metrics");
    double wanted_loss = tt_json_number(tt_json_get(from, "loss"));
    read_pairs(tt_json_get(from, "pairs"), &v);
    assert_int_equal(tt_objective_init("dpo", &objective), TT_OK);
    read_losses(from, &objective);
    assert_int_equal(tt_objective_check(&objective), TT_OK);
    struct tt_objective_counts counts = {
        .tokens = v.batch.row_count, .leading_tokens = v.chosen_tokens, .groups = v.batch.group_count};
    struct tt_objective_rows rows = {.batch = &v.batch,
                                     .counts = &counts,
                                     .logp_N = v.logp,
                                     .ref_logp_N = v.reference,
                                     .correct_N = v.correct,
                                     .entropy_N = v.entropy,
                                     .mean_N = v.mean,
                                     .scale_N = v.scale,
                                     .sums = sums};
    struct tt_step_lists lists = {0};
    if (tt_objective_shares(&objective)) share(&objective, rows, &lists);
    rows.lists = tt_step_lists_take(&lists, v.batch.group_count);
    assert_int_equal(tt_objective_run(&objective, &rows, NULL), TT_OK);
    tt_step_lists_deinit(&lists);
    tt_objective_metrics(&objective, sums, &counts, NAN, metrics);
    /* Scores of a divergence are exponentials, in fp32 there. */
    double spread = objective.values[F_DIVERGENCE] != TT_DPO_REVERSE_KL ? 5 : 1;
    check_close("loss", index, metrics[0], wanted_loss, spread * fabs(wanted_loss));
    /* A scale is the derivative by -log p. That of sppo_hard is a difference of sums, which are larger. */
    double sums_size = objective.losses[0] == TT_DPO_SPPO_HARD ? 1 : 0;
    for (int64_t n = 0; n < v.batch.row_count; n++)
        check_close("a gradient", index, -(double)v.scale[n], v.gradient[n],
                    spread * fabs(v.gradient[n]) + sums_size);
    for (int i = 1; i < objective.ops->metric_count; i++) {
        const char *name = objective.ops->metrics[i].name;
        const struct tt_json_value *value = tt_json_get(wanted, name);
        if (value == NULL) fail_msg("TRL does not log %s", name);
        /* Rewards are differences of sums that are this large. */
        check_close(name, index, metrics[i], tt_json_number(value), 100);
    }
}

static void as_trl(void **state)
{
    (void)state;
    struct tt_json json = {0};
    if (tt_json_read(TT_TEST_ROOT "/golden/dpo/dpo.json", 1 << 20, &json) != TT_OK)
        fail_msg("%s", tt_error_last()->message);
    const struct tt_json_value *cases = tt_json_get(json.root, "cases");
    assert_int_equal(tt_json_count(cases), 52);
    for (size_t i = 0; i < tt_json_count(cases); i++) check_case(i, tt_json_at(cases, i));
    tt_json_deinit(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_trl)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
