/* Learning-rate schedules against the factors that transformers gives (tests/golden/trainer/make_trainer.py).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "optim/schedule.h"

static void read_goldens(struct tt_json *json)
{
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/golden/trainer/schedules.json", 1 << 24, json), TT_OK);
}

static void factors_are_transformers(void **state)
{
    (void)state;
    struct tt_json json = {0};
    read_goldens(&json);
    const struct tt_json_value *schedules = tt_json_get(json.root, "schedules"), *entry;
    int64_t total = tt_json_integer(tt_json_get(json.root, "max_steps"));
    size_t index;
    assert_true(tt_json_count(schedules) >= 18);
    for (index = 0; (entry = tt_json_at(schedules, index)) != NULL; index++) {
        struct tt_str kwargs = {0};
        assert_int_equal(tt_json_write(tt_json_get(entry, "lr_scheduler_kwargs"), 0, true, &kwargs), TT_OK);
        struct tt_optim_config config = {
            .learning_rate = tt_json_number(tt_json_get(json.root, "learning_rate")),
            .lr_scheduler_type = tt_json_text(tt_json_get(entry, "lr_scheduler_type")),
            .lr_scheduler_kwargs = kwargs.data,
            .warmup_steps = tt_json_number(tt_json_get(json.root, "warmup_steps")),
        };
        assert_int_equal(tt_schedule_check(&config), TT_OK);
        const struct tt_json_value *factors = tt_json_get(entry, "factors");
        for (size_t step = 0; step < tt_json_count(factors); step++) {
            double wanted = tt_json_number(tt_json_at(factors, step));
            double factor =
                tt_schedule_factor(&config, (int64_t)step, (struct tt_schedule_length){total, total});
            if (fabs(factor - wanted) > 1e-12)
                fail_msg("%s with %s, step %zu: %.15g, wanted %.15g", config.lr_scheduler_type, kwargs.data,
                         step, factor, wanted);
        }
        tt_str_deinit(&kwargs);
    }
    tt_json_deinit(&json);
}

static void warmup_is_steps_or_share(void **state)
{
    (void)state;
    struct tt_json json = {0};
    read_goldens(&json);
    const struct tt_json_value *cases = tt_json_get(json.root, "warmup_ratios"), *entry;
    size_t index;
    for (index = 0; (entry = tt_json_at(cases, index)) != NULL; index++) {
        struct tt_optim_config config = {.lr_scheduler_type = "linear",
                                         .warmup_steps = tt_json_number(tt_json_get(entry, "warmup_steps"))};
        int64_t total = tt_json_integer(tt_json_get(entry, "max_steps"));
        assert_int_equal(tt_schedule_warmup_steps(&config, (struct tt_schedule_length){total, total}),
                         tt_json_integer(tt_json_get(entry, "steps")));
    }
    tt_json_deinit(&json);
}

static void wrong_names_are_refused(void **state)
{
    (void)state;
    struct tt_optim_config config = {.learning_rate = 1e-3, .lr_scheduler_type = "cosinus"};
    assert_int_equal(tt_schedule_check(&config), TT_ERR_INTERNAL); /* settings refuse it by the table */
    config.lr_scheduler_type = "cosine";
    config.lr_scheduler_kwargs = "{\"cycles\": 2}";
    assert_int_equal(tt_schedule_check(&config), TT_ERR_USAGE);
    config.lr_scheduler_type = "warmup_stable_decay";
    config.lr_scheduler_kwargs = NULL;
    assert_int_equal(tt_schedule_check(&config), TT_ERR_USAGE);
}

/* Keys of lr_scheduler_kwargs, each with the schedules that have it. */
static const struct {
    const char *key, *value, *schedules; /* with a blank before and behind each */
} keys[] = {
    {"num_cycles", "1",
     " cosine cosine_with_restarts cosine_with_min_lr cosine_warmup_with_min_lr warmup_stable_decay "},
    {"min_lr", "1e-5", " cosine_with_min_lr cosine_warmup_with_min_lr "},
    {"min_lr_rate", "0.1", " cosine_with_min_lr cosine_warmup_with_min_lr "},
    {"warmup_lr_rate", "0.1", " cosine_warmup_with_min_lr "},
    {"lr_end", "1e-5", " polynomial "},
    {"power", "2", " polynomial "},
    {"timescale", "10", " inverse_sqrt "},
    {"num_stable_steps", "2", " warmup_stable_decay "},
    {"num_decay_steps", "2", " warmup_stable_decay "},
    {"min_lr_ratio", "0.1", " warmup_stable_decay "},
    {"warmup_type", "\"cosine\"", " warmup_stable_decay "},
    {"decay_type", "\"linear\"", " warmup_stable_decay "},
    {"milestones", "[5]", " multistep "},
    {"milestone_epochs", "[5]", " multistep "},
    {"gamma", "0.5", " multistep "},
    {"warmup_factor", "0.5", " multistep "},
};

static const struct {
    const char *name, *needed; /* what it cannot be without, or empty */
    const char *instead;       /* keys that are in the place of `needed`, or empty */
} schedules[] = {
    {"linear", "", ""},
    {"cosine", "", ""},
    {"cosine_with_restarts", "", ""},
    {"cosine_with_min_lr", ", \"min_lr_rate\": 0.1", "min_lr min_lr_rate"},
    {"cosine_warmup_with_min_lr", ", \"min_lr_rate\": 0.1", "min_lr min_lr_rate"},
    {"polynomial", "", ""},
    {"constant", "", ""},
    {"constant_with_warmup", "", ""},
    {"inverse_sqrt", "", ""},
    {"warmup_stable_decay", ", \"num_decay_steps\": 2", "num_decay_steps"},
    {"multistep", ", \"milestones\": [5]", "milestones milestone_epochs"},
};

static void check_key(size_t s, size_t k)
{
    const char *name = schedules[s].name, *key = keys[k].key;
    bool instead = strstr(schedules[s].instead, key) != NULL && strcmp(key, "min_lr_ratio") != 0;
    char kwargs[200], named[80], expected[160];
    snprintf(kwargs, sizeof kwargs, "{\"%s\": %s%s}", key, keys[k].value, instead ? "" : schedules[s].needed);
    snprintf(named, sizeof named, " %s ", name);
    snprintf(expected, sizeof expected, "the schedule %s has no key '%s'", name, key);
    const struct tt_optim_config config = {
        .learning_rate = 1e-3, .lr_scheduler_type = name, .lr_scheduler_kwargs = kwargs};
    bool own = strstr(keys[k].schedules, named) != NULL;
    tt_status status = tt_schedule_check(&config);
    if (own && status != TT_OK) fail_msg("%s: %s", kwargs, tt_error_last()->message);
    if (!own && (status != TT_ERR_USAGE || strstr(tt_error_last()->message, expected) == NULL))
        fail_msg("%s with %s: %d %s", name, kwargs, status, tt_error_last()->message);
    tt_error_clear();
}

/* transformers' functions raise a TypeError for keyword arguments of another schedule. */
static void keys_of_other_schedules_are_refused(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) check_key(s, k);
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *type, *kwargs, *words;
    } cases[] = {
        {"cosine_with_min_lr", "{\"min_lr\": 1e-4, \"min_lr_rate\": 0.5}", "min_lr and min_lr_rate"},
        {"cosine_warmup_with_min_lr", "{\"min_lr\": 1e-4, \"min_lr_rate\": 0.5}", "min_lr and min_lr_rate"},
        {"polynomial", "{\"lr_end\": 1e-2}", "lr_end 0.01 is not below learning_rate 0.001"},
        {"polynomial", "{\"lr_end\": 1e-3}", "lr_end 0.001 is not below learning_rate 0.001"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tt_optim_config config = {.learning_rate = 1e-3,
                                               .lr_scheduler_type = cases[i].type,
                                               .lr_scheduler_kwargs = cases[i].kwargs};
        assert_int_equal(tt_schedule_check(&config), TT_ERR_USAGE);
        if (strstr(tt_error_last()->message, cases[i].words) == NULL)
            fail_msg("'%s': %s", cases[i].words, tt_error_last()->message);
        tt_error_clear();
    }
}

static double factor(const char *kwargs, int64_t step, int64_t total, int64_t epoch)
{
    const struct tt_optim_config config = {
        .learning_rate = 1, .lr_scheduler_type = "multistep", .lr_scheduler_kwargs = kwargs};
    assert_int_equal(tt_schedule_check(&config), TT_OK);
    return tt_schedule_factor(&config, step, (struct tt_schedule_length){total, epoch});
}

/* Steps, shares of all steps and epochs; torch's own factors are in tests/unit/optim/optimizer.c. */
static void milestones_are_steps_shares_or_epochs(void **state)
{
    (void)state;
    const char *steps = "{\"milestones\": [40, 0.7], \"gamma\": 0.5}",
               *epochs = "{\"milestone_epochs\": [3, 1.5]}";
    assert_true(factor(steps, 39, 100, 10) == 1.0);
    assert_true(factor(steps, 40, 100, 10) == 0.5);
    assert_true(factor(steps, 69, 100, 10) == 0.5);
    assert_true(factor(steps, 70, 100, 10) == 0.25);
    assert_true(factor(epochs, 14, 100, 10) == 1.0);
    assert_true(factor(epochs, 15, 100, 10) == 0.1);
    assert_true(factor(epochs, 29, 100, 10) == 0.1);
    assert_true(fabs(factor(epochs, 30, 100, 10) - 0.01) < 1e-15);
}

/* torchvision's references: min(1000, steps of the epoch - 1) from a factor of 1/1000 on, linear. */
static void warmup_of_epochs(void **state)
{
    (void)state;
    struct tt_optim_config config = {.learning_rate = 1,
                                     .lr_scheduler_type = "multistep",
                                     .lr_scheduler_kwargs = "{\"milestone_epochs\": [16, 22]}",
                                     .warmup_epochs = 1};
    static const struct {
        int64_t epoch, steps;
    } cases[] = {{1, 0}, {2, 1}, {7, 6}, {1000, 999}, {1001, 1000}, {7330, 1000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tt_schedule_length length = {26 * cases[i].epoch, cases[i].epoch};
        assert_int_equal(tt_schedule_warmup_steps(&config, length), cases[i].steps);
        assert_true(tt_schedule_factor(&config, cases[i].steps, length) == 1.0);
        if (cases[i].steps > 0) assert_true(tt_schedule_factor(&config, 0, length) == 0.001);
    }
    const struct tt_schedule_length short_run = {14, 7};
    assert_true(fabs(tt_schedule_factor(&config, 3, short_run) - (0.001 + 0.999 * 3 / 6)) < 1e-15);
    config.warmup_epochs = 0.5;
    assert_int_equal(tt_schedule_warmup_steps(&config, short_run), 3);
    config.warmup_ratio = 0.1;
    assert_int_equal(tt_schedule_warmup_steps(&config, short_run), 2);
    config.warmup_steps = 5;
    assert_int_equal(tt_schedule_warmup_steps(&config, short_run), 5);
}

static void wrong_milestones_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *kwargs, *words;
    } cases[] = {
        {NULL, "needs either milestones"},
        {"{}", "needs either milestones"},
        {"{\"milestones\": [5], \"milestone_epochs\": [1]}", "needs either milestones"},
        {"{\"milestones\": 5}", "not a list of numbers above 0"},
        {"{\"milestones\": [5, -1]}", "not a list of numbers above 0"},
        {"{\"milestone_epochs\": [\"16\"]}", "not a list of numbers above 0"},
        {"{\"milestones\": [5], \"gamma\": 0}", "gamma must be above 0"},
        {"{\"milestones\": [5], \"warmup_factor\": 2}", "warmup_factor in [0, 1]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tt_optim_config config = {
            .learning_rate = 1, .lr_scheduler_type = "multistep", .lr_scheduler_kwargs = cases[i].kwargs};
        assert_int_equal(tt_schedule_check(&config), TT_ERR_USAGE);
        if (strstr(tt_error_last()->message, cases[i].words) == NULL)
            fail_msg("'%s': %s", cases[i].words, tt_error_last()->message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_are_transformers),
        cmocka_unit_test(warmup_is_steps_or_share),
        cmocka_unit_test(keys_of_other_schedules_are_refused),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(wrong_names_are_refused),
        cmocka_unit_test(milestones_are_steps_shares_or_epochs),
        cmocka_unit_test(warmup_of_epochs),
        cmocka_unit_test(wrong_milestones_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
