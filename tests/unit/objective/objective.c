/* objective/objective.h: objectives by name, their metrics from sums, and which of them a checkpoint can be the best
 * by. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "objective/objective.h"

static struct tt_objective sft(void)
{
    struct tt_objective objective;
    assert_int_equal(tt_objective_init("sft", &objective), TT_OK);
    return objective;
}

static void an_unknown_name_is_refused(void **state)
{
    (void)state;
    struct tt_objective objective;
    assert_int_equal(tt_objective_init("sftt", &objective), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "'sftt'"));
    assert_non_null(strstr(tt_error_last()->hint, "sft"));
}

static const struct tt_objective_ops *const all[] = {
#define OBJECTIVE(name, what, losses) &tt_objective_##name,
#define TASK_OBJECTIVE(name) &tt_objective_##name,
#include "objective/objectives.def"
};

/* A number that lands at its place among the values, belongs to the objective and has a default in its range. */
static void check_setting(const struct tt_objective *objective, int index)
{
    const struct tt_setting *row = &objective->ops->settings[index];
    assert_in_range(index, 0, TT_OBJECTIVE_SETTINGS_MAX - 1);
    assert_int_equal(row->type, TT_SETTING_DOUBLE);
    assert_int_equal(row->offset, (size_t)index * sizeof *objective->values);
    assert_string_equal(row->of, objective->ops->name);
    assert_true(objective->values[index] == strtod(row->default_text, NULL));
    assert_true(tt_objective_has_default(objective, index));
}

/* What holds for every line of objectives.def. */
static void every_objective_is_whole(void **state)
{
    (void)state;
    for (size_t o = 0; o < sizeof all / sizeof *all; o++) {
        struct tt_objective objective;
        const struct tt_objective_ops *ops = all[o];
        assert_int_equal(tt_objective_init(ops->name, &objective), TT_OK);
        assert_ptr_equal(objective.ops, ops);
        assert_in_range(ops->metric_count, 1, TT_OBJECTIVE_METRICS_MAX);
        assert_string_equal(ops->metrics[TT_METRIC_LOSS].name, "loss");
        assert_int_equal(tt_objective_check(&objective), TT_OK);
        for (int i = 0; ops->settings != NULL && ops->settings[i].name != NULL; i++)
            check_setting(&objective, i);
        if ((ops->needs & TT_NEEDS_REFERENCE) != 0) assert_non_null(ops->rows);
        for (int i = 0; i < ops->metric_count; i++) {
            const struct tt_metric *metric = &ops->metrics[i];
            assert_in_range(metric->sum, 0, TT_OBJECTIVE_SUMS - 1);
            assert_true(metric->over >= TT_OF_METRICS && metric->over < TT_OBJECTIVE_SUMS);
            if (metric->over == TT_OF_METRICS) assert_in_range(metric->sum, 0, i - 2);
            for (int j = 0; j < i; j++) assert_string_not_equal(metric->name, ops->metrics[j].name);
        }
    }
}

/* Of a detector, whose sums are means already; steps report its losses alone. */
static void sums_may_be_values(void **state)
{
    (void)state;
    struct tt_objective objective;
    struct tt_objective_counts none = {0};
    double sums[TT_OBJECTIVE_SUMS], metrics[TT_OBJECTIVE_METRICS_MAX];
    for (int i = 0; i < TT_OBJECTIVE_SUMS; i++) sums[i] = i + 0.5;
    assert_int_equal(tt_objective_init("detection", &objective), TT_OK);
    tt_objective_metrics(&objective, sums, &none, NAN, metrics);
    assert_string_equal(tt_objective_unit(&objective), "images");
    assert_int_equal(tt_objective_step_metrics(&objective), 3);
    assert_true(metrics[0] == 2.5 && metrics[1] == 0.5 && metrics[2] == 1.5 && metrics[3] == 3.5);
    assert_string_equal(tt_objective_best_metric(&objective, "eval_map_50")->name, "map_50");
    assert_string_equal(tt_objective_unit(&(struct tt_objective){.ops = sft().ops}), "tokens");
    objective = sft();
    assert_int_equal(tt_objective_step_metrics(&objective), 3);
}

static void metrics_are_quotients_of_sums(void **state)
{
    (void)state;
    struct tt_objective objective = sft();
    struct tt_objective_counts counts = {.tokens = 8}, none = {0};
    const double sums[TT_OBJECTIVE_SUMS] = {20, 6, 12}; /* of losses, right answers, entropies */
    double metrics[TT_OBJECTIVE_METRICS_MAX];
    tt_objective_metrics(&objective, sums, &counts, NAN, metrics);
    assert_int_equal(objective.ops->metric_count, 3);
    assert_string_equal(objective.ops->metrics[1].name, "entropy");
    assert_string_equal(objective.ops->metrics[2].name, "mean_token_accuracy");
    assert_true(metrics[0] == 2.5 && metrics[1] == 1.5 && metrics[2] == 0.75);
    tt_objective_metrics(&objective, sums, &none, NAN, metrics);
    assert_true(isnan(metrics[0]) && isnan(metrics[1]) && isnan(metrics[2]));
    tt_objective_metrics(&objective, sums, &none, 0.0, metrics);
    assert_true(metrics[0] == 0 && metrics[1] == 0 && metrics[2] == 0);
}

/* By groups, and by another sum. */
static void groups_and_sums_can_divide(void **state)
{
    (void)state;
    static const struct tt_metric own[] = {{"loss", 0, TT_OVER_GROUPS, TT_BETTER_SMALLER},
                                           {"share", 4, 5, TT_BETTER_GREATER}};
    static const struct tt_objective_ops ops = {.name = "test", .metrics = own, .metric_count = 2};
    struct tt_objective objective = {.ops = &ops};
    struct tt_objective_counts counts = {.tokens = 7, .groups = 2};
    double sums[TT_OBJECTIVE_SUMS] = {[0] = 3, [4] = 3, [5] = 4}, metrics[TT_OBJECTIVE_METRICS_MAX];
    tt_objective_metrics(&objective, sums, &counts, -1, metrics);
    assert_true(metrics[0] == 1.5 && metrics[1] == 0.75);
    sums[5] = 0;
    tt_objective_metrics(&objective, sums, &counts, -1, metrics);
    assert_true(metrics[0] == 1.5 && metrics[1] == -1);
}

static tt_status refuse_halves(const struct tt_objective *objective)
{
    return objective->values[0] == 0.5 ? tt_fail(TT_ERR_USAGE, "no halves") : TT_OK;
}

static void settings_have_ranges(void **state)
{
    (void)state;
    static const struct tt_setting own[] = {
        {.name = "weight", TT_OBJECTIVE_SETTING(0), .default_text = "1", .maximum = 10},
        {.name = "share", TT_OBJECTIVE_SETTING(1), .default_text = "0.25", .maximum = 0.5},
        {.name = NULL}};
    static const struct tt_objective_ops ops = {.name = "test", .settings = own, .check = refuse_halves};
    struct tt_objective objective = {.ops = &ops, .values = {9.5, 0}};
    assert_int_equal(tt_objective_check(&objective), TT_OK);
    assert_false(tt_objective_has_default(&objective, 0));
    objective.values[1] = 0.5;
    assert_int_equal(tt_objective_check(&objective), TT_ERR_USAGE);
    assert_string_equal(tt_error_last()->message,
                        "share of objective 'test' is 0.5: at least 0, and below 0.5");
    objective.values[1] = -0.1;
    assert_int_equal(tt_objective_check(&objective), TT_ERR_USAGE);
    objective.values[1] = NAN;
    assert_int_equal(tt_objective_check(&objective), TT_ERR_USAGE);
    objective.values[1] = 0.25;
    assert_true(tt_objective_has_default(&objective, 1));
    objective.values[0] = 0.5;
    assert_int_equal(tt_objective_check(&objective), TT_ERR_USAGE);
    assert_string_equal(tt_error_last()->message, "no halves");
}

/* A loss by its name or by a list of one; others are refused, with the names of all objectives. */
static void losses_have_names(void **state)
{
    (void)state;
    static const char *const wrong[] = {"sigmoid", "", "[]", "[\"nll\", \"nll\"]", "[1]", "nll chunked_nll"};
    char word[TT_OBJECTIVE_WORD_BYTES];
    struct tt_objective objective = sft(), dpo;
    assert_int_equal(tt_objective_set_loss(&objective, "chunked_nll"), TT_OK);
    assert_int_equal(objective.losses[0], 1);
    assert_int_equal(tt_objective_set_loss(&objective, "[\"nll\"]"), TT_OK);
    assert_int_equal(objective.losses[0], 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(tt_objective_set_loss(&objective, wrong[i]), TT_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(tt_error_last()->hint, "sft has nll chunked_nll, one at a time; objective: dpo has"));
    assert_int_equal(tt_objective_init("dpo", &dpo), TT_OK);
    assert_string_equal(tt_objective_loss_word(&dpo, 1, word), "robust");
    assert_string_equal(tt_objective_loss_word(&dpo, 99, word), "");
    assert_int_equal(tt_objective_init("detection", &objective), TT_OK);
    assert_int_equal(tt_objective_set_loss(&objective, "nll"), TT_ERR_UNSUPPORTED);
}

/* Three sequences of which the second has no row. */
static void rows_belong_to_sequences(void **state)
{
    (void)state;
    static const int32_t borders[] = {0, 4, 6, 9}, rows[] = {1, 2, 6, 7};
    const struct tt_batch batch = {.sequence_count = 3, .cu_seqlens = borders, .row_count = 4, .rows = rows};
    assert_int_equal(tt_objective_rows_end(&batch, 0, 0), 2);
    assert_int_equal(tt_objective_rows_end(&batch, 1, 2), 2);
    assert_int_equal(tt_objective_rows_end(&batch, 2, 2), 4);
}

static void the_best_is_by_a_metric_with_a_direction(void **state)
{
    (void)state;
    struct tt_objective objective = sft();
    char names[64], short_text[8];
    const struct tt_metric *metric = tt_objective_best_metric(&objective, NULL);
    assert_string_equal(metric->name, "loss");
    assert_int_equal(metric->better, TT_BETTER_SMALLER);
    assert_ptr_equal(tt_objective_best_metric(&objective, "loss"), metric);
    assert_ptr_equal(tt_objective_best_metric(&objective, "eval_loss"), metric);
    metric = tt_objective_best_metric(&objective, "eval_mean_token_accuracy");
    assert_string_equal(metric->name, "mean_token_accuracy");
    assert_int_equal(metric->better, TT_BETTER_GREATER);
    assert_null(tt_objective_best_metric(&objective, "entropy")); /* neither way is better */
    assert_null(tt_objective_best_metric(&objective, "eval_eval_loss"));
    assert_null(tt_objective_best_metric(&objective, ""));
    tt_objective_best_names(&objective, names, sizeof names);
    assert_string_equal(names, "loss and mean_token_accuracy");
    tt_objective_best_names(&objective, short_text, sizeof short_text);
    assert_string_equal(short_text, "loss an");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_name_is_refused),
        cmocka_unit_test(every_objective_is_whole),
        cmocka_unit_test(metrics_are_quotients_of_sums),
        cmocka_unit_test(sums_may_be_values),
        cmocka_unit_test(groups_and_sums_can_divide),
        cmocka_unit_test(settings_have_ranges),
        cmocka_unit_test(losses_have_names),
        cmocka_unit_test(rows_belong_to_sequences),
        cmocka_unit_test(the_best_is_by_a_metric_with_a_direction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
