/* Where the completion of a prompt/completion row begins, against SFTTrainer of TRL 1.16: ids and labels of
 * 200 rows, half of them with a blank at the end of the prompt (border/make_border.py). The tokenizers that
 * are too large to be committed lie in $TT_SHARED_DATA or ../shared/data; their rows are left out where those
 * are missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "data/dataset.h"

#define FOLDER TT_TEST_ROOT "/golden/border"

enum { ROWS = 200, VOCAB = 60000 };

struct source {
    const char *name, *golden, *eos_token;
    bool ends; /* the tokenizer itself adds the end token: TRL's rows have it twice, ours once */
};

static void check_sample(const struct source *source, const struct tt_dataset *dataset, size_t row,
                         const struct tt_json_value *golden)
{
    struct tt_sample sample = tt_dataset_sample(dataset, row);
    int64_t first = tt_json_integer(tt_json_at(golden, 0));
    const struct tt_json_value *ids = tt_json_at(golden, 1);
    size_t count = tt_json_count(ids) - (source->ends ? 1 : 0);
    /* After an empty completion TRL supervises the second of the two. */
    if (source->ends && first == (int64_t)count) first--;
    if ((size_t)sample.count != count)
        fail_msg("%s, row %zu: %d ids, not %zu", source->name, row, sample.count, count);
    for (int32_t i = 0; i < sample.count; i++) {
        if (sample.ids[i] != tt_json_integer(tt_json_at(ids, (size_t)i)))
            fail_msg("%s, row %zu: id %d is %d", source->name, row, i, sample.ids[i]);
        if (sample.supervised[i] != (i >= first))
            fail_msg("%s, row %zu: label %d is %s, and the completion begins at %lld", source->name, row, i,
                     sample.supervised[i] ? "there" : "-100", (long long)first);
    }
}

static void check_source(const struct source *source, const char *folder)
{
    struct tt_data_config config = {.dataset_text_field = "text",
                                    .dataset_prompt_field = "prompt",
                                    .dataset_completion_field = "completion",
                                    .max_length = 1024,
                                    .eval_packing = -1,
                                    .completion_only_loss = -1,
                                    .eos_token = source->eos_token};
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_dataset *dataset = NULL;
    struct tt_str text = {0};
    if (tt_tokenizer_load(folder, &tokenizer) != TT_OK) fail_msg("%s", tt_error_last()->message);
    if (tt_dataset_load(FOLDER "/rows.jsonl", &config, tokenizer, VOCAB, 0, &dataset) != TT_OK)
        fail_msg("%s: %s", source->name, tt_error_last()->message);
    assert_int_equal(tt_dataset_count(dataset), ROWS);
    char *path = tt_path_join(FOLDER, source->golden);
    assert_int_equal(tt_file_read(path, 1 << 20, &text), TT_OK);
    size_t row = 0;
    for (char *line = text.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, row++) {
        struct tt_json json = {0};
        assert_int_equal(tt_json_parse(line, (size_t)(end - line), source->golden, &json), TT_OK);
        check_sample(source, dataset, row, json.root);
        tt_json_deinit(&json);
    }
    assert_int_equal(row, ROWS);
    tt_free(path);
    tt_str_deinit(&text);
    tt_dataset_destroy(dataset);
    tt_tokenizer_destroy(tokenizer);
}

static void committed_tokenizers(void **state)
{
    static const struct source sources[] = {
        {"gpt2", "gpt2.jsonl", "<|endoftext|>", false},       {"llama2", "llama2.jsonl", "</s>", false},
        {"llama3", "llama3.jsonl", "<|end_of_text|>", false}, {"mistral", "mistral.jsonl", "</s>", false},
        {"qwen2", "qwen2.jsonl", "<|im_end|>", false},        {"gemma", "gemma.jsonl", "</s>", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char folder[1024];
        snprintf(folder, sizeof folder, TT_TEST_ROOT "/golden/tokenizer/%s", sources[i].name);
        check_source(&sources[i], folder);
    }
}

static void large_tokenizers(void **state)
{
    static const struct source sources[] = {
        {"gpt2-tokenizer", "shared-gpt2-tokenizer.jsonl", "<|endoftext|>", false},
        {"llama-spm-tokenizer", "shared-llama-spm-tokenizer.jsonl", "</s>", false},
    };
    const char *shared = getenv("TT_SHARED_DATA");
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char folder[1024];
        snprintf(folder, sizeof folder, "%s/%s", shared != NULL ? shared : TT_TEST_ROOT "/../../shared/data",
                 sources[i].name);
        if (!tt_path_is_dir(folder)) {
            print_message("skipped: no folder '%s'\n", folder);
            skip();
        }
        check_source(&sources[i], folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(committed_tokenizers),
                                       cmocka_unit_test(large_tokenizers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
