/* monitor/live.h: the texts of both formats, and when a loop counts as frozen or ready. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"
#include "monitor/exposition.h"
#include "monitor/live.h"

static double fixed_beat(void *context)
{
    return *(const double *)context;
}

static struct tt_live *open_live(double frozen_seconds, double *beat)
{
    struct tt_live *live = NULL;
    struct tt_live_config config = {
        .frozen_seconds = frozen_seconds, .purposes = {"weights", "batch"}, .purpose_count = 2};
    const struct tt_live_place place = {0, 2, 3, beat != NULL ? fixed_beat : NULL, beat};
    assert_int_equal(tt_live_create(&config, &live), TT_OK);
    char why[200];
    assert_true(tt_live_is_healthy(live, why, sizeof why));
    assert_false(tt_live_is_ready(live, false, why, sizeof why));
    assert_non_null(strstr(why, "not yet"));
    assert_int_equal(tt_live_attach(live, &place), TT_OK);
    assert_true(tt_live_is_ready(live, false, why, sizeof why));
    assert_false(tt_live_is_ready(live, true, why, sizeof why));
    return live;
}

static void step_once(struct tt_live *live, int64_t number, double seconds)
{
    const struct tt_live_rank_step rank = {.phases = {[TT_LIVE_DATA] = 0.25, [TT_LIVE_COMPUTE] = 1.5},
                                           .rank_wait = 0.125,
                                           .bytes = {1024},
                                           .peak_bytes = 4096};
    const struct tt_live_step step = {.step = number,
                                      .seconds = seconds,
                                      .tokens = 100.0 * (double)number,
                                      .loss = number == 1 ? 2.5 : NAN,
                                      .learning_rate = 1e-4,
                                      .grad_norm = INFINITY};
    tt_live_rank_step(live, 0, &rank);
    tt_live_rank_step(live, 1, &rank);
    tt_live_rank_step(live, 2, &rank); /* of another process */
    tt_live_step(live, &step);
}

static void expect_line(const struct tt_str *text, const char *line)
{
    char wanted[200];
    snprintf(wanted, sizeof wanted, "\n%s\n", line);
    if (strstr(tt_str_text(text), wanted) == NULL) fail_msg("no line '%s' in:\n%s", line, tt_str_text(text));
}

static void expect_none(const struct tt_str *text, const char *part)
{
    if (strstr(tt_str_text(text), part) != NULL) fail_msg("'%s' in:\n%s", part, tt_str_text(text));
}

static void both_formats(void **state)
{
    struct tt_str text = {0};
    struct tt_live *live = open_live(10, NULL);
    (void)state;
    assert_int_equal(tt_live_metrics(live, false, &text), TT_OK);
    expect_line(&text, "trimtab_steps_total 0");
    expect_none(&text, "trimtab_loss"); /* before a step there is none */
    expect_none(&text, "trimtab_checkpoint");
    step_once(live, 1, 0.02);
    step_once(live, 2, 3);
    tt_live_save(live, 2, 1.5);
    tt_live_evaluation(live, 0.5, &(struct tt_live_metric){"map", "Precision.", 0.25});
    tt_live_rank_seconds(live, 1, TT_LIVE_SAVE, 0.5);
    tt_str_clear(&text);
    assert_int_equal(tt_live_metrics(live, false, &text), TT_OK);
    static const char *const older[] = {"# TYPE trimtab_steps_total counter",
                                        "trimtab_steps_total 2",
                                        "# TYPE trimtab_build_info gauge",
                                        "trimtab_tokens_total 200",
                                        "trimtab_loss NaN",
                                        "trimtab_grad_norm +Inf",
                                        "trimtab_step_seconds_bucket{le=\"0.01\"} 0",
                                        "trimtab_step_seconds_bucket{le=\"0.025\"} 1",
                                        "trimtab_step_seconds_bucket{le=\"2.5\"} 1",
                                        "trimtab_step_seconds_bucket{le=\"5.0\"} 2",
                                        "trimtab_step_seconds_bucket{le=\"+Inf\"} 2",
                                        "trimtab_step_seconds_sum 3.02",
                                        "trimtab_step_seconds_count 2",
                                        "trimtab_phase_seconds_total{rank=\"1\",phase=\"compute\"} 3",
                                        "trimtab_phase_seconds_total{rank=\"1\",phase=\"save\"} 0.5",
                                        "trimtab_rank_wait_seconds_total{rank=\"0\"} 0.25",
                                        "trimtab_device_memory_bytes{rank=\"0\",kind=\"weights\"} 1024",
                                        "trimtab_eval_loss 0.5",
                                        "# HELP trimtab_eval_map Precision.",
                                        "trimtab_eval_map 0.25",
                                        "trimtab_checkpoint_last_step 2",
                                        "trimtab_checkpoint_save_seconds 1.5"};
    for (size_t i = 0; i < sizeof older / sizeof *older; i++) expect_line(&text, older[i]);
    tt_live_evaluation(live, 0.25, NULL);
    expect_none(&text, "rank=\"2\"");
    expect_none(&text, "# EOF");
    expect_none(&text, "# UNIT");
    tt_str_clear(&text);
    assert_int_equal(tt_live_metrics(live, true, &text), TT_OK);
    expect_line(&text, "trimtab_eval_loss 0.25");
    expect_none(&text, "trimtab_eval_map");
    static const char *const newer[] = {"# TYPE trimtab_steps counter", "trimtab_steps_total 2",
                                        "# TYPE trimtab_build info", "# UNIT trimtab_phase_seconds seconds"};
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) expect_line(&text, newer[i]);
    assert_true(tt_ends_with(tt_str_text(&text), "\n# EOF\n"));
    tt_live_destroy(live);
    tt_str_deinit(&text);
}

static void frozen(void **state)
{
    const struct timespec pause = {.tv_nsec = 150000000};
    char why[200];
    double beat = 0;
    struct tt_live *live = open_live(0.1, &beat);
    (void)state;
    tt_live_activity(live, "training", true);
    nanosleep(&pause, NULL);
    assert_true(tt_live_is_healthy(live, why, sizeof why)); /* the first step may take long */
    step_once(live, 1, 0.01);
    assert_true(tt_live_is_healthy(live, why, sizeof why));
    assert_true(tt_live_is_ready(live, true, why, sizeof why));
    nanosleep(&pause, NULL);
    assert_false(tt_live_is_healthy(live, why, sizeof why));
    assert_non_null(strstr(why, "while training after step 1"));
    beat = tt_clock_seconds(); /* a block of the step began */
    assert_true(tt_live_is_healthy(live, why, sizeof why));
    tt_live_activity(live, "saving", false);
    nanosleep(&pause, NULL);
    assert_true(tt_live_is_healthy(live, why, sizeof why)); /* a slow disk is no hang */
    step_once(live, 2, 0.4);                                /* a step three times as long is none, either */
    tt_live_activity(live, "training", true);
    nanosleep(&pause, NULL);
    assert_true(tt_live_is_healthy(live, why, sizeof why));
    tt_live_detach(live);
    assert_true(tt_live_is_healthy(live, why, sizeof why));
    tt_live_destroy(live);
}

static void nobody_watches(void **state)
{
    (void)state;
    tt_live_activity(NULL, "training", true);
    tt_live_rank_step(NULL, 0, NULL);
    tt_live_rank_seconds(NULL, 0, TT_LIVE_SAVE, 1);
    tt_live_start(NULL, NULL);
    tt_live_step(NULL, NULL);
    tt_live_evaluation(NULL, 1, NULL);
    tt_live_save(NULL, 1, 1);
    tt_live_detach(NULL);
    tt_live_destroy(NULL);
    assert_true(tt_exposition_wants_open_metrics("text/plain, application/openmetrics-text; version=1.0.0"));
    assert_false(tt_exposition_wants_open_metrics("text/plain"));
    assert_false(tt_exposition_wants_open_metrics(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_formats), cmocka_unit_test(frozen),
                                       cmocka_unit_test(nobody_watches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
