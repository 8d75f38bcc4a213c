/* Ranks as processes under mpirun and ranks as threads of one process do the same, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "support/program.h"
#include "support/train_run.h"
#include "support/workplace.h"

enum { SKIPPED = 77 };

static void run(const struct test_workplace *place, const char *output, const char *const *launcher,
                const char *more)
{
    struct test_words words = {0}, command = {0};
    struct test_program program;
    test_words_pair(&words, "model_name_or_path", place->model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(&words, "eval_dataset", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(&words, "output_dir", output);
    test_words_add(&words,
                   "threads 1 max_steps 6 per_device_train_batch_size 4 save_steps 3 eval_strategy steps "
                   "eval_steps 3 logging_steps 1 learning_rate 0.01 load_best_model_at_end true");
    test_words_add(&words, more);
    for (; *launcher != NULL; launcher++) test_words_add(&command, *launcher);
    test_words_command(&command, test_trimtab(), "train", &words);
    if (test_program_run(command.list, NULL, &program) != 0) fail_msg("%s", program.output);
    assert_int_equal(test_count_text(program.output, "\ndone: 6 steps"), 1); /* one rank speaks */
}

static void compare(const char *launcher, const char *threads, const char *more, const char *weights)
{
    struct test_workplace place;
    char a[TEST_PATH_BYTES], b[TEST_PATH_BYTES], x[TEST_PATH_BYTES], y[TEST_PATH_BYTES], name[128];
    const char *none[] = {NULL}, *mpirun[] = {launcher, NULL};
    double got[8], wanted[8];
    test_workplace_create("llama2", &place);
    test_workplace_path(&place, "processes", a);
    test_workplace_path(&place, "threads", b);
    char with_ranks[512];
    snprintf(with_ranks, sizeof with_ranks, "%s %s", more, threads);
    run(&place, a, mpirun, more);
    run(&place, b, none, with_ranks);
    test_same_file(test_join(a, weights, x), test_join(b, weights, y));
    snprintf(name, sizeof name, "checkpoint-3/%s", weights);
    test_same_file(test_join(a, name, x), test_join(b, name, y));
    assert_int_equal(test_read_log(a, "loss", got, 8), 6);
    assert_int_equal(test_read_log(b, "loss", wanted, 8), 6);
    for (int i = 0; i < 6; i++) assert_true(got[i] == wanted[i]);
    assert_int_equal(test_read_log(a, "eval_loss", got, 8), 2);
    assert_int_equal(test_read_log(b, "eval_loss", wanted, 8), 2);
    assert_true(got[0] == wanted[0] && got[1] == wanted[1]);
    test_nothing_unfinished(a);
    test_workplace_remove(&place);
}

static const char two[] = TEST_MPIRUN " -np 2";
static const char three[] = TEST_MPIRUN " -np 3";

static void lora_full_shard(void **state)
{
    (void)state;
    compare(two, "ranks 2", "sharding_strategy FULL_SHARD bf16 true", "adapter_model.safetensors");
}

static void lora_no_shard(void **state)
{
    (void)state;
    compare(two, "ranks 2", "sharding_strategy NO_SHARD bf16 false", "adapter_model.safetensors");
}

static void full_fine_tuning_on_three(void **state)
{
    (void)state;
    compare(three, "ranks 3", "use_peft false sharding_strategy SHARD_GRAD_OP bf16 false",
            "model.safetensors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lora_full_shard),
        cmocka_unit_test(lora_no_shard),
        cmocka_unit_test(full_fine_tuning_on_three),
    };
    const char *missing = test_mpi_is_missing();
    if (missing != NULL) {
        printf("skipped: %s\n", missing);
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
