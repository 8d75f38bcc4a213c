/* Runs over processes that find each other by address do what ranks as threads of one process do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "support/processes.h"
#include "support/workplace.h"

static void set_words(const struct test_workplace *place, const char *output, const char *more,
                      struct test_words *words)
{
    *words = (struct test_words){0};
    test_words_pair(words, "model_name_or_path", place->model);
    test_words_pair(words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(words, "eval_dataset", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(words, "output_dir", output);
    test_words_add(words,
                   "threads 1 max_steps 6 save_steps 3 eval_strategy steps eval_steps 3 logging_steps 1 "
                   "learning_rate 0.01 load_best_model_at_end true");
    test_words_add(words, more);
}

static void run_threads(const struct test_workplace *place, const char *output, const char *more)
{
    struct test_words words, command = {0};
    struct test_program program;
    set_words(place, output, more, &words);
    test_words_add(&words, "device cpu");
    test_words_command(&command, test_trimtab(), "train", &words);
    if (test_program_run(command.list, NULL, &program) != 0) fail_msg("%s", program.output);
}

static void compare_logs(const char *a, const char *b, double tolerance)
{
    double got[8], wanted[8];
    assert_int_equal(test_read_log(a, "loss", got, 8), 6);
    assert_int_equal(test_read_log(b, "loss", wanted, 8), 6);
    for (int i = 0; i < 6; i++)
        assert_true(got[i] - wanted[i] <= tolerance && wanted[i] - got[i] <= tolerance);
    assert_int_equal(test_read_log(a, "eval_loss", got, 8), 2);
    assert_int_equal(test_read_log(b, "eval_loss", wanted, 8), 2);
    for (int i = 0; i < 2; i++)
        assert_true(got[i] - wanted[i] <= tolerance && wanted[i] - got[i] <= tolerance);
    test_nothing_unfinished(a);
}

static void expect_same(const char *a, const char *b, const char *weights)
{
    char x[TEST_PATH_BYTES], y[TEST_PATH_BYTES], name[128];
    test_same_file(test_join(a, weights, x), test_join(b, weights, y));
    snprintf(name, sizeof name, "checkpoint-3/%s", weights);
    test_same_file(test_join(a, name, x), test_join(b, name, y));
    compare_logs(a, b, 0);
}

/* The log of another rank than 0: who it is and whom it met, and how it ended. */
static void expect_two_lines(const char *output, int rank, int count)
{
    char first[80], second[80];
    snprintf(first, sizeof first, "rank %d of %d: process ", rank, count);
    snprintf(second, sizeof second, "\nrank %d of %d: training is complete, 6 steps\n", rank, count);
    if (strncmp(output, first, strlen(first)) != 0 || strstr(output, "; met rank 0, process ") == NULL ||
        strstr(output, second) == NULL || test_count_text(output, "\n") != 2)
        fail_msg("rank %d: %s", rank, output);
}

static void compare(int count, const char *more, const char *weights)
{
    struct test_workplace place;
    struct test_processes processes;
    struct test_words words;
    char a[TEST_PATH_BYTES], b[TEST_PATH_BYTES], with_ranks[512];
    test_workplace_create("llama2", &place);
    test_workplace_path(&place, "processes", a);
    test_workplace_path(&place, "threads", b);
    set_words(&place, a, more, &words);
    test_processes_start(&processes, count, NULL, &words, NULL);
    test_processes_expect_ok(&processes);
    assert_int_equal(test_count_text(processes.programs[0].output, "\ndone: 6 steps"), 1);
    for (int q = 1; q < count; q++) expect_two_lines(processes.programs[q].output, q, count);
    snprintf(with_ranks, sizeof with_ranks, "%s ranks %d", more, count);
    run_threads(&place, b, with_ranks);
    expect_same(a, b, weights);
    test_workplace_remove(&place);
}

static void lora_on_two(void **state)
{
    (void)state;
    compare(2, "per_device_train_batch_size 4 sharding_strategy FULL_SHARD bf16 true",
            "adapter_model.safetensors");
}

static void full_fine_tuning_on_three(void **state)
{
    (void)state;
    compare(3, "per_device_train_batch_size 4 use_peft false sharding_strategy SHARD_GRAD_OP bf16 false",
            "model.safetensors");
}

/* One process per machine, two ranks in each. */
static void machines(void **state)
{
    (void)state;
    static const char more[] = "per_device_train_batch_size 2 sharding_strategy FULL_SHARD bf16 false";
    struct test_workplace place;
    struct test_processes processes;
    struct test_words words;
    char a[TEST_PATH_BYTES], b[TEST_PATH_BYTES], with_ranks[512];
    test_workplace_create("llama2", &place);
    test_workplace_path(&place, "machines", a);
    test_workplace_path(&place, "threads", b);
    set_words(&place, a, more, &words);
    test_machines_start(&processes, 2, 2, &words);
    test_processes_expect_ok(&processes);
    snprintf(with_ranks, sizeof with_ranks, "%s ranks 4", more);
    run_threads(&place, b, with_ranks);
    expect_same(a, b, "adapter_model.safetensors");
    test_workplace_remove(&place);
}

/* HYBRID_SHARD on two machines of two ranks, whose ranks need not follow each other, against FULL_SHARD: only
 * the order of additions differs. */
static void hybrid(const char *layout, const char *more, const char *weights)
{
    struct test_workplace place;
    struct test_processes processes;
    struct test_words words;
    char a[TEST_PATH_BYTES], b[TEST_PATH_BYTES], x[TEST_PATH_BYTES], y[TEST_PATH_BYTES], worst[128], all[512];
    test_workplace_create("llama2", &place);
    test_workplace_path(&place, "hybrid", a);
    test_workplace_path(&place, "full", b);
    snprintf(all, sizeof all, "%s per_device_train_batch_size 2 bf16 false sharding_strategy HYBRID_SHARD",
             more);
    set_words(&place, a, all, &words);
    test_processes_start(&processes, (int)strlen(layout), layout, &words, NULL);
    test_processes_expect_ok(&processes);
    assert_non_null(strstr(processes.programs[0].output, "HYBRID_SHARD"));
    snprintf(all, sizeof all, "%s per_device_train_batch_size 2 bf16 false ranks %zu", more, strlen(layout));
    run_threads(&place, b, all);
    compare_logs(a, b, 1e-4);
    test_join(a, weights, x);
    test_join(b, weights, y);
    assert_true(test_compare_weights(x, y, worst, sizeof worst) < 1e-3);
    test_workplace_remove(&place);
}

static void hybrid_sharding(void **state)
{
    (void)state;
    hybrid("aabb", "use_peft true", "adapter_model.safetensors");
    hybrid("abab", "use_peft false", "model.safetensors");
    hybrid("ab", "use_peft true", "adapter_model.safetensors");
}

/* One process was started with another command line, or computes in another way. */
static void settings_that_differ(void **state)
{
    static const char *const cases[][2] = {
        {"lora_r 4", "the settings of rank 1 differ: 'lora_r: 4', where rank 0 has 'lora_r: 16'"},
        {"cpu_isa portable",
         "the settings of rank 1 differ: 'cpu_isa: portable', where rank 0 has 'cpu_isa: auto'"},
    };
    (void)state;
    struct test_workplace place;
    struct test_processes processes;
    struct test_words words;
    char a[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    set_words(&place, test_workplace_path(&place, "out", a), "seed 1", &words);
    assert_int_equal(setenv("TRIMTAB_JOB_SECRET", "the secret of these processes", 1), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_processes_start(&processes, 2, NULL, &words, cases[i][0]);
        for (int q = 0; q < 2; q++) assert_int_equal(test_program_wait(&processes.programs[q], 60), 2);
        assert_non_null(strstr(processes.programs[1].output, cases[i][1]));
        assert_int_equal(test_count_text(processes.programs[0].output, "error:"), 0); /* one message */
    }
    test_workplace_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lora_on_two),
        cmocka_unit_test(full_fine_tuning_on_three),
        cmocka_unit_test(machines),
        cmocka_unit_test(hybrid_sharding),
        cmocka_unit_test(settings_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
