/* Training against transformers + PEFT in fp32: the loss, gradient norm and learning rate of each of 20 AdamW
 * steps, and the weights at the end, for LoRA on all linears and for full fine-tuning of every family
 * (tests/golden/make_models.py); 50 steps of LoRA for the families of dense.def (dense/make_dense.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/golden.h"
#include "support/train_run.h"

enum { STEPS = 20, DENSE_STEPS = 50, STEPS_MAX = DENSE_STEPS };

static void compare_steps(const char *family, const char *reference_name, const char *output, int steps,
                          double loss_limit)
{
    char path[512];
    struct tt_json reference = {0};
    double loss[STEPS_MAX + 1], norm[STEPS_MAX + 1], rate[STEPS_MAX + 1];
    snprintf(path, sizeof path, "%s/golden/%s/%s", TT_TEST_ROOT, family, reference_name);
    assert_int_equal(tt_json_read(path, 1 << 24, &reference), TT_OK);
    assert_int_equal(test_read_log(output, "loss", loss, STEPS_MAX + 1), steps);
    assert_int_equal(test_read_log(output, "grad_norm", norm, STEPS_MAX + 1), steps);
    assert_int_equal(test_read_log(output, "learning_rate", rate, STEPS_MAX + 1), steps);
    for (int i = 0; i < steps; i++) {
        const struct tt_json_value *step = tt_json_at(tt_json_get(reference.root, "steps"), (size_t)i);
        double want_loss = tt_json_number(tt_json_get(step, "loss"));
        double want_norm = tt_json_number(tt_json_get(step, "grad_norm"));
        double want_rate = tt_json_number(tt_json_get(step, "learning_rate"));
        if (fabs(loss[i] - want_loss) > loss_limit * want_loss)
            fail_msg("%s step %d: loss %.7f, wanted %.7f", family, i + 1, loss[i], want_loss);
        if (fabs(norm[i] - want_norm) > 1e-3 * want_norm)
            fail_msg("%s step %d: gradient norm %.7f, wanted %.7f", family, i + 1, norm[i], want_norm);
        if (fabs(rate[i] - want_rate) > 1e-12)
            fail_msg("%s step %d: learning rate %g, wanted %g", family, i + 1, rate[i], want_rate);
    }
    tt_json_deinit(&reference);
}

/* The loss that balances experts, where the model has some. */
static void compare_balance(const char *family, const char *output)
{
    char path[512];
    struct tt_json reference = {0};
    double balance[STEPS_MAX + 1];
    snprintf(path, sizeof path, "%s/golden/%s/train_reference.json", TT_TEST_ROOT, family);
    assert_int_equal(tt_json_read(path, 1 << 24, &reference), TT_OK);
    bool has = tt_json_get(tt_json_at(tt_json_get(reference.root, "steps"), 0), "aux_loss") != NULL;
    int rows = test_read_log(output, "aux_loss", balance, STEPS_MAX + 1);
    if (rows != (has ? DENSE_STEPS : 0)) fail_msg("%s: %d rows have aux_loss", family, rows);
    for (int i = 0; i < rows; i++) {
        const struct tt_json_value *step = tt_json_at(tt_json_get(reference.root, "steps"), (size_t)i);
        double want = tt_json_number(tt_json_get(step, "aux_loss"));
        if (!(fabs(balance[i] - want) <= 1e-5 * want))
            fail_msg("%s step %d: aux_loss %.7f, wanted %.7f", family, i + 1, balance[i], want);
    }
    tt_json_deinit(&reference);
}

static void compare_weights(const char *family, const char *got, const char *want)
{
    char path[512], worst[200];
    snprintf(path, sizeof path, "%s/golden/%s/%s", TT_TEST_ROOT, family, want);
    double error = test_compare_weights(got, path, worst, sizeof worst);
    if (error > 1e-3) fail_msg("%s: '%s' is off by %.2e", family, worst, error);
}

static void check_family(const char *family, bool lora)
{
    char weights[512];
    struct test_words settings = {0};
    char *output = test_folder_create();
    test_golden_inputs(&settings, family, lora);
    test_words_add(&settings, TEST_GOLDEN_STEPS " save_strategy no");
    test_words_pair(&settings, "learning_rate", lora ? "0.01" : "0.001");
    struct tt_train_summary summary;
    test_train_ok(settings.list, output, &summary);
    compare_steps(family, lora ? "train_reference.json" : "full_reference.json", output, STEPS, 1e-4);
    snprintf(weights, sizeof weights, "%s/%s", output,
             lora ? "adapter_model.safetensors" : "model.safetensors");
    /* The full weights of only two families are kept, for their size; the curves of all are. */
    if (lora || strcmp(family, "llama2") == 0 || strcmp(family, "qwen3") == 0)
        compare_weights(family, weights,
                        lora ? "adapter_final/adapter_model.safetensors" : "full_final.safetensors");
    test_folder_remove(output);
}

/* The largest learning rate of a reference, as text. */
static void read_rate(const char *family, char *text, size_t bytes)
{
    char path[512];
    struct tt_json reference = {0};
    double most = 0;
    snprintf(path, sizeof path, "%s/golden/%s/train_reference.json", TT_TEST_ROOT, family);
    assert_int_equal(tt_json_read(path, 1 << 24, &reference), TT_OK);
    const struct tt_json_value *steps = tt_json_get(reference.root, "steps");
    for (size_t i = 0; i < tt_json_count(steps); i++)
        most = fmax(most, tt_json_number(tt_json_get(tt_json_at(steps, i), "learning_rate")));
    snprintf(text, bytes, "%.12g", most);
    tt_json_deinit(&reference);
}

/* The loss that balances experts is of a micro batch: the references have a step in one. */
#define WHOLE_STEP "per_device_train_batch_size 4 gradient_accumulation_steps 1"
static bool is_balanced(const char *family)
{
    char path[512];
    struct tt_json config = {0};
    snprintf(path, sizeof path, "%s/golden/%s/model/config.json", TT_TEST_ROOT, family);
    assert_int_equal(tt_json_read(path, 1 << 24, &config), TT_OK);
    bool balanced = tt_json_get(config.root, "router_aux_loss_coef") != NULL;
    tt_json_deinit(&config);
    return balanced;
}

static void check_dense(const char *name)
{
    char family[64], weights[512], rate[32];
    struct test_words settings = {0};
    struct tt_train_summary summary;
    char *output = test_folder_create();
    snprintf(family, sizeof family, "dense/%s", name);
    test_golden_dense_inputs(&settings, name);
    test_words_add(&settings, TEST_GOLDEN_STEPS " save_strategy no");
    test_words_pair(&settings, "max_steps", "50");
    if (is_balanced(family)) test_words_add(&settings, WHOLE_STEP);
    read_rate(family, rate, sizeof rate);
    test_words_pair(&settings, "learning_rate", rate);
    test_train_ok(settings.list, output, &summary);
    compare_steps(family, "train_reference.json", output, DENSE_STEPS, 1e-5);
    compare_balance(family, output);
    snprintf(weights, sizeof weights, "%s/adapter_model.safetensors", output);
    compare_weights(family, weights, "adapter_final/adapter_model.safetensors");
    test_folder_remove(output);
}

static void lora_dense_families(void **state)
{
    (void)state;
#define DENSE(name) check_dense(#name);
#include "dense.def"
#undef DENSE
}

#define FAMILY(name)                                                                                         \
    static void lora_##name(void **state)                                                                    \
    {                                                                                                        \
        (void)state;                                                                                         \
        check_family(#name, true);                                                                           \
    }                                                                                                        \
    static void full_##name(void **state)                                                                    \
    {                                                                                                        \
        (void)state;                                                                                         \
        check_family(#name, false);                                                                          \
    }
FAMILY(llama2)
FAMILY(llama3)
FAMILY(mistral)
FAMILY(qwen2)
FAMILY(qwen3)
FAMILY(smollm3)
FAMILY(phi3)
FAMILY(gemma3)
FAMILY(gemma2)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lora_llama2),         cmocka_unit_test(lora_llama3),  cmocka_unit_test(lora_mistral),
        cmocka_unit_test(lora_qwen2),          cmocka_unit_test(lora_qwen3),   cmocka_unit_test(full_llama2),
        cmocka_unit_test(full_llama3),         cmocka_unit_test(full_mistral), cmocka_unit_test(full_qwen2),
        cmocka_unit_test(full_qwen3),          cmocka_unit_test(lora_smollm3), cmocka_unit_test(full_smollm3),
        cmocka_unit_test(lora_phi3),           cmocka_unit_test(full_phi3),    cmocka_unit_test(lora_gemma3),
        cmocka_unit_test(full_gemma3),         cmocka_unit_test(lora_gemma2),  cmocka_unit_test(full_gemma2),
        cmocka_unit_test(lora_dense_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
