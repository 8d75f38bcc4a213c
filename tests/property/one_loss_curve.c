/* One loss curve, whatever the split: ranks x strategy x micro batches x packing x gradient checkpointing
 * give the curve of the plainest run to fp32 rounding, with LoRA (dropout on: its masks belong to tokens, not
 * to ranks) and with full fine-tuning; and two runs of the same command are the same bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "support/train_run.h"

enum { STEPS = 8, PAIRS_MAX = 64 };

/* A way to split the same global batch of 8 samples. */
struct split {
    const char *ranks, *micro, *accumulation, *strategy, *checkpointing, *prefetch;
};

static const struct split plain = {"1", "8", "1", "NO_SHARD", "false", "NO_PREFETCH"};

static const struct split splits[] = {
    {"1", "8", "1", "FULL_SHARD", "true", "BACKWARD_PRE"},
    {"1", "2", "4", "NO_SHARD", "false", "NO_PREFETCH"},
    {"1", "1", "8", "FULL_SHARD", "true", "BACKWARD_POST"},
    {"2", "4", "1", "FULL_SHARD", "false", "BACKWARD_PRE"},
    {"2", "1", "4", "FULL_SHARD", "true", "NO_PREFETCH"},
    {"2", "2", "2", "SHARD_GRAD_OP", "false", "BACKWARD_PRE"},
    {"2", "4", "1", "NO_SHARD", "true", "BACKWARD_POST"},
    {"2", "1", "4", "NO_SHARD", "false", "BACKWARD_PRE"},
    {"4", "2", "1", "FULL_SHARD", "true", "BACKWARD_POST"},
    {"4", "1", "2", "FULL_SHARD", "false", "BACKWARD_PRE"},
    {"4", "2", "1", "SHARD_GRAD_OP", "true", "BACKWARD_PRE"},
    {"4", "1", "2", "NO_SHARD", "true", "NO_PREFETCH"},
    {"4", "2", "1", "HYBRID_SHARD", "false", "BACKWARD_PRE"},
};

static void run(const char *family, const struct split *split, const char *const *more, const char *output)
{
    char model[512], data[512];
    snprintf(model, sizeof model, "%s/golden/%s/model", TT_TEST_ROOT, family);
    snprintf(data, sizeof data, "%s/golden/%s/train.jsonl", TT_TEST_ROOT, family);
    const char *pairs[PAIRS_MAX] = {
        "model_name_or_path",
        model,
        "dataset_name",
        data,
        "bf16",
        "false",
        "max_steps",
        "8",
        "logging_steps",
        "1",
        "learning_rate",
        "0.005",
        "save_strategy",
        "no",
        "threads",
        "1",
        "ranks",
        split->ranks,
        "per_device_train_batch_size",
        split->micro,
        "gradient_accumulation_steps",
        split->accumulation,
        "sharding_strategy",
        split->strategy,
        "gradient_checkpointing",
        split->checkpointing,
        "backward_prefetch",
        split->prefetch,
    };
    int count = 0;
    while (pairs[count] != NULL) count++;
    for (; *more != NULL && count < PAIRS_MAX - 1; more++) pairs[count++] = *more;
    struct tt_train_summary summary;
    test_train_ok(pairs, output, &summary);
}

static void same_curve(const char *family, const char *const *more)
{
    double wanted[STEPS], norms[STEPS], got[STEPS], got_norms[STEPS];
    char *output = test_folder_create();
    run(family, &plain, more, output);
    assert_int_equal(test_read_log(output, "loss", wanted, STEPS), STEPS);
    assert_int_equal(test_read_log(output, "grad_norm", norms, STEPS), STEPS);
    assert_true(fabs(wanted[STEPS - 1] - wanted[0]) > 0.01); /* it did train */
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        run(family, &splits[i], more, output);
        assert_int_equal(test_read_log(output, "loss", got, STEPS), STEPS);
        assert_int_equal(test_read_log(output, "grad_norm", got_norms, STEPS), STEPS);
        for (int s = 0; s < STEPS; s++)
            if (fabs(got[s] - wanted[s]) > 2e-5 * wanted[s] ||
                fabs(got_norms[s] - norms[s]) > 1e-3 * norms[s])
                fail_msg("%s, split %zu, step %d: loss %.8f and norm %.8f, wanted %.8f and %.8f", family, i,
                         s + 1, got[s], got_norms[s], wanted[s], norms[s]);
    }
    test_folder_remove(output);
}

static void lora_with_dropout(void **state)
{
    (void)state;
    const char *more[] = {"lora_r", "4", "lora_target_modules", "all-linear", "lora_dropout", "0.1", NULL};
    same_curve("llama2", more);
}

static void lora_with_bias_and_saved_head(void **state)
{
    (void)state;
    const char *more[] = {
        "lora_r",        "4", "lora_target_modules", "[\"q_proj\", \"down_proj\"]", "lora_modules_to_save",
        "[\"lm_head\"]", NULL};
    same_curve("qwen3", more);
}

static void full_with_tied_embeddings(void **state)
{
    (void)state;
    const char *more[] = {"use_peft", "false", "learning_rate", "0.001", NULL};
    same_curve("llama3", more);
}

static void full_untied(void **state)
{
    (void)state;
    const char *more[] = {"use_peft", "false", "learning_rate", "0.001", NULL};
    same_curve("qwen3", more);
}

/* With packing a unit is a pack, so the batches are others; among themselves the splits must agree. */
static void packed(void **state)
{
    (void)state;
    const char *more[] = {"packing", "true", "max_length", "64", "lora_dropout", "0", NULL};
    same_curve("mistral", more);
}

/* Packing changes which samples share a row, never what a sample sees: one batch that holds all samples has
 * one loss. */
static void packing_changes_nothing(void **state)
{
    (void)state;
    double plain_loss, packed_loss, plain_norm, packed_norm;
    const struct split all = {"1", "64", "1", "NO_SHARD", "false", "NO_PREFETCH"};
    const char *without[] = {"max_steps", "1", NULL};
    const char *with[] = {"max_steps", "1", "packing", "true", "max_length", "96", NULL};
    char *output = test_folder_create();
    run("qwen2", &all, without, output);
    assert_int_equal(test_read_log(output, "loss", &plain_loss, 1), 1);
    assert_int_equal(test_read_log(output, "grad_norm", &plain_norm, 1), 1);
    run("qwen2", &all, with, output);
    assert_int_equal(test_read_log(output, "loss", &packed_loss, 1), 1);
    assert_int_equal(test_read_log(output, "grad_norm", &packed_norm, 1), 1);
    assert_true(fabs(plain_loss - packed_loss) < 1e-6 * plain_loss);
    assert_true(fabs(plain_norm - packed_norm) < 1e-4 * plain_norm);
    test_folder_remove(output);
}

static void same_command_same_bits(void **state)
{
    (void)state;
    char a[600], b[600];
    char *first = test_folder_create(), *second = test_folder_create();
    const struct split split = {"2", "2", "2", "FULL_SHARD", "true", "BACKWARD_PRE"};
    const char *more[] = {"lora_r", "4", "lora_dropout", "0.1", "threads", "2", "bf16", "true", NULL};
    run("llama3", &split, more, first);
    run("llama3", &split, more, second);
    snprintf(a, sizeof a, "%s/adapter_model.safetensors", first);
    snprintf(b, sizeof b, "%s/adapter_model.safetensors", second);
    test_same_file(a, b);
    test_folder_remove(first);
    test_folder_remove(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lora_with_dropout),
        cmocka_unit_test(lora_with_bias_and_saved_head),
        cmocka_unit_test(full_with_tied_embeddings),
        cmocka_unit_test(full_untied),
        cmocka_unit_test(packed),
        cmocka_unit_test(packing_changes_nothing),
        cmocka_unit_test(same_command_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
