/* Tokens that a model's folder lacks (golden/new_tokens/make_new_tokens.py): ids of texts as transformers has them;
 * adapters of PEFT with embeddings that were resized, 20 steps in fp32 on one, two and four ranks; merging them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "convert/merge.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/train_run.h"
#include "text/new_tokens.h"

#define GOLDEN TT_TEST_ROOT "/golden/new_tokens/"
#define BASES TT_TEST_ROOT "/golden/adapters/kinds/"
enum { STEPS = 20, TOKENS_MAX = 16, TABLE_MAX = 1 << 12 };

struct curve {
    const char *name, *base;
    bool rows; /* of the tables train */
};
static const struct curve curves[] = {
    {"rows", "untied", true},          {"rows_tied", "tied", true}, {"saved", "untied", false},
    {"rows_and_head", "untied", true}, {"frozen", "untied", false},
};
enum { CURVE_COUNT = sizeof curves / sizeof *curves };

/* ---- Ids ---- */

static size_t list(const struct tt_json_value *root, const char *key, bool special,
                   struct tt_new_token *tokens, size_t count)
{
    const struct tt_json_value *texts = tt_json_get(root, key);
    for (size_t i = 0; i < tt_json_count(texts); i++)
        tokens[count++] = (struct tt_new_token){tt_json_text(tt_json_at(texts, i)), special};
    assert_true(count <= TOKENS_MAX);
    return count;
}

static void same_ids(const struct tt_tokenizer *tokenizer, const struct tt_json_value *row)
{
    struct tt_tokenizer_scratch *scratch = NULL;
    struct tt_ids ids = {0};
    const char *text = tt_json_text(tt_json_get(row, "text"));
    const struct tt_json_value *want = tt_json_get(row, "ids");
    test_must(tt_tokenizer_scratch_create(tokenizer, &scratch));
    test_must(tt_tokenizer_encode(tokenizer, scratch, text, strlen(text), false, &ids));
    if (ids.count != tt_json_count(want)) fail_msg("'%s' has %zu ids", text, ids.count);
    for (size_t i = 0; i < ids.count; i++)
        if (ids.data[i] != tt_json_integer(tt_json_at(want, i)))
            fail_msg("'%s': id %zu is %d", text, i, ids.data[i]);
    tt_ids_deinit(&ids);
    tt_tokenizer_scratch_destroy(scratch);
}

/* The entries of added_tokens in tokenizer.json. */
static void same_entries(const struct tt_str *text, const struct tt_json_value *want)
{
    struct tt_json json = {0};
    test_must(tt_json_parse_nul(tt_str_text(text), text->bytes, "tokenizer.json", &json));
    const struct tt_json_value *got = tt_json_get(json.root, "added_tokens");
    assert_int_equal(tt_json_count(got), tt_json_count(want));
    for (size_t i = 0; i < tt_json_count(want); i++) {
        struct tt_str a = {0}, b = {0};
        test_must(tt_json_write(tt_json_at(got, i), 0, true, &a));
        test_must(tt_json_write(tt_json_at(want, i), 0, true, &b));
        assert_string_equal(tt_str_text(&a), tt_str_text(&b));
        tt_str_deinit(&a);
        tt_str_deinit(&b);
    }
    tt_json_deinit(&json);
}

static void ids_are_those_of_transformers(void **state)
{
    (void)state;
    struct tt_json json = {0};
    struct tt_new_token tokens[TOKENS_MAX];
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_str text = {0};
    struct tt_ids ids = {0};
    test_must(tt_json_read(GOLDEN "ids.json", 1 << 20, &json));
    size_t count = list(json.root, "special", true, tokens, list(json.root, "plain", false, tokens, 0));
    test_must(
        tt_new_tokens_add(TT_TEST_ROOT "/support/tiny_tokenizer", tokens, count, &tokenizer, &text, &ids));
    assert_int_equal(tt_tokenizer_vocab_size(tokenizer), tt_json_integer(tt_json_get(json.root, "after")));
    assert_int_equal(ids.count, tt_json_integer(tt_json_get(json.root, "after")) -
                                    tt_json_integer(tt_json_get(json.root, "before")));
    same_entries(&text, tt_json_get(json.root, "added_tokens"));
    const struct tt_json_value *texts = tt_json_get(json.root, "texts");
    assert_true(tt_json_count(texts) > 4);
    for (size_t i = 0; i < tt_json_count(texts); i++) same_ids(tokenizer, tt_json_at(texts, i));
    tt_ids_deinit(&ids);
    tt_str_deinit(&text);
    tt_tokenizer_destroy(tokenizer);
    tt_json_deinit(&json);
}

static void wrong_tokens_are_refused(void **state)
{
    (void)state;
    static const struct tt_new_token twice[] = {{"<a>", false}, {"<b>", false}, {"<a>", true}},
                                     empty[] = {{"", false}};
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_str text = {0};
    struct tt_ids ids = {0};
    const char *folder = TT_TEST_ROOT "/support/tiny_tokenizer";
    assert_int_equal(tt_new_tokens_add(folder, twice, 3, &tokenizer, &text, &ids), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "the new token '<a>' is listed twice"));
    assert_int_equal(tt_new_tokens_add(folder, empty, 1, &tokenizer, &text, &ids), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "a new token has no text"));
    tt_str_deinit(&text);
    tt_ids_deinit(&ids);
}

/* ---- Curves ---- */

static void check_run(const struct curve *curve, const char *how)
{
    char path[512], weights[512], worst[200];
    struct test_words settings = {0};
    struct tt_train_summary summary;
    char *output = test_folder_create();
    (void)snprintf(path, sizeof path, BASES "%s", curve->base);
    test_words_pair(&settings, "model_name_or_path", path);
    test_words_pair(&settings, "dataset_name", GOLDEN "train.jsonl");
    (void)snprintf(path, sizeof path, GOLDEN "%s/adapter_init", curve->name);
    test_words_pair(&settings, "adapter_name_or_path", path);
    test_words_add(&settings,
                   TEST_GOLDEN_STEPS " save_strategy no learning_rate 0.01 save_embedding_layers false");
    test_words_add(&settings, how);
    test_train_ok(settings.list, output, &summary);
    (void)snprintf(path, sizeof path, GOLDEN "%s/train_reference.json", curve->name);
    test_same_curve(path, STEPS, how, output);
    (void)snprintf(weights, sizeof weights, "%s/adapter_model.safetensors", output);
    (void)snprintf(path, sizeof path, GOLDEN "%s/adapter_final/adapter_model.safetensors", curve->name);
    double error = test_compare_weights(weights, path, worst, sizeof worst);
    if (error > 1e-3) fail_msg("%s, %s: '%s' is off by %.2e", curve->name, how, worst, error);
    test_folder_remove(output);
}

static void steps_are_those_of_peft(void **state)
{
    static const char *const ways[] = {
        "recompute none",
        "recompute block",
        "ranks 2 threads 1 per_device_train_batch_size 1",
        "ranks 4 threads 1 per_device_train_batch_size 1 gradient_accumulation_steps 1 recompute block",
    };
    (void)state;
    for (int i = 0; i < CURVE_COUNT; i++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) check_run(&curves[i], ways[w]);
}

/* ---- Merging ---- */

static void same_tensors(const char *name, const char *got_path, const char *want_path)
{
    static float a[TABLE_MAX], b[TABLE_MAX];
    struct tt_safetensors *want = NULL, *got = NULL;
    test_must(tt_safetensors_open(want_path, &want));
    test_must(tt_safetensors_open(got_path, &got));
    for (size_t t = 0; t < tt_safetensors_count(want); t++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_entry(want, t), *own;
        own = tt_safetensors_find(got, entry->name);
        if (own == NULL) fail_msg("%s: no '%s'", name, entry->name);
        assert_int_equal(own->dims[0], 64);
        int64_t count = tt_safetensors_elements(entry);
        assert_true(count <= TABLE_MAX && count == tt_safetensors_elements(own));
        test_must(tt_safetensors_read(want, entry, 0, count, a, TT_F32));
        test_must(tt_safetensors_read(got, own, 0, count, b, TT_F32));
        for (int64_t k = 0; k < count; k++)
            if (fabsf(a[k] - b[k]) > 2e-6f * (1 + fabsf(a[k])))
                fail_msg("%s: element %lld of %s is %.9g, PEFT merges to %.9g", name, (long long)k,
                         entry->name, (double)b[k], (double)a[k]);
    }
    tt_safetensors_close(want);
    tt_safetensors_close(got);
}

static void check_merge(const struct curve *curve, const char *adapter)
{
    char base[512], path[512], want[512];
    char *folder = test_folder_create();
    struct tt_merge merge;
    struct tt_merge_report report;
    struct tt_json config = {0};
    (void)snprintf(base, sizeof base, BASES "%s", curve->base);
    test_must(tt_merge_open(base, adapter, &merge));
    test_must(
        tt_merge_write(&merge, &(struct tt_merge_options){.output_dir = folder, .overwrite = true}, &report));
    tt_merge_report_deinit(&report);
    tt_merge_close(&merge);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    (void)snprintf(want, sizeof want, GOLDEN "%s/merged.safetensors", curve->name);
    if (curve->rows) same_tensors(curve->name, path, want);
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    test_must(tt_json_read(path, 1 << 20, &config));
    assert_int_equal(tt_json_integer(tt_json_get(config.root, "vocab_size")), 64);
    tt_json_deinit(&config);
    test_folder_remove(folder);
}

/* The adapter of PEFT, and what a training without effect saves of it. */
static void merged_tables_are_those_of_peft(void **state)
{
    (void)state;
    for (int i = 0; i < CURVE_COUNT; i++) {
        char path[512];
        char *output = test_folder_create();
        struct test_words settings = {0};
        struct tt_train_summary summary;
        (void)snprintf(path, sizeof path, BASES "%s", curves[i].base);
        test_words_pair(&settings, "model_name_or_path", path);
        test_words_pair(&settings, "dataset_name", GOLDEN "train.jsonl");
        (void)snprintf(path, sizeof path, GOLDEN "%s/adapter_init", curves[i].name);
        check_merge(&curves[i], path);
        test_words_pair(&settings, "adapter_name_or_path", path);
        test_words_add(&settings,
                       TEST_GOLDEN_STEPS " save_strategy no learning_rate 1e-30 weight_decay 0 max_steps 1");
        test_train_ok(settings.list, output, &summary);
        check_merge(&curves[i], output);
        test_folder_remove(output);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_transformers),
        cmocka_unit_test(wrong_tokens_are_refused),
        cmocka_unit_test(steps_are_those_of_peft),
        cmocka_unit_test(merged_tables_are_those_of_peft),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
