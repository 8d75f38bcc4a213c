/* QLoRA against transformers + PEFT + bitsandbytes in fp32 on the CPU: the loss and gradient norm of each of
 * 20 steps over the same weights, which both sides quantize, and over folders that bitsandbytes has quantized
 * (tests/golden/qlora/make_qlora.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "support/golden.h"
#include "support/train_run.h"

enum { STEPS = 20 };

static void compare(const char *name, const char *output)
{
    char path[512];
    struct tt_json reference = {0};
    double loss[STEPS + 1], norm[STEPS + 1];
    snprintf(path, sizeof path, "%s/golden/qlora/%s.json", TT_TEST_ROOT, name);
    assert_int_equal(tt_json_read(path, 1 << 24, &reference), TT_OK);
    assert_int_equal(test_read_log(output, "loss", loss, STEPS + 1), STEPS);
    assert_int_equal(test_read_log(output, "grad_norm", norm, STEPS + 1), STEPS);
    for (int i = 0; i < STEPS; i++) {
        const struct tt_json_value *step = tt_json_at(tt_json_get(reference.root, "steps"), (size_t)i);
        double want_loss = tt_json_number(tt_json_get(step, "loss"));
        double want_norm = tt_json_number(tt_json_get(step, "grad_norm"));
        if (fabs(loss[i] - want_loss) > 1e-4 * want_loss || fabs(norm[i] - want_norm) > 1e-3 * want_norm)
            fail_msg("%s step %d: loss %.7f and norm %.7f, wanted %.7f and %.7f", name, i + 1, loss[i],
                     norm[i], want_loss, want_norm);
    }
    tt_json_deinit(&reference);
}

/* `folder` below golden/ holds the weights; `more` says how they are quantized. */
static void check(const char *name, const char *family, const char *folder, const char *more)
{
    char model[512], data[512], adapter[512];
    struct test_words words = {0};
    struct tt_train_summary summary;
    char *output = test_folder_create();
    snprintf(model, sizeof model, "%s/golden/%s", TT_TEST_ROOT, folder);
    snprintf(data, sizeof data, "%s/golden/%s/train.jsonl", TT_TEST_ROOT, family);
    snprintf(adapter, sizeof adapter, "%s/golden/%s/adapter_init", TT_TEST_ROOT, family);
    test_words_pair(&words, "model_name_or_path", model);
    test_words_pair(&words, "dataset_name", data);
    test_words_pair(&words, "adapter_name_or_path", adapter);
    test_words_add(&words, TEST_GOLDEN_STEPS " learning_rate 0.01 save_strategy no");
    test_words_add(&words, more);
    test_train_ok(words.list, output, &summary);
    compare(name, output);
    test_folder_remove(output);
}

static void nf4_double(void **state)
{
    (void)state;
    check("nf4_double", "llama2", "llama2/model", "load_in_4bit true bnb_4bit_use_double_quant true");
}

static void nf4_double_on_two_ranks(void **state)
{
    (void)state;
    check("nf4_double", "llama2", "llama2/model",
          "load_in_4bit true use_bnb_nested_quant true ranks 2 per_device_train_batch_size 1");
}

static void nf4(void **state)
{
    (void)state;
    check("nf4", "llama3", "llama3/model", "load_in_4bit true");
}

static void fp4(void **state)
{
    (void)state;
    check("fp4", "qwen3", "qwen3/model", "load_in_4bit true bnb_4bit_quant_type fp4");
}

/* Folders that are quantized say so themselves; what they hold is what the two above make. */
static void stored_nf4_double(void **state)
{
    (void)state;
    check("nf4_double", "llama2", "qlora/nf4_double", "");
    check("nf4_double", "llama2", "qlora/nf4_double",
          "ranks 4 gradient_accumulation_steps 1 per_device_train_batch_size 1");
}

static void stored_fp4(void **state)
{
    (void)state;
    check("fp4", "qwen3", "qlora/fp4", "load_in_4bit true ranks 2 per_device_train_batch_size 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nf4_double), cmocka_unit_test(nf4_double_on_two_ranks), cmocka_unit_test(nf4),
        cmocka_unit_test(fp4),        cmocka_unit_test(stored_nf4_double),       cmocka_unit_test(stored_fp4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
