#include "run/run_length.h"

#include <math.h>

int64_t tt_run_to_steps(double steps)
{
    return steps < 9e18 ? (int64_t)steps : INT64_MAX;
}

void tt_run_length_count(struct tt_run_length *length, const struct tt_run_spec *run, int64_t steps_per_epoch)
{
    length->steps_per_epoch = steps_per_epoch;
    length->total_steps = run->max_steps > 0
                              ? run->max_steps
                              : tt_run_to_steps(ceil(run->num_train_epochs * (double)steps_per_epoch));
}

/* An interval in steps: a share of all steps if `every` is below 1; 0: never. */
static int64_t resolve(const struct tt_run_length *length, enum tt_interval strategy, double every)
{
    if (strategy == TT_INTERVAL_EPOCH) return length->steps_per_epoch;
    if (strategy != TT_INTERVAL_STEPS || every <= 0.0) return 0;
    return tt_run_to_steps(every < 1.0 ? ceil((double)length->total_steps * every) : every);
}

void tt_run_length_resolve(struct tt_run_length *length, const struct tt_watch_spec *watch)
{
    length->logging_steps = resolve(length, watch->logging_strategy, watch->logging_steps);
    length->eval_steps = resolve(length, watch->eval_strategy, watch->eval_steps);
    length->save_steps = resolve(length, watch->save_strategy, watch->save_steps);
}

bool tt_run_is_due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}
