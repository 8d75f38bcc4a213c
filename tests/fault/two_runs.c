/* Two runs that are to write the same place: the second is refused at once and says who is there, the first
 * does not notice, and what a killed run left is no obstacle. For training and for the commands that write a
 * folder or file as a whole. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "cli/exit_codes.h"
#include "io/output_folder.h"
#include "support/program.h"
#include "support/train_run.h"
#include "support/workplace.h"

static const double patience_seconds = 100.0;

static void start(const struct test_workplace *place, const char *more, struct test_program *program)
{
    struct test_words words = {0}, command = {0};
    char output[TEST_PATH_BYTES];
    test_words_pair(&words, "model_name_or_path", place->model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(&words, "output_dir", test_workplace_path(place, "out", output));
    test_words_add(&words, "device cpu threads 1 lora_r 2 logging_steps 1 report_to none save_total_limit 2");
    test_words_add(&words, more);
    test_words_command(&command, test_trimtab(), "train", &words);
    test_program_start(command.list, NULL, program);
}

static void expect_refused(const struct test_workplace *place, const char *more, pid_t holder)
{
    struct test_program second;
    char who[64];
    start(place, more, &second);
    int code = test_program_wait(&second, patience_seconds);
    snprintf(who, sizeof who, "is in use by another run: process %ld on host", (long)holder);
    if (code != TT_EXIT_USAGE || strstr(second.output, who) == NULL)
        fail_msg("exit %d, wanted '%s': %s", code, who, second.output);
}

static void second_training_is_refused(void **state)
{
    (void)state;
    static const char *const seconds[] = {"max_steps 3 overwrite_output_dir true",
                                          "max_steps 3 save_steps 1 ranks 2 resume_from_checkpoint true",
                                          "max_steps 3 save_strategy no"};
    struct test_workplace place;
    struct test_program first;
    char output[TEST_PATH_BYTES], lock[TEST_PATH_BYTES];
    double losses[8];
    test_workplace_create("llama2", &place);
    test_workplace_path(&place, "out", output);
    start(&place, "max_steps 1000000 save_steps 3 ranks 2", &first);
    if (!test_program_says(&first, "step 3/", patience_seconds)) fail_msg("%s", first.output);
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
        expect_refused(&place, seconds[i], first.pid);
    assert_int_equal(kill(first.pid, SIGTERM), 0);
    int code = test_program_wait(&first, patience_seconds);
    if (code != TT_EXIT_STOPPED || test_count_text(first.output, "error:") != 1)
        fail_msg("exit %d: %s", code, first.output);
    assert_int_equal(test_count_entries(output, "adapter_model"), 1);
    assert_int_equal(test_read_log(output, "loss", losses, 3), 3);
    test_nothing_unfinished(output);
    assert_false(tt_path_exists(test_join(output, TT_OUTPUT_LOCK_NAME, lock)));
    test_workplace_remove(&place);
}

static void killed_training_holds_nothing(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_program run;
    char output[TEST_PATH_BYTES], lock[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    test_join(test_workplace_path(&place, "out", output), TT_OUTPUT_LOCK_NAME, lock);
    start(&place, "max_steps 1000000 save_steps 3", &run);
    if (!test_program_says(&run, "step 4/", patience_seconds)) fail_msg("%s", run.output);
    assert_int_equal(kill(run.pid, SIGKILL), 0);
    assert_int_equal(test_program_wait(&run, patience_seconds), 128 + SIGKILL);
    assert_true(tt_path_exists(lock));
    start(&place, "max_steps 3 overwrite_output_dir true", &run);
    int code = test_program_wait(&run, patience_seconds);
    if (code != TT_EXIT_DONE) fail_msg("exit %d: %s", code, run.output);
    assert_false(tt_path_exists(lock));
    test_workplace_remove(&place);
}

/* The folder goes while the run trains: what is saved later is saved, under a new lock. */
static void removed_folder_is_written_anew(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_program run;
    char output[TEST_PATH_BYTES], weights[TEST_PATH_BYTES], aside[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    test_workplace_path(&place, "out", output);
    start(&place, "max_steps 1000000 save_strategy no ranks 2", &run);
    if (!test_program_says(&run, "step 3/", patience_seconds)) fail_msg("%s", run.output);
    assert_int_equal(rename(output, test_workplace_path(&place, "aside", aside)), 0);
    assert_int_equal(kill(run.pid, SIGTERM), 0);
    int code = test_program_wait(&run, patience_seconds);
    if (code != TT_EXIT_STOPPED) fail_msg("exit %d: %s", code, run.output);
    assert_true(tt_path_exists(test_join(output, "adapter_model.safetensors", weights)));
    test_workplace_remove(&place);
}

/* A run that cannot begin leaves no folder, and takes none away that was there. */
static void failed_start_leaves_nothing(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_words words = {0};
    struct tt_train_summary summary;
    char output[TEST_PATH_BYTES], parent[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    test_workplace_path(&place, "a/b", parent);
    test_words_pair(&words, "model_name_or_path", "/no/such/model");
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    assert_int_not_equal(test_train(words.list, test_join(parent, "out", output), &summary), TT_OK);
    assert_false(tt_path_exists(test_workplace_path(&place, "a", parent)));
    test_workplace_path(&place, "there", parent);
    assert_int_equal(tt_dir_create(parent), TT_OK);
    assert_int_not_equal(test_train(words.list, test_join(parent, "out/", output), &summary), TT_OK);
    assert_int_equal(test_count_entries(parent, ""), 0);
    assert_int_not_equal(test_train(words.list, parent, &summary), TT_OK);
    assert_true(tt_path_is_dir(parent));
    test_workplace_remove(&place);
}

/* While the test itself holds the place, as another run would. */
static void commands_are_refused(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_program program;
    struct tt_output_folder folder = {0};
    struct tt_lock *lock = NULL;
    char output[TEST_PATH_BYTES], file[TEST_PATH_BYTES], inside[TEST_PATH_BYTES], kept[TEST_PATH_BYTES];
    test_workplace_create("qwen2", &place);
    test_workplace_path(&place, "out", output);
    const char *quantize[] = {test_trimtab(), "quantize", "--model_name_or_path",   place.model,
                              "--output_dir", output,     "--overwrite_output_dir", NULL};
    test_workplace_path(&place, "m.gguf", file);
    const char *export[] = {test_trimtab(), "export",        "gguf", "--model_name_or_path",
                            place.model,    "--output_file", file,   NULL};
    assert_int_equal(tt_output_folder_open(output, ".quantizing", false, &folder), TT_OK);
    test_join(tt_str_text(&folder.temporary), "half", kept);
    assert_int_equal(tt_file_write_atomic(kept, "x", 1), TT_OK);
    assert_int_equal(tt_output_lock(file, "test", &lock), TT_OK);
    assert_int_equal(test_program_run(quantize, NULL, &program), TT_EXIT_USAGE);
    assert_non_null(strstr(program.output, "is in use by another run"));
    assert_true(tt_path_exists(kept)); /* the first command's half */
    assert_int_equal(test_program_run(export, NULL, &program), TT_EXIT_USAGE);
    assert_non_null(strstr(program.output, "is in use by another run"));
    tt_output_folder_close(&folder);
    tt_lock_release(lock);
    /* A training run in the folder that is to be replaced. */
    assert_int_equal(tt_dir_create(output), TT_OK);
    test_join(output, TT_OUTPUT_LOCK_NAME, inside);
    assert_int_equal(tt_lock_take(inside, "test", &lock), TT_OK);
    assert_int_equal(test_program_run(quantize, NULL, &program), TT_EXIT_USAGE);
    assert_non_null(strstr(program.output, "is in use by another run"));
    tt_lock_release(lock);
    if (test_program_run(quantize, NULL, &program) != 0) fail_msg("%s", program.output);
    if (test_program_run(export, NULL, &program) != 0) fail_msg("%s", program.output);
    assert_true(tt_path_exists(file));
    assert_int_equal(test_count_entries(place.folder, ".out"), 0);
    assert_int_equal(test_count_entries(place.folder, ".m.gguf"), 0);
    assert_int_equal(test_count_entries(output, TT_OUTPUT_LOCK_NAME), 0);
    test_workplace_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_training_is_refused),     cmocka_unit_test(killed_training_holds_nothing),
        cmocka_unit_test(removed_folder_is_written_anew), cmocka_unit_test(failed_start_leaves_nothing),
        cmocka_unit_test(commands_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
