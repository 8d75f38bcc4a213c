/* The records that a run leaves have the keys and types that transformers' Trainer writes, and its values
 * where they are not times (tests/golden/trainer/make_trainer.py: the training of llama2's
 * train_reference.json, evaluated and saved every 10 steps). Our rows may say more; what more is listed here.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/golden.h"
#include "support/train_run.h"

static const char *const additional[] = {"entropy",      "mean_token_accuracy",
                                         "num_tokens",   "tokens_per_second",
                                         "eval_entropy", "eval_mean_token_accuracy"};
/* Times, and what is counted in another way: FLOPs by matrix instead of 6 * parameters, the mean of eval_loss
 * by tokens instead of rows, tokens always. */
static const char *const other_values[] = {"runtime", "per_second", "total_flos", "eval_loss",
                                           "num_input_tokens_seen"};

static bool listed(const char *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strstr(name, list[i]) != NULL) return true;
    return false;
}

static void compare(const char *where, const struct tt_json_value *got, const struct tt_json_value *want);

static void compare_objects(const char *where, const struct tt_json_value *got,
                            const struct tt_json_value *want)
{
    const char *key;
    const struct tt_json_value *value;
    char path[300];
    for (size_t member = 0; tt_json_next_member(want, &member, &key, &value);) {
        snprintf(path, sizeof path, "%s.%s", where, key);
        if (strcmp(key, "log_history") == 0) continue;
        if (tt_json_get(got, key) == NULL) fail_msg("%s is missing", path);
        compare(path, tt_json_get(got, key), value);
    }
    for (size_t member = 0; tt_json_next_member(got, &member, &key, &value);) {
        bool known =
            tt_json_get(want, key) != NULL || listed(additional, sizeof additional / sizeof *additional, key);
        if (!known) fail_msg("%s has '%s', which transformers does not write", where, key);
    }
}

static void compare(const char *where, const struct tt_json_value *got, const struct tt_json_value *want)
{
    if (tt_json_type(got) != tt_json_type(want))
        fail_msg("%s is of type %d, transformers writes %d", where, (int)tt_json_type(got),
                 (int)tt_json_type(want));
    if (tt_json_is_object(want)) {
        compare_objects(where, got, want);
    } else if (tt_json_is_number(want) &&
               !listed(other_values, sizeof other_values / sizeof *other_values, where)) {
        double x = tt_json_number(got), y = tt_json_number(want);
        if (fabs(x - y) > 1e-3 * fabs(y)) fail_msg("%s is %.10g, wanted %.10g", where, x, y);
    }
}

static void read_pair(const char *folder, const char *name, const char *golden, struct tt_json *got,
                      struct tt_json *want)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (tt_json_read(path, 1 << 24, got) != TT_OK) fail_msg("%s", tt_error_last()->message);
    snprintf(path, sizeof path, "%s/golden/trainer/%s", TT_TEST_ROOT, golden);
    assert_int_equal(tt_json_read(path, 1 << 24, want), TT_OK);
}

static void compare_file(const char *folder, const char *name)
{
    struct tt_json got = {0}, want = {0};
    read_pair(folder, name, name, &got, &want);
    compare(name, got.root, want.root);
    tt_json_deinit(&got);
    tt_json_deinit(&want);
}

/* `rows`: how many of the golden log rows are compared; ours must be exactly these. */
static void compare_state(const char *folder, const char *golden, size_t rows)
{
    struct tt_json got = {0}, want = {0};
    read_pair(folder, "trainer_state.json", golden, &got, &want);
    compare(golden, got.root, want.root);
    const struct tt_json_value *log = tt_json_get(got.root, "log_history");
    const struct tt_json_value *golden_log = tt_json_get(want.root, "log_history");
    assert_int_equal(tt_json_count(log), rows);
    assert_true(tt_json_count(golden_log) >= rows);
    for (size_t i = 0; i < rows; i++) {
        char where[64];
        snprintf(where, sizeof where, "log_history[%zu]", i);
        compare(where, tt_json_at(log, i), tt_json_at(golden_log, i));
    }
    tt_json_deinit(&got);
    tt_json_deinit(&want);
}

/* What each save says: where, how much, how long. */
static void check_save(const struct tt_json_value *event, const char *folder, int saves)
{
    char wanted[600];
    snprintf(wanted, sizeof wanted, saves < 2 ? "%s/checkpoint-%d" : "%s", folder, 10 * (saves + 1));
    assert_string_equal(tt_json_text(tt_json_get(event, "event")), "save");
    assert_string_equal(tt_json_text(tt_json_get(event, "folder")), wanted);
    assert_int_equal(tt_json_integer(tt_json_get(event, "step")), saves == 0 ? 10 : 20);
    assert_true(tt_json_integer(tt_json_get(event, "bytes")) > 10000);
    double seconds = tt_json_number(tt_json_get(event, "seconds"));
    double stall = tt_json_number(tt_json_get(event, "stall_seconds"));
    if (!(seconds > 0.0 && stall > 0.0)) fail_msg("%s: seconds %g, stall %g", wanted, seconds, stall);
}

/* Removes the sums of the whole run. */
static void take_totals(struct tt_json_value *row)
{
    static const char *const parts[] = {"steps_total_seconds", "save_stall_total_seconds",
                                        "evaluate_total_seconds", "other_total_seconds"};
    double runtime = tt_json_number(tt_json_get(row, "train_runtime")), sum = 0.0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_true(tt_json_number(tt_json_get(row, parts[i])) >= 0.0);
        assert_true(i > 2 || tt_json_number(tt_json_get(row, parts[i])) > 0.0); /* it saves and evaluates */
        sum += tt_json_number(tt_json_get(row, parts[i]));
        assert_true(tt_json_remove(row, parts[i]));
    }
    /* The run takes a tenth of a second: the time between two readings of the clock may hold another process's turn. */
    if (fabs(sum - runtime) > 0.03 * runtime + 0.01) fail_msg("parts: %g s, run: %g s", sum, runtime);
}

/* Removes the figures beside the phases: time between the steps, speed, memory by purpose, whose sum is that of the
 * device. */
static void take_figures(struct tt_json_value *row, double step)
{
    static const char *const times[] = {"save_stall_seconds", "evaluate_seconds", "wall_seconds"};
    static const char *const purposes[] = {"weights_bytes",       "adapters_bytes",      "optimizer_bytes",
                                           "gradients_bytes",     "gather_bytes",        "activations_bytes",
                                           "batch_bytes",         "communication_bytes", "offload_bytes",
                                           "gemm_workspace_bytes"};
    double seconds[3], bytes = 0.0;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        seconds[i] = tt_json_number(tt_json_get(row, times[i]));
        assert_true(tt_json_remove(row, times[i]));
    }
    if (!(seconds[2] >= step + seconds[0] + seconds[1] - 1e-9))
        fail_msg("step %g, save %g, evaluation %g in %g s", step, seconds[0], seconds[1], seconds[2]);
    assert_true(tt_json_number(tt_json_get(row, "model_tflops")) > 0.0);
    assert_true(tt_json_remove(row, "model_tflops"));
    assert_null(tt_json_get(row, "mfu")); /* a processor has no figure to compare with */
    for (size_t i = 0; i < sizeof purposes / sizeof *purposes; i++) {
        bytes += tt_json_number(tt_json_get(row, purposes[i]));
        (void)tt_json_remove(row, purposes[i]);
    }
    assert_true(bytes > 0.0);
    assert_true(tt_json_number(tt_json_get(row, "device_bytes")) == bytes);
    assert_true(tt_json_remove(row, "device_bytes"));
    (void)tt_json_remove(row, "host_bytes");
}

/* Times of the steps are in metrics.jsonl only. Their sum is the step's time; a processor computes nothing later, so
 * forward and backward are the time of computing. Removes them. */
static void take_times(struct tt_json_value *row)
{
    static const char *const phases[] = {"data_seconds",      "gather_seconds",    "forward_seconds",
                                         "backward_seconds",  "reduce_seconds",    "device_wait_seconds",
                                         "rank_wait_seconds", "save_wait_seconds", "optimizer_seconds"};
    if (tt_json_get(row, "train_runtime") != NULL) take_totals(row);
    if (tt_json_get(row, "loss") == NULL) return;
    double step = tt_json_number(tt_json_get(row, "step_seconds")), sum = 0.0;
    double forward = tt_json_number(tt_json_get(row, "forward_seconds"));
    double backward = tt_json_number(tt_json_get(row, "backward_seconds"));
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        assert_true(tt_json_number(tt_json_get(row, phases[i])) >= 0.0);
        sum += tt_json_number(tt_json_get(row, phases[i]));
        assert_true(tt_json_remove(row, phases[i]));
    }
    assert_true(tt_json_remove(row, "step_seconds"));
    take_figures(row, step);
    if (!(step > 0.0 && fabs(sum - step) <= 0.03 * step)) fail_msg("phases: %g s, step: %g s", sum, step);
    if (!(forward > 0.0 && backward > 0.0)) fail_msg("forward %g s, backward %g s", forward, backward);
}

/* One row a line, the rows of trainer_state.json, and among them a line for each of two checkpoints and the
 * result. */
static void compare_metrics_lines(const char *folder, size_t rows)
{
    char path[600];
    struct tt_str text = {0};
    struct tt_json state = {0};
    snprintf(path, sizeof path, "%s/trainer_state.json", folder);
    assert_int_equal(tt_json_read(path, 1 << 24, &state), TT_OK);
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    assert_int_equal(tt_file_read(path, 1 << 24, &text), TT_OK);
    const struct tt_json_value *log = tt_json_get(state.root, "log_history");
    const char *at = text.data;
    int saves = 0;
    for (size_t i = 0; i < rows || saves < 3;) {
        struct tt_json line = {0};
        const char *end = strchr(at, '\n');
        assert_non_null(end);
        assert_int_equal(tt_json_parse(at, (size_t)(end - at), path, &line), TT_OK);
        if (tt_json_get(line.root, "event") != NULL)
            check_save(line.root, folder, saves++);
        else {
            struct tt_json_value *row = tt_json_copy(line.root);
            take_times(row);
            assert_true(tt_json_equal(row, tt_json_at(log, i++)));
            tt_json_release(row);
        }
        tt_json_deinit(&line);
        at = end + 1;
    }
    assert_int_equal(*at, '\0');
    assert_int_equal(saves, 3);
    tt_str_deinit(&text);
    tt_json_deinit(&state);
}

/* Ours is the mean over tokens, so that it depends on the data alone and not on how it is cut into batches.
 */
static void compare_eval_loss(const char *output)
{
    char path[512];
    double losses[2], wanted = 0.0;
    struct tt_json json = {0};
    snprintf(path, sizeof path, "%s/golden/trainer/eval_loss.json", TT_TEST_ROOT);
    assert_int_equal(tt_json_read(path, 1 << 20, &json), TT_OK);
    assert_int_equal(tt_json_double(&json, json.root, "loss_per_token", &wanted), TT_OK);
    assert_int_equal(test_read_log(output, "eval_loss", losses, 2), 2);
    if (fabs(losses[1] - wanted) > 1e-4 * wanted) fail_msg("eval_loss %.7f, wanted %.7f", losses[1], wanted);
    tt_json_deinit(&json);
}

static void records_of_a_run(void **state)
{
    (void)state;
    char eval[512], checkpoint[512];
    struct test_words settings = {0};
    char *output = test_folder_create();
    snprintf(eval, sizeof eval, "%s/eval.jsonl", output);
    test_copy_lines(TT_TEST_ROOT "/golden/llama2/train.jsonl", 6, eval); /* as make_trainer.py */
    test_golden_inputs(&settings, "llama2", true);
    test_words_pair(&settings, "eval_dataset", eval);
    test_words_add(&settings,
                   TEST_GOLDEN_STEPS " per_device_eval_batch_size 4 eval_strategy steps eval_steps 10 "
                                     "save_steps 10 learning_rate 0.01 threads 1");
    struct tt_train_summary summary;
    test_train_ok(settings.list, output, &summary);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-20", output);
    compare_state(checkpoint, "trainer_state.json", 22);
    compare_state(output, "final_trainer_state.json", 23);
    compare_metrics_lines(output, 23);
    compare_eval_loss(output);
    compare_file(output, "train_results.json");
    compare_file(output, "eval_results.json");
    compare_file(output, "all_results.json");
    test_folder_remove(output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(records_of_a_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
