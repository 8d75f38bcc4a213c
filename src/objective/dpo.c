/* Direct preference optimization (Rafailov et al., arXiv 2305.18290). A group is a pair: the answer that was chosen,
 * then the one that was rejected. With log p and reference summed over the supervised tokens of an answer, and
 *     x = beta * ((logp - ref) of the chosen - (logp - ref) of the rejected)
 * the loss of a pair is -log s(x), s the logistic function. With label smoothing e, the probability that a preference
 * is the wrong way round, it has no bias for it (Chowdhury et al., arXiv 2403.00409; TRL's loss_type "robust"):
 *     (-(1 - e) log s(x) + e log s(-x)) / (1 - 2 e)
 * The loss of a step is the mean over its pairs. */
#include <math.h>

#include "objective/objective.h"

enum { BETA, LABEL_SMOOTHING };

static const struct tt_objective_option options[] = {
    [BETA] = {"beta", 0.1, 1e-6, INFINITY},
    [LABEL_SMOOTHING] = {"label_smoothing", 0, 0, 0.5},
};

enum {
    LOSS,
    ENTROPY,
    CHOSEN_TOKENS,
    REJECTED_TOKENS,
    CHOSEN_LOGITS,
    REJECTED_LOGITS,
    CHOSEN_CORRECT,
    CHOSEN_REWARD,
    REJECTED_REWARD,
    ACCURACY,
    MARGIN,
    CHOSEN_LOGP,
    REJECTED_LOGP
};

static const struct tt_metric metrics[] = {
    {"loss", LOSS, TT_OVER_GROUPS, TT_BETTER_SMALLER},
    {"entropy", ENTROPY, TT_OVER_TOKENS, TT_BETTER_NONE},
    {"logits/chosen", CHOSEN_LOGITS, CHOSEN_TOKENS, TT_BETTER_NONE},
    {"logits/rejected", REJECTED_LOGITS, REJECTED_TOKENS, TT_BETTER_NONE},
    {"mean_token_accuracy", CHOSEN_CORRECT, CHOSEN_TOKENS, TT_BETTER_GREATER},
    {"rewards/chosen", CHOSEN_REWARD, TT_OVER_GROUPS, TT_BETTER_NONE},
    {"rewards/rejected", REJECTED_REWARD, TT_OVER_GROUPS, TT_BETTER_NONE},
    {"rewards/accuracies", ACCURACY, TT_OVER_GROUPS, TT_BETTER_GREATER},
    {"rewards/margins", MARGIN, TT_OVER_GROUPS, TT_BETTER_GREATER},
    {"logps/chosen", CHOSEN_LOGP, TT_OVER_GROUPS, TT_BETTER_NONE},
    {"logps/rejected", REJECTED_LOGP, TT_OVER_GROUPS, TT_BETTER_NONE},
};

static double log_logistic(double x)
{
    return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

/* An answer: the sums over its rows. */
struct answer {
    int64_t first, end;
    double logp, ratio; /* log p; less that of the reference */
    double logits;      /* their means over the vocabulary */
};

static struct answer read_answer(const struct tt_objective_rows *rows, int64_t sequence, int64_t first)
{
    struct answer answer = {.first = first, .end = tt_objective_rows_end(rows->batch, sequence, first)};
    double reference = 0;
    for (int64_t n = first; n < answer.end; n++) {
        answer.logp += (double)rows->logp_N[n];
        reference += (double)rows->ref_logp_N[n];
        answer.logits += (double)rows->mean_N[n];
        rows->sums[ENTROPY] += (double)rows->entropy_N[n];
    }
    answer.ratio = answer.logp - reference;
    return answer;
}

static void scale(const struct tt_objective_rows *rows, const struct answer *answer, double value)
{
    for (int64_t n = answer->first; n < answer->end; n++) rows->scale_N[n] = (float)value;
}

static tt_status run(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    double beta = objective->options[BETA], e = objective->options[LABEL_SMOOTHING], *sums = rows->sums;
    int64_t row = 0;
    for (int64_t pair = 0; pair < rows->batch->group_count; pair++) {
        struct answer chosen = read_answer(rows, 2 * pair, row);
        struct answer rejected = read_answer(rows, 2 * pair + 1, chosen.end);
        double x = beta * (chosen.ratio - rejected.ratio);
        double right = log_logistic(x), wrong = log_logistic(-x);
        double loss = (-(1 - e) * right + e * wrong) / (1 - 2 * e);
        double slope = -((1 - e) * exp(wrong) + e * exp(right)) / (1 - 2 * e); /* of the loss by x */
        double by_chosen = -beta * slope / (double)rows->counts->groups;
        scale(rows, &chosen, by_chosen);
        scale(rows, &rejected, -by_chosen);
        row = rejected.end;
        sums[LOSS] += loss;
        for (int64_t n = chosen.first; n < chosen.end; n++) sums[CHOSEN_CORRECT] += rows->correct_N[n];
        sums[CHOSEN_TOKENS] += (double)(chosen.end - chosen.first);
        sums[REJECTED_TOKENS] += (double)(rejected.end - rejected.first);
        sums[CHOSEN_LOGITS] += chosen.logits;
        sums[REJECTED_LOGITS] += rejected.logits;
        sums[CHOSEN_REWARD] += beta * chosen.ratio;
        sums[REJECTED_REWARD] += beta * rejected.ratio;
        sums[ACCURACY] += chosen.ratio > rejected.ratio;
        sums[MARGIN] += x;
        sums[CHOSEN_LOGP] += chosen.logp;
        sums[REJECTED_LOGP] += rejected.logp;
    }
    return TT_OK;
}

const struct tt_objective_ops tt_objective_dpo = {
    .name = "dpo",
    .metrics = metrics,
    .metric_count = sizeof metrics / sizeof *metrics,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .reference = true,
    .group_size = 2,
    .rows = run,
};
