/* Rows with a label of the whole and pairs with a margin or with log p by a reference: the values of their samples, and
 * which rows are refused with which message; the names of labels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "data/dataset.h"
#include "data/row_kind.h"
#include "io/labels.h"
#include "support/root.h"
#include "text/tokenizer.h"

static struct tt_data_config config_of(const struct tt_row_kind *kind)
{
    return (struct tt_data_config){.dataset_text_field = "text",
                                   .dataset_prompt_field = "prompt",
                                   .dataset_completion_field = "completion",
                                   .id2label = "[\"no\", \"yes\"]",
                                   .max_length = 16,
                                   .completion_only_loss = -1,
                                   .rows_kind = kind};
}

static struct tt_tokenizer *make_tokenizer(void)
{
    static const char json[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2}, \"merges\": []}}";
    struct tt_tokenizer *tokenizer = NULL;
    assert_int_equal(tt_tokenizer_parse(json, sizeof json - 1, "tokenizer.json", &tokenizer), TT_OK);
    return tokenizer;
}

static void check_values(const struct tt_row_kind *kind, const char *rows, const double *values,
                         const int *tokens, size_t count)
{
    const struct tt_data_config config = config_of(kind);
    struct tt_tokenizer *tokenizer = make_tokenizer();
    struct tt_dataset *dataset = NULL;
    test_put("good.jsonl", rows);
    if (tt_dataset_load(test_at("good.jsonl"), &config, tokenizer, 3, 0, &dataset) != TT_OK)
        fail_msg("%s", tt_error_last()->message);
    assert_int_equal(tt_dataset_count(dataset), count);
    for (size_t i = 0; i < count; i++) {
        struct tt_sample sample = tt_dataset_sample(dataset, i);
        assert_int_equal(sample.count, tokens[i]);
        assert_true(sample.value == values[i]);
    }
    tt_dataset_destroy(dataset);
    tt_tokenizer_destroy(tokenizer);
}

static void values_are_of_their_rows(void **state)
{
    (void)state;
    check_values(&tt_row_classified,
                 "{\"text\": \"abc\", \"label\": 2}\n{\"text\": \"ab\", \"label\": \"yes\"}\n"
                 "{\"input_ids\": [0, 1, 2, 1], \"label\": 0}\n",
                 (const double[]){2, 1, 0}, (const int[]){3, 2, 4}, 3);
    check_values(&tt_row_margin,
                 "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"cc\", \"margin\": 1.5}\n"
                 "{\"prompt\": \"ab\", \"chosen\": \"a\", \"rejected\": \"b\"}\n",
                 (const double[]){1.5, 1.5, 0, 0}, (const int[]){2, 3, 3, 3}, 4);
    check_values(
        &tt_row_referenced,
        "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"cc\", \"ref_chosen_logps\": -1.5, "
        "\"ref_rejected_logps\": -2}\n"
        "{\"prompt\": \"ab\", \"chosen\": \"a\", \"rejected\": \"b\", \"reference_chosen_logps\": 0, "
        "\"reference_rejected_logps\": -0.25}\n"
        "{\"prompt\": \"ab\", \"chosen\": \"a\", \"rejected\": \"b\", \"ref_chosen_logps\": null}\n",
        (const double[]){1.5, 2, (double)1e-30F, 0.25, 0, 0}, (const int[]){2, 3, 3, 3, 3, 3}, 6);
}

static void other_rows_are_refused(void **state)
{
    (void)state;
    static const struct {
        const struct tt_row_kind *kind;
        const char *row, *text;
    } cases[] = {
        {&tt_row_classified, "{\"text\": \"a\"}",
         "the row has no label with a text, a conversation or ids; it has 'text'"},
        {&tt_row_classified, "{\"label\": 1, \"other\": 2}", "it has 'label', 'other'"},
        {&tt_row_classified, "{\"text\": \"a\", \"label\": \"maybe\"}",
         "'label' is 'maybe', which id2label does not name"},
        {&tt_row_classified, "{\"text\": \"a\", \"label\": -1}",
         "'label' is neither the number of a label nor its name"},
        {&tt_row_classified, "{\"text\": \"a\", \"label\": 0.5}",
         "'label' is neither the number of a label nor its name"},
        {&tt_row_margin, "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"margin\": \"x\"}",
         "'margin' is no finite number"},
        {&tt_row_margin, "{\"prompt\": \"a\", \"completion\": \"b\"}", "the row has no preference"},
        {&tt_row_referenced,
         "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"ref_chosen_logps\": 1, "
         "\"ref_rejected_logps\": -1}",
         "'ref_chosen_logps' is no log p: a number of at most 0"},
        {&tt_row_referenced,
         "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"ref_chosen_logps\": -1}",
         "the row has 'ref_chosen_logps', and no 'ref_rejected_logps'"},
    };
    struct tt_tokenizer *tokenizer = make_tokenizer();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tt_data_config config = config_of(cases[i].kind);
        struct tt_dataset *dataset = NULL;
        test_put("bad.jsonl", cases[i].row);
        assert_int_equal(tt_dataset_load(test_at("bad.jsonl"), &config, tokenizer, 3, 0, &dataset),
                         TT_ERR_DATA);
        if (strstr(tt_error_last()->message, cases[i].text) == NULL) fail_msg("%s", tt_error_last()->message);
    }
    tt_tokenizer_destroy(tokenizer);
}

static void names_of_labels(void **state)
{
    (void)state;
    static const char *const good[] = {"[\"no\", \"yes\"]", "{\"1\": \"yes\", \"0\": \"no\"}"};
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"[\"no\"]", "id2label is no list of two labels or more"},
        {"3", "id2label is no list of two labels or more"},
        {"[\"no\", 1]", "id2label has no name for label 1 of 2"},
        {"{\"0\": \"no\", \"2\": \"yes\"}", "id2label has no name for label 1 of 2"},
        {"[\"no\", \"no\"]", "id2label names 'no' twice"},
    };
    struct tt_labels labels;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tt_labels_parse(good[i], "id2label", &labels), TT_OK);
        assert_int_equal(labels.count, 2);
        assert_string_equal(tt_labels_name(&labels, 1), "yes");
        assert_int_equal(tt_labels_find(&labels, "no"), 0);
        assert_int_equal(tt_labels_find(&labels, "n"), -1);
        tt_labels_deinit(&labels);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tt_labels_parse(bad[i].text, "id2label", &labels), TT_ERR_USAGE);
        if (strstr(tt_error_last()->message, bad[i].message) == NULL)
            fail_msg("%s", tt_error_last()->message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_of_their_rows),
                                       cmocka_unit_test(other_rows_are_refused),
                                       cmocka_unit_test(names_of_labels)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
