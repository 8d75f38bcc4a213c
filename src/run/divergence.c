#include "run/divergence.h"

#include <math.h>

static double mean_of(const struct tt_divergence *divergence)
{
    double sum = 0;
    for (int i = 0; i < TT_DIVERGENCE_STEPS; i++) sum += divergence->losses[i];
    return sum / TT_DIVERGENCE_STEPS;
}

void tt_divergence_record(struct tt_divergence *divergence, int64_t step, double loss)
{
    if (divergence->count == 0) {
        divergence->first = loss;
        divergence->least = divergence->guess > 0 ? INFINITY : loss;
    }
    divergence->losses[divergence->count++ % TT_DIVERGENCE_STEPS] = loss;
    if (divergence->count < TT_DIVERGENCE_STEPS) return;
    divergence->mean = mean_of(divergence);
    divergence->guesses = divergence->guess > 0 && divergence->first < divergence->guess - 1.0 &&
                          divergence->mean > divergence->guess;
    divergence->diverges = divergence->guesses || divergence->mean > 2.0 * divergence->least + 1.5;
    if (divergence->mean < divergence->least) divergence->least = divergence->mean;
    if (divergence->diverges && divergence->step == 0) divergence->step = step;
}
