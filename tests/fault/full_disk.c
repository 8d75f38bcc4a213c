/* A disk that fills up, at the start, in the middle of a save, and at the end: one error that names the file,
 * the older checkpoint untouched to the byte, nothing under a final name that is not complete, nothing
 * unfinished left behind. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/exit_codes.h"
#include "support/program.h"
#include "support/train_run.h"
#include "support/workplace.h"

#define ROWS TT_TEST_ROOT "/golden/llama2/train.jsonl"

/* Files may not grow past `bytes` from now on; 0: as far as they like. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes > 0 ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The disk is full from the `after`th save on; of what was saved by then a file is kept aside. */
struct watch {
    const struct test_workplace *place;
    int saves, after;
    rlim_t bytes;
    const char *filled; /* a file system that is filled up instead */
    int64_t lift_at;    /* the step after which there is room again; 0: never */
};

static void lift_limit(void *context, const struct tt_progress *progress)
{
    const struct watch *watch = context;
    if (progress->step == watch->lift_at) limit_files(0);
}

static void fill(const char *folder)
{
    char path[TEST_PATH_BYTES], block[4096] = {1};
    FILE *file = fopen(test_join(folder, "filler", path), "w");
    assert_non_null(file);
    setvbuf(file, NULL, _IONBF, 0);
    while (fwrite(block, 1, sizeof block, file) == sizeof block) continue;
    fclose(file);
}

static void on_save(void *context, const char *folder, double seconds)
{
    struct watch *watch = context;
    char from[TEST_PATH_BYTES], to[TEST_PATH_BYTES];
    (void)seconds;
    if (++watch->saves != watch->after) return;
    test_join(folder, "trainer_state.json", from);
    test_copy_file(from, test_workplace_path(watch->place, "kept.json", to));
    if (watch->filled != NULL)
        fill(watch->filled);
    else
        limit_files(watch->bytes);
}

static tt_status train_until_full(struct watch *watch, const char *more, char output[TEST_PATH_BYTES])
{
    struct test_words words = {0};
    struct tt_train_summary summary;
    const struct tt_train_observer observer = {.context = watch, .on_save = on_save};
    test_words_pair(&words, "model_name_or_path", watch->place->model);
    test_words_pair(&words, "dataset_name", ROWS);
    test_words_add(&words, "threads 1 ranks 2 max_steps 6 save_steps 2 lora_r 4 logging_strategy no");
    test_words_add(&words, more);
    test_workplace_path(watch->place, "out", output);
    uint64_t live = tt_alloc_live();
    tt_status status = test_train_watched(words.list, output, &observer, NULL, &summary);
    limit_files(0);
    assert_int_equal(tt_alloc_live(), live);
    return status;
}

static void assert_says(const char *words)
{
    char text[4096];
    tt_error_format(tt_error_last(), text, sizeof text);
    if (strstr(text, words) == NULL) fail_msg("wanted '%s' in: %s", words, text);
}

static void assert_checkpoint_untouched(const struct test_workplace *place, const char *name)
{
    char kept[TEST_PATH_BYTES], file[TEST_PATH_BYTES], inside[128];
    snprintf(inside, sizeof inside, "out/%s/trainer_state.json", name);
    test_same_file(test_workplace_path(place, inside, file), test_workplace_path(place, "kept.json", kept));
}

static void second_save_fails(void **state)
{
    (void)state;
    struct test_workplace place;
    struct watch watch = {.place = &place, .after = 1, .bytes = 4096};
    char output[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    assert_int_equal(train_until_full(&watch, "", output), TT_ERR_IO);
    assert_says("File too large");
    assert_says("checkpoint-4");
    assert_says("saving to");
    assert_says("--resume_from_checkpoint true goes on");
    assert_checkpoint_untouched(&place, "checkpoint-2");
    assert_int_equal(test_count_entries(output, "checkpoint-"), 1);
    assert_int_equal(test_count_entries(output, "adapter"), 0);
    test_nothing_unfinished(output);
    test_workplace_remove(&place);
}

/* A run that overwrites an earlier one: as long as its first checkpoint is not whole, all of the earlier ones stay. */
static void earlier_checkpoint_stays(void **state)
{
    (void)state;
    struct test_workplace place;
    struct watch all = {.place = &place};
    char output[TEST_PATH_BYTES], from[TEST_PATH_BYTES], to[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    assert_int_equal(train_until_full(&all, "", output), TT_OK);
    test_copy_file(test_join(output, "checkpoint-4/adapter_model.safetensors", from),
                   test_workplace_path(&place, "earlier.safetensors", to));
    limit_files(4096);
    assert_int_equal(train_until_full(&all, "seed 7 save_steps 4", output), TT_ERR_IO);
    test_same_file(from, to);
    assert_int_equal(test_count_entries(output, "checkpoint-"), 3);
    test_nothing_unfinished(output);
    test_workplace_remove(&place);
}

/* All checkpoints are there, but the result has no room: what an earlier run left in output_dir stays whole.
 */
static void result_fails(void **state)
{
    (void)state;
    struct test_workplace place;
    struct watch watch = {.place = &place, .after = 3, .bytes = 4096};
    char output[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    assert_int_equal(train_until_full(&watch, "", output), TT_ERR_IO);
    assert_checkpoint_untouched(&place, "checkpoint-6");
    assert_int_equal(test_count_entries(output, "checkpoint-"), 3);
    assert_int_equal(test_count_entries(output, "adapter"), 0);
    test_nothing_unfinished(output);
    test_workplace_remove(&place);
}

/* The lines of a file, each of which is one JSON object. */
static int count_rows(const char *output, const char *name)
{
    char path[TEST_PATH_BYTES], line[4096];
    int count = 0;
    FILE *file = fopen(test_join(output, name, path), "r");
    assert_non_null(file);
    for (; fgets(line, sizeof line, file) != NULL; count++)
        if (line[0] != '{' || strcmp(line + strlen(line) - 2, "}\n") != 0) fail_msg("'%s'", line);
    fclose(file);
    return count;
}

struct warnings {
    char text[8192];
};

static void keep_warning(void *context, enum tt_log_level level, const char *line)
{
    struct warnings *warnings = context;
    size_t bytes = strlen(warnings->text);
    if (level == TT_LOG_WARNING)
        snprintf(warnings->text + bytes, sizeof warnings->text - bytes, "%s\n", line);
}

/* Records that outgrow the disk, for good or for a while: the run ends well, with its result, and says once
 * of each file what is missing; what can be written later is. */
static void records_do_not_end_a_run(void **state)
{
    (void)state;
    struct test_workplace place;
    char output[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    static struct warnings warnings;
    for (int recovers = 0; recovers < 2; recovers++) {
        struct watch watch = {.place = &place, .lift_at = recovers ? 200 : 0};
        struct test_words words = {0};
        struct tt_train_summary summary;
        const struct tt_train_observer observer = {.context = &watch, .on_progress = lift_limit};
        test_workplace_create("llama2", &place);
        test_workplace_path(&place, "out", output);
        test_words_pair(&words, "model_name_or_path", place.model);
        test_words_pair(&words, "dataset_name", ROWS);
        test_words_add(
            &words,
            "threads 1 max_steps 300 save_strategy no lora_r 2 logging_steps 1 report_to tensorboard");
        test_words_pair(&words, "logging_dir", test_workplace_path(&place, "board", path));
        warnings.text[0] = '\0';
        tt_log_set_sink(keep_warning, &warnings);
        limit_files(24 << 10);
        tt_status status = test_train_watched(words.list, output, &observer, NULL, &summary);
        limit_files(0);
        tt_log_set_sink(NULL, NULL);
        assert_int_equal(status, TT_OK);
        assert_true(tt_path_exists(test_join(output, "adapter_model.safetensors", path)));
        assert_true(tt_path_exists(test_join(output, "adapter_config.json", path)));
        assert_true(tt_path_exists(test_join(output, "train_results.json", path)));
        assert_int_equal(test_count_text(warnings.text, "metrics.jsonl': File too large; training continues"),
                         1);
        assert_int_equal(test_count_text(warnings.text, "tfevents"),
                         recovers ? 2 : 3); /* its name twice a warning */
        assert_int_equal(test_count_text(warnings.text, "trainer_state.json': File too large; the result"),
                         !recovers);
        assert_int_equal(test_count_text(warnings.text, "metrics.jsonl' is incomplete: its last"), !recovers);
        int rows =
            count_rows(output, "metrics.jsonl"); /* of 300 steps, the end, and the save of the result */
        if (recovers) assert_int_equal(rows, 302);
        assert_true(rows > 15 && rows <= 302); /* with times and memory, fewer than 30 fit in 24 KiB */
        test_nothing_unfinished(output);
        test_workplace_remove(&place);
    }
}

/* The program under a limit of its shell: an error and an exit code, not a signal's end. */
static void program_says_so(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_program program;
    struct test_limits limits = {.file_bytes = 8192};
    struct test_words words = {0}, command = {0};
    char output[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    test_words_pair(&words, "model_name_or_path", place.model);
    test_words_pair(&words, "dataset_name", ROWS);
    test_words_pair(&words, "output_dir", test_workplace_path(&place, "out", output));
    test_words_add(&words, "threads 1 ranks 2 max_steps 2 save_steps 1");
    test_words_command(&command, test_trimtab(), "train", &words);
    int code = test_program_run(command.list, &limits, &program);
    if (code != TT_EXIT_IO || test_count_text(program.output, "error:") != 1 ||
        strstr(program.output, "File too large") == NULL)
        fail_msg("exit %d: %s", code, program.output);
    assert_int_equal(test_count_entries(output, "checkpoint-"), 0);
    test_nothing_unfinished(output);
    test_workplace_remove(&place);
}

/* A real file system that somebody else fills up while training runs, and one that is too small from the
 * start: that is said before the first step. */
static void small_file_system(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_words words = {0};
    struct tt_train_summary summary;
    char disk[TEST_PATH_BYTES], output[TEST_PATH_BYTES], kept[TEST_PATH_BYTES], text[2048];
    test_workplace_create("llama2", &place);
    test_workplace_path(&place, "disk", disk);
    assert_int_equal(tt_dir_create(disk), TT_OK);
    if (mount("tmpfs", disk, "tmpfs", 0, "size=7m") != 0) {
        test_workplace_remove(&place);
        skip();
    }
    struct watch watch = {.place = &place, .after = 1, .filled = disk};
    const struct tt_train_observer observer = {.context = &watch, .on_save = on_save};
    test_words_pair(&words, "model_name_or_path", place.model);
    test_words_pair(&words, "dataset_name", ROWS);
    test_words_add(&words, "threads 1 ranks 2 save_steps 1 use_peft false bf16 false max_steps");
    int last = words.count;
    test_words_add(&words, "99");
    tt_status refused = test_train(words.list, test_join(disk, "out", output), &summary);
    tt_error_format(tt_error_last(), text, sizeof text);
    int steps = refused == TT_ERR_IO && strstr(text, "--save_total_limit") != NULL ? (int)summary.steps : -1;
    words.list[last] = "9";
    tt_status status = test_train_watched(words.list, output, &observer, NULL, &summary);
    tt_error_format(tt_error_last(), text, sizeof text);
    int checkpoints = status == TT_ERR_IO ? test_count_entries(output, "checkpoint-") : -1;
    if (status == TT_ERR_IO) {
        test_nothing_unfinished(output);
        char name[TEST_PATH_BYTES];
        test_same_file(test_join(output, "checkpoint-1/trainer_state.json", name),
                       test_workplace_path(&place, "kept.json", kept));
    }
    assert_int_equal(umount(disk), 0);
    test_workplace_remove(&place);
    assert_int_equal(steps, 0);
    assert_int_equal(status, TT_ERR_IO);
    if (strstr(text, "No space left") == NULL) fail_msg("%s", text);
    assert_true(checkpoints >= 1 && checkpoints <= 4);
}

/* Numbers of steps have no bound, and their checkpoints are counted all the same. */
static void checkpoints_are_counted(void **state)
{
    (void)state;
    struct test_workplace place;
    struct watch none = {.place = &place};
    char output[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    assert_int_equal(train_until_full(&none, "max_steps 9223372036854775807 save_steps 500", output),
                     TT_ERR_IO);
    assert_says("needs 16384 PiB: 18446744073709552 checkpoints of");
    assert_int_equal(train_until_full(&none, "num_train_epochs 1e300 max_steps -1 save_steps 1e6", output),
                     TT_ERR_IO);
    assert_says(": 9223372036855 checkpoints of");
    assert_int_equal(train_until_full(&none, "max_steps 2 save_steps 1e300", output), TT_OK);
    test_workplace_remove(&place);
}

/* on_save_error continue: training goes on, later saves may succeed. */
static void goes_on(void **state)
{
    (void)state;
    struct test_workplace place;
    struct watch watch = {.place = &place, .after = 1, .bytes = 4096};
    char output[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    assert_int_equal(train_until_full(&watch, "on_save_error continue", output), TT_ERR_IO);
    assert_says("saving to"); /* the result has no room either, and that is always an error */
    if (strstr(tt_error_last()->context[0], "checkpoint") != NULL) fail_msg("a checkpoint ended the run");
    assert_checkpoint_untouched(&place, "checkpoint-2");
    assert_int_equal(test_count_entries(output, "checkpoint-"), 1);
    test_nothing_unfinished(output);
    test_workplace_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_save_fails), cmocka_unit_test(earlier_checkpoint_stays),
        cmocka_unit_test(result_fails),      cmocka_unit_test(records_do_not_end_a_run),
        cmocka_unit_test(program_says_so),   cmocka_unit_test(small_file_system),
        cmocka_unit_test(goes_on),           cmocka_unit_test(checkpoints_are_counted),
    };
    signal(SIGXFSZ, SIG_IGN); /* writing past the limit is then an error */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
