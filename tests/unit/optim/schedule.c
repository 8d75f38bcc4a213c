/* Learning-rate schedules against the factors that transformers gives (tests/golden/trainer/make_trainer.py).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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
    const json_t *schedules = json_object_get(json.root, "schedules"), *entry;
    int64_t total = json_integer_value(json_object_get(json.root, "max_steps"));
    size_t index;
    assert_true(json_array_size(schedules) >= 18);
    json_array_foreach(schedules, index, entry)
    {
        struct tt_str kwargs = {0};
        assert_int_equal(tt_json_write(json_object_get(entry, "lr_scheduler_kwargs"), 0, true, &kwargs),
                         TT_OK);
        struct tt_optim_config config = {
            .learning_rate = json_number_value(json_object_get(json.root, "learning_rate")),
            .lr_scheduler_type = json_string_value(json_object_get(entry, "lr_scheduler_type")),
            .lr_scheduler_kwargs = kwargs.data,
            .warmup_steps = json_number_value(json_object_get(json.root, "warmup_steps")),
        };
        assert_int_equal(tt_schedule_check(&config), TT_OK);
        const json_t *factors = json_object_get(entry, "factors");
        for (size_t step = 0; step < json_array_size(factors); step++) {
            double wanted = json_number_value(json_array_get(factors, step));
            double factor = tt_schedule_factor(&config, (int64_t)step, total);
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
    const json_t *cases = json_object_get(json.root, "warmup_ratios"), *entry;
    size_t index;
    json_array_foreach(cases, index, entry)
    {
        struct tt_optim_config config = {.lr_scheduler_type = "linear",
                                         .warmup_steps =
                                             json_number_value(json_object_get(entry, "warmup_steps"))};
        int64_t total = json_integer_value(json_object_get(entry, "max_steps"));
        assert_int_equal(tt_schedule_warmup_steps(&config, total),
                         json_integer_value(json_object_get(entry, "steps")));
    }
    tt_json_deinit(&json);
}

static void wrong_names_are_refused(void **state)
{
    (void)state;
    struct tt_optim_config config = {.learning_rate = 1e-3, .lr_scheduler_type = "cosinus"};
    assert_int_equal(tt_schedule_check(&config), TT_ERR_USAGE);
    config.lr_scheduler_type = "cosine";
    config.lr_scheduler_kwargs = "{\"cycles\": 2}";
    assert_int_equal(tt_schedule_check(&config), TT_ERR_USAGE);
    config.lr_scheduler_type = "warmup_stable_decay";
    config.lr_scheduler_kwargs = NULL;
    assert_int_equal(tt_schedule_check(&config), TT_ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_are_transformers),
        cmocka_unit_test(warmup_is_steps_or_share),
        cmocka_unit_test(wrong_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
