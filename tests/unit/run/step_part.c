/* How far a step is, from its phases, at times that the test makes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/step_part.h"

struct told {
    int calls, phases;
    double part;
    struct tt_progress progress;
};

static void on_step_part(void *context, const struct tt_progress *progress, double part)
{
    struct told *told = context;
    told->calls++;
    told->part = part;
    told->progress = *progress;
}

static void on_phase(void *context, enum tt_phase phase, double start, double seconds)
{
    struct told *told = context;
    (void)phase, (void)start, (void)seconds;
    told->phases++;
}

static void told_once_a_second(void **state)
{
    (void)state;
    struct told told = {0};
    const struct tt_train_observer observer = {.context = &told, .on_step_part = on_step_part};
    struct tt_step_part part = {.observer = &observer,
                                .pieces = 3 * 4,
                                .next_context = &told,
                                .last = {.max_steps = 10, .seconds_left = -1}};
    tt_step_part_begin(&part, on_phase);
    const double start = part.start;
    tt_step_part_phase(&part, TT_PHASE_DATA, start, 0.0);
    assert_int_equal(told.calls, 1);
    assert_true(told.part == 0 && told.progress.seconds_left < 0); /* nothing is known */
    tt_step_part_phase(&part, TT_PHASE_FORWARD, start, 0.9);
    assert_int_equal(told.calls, 1);
    tt_step_part_phase(&part, TT_PHASE_GATHER, start + 0.9, 0.2);
    assert_int_equal(told.calls, 2);
    assert_float_equal(told.part, 1.0 / 12, 1e-9);
    assert_true(told.progress.seconds_left < 0); /* too early to say */
    tt_step_part_phase(&part, TT_PHASE_REDUCE, start + 1.1, 1.9);
    assert_float_equal(told.part, 0.25, 1e-9);
    assert_float_equal(told.progress.seconds_left, 12 * 10 - 3, 1e-6);
    for (int i = 0; i < 20; i++) tt_step_part_phase(&part, TT_PHASE_REDUCE, start + 3 + i, 1);
    assert_true(told.part < 1);
    assert_int_equal(told.phases, 24);
    /* After a step its time is known; the time since then is no longer left. */
    part.last.step = 1;
    part.last.seconds_left = 100;
    tt_step_part_begin(&part, NULL);
    tt_step_part_phase(&part, TT_PHASE_FORWARD, part.start, 40);
    assert_float_equal(told.progress.seconds_left, 60, 1e-6);
    assert_int_equal(told.progress.step, 1);
    assert_int_equal(told.phases, 24);
    tt_step_part_phase(&part, TT_PHASE_FORWARD, part.start + 40, 100);
    assert_true(told.progress.seconds_left == 0);
}

static void nobody_is_told(void **state)
{
    (void)state;
    const struct tt_train_observer silent = {0};
    struct tt_step_part part = {.pieces = 1};
    tt_step_part_begin(&part, NULL);
    tt_step_part_phase(&part, TT_PHASE_FORWARD, part.start, 5);
    part.observer = &silent;
    tt_step_part_phase(&part, TT_PHASE_FORWARD, part.start, 9);
    assert_true(part.told_at == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(told_once_a_second),
        cmocka_unit_test(nobody_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
