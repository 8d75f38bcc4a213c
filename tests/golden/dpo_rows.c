/* Rows with a preference against DPOTrainer of TRL 1.16 (dpo/make_pairs.py): ids and supervision of the chosen and the
 * rejected answer of texts and of lists of messages, and which rows are left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "data/dataset.h"
#include "support/golden.h"
#include "support/root.h"

#define GOLDEN TT_TEST_ROOT "/golden"

enum { ROWS = 22, PARTS_ROW = 20, VOCAB = 60000, MAX_LENGTH = 96 };

static void check_side(const char *name, size_t row, const struct tt_sample *sample,
                       const struct tt_json_value *ids, int64_t prompt)
{
    if ((size_t)sample->count != tt_json_count(ids))
        fail_msg("%s, row %zu: %d ids, not %zu", name, row + 1, (int)sample->count, tt_json_count(ids));
    for (int32_t i = 0; i < sample->count; i++) {
        if (sample->ids[i] != tt_json_integer(tt_json_at(ids, (size_t)i)))
            fail_msg("%s, row %zu: id %d is %d", name, row + 1, i, sample->ids[i]);
        if (sample->supervised[i] != (i >= prompt))
            fail_msg("%s, row %zu: the prompt has not %lld ids", name, row + 1, (long long)prompt);
    }
}

static void check_row(const char *name, size_t row, const struct tt_data_config *config,
                      const struct tt_tokenizer *tokenizer, const struct tt_json_value *golden)
{
    struct tt_dataset *dataset = NULL;
    struct tt_dataset_report report;
    tt_status status = tt_dataset_load(test_at("row.jsonl"), config, tokenizer, VOCAB, 0, &dataset);
    /* Parts, and a template of texts: TRL refuses them or prints the list (golden/chat.c). */
    if (row == PARTS_ROW && strcmp(name, "parts") != 0) {
        assert_int_equal(status, TT_OK);
        tt_dataset_destroy(dataset);
        return;
    }
    if (tt_json_is_null(golden)) {
        if (status == TT_OK) fail_msg("%s, row %zu is not left out", name, row + 1);
        return;
    }
    if (status != TT_OK) fail_msg("%s, row %zu: %s", name, row + 1, tt_error_last()->message);
    assert_int_equal(tt_dataset_count(dataset), 2);
    assert_int_equal(tt_dataset_group_size(dataset), 2);
    tt_dataset_report(dataset, &report);
    assert_int_equal(report.rows, 1);
    for (size_t side = 0; side < 2; side++) {
        struct tt_sample sample = tt_dataset_sample(dataset, side);
        check_side(name, row, &sample, tt_json_at(golden, side), tt_json_integer(tt_json_at(golden, 2)));
    }
    tt_dataset_destroy(dataset);
}

static void read_text(const char *path, struct tt_str *text)
{
    assert_int_equal(tt_file_read(path, 1 << 20, text), TT_OK);
}

static void check_template(const char *name, const char *tokenizer_name)
{
    char template[512], golden[512];
    struct tt_str rows = {0}, expected = {0};
    struct tt_tokenizer *tokenizer = test_golden_tokenizer(tokenizer_name);
    snprintf(template, sizeof template, GOLDEN "/chat/templates/%s.jinja", name);
    snprintf(golden, sizeof golden, GOLDEN "/dpo/ids_%s.jsonl", name);
    const struct tt_data_config config = {.dataset_text_field = "text",
                                          .dataset_prompt_field = "prompt",
                                          .dataset_completion_field = "completion",
                                          .chat_template_path = template,
                                          .max_length = MAX_LENGTH,
                                          .eval_packing = -1,
                                          .completion_only_loss = -1,
                                          .rows_kind = &tt_row_pair};
    read_text(GOLDEN "/dpo/rows.jsonl", &rows);
    read_text(golden, &expected);
    const char *row = rows.data, *ids = expected.data;
    size_t count = 0;
    for (; *row != '\0' && *ids != '\0'; count++) {
        struct tt_json json = {0};
        size_t row_bytes = strcspn(row, "\n") + 1, ids_bytes = strcspn(ids, "\n");
        assert_int_equal(tt_file_write_atomic(test_at("row.jsonl"), row, row_bytes), TT_OK);
        assert_int_equal(tt_json_parse(ids, ids_bytes, golden, &json), TT_OK);
        check_row(name, count, &config, tokenizer, json.root);
        tt_json_deinit(&json);
        row += row_bytes;
        ids += ids_bytes + 1;
    }
    assert_int_equal(count, ROWS);
    tt_tokenizer_destroy(tokenizer);
    tt_str_deinit(&rows);
    tt_str_deinit(&expected);
}

static void as_trl(void **state)
{
    (void)state;
    check_template("chatml", "qwen2");
    check_template("think", "qwen2");
    check_template("parts", "qwen2");
    check_template("turns", "llama2");
    check_template("final_eos", "llama2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(as_trl, test_root_create, test_root_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
