/* data/row_pair.c: both answers of a preference begin at the first id where either of them differs from the prompt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "data/dataset.h"
#include "support/golden.h"
#include "support/root.h"

enum { VOCAB = 152000 };

static size_t encode(const struct tt_tokenizer *tokenizer, const char *text, struct tt_ids *ids)
{
    struct tt_tokenizer_scratch *scratch = NULL;
    ids->count = 0;
    assert_int_equal(tt_tokenizer_scratch_create(tokenizer, &scratch), TT_OK);
    assert_int_equal(tt_tokenizer_encode(tokenizer, scratch, text, strlen(text), true, ids), TT_OK);
    tt_tokenizer_scratch_destroy(scratch);
    return ids->count;
}

static size_t common_prefix(const struct tt_ids *a, const struct tt_ids *b)
{
    size_t i = 0;
    while (i < a->count && i < b->count && a->data[i] == b->data[i]) i++;
    return i;
}

/* An answer that goes on without a space makes one token of the prompt's end and its own beginning. */
static void the_border_is_that_of_both(void **state)
{
    (void)state;
    static const char *const answers[] = {" no", "l there"};
    struct tt_tokenizer *tokenizer = test_golden_tokenizer("qwen2");
    const struct tt_data_config config = {.dataset_text_field = "text",
                                          .dataset_prompt_field = "prompt",
                                          .dataset_completion_field = "completion",
                                          .max_length = 64,
                                          .eval_packing = -1,
                                          .completion_only_loss = -1,
                                          .rows_kind = &tt_row_pair};
    struct tt_ids prompt = {0}, whole = {0};
    size_t own[2];
    encode(tokenizer, "x-il", &prompt);
    for (int side = 0; side < 2; side++) {
        char text[64];
        snprintf(text, sizeof text, "x-il%s", answers[side]);
        encode(tokenizer, text, &whole);
        own[side] = common_prefix(&prompt, &whole);
    }
    assert_int_equal(own[0], prompt.count);
    assert_in_range(own[1], 1, prompt.count - 1);
    for (int swapped = 0; swapped < 2; swapped++) {
        char row[200];
        struct tt_dataset *dataset = NULL;
        snprintf(row, sizeof row, "{\"prompt\": \"x-il\", \"chosen\": \"%s\", \"rejected\": \"%s\"}",
                 answers[swapped], answers[!swapped]);
        test_put("pair.jsonl", row);
        assert_int_equal(tt_dataset_load(test_at("pair.jsonl"), &config, tokenizer, VOCAB, 0, &dataset),
                         TT_OK);
        assert_int_equal(tt_dataset_count(dataset), 2);
        for (size_t side = 0; side < 2; side++) {
            struct tt_sample sample = tt_dataset_sample(dataset, side);
            for (int32_t t = 0; t < sample.count; t++)
                assert_int_equal(sample.supervised[t], (size_t)t >= own[1]);
        }
        tt_dataset_destroy(dataset);
    }
    tt_ids_deinit(&prompt);
    tt_ids_deinit(&whole);
    tt_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_border_is_that_of_both)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
