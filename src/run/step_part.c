#include "run/step_part.h"

static const double every_seconds = 1.0, part_max = 0.99, part_of_estimate = 0.1;

void tt_step_part_begin(struct tt_step_part *part, tt_phase_sink *next)
{
    part->next = next;
    part->start = tt_clock_seconds();
    part->done = 0;
}

/* The time left after the last step, or before the first one an estimate from its part. */
static double seconds_left(const struct tt_step_part *part, double share, double spent)
{
    const struct tt_progress *last = &part->last;
    if (last->seconds_left >= 0) return last->seconds_left > spent ? last->seconds_left - spent : 0;
    if (share < part_of_estimate) return -1;
    return spent / share * (double)(last->max_steps - last->step) - spent;
}

void tt_step_part_phase(void *context, enum tt_phase phase, double start, double seconds)
{
    struct tt_step_part *part = context;
    const struct tt_train_observer *observer = part->observer;
    double now = start + seconds;
    if (part->next != NULL) part->next(part->next_context, phase, start, seconds);
    if (phase == TT_PHASE_FORWARD) part->done += 1;
    if (phase == TT_PHASE_REDUCE) part->done += 2;
    if (observer == NULL || observer->on_step_part == NULL || now - part->reported_at < every_seconds) return;
    double share = part->done / part->pieces;
    if (share > part_max) share = part_max;
    struct tt_progress progress = part->last;
    progress.seconds_left = seconds_left(part, share, now - part->start);
    part->reported_at = now;
    observer->on_step_part(observer->context, &progress, share);
}
