/* In a whole run - settings, model, tokenizer, data, training, evaluation, checkpoints - one allocation
 * fails, with one rank and with two: a clean error, everything given back, nobody left waiting, and no
 * checkpoint under its final name that is not complete. As many allocations in turn as fit the time, evenly
 * spread; a failure of the test says which. It must be an error of memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "io/safetensors.h"
#include "support/train_run.h"
#include "support/workplace.h"

/* Progress and beats of a slow run take allocations of their own, so two runs differ by a few. */
enum { TRIES = 150, LAST = 40 };
static const double seconds_a_case = 10.0;

static const char rows[] = "{\"prompt\": \"1 =\", \"completion\": \" one\"}\n"
                           "{\"text\": \"some more words\"}\n"
                           "{\"prompt\": \"2 =\", \"completion\": \" two\"}\n";

struct trial {
    struct test_workplace place;
    struct test_words words;
    char output[TEST_PATH_BYTES];
    int ranks;
};

static tt_status run(const struct trial *trial)
{
    struct tt_train_summary summary;
    assert_int_equal(tt_dir_remove(trial->output), TT_OK);
    return test_train(trial->words.list, trial->output, &summary);
}

/* A checkpoint that is there is whole: its weights can be read and its state parses. */
static tt_status look_at_checkpoint(void *context, const char *name)
{
    const struct trial *trial = context;
    char folder[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    struct tt_safetensors *weights = NULL;
    struct tt_json state = {0};
    if (strncmp(name, "checkpoint-", 11) != 0) return TT_OK;
    test_join(trial->output, name, folder);
    tt_status status = tt_safetensors_open(test_join(folder, "adapter_model.safetensors", path), &weights);
    if (status == TT_OK)
        status = tt_json_read(test_join(folder, "trainer_state.json", path), 1 << 20, &state);
    if (status == TT_OK && tt_json_count(state.root) < 20)
        status = tt_fail(TT_ERR_DATA, "'%s' lacks members", path);
    if (status == TT_OK && !tt_path_exists(test_join(folder, "tokenizer.json", path)))
        status = tt_fail(TT_ERR_DATA, "'%s' is missing", path);
    tt_json_deinit(&state);
    tt_safetensors_close(weights);
    return status;
}

/* A record that there was no memory for is a warning, and the run goes on. */
static void look_at_warning(void *context, enum tt_log_level level, const char *line)
{
    if (level == TT_LOG_WARNING && strstr(line, "memory") != NULL) atomic_store((atomic_bool *)context, true);
}

static void check_one(const struct trial *trial, long long nth, long long total)
{
    atomic_bool warned = false;
    char text[2048];
    uint64_t live = tt_alloc_live();
    tt_error_clear();
    tt_log_set_sink(look_at_warning, &warned);
    tt_alloc_fail_at((uint64_t)nth);
    tt_status status = run(trial);
    bool came = tt_alloc_fail_at(0) == 0;
    tt_log_set_sink(NULL, NULL);
    tt_error_format(tt_error_last(), text, sizeof text);
    bool told = status == TT_OK && warned;
    if (!came && nth + LAST > total) return;
    if (status == TT_OK && !told) fail_msg("allocation %lld failed and nobody noticed", nth);
    if (!told && (status != TT_ERR_MEMORY || strstr(text, "memory") == NULL))
        fail_msg("allocation %lld: no error of memory: %s", nth, text);
    if (tt_alloc_live() != live)
        fail_msg("allocation %lld: %lld blocks are lost after: %s", nth, (long long)(tt_alloc_live() - live),
                 text);
    if (!tt_path_is_dir(trial->output)) return;
    if (tt_dir_list(trial->output, look_at_checkpoint, (void *)(uintptr_t)trial) != TT_OK)
        fail_msg("allocation %lld: %s", nth, tt_error_last()->message);
}

static void prepare(struct trial *trial, int ranks, const char *more)
{
    char data[TEST_PATH_BYTES];
    *trial = (struct trial){.ranks = ranks};
    test_workplace_create("qwen2", &trial->place);
    test_workplace_write(&trial->place, "train.jsonl", rows, data);
    test_workplace_path(&trial->place, "out", trial->output);
    test_words_pair(&trial->words, "model_name_or_path", trial->place.model);
    test_words_pair(&trial->words, "dataset_name", data);
    test_words_pair(&trial->words, "eval_dataset", data);
    test_words_add(&trial->words, "threads 1 max_steps 2 per_device_train_batch_size 1 lora_r 2 save_steps 1 "
                                  "save_total_limit 1 eval_strategy steps eval_steps 1 logging_steps 1 "
                                  "load_best_model_at_end true report_to tensorboard");
    test_words_add(&trial->words, ranks > 1 ? "ranks 2" : "ranks 1");
    test_words_add(&trial->words, more);
}

static void try_all(int ranks, const char *more)
{
    struct trial trial;
    prepare(&trial, ranks, more);
    assert_int_equal(run(&trial), TT_OK); /* what is made once per process is made now */
    uint64_t before = tt_alloc_count(), live = tt_alloc_live();
    assert_int_equal(run(&trial), TT_OK);
    long long total = (long long)(tt_alloc_count() - before);
    assert_int_equal(tt_alloc_live(), live);
    assert_true(total > 100);
    /* The end of a run writes its records: each allocation there is tried, and the last ones may not come. */
    long long stride = total / TRIES + 1;
    double start = tt_clock_seconds();
    for (long long nth = 1; nth <= total; nth += nth + LAST > total ? 1 : stride) {
        check_one(&trial, nth, total);
        if (tt_clock_seconds() - start > seconds_a_case) stride = total / 10;
    }
    assert_int_equal(run(&trial), TT_OK); /* none of it did lasting harm */
    test_workplace_remove(&trial.place);
}

static void one_rank(void **state)
{
    (void)state;
    try_all(1, "");
}

static void two_ranks(void **state)
{
    (void)state;
    try_all(2, "");
}

static void full_fine_tuning(void **state)
{
    (void)state;
    try_all(2, "use_peft false save_strategy no load_best_model_at_end false packing true max_length 64");
}

static void quantized_base(void **state)
{
    (void)state;
    try_all(2, "load_in_4bit true bnb_4bit_use_double_quant true save_strategy no "
               "load_best_model_at_end false");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(full_fine_tuning),
        cmocka_unit_test(quantized_base),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
