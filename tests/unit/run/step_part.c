/* How far a step is, from its phases, at times that the test makes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/step_part.h"

struct reported {
    int calls, phases;
    double part;
    struct tt_progress progress;
};

static void on_step_part(void *context, const struct tt_progress *progress, double part)
{
    struct reported *reported = context;
    reported->calls++;
    reported->part = part;
    reported->progress = *progress;
}

static void on_phase(void *context, enum tt_phase phase, double start, double seconds)
{
    struct reported *reported = context;
    (void)phase, (void)start, (void)seconds;
    reported->phases++;
}

static void reports_once_a_second(void **state)
{
    (void)state;
    struct reported reported = {0};
    const struct tt_train_observer observer = {.context = &reported, .on_step_part = on_step_part};
    struct tt_step_part part = {.observer = &observer,
                                .pieces = 3 * 4,
                                .next_context = &reported,
                                .last = {.max_steps = 10, .seconds_left = -1}};
    tt_step_part_begin(&part, on_phase);
    const double start = part.start;
    tt_step_part_phase(&part, TT_PHASE_DATA, start, 0.0);
    assert_int_equal(reported.calls, 1);
    assert_true(reported.part == 0 && reported.progress.seconds_left < 0); /* nothing is known */
    tt_step_part_phase(&part, TT_PHASE_FORWARD, start, 0.9);
    assert_int_equal(reported.calls, 1);
    tt_step_part_phase(&part, TT_PHASE_GATHER, start + 0.9, 0.2);
    assert_int_equal(reported.calls, 2);
    assert_float_equal(reported.part, 1.0 / 12, 1e-9);
    assert_true(reported.progress.seconds_left < 0); /* too early to say */
    tt_step_part_phase(&part, TT_PHASE_REDUCE, start + 1.1, 1.9);
    assert_float_equal(reported.part, 0.25, 1e-9);
    assert_float_equal(reported.progress.seconds_left, 12 * 10 - 3, 1e-6);
    for (int i = 0; i < 20; i++) tt_step_part_phase(&part, TT_PHASE_REDUCE, start + 3 + i, 1);
    assert_true(reported.part < 1);
    assert_int_equal(reported.phases, 24);
    /* After a step its time is known; the time since then is no longer left. */
    part.last.step = 1;
    part.last.seconds_left = 100;
    tt_step_part_begin(&part, NULL);
    tt_step_part_phase(&part, TT_PHASE_FORWARD, part.start, 40);
    assert_float_equal(reported.progress.seconds_left, 60, 1e-6);
    assert_int_equal(reported.progress.step, 1);
    assert_int_equal(reported.phases, 24);
    tt_step_part_phase(&part, TT_PHASE_FORWARD, part.start + 40, 100);
    assert_true(reported.progress.seconds_left == 0);
}

static void no_observer_no_report(void **state)
{
    (void)state;
    const struct tt_train_observer silent = {0};
    struct tt_step_part part = {.pieces = 1};
    tt_step_part_begin(&part, NULL);
    tt_step_part_phase(&part, TT_PHASE_FORWARD, part.start, 5);
    part.observer = &silent;
    tt_step_part_phase(&part, TT_PHASE_FORWARD, part.start, 9);
    assert_true(part.reported_at == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_once_a_second),
        cmocka_unit_test(no_observer_no_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
