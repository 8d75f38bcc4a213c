/* Greedy continuations with the key/value cache against transformers (generate.json), and the cache against
 * the plain forward pass: prompts of different lengths, sequences that end early, a sliding window. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "model/adapter_config.h"
#include "nn/kv_cache.h"
#include "support/model_runner.h"
#include "support/must.h"

#define GOLDEN TT_TEST_ROOT "/golden/"
enum { TOKENS_MAX = 64, VOCAB_MAX = 320 };

static struct tt_model_runner *open_runner(const char *family, const char *config_name, const char *adapter)
{
    struct tt_arena arena = {0};
    struct tt_model_facts config;
    struct tt_model_options options = {.compute_dtype = TT_F32};
    char folder[512], path[512];
    (void)snprintf(folder, sizeof folder, GOLDEN "%s/model", family);
    (void)snprintf(path, sizeof path, GOLDEN "%s/%s", family, adapter != NULL ? adapter : "");
    tt_runner_read_config(folder, config_name, &config);
    if (adapter != NULL) test_must(tt_adapter_config_read(path, &arena, &options.lora));
    struct tt_model_runner *runner = tt_runner_create(&config, &options);
    tt_runner_load(runner, folder, adapter != NULL ? path : NULL);
    tt_arena_deinit(&arena);
    return runner;
}

static struct tt_kv_cache *open_cache(struct tt_model_runner *runner, int64_t sequences, int64_t max_length)
{
    const struct tt_model_facts *config = &runner->model->facts;
    struct tt_kv_cache *cache = NULL;
    struct tt_kv_heads heads[TT_MODEL_LAYERS_MAX];
    struct tt_kv_states states[TT_MODEL_LAYERS_MAX];
    bool any = tt_model_cache_shape(config, heads, states);
    test_must(tt_kv_cache_create(runner->device,
                                 &(struct tt_kv_cache_config){.layer_count = tt_model_cache_layers(config),
                                                              .sequence_count = sequences,
                                                              .max_length = max_length,
                                                              .heads = heads,
                                                              .states = any ? states : NULL,
                                                              .dtype = TT_F32},
                                 &cache));
    runner->pass.lent.cache = cache;
    return cache;
}

/* One pass over new tokens; logits of all of them. */
static void pass(struct tt_model_runner *runner, const int32_t *ids, const int64_t *lengths,
                 int64_t sequences, float *logits)
{
    tt_runner_set_batch(runner, ids, lengths, sequences, NULL);
    test_must(tt_kv_cache_begin(runner->pass.lent.cache, runner->stream, runner->batch.host_cu_seqlens));
    tt_runner_logits(runner, logits);
    tt_kv_cache_end(runner->pass.lent.cache);
}

static int32_t best(const float *row, int64_t vocab)
{
    int32_t at = 0;
    for (int32_t v = 1; v < vocab; v++) {
        if (row[v] > row[at]) at = v;
    }
    return at;
}

static void check_case(const char *family, const char *adapter, const struct tt_json_value *prompt,
                       const struct tt_json_value *expected)
{
    struct tt_model_runner *runner = open_runner(family, NULL, adapter);
    int64_t vocab = runner->model->facts.vocab_size, length = (int64_t)tt_json_count(prompt);
    float *logits = tt_calloc(TOKENS_MAX * VOCAB_MAX, sizeof *logits);
    int32_t ids[TOKENS_MAX];
    struct tt_kv_cache *cache = open_cache(runner, 1, TOKENS_MAX);
    assert_true(logits != NULL && length <= TOKENS_MAX && vocab <= VOCAB_MAX);
    for (int64_t i = 0; i < length; i++) ids[i] = (int32_t)tt_json_integer(tt_json_at(prompt, (size_t)i));
    for (size_t i = 0; i < tt_json_count(expected); i++) {
        pass(runner, ids, &length, 1, logits);
        ids[0] = best(logits + (length - 1) * vocab, vocab);
        length = 1;
        if (ids[0] != tt_json_integer(tt_json_at(expected, i))) fail_msg("%s: token %zu differs", family, i);
    }
    tt_kv_cache_destroy(cache);
    tt_free(logits);
    tt_runner_destroy(runner);
}

static void greedy_as_transformers(void **state)
{
    static const char *const families[] = {"llama2",  "llama3", "mistral", "qwen2", "qwen3",
                                           "smollm3", "phi3",   "gemma3",  "gemma2"};
    (void)state;
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        struct tt_json json = {0};
        char path[256];
        size_t index;
        const struct tt_json_value *item;
        (void)snprintf(path, sizeof path, GOLDEN "%s/generate.json", families[f]);
        test_must(tt_json_read(path, 1 << 20, &json));
        for (index = 0; (item = tt_json_at(tt_json_get(json.root, "cases"), index)) != NULL; index++) {
            const struct tt_json_value *prompt = tt_json_get(item, "prompt");
            check_case(families[f], NULL, prompt, tt_json_get(tt_json_get(item, "base"), "ids"));
            check_case(families[f], "adapter_random", prompt,
                       tt_json_get(tt_json_get(item, "adapter_random"), "ids"));
        }
        assert_true(index >= 2);
        tt_json_deinit(&json);
    }
}

/* Feeds three sequences in uneven pieces and compares every row with the pass without a cache. */
static void check_pieces(const char *family, const char *config_name, const char *adapter)
{
    static const int64_t pieces[][3] = {{5, 1, 12}, {1, 0, 9}, {0, 3, 1}, {20, 0, 0}, {1, 1, 1}};
    int32_t ids[3][40], flat[120];
    int64_t done[3] = {0}, total[3] = {0}, first[3] = {0};
    struct tt_model_runner *runner = open_runner(family, config_name, adapter);
    int64_t vocab = runner->model->facts.vocab_size, count = 0;
    float *whole = tt_calloc(120 * VOCAB_MAX, sizeof *whole),
          *part = tt_calloc(120 * VOCAB_MAX, sizeof *part);
    assert_true(whole != NULL && part != NULL);
    for (size_t p = 0; p < 5; p++) {
        for (int b = 0; b < 3; b++) total[b] += pieces[p][b];
    }
    for (int b = 0; b < 3; b++) {
        first[b] = count;
        for (int64_t i = 0; i < total[b]; i++)
            flat[count++] = ids[b][i] = (int32_t)((b * 31 + i * 17 + 7) % vocab);
    }
    tt_runner_set_batch(runner, flat, total, 3, NULL);
    tt_runner_logits(runner, whole);
    struct tt_kv_cache *cache = open_cache(runner, 3, 30);
    for (size_t p = 0; p < 5; p++) {
        count = 0;
        for (int b = 0; b < 3; b++) {
            for (int64_t i = 0; i < pieces[p][b]; i++) flat[count++] = ids[b][done[b] + i];
        }
        pass(runner, flat, pieces[p], 3, part);
        const float *row = part;
        for (int b = 0; b < 3; b++) {
            for (int64_t i = 0; i < pieces[p][b]; i++, row += vocab) {
                const float *expected = whole + (first[b] + done[b] + i) * vocab;
                for (int64_t v = 0; v < vocab; v++) assert_true(fabsf(row[v] - expected[v]) < 2e-5f);
            }
            done[b] += pieces[p][b];
            assert_int_equal(tt_kv_cache_length(cache, b), done[b]);
        }
    }
    static const int32_t too_many[] = {0, 4, 4, 4};
    assert_int_equal(tt_kv_cache_begin(cache, runner->stream, too_many), TT_ERR_USAGE);
    tt_kv_cache_truncate(cache, 0, 0);
    assert_int_equal(tt_kv_cache_length(cache, 0), 0);
    tt_kv_cache_destroy(cache);
    tt_free(whole);
    tt_free(part);
    tt_runner_destroy(runner);
}

static void pieces_as_a_whole(void **state)
{
    (void)state;
    check_pieces("llama3", NULL, "adapter_random");
    check_pieces("mistral", "config_window.json", "adapter_random");
    check_pieces("qwen3", NULL, "adapter_random");
}

static void pieces_of_dense_families(void **state)
{
    (void)state;
#define DENSE(name) check_pieces("dense/" #name, NULL, "adapter_final");
#include "dense.def"
#undef DENSE
    check_pieces("vision/muse_glimmer", NULL, "adapter_final");
    check_pieces("vision/mistral4", NULL, "adapter_final");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_as_transformers),
        cmocka_unit_test(pieces_as_a_whole),
        cmocka_unit_test(pieces_of_dense_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
