/* Sees to it that everything that should train does: a trainable parameter that gets no gradient in three steps whose
 * batch could have given it one ends the run, which names it.
 *
 * A step can give a parameter a gradient when its loss is above zero and
 *   q_proj, k_proj, their norms, biases and adapters   a supervised row attends to another token than its own: to one
 *                                                      before it in its sample, and that one is different
 *   lora_A      B is not zero
 *   lora_B      not A alone is zero: with both at zero neither ever trains
 *   adapters with dropout   so many inputs of the supervised rows are left that dropping all of them is impossible
 *   all others              a row is supervised
 * These are sufficient conditions, for the embedding, tied or not, as well: whatever token stands in the batch, its
 * row gets a gradient. Steps without them are not counted. */
#ifndef TT_ENGINE_GRADIENT_WATCH_H
#define TT_ENGINE_GRADIENT_WATCH_H

#include "data/batch.h"
#include "engine/rank.h"

struct tt_watched_param {
    bool watched;   /* it trains, and some batch can give it a gradient */
    bool seen;      /* it has had a gradient */
    int silent;     /* steps that could have given it one and did not */
    bool attends;   /* only a row with two keys reaches it */
    int64_t inputs; /* of an adapter: columns of its A; else 0 */
    int64_t other;  /* of an adapter: index of B for A, of A for B */
    bool is_A;
};

struct tt_gradient_watch {
    struct tt_watched_param *params; /* owned, per entry of model->params */
    size_t count;
    double kept; /* share of an adapter's inputs that dropout leaves */
    bool over;   /* all have had a gradient */
};
TT_MUST_USE tt_status tt_gradient_watch_init(const struct tt_model *model, struct tt_gradient_watch *watch);
void tt_gradient_watch_deinit(struct tt_gradient_watch *watch);

/* What the batch of a step offers, summed over ranks and micro batches. */
struct tt_gradient_chances {
    int64_t supervised_rows;
    int64_t attending_rows; /* of them, those that attend to another token */
    double loss;
};
/* Rows of one micro batch that attend to another token. */
int64_t tt_gradient_attending_rows(const struct tt_batch *batch);
/* After the backward passes of `step` (from 0) and before the update. Collective; TT_ERR_DATA names a parameter that
 * would not train. */
TT_MUST_USE tt_status tt_gradient_watch_step(struct tt_gradient_watch *watch, struct tt_rank *rank,
                                             const struct tt_gradient_chances *chances);

/* squares[i]: sum of squares of the gradient of model->params[i] (`masters`: of its value), over all ranks that split
 * it; 0 when it does not train. Collective. */
TT_MUST_USE tt_status tt_param_squares(struct tt_rank *rank, bool masters, double *squares);

#endif
