/* More ranks than the machine has processors for: one warning, and one SIGTERM ends them, also while they
 * start. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/thread.h"
#include "support/program.h"
#include "support/train_run.h"
#include "support/workplace.h"

enum { RANKS_PER_PROCESSOR = 4, SECONDS_MAX = 120 };

static int run(const struct test_workplace *place, int ranks, const char *steps, bool stop,
               struct test_program *program)
{
    char output[TEST_PATH_BYTES], count[40];
    struct test_words words = {0}, command = {0};
    test_words_pair(&words, "model_name_or_path", place->model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(&words, "output_dir", test_workplace_path(place, "out", output));
    snprintf(count, sizeof count, "ranks %d", ranks);
    test_words_add(&words, count);
    test_words_add(&words, "device cpu threads 1 save_strategy no overwrite_output_dir true");
    test_words_add(&words, steps);
    test_words_command(&command, test_trimtab(), "train", &words);
    test_program_start(command.list, NULL, program);
    if (stop) {
        assert_true(
            test_program_says(program, "trainable params", SECONDS_MAX)); /* the ranks start after it */
        assert_int_equal(kill(program->pid, SIGTERM), 0);
    }
    return test_program_wait(program, SECONDS_MAX);
}

static void ended_by_one_signal(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_program program;
    test_workplace_create("llama2", &place);
    int code = run(&place, 400, "max_steps 100000", true, &program);
    if (code != 11) fail_msg("%d: %s", code, program.output);
    assert_int_equal(test_count_text(program.output, "more than 4 per processor"),
                     400 > RANKS_PER_PROCESSOR * tt_cpu_count());
    assert_int_equal(test_count_text(program.output, "error: stopped on request"), 1);
    test_workplace_remove(&place);
}

static void a_warning_beyond_four(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_program program;
    int most = RANKS_PER_PROCESSOR * tt_cpu_count();
    if (most > 64) skip(); /* the run itself would be large */
    test_workplace_create("llama2", &place);
    assert_int_equal(run(&place, most, "max_steps 1", false, &program), 0);
    assert_int_equal(test_count_text(program.output, "more than 4 per processor"), 0);
    assert_int_equal(run(&place, most + 1, "max_steps 1", false, &program), 0);
    assert_int_equal(test_count_text(program.output, "more than 4 per processor"), 1);
    test_workplace_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ended_by_one_signal),
        cmocka_unit_test(a_warning_beyond_four),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
