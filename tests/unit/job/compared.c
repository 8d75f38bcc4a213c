/* What is compared between the processes of a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "job/compared.h"

static bool has_line(const struct tt_str *text, const char *line)
{
    size_t bytes = strlen(line);
    for (const char *at = tt_str_text(text); *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n')
        if (strncmp(at, line, bytes) == 0 && at[bytes] == '\n') return true;
    return false;
}

/* It has what must be the same, and nothing else. */
static void a_training(void **state)
{
    (void)state;
    struct tt_job_spec job = {.run.seed = 7,
                              .launch.machine_rank = 3,
                              .device.threads = 5,
                              .device.tuning.cpu_gemm = TT_TUNING_GEMM_DOT,
                              .device.tuning.hang_seconds = 9,
                              .launch.main_process_ip = "x",
                              .watch.report_to = TT_REPORT_TENSORBOARD | TT_REPORT_TRACKER};
    struct tt_str text = {0};
    assert_int_equal(tt_job_compared(TT_JOB_TRAIN, &job, 0, &text), TT_OK);
    assert_true(has_line(&text, "seed: 7"));
    assert_true(has_line(&text, "learning_rate: 0"));
    assert_true(has_line(&text, "model_name_or_path: null"));
    assert_true(has_line(&text, "cpu_gemm: dot"));
    assert_true(has_line(&text, "deterministic: false"));
    assert_true(has_line(&text, "report_to: tensorboard wandb"));
    static const char *const own[] = {"machine_rank", "threads", "main_process_ip", "hang_seconds",
                                      "log_level"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strstr(tt_str_text(&text), own[i]) != NULL) fail_msg("%s is compared", own[i]);
    tt_str_deinit(&text);
}

/* Other kinds compare what they have of their own. */
static void other_kinds(void **state)
{
    (void)state;
    struct tt_eval_spec evaluation = {.job.run.seed = 7, .exact_match = true, .max_new_tokens = 11};
    struct tt_bench_spec bench = {.job.run.seed = 7, .sequence_length = 13, .config_json = "c.json"};
    struct tt_str text = {0};
    assert_int_equal(tt_job_compared(TT_JOB_EVALUATE, &evaluation, 0, &text), TT_OK);
    assert_true(has_line(&text, "exact_match: true"));
    assert_true(has_line(&text, "max_new_tokens: 11"));
    assert_true(has_line(&text, "seed: 7"));
    assert_false(has_line(&text, "learning_rate: 0"));
    tt_str_clear(&text);
    assert_int_equal(tt_job_compared(TT_JOB_BENCH, &bench, 0, &text), TT_OK);
    assert_true(has_line(&text, "sequence_length: 13"));
    assert_true(has_line(&text, "config_json: c.json"));
    assert_true(has_line(&text, "learning_rate: 0"));
    tt_str_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_training),
        cmocka_unit_test(other_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
