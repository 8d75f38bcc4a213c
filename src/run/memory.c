#include "run/memory.h"

#include <string.h>

void tt_counters_add_step(struct tt_counters *counters, const struct tt_train_step_result *result,
                          int64_t counted, double seconds)
{
    counters->steps_done++;
    counters->train_seconds += seconds;
    counters->loss_sum += result->loss;
    for (int i = 0; i < TT_OBJECTIVE_METRICS_MAX; i++) counters->window[i] += result->metrics[i];
    counters->window_aux_loss += result->aux_loss;
    counters->window_tokens += (double)counted;
    counters->window_seconds += seconds;
    counters->window_steps++;
    counters->tokens += counted;
    counters->supervised_tokens += result->facts.supervised;
    counters->samples += result->facts.samples;
    counters->pixels += result->facts.pixels;
}

void tt_counters_clear_window(struct tt_counters *counters)
{
    memset(counters->window, 0, sizeof counters->window);
    counters->window_aux_loss = counters->window_tokens = counters->window_seconds = 0.0;
    counters->window_steps = 0;
}
