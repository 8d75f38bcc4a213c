/* Supervised fine-tuning: the mean cross entropy of the supervised tokens. Every row stands alone, so the head makes
 * loss and gradient in one pass over the logits (nn/head.h). */
#include "objective/objective.h"

/* The sums of the op loss_sums (backend/ops/cross_entropy.h). */
enum { LOSS, CORRECT, ENTROPY };

static const struct tt_metric metrics[] = {
    {"loss", LOSS, TT_OVER_TOKENS, TT_BETTER_SMALLER},
    {"entropy", ENTROPY, TT_OVER_TOKENS, TT_BETTER_NONE}, /* in nats */
    {"mean_token_accuracy", CORRECT, TT_OVER_TOKENS, TT_BETTER_GREATER},
};

const struct tt_setting tt_objective_sft_settings[] = {{.name = NULL}};

const struct tt_objective_ops tt_objective_sft = {
    .name = "sft",
    .metrics = metrics,
    .metric_count = sizeof metrics / sizeof *metrics,
};
