/* The table of tasks: each says all that a job asks, by names that the settings of a plan have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "job/settings.h"
#include "job/task.h"
#include "objective/objective.h"

static const struct tt_setting *find(const char *name)
{
    const struct tt_job_rows *rows = &tt_job_rows[TT_JOB_PLAN];
    for (size_t s = 0; s < rows->count; s++)
        for (const struct tt_setting *row = rows->sections[s].rows; row->name != NULL; row++)
            if (strcmp(row->name, name) == 0) return row;
    fail_msg("a plan has no setting '%s'", name);
    return NULL;
}

static void each_is_a_word_of_the_setting(void **state)
{
    const struct tt_setting *row = find("task");
    char word[40];
    (void)state;
    for (int task = 0; task < TT_TASKS; task++)
        assert_string_equal(tt_setting_word(row, task, word, sizeof word), tt_task_name(task));
    assert_string_equal(tt_setting_word(row, TT_TASKS, word, sizeof word), "");
    assert_string_equal(row->default_text, tt_task_name(0));
}

static void each_answers(void **state)
{
    (void)state;
    for (int task = 0; task < TT_TASKS; task++) {
        const struct tt_task_ops *ops = tt_tasks[task];
        struct tt_objective objective;
        assert_non_null(ops->check);
        assert_non_null(ops->check_train);
        assert_non_null(ops->check_evaluate);
        assert_non_null(ops->open);
        assert_non_null(ops->network);
        assert_non_null(ops->limits);
        assert_non_null(ops->planned_file);
        if (ops->objective != NULL) assert_int_equal(tt_objective_init(ops->objective, &objective), TT_OK);
    }
}

/* A search sets the size, and what follows it stays in proportion. */
static void each_has_a_size(void **state)
{
    (void)state;
    for (int task = 0; task < TT_TASKS; task++) {
        const struct tt_task_size *size = &tt_tasks[task]->size;
        const struct tt_setting *row = find(size->setting);
        struct tt_plan_spec *spec = test_calloc(1, sizeof *spec);
        const int64_t *value = (const int64_t *)(const void *)((const char *)spec + row->offset);
        spec->job.detect.image_size = 100;
        spec->job.detect.max_image_size = 150;
        assert_true(row->of != NULL && strcmp(row->of, tt_task_name(task)) == 0);
        size->set(spec, 64);
        assert_true(*value == 64);
        if (size->follows != NULL) {
            const struct tt_setting *follows = find(size->follows);
            assert_true(size->follower(spec) == 96);
            assert_true(*(const int64_t *)(const void *)((const char *)spec + follows->offset) == 96);
        }
        test_free(spec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_a_word_of_the_setting),
        cmocka_unit_test(each_answers),
        cmocka_unit_test(each_has_a_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
