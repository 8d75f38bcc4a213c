/* Rows without what their settings need are refused by name: a preference, or a text in a field of the template; and so
 * are masks that are not read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/number.h"
#include "data/dataset.h"
#include "support/root.h"
#include "text/tokenizer.h"

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *message;
        const char *prompt_template; /* NULL: rows with a preference */
    } cases[] = {
        {"r.txt", "text", "a file of plain text has no preferences", NULL},
        {"r.jsonl", "{\"text\": \"a\"}",
         "row 1 (line 1): the row has no preference, 'chosen' and 'rejected'; it has 'text'", NULL},
        {"r.jsonl",
         "{\"chosen\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"rejected\": [{\"role\": "
         "\"assistant\", \"content\": \"b\"}]}",
         "'chosen' and 'rejected' have no prompt", NULL},
        {"r.jsonl", "{\"list\": [], \"completion\": \"i\"}",
         "the row has no text in its field 'list', which prompt_template names", "{list}"},
    };
    struct tt_data_config config = {.dataset_text_field = "text",
                                    .dataset_prompt_field = "prompt",
                                    .dataset_completion_field = "completion",
                                    .max_length = 64,
                                    .completion_only_loss = -1};
    static const char json[] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}";
    struct tt_tokenizer *tokenizer = NULL;
    assert_int_equal(tt_tokenizer_parse(json, sizeof json - 1, "tokenizer.json", &tokenizer), TT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_dataset *dataset = NULL;
        config.rows_kind = cases[i].prompt_template == NULL ? &tt_row_pair : NULL;
        config.prompt_template = cases[i].prompt_template;
        test_put(cases[i].name, cases[i].text);
        assert_int_equal(tt_dataset_load(test_at(cases[i].name), &config, tokenizer, 100, 0, &dataset),
                         TT_ERR_DATA);
        if (strstr(tt_error_last()->message, cases[i].message) == NULL)
            fail_msg("%s, not %s", tt_error_last()->message, cases[i].message);
    }
    tt_tokenizer_destroy(tokenizer);
}

static void masks_of_others(void **state)
{
    (void)state;
    static const struct tt_data_config config = {.dataset_text_field = "text",
                                                 .dataset_prompt_field = "prompt",
                                                 .dataset_completion_field = "completion",
                                                 .max_length = 64,
                                                 .completion_only_loss = -1};
    static const struct {
        const char *member, *message; /* NULL: taken */
    } cases[] = {
        {"\"loss_mask\": [0, 1]", "'loss_mask' beside input_ids is not read, and tokens would train"},
        {"\"loss_scale\": [0.5, 1]", "'loss_scale' beside input_ids is not read, and tokens would train"},
        {"\"loss_mask\": null", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[100];
        struct tt_dataset *dataset = NULL;
        (void)tt_snprintf(text, sizeof text, "{\"input_ids\": [1, 2], %s}", cases[i].member);
        test_put("masks.jsonl", text);
        tt_status status = tt_dataset_load(test_at("masks.jsonl"), &config, NULL, 100, 0, &dataset);
        tt_dataset_destroy(dataset);
        assert_int_equal(status, cases[i].message == NULL ? TT_OK : TT_ERR_UNSUPPORTED);
        if (status != TT_OK) assert_non_null(strstr(tt_error_last()->message, cases[i].message));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals), cmocka_unit_test(masks_of_others)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
