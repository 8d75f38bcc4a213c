/* text/tokenizer_class.c: where transformers would run other steps than those of tokenizer.json, loading warns, by the
 * class that it would take; every row of both tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "support/root.h"
#include "text/scan.h"
#include "text/tokenizer.h"

enum steps { LLAMA, GEMMA, GPT2, QWEN2, STEPS };

static void put_tokenizer(enum steps steps)
{
    static const char *const plain[] = {
        [LLAMA] = "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\", "
                  "\"prepend_scheme\": \"always\"}",
        [GEMMA] = "\"pre_tokenizer\": null",
        [GPT2] =
            "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}",
        [QWEN2] = "\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
                  "\"pretokenizers\": ["
                  "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false, \"pattern\": "
                  "{\"Regex\": \""};
    struct tt_str text = {0};
    assert_int_equal(tt_str_printf(&text, "{%s", plain[steps]), TT_OK);
    for (const char *at = tt_scan_pattern(TT_SCAN_QWEN2); steps == QWEN2 && *at != '\0'; at++) {
        if (*at == '\\') assert_int_equal(tt_str_append_char(&text, '\\'), TT_OK);
        assert_int_equal(tt_str_append_char(&text, *at), TT_OK);
    }
    if (steps == QWEN2)
        assert_int_equal(tt_str_append_text(&text,
                                            "\"}}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                            "\"use_regex\": false}]}"),
                         TT_OK);
    assert_int_equal(
        tt_str_append_text(&text, ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}"),
        TT_OK);
    test_put("tokenizer.json", tt_str_text(&text));
    tt_str_deinit(&text);
}

static char warning[600];

static void keep_warning(void *context, enum tt_log_level level, const char *line)
{
    (void)context;
    if (level == TT_LOG_WARNING) snprintf(warning, sizeof warning, "%s", line);
}

/* The warning of a folder with these names; NULL: the file does not have it. */
static const char *warning_of(const char *model_type, const char *class_name)
{
    char text[200];
    struct tt_tokenizer *tokenizer = NULL;
    snprintf(text, sizeof text, class_name != NULL ? "{\"tokenizer_class\": \"%s\"}" : "{}", class_name);
    test_put("tokenizer_config.json", text);
    snprintf(text, sizeof text, "{\"model_type\": \"%s\"}", model_type);
    test_put("config.json", text);
    warning[0] = '\0';
    tt_log_set_sink(keep_warning, NULL);
    assert_int_equal(tt_tokenizer_load(test_root(), &tokenizer), TT_OK);
    tt_log_set_sink(NULL, NULL);
    tt_tokenizer_destroy(tokenizer);
    return warning;
}

static void classes(void **state)
{
    (void)state;
    static const char *const names[] = {[LLAMA] = "LlamaTokenizer",
                                        [GEMMA] = "GemmaTokenizer",
                                        [GPT2] = "GPT2Tokenizer",
                                        [QWEN2] = "Qwen2Tokenizer"};
    for (int steps = 0; steps < STEPS; steps++) {
        put_tokenizer((enum steps)steps);
        for (int name = 0; name < STEPS; name++)
            for (int fast = 0; fast < 2; fast++) {
                char class_name[40], part[80];
                snprintf(class_name, sizeof class_name, "%s%s", names[name], fast ? "Fast" : "");
                snprintf(part, sizeof part,
                         "by its tokenizer_class, transformers 5 loads this tokenizer as %s,", names[name]);
                const char *said = warning_of("llama", class_name);
                if (steps == name ? said[0] != '\0' : strstr(said, part) == NULL)
                    fail_msg("%s with the steps of %s: '%s'", class_name, names[steps], said);
            }
        assert_string_equal(warning_of("llama", "PreTrainedTokenizerFast"), "");
        assert_string_equal(warning_of("llama", "LlamaTokenizerSlow"), "");
    }
}

static void model_types(void **state)
{
    (void)state;
    static const struct {
        const char *model_type, *class_name, *taken; /* taken NULL: no warning */
    } rows[] = {
        {"llama", NULL, NULL},
        {"mistral", "LlamaTokenizer", NULL},
        {"phi3", "LlamaTokenizer", NULL},
        {"qwen2", NULL, "by its model_type, transformers 5 loads this tokenizer as Qwen2Tokenizer,"},
        {"qwen2", "LlamaTokenizer",
         "by its model_type, transformers 5 loads this tokenizer as Qwen2Tokenizer,"},
        {"qwen3", NULL, "by its model_type, transformers 5 loads this tokenizer as Qwen2Tokenizer,"},
        {"qwen3", "LlamaTokenizer",
         "by its tokenizer_class, transformers 5 loads this tokenizer as LlamaTokenizer,"},
        {"gemma2", NULL, "by its model_type, transformers 5 loads this tokenizer as GemmaTokenizer,"},
        {"gemma3_text", NULL, "by its model_type, transformers 5 loads this tokenizer as GemmaTokenizer,"},
        {"gemma3_text", "PreTrainedTokenizerFast", NULL},
    };
    put_tokenizer(GPT2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *said = warning_of(rows[i].model_type, rows[i].class_name);
        if (rows[i].taken == NULL ? said[0] != '\0' : strstr(said, rows[i].taken) == NULL)
            fail_msg("row %zu: '%s'", i, said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(classes), cmocka_unit_test(model_types)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
