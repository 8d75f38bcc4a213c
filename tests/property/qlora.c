/* One loss curve over a quantized base, whatever the split: ranks x strategy x micro batches x recompute give
 * the curve of one rank to fp32 rounding, in every format, and with linears that stay as they are. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/train_run.h"

enum { STEPS = 6 };

/* The one model here whose MLP is multiplied in fp8: sides of the others are no multiples of 16. */
static const char demo[] = "demo";

/* all-linear may name parameters of experts and routers, whose adapters have no dropout. */
static bool has_experts(const char *model)
{
    char path[600];
    struct tt_str config = {0};
    snprintf(path, sizeof path, "%s/config.json", model);
    assert_int_equal(tt_file_read(path, 1 << 20, &config), TT_OK);
    bool found = strstr(tt_str_text(&config), "experts") != NULL;
    tt_str_deinit(&config);
    return found;
}

static void run(const char *family, const char *split, const char *format, const char *output)
{
    char model[512], data[512];
    struct test_words words = {0};
    struct tt_train_summary summary;
    bool is_demo = strcmp(family, demo) == 0, is_dense = strncmp(family, "dense/", 6) == 0;
    snprintf(model, sizeof model, "%s/%s%s/model", TT_TEST_ROOT, is_demo ? "../examples/" : "golden/",
             family);
    snprintf(data, sizeof data, "%s/%s%s/train.jsonl", TT_TEST_ROOT, is_demo ? "../examples/" : "golden/",
             is_demo    ? "demo/data"
             : is_dense ? "dense"
                        : family);
    test_words_pair(&words, "model_name_or_path", model);
    test_words_pair(&words, "dataset_name", data);
    test_words_add(&words,
                   "bf16 false max_steps 6 logging_steps 1 learning_rate 0.005 save_strategy no threads 1 "
                   "lora_r 4 lora_target_modules all-linear");
    test_words_pair(&words, "lora_dropout", has_experts(model) ? "0" : "0.1");
    test_words_add(&words, split);
    test_words_add(&words, format);
    test_train_ok(words.list, output, &summary);
}

/* Sums in another order differ in the last bits; where activations are rounded to fp8 such a bit can move a number to
 * the next code, 6 % away. */
static const double fp32_rounding = 2e-5, fp8_rounding = 2e-3;
/* Where all products are in fp8, many numbers move: 0.5 % of a loss that falls by a third, gate and up coded or not. */
static const double fp8_wide_rounding = 1e-2;

static void same_curve(const char *family, const char *format, double rounding)
{
    static const char *const splits[] = {
        "ranks 2 per_device_train_batch_size 4 gradient_checkpointing false",
        "ranks 2 per_device_train_batch_size 2 gradient_accumulation_steps 2 sharding_strategy SHARD_GRAD_OP",
        "ranks 4 per_device_train_batch_size 2 gradient_checkpointing true",
        "ranks 4 per_device_train_batch_size 1 gradient_accumulation_steps 2 sharding_strategy NO_SHARD",
        "ranks 3 per_device_train_batch_size 4 recompute none",
    };
    double wanted[STEPS], got[STEPS];
    char *output = test_folder_create();
    run(family, "ranks 1 per_device_train_batch_size 8 gradient_checkpointing false", format, output);
    assert_int_equal(test_read_log(output, "loss", wanted, STEPS), STEPS);
    assert_true(fabs(wanted[STEPS - 1] - wanted[0]) > 0.01); /* it did train */
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        /* three ranks of 4 are another batch: only that such slices work */
        bool same = strstr(splits[i], "ranks 3") == NULL;
        run(family, splits[i], format, output);
        assert_int_equal(test_read_log(output, "loss", got, STEPS), STEPS);
        for (int s = 0; s < STEPS; s++)
            if (same ? fabs(got[s] - wanted[s]) > rounding * wanted[s] : !isfinite(got[s]))
                fail_msg("%s (%s), split %zu, step %d: loss %.8f, wanted %.8f", family, format, i, s + 1,
                         got[s], wanted[s]);
    }
    test_folder_remove(output);
}

static void nf4_double(void **state)
{
    (void)state;
    same_curve("llama2", "load_in_4bit true bnb_4bit_use_double_quant true", fp32_rounding);
    same_curve("vision/muse_glimmer", "load_in_4bit true", fp32_rounding);
}

static void fp4_with_biases(void **state)
{
    (void)state;
    same_curve("qwen2", "load_in_4bit true bnb_4bit_quant_type fp4", fp32_rounding);
}

static void int8_rows(void **state)
{
    (void)state;
    same_curve("mistral", "load_in_8bit true", fp32_rounding);
}

static void some_stay(void **state)
{
    (void)state;
    same_curve("llama3", "load_in_4bit true llm_int8_skip_modules [\"k_proj\",\"model.layers.1.mlp\"]",
               fp32_rounding);
}

/* q, k, v and o of this model are multiplied in fp8, its MLP (104 wide) is decoded. */
static void fp8_products(void **state)
{
    (void)state;
    same_curve("llama3", "base_dtype fp8", fp8_rounding);
}

/* Decoded weights that are quantized to fp8 for each product. */
static void products_in_fp8_over_other_formats(void **state)
{
    (void)state;
    same_curve("llama3", "load_in_4bit true fp8_products single", fp8_rounding);
    same_curve("qwen2", "load_in_8bit true fp8_products forward", fp8_rounding);
}

static void fp8_with_biases_forward(void **state)
{
    (void)state;
    same_curve("qwen2", "load_in_fp8 true fp8_products forward", fp8_rounding);
}

static void fp8_decoded(void **state)
{
    (void)state;
    same_curve("mistral", "base_dtype fp8 fp8_products none", fp32_rounding);
}

/* An MLP of products in fp8, and one that is decoded. */
static void gate_and_up_in_fp8(void **state)
{
    (void)state;
    same_curve(demo, "base_dtype fp8 fp8_gate_up e4m3 learning_rate 0.0005", fp8_wide_rounding);
    same_curve("mistral", "base_dtype fp8 fp8_products none fp8_gate_up e4m3", fp8_rounding);
}

/* What is kept of a layer does not change its gradients: the same adapter, bit for bit. */
static void levels_agree(const char *family, const char *format)
{
    static const char *const levels[] = {"none", "cheap", "block"};
    char first[600], other[600], split[200];
    char *outputs[3];
    for (int i = 0; i < 3; i++) {
        outputs[i] = test_folder_create();
        snprintf(split, sizeof split, "ranks 1 per_device_train_batch_size 8 recompute %s", levels[i]);
        run(family, split, format, outputs[i]);
    }
    snprintf(first, sizeof first, "%s/adapter_model.safetensors", outputs[0]);
    for (int i = 1; i < 3; i++) {
        snprintf(other, sizeof other, "%s/adapter_model.safetensors", outputs[i]);
        test_same_file(first, other);
    }
    for (int i = 0; i < 3; i++) test_folder_remove(outputs[i]);
}

static void levels_give_the_same_bits(void **state)
{
    (void)state;
    levels_agree(demo, "base_dtype fp8 fp8_gate_up e4m3");
    levels_agree(demo, "base_dtype fp8 fp8_gate_up e4m3 lora_dropout 0 bf16 true");
    levels_agree("phi3", "base_dtype fp8 fp8_gate_up e4m3 bf16 true");
}

static void levels_of_dense_families(void **state)
{
    (void)state;
#define DENSE(name) levels_agree("dense/" #name, "base_dtype fp8 fp8_gate_up e4m3 bf16 true");
#include "golden/dense.def"
#undef DENSE
#define DENSE(name) levels_agree("dense/" #name, "load_in_4bit true");
#include "golden/dense.def"
#undef DENSE
    levels_agree("dense/olmo3", "base_dtype fp8 lora_dropout 0");
    levels_agree("vision/muse_glimmer", "base_dtype fp8 bf16 true");
    levels_agree("vision/muse_glimmer", "load_in_4bit true");
}

/* A base is the same whenever it is quantized: stopped and resumed is not stopped, bit for bit. */
static void resume(const char *family, const char *format)
{
    char whole[600], end[600], from[700];
    char *plain = test_folder_create(), *stopped = test_folder_create(), *gone_on = test_folder_create();
    run(family, "ranks 2 per_device_train_batch_size 2", format, plain);
    run(family, "ranks 2 per_device_train_batch_size 2 save_strategy steps save_steps 3", format, stopped);
    snprintf(from, sizeof from,
             "ranks 2 per_device_train_batch_size 2 resume_from_checkpoint '%s/checkpoint-3'", stopped);
    run(family, from, format, gone_on);
    snprintf(whole, sizeof whole, "%s/adapter_model.safetensors", plain);
    snprintf(end, sizeof end, "%s/adapter_model.safetensors", gone_on);
    test_same_file(whole, end);
    test_folder_remove(plain);
    test_folder_remove(stopped);
    test_folder_remove(gone_on);
}

static void resumed(void **state)
{
    (void)state;
    resume("llama2", "load_in_4bit true bnb_4bit_use_double_quant true");
    resume("llama3", "base_dtype fp8 fp8_gate_up e4m3");
    resume("llama3", "load_in_4bit true fp8_products single");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nf4_double),
        cmocka_unit_test(fp4_with_biases),
        cmocka_unit_test(int8_rows),
        cmocka_unit_test(some_stay),
        cmocka_unit_test(fp8_products),
        cmocka_unit_test(fp8_with_biases_forward),
        cmocka_unit_test(products_in_fp8_over_other_formats),
        cmocka_unit_test(fp8_decoded),
        cmocka_unit_test(gate_and_up_in_fp8),
        cmocka_unit_test(levels_give_the_same_bits),
        cmocka_unit_test(levels_of_dense_families),
        cmocka_unit_test(resumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
