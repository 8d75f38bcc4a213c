/* Odds ratio preference optimization (Hong et al., arXiv 2403.07691), without a reference. A group is a pair: the
 * answer that was chosen, then the one that was rejected. With p the mean log-probability of an answer's tokens, the
 * log odds of a pair are
 *     x = (p of the chosen - p of the rejected) - (log(1 - e^p) of the chosen - log(1 - e^p) of the rejected)
 * and the loss is the cross entropy of prompt and chosen answer, a mean over their tokens in the step, less beta times
 * log s(x), s the logistic function, a mean over the pairs: TRL's ORPOTrainer. */
#include <math.h>

#include "data/row_kind.h"
#include "objective/logistic.h"
#include "objective/objective.h"
#include "objective/pairs.h"

enum { BETA };

/* Name and default are those of TRL's ORPOConfig. One row reads as one paragraph. */
/* clang-format off */
const struct tt_setting tt_objective_orpo_settings[] = {
    {.name = "beta", TT_OBJECTIVE_SETTING(BETA), .default_text = "0.1", .minimum = 1e-6, .maximum = INFINITY,
     .of = "orpo", .help = "With orpo: how much the odds of the two answers count beside the cross entropy."},
    {.name = NULL},
};
/* clang-format on */

static const struct tt_objective_default defaults[] = {
    {"learning_rate", "1e-6"}, {"lora_dropout", "0"}, {NULL, NULL}};

enum { LOSS = TT_PAIR_SUMS, NLL, RATIO, ODDS };

static const struct tt_metric metrics[] = {
    {"loss", LOSS, TT_OVER_GROUPS, TT_BETTER_SMALLER},
    {"nll_loss", NLL, TT_PAIR_CHOSEN_ROWS, TT_BETTER_SMALLER},
    {"log_odds_ratio", RATIO, TT_OVER_GROUPS, TT_BETTER_GREATER},
    {"log_odds_chosen", ODDS, TT_OVER_GROUPS, TT_BETTER_GREATER},
    TT_PAIR_REWARD_METRICS,
    TT_PAIR_LOGIT_METRICS,
};

/* The odds of an answer of probability 1 are infinite: the least distance from it is the precision of a float. */
static double below_one(double mean)
{
    return fmin(mean, -0x1p-24);
}

static double log_odds(double mean)
{
    double p = below_one(mean);
    return p - log(-expm1(p));
}

/* `by_mean`: the derivative of the step's loss by the mean; `nll`: that by -log p of each row of the cross entropy. */
static void scale(const struct tt_objective_rows *rows, const struct tt_pair_side *side, double by_mean,
                  double nll)
{
    for (int64_t n = side->first; n < side->end; n++) {
        double odds = rows->batch->supervised[n] != 0 ? -by_mean / (double)side->tokens : 0;
        rows->scale_N[n] = (float)(nll + odds);
    }
}

static tt_status run(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    double beta = objective->values[BETA], *sums = rows->sums;
    double pairs = (double)rows->counts->groups, nll = 1 / (double)rows->counts->leading_tokens;
    int64_t row = 0;
    for (int64_t pair = 0; pair < rows->batch->group_count; pair++) {
        struct tt_pair_side sides[2];
        struct tt_pair_report means[2];
        for (int s = 0; s < 2; s++) {
            sides[s] = tt_pair_side_read(rows, 2 * pair + s, row);
            means[s].logp = sides[s].tokens > 0 ? sides[s].logp / (double)sides[s].tokens : 0;
            means[s].reward = means[s].logp;
            row = sides[s].end;
        }
        double x = log_odds(means[0].logp) - log_odds(means[1].logp), ratio = tt_log_logistic(x);
        double by_odds = -beta * exp(tt_log_logistic(-x)) / pairs;
        scale(rows, &sides[0], by_odds / -expm1(below_one(means[0].logp)), nll);
        scale(rows, &sides[1], -by_odds / -expm1(below_one(means[1].logp)), 0);
        sums[LOSS] += -sides[0].all * nll * pairs - beta * ratio;
        sums[NLL] -= sides[0].all;
        sums[RATIO] += ratio;
        sums[ODDS] += x;
        tt_pair_add(sums, beta, sides, means);
    }
    return TT_OK;
}

const struct tt_objective_ops tt_objective_orpo = {
    .name = "orpo",
    .metrics = metrics,
    .metric_count = sizeof metrics / sizeof *metrics,
    .settings = tt_objective_orpo_settings,
    .defaults = defaults,
    .needs = TT_NEEDS_WHOLE_ANSWERS | TT_NEEDS_UNPACKED | TT_NEEDS_PROMPT_ROWS,
    .rows_kind = &tt_row_pair,
    .rows = run,
};
