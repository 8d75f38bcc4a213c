/* Long rows: bounded by max_row_size, and read in less than 4 bytes of memory for a byte of the row, whatever
 * words it has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "data/dataset.h"
#include "support/root.h"

enum { ROW_BYTES = 16 << 20, VOCAB = 64 };

static struct tt_tokenizer *tokenizer;
static const struct tt_tokenizer *measured; /* NULL: `tokenizer` */

static const char tokenizer_json[] =
    "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
    "\"use_regex\": true}, "
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"\\u0120\": 3, \"aa\": 4, "
    "\"bc\": 5, "
    "\"aabc\": 6, \"\\u0120a\": 7}, \"merges\": [\"a a\", \"b c\", \"aa bc\", \"\\u0120 a\"]}}";

/* A row of `bytes` bytes: `unit` again and again. */
static void put_row(const char *name, const char *before, const char *unit, const char *behind, size_t bytes)
{
    FILE *file = fopen(test_at(name), "w");
    assert_non_null(file);
    size_t done = strlen(before) + strlen(behind);
    fputs(before, file);
    for (; done + strlen(unit) <= bytes; done += strlen(unit)) fputs(unit, file);
    fputs(behind, file);
    assert_int_equal(fclose(file), 0);
}

static struct tt_data_config settings(void)
{
    return (struct tt_data_config){.dataset_text_field = "text",
                                   .dataset_prompt_field = "prompt",
                                   .dataset_completion_field = "completion",
                                   .max_length = 1024,
                                   .max_row_size = 64 << 20,
                                   .packing_strategy = "bfd",
                                   .eval_packing = -1,
                                   .completion_only_loss = -1};
}

/* Most memory that a process takes which loads the file. */
static size_t memory_of(const char *name)
{
    int status;
    struct rusage usage;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct tt_dataset *dataset = NULL;
        struct tt_data_config config = settings();
        if (tt_dataset_load(test_at(name), &config, measured != NULL ? measured : tokenizer,
                            measured != NULL ? tt_tokenizer_vocab_size(measured) : VOCAB, 0,
                            &dataset) != TT_OK) {
            fprintf(stderr, "%s\n", tt_error_last()->message);
            _exit(1);
        }
        tt_dataset_destroy(dataset);
        _exit(0);
    }
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    assert_int_equal(status, 0);
    return (size_t)usage.ru_maxrss * 1024;
}

static void skip_when_sanitized(void)
{
#ifdef __SANITIZE_ADDRESS__
    print_message("skipped: the address sanitizer takes memory of its own\n");
    skip();
#endif
}

static void memory(void **state)
{
    (void)state;
    skip_when_sanitized();
    static const char *const units[] = {"aabc", "a", "bc aa ", " ", "aabcbcaab", "\\u0061"};
    put_row("small.jsonl", "{\"text\": \"", "a", "\"}\n", 100);
    size_t base = memory_of("small.jsonl");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        put_row("row.jsonl", "{\"text\": \"", units[i], "\"}\n", ROW_BYTES);
        size_t taken = memory_of("row.jsonl") - base;
        if (taken >= (size_t)4 * ROW_BYTES) fail_msg("'%s': %zu bytes", units[i], taken);
    }
    /* Rows of ids have 16 bytes a number beside them. */
    put_row("row.jsonl", "{\"input_ids\": [1", ", 5", "]}\n", ROW_BYTES);
    size_t taken = memory_of("row.jsonl") - base;
    if (taken >= (size_t)9 * ROW_BYTES) fail_msg("ids: %zu bytes", taken);
}

/* Tokenizers that write the text anew, and rows of two texts: what is done with is not kept. */
static void memory_of_copies(void **state)
{
    (void)state;
    skip_when_sanitized();
    static const char *const names[] = {"gpt2", "llama2", "mistral", "gemma"};
    static const char *const befores[] = {"{\"text\": \"", "{\"prompt\": \"a\", \"completion\": \""};
    static const char *const units[] = {"words and more ", "qzabxet"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char folder[512];
        struct tt_tokenizer *loaded = NULL;
        snprintf(folder, sizeof folder, "%s/golden/tokenizer/%s", TT_TEST_ROOT, names[i]);
        assert_int_equal(tt_tokenizer_load(folder, &loaded), TT_OK);
        measured = loaded;
        put_row("small.jsonl", "{\"text\": \"", "a", "\"}\n", 100);
        size_t base = memory_of("small.jsonl");
        for (size_t j = 0; j < 4; j++) {
            put_row("row.jsonl", befores[j / 2], units[j % 2], "\"}\n", ROW_BYTES);
            size_t taken = memory_of("row.jsonl") - base;
            /* All but the first make three bytes of a blank: 21 of 15. */
            size_t longest = i > 0 && j % 2 == 0 ? (size_t)ROW_BYTES / 15 * 21 : ROW_BYTES;
            if (taken >= 4 * longest) fail_msg("%s, %zu: %zu bytes", names[i], j, taken);
        }
        measured = NULL;
        tt_tokenizer_destroy(loaded);
    }
}

static void bound(void **state)
{
    struct tt_data_config config = settings();
    struct tt_dataset *dataset = NULL;
    (void)state;
    config.max_row_size = 4096;
    put_row("exact.jsonl", "{\"text\": \"", "a", "\"}", 4096);
    assert_int_equal(tt_dataset_load(test_at("exact.jsonl"), &config, tokenizer, VOCAB, 0, &dataset), TT_OK);
    tt_dataset_destroy(dataset);
    dataset = NULL;
    put_row("long.jsonl", "{\"text\": \"aa\"}\n{\"text\": \"", "a", "\"}", 4096 + 16);
    assert_int_equal(tt_dataset_load(test_at("long.jsonl"), &config, tokenizer, VOCAB, 0, &dataset),
                     TT_ERR_DATA);
    assert_non_null(
        strstr(tt_error_last()->message, "row 2 (line 2): the line is longer than max_row_size (4096)"));
    assert_non_null(strstr(tt_error_last()->hint, "max_row_size"));
    config.max_row_size = 0;
    assert_int_equal(tt_dataset_load(test_at("long.jsonl"), &config, tokenizer, VOCAB, 0, &dataset), TT_OK);
    tt_dataset_destroy(dataset);
}

/* What is cut off is counted. */
static void counts(void **state)
{
    struct tt_data_config config = settings();
    struct tt_dataset *dataset = NULL;
    struct tt_dataset_report report;
    (void)state;
    put_row("row.jsonl", "{\"prompt\": \"b b b\", \"completion\": \"", "bb", "\"}", 300041);
    assert_int_equal(tt_dataset_load(test_at("row.jsonl"), &config, tokenizer, VOCAB, 0, &dataset), TT_OK);
    tt_dataset_report(dataset, &report);
    assert_int_equal(report.longest, 5 + 300004);
    assert_int_equal(report.truncated, 1);
    assert_int_equal(report.tokens, 1024);
    assert_int_equal(report.supervised_tokens, 1024 - 5);
    tt_dataset_destroy(dataset);
    dataset = NULL;
    config.over_length = TT_OVER_LENGTH_ERROR;
    assert_int_equal(tt_dataset_load(test_at("row.jsonl"), &config, tokenizer, VOCAB, 0, &dataset),
                     TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "300009 tokens are more than max_length (1024)"));
}

static int setup(void **state)
{
    if (test_root_create(state) != 0) return -1;
    return tt_tokenizer_parse(tokenizer_json, strlen(tokenizer_json), "test", &tokenizer) == TT_OK ? 0 : -1;
}

static int teardown(void **state)
{
    tt_tokenizer_destroy(tokenizer);
    return test_root_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory),
        cmocka_unit_test(memory_of_copies),
        cmocka_unit_test(bound),
        cmocka_unit_test(counts),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
