/* The program, killed at every change that it makes to the file system while it saves, and at random moments: the
 * newest complete checkpoint always loads, nothing half-written is ever taken, and the run that resumes from it ends
 * with the bits of one that was never killed. The same for changes that fail: earlier saves are untouched.
 *
 * In full: TT_TEST_KILLS=200 TT_TEST_STRIDE=1 (default: 15 random kills, every 11th change). */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "checkpoint/manifest.h"
#include "cli/exit_codes.h"
#include "support/program.h"
#include "support/train_run.h"
#include "support/workplace.h"

enum { CHANGES_MAX = 2000, LONG_STEPS = 300 };
static const char sweep[] = "max_steps 5 save_steps 2 save_total_limit 1 ranks 2 lora_dropout 0.1";

struct scene {
    struct test_workplace place;
    char output[TEST_PATH_BYTES], reference[TEST_PATH_BYTES];
    struct test_program program;
    int changes; /* a run of `sweep` makes at most so many; found by the first test */
};

static int setting(const char *name, int otherwise)
{
    const char *value = getenv(name);
    return value != NULL && atoi(value) > 0 ? atoi(value) : otherwise;
}

static void start(struct scene *scene, const char *output, const char *more)
{
    struct test_words words = {0}, command = {0};
    test_words_pair(&words, "model_name_or_path", scene->place.model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(&words, "output_dir", output);
    test_words_add(
        &words, "device cpu threads 1 lora_r 2 per_device_train_batch_size 4 logging_steps 2 report_to none "
                "resume_from_checkpoint true bf16 false");
    test_words_add(&words, more);
    test_words_command(&command, test_trimtab(), "train", &words);
    test_program_start(command.list, NULL, &scene->program);
}

static int run(struct scene *scene, const char *output, const char *more)
{
    start(scene, output, more);
    return test_program_wait(&scene->program, TEST_RUN_SECONDS);
}

static void begin(struct scene *scene, const char *more)
{
    test_workplace_create("llama2", &scene->place);
    test_workplace_path(&scene->place, "out", scene->output);
    test_workplace_path(&scene->place, "reference", scene->reference);
    if (run(scene, scene->reference, more) != 0) fail_msg("%s", scene->program.output);
}

/* One run of `sweep` is the reference of three tests. */
static int begin_sweep(void **state)
{
    static struct scene scene = {.changes = CHANGES_MAX};
    begin(&scene, sweep);
    *state = &scene;
    return 0;
}

static int end_sweep(void **state)
{
    struct scene *scene = *state;
    test_workplace_remove(&scene->place);
    return 0;
}

/* Whatever is called a checkpoint verifies. Returns how many there are. */
static size_t expect_all_whole(const char *output)
{
    int64_t *steps = NULL;
    size_t count = 0;
    assert_int_equal(tt_checkpoint_list(output, &steps, &count), TT_OK);
    for (size_t i = 0; i < count; i++) {
        struct tt_manifest manifest = {0};
        char *path = tt_checkpoint_path(output, steps[i]);
        if (tt_manifest_read(path, &manifest) != TT_OK || tt_manifest_verify(&manifest, path, NULL) != TT_OK)
            fail_msg("%s", tt_error_last()->message);
        assert_true(manifest.step == steps[i]);
        tt_manifest_deinit(&manifest);
        tt_free(path);
    }
    tt_free(steps);
    return count;
}

static void expect_same(const struct scene *scene, const char *name)
{
    char a[TEST_PATH_BYTES], b[TEST_PATH_BYTES];
    test_same_file(test_join(scene->output, name, a), test_join(scene->reference, name, b));
}

static void expect_same_end(const struct scene *scene, int last)
{
    char name[96];
    expect_same(scene, "adapter_model.safetensors");
    snprintf(name, sizeof name, "checkpoint-%d/training_state.safetensors", last);
    expect_same(scene, name);
    test_nothing_unfinished(scene->output);
}

static void plan_fault(int nth, int error_number, bool sticky)
{
    char text[64];
    snprintf(text, sizeof text, "%d %d %d", nth, error_number, sticky);
    assert_int_equal(nth > 0 ? setenv("TRIMTAB_FILE_FAULT", text, 1) : unsetenv("TRIMTAB_FILE_FAULT"), 0);
}

/* Runs `sweep` from nothing with a fault planned for its nth change; returns its exit code. */
static int run_with_fault(struct scene *scene, int nth, int error_number, bool sticky, const char *more)
{
    assert_int_equal(tt_dir_remove(scene->output), TT_OK);
    plan_fault(nth, error_number, sticky);
    int code = run(scene, scene->output, more);
    plan_fault(0, 0, false);
    return code;
}

static void expect_resumed(struct scene *scene, int nth)
{
    int code = run(scene, scene->output, sweep);
    if (code != TT_EXIT_DONE) fail_msg("after change %d: exit %d: %s", nth, code, scene->program.output);
    expect_same_end(scene, 5);
}

static void killed_at_every_change(void **state)
{
    struct scene *scene = *state;
    int stride = setting("TT_TEST_STRIDE", 11), nth = 1;
    for (; nth < CHANGES_MAX; nth += stride) {
        int code = run_with_fault(scene, nth, 0, false, sweep);
        if (code == TT_EXIT_DONE) break;
        if (code != 128 + SIGKILL) fail_msg("change %d: exit %d: %s", nth, code, scene->program.output);
        (void)expect_all_whole(scene->output);
        /* Killed while the result was written: it is there in part, and no checkpoint is missing. */
        expect_resumed(scene, nth);
        assert_int_equal(expect_all_whole(scene->output), 1);
    }
    printf("%d changes, every %d\n", nth, stride);
    assert_true(nth > 50 && nth < CHANGES_MAX);
    scene->changes = nth;
}

/* Each change fails, once or from then on: an error with the reason, unless there was another way, and earlier saves
 * are whole. */
static void failed_at_every_change(void **state)
{
    static const int errors[] = {ENOSPC, EIO, EROFS};
    struct scene *scene = *state;
    int stride = 3 * setting("TT_TEST_STRIDE", 11), reported = 0, unnoticed = 0;
    for (int nth = 1; nth < scene->changes; nth += stride) {
        int error_number = errors[nth / stride % 3];
        int code = run_with_fault(scene, nth, error_number, nth / stride % 2 != 0, sweep);
        (void)expect_all_whole(scene->output);
        bool reports = strstr(scene->program.output, strerror(error_number)) != NULL;
        int failed = error_number == EROFS ? TT_EXIT_DATA : TT_EXIT_IO;
        if (code != TT_EXIT_DONE && (code != failed || !reports))
            fail_msg("change %d, %s: exit %d: %s", nth, strerror(error_number), code, scene->program.output);
        reported += reports;
        unnoticed += code == TT_EXIT_DONE && !reports;
        expect_resumed(scene, nth);
    }
    printf("every %d: %d failures reported, %d without effect\n", stride, reported, unnoticed);
    /* Without effect: two folders that cannot change places, and folders that are removed. */
    assert_true(reported > unnoticed);
}

/* With on_save_error continue training continues, and the next save is whole. */
static void continues_after_a_failed_save(void **state)
{
    struct scene *scene = *state;
    char more[200];
    snprintf(more, sizeof more, "%s on_save_error continue", sweep);
    int continued = 0;
    for (int nth = 20; nth < 60; nth += 8) {
        int code = run_with_fault(scene, nth, EIO, false, more);
        if (code != TT_EXIT_DONE) fail_msg("change %d: exit %d: %s", nth, code, scene->program.output);
        continued += test_count_text(scene->program.output, "training continues");
        expect_same_end(scene, 5);
    }
    assert_true(continued > 0);
}

static void killed_at_random(void **state)
{
    (void)state;
    struct scene scene;
    char more[200];
    struct tt_rng rng = tt_rng_make((uint64_t)setting("TT_TEST_SEED", 11));
    int kills = setting("TT_TEST_KILLS", 15), killed = 0, rounds = 0;
    snprintf(more, sizeof more, "max_steps %d save_steps 3 save_total_limit 2 ranks 2 lora_dropout 0.1",
             LONG_STEPS);
    begin(&scene, more);
    for (int i = 0; i < kills; i++) {
        start(&scene, scene.output, more);
        double seconds = 0.02 + 0.4 * tt_rng_uniform(rng, (uint64_t)i);
        struct timespec pause = {.tv_nsec = (long)(seconds * 1e9)};
        nanosleep(&pause, NULL);
        (void)kill(scene.program.pid, SIGKILL);
        int code = test_program_wait(&scene.program, 60.0);
        if (code != 128 + SIGKILL && code != TT_EXIT_DONE)
            fail_msg("exit %d: %s", code, scene.program.output);
        assert_int_equal(test_count_text(scene.program.output, "is skipped"), 0);
        size_t whole = expect_all_whole(scene.output);
        assert_true(whole <= 4);
        killed += code == 128 + SIGKILL;
        if (code != TT_EXIT_DONE) continue;
        expect_same_end(&scene, LONG_STEPS);
        assert_int_equal(tt_dir_remove(scene.output), TT_OK);
        rounds++;
    }
    if (run(&scene, scene.output, more) != TT_EXIT_DONE) fail_msg("%s", scene.program.output);
    expect_same_end(&scene, LONG_STEPS);
    printf("%d random kills, %d whole runs between them\n", killed, rounds + 1);
    test_workplace_remove(&scene.place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_every_change),
        cmocka_unit_test(failed_at_every_change),
        cmocka_unit_test(continues_after_a_failed_save),
        cmocka_unit_test(killed_at_random),
    };
    return cmocka_run_group_tests(tests, begin_sweep, end_sweep);
}
