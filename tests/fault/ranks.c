/* One of several ranks fails, as a process under mpirun: the others end with it within 30 s, there is one
 * message, and what was complete before stays. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/exit_codes.h"
#include "support/program.h"
#include "support/train_run.h"
#include "support/workplace.h"

enum { SKIPPED = 77, RANKS_MAX = 8 };
static const double patience_seconds = 60.0, end_seconds = 30.0;

struct run {
    struct test_workplace place;
    char output[TEST_PATH_BYTES];
    struct test_program program;
};

static void add_training(struct test_words *command, const struct run *run, const char *model,
                         const char *more)
{
    struct test_words words = {0};
    test_words_pair(&words, "model_name_or_path", model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(&words, "output_dir", run->output);
    test_words_add(&words, "threads 1 lora_r 2 logging_steps 1 report_to none per_device_train_batch_size 4");
    test_words_add(&words, more);
    test_words_command(command, test_trimtab(), "train", &words);
}

static void begin(struct run *run)
{
    test_workplace_create("llama2", &run->place);
    test_workplace_path(&run->place, "out", run->output);
}

/* What is wrong on one rank is wrong for all: one error, with the exit code of its kind. */
static void expect_one_error(struct run *run, int wanted, const char *says)
{
    double start = tt_clock_seconds();
    int code = test_program_wait(&run->program, patience_seconds);
    if (code != wanted || strstr(run->program.output, says) == NULL)
        fail_msg("exit %d, wanted %d and '%s': %s", code, wanted, says, run->program.output);
    if (test_count_text(run->program.output, "error:") != 1)
        fail_msg("not one error: %s", run->program.output);
    assert_true(tt_clock_seconds() - start < end_seconds);
}

/* Rank 1 alone sees a damaged model folder. */
static void damaged_folder_on_one_rank(void **state)
{
    (void)state;
    struct run run;
    struct test_words command = {0};
    char other[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    begin(&run);
    test_workplace_path(&run.place, "other", other);
    assert_int_equal(tt_dir_create(other), TT_OK);
    test_copy_file(test_join(run.place.model, "config.json", path),
                   test_workplace_path(&run.place, "other/config.json", other));
    test_workplace_write(&run.place, "other/model.safetensors", "too short", path);
    test_workplace_path(&run.place, "other", other);
    struct test_words whole = {0}, damaged = {0};
    char first[3000] = "exec", second[3000] = "exec";
    add_training(&whole, &run, run.place.model, "max_steps 4");
    add_training(&damaged, &run, other, "max_steps 4");
    test_words_shell(&whole, first, sizeof first);
    test_words_shell(&damaged, second, sizeof second);
    test_words_two_ranks(&command, first, second);
    test_program_start(command.list, NULL, &run.program);
    expect_one_error(&run, TT_EXIT_DATA, "other/model.safetensors");
    test_workplace_remove(&run.place);
}

/* What fails alike on all ranks is said once, before the first step and after. */
static void same_failure_on_all_ranks(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        int code;
        const char *says;
    } cases[] = {
        {"max_steps 4 lora_target_modules nothing_like_it", TT_EXIT_USAGE, "nothing_like_it"},
        {"max_steps 4 device_memory 1000", TT_EXIT_MEMORY, "the limit is"},
        {"max_steps 4 use_peft false learning_rate 1e19 max_grad_norm 0 lr_scheduler_type constant",
         TT_EXIT_DATA, "the loss of step 2 is"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run;
        struct test_words command = {0};
        begin(&run);
        test_words_add(&command, TEST_MPIRUN " -np 3");
        add_training(&command, &run, run.place.model, cases[i].more);
        test_program_start(command.list, NULL, &run.program);
        expect_one_error(&run, cases[i].code, cases[i].says);
        test_workplace_remove(&run.place);
    }
}

/* Rank 1's writes fail in a save, with EFBIG (27): a limit of its shell would stop MPI's shared memory too.
 */
static void full_disk_on_one_rank(void **state)
{
    (void)state;
    struct run run;
    struct test_words command = {0}, training = {0};
    char first[3000] = "exec", second[3000] = "TRIMTAB_FILE_FAULT='1 27 1' exec";
    begin(&run);
    add_training(&training, &run, run.place.model, "max_steps 4 save_steps 2");
    test_words_shell(&training, first, sizeof first);
    test_words_shell(&training, second, sizeof second);
    test_words_two_ranks(&command, first, second);
    test_program_start(command.list, NULL, &run.program);
    expect_one_error(&run, TT_EXIT_IO, "File too large");
    assert_int_equal(test_count_text(run.program.output, "rank 1 of 2"), 1);
    assert_int_equal(test_count_entries(run.output, "checkpoint-"), 0);
    assert_int_equal(test_count_entries(run.output, "adapter"), 0);
    test_nothing_unfinished(run.output);
    test_workplace_remove(&run.place);
}

/* The processes that mpirun has started, oldest first. */
static int find_children(pid_t parent, pid_t children[RANKS_MAX])
{
    char path[128], text[512] = "";
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    if (fgets(text, sizeof text, file) == NULL) text[0] = '\0';
    fclose(file);
    for (char *at = text, *end; count < RANKS_MAX; at = end) {
        long child = strtol(at, &end, 10);
        if (end == at) break;
        children[count++] = (pid_t)child;
    }
    return count;
}

/* Gone, or a zombie that nobody has waited for. */
static bool is_gone(pid_t process)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "r");
    if (file == NULL) return true;
    if (fgets(text, sizeof text, file) == NULL) text[0] = '\0';
    fclose(file);
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && name_end[1] == ' ' && name_end[2] == 'Z';
}

static void killed_rank(void **state)
{
    (void)state;
    for (int victim = 0; victim < 2; victim++) {
        struct run run;
        struct test_words command = {0};
        pid_t children[RANKS_MAX];
        double losses[8];
        char checkpoint[TEST_PATH_BYTES];
        begin(&run);
        test_words_add(&command, TEST_MPIRUN " -np 2");
        add_training(&command, &run, run.place.model,
                     "max_steps 100000000 save_steps 3 save_total_limit 100000");
        test_program_start(command.list, NULL, &run.program);
        if (!test_program_says(&run.program, "checkpoint-3: ", patience_seconds))
            fail_msg("%s", run.program.output);
        int count = find_children(run.program.pid, children);
        if (count < 2) {
            kill(run.program.pid, SIGKILL);
            (void)test_program_wait(&run.program, patience_seconds);
            test_workplace_remove(&run.place);
            skip(); /* this system does not list them */
        }
        assert_int_equal(kill(children[victim], SIGKILL), 0);
        double start = tt_clock_seconds();
        int code = test_program_wait(&run.program, patience_seconds);
        if (code <= 0 || tt_clock_seconds() - start > end_seconds)
            fail_msg("exit %d: %s", code, run.program.output);
        for (int i = 0; i < count; i++) {
            for (int wait = 0; wait < 100 && !is_gone(children[i]); wait++) usleep(50000);
            assert_true(is_gone(children[i]));
        }
        test_join(run.output, "checkpoint-3", checkpoint);
        assert_int_equal(test_read_log(checkpoint, "loss", losses, 8), 3);
        test_workplace_remove(&run.place);
    }
}

/* mpirun passes SIGUSR1 on: all ranks finish the same step. A signal to one rank alone stops all, too. */
static void asked_to_stop(void **state)
{
    (void)state;
    for (int whom = 0; whom < 2; whom++) {
        struct run run;
        struct test_words command = {0};
        pid_t children[RANKS_MAX];
        char checkpoint[TEST_PATH_BYTES], name[64];
        begin(&run);
        test_words_add(&command, TEST_MPIRUN " -np 2");
        add_training(&command, &run, run.place.model, "max_steps 100000000 save_strategy no");
        test_program_start(command.list, NULL, &run.program);
        if (!test_program_says(&run.program, "step 3/", patience_seconds)) fail_msg("%s", run.program.output);
        int count = find_children(run.program.pid, children);
        pid_t target = whom == 1 && count >= 2 ? children[1] : run.program.pid;
        assert_int_equal(kill(target, SIGUSR1), 0);
        int code = test_program_wait(&run.program, patience_seconds);
        const char *said = strstr(run.program.output, "stopped on request after step ");
        if (code != TT_EXIT_STOPPED || said == NULL) fail_msg("exit %d: %s", code, run.program.output);
        assert_int_equal(test_count_text(run.program.output, "error:"), 1);
        snprintf(name, sizeof name, "checkpoint-%d", atoi(said + strlen("stopped on request after step ")));
        assert_true(tt_path_is_dir(test_join(run.output, name, checkpoint)));
        test_nothing_unfinished(run.output);
        test_workplace_remove(&run.place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_folder_on_one_rank),
        cmocka_unit_test(same_failure_on_all_ranks),
        cmocka_unit_test(full_disk_on_one_rank),
        cmocka_unit_test(killed_rank),
        cmocka_unit_test(asked_to_stop),
    };
    const char *missing = test_mpi_is_missing();
    if (missing != NULL) {
        printf("skipped: %s\n", missing);
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
