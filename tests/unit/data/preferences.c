/* Rows without what a preference needs are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "data/dataset.h"
#include "support/root.h"
#include "text/tokenizer.h"

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *message;
    } cases[] = {
        {"r.txt", "text", "a file of plain text has no preferences"},
        {"r.jsonl", "{\"text\": \"a\"}",
         "row 1 (line 1): the row has no preference, 'chosen' and 'rejected'; it has 'text'"},
        {"r.jsonl",
         "{\"chosen\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"rejected\": [{\"role\": "
         "\"assistant\", \"content\": \"b\"}]}",
         "'chosen' and 'rejected' have no prompt"},
    };
    const struct tt_data_config config = {.dataset_text_field = "text",
                                          .dataset_prompt_field = "prompt",
                                          .dataset_completion_field = "completion",
                                          .max_length = 64,
                                          .completion_only_loss = -1,
                                          .preference = true};
    static const char json[] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}";
    struct tt_tokenizer *tokenizer = NULL;
    assert_int_equal(tt_tokenizer_parse(json, sizeof json - 1, "tokenizer.json", &tokenizer), TT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_dataset *dataset = NULL;
        test_put(cases[i].name, cases[i].text);
        assert_int_equal(tt_dataset_load(test_at(cases[i].name), &config, tokenizer, 100, 0, &dataset),
                         TT_ERR_DATA);
        if (strstr(tt_error_last()->message, cases[i].message) == NULL)
            fail_msg("%s, not %s", tt_error_last()->message, cases[i].message);
    }
    tt_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
