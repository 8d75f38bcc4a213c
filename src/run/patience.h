/* Early stopping by transformers' EarlyStoppingCallback (5.17): each evaluation is compared with the best one before
 * it, saved or not. It is an improvement when it is better by more than the threshold, and the first one always is;
 * NaN is none after it. */
#ifndef TT_RUN_PATIENCE_H
#define TT_RUN_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

/* A zeroed struct has seen no evaluation. */
struct tt_patience {
    bool known;
    double metric;  /* the best one; an infinity when all were NaN */
    int64_t waited; /* evaluations without an improvement since the last one that was */
};

/* `greater`: a greater metric is better. */
void tt_patience_record(struct tt_patience *patience, double metric, bool greater, double threshold);

#endif
