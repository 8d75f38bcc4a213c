/* A loss that is finite and rises: the sign of a learning rate that is too high. Losses of single steps differ by their
 * batches, so means of TT_DIVERGENCE_STEPS are compared. */
#ifndef TT_RUN_DIVERGENCE_H
#define TT_RUN_DIVERGENCE_H

#include <stdbool.h>
#include <stdint.h>

enum { TT_DIVERGENCE_STEPS = 10 };

/* A struct that has only `guess` set has seen no step. */
struct tt_divergence {
    /* loss of a model that guesses, the log of the vocabulary; 0: the objective has none */
    double guess;
    double losses[TT_DIVERGENCE_STEPS]; /* of the last steps, in a ring */
    int64_t count;
    double first;       /* loss of the first step */
    double mean, least; /* of the last steps; the least so far */
    int64_t step;       /* the first one at which it diverged; 0: none yet */
    bool diverges;      /* by the last steps */
    bool guesses;       /* they are worse than guessing, and the first one was better */
};

/* Records the loss of `step` (from 1). The training diverges when the mean is above twice the least one and 1.5 more,
 * or above `guess` where the first step was better than that by 1. Without `guess` the first loss counts as a mean. */
void tt_divergence_record(struct tt_divergence *divergence, int64_t step, double loss);

#endif
