/* Somebody removes output_dir while a run saves into it: whatever fails first, the run ends with the exit code of I/O
 * and names the cause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/exit_codes.h"
#include "support/program.h"
#include "support/train_run.h"
#include "support/workplace.h"

static const double patience_seconds = 100.0;

static void start(const struct test_workplace *place, struct test_program *program)
{
    struct test_words words = {0}, command = {0};
    char output[TEST_PATH_BYTES];
    test_words_pair(&words, "model_name_or_path", place->model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(&words, "output_dir", test_workplace_path(place, "out", output));
    test_words_add(&words, "device cpu threads 1 lora_r 2 report_to none max_steps 1000000 save_steps 1 "
                           "save_total_limit 2");
    test_words_command(&command, test_trimtab(), "train", &words);
    test_program_start(command.list, NULL, program);
}

static void removed_in_a_save(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        struct test_workplace place;
        struct test_program run;
        char output[TEST_PATH_BYTES];
        test_workplace_create("llama2", &place);
        test_workplace_path(&place, "out", output);
        start(&place, &run);
        if (!test_program_says(&run, "checkpoint-3", patience_seconds)) fail_msg("%s", run.output);
        double begun = tt_clock_seconds();
        /* Between two saves it is made anew, so that one removal may go unnoticed. */
        while (!test_program_says(&run, "error:", 0.01) && tt_clock_seconds() - begun < patience_seconds)
            (void)!tt_dir_remove(output);
        int code = test_program_wait(&run, patience_seconds);
        if (code != TT_EXIT_IO || strstr(run.output, "was removed while it was written") == NULL ||
            test_count_text(run.output, "error:") != 1)
            fail_msg("exit %d: %s", code, run.output);
        test_workplace_remove(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(removed_in_a_save)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
