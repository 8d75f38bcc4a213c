/* The program, stopped from outside: the first signal finishes the step and leaves a complete checkpoint, the
 * second ends at once, and a kill at any moment leaves only complete checkpoints, from which the next run
 * starts clean. */
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
#include "io/safetensors.h"
#include "support/program.h"
#include "support/train_run.h"
#include "support/workplace.h"

enum { SIGNAL_GAP_US = 800 * 1000, KILLS = 6 };
static const double patience_seconds = 60.0;

struct run {
    struct test_workplace place;
    char output[TEST_PATH_BYTES];
    struct test_program program;
};

static void start(struct run *run, const char *more)
{
    struct test_words words = {0}, command = {0};
    test_words_pair(&words, "model_name_or_path", run->place.model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(&words, "output_dir", test_workplace_path(&run->place, "out", run->output));
    test_words_add(&words, "threads 1 lora_r 2 logging_steps 1 report_to none");
    test_words_add(&words, more);
    test_words_command(&command, test_trimtab(), "train", &words);
    test_program_start(command.list, NULL, &run->program);
}

/* A checkpoint that has its final name is whole. */
static tt_status look_at_checkpoint(void *context, const char *name)
{
    char folder[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    struct tt_safetensors *weights = NULL;
    struct tt_json json = {0};
    if (strncmp(name, "checkpoint-", 11) != 0 || strstr(name, ".saving") != NULL ||
        strstr(name, ".old-") != NULL)
        return TT_OK;
    test_join(context, name, folder);
    TT_TRY(tt_safetensors_open(test_join(folder, "adapter_model.safetensors", path), &weights));
    tt_safetensors_close(weights);
    TT_TRY(tt_json_read(test_join(folder, "adapter_config.json", path), 1 << 20, &json));
    tt_json_deinit(&json);
    TT_TRY(tt_json_read(test_join(folder, "trainer_state.json", path), 1 << 20, &json));
    tt_json_deinit(&json);
    return TT_OK;
}

static void assert_checkpoints_whole(const char *output)
{
    if (tt_dir_list(output, look_at_checkpoint, (void *)(uintptr_t)output) != TT_OK)
        fail_msg("%s", tt_error_last()->message);
}

static void stop_after_step(int number, const char *more)
{
    struct run run;
    char checkpoint[TEST_PATH_BYTES], name[64], a[TEST_PATH_BYTES], b[TEST_PATH_BYTES];
    double losses[8];
    test_workplace_create("llama2", &run.place);
    start(&run, more);
    if (!test_program_says(&run.program, "step 3/", patience_seconds)) fail_msg("%s", run.program.output);
    assert_int_equal(kill(run.program.pid, number), 0);
    int code = test_program_wait(&run.program, patience_seconds);
    const char *said = strstr(run.program.output, "stopped on request after step ");
    if (code != TT_EXIT_STOPPED || said == NULL) fail_msg("exit %d: %s", code, run.program.output);
    assert_int_equal(test_count_text(run.program.output, "error:"), 1);
    snprintf(name, sizeof name, "checkpoint-%d", atoi(said + strlen("stopped on request after step ")));
    test_join(run.output, name, checkpoint);
    assert_true(tt_path_is_dir(checkpoint));
    assert_true(test_read_log(checkpoint, "loss", losses, 8) >= 3);
    test_same_file(test_join(run.output, "adapter_model.safetensors", a),
                   test_join(checkpoint, "adapter_model.safetensors", b));
    assert_checkpoints_whole(run.output);
    test_nothing_unfinished(run.output);
    test_workplace_remove(&run.place);
}

static void first_signal_saves(void **state)
{
    (void)state;
    stop_after_step(SIGINT, "max_steps 1000000 save_strategy no");
    stop_after_step(SIGTERM, "max_steps 1000000 save_steps 100000 ranks 2");
    stop_after_step(SIGHUP, "max_steps 1000000 save_strategy no");
    stop_after_step(SIGUSR1,
                    "max_steps 1000000 save_steps 2 save_total_limit 1 ranks 2 sharding_strategy NO_SHARD");
}

/* A model whose step takes far longer than the gap between the signals. */
static void write_slow_model(const struct run *run)
{
    char path[TEST_PATH_BYTES], *rows = malloc(64 * 1100 + 1);
    struct tt_json json = {0};
    struct tt_str text = {0};
    size_t bytes = 0;
    assert_non_null(rows);
    test_join(run->place.model, "config.json", path);
    assert_int_equal(tt_json_read(path, 1 << 20, &json), TT_OK);
    assert_int_equal(tt_json_make_editable(&json), TT_OK);
    tt_json_set(json.root, "hidden_size", tt_json_new_integer(512));
    tt_json_set(json.root, "intermediate_size", tt_json_new_integer(2048));
    tt_json_set(json.root, "num_hidden_layers", tt_json_new_integer(6));
    tt_json_set(json.root, "num_attention_heads", tt_json_new_integer(8));
    tt_json_set(json.root, "num_key_value_heads", tt_json_new_integer(8));
    tt_json_set(json.root, "head_dim", tt_json_new_integer(64));
    assert_int_equal(tt_json_write(json.root, 2, true, &text), TT_OK);
    assert_int_equal(tt_file_write_atomic(path, text.data, text.bytes), TT_OK);
    for (int i = 0; i < 64; i++) {
        bytes += (size_t)sprintf(rows + bytes, "{\"input_ids\": [%d", i);
        for (int t = 0; t < 255; t++) bytes += (size_t)sprintf(rows + bytes, ",%d", (i + t) % 200);
        bytes += (size_t)sprintf(rows + bytes, "]}\n");
    }
    test_workplace_write(&run->place, "slow.jsonl", rows, path);
    free(rows);
    tt_json_deinit(&json);
    tt_str_deinit(&text);
}

static void second_signal_ends(void **state)
{
    (void)state;
    struct run run;
    char more[TEST_PATH_BYTES + 128], data[TEST_PATH_BYTES];
    test_workplace_create("llama2", &run.place);
    write_slow_model(&run);
    snprintf(more, sizeof more,
             "init random bf16 false max_steps 100 per_device_train_batch_size 64 dataset_name '%.400s'",
             test_workplace_path(&run.place, "slow.jsonl", data));
    start(&run, more);
    if (!test_program_says(&run.program, "100 steps", patience_seconds)) fail_msg("%s", run.program.output);
    usleep(SIGNAL_GAP_US / 4);
    assert_int_equal(kill(run.program.pid, SIGTERM), 0);
    assert_true(test_program_says(&run.program, "stopping after this step", patience_seconds));
    usleep(SIGNAL_GAP_US);
    double start_seconds = tt_clock_seconds();
    assert_int_equal(kill(run.program.pid, SIGTERM), 0);
    int code = test_program_wait(&run.program, patience_seconds);
    if (code != TT_EXIT_STOPPED ||
        strstr(run.program.output, "stopped at once\n  hint: no checkpoint is complete") == NULL)
        fail_msg("exit %d: %s", code, run.program.output);
    assert_true(tt_clock_seconds() - start_seconds < 5.0);
    assert_int_equal(test_count_entries(run.output, "checkpoint-"), 0);
    test_workplace_remove(&run.place);
}

/* Killed while it saves after every step, at moments spread over a save. */
static void killed_while_saving(void **state)
{
    (void)state;
    struct run run;
    double losses[8];
    test_workplace_create("llama2", &run.place);
    for (int i = 0; i < KILLS; i++) {
        char step[32];
        start(&run, "max_steps 1000000 save_steps 1 save_total_limit 2 ranks 2 overwrite_output_dir true");
        snprintf(step, sizeof step, "step %d/", 2 + i);
        if (!test_program_says(&run.program, step, patience_seconds)) fail_msg("%s", run.program.output);
        usleep((useconds_t)(1700 * i));
        assert_int_equal(kill(run.program.pid, SIGKILL), 0);
        assert_int_equal(test_program_wait(&run.program, patience_seconds), 128 + SIGKILL);
        assert_checkpoints_whole(run.output);
        assert_true(test_count_entries(run.output, "checkpoint-") >= 1);
    }
    start(&run, "max_steps 3 save_steps 1 save_total_limit 1 ranks 2 overwrite_output_dir true");
    int code = test_program_wait(&run.program, patience_seconds);
    if (code != TT_EXIT_DONE) fail_msg("exit %d: %s", code, run.program.output);
    assert_int_equal(test_read_log(run.output, "loss", losses, 8), 3);
    assert_int_equal(test_count_entries(run.output, "checkpoint-"), 1);
    assert_int_equal(test_count_entries(run.output, ".saving"), 0);
    test_workplace_remove(&run.place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_signal_saves),
        cmocka_unit_test(second_signal_ends),
        cmocka_unit_test(killed_while_saving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
