/* However much a block keeps for its backward, the result of a training is the same bits: nothing,
 * element-wise results, whole blocks computed again, inputs of blocks in host memory; with dropout, q/k
 * norms, packing, several ranks, and with every weight training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/file.h"
#include "job/resolve.h"
#include "run/bench.h"
#include "support/train_run.h"

static void run(const char *family, const char *recompute, const char *more, const char *output)
{
    char model[512], data[512];
    struct test_words words = {.count = 0};
    struct tt_train_summary summary;
    snprintf(model, sizeof model, "%s/golden/%s/model", TT_TEST_ROOT, family);
    snprintf(data, sizeof data, "%s/golden/%s/train.jsonl", TT_TEST_ROOT, family);
    test_words_pair(&words, "model_name_or_path", model);
    test_words_pair(&words, "dataset_name", data);
    test_words_pair(&words, "recompute", recompute);
    test_words_add(&words,
                   "max_steps 3 learning_rate 0.005 save_strategy no threads 1 per_device_train_batch_size 2 "
                   "gradient_accumulation_steps 2");
    test_words_add(&words, more);
    test_train_ok(words.list, output, &summary);
}

static void same_bits(const char *family, const char *more, const char *file)
{
    static const char *const others[] = {"none", "cheap", "offload"};
    char wanted[600], got[600];
    char *block = test_folder_create();
    run(family, "block", more, block);
    snprintf(wanted, sizeof wanted, "%s/%s", block, file);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *other = test_folder_create();
        run(family, others[i], more, other);
        snprintf(got, sizeof got, "%s/%s", other, file);
        test_same_file(wanted, got);
        test_folder_remove(other);
    }
    test_folder_remove(block);
}

static const char adapter[] = "adapter_model.safetensors", weights[] = "model.safetensors";

static void lora_on_everything(void **state)
{
    (void)state;
    same_bits("llama2", "lora_r 4 lora_target_modules all-linear lora_dropout 0.1 bf16 true", adapter);
}

static void lora_on_some_with_qk_norms(void **state)
{
    (void)state;
    same_bits("qwen3", "lora_r 4 lora_target_modules q_proj,v_proj bf16 false", adapter);
    same_bits("qwen3", "lora_r 4 lora_target_modules q_proj,down_proj bf16 true ranks 2", adapter);
}

static void lora_on_upper_layers(void **state)
{
    (void)state;
    same_bits("llama3", "lora_r 4 layers_to_transform [1] bf16 true", adapter);
}

static void packed_on_two_ranks(void **state)
{
    (void)state;
    same_bits("mistral", "packing true max_length 64 ranks 2 backward_prefetch NO_PREFETCH bf16 true",
              adapter);
}

static void every_weight(void **state)
{
    (void)state;
    same_bits("qwen3", "use_peft false bf16 true ranks 2", weights);
    same_bits("llama3", "use_peft false bf16 false", weights);
}

static const char deep_shape[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 32, "
    "\"intermediate_size\": 48, \"num_hidden_layers\": 7, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, "
    "\"head_dim\": 8, \"vocab_size\": 97, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "
    "\"rope_theta\": 100, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}";

/* The loss of the fourth step of seven layers of random weights: it holds all gradients before it. */
static double deep_loss(const char *config_json, const char *recompute, const char *ranks)
{
    struct tt_bench_spec spec = {0};
    struct tt_settings *settings = NULL;
    struct tt_bench_result result;
    assert_int_equal(tt_job_settings_create(TT_JOB_BENCH, &spec, sizeof spec, &settings), TT_OK);
    const char *const pairs[][2] = {{"config_json", config_json},
                                    {"sequence_length", "24"},
                                    {"steps", "4"},
                                    {"warmup", "0"},
                                    {"recompute", recompute},
                                    {"ranks", ranks},
                                    {"threads", "1"},
                                    {"learning_rate", "0.01"},
                                    {"per_device_train_batch_size", "2"},
                                    {"gradient_accumulation_steps", "2"},
                                    {"lora_target_modules", "all-linear"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_int_equal(tt_settings_set(settings, pairs[i][0], pairs[i][1], "test"), TT_OK);
    if (tt_bench_resolve(settings, &spec) != TT_OK || tt_bench_train(&spec, NULL, &result) != TT_OK) {
        char text[2048];
        (void)tt_error_format(tt_error_last(), text, sizeof text);
        fail_msg("%s", text);
    }
    tt_settings_destroy(settings);
    return result.loss;
}

static void inputs_that_travel(void **state)
{
    (void)state;
    char path[600];
    char *folder = test_folder_create();
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(tt_file_write_atomic(path, deep_shape, sizeof deep_shape - 1), TT_OK);
    for (int ranks = 1; ranks <= 2; ranks++) {
        char text[2] = {(char)('0' + ranks), 0};
        double wanted = deep_loss(path, "cheap", text);
        assert_true(deep_loss(path, "none", text) == wanted);
        assert_true(deep_loss(path, "block", text) == wanted);
        assert_true(deep_loss(path, "offload", text) == wanted);
    }
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lora_on_everything),   cmocka_unit_test(lora_on_some_with_qk_norms),
        cmocka_unit_test(lora_on_upper_layers), cmocka_unit_test(packed_on_two_ranks),
        cmocka_unit_test(every_weight),         cmocka_unit_test(inputs_that_travel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
