/* What somebody sees who goes on from a checkpoint: from where, what was passed over, what is refused and
 * why; over processes and mpirun; and a stop on request that goes on as if it had not been. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/stat.h>

#include "base/file.h"
#include "checkpoint/manifest.h"
#include "cli/exit_codes.h"
#include "support/processes.h"
#include "support/train_run.h"
#include "support/workplace.h"

#define ROWS TT_TEST_ROOT "/golden/llama2/train.jsonl"

struct scene {
    struct test_workplace place;
    char output[TEST_PATH_BYTES], whole[TEST_PATH_BYTES];
    struct test_program program;
};

static void set_words(const struct scene *scene, const char *output, const char *more,
                      struct test_words *words)
{
    *words = (struct test_words){0};
    test_words_pair(words, "model_name_or_path", scene->place.model);
    test_words_pair(words, "dataset_name", ROWS);
    test_words_pair(words, "output_dir", output);
    test_words_add(words, "threads 1 lora_r 2 lora_dropout 0.1 max_steps 6 save_steps 2 logging_steps 1 "
                          "learning_rate 0.01 per_device_train_batch_size 4 report_to none bf16 false");
    test_words_add(words, more);
}

static int run(struct scene *scene, const char *output, const char *more)
{
    struct test_words words, command = {0};
    set_words(scene, output, more, &words);
    test_words_add(&words, "device cpu");
    test_words_command(&command, test_trimtab(), "train", &words);
    return test_program_run(command.list, NULL, &scene->program);
}

/* Ran to the end with 2 ranks in `whole`; `output` has the first checkpoints of it. */
static void begin(struct scene *scene, const char *keep)
{
    char command[2400];
    test_workplace_create("llama2", &scene->place);
    test_workplace_path(&scene->place, "out", scene->output);
    test_workplace_path(&scene->place, "whole", scene->whole);
    if (run(scene, scene->whole, "ranks 2") != 0) fail_msg("%s", scene->program.output);
    snprintf(command, sizeof command, "mkdir '%s' && cd '%s' && cp -r %s '%s'", scene->output, scene->whole,
             keep, scene->output);
    assert_int_equal(system(command), 0);
}

static void expect(struct scene *scene, const char *more, int code, const char *const *says)
{
    int got = run(scene, scene->output, more);
    if (got != code) fail_msg("%s: exit %d: %s", more, got, scene->program.output);
    for (; *says != NULL; says++)
        if (strstr(scene->program.output, *says) == NULL)
            fail_msg("%s: no '%s' in: %s", more, *says, scene->program.output);
}

static void expect_same(const struct scene *scene, const char *name)
{
    char a[TEST_PATH_BYTES], b[TEST_PATH_BYTES];
    test_same_file(test_join(scene->output, name, a), test_join(scene->whole, name, b));
}

static void expect_same_end(const struct scene *scene)
{
    double got[8], wanted[8];
    expect_same(scene, "adapter_model.safetensors");
    expect_same(scene, "checkpoint-6/training_state.safetensors");
    assert_int_equal(test_read_log(scene->output, "loss", got, 8), 6);
    assert_int_equal(test_read_log(scene->whole, "loss", wanted, 8), 6);
    for (int i = 0; i < 6; i++) assert_true(got[i] == wanted[i]);
}

/* A changed byte in any file of the newest checkpoint: it is named and passed over. */
static void flip_middle(const char *path)
{
    struct tt_str data = {0};
    assert_int_equal(tt_file_read(path, 1 << 26, &data), TT_OK);
    assert_true(data.bytes > 0);
    data.data[data.bytes / 2] ^= 1;
    assert_int_equal(tt_file_write_atomic(path, data.data, data.bytes), TT_OK);
    tt_str_deinit(&data);
}

static void broken_ones_are_passed_over(void **state)
{
    (void)state;
    struct scene scene;
    char path[TEST_PATH_BYTES];
    begin(&scene, "checkpoint-2 checkpoint-4");
    flip_middle(test_join(scene.output, "checkpoint-4/adapter_model.safetensors", path));
    static const char *const says[] = {"checkpoint-4 is skipped",
                                       "adapter_model.safetensors' is not as it was saved", "resuming from",
                                       "checkpoint-2: step 2 of 6 is done", NULL};
    expect(&scene, "ranks 2 resume_from_checkpoint true", TT_EXIT_DONE, says);
    expect_same_end(&scene);
    test_workplace_remove(&scene.place);

    static const char *const files[] = {"adapter_config.json", "training_state.safetensors",
                                        "training_state.json", "trainer_state.json", "trimtab_config.yaml"};
    begin(&scene, "checkpoint-4");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[128];
        snprintf(name, sizeof name, "checkpoint-4/%s", files[i]);
        flip_middle(test_join(scene.output, name, path));
        const char *const refused[] = {files[i], "is not as it was saved", "none of the 1 checkpoints", NULL};
        expect(&scene, "ranks 2 resume_from_checkpoint true", TT_EXIT_DATA, refused);
        flip_middle(path);
    }
    assert_int_equal(remove(test_join(scene.output, "checkpoint-4/manifest.json", path)), 0);
    static const char *const none[] = {"has no manifest.json", NULL};
    expect(&scene, "ranks 2 resume_from_checkpoint true", TT_EXIT_DATA, none);
    test_workplace_remove(&scene.place);
}

/* Puts `to` in place of `from` in a file of the checkpoint, and sums the folder again. */
static void rewrite(const struct scene *scene, const char *checkpoint, const char *from, const char *to)
{
    struct tt_str data = {0}, made = {0};
    struct tt_manifest manifest = {0}, before = {0};
    char folder[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    test_join(scene->output, checkpoint, folder);
    test_join(folder, "training_state.json", path);
    assert_int_equal(tt_file_read(path, 1 << 26, &data), TT_OK);
    char *at = strstr(data.data, from);
    assert_non_null(at);
    assert_int_equal(tt_str_append(&made, data.data, (size_t)(at - data.data)), TT_OK);
    assert_int_equal(tt_str_append_text(&made, to), TT_OK);
    assert_int_equal(tt_str_append_text(&made, at + strlen(from)), TT_OK);
    assert_int_equal(tt_file_write_atomic(path, made.data, made.bytes), TT_OK);
    assert_int_equal(tt_manifest_read(folder, &before), TT_OK);
    manifest.step = before.step;
    assert_int_equal(remove(test_join(folder, TT_MANIFEST_NAME, path)), 0);
    assert_int_equal(tt_manifest_add_rest(&manifest, folder), TT_OK);
    assert_int_equal(manifest.count, before.count);
    assert_int_equal(tt_manifest_write(&manifest, folder), TT_OK);
    tt_manifest_deinit(&manifest);
    tt_manifest_deinit(&before);
    tt_str_deinit(&data);
    tt_str_deinit(&made);
}

/* The state of another version is whole, and means something else. */
static void another_version_is_refused(void **state)
{
    (void)state;
    struct scene scene;
    static const char *const older[] = {"training_state.json' is of version 1; 2 is expected",
                                        "resuming from", NULL};
    static const char *const newer[] = {"training_state.json' is of version 3; 2 is expected", NULL};
    begin(&scene, "checkpoint-4");
    rewrite(&scene, "checkpoint-4", "\"version\": 2", "\"version\": 1");
    expect(&scene, "ranks 2 resume_from_checkpoint true", TT_EXIT_DATA, older);
    rewrite(&scene, "checkpoint-4", "\"version\": 1", "\"version\": 3");
    expect(&scene, "ranks 2 resume_from_checkpoint true", TT_EXIT_DATA, newer);
    rewrite(&scene, "checkpoint-4", "\"version\": 3", "\"version\": 2");
    static const char *const taken[] = {"checkpoint-4: step 4 of 6 is done", NULL};
    expect(&scene, "ranks 2 resume_from_checkpoint true", TT_EXIT_DONE, taken);
    test_workplace_remove(&scene.place);
}

static void another_run_is_refused(void **state)
{
    (void)state;
    struct scene scene;
    begin(&scene, "checkpoint-2");
    static const struct {
        const char *more, *says, *hint;
    } changes[] = {
        {"ranks 2 learning_rate 0.02", "learning_rate was 0.01 and is 0.02", "restore the settings"},
        {"ranks 2 lora_dropout 0.2", "lora_dropout was 0.1 and is 0.2", "restore the settings"},
        {"ranks 2 max_steps 5", "steps in all (max_steps, num_train_epochs) was 6 and is 5",
         "restore the settings"},
        {"ranks 1", "per_device_train_batch_size x gradient_accumulation_steps) was 8 and is 4",
         "with ranks 1 --gradient_accumulation_steps 2 makes 8 samples a step as before"},
        {"ranks 2 load_in_4bit true", "quantized base was \"none\" and is \"nf4\"", "restore the settings"},
        {"ranks 2 load_in_8bit true", "quantized base was \"none\" and is \"int8\"", "restore the settings"},
        {"ranks 2 seed 7", "seed was 42 and is 7", "restore the settings"},
        {"ranks 2 max_train_samples 20", "training data was", "restore the settings"},
        {"ranks 2 lora_r 4", "lora_r was 2 and is 4", "restore the settings"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char more[200];
        const char *const says[] = {"this is not the run that", changes[i].says, changes[i].hint,
                                    "--resume_changed", NULL};
        snprintf(more, sizeof more, "%s resume_from_checkpoint true", changes[i].more);
        expect(&scene, more, TT_EXIT_USAGE, says);
    }
    static const char *const forced[] = {"resuming with changed settings: learning_rate was 0.01 and is 0.02",
                                         NULL};
    expect(&scene, "ranks 2 learning_rate 0.02 resume_changed true resume_from_checkpoint true", TT_EXIT_DONE,
           forced);
    test_workplace_remove(&scene.place);
}

/* How devices compute is saved with the run, wherever it came from. Another way is no other run, but is named. */
static void another_way_to_compute_is_named(void **state)
{
    (void)state;
    struct scene scene;
    struct tt_str saved = {0};
    char path[TEST_PATH_BYTES];
    unsetenv("TRIMTAB_CPU_ISA");
    begin(&scene, "checkpoint-2");
    static const char *const lowered[] = {"devices compute in another way",
                                          "cpu_isa was \"auto\" and is \"portable\"", NULL};
    setenv("TRIMTAB_CPU_ISA", "portable", 1);
    expect(&scene, "ranks 2 resume_from_checkpoint true", TT_EXIT_DONE, lowered);
    unsetenv("TRIMTAB_CPU_ISA");
    test_join(scene.output, "checkpoint-6/trimtab_config.yaml", path);
    assert_int_equal(tt_file_read(path, 1 << 20, &saved), TT_OK);
    assert_non_null(strstr(saved.data, "\ncpu_isa: portable  # TRIMTAB_CPU_ISA\n"));
    tt_str_deinit(&saved);
    static const char *const raised[] = {"cpu_isa was \"portable\" and is \"auto\"", NULL};
    expect(&scene, "ranks 2 resume_from_checkpoint true", TT_EXIT_DONE, raised);
    expect(&scene, "ranks 2 cpu_isa portable resume_from_checkpoint true", TT_EXIT_DONE,
           (const char *[]){NULL});
    if (strstr(scene.program.output, "in another way") != NULL) fail_msg("%s", scene.program.output);
    test_workplace_remove(&scene.place);
}

static void other_base_is_refused(void **state)
{
    (void)state;
    struct scene scene;
    char path[TEST_PATH_BYTES];
    begin(&scene, "checkpoint-2");
    struct tt_str data = {0};
    test_join(scene.place.model, "model.safetensors", path);
    assert_int_equal(tt_file_read(path, 1 << 26, &data), TT_OK);
    for (size_t i = data.bytes / 2; i < data.bytes; i += 16) data.data[i] ^= 1; /* trained on, say */
    assert_int_equal(tt_file_write_atomic(path, data.data, data.bytes), TT_OK);
    tt_str_deinit(&data);
    static const char *const says[] = {"tensor '", "of 'model.safetensors' has changed", NULL};
    expect(&scene, "ranks 2 resume_from_checkpoint true", TT_EXIT_USAGE, says);
    test_workplace_remove(&scene.place);
}

static void nothing_to_go_on_from(void **state)
{
    (void)state;
    struct scene scene;
    begin(&scene, "train_results.json");
    static const char *const begins[] = {"the run starts from the beginning", NULL};
    expect(&scene, "ranks 2 save_only_model true resume_from_checkpoint true", TT_EXIT_DONE, begins);
    static const char *const only[] = {"has no training state", "save_only_model", NULL};
    expect(&scene, "ranks 2 resume_from_checkpoint true", TT_EXIT_DATA, only);
    static const char *const nowhere[] = {"there is no folder 'nowhere'", NULL};
    expect(&scene, "ranks 2 resume_from_checkpoint nowhere", TT_EXIT_USAGE, nowhere);
    static const char *const refused[] = {"already holds the result of a run",
                                          "--resume_from_checkpoint true", NULL};
    expect(&scene, "ranks 2", TT_EXIT_USAGE, refused);
    test_workplace_remove(&scene.place);
}

struct sized {
    const char *folder;
    uint64_t bytes;
};

static tt_status add_bytes(void *context, const char *name)
{
    struct sized *sized = context;
    char path[TEST_PATH_BYTES];
    struct stat about;
    if (strcmp(name, "manifest.json") == 0) return TT_OK;
    assert_int_equal(stat(test_join(sized->folder, name, path), &about), 0);
    sized->bytes += (uint64_t)about.st_size;
    return TT_OK;
}

/* The line of metrics.jsonl that tells of `event` in `folder`: its bytes are those of the files, its times
 * are there. */
static void expect_event(const struct scene *scene, const char *event, const char *folder,
                         const char *const *times)
{
    char path[TEST_PATH_BYTES];
    struct tt_str text = {0};
    int found = 0;
    struct sized files = {.folder = folder};
    assert_int_equal(tt_dir_list(folder, add_bytes, &files), TT_OK);
    assert_int_equal(tt_file_read(test_join(scene->output, "metrics.jsonl", path), 1 << 20, &text), TT_OK);
    for (char *line = strtok(text.data, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        struct tt_json json = {0};
        assert_int_equal(tt_json_parse(line, strlen(line), path, &json), TT_OK);
        const char *is = tt_json_text(tt_json_get(json.root, "event"));
        const char *of = tt_json_text(tt_json_get(json.root, "folder"));
        if (is != NULL && of != NULL && strcmp(is, event) == 0 && strcmp(of, folder) == 0) {
            found++;
            assert_int_equal(tt_json_integer(tt_json_get(json.root, "bytes")), files.bytes);
            for (int i = 0; times[i] != NULL; i++)
                if (!(tt_json_number(tt_json_get(json.root, times[i])) > 0.0))
                    fail_msg("%s: %s", times[i], line);
        }
        tt_json_deinit(&json);
    }
    if (found != 1) fail_msg("%d records of %s of %s in %s", found, event, folder, path);
    tt_str_deinit(&text);
}

/* What it cost to go on from `from` and to save the last checkpoint: said, and recorded. */
static void expect_costs(const struct scene *scene, const char *from)
{
    static const char *const read[] = {"verify_seconds", "load_seconds", NULL};
    static const char *const written[] = {"seconds", "stall_seconds", NULL};
    static const char *const says[] = {"verified in ", "training state loaded in ",
                                       "checkpoint-6: ", "training paused for "};
    char path[TEST_PATH_BYTES];
    expect_event(scene, "resume", from, read);
    expect_event(scene, "save", test_join(scene->output, "checkpoint-6", path), written);
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (strstr(scene->program.output, says[i]) == NULL)
            fail_msg("no '%s' in: %s", says[i], scene->program.output);
}

/* From another folder, by its name; and from the last step, where only the result is left to write. */
static void by_name_and_from_the_end(void **state)
{
    (void)state;
    struct scene scene;
    char folder[TEST_PATH_BYTES + 16], more[TEST_PATH_BYTES + 64];
    static const char *const none[] = {NULL}, *const end[] = {"step 6 of 6 is done", NULL};
    begin(&scene, "train_results.json");
    snprintf(folder, sizeof folder, "%s/checkpoint-4", scene.whole);
    snprintf(more, sizeof more, "ranks 2 resume_from_checkpoint '%s'", folder);
    expect(&scene, more, TT_EXIT_DONE, none);
    expect_same_end(&scene);
    expect_costs(&scene, folder);
    expect(&scene, "ranks 2 resume_from_checkpoint true", TT_EXIT_DONE, end);
    expect_same_end(&scene);
    test_workplace_remove(&scene.place);
}

static void over_processes(void **state)
{
    (void)state;
    struct scene scene;
    struct test_processes processes;
    struct test_words words;
    begin(&scene, "checkpoint-2");
    set_words(&scene, scene.output, "resume_from_checkpoint true", &words);
    test_processes_start(&processes, 2, NULL, &words, NULL);
    test_processes_expect_ok(&processes);
    assert_int_equal(test_count_text(processes.programs[0].output, "resuming from"), 1);
    expect_same_end(&scene);
    /* Saved by processes, one file each; gone on with by threads. */
    char command[2400];
    snprintf(command, sizeof command, "rm -rf '%s'", scene.output);
    assert_int_equal(system(command), 0);
    set_words(&scene, scene.output, "state_dict_type SHARDED_STATE_DICT", &words);
    test_processes_start(&processes, 2, NULL, &words, NULL);
    test_processes_expect_ok(&processes);
    snprintf(command, sizeof command, "cd '%s' && rm -rf checkpoint-4 checkpoint-6 adapter_model.safetensors",
             scene.output);
    assert_int_equal(system(command), 0);
    static const char *const says[] = {"checkpoint-2: step 2 of 6", NULL};
    expect(&scene, "ranks 2 resume_from_checkpoint true", TT_EXIT_DONE, says);
    expect_same_end(&scene);
    test_workplace_remove(&scene.place);
}

/* Each process in a folder of its own, and output_dir a relative path. */
static void output_is_shared(void **state)
{
    (void)state;
    struct scene scene;
    struct test_words words, command = {0};
    char first[3000], second[3000];
    if (test_mpi_is_missing() != NULL) skip();
    begin(&scene, "train_results.json");
    set_words(&scene, "apart", "device cpu", &words);
    struct test_words training = {0};
    test_words_command(&training, test_trimtab(), "train", &words);
    snprintf(first, sizeof first, "cd '%.300s' && exec", scene.place.folder);
    snprintf(second, sizeof second, "cd '%.300s' && exec", scene.place.model);
    test_words_shell(&training, first, sizeof first);
    test_words_shell(&training, second, sizeof second);
    test_words_two_ranks(&command, first, second);
    int code = test_program_run(command.list, NULL, &scene.program);
    if (code == 0 || strstr(scene.program.output, "is not the same folder on rank 1") == NULL)
        fail_msg("exit %d: %s", code, scene.program.output);
    test_workplace_remove(&scene.place);
}

static void over_mpi(void **state)
{
    (void)state;
    struct scene scene;
    struct test_words words, command = {0};
    if (test_mpi_is_missing() != NULL) skip();
    begin(&scene, "checkpoint-2");
    set_words(&scene, scene.output, "device cpu resume_from_checkpoint true", &words);
    test_words_add(&command, TEST_MPIRUN " -np 2");
    test_words_command(&command, test_trimtab(), "train", &words);
    int code = test_program_run(command.list, NULL, &scene.program);
    if (code != 0) fail_msg("exit %d: %s", code, scene.program.output);
    expect_same_end(&scene);
    test_workplace_remove(&scene.place);
}

/* SIGTERM at some step, exit 11, and on: the end is that of the run that nobody stopped. */
static void stopped_and_gone_on(void **state)
{
    (void)state;
    struct scene scene;
    static const char more[] = "ranks 2 max_steps 1000 save_steps 100000 logging_steps 1000";
    static const char *const none[] = {"resuming from", NULL};
    begin(&scene, "train_results.json");
    if (run(&scene, scene.whole,
            "ranks 2 max_steps 1000 save_steps 100000 logging_steps 1000 overwrite_output_dir true") != 0)
        fail_msg("%s", scene.program.output);
    struct test_words words, command = {0};
    set_words(&scene, scene.output, more, &words);
    test_words_add(&words, "device cpu logging_steps 1");
    test_words_command(&command, test_trimtab(), "train", &words);
    test_program_start(command.list, NULL, &scene.program);
    if (!test_program_says(&scene.program, "step 9/", 60)) fail_msg("%s", scene.program.output);
    assert_int_equal(kill(scene.program.pid, SIGTERM), 0);
    int code = test_program_wait(&scene.program, 60);
    if (code != TT_EXIT_STOPPED || strstr(scene.program.output, "--resume_from_checkpoint true") == NULL)
        fail_msg("exit %d: %s", code, scene.program.output);
    expect(&scene, "ranks 2 max_steps 1000 save_steps 100000 logging_steps 1000 resume_from_checkpoint true",
           TT_EXIT_DONE, none);
    expect_same(&scene, "adapter_model.safetensors");
    expect_same(&scene, "checkpoint-1000/training_state.safetensors");
    test_workplace_remove(&scene.place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_ones_are_passed_over),
        cmocka_unit_test(another_version_is_refused),
        cmocka_unit_test(another_run_is_refused),
        cmocka_unit_test(another_way_to_compute_is_named),
        cmocka_unit_test(other_base_is_refused),
        cmocka_unit_test(nothing_to_go_on_from),
        cmocka_unit_test(by_name_and_from_the_end),
        cmocka_unit_test(over_processes),
        cmocka_unit_test(output_is_shared),
        cmocka_unit_test(over_mpi),
        cmocka_unit_test(stopped_and_gone_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
