/* Keys that are missing in config.json have the defaults of the families' classes of transformers: a configuration with
 * sizes alone has the facts of the one that transformers makes of it (dense/make_dense.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "support/model_facts.h"
#include "support/must.h"

/* Keys beside the sizes, of which the defaults are for parts that are not supported or for other sizes. */
static const struct {
    const char *name, *keys;
} more[] = {
    {"gemma4_text", ", \"hidden_size_per_layer_input\": 0"},
    {"granitemoehybrid", ", \"num_local_experts\": 0"},
    {"nemotron_h",
     ", \"layers_block_type\": [\"linear_attention\", \"full_attention\", \"mlp\", \"mlp\", \"mlp\", "
     "\"mlp\", \"mlp\", \"mlp\"]"},
    {"deepseek_v3", ", \"num_key_value_heads\": 32"},
    {"youtu", ", \"num_key_value_heads\": 32"},
    {"glm4_moe_lite", ", \"num_key_value_heads\": 32"},
};

static const char *more_of(const char *name)
{
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if (strcmp(more[i].name, name) == 0) return more[i].keys;
    return "";
}

static void check(const char *folder, const char *name)
{
    char path[512], sizes[1024];
    struct tt_str text = {0};
    struct tt_model_facts *given = tt_calloc(1, sizeof *given), *whole = tt_calloc(1, sizeof *whole);
    assert_true(given != NULL && whole != NULL);
    (void)snprintf(path, sizeof path, TT_TEST_ROOT "/golden/%s/defaults.json", folder);
    (void)snprintf(sizes, sizeof sizes,
                   "{\"model_type\": \"%s\", \"vocab_size\": 1000, \"hidden_size\": 4096, "
                   "\"intermediate_size\": 64, \"num_hidden_layers\": 8, \"num_attention_heads\": 32%s}",
                   name, more_of(name));
    test_must(tt_file_read(path, 1 << 20, &text));
    test_must(test_facts(sizes, given));
    test_must(test_facts(tt_str_text(&text), whole));
    const unsigned char *a = (const void *)given, *b = (const void *)whole;
    for (size_t i = 0; i < sizeof *given; i++)
        if (a[i] != b[i]) fail_msg("%s: byte %zu of the facts differs", name, i);
    tt_str_deinit(&text);
    tt_free(given);
    tt_free(whole);
}

/* Other folders are further sizes of one. */
static bool is_a_type(const char *name)
{
    return strcmp(name, "gemma4_e") != 0 && strcmp(name, "gemma4_moe") != 0 &&
           strcmp(name, "granite4_moe") != 0;
}

static void missing_keys_have_the_defaults(void **state)
{
    (void)state;
#define DENSE(name)                                                                                          \
    if (is_a_type(#name)) check("dense/" #name, #name);
#include "dense.def"
#undef DENSE
    check("vision/muse_glimmer", "muse_glimmer_text");
    check("vision/mistral4", "mistral4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(missing_keys_have_the_defaults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
