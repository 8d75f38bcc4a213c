/* Logits of every family against transformers + PEFT (make_models.py), base and adapters, fp32 and bf16. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "io/safetensors.h"
#include "model/adapter_config.h"
#include "support/model_runner.h"
#include "support/must.h"

#define GOLDEN TT_TEST_ROOT "/golden/"

struct reference {
    int32_t ids[512];
    int64_t lengths[16];
    int64_t sequence_count, token_count;
    float *logits;
    int64_t vocab;
};

static const struct tt_safetensors_entry *find(const struct tt_safetensors *file, const char *name)
{
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, name);
    if (entry == NULL) fail_msg("%s has no '%s'", tt_safetensors_path(file), name);
    return entry;
}

static void read_batch(const char *family, struct reference *reference)
{
    char path[512];
    int64_t ids[512];
    struct tt_safetensors *file = NULL;
    (void)snprintf(path, sizeof path, GOLDEN "%s/reference.safetensors", family);
    test_must(tt_safetensors_open(path, &file));
    const struct tt_safetensors_entry *lengths = find(file, "seq_lens"), *tokens = find(file, "input_ids");
    reference->sequence_count = lengths->dims[0];
    reference->token_count = tokens->dims[0];
    assert_true(reference->sequence_count <= 16 && reference->token_count <= 512);
    test_must(tt_safetensors_read(file, lengths, 0, reference->sequence_count, reference->lengths, TT_I64));
    test_must(tt_safetensors_read(file, tokens, 0, reference->token_count, ids, TT_I64));
    for (int64_t i = 0; i < reference->token_count; i++) reference->ids[i] = (int32_t)ids[i];
    tt_safetensors_close(file);
}

static void read_logits(const char *file_name, const char *tensor, struct reference *reference)
{
    char path[512];
    struct tt_safetensors *file = NULL;
    (void)snprintf(path, sizeof path, GOLDEN "%s", file_name);
    test_must(tt_safetensors_open(path, &file));
    const struct tt_safetensors_entry *entry = find(file, tensor);
    assert_int_equal(entry->dims[0], reference->token_count);
    reference->vocab = entry->dims[1];
    reference->logits = tt_calloc((size_t)(entry->dims[0] * entry->dims[1]), sizeof(float));
    assert_non_null(reference->logits);
    test_must(
        tt_safetensors_read(file, entry, 0, entry->dims[0] * entry->dims[1], reference->logits, TT_F32));
    tt_safetensors_close(file);
}

struct run {
    const char *family;      /* the batch is this family's */
    const char *model;       /* folder under golden; NULL: family/model */
    const char *config_name; /* NULL: the model's own config.json */
    const char *adapter;     /* NULL: none; a folder of the family */
    tt_dtype dtype;
};

static float *run_model(const struct run *run, const struct reference *reference)
{
    struct tt_arena arena = {0};
    struct tt_model_facts config;
    struct tt_model_options options = {.compute_dtype = run->dtype};
    char folder[512], adapter[512];
    (void)snprintf(folder, sizeof folder, GOLDEN "%s/model", run->model != NULL ? run->model : run->family);
    (void)snprintf(adapter, sizeof adapter, GOLDEN "%s/%s", run->family,
                   run->adapter != NULL ? run->adapter : "");
    tt_runner_read_config(folder, run->config_name, &config);
    if (run->adapter != NULL) test_must(tt_adapter_config_read(adapter, &arena, &options.lora));
    struct tt_model_runner *runner = tt_runner_create(&config, &options);
    tt_runner_load(runner, folder, run->adapter != NULL ? adapter : NULL);
    tt_runner_set_batch(runner, reference->ids, reference->lengths, reference->sequence_count, NULL);
    float *logits = tt_calloc((size_t)(reference->token_count * config.vocab_size), sizeof *logits);
    assert_non_null(logits);
    tt_runner_logits(runner, logits);
    tt_runner_destroy(runner);
    tt_arena_deinit(&arena);
    return logits;
}

/* sqrt(sum (a - b)^2 / sum b^2) */
static double relative_error(const float *a, const float *b, int64_t count)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(difference / norm);
}

/* The worst row: a wrong position, border or token must not drown in the others. */
static double worst_row_error(const float *a, const float *b, int64_t rows, int64_t columns)
{
    double worst = 0;
    for (int64_t r = 0; r < rows; r++)
        worst = fmax(worst, relative_error(a + r * columns, b + r * columns, columns));
    return worst;
}

static void compare(const struct run *run, const char *file_name, const char *tensor, double limit)
{
    struct reference reference = {0};
    read_batch(run->family, &reference);
    read_logits(file_name, tensor, &reference);
    float *logits = run_model(run, &reference);
    double error = worst_row_error(logits, reference.logits, reference.token_count, reference.vocab);
    print_message("%s %s %s: worst row %.2e\n", run->family, run->adapter != NULL ? run->adapter : "base",
                  tensor, error);
    if (!(error <= limit)) fail_msg("%s: error %g is above %g", file_name, error, limit);
    tt_free(logits);
    tt_free(reference.logits);
}

/* Each configuration of variants/ over the weights of its family. One batch holds rows on both sides of LongRoPE's
 * border; only the last token of each sequence has a reference. */
static void check_variant(const char *name)
{
    struct reference batch = {0}, wanted = {0};
    char family[16] = "", config[80];
    (void)snprintf(family, sizeof family, "%.*s", (int)strcspn(name, "_"), name);
    (void)snprintf(config, sizeof config, "../variants/%s.json", name);
    read_batch(family, &batch);
    wanted.token_count = batch.sequence_count;
    read_logits("variants/reference.safetensors", name, &wanted);
    float *logits =
        run_model(&(struct run){.family = family, .config_name = config, .dtype = TT_F32}, &batch);
    double worst = 0;
    for (int64_t b = 0, end = 0; b < batch.sequence_count; b++) {
        end += batch.lengths[b];
        worst = fmax(worst, relative_error(logits + (end - 1) * wanted.vocab,
                                           wanted.logits + b * wanted.vocab, wanted.vocab));
    }
    print_message("%s: worst row %.2e\n", name, worst);
    if (!(worst <= 1e-5)) fail_msg("%s: error %g", name, worst);
    tt_free(logits);
    tt_free(wanted.logits);
}

static void configurations(void **state)
{
    struct tt_safetensors *file = NULL;
    size_t count = 0;
    (void)state;
    test_must(tt_safetensors_open(GOLDEN "variants/reference.safetensors", &file));
    for (; count < tt_safetensors_count(file); count++)
        check_variant(tt_safetensors_entry(file, count)->name);
    assert_true(count >= 20);
    tt_safetensors_close(file);
}

static const char *const all_families[] = {"llama2",  "llama3", "mistral", "qwen2", "qwen3",
                                           "smollm3", "phi3",   "gemma3",  "gemma2"};

static void base_and_adapter(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all_families / sizeof all_families[0]; i++) {
        char file[128];
        (void)snprintf(file, sizeof file, "%s/reference.safetensors", all_families[i]);
        struct run run = {.family = all_families[i], .dtype = TT_F32};
        compare(&run, file, "logits", 1e-5);
        run.adapter = "adapter_random";
        compare(&run, file, "logits_adapter", 1e-5);
    }
}

static void dense_families(void **state)
{
    static const char *const families[] = {
#define DENSE(name) "dense/" #name,
#include "dense.def"
#undef DENSE
    };
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        char file[128];
        (void)snprintf(file, sizeof file, "%s/reference.safetensors", families[i]);
        struct run run = {.family = families[i], .dtype = TT_F32};
        compare(&run, file, "logits", 1e-5);
        run.adapter = "adapter_final";
        compare(&run, file, "logits_adapter", 1e-5);
    }
}

/* modules_to_save, patterns, rslora, excluded modules; embeddings that are tied in the base and apart in the
 * adapter. */
static void unusual_adapters(void **state)
{
    (void)state;
    compare(&(struct run){.family = "llama2", .adapter = "variety", .dtype = TT_F32},
            "llama2/variety/reference.safetensors", "logits", 1e-5);
    compare(&(struct run){.family = "qwen2", .adapter = "variety", .dtype = TT_F32},
            "qwen2/variety/reference.safetensors", "logits", 1e-5);
}

static void other_configs(void **state)
{
    (void)state;
    compare(&(struct run){.family = "llama3", .config_name = "config_v4.json", .dtype = TT_F32},
            "llama3/reference.safetensors", "logits", 1e-5);
    compare(&(struct run){.family = "mistral", .config_name = "config_window.json", .dtype = TT_F32},
            "mistral/reference.safetensors", "logits_window", 1e-5);
    compare(&(struct run){.family = "dense/ministral", .config_name = "config_mistral.json", .dtype = TT_F32},
            "dense/ministral/reference.safetensors", "logits", 1e-5);
    compare(&(struct run){.family = "dense/gpt_oss", .model = "dense/gpt_oss/mxfp4", .dtype = TT_F32},
            "dense/gpt_oss/reference.safetensors", "logits", 1e-5);
    compare(&(struct run){.family = "phi3", .config_name = "config_long.json", .dtype = TT_F32},
            "phi3/reference.safetensors", "logits_long", 1e-5);
    compare(&(struct run){.family = "llama2", .model = "llama_sharded", .dtype = TT_F32},
            "llama2/reference.safetensors", "logits", 1e-5);
}

/* The reference's own bf16 run is the plain same-type implementation: at most twice its error against fp32.
 */
static void bf16_is_close(void **state)
{
    static const char *const families[] = {"llama3", "qwen2", "gemma3", "gemma2"};
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        struct reference exact = {0}, rough = {0};
        char file[128];
        (void)snprintf(file, sizeof file, "%s/reference.safetensors", families[i]);
        read_batch(families[i], &exact);
        rough = exact;
        read_logits(file, "logits", &exact);
        read_logits(file, "logits_bf16", &rough);
        int64_t count = exact.token_count * exact.vocab;
        float *logits = run_model(&(struct run){.family = families[i], .dtype = TT_BF16}, &exact);
        double ours = relative_error(logits, exact.logits, count),
               theirs = relative_error(rough.logits, exact.logits, count);
        print_message("%s bf16: ours %.2e, plain %.2e\n", families[i], ours, theirs);
        assert_true(ours <= 2 * theirs);
        assert_true(ours > 1e-5); /* it did run in bf16 */
        tt_free(logits);
        tt_free(exact.logits);
        tt_free(rough.logits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base_and_adapter), cmocka_unit_test(unusual_adapters),
        cmocka_unit_test(other_configs),    cmocka_unit_test(configurations),
        cmocka_unit_test(bf16_is_close),    cmocka_unit_test(dense_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
