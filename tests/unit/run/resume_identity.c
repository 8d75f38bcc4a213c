/* The identity of a run: the objective with its options, and the groups and columns of its data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "job/spec.h"
#include "run/resume.h"
#include "run/run.h"

static struct tt_json_value *identity_of(const struct tt_objective *objective, struct tt_dataset *data)
{
    const struct tt_job_spec job = {0};
    struct tt_run *run = test_calloc(1, sizeof *run);
    run->objective = objective;
    run->model = &job.model;
    run->data = &job.data;
    run->optim = &job.optim;
    run->spec = &job.run;
    run->watch = &job.watch;
    run->inputs.train = data;
    struct tt_json_value *identity = tt_resume_identity(run, 1);
    test_free(run);
    assert_non_null(identity);
    return identity;
}

/* Checks that just the member `name` differs between two identities, and releases the second. */
static void check_differs(const struct tt_json_value *a, struct tt_json_value *b, const char *name)
{
    const char *member;
    const struct tt_json_value *value;
    size_t differ = 0;
    for (size_t i = 0; tt_json_next_member(b, &i, &member, &value);) {
        const struct tt_json_value *before = tt_json_get(a, member);
        if (before == NULL || tt_json_equal(before, value)) continue;
        assert_string_equal(member, name);
        differ++;
    }
    assert_int_equal(differ, 1);
    tt_json_release(b);
}

static struct tt_dataset *make_data(size_t group, const char *column, float last)
{
    const float values[12] = {[11] = last};
    struct tt_dataset *data = NULL;
    assert_int_equal(tt_dataset_create_random(12, 5, 9, 50, 3, &data), TT_OK);
    if (group > 1) assert_int_equal(tt_dataset_group(data, group), TT_OK);
    if (column != NULL) assert_int_equal(tt_dataset_add_column(data, column, TT_PER_SEQUENCE, values), TT_OK);
    return data;
}

static void the_objective_and_its_options(void **state)
{
    (void)state;
    struct tt_objective sft, dpo, other;
    struct tt_dataset *data = make_data(1, NULL, 0);
    assert_int_equal(tt_objective_init("sft", &sft), TT_OK);
    assert_int_equal(tt_objective_init("dpo", &dpo), TT_OK);
    other = dpo;
    assert_int_equal(tt_objective_set(&other, "beta", 0.3), TT_OK);
    struct tt_json_value *of_sft = identity_of(&sft, data), *of_dpo = identity_of(&dpo, data);
    check_differs(of_dpo, identity_of(&other, data), "beta (dpo)");
    check_differs(of_sft, identity_of(&dpo, data), "objective");
    tt_json_release(of_sft);
    tt_json_release(of_dpo);
    tt_dataset_destroy(data);
}

static void groups_and_columns(void **state)
{
    (void)state;
    const struct {
        size_t group;
        const char *column;
        float last;
    } others[] = {{1, NULL, 0}, {3, "weight", 0}, {2, "advantage", 0}, {2, "weight", 1}, {2, NULL, 0}};
    struct tt_objective sft;
    assert_int_equal(tt_objective_init("sft", &sft), TT_OK);
    struct tt_dataset *data = make_data(2, "weight", 0), *same = make_data(2, "weight", 0);
    struct tt_json_value *identity = identity_of(&sft, data), *again = identity_of(&sft, same);
    assert_true(tt_json_equal(identity, again));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct tt_dataset *other = make_data(others[i].group, others[i].column, others[i].last);
        check_differs(identity, identity_of(&sft, other), "training data");
        tt_dataset_destroy(other);
    }
    tt_json_release(identity);
    tt_json_release(again);
    tt_dataset_destroy(data);
    tt_dataset_destroy(same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_objective_and_its_options),
        cmocka_unit_test(groups_and_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
