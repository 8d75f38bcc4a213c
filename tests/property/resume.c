/* A run that goes on from a checkpoint is the run that never stopped: on as many ranks to the bit, on another
 * number the same data in the same order and the same losses but for the order of additions. Whether the
 * state was saved in one file or in one per rank makes no difference at all. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/train_run.h"
#include "support/workplace.h"

enum { STEPS = 9, BATCH = 8 };

struct way {
    const char *family, *more, *weights;
    bool full_fine_tuning;
};

static const struct way ways[] = {
    {"llama2", "lora_r 4 lora_dropout 0.2 bf16 false", "adapter_model.safetensors", false},
    {"llama2",
     "lora_r 4 lora_dropout 0.1 bf16 true eval_strategy steps eval_steps 3 load_best_model_at_end true",
     "adapter_model.safetensors", false},
    {"qwen2", "lora_r 2 packing true max_length 96 weight_decay 0.1 save_dtype bfloat16 bf16 false",
     "adapter_model.safetensors", false},
    {"llama2", "use_peft false bf16 true weight_decay 0.1 lr_scheduler_type cosine warmup_steps 2",
     "model.safetensors", true},
    {"llama2",
     "lora_r 4 bf16 false optim sgd momentum 0.9 nesterov true weight_decay 0.1 lr_scheduler_type multistep "
     "lr_scheduler_kwargs {\"milestones\":[4,0.8]} warmup_steps 2",
     "adapter_model.safetensors", false},
    {"qwen2", "lora_r 2 bf16 true optim sgd save_dtype bfloat16", "adapter_model.safetensors", false},
    {"llama2", "use_peft false bf16 false optim sgd momentum 0.8", "model.safetensors", true},
    {"llama2", "use_peft false bf16 false optim muon ns_dtype float32 weight_decay 0.1", "model.safetensors",
     true},
    {"qwen2", "lora_r 4 bf16 true optim muon", "adapter_model.safetensors", false},
};

static void train(const struct test_workplace *place, const struct way *way, int ranks, const char *more,
                  const char *output)
{
    struct test_words words = {0};
    struct tt_train_summary summary;
    char text[256], rows[TEST_PATH_BYTES];
    snprintf(rows, sizeof rows, "%s/golden/%s/train.jsonl", TT_TEST_ROOT, way->family);
    test_words_pair(&words, "model_name_or_path", place->model);
    test_words_pair(&words, "dataset_name", rows);
    test_words_pair(&words, "eval_dataset", rows);
    snprintf(text, sizeof text,
             "threads 1 max_steps %d save_steps 3 logging_steps 2 learning_rate 0.01 ranks %d "
             "per_device_train_batch_size %d",
             STEPS, ranks, BATCH / ranks);
    test_words_add(&words, text);
    test_words_add(&words, way->more);
    test_words_add(&words, more);
    test_train_ok(words.list, output, &summary);
    assert_int_equal(summary.steps, STEPS);
}

/* What a run that was killed after checkpoint-3 leaves. */
static void keep_first_checkpoint(const char *from, const char *to)
{
    char command[2200];
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s' && cp -r '%s/checkpoint-3' '%s'", to, to,
             from, to);
    assert_int_equal(system(command), 0);
}

/* The log but for times. */
static struct tt_json_value *read_history(const char *folder)
{
    char path[TEST_PATH_BYTES];
    struct tt_json json = {0};
    size_t index;
    const struct tt_json_value *row;
    assert_int_equal(tt_json_read(test_join(folder, "trainer_state.json", path), 1 << 24, &json), TT_OK);
    struct tt_json_value *history = tt_json_copy(tt_json_get(json.root, "log_history"));
    for (index = 0; (row = tt_json_at(history, index)) != NULL; index++) {
        static const char *const times[] = {
            "tokens_per_second",      "train_runtime", "train_samples_per_second",
            "train_steps_per_second", "eval_runtime",  "eval_samples_per_second",
            "eval_steps_per_second"};
        for (size_t i = 0; i < sizeof times / sizeof *times; i++)
            (void)tt_json_remove((struct tt_json_value *)(uintptr_t)row, times[i]);
    }
    tt_json_deinit(&json);
    return history;
}

static void expect_same_file(const char *a, const char *b, const char *name)
{
    char x[TEST_PATH_BYTES], y[TEST_PATH_BYTES];
    test_same_file(test_join(a, name, x), test_join(b, name, y));
}

static void expect_same_bits(const char *a, const char *b, const struct way *way, const char *const *state)
{
    char name[128];
    expect_same_file(a, b, way->weights);
    for (int step = 6; step <= STEPS; step += 3) {
        snprintf(name, sizeof name, "checkpoint-%d/%s", step, way->weights);
        expect_same_file(a, b, name);
        for (int i = 0; state[i] != NULL; i++) {
            snprintf(name, sizeof name, "checkpoint-%d/%s", step, state[i]);
            expect_same_file(a, b, name);
        }
    }
    struct tt_json_value *got = read_history(a), *wanted = read_history(b);
    if (!tt_json_equal(got, wanted)) fail_msg("%s and %s log other numbers", a, b);
    tt_json_release(got);
    tt_json_release(wanted);
}

static void expect_close(const char *a, const char *b, const struct way *way)
{
    char x[TEST_PATH_BYTES], y[TEST_PATH_BYTES], worst[256];
    double got[STEPS], wanted[STEPS];
    /* The order of additions differs from run to run of another number of ranks, and a bit of a gradient that
     * is rounded to bf16 is worth a few thousandths of an update of Adam's. */
    bool bf16 = strstr(way->more, "bf16 true") != NULL;
    int count = test_read_log(a, "loss", got, STEPS);
    assert_int_equal(count, test_read_log(b, "loss", wanted, STEPS));
    for (int i = 0; i < count; i++)
        if (!(fabs(got[i] - wanted[i]) <= (bf16 ? 2e-2 : 1e-4) * wanted[i]))
            fail_msg("row %d of %s: loss %.9g, not %.9g", i, a, got[i], wanted[i]);
    if (bf16 || strstr(way->more, "save_dtype") != NULL) return;
    double error = test_compare_weights(test_join(a, way->weights, x), test_join(b, way->weights, y), worst,
                                        sizeof worst);
    if (!(error < 1e-2)) fail_msg("'%s' differs by %g", worst, error);
}

static const char *const one_file[] = {"training_state.safetensors", NULL};
static const char *const two_files[] = {"training_state-00001-of-00002.safetensors",
                                        "training_state-00002-of-00002.safetensors", NULL};

static void same_ranks_same_bits(void **state)
{
    (void)state;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct test_workplace place;
        char whole[TEST_PATH_BYTES], part[TEST_PATH_BYTES];
        test_workplace_create(ways[w].family, &place);
        test_workplace_path(&place, "whole", whole);
        test_workplace_path(&place, "part", part);
        for (int ranks = 1; ranks <= 2; ranks++) {
            train(&place, &ways[w], ranks, "", whole);
            keep_first_checkpoint(whole, part);
            train(&place, &ways[w], ranks, "resume_from_checkpoint true", part);
            expect_same_bits(part, whole, &ways[w], one_file);
        }
        test_workplace_remove(&place);
    }
}

static void one_file_or_many(void **state)
{
    (void)state;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w += 3) {
        struct test_workplace place;
        char whole[TEST_PATH_BYTES], sharded[TEST_PATH_BYTES], part[TEST_PATH_BYTES];
        test_workplace_create(ways[w].family, &place);
        test_workplace_path(&place, "whole", whole);
        test_workplace_path(&place, "sharded", sharded);
        test_workplace_path(&place, "part", part);
        train(&place, &ways[w], 2, "", whole);
        train(&place, &ways[w], 2, "state_dict_type SHARDED_STATE_DICT", sharded);
        expect_same_file(sharded, whole, ways[w].weights);
        keep_first_checkpoint(sharded, part);
        train(&place, &ways[w], 2, "resume_from_checkpoint true", part);
        expect_same_bits(part, whole, &ways[w], one_file);
        keep_first_checkpoint(whole, part);
        train(&place, &ways[w], 2, "state_dict_type SHARDED_STATE_DICT resume_from_checkpoint true", part);
        expect_same_bits(part, sharded, &ways[w], two_files);
        test_workplace_remove(&place);
    }
}

static void any_ranks_same_curve(void **state)
{
    (void)state;
    static const struct {
        int before, after;
        const char *how_before, *how_after;
    } moves[] = {
        {1, 4, "", "sharding_strategy FULL_SHARD"},
        {4, 2, "sharding_strategy SHARD_GRAD_OP state_dict_type SHARDED_STATE_DICT", ""},
        {2, 1, "sharding_strategy NO_SHARD state_dict_type SHARDED_STATE_DICT", ""},
        {2, 4, "state_dict_type SHARDED_STATE_DICT", "state_dict_type SHARDED_STATE_DICT"},
        {4, 1, "", "gradient_accumulation_steps 2 per_device_train_batch_size 4"},
    };
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        if (strstr(ways[w].more, "packing") != NULL) continue;
        struct test_workplace place;
        char whole[TEST_PATH_BYTES], part[TEST_PATH_BYTES];
        test_workplace_create(ways[w].family, &place);
        test_workplace_path(&place, "whole", whole);
        test_workplace_path(&place, "part", part);
        for (size_t m = 0; m < sizeof moves / sizeof *moves; m++) {
            char more[256];
            train(&place, &ways[w], moves[m].before, moves[m].how_before, whole);
            keep_first_checkpoint(whole, part);
            snprintf(more, sizeof more, "resume_from_checkpoint true %s", moves[m].how_after);
            train(&place, &ways[w], moves[m].after, more, part);
            expect_close(part, whole, &ways[w]);
        }
        test_workplace_remove(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_ranks_same_bits),
        cmocka_unit_test(one_file_or_many),
        cmocka_unit_test(any_ranks_same_curve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
