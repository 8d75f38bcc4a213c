/* convert/card.h against gguf-py's Metadata (gguf/make_cards.py), byte for byte; cards that cannot be read; end tokens
 * and chat templates of GGUF files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "convert/card.h"
#include "convert/templates.h"
#include "support/must.h"
#include "support/train_run.h"
#include "support/workplace.h"

static int warnings;
static char warning[1000];

static void count_warnings(void *context, enum tt_log_level level, const char *line)
{
    (void)context;
    if (level != TT_LOG_WARNING) return;
    warnings++;
    (void)snprintf(warning, sizeof warning, "%s", line);
}

static void write_card(const char *folder, const char *text, size_t bytes)
{
    char path[TEST_PATH_BYTES];
    test_must(tt_file_write_atomic(test_join(folder, "README.md", path), text, bytes));
}

/* The file of a card's keys. */
static void keys_of(const char *folder, int64_t parameters, struct tt_str *bytes)
{
    struct tt_card card = {0}, none = {0};
    struct tt_gguf_header header = {0};
    test_must(tt_card_read(folder, &card));
    test_must(tt_gguf_put_string(&header, "general.architecture", tt_span_of("llama")));
    test_must(tt_gguf_put_card(&header, &card, &none, "model", parameters));
    test_must(tt_gguf_header_write(&header, bytes));
    tt_gguf_header_deinit(&header);
    tt_card_deinit(&card);
}

static void cards_as_gguf_py(void **state)
{
    struct tt_str rows = {0};
    char *folder = test_folder_create();
    size_t count = 0;
    (void)state;
    test_must(tt_file_read(TT_TEST_ROOT "/golden/gguf/cards.jsonl", 1 << 20, &rows));
    for (char *line = rows.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, count++) {
        struct tt_json row = {0};
        struct tt_str bytes = {0};
        test_must(tt_json_parse(line, (size_t)(end - line), "row", &row));
        struct tt_span text = tt_json_span(tt_json_get(row.root, "card"));
        const char *hex = tt_json_text(tt_json_get(row.root, "keys"));
        write_card(folder, text.data, text.bytes);
        keys_of(folder, tt_json_integer(tt_json_get(row.root, "parameters")), &bytes);
        char *own = malloc(2 * bytes.bytes + 1);
        for (size_t i = 0; i < bytes.bytes; i++)
            (void)snprintf(own + 2 * i, 3, "%02x", (unsigned char)bytes.data[i]);
        if (strcmp(own, hex) != 0) fail_msg("row %zu: %s\n%s\n%s", count, text.data, own, hex);
        free(own);
        tt_str_deinit(&bytes);
        tt_json_deinit(&row);
    }
    assert_true(count >= 40);
    tt_str_deinit(&rows);
    test_folder_remove(folder);
}

/* A card that cannot be read leaves one warning and the keys of no card. */
static void expect_ignored(const char *folder, const char *why)
{
    struct tt_str bytes = {0}, none = {0};
    struct tt_gguf_header header = {0};
    warnings = 0;
    keys_of(folder, 0, &bytes);
    test_must(tt_gguf_put_string(&header, "general.architecture", tt_span_of("llama")));
    test_must(tt_gguf_put_string(&header, "general.name", tt_span_of("model")));
    test_must(tt_gguf_header_write(&header, &none));
    assert_int_equal(bytes.bytes, none.bytes);
    assert_memory_equal(bytes.data, none.data, none.bytes);
    if (warnings != 1 || strstr(warning, why) == NULL)
        fail_msg("%d warnings, the last: %s; wanted %s", warnings, warning, why);
    tt_gguf_header_deinit(&header);
    tt_str_deinit(&bytes);
    tt_str_deinit(&none);
}

static void hostile_cards(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"---\nname: [\n---\n", "README.md"},
        {"---\nname: \xff\xfe\n---\n", "README.md"},
        {"---\nname: x\nname: y\n---\n", "README.md"},
        {"---\n- a list\n---\n", "is not a map"},
        {"---\nname: !!python/object:os.system x\n---\n", "README.md"},
        {"---\na: &a [*a]\n---\n", "README.md"},
        {"---\na: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
         "c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n"
         "tags: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\n---\n",
         "README.md"},
    };
    char *folder = test_folder_create(), path[TEST_PATH_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_card(folder, cases[i].text, strlen(cases[i].text));
        expect_ignored(folder, cases[i].why);
    }
    struct tt_str large = {0};
    test_must(tt_str_append_text(&large, "---\ntags:\n"));
    while (large.bytes < 300 << 10) test_must(tt_str_append_text(&large, "- tag\n"));
    test_must(tt_str_append_text(&large, "---\n"));
    write_card(folder, large.data, large.bytes);
    expect_ignored(folder, "no end within 256 KiB");
    /* A long text, repeated by aliases. */
    tt_str_clear(&large);
    test_must(tt_str_append_text(&large, "---\na: &a "));
    test_must(tt_str_append_fill(&large, 'x', 100 << 10));
    test_must(tt_str_append_text(&large, "\ntags: [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n---\n"));
    write_card(folder, large.data, large.bytes);
    expect_ignored(folder, "more than 1 MiB");
    tt_str_deinit(&large);
    /* Neither a pipe nor a link that leaves the folder is opened. */
    assert_int_equal(unlink(test_join(folder, "README.md", path)), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_ignored(folder, "README.md");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    expect_ignored(folder, "README.md");
    test_folder_remove(folder);
}

/* A card with a large text behind the front matter is read. */
static void long_card(void **state)
{
    char *folder = test_folder_create();
    struct tt_str text = {0}, bytes = {0};
    (void)state;
    test_must(tt_str_append_text(&text, "---\nname: Named\n---\n"));
    test_must(tt_str_append_fill(&text, 'x', 3 << 20));
    write_card(folder, text.data, text.bytes);
    warnings = 0;
    keys_of(folder, 0, &bytes);
    assert_int_equal(warnings, 0);
    assert_non_null(memmem(bytes.data, bytes.bytes, "Named", 5));
    tt_str_deinit(&text);
    tt_str_deinit(&bytes);
    test_folder_remove(folder);
}

/* License and languages of the base stay with an adapter's card that has none. */
static void license_of_the_base(void **state)
{
    char *folder = test_folder_create(), *other = test_folder_create();
    struct tt_card card = {0}, base = {0};
    struct tt_gguf_header header = {0};
    static const char of_adapter[] = "---\nname: Tuned\n---\n";
    static const char of_base[] = "---\nname: Base\nlicense: mit\nlanguage: [fr]\nauthor: Nobody\n---\n";
    (void)state;
    write_card(folder, of_adapter, strlen(of_adapter));
    write_card(other, of_base, strlen(of_base));
    test_must(tt_card_read(folder, &card));
    test_must(tt_card_read(other, &base));
    test_must(tt_gguf_put_card(&header, &card, &base, "model", 0));
    assert_int_equal(header.key_count, 3);
    assert_non_null(memmem(header.keys.data, header.keys.bytes, "Tuned", 5));
    assert_non_null(memmem(header.keys.data, header.keys.bytes, "general.license", 15));
    assert_non_null(memmem(header.keys.data, header.keys.bytes, "general.languages", 17));
    tt_gguf_header_deinit(&header);
    tt_card_deinit(&card);
    tt_card_deinit(&base);
    test_folder_remove(folder);
    test_folder_remove(other);
}

/* ---- End tokens ---- */

/* The number or flag of a key of 32 bits or one byte; -1: there is no such key. */
static int64_t value_of(const struct tt_gguf_header *header, const char *key)
{
    const char *at = memmem(header->keys.data, header->keys.bytes, key, strlen(key));
    if (at == NULL) return -1;
    at += strlen(key);
    return at[0] == 7 ? at[4] : (unsigned char)at[4] | (int64_t)(unsigned char)at[5] << 8;
}

static void end_tokens(void **state)
{
    static const struct {
        const char *generation, *settings, *second; /* the second token's text */
        int64_t eos, eot, eom, add_bos, add_eos;
        int warnings;
    } cases[] = {
        {"{\"eos_token_id\": 1}", "{\"eos_token\": \"t1\"}", "t2", 1, -1, -1, 0, 0, 0},
        {"{\"eos_token_id\": [1, 2]}", "{\"eos_token\": \"t1\"}", "t2", 1, 2, -1, 0, 0, 0},
        {"{\"eos_token_id\": [3, 2, 1]}", "{\"eos_token\": \"t1\"}", "<|im_end|>", 1, 2, 3, 0, 0, 0},
        {"{\"eos_token_id\": [2, 3, 1]}", "{\"eos_token\": \"t1\"}", "<|eom_id|>", 1, 3, 2, 0, 0, 0},
        {"{\"eos_token_id\": [1, 2, 3, 4]}", "{\"eos_token\": \"t1\"}", "t2", 1, 2, 3, 0, 0, 1},
        {"{\"eos_token_id\": [3, 3, 99, -1]}", "{\"eos_token\": \"t1\"}", "t2", 1, 3, -1, 0, 0, 0},
        {"{\"eos_token_id\": [3, 2]}", "{\"add_bos_token\": true}", "t2", 3, 2, -1, 1, 0, 0},
        {"{}", "{\"add_bos_token\": false, \"add_eos_token\": true}", "t2", -1, -1, -1, 0, 1, 0},
    };
    struct tt_model_facts *config = calloc(1, sizeof *config);
    (void)state;
    config->vocab_size = 5;
    config->bos_token_id = -1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *folder = test_folder_create(), path[TEST_PATH_BYTES], tokenizer[600];
        struct tt_gguf_header header = {0};
        (void)snprintf(tokenizer, sizeof tokenizer,
                       "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                       "\"use_regex\": true, \"trim_offsets\": true}, \"model\": {\"type\": \"BPE\", "
                       "\"vocab\": {\"t0\": 0, "
                       "\"t1\": 1, \"%s\": 2, \"t3\": 3, \"t4\": 4}, \"merges\": []}}",
                       cases[i].second);
        test_must(
            tt_file_write_atomic(test_join(folder, "tokenizer.json", path), tokenizer, strlen(tokenizer)));
        test_must(tt_file_write_atomic(test_join(folder, "tokenizer_config.json", path), cases[i].settings,
                                       strlen(cases[i].settings)));
        test_must(tt_file_write_atomic(test_join(folder, "generation_config.json", path), cases[i].generation,
                                       strlen(cases[i].generation)));
        warnings = 0;
        test_must(tt_gguf_put_tokenizer(&header, folder, config));
        int64_t got[] = {value_of(&header, "tokenizer.ggml.eos_token_id"),
                         value_of(&header, "tokenizer.ggml.eot_token_id"),
                         value_of(&header, "tokenizer.ggml.eom_token_id"),
                         value_of(&header, "tokenizer.ggml.add_bos_token"),
                         value_of(&header, "tokenizer.ggml.add_eos_token"),
                         warnings};
        int64_t wanted[] = {cases[i].eos,     cases[i].eot,     cases[i].eom,
                            cases[i].add_bos, cases[i].add_eos, cases[i].warnings};
        for (size_t k = 0; k < sizeof got / sizeof got[0]; k++)
            if (got[k] != wanted[k])
                fail_msg("case %zu, value %zu: %d instead of %d", i, k, (int)got[k], (int)wanted[k]);
        tt_gguf_header_deinit(&header);
        test_folder_remove(folder);
    }
    free(config);
}

/* Names as gguf-py's add_chat_template makes them of keys; of two that become one, the first. */
static void names_of_templates(void **state)
{
    struct tt_chat_template templates[] = {
        {"default", "D", "p"}, {"tool use", "T", "p"}, {"tool-use", "U", "p"}, {"\u00fc", "V", "p"}};
    struct tt_chat_files files = {.templates = templates, .template_count = 4};
    struct tt_gguf_header header = {0}, wanted = {0};
    struct tt_span names[] = {tt_span_of("tool_use"), tt_span_of("_")};
    (void)state;
    test_must(tt_gguf_put_templates(&header, &files));
    test_must(tt_gguf_put_string(&wanted, "tokenizer.chat_template.tool_use", tt_span_of("T")));
    test_must(tt_gguf_put_string(&wanted, "tokenizer.chat_template._", tt_span_of("V")));
    test_must(tt_gguf_put_strings(&wanted, "tokenizer.chat_templates", names, 2));
    test_must(tt_gguf_put_string(&wanted, "tokenizer.chat_template", tt_span_of("D")));
    assert_int_equal(header.keys.bytes, wanted.keys.bytes);
    assert_memory_equal(header.keys.data, wanted.keys.data, wanted.keys.bytes);
    tt_gguf_header_deinit(&header);
    tt_gguf_header_deinit(&wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cards_as_gguf_py), cmocka_unit_test(hostile_cards),
        cmocka_unit_test(long_card),        cmocka_unit_test(license_of_the_base),
        cmocka_unit_test(end_tokens),       cmocka_unit_test(names_of_templates),
    };
    tt_log_set_sink(count_warnings, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
