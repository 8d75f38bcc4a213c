/* Long rows: bounded by max_row_size, and read in less than 4 bytes of memory for a byte of the row, whatever
 * words it has. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "data/dataset.h"
#include "support/root.h"

enum { ROW_BYTES = 4 << 20, VOCAB = 64 };

static struct tt_tokenizer *tokenizer;
static const struct tt_tokenizer *measured; /* NULL: `tokenizer` */

static const char tokenizer_json[] =
    "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
    "\"use_regex\": true}, "
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"\\u0120\": 3, \"aa\": 4, "
    "\"bc\": 5, "
    "\"aabc\": 6, \"\\u0120a\": 7}, \"merges\": [\"a a\", \"b c\", \"aa bc\", \"\\u0120 a\"]}}";

/* `unit` again and again, up to `bytes` bytes. A %07zx in it is the number of the unit. */
static void put_units(FILE *file, const char *unit, size_t bytes)
{
    size_t unit_bytes = strlen(unit), count = 0;
    char block[1 << 16], numbered[64];
    if (strchr(unit, '%') != NULL) {
        snprintf(numbered, sizeof numbered, unit, count);
        unit_bytes = strlen(numbered);
        for (size_t i = 0; i < bytes / unit_bytes; i++) fprintf(file, unit, i);
        return;
    }
    for (; (count + 1) * unit_bytes <= sizeof block; count++)
        memcpy(block + count * unit_bytes, unit, unit_bytes);
    size_t blocks = bytes / (count * unit_bytes), rest = bytes % (count * unit_bytes) / unit_bytes;
    for (size_t i = 0; i < blocks; i++) assert_int_equal(fwrite(block, unit_bytes, count, file), count);
    assert_int_equal(fwrite(block, unit_bytes, rest, file), rest);
}

/* A row of at most `bytes` bytes: of them, `before` and `behind` are its beginning and its end. */
static void put_row(const char *name, const char *before, const char *unit, const char *behind, size_t bytes)
{
    FILE *file = fopen(test_at(name), "w");
    assert_non_null(file);
    fputs(before, file);
    put_units(file, unit, bytes - strlen(before) - strlen(behind));
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
                                   .packing_strategy = TT_PACKING_BFD,
                                   .eval_packing = -1,
                                   .completion_only_loss = -1};
}

/* Rows are read by as many threads as there are processors, each its own. */
static void keep_to_one_processor(void)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all) != 0) _exit(2);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) _exit(2);
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
        keep_to_one_processor();
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

/* The file takes less than 4 bytes of memory a byte of its `row_bytes`. */
static void expect_less(const char *name, const char *what, size_t base, size_t row_bytes)
{
    size_t taken = memory_of(name), more = taken > base ? taken - base : 0;
    if (getenv("SHOW")) fprintf(stderr, "%-40.40s %.2f\n", what, (double)more / (double)row_bytes);
    if (more >= 4 * row_bytes)
        fail_msg("'%s': %zu bytes, %.2f for each", what, more, (double)more / (double)row_bytes);
}

static size_t base_memory(void)
{
    put_row("small.jsonl", "{\"text\": \"", "a", "\"}\n", 100);
    return memory_of("small.jsonl");
}

static void memory(void **state)
{
    (void)state;
    skip_when_sanitized();
    static const struct {
        const char *before, *unit, *behind;
    } rows[] = {
        {"{\"text\": \"", "aabc", "\"}\n"},
        {"{\"text\": \"", "bc aa ", "\"}\n"},
        {"{\"text\": \"", " ", "\"}\n"},
        {"{\"text\": \"", "\\u0061", "\"}\n"},
        {"{\"input_ids\": [1", ",5", "]}\n"},
        /* What nobody asked for. */
        {"{\"embedding\": [0", ",1", "], \"text\": \"a b\"}\n"},
        {"{\"embedding\": [0", ",-0.25", "], \"text\": \"a b\"}\n"},
        {"{\"embeddings\": [[]", ",[]", "], \"text\": \"a b\"}\n"},
        {"{\"words\": [\"\"", ",\"\"", "], \"text\": \"a b\"}\n"},
        {"{\"words\": \"", "aabc", "\", \"text\": \"a b\"}\n"},
        {"{\"object\": {\"\": 0", ",\"%07zx\":0", "}, \"text\": \"a b\"}\n"},
        {"{\"text\": \"a b\"", ",\"%07zx\":0", "}\n"},
    };
    size_t base = base_memory();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        put_row("row.jsonl", rows[i].before, rows[i].unit, rows[i].behind, ROW_BYTES);
        expect_less("row.jsonl", rows[i].unit, base, ROW_BYTES);
    }
}

static void put_member(FILE *file, const char *before, const char *unit, size_t bytes, const char *behind)
{
    fputs(before, file);
    put_units(file, unit, bytes);
    fputs(behind, file);
}

/* Of three lists of one row none takes more than another, and what a row has filled is not kept for the next.
 */
static void memory_of_several(void **state)
{
    (void)state;
    skip_when_sanitized();
    size_t base = base_memory();
    FILE *file = fopen(test_at("row.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < 2; i++) {
        put_member(file, "{\"text\": \"", "aabc", ROW_BYTES, "\"}\n");
        put_member(file, "{\"labels\": [5", ",5", ROW_BYTES / 3, "], ");
        put_member(file, "\"completion_mask\": [1", ",1", ROW_BYTES / 3, "], ");
        put_member(file, "\"input_ids\": [5", ",5", ROW_BYTES / 3, "]}\n");
    }
    assert_int_equal(fclose(file), 0);
    expect_less("row.jsonl", "texts and lists", base, ROW_BYTES);
}

/* Tokenizers that write the text anew, or find added tokens in it, and rows of two texts. */
static void memory_of_copies(void **state)
{
    (void)state;
    skip_when_sanitized();
    static const struct {
        const char *name, *token;
    } tokenizers[] = {{"gpt2", "<|endoftext|>"}, {"llama2", "<tool_call>"}, {"llama2", "<s>"},
                      {"mistral", "[/INST]"},    {"gemma", "\\n\\n"},       {"metaspace", "</s>"}};
    static const char text_row[] = "{\"text\": \"",
                      completion_row[] = "{\"prompt\": \"a\", \"completion\": \"";
    for (size_t i = 0; i < sizeof tokenizers / sizeof tokenizers[0]; i++) {
        const char *const units[] = {"words and more ", " ", tokenizers[i].token};
        char folder[512], what[64];
        struct tt_tokenizer *loaded = NULL;
        snprintf(folder, sizeof folder, "%s/golden/tokenizer/%s", TT_TEST_ROOT, tokenizers[i].name);
        assert_int_equal(tt_tokenizer_load(folder, &loaded), TT_OK);
        measured = loaded;
        size_t base = base_memory();
        for (size_t j = 0; j < sizeof units / sizeof units[0]; j++) {
            bool completion = (i + j) % 2 == 0;
            put_row("row.jsonl", completion ? completion_row : text_row, units[j], "\"}\n", ROW_BYTES);
            snprintf(what, sizeof what, "%s, '%s', %s", tokenizers[i].name, units[j],
                     completion ? "completion" : "text");
            expect_less("row.jsonl", what, base, ROW_BYTES);
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
        cmocka_unit_test(memory),           cmocka_unit_test(memory_of_several),
        cmocka_unit_test(memory_of_copies), cmocka_unit_test(bound),
        cmocka_unit_test(counts),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
