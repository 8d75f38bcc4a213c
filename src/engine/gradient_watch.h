/* Detects parameters that do not train: a trainable parameter without a gradient in three steps whose batch could have
 * given it one ends the run, with an error that names it.
 *
 * A step can give a parameter a gradient when its loss is above zero and
 *   q, k and their adapters   a supervised row attends to an earlier and different token of its sample: they reach the
 *                             loss through attention's scores alone (tensor/param.h)
 *   lora_A                    B is not zero
 *   lora_B                    A is not zero, or both are zero, in which case neither ever trains
 *   adapters with dropout     the supervised rows have too many inputs for dropout to drop them all
 *   all others                a row is supervised
 * These are sufficient conditions, also for the embedding, tied or not: the row of each token in the batch gets a
 * gradient. Steps without them are not counted. */
#ifndef TT_ENGINE_GRADIENT_WATCH_H
#define TT_ENGINE_GRADIENT_WATCH_H

#include "data/batch.h"
#include "engine/rank.h"

struct tt_watched_param {
    bool watched;   /* trainable, and some batch can give it a gradient */
    bool seen;      /* it had a gradient in some step */
    int silent;     /* number of steps without a gradient that could have given it one */
    bool attends;   /* gets gradients only from rows that attend to another token */
    int64_t inputs; /* of an adapter: columns of its A; else 0 */
    int64_t other;  /* of an adapter: index of B for A, of A for B */
    bool is_A;
};

struct tt_gradient_watch {
    struct tt_watched_param *params; /* owned, per entry of model->params */
    size_t count;
    double kept; /* share of an adapter's inputs that dropout keeps */
    bool over;   /* all watched parameters had a gradient */
};
TT_MUST_USE tt_status tt_gradient_watch_init(const struct tt_model *model, struct tt_gradient_watch *watch);
void tt_gradient_watch_deinit(struct tt_gradient_watch *watch);

/* The rows of a step's batch that give gradients, summed over ranks and micro batches. */
struct tt_gradient_chances {
    int64_t supervised_rows;
    int64_t attending_rows; /* of them, those that attend to another token */
    double loss;
};
/* Rows of one micro batch that attend to another token. */
int64_t tt_gradient_attending_rows(const struct tt_batch *batch);
/* Called after the backward passes of `step` (from 0) and before the update. Collective; TT_ERR_DATA names a parameter
 * that would not train. */
TT_MUST_USE tt_status tt_gradient_watch_step(struct tt_gradient_watch *watch, struct tt_rank *rank,
                                             const struct tt_gradient_chances *chances);

/* squares[i]: sum of squares of the gradient of model->params[i] (`masters`: of its value), over all ranks that split
 * it; 0 when it does not train. Collective. */
TT_MUST_USE tt_status tt_param_squares(struct tt_rank *rank, bool masters, double *squares);

#endif
