/* The identity of a run: the objective with its options, the groups and columns of its data, and the words of its
 * choices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "job/spec.h"
#include "run/resume.h"
#include "run/run.h"

static struct tt_json_value *identity_over(const struct tt_objective *objective, struct tt_dataset *data,
                                           const struct tt_base_quant *quant)
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
    run->inputs.model_options.quant = *quant;
    run->inputs.model_facts.stored_fp8_blocks = quant->blocks;
    struct tt_json_value *identity = tt_resume_identity(run, 1);
    test_free(run);
    assert_non_null(identity);
    return identity;
}

static struct tt_json_value *identity_of(const struct tt_objective *objective, struct tt_dataset *data)
{
    return identity_over(objective, data, &(struct tt_base_quant){0});
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

static void expect_word(const char *name, struct tt_json_value *value, const char *wanted)
{
    char word[32];
    assert_non_null(value);
    assert_string_equal(tt_resume_word(name, value, word, sizeof word), wanted);
    tt_json_release(value);
}

static void choices_saved_as_numbers_have_words(void **state)
{
    static const char *const bases[] = {
        "none",
#define FORMAT(id, name) #name,
#include "tensor/formats.def"
#undef FORMAT
    };
    static const char *const products[] = {"all", "forward", "none", "single"};
    const int base_count = sizeof bases / sizeof *bases, product_count = sizeof products / sizeof *products;
    (void)state;
    for (int i = 0; i < base_count; i++) expect_word("quantized base", tt_json_new_integer(i), bases[i]);
    for (int i = 0; i < product_count; i++) expect_word("fp8_products", tt_json_new_integer(i), products[i]);
    const int64_t beyond[] = {-1, base_count, INT32_MAX, (INT64_C(1) << 32) + 1};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        expect_word("quantized base", tt_json_new_integer(beyond[i]), "");
        expect_word("fp8_products", tt_json_new_integer(beyond[i]), "");
    }
    expect_word("quantized base", tt_json_new_string("nf4"), "");
    expect_word("lora_r", tt_json_new_integer(1), "");
}

/* What the identity has as a whole number is a choice with words, or one of these. */
static void other_numbers_are_counts(void **state)
{
    static const char *const counts[] = {TT_RESUME_SAMPLES, "lora_r",
                                         "max_length",      "seed",
                                         "data_seed",       "steps in all (max_steps, num_train_epochs)",
                                         "warmup_steps"};
    static const enum tt_quant_type types[] = {TT_QUANT_NONE, TT_QUANT_NF4, TT_QUANT_FP8};
    struct tt_objective sft;
    (void)state;
    assert_int_equal(tt_objective_init("sft", &sft), TT_OK);
    struct tt_dataset *data = make_data(1, NULL, 0);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct tt_base_quant quant = {.type = types[t], .blocks = types[t] == TT_QUANT_FP8};
        struct tt_json_value *identity = identity_over(&sft, data, &quant);
        const char *name;
        const struct tt_json_value *value;
        size_t worded = 0;
        for (size_t i = 0; tt_json_next_member(identity, &i, &name, &value);) {
            char word[32];
            bool is_count = !tt_json_is_integer(value);
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                is_count |= strcmp(name, counts[c]) == 0;
            bool has_word = tt_resume_word(name, value, word, sizeof word)[0] != '\0';
            if (is_count == has_word) fail_msg("%s is a count: %d, has a word: %d", name, is_count, has_word);
            worded += has_word;
        }
        assert_int_equal(worded, types[t] == TT_QUANT_FP8 ? 2 : 1);
        tt_json_release(identity);
    }
    tt_dataset_destroy(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_objective_and_its_options),
        cmocka_unit_test(groups_and_columns),
        cmocka_unit_test(choices_saved_as_numbers_have_words),
        cmocka_unit_test(other_numbers_are_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
