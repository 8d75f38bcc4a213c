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

enum {
    LOSS,
    NLL,
    CHOSEN_ROWS,
    REJECTED_ROWS,
    CHOSEN_LOGITS,
    REJECTED_LOGITS,
    ACCURACY,
    CHOSEN_REWARD,
    REJECTED_REWARD,
    MARGIN,
    CHOSEN_LOGP,
    REJECTED_LOGP,
    RATIO,
    ODDS
};

static const struct tt_metric metrics[] = {
    {"loss", LOSS, TT_OVER_GROUPS, TT_BETTER_SMALLER},
    {"nll_loss", NLL, CHOSEN_ROWS, TT_BETTER_SMALLER},
    {"log_odds_ratio", RATIO, TT_OVER_GROUPS, TT_BETTER_GREATER},
    {"log_odds_chosen", ODDS, TT_OVER_GROUPS, TT_BETTER_GREATER},
    {"rewards/chosen", CHOSEN_REWARD, TT_OVER_GROUPS, TT_BETTER_NONE},
    {"rewards/rejected", REJECTED_REWARD, TT_OVER_GROUPS, TT_BETTER_NONE},
    {"rewards/accuracies", ACCURACY, TT_OVER_GROUPS, TT_BETTER_GREATER},
    {"rewards/margins", MARGIN, TT_OVER_GROUPS, TT_BETTER_GREATER},
    {"logps/chosen", CHOSEN_LOGP, TT_OVER_GROUPS, TT_BETTER_NONE},
    {"logps/rejected", REJECTED_LOGP, TT_OVER_GROUPS, TT_BETTER_NONE},
    {"logits/chosen", CHOSEN_LOGITS, CHOSEN_ROWS, TT_BETTER_NONE},
    {"logits/rejected", REJECTED_LOGITS, REJECTED_ROWS, TT_BETTER_NONE},
};

/* A prompt with an answer. */
struct side {
    int64_t first, end; /* rows */
    int64_t tokens;     /* of the answer */
    double mean;        /* of log p of the answer's tokens */
    double nll, logits; /* sums over all rows */
};

static struct side read_side(const struct tt_objective_rows *rows, int64_t sequence, int64_t first)
{
    struct side side = {.first = first, .end = tt_objective_rows_end(rows->batch, sequence, first)};
    double answer = 0;
    for (int64_t n = first; n < side.end; n++) {
        bool counts = rows->batch->supervised[n] != 0;
        side.nll -= (double)rows->logp_N[n];
        side.logits += (double)rows->mean_N[n];
        answer += counts ? (double)rows->logp_N[n] : 0;
        side.tokens += counts;
    }
    side.mean = side.tokens > 0 ? answer / (double)side.tokens : 0;
    return side;
}

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
static void scale(const struct tt_objective_rows *rows, const struct side *side, double by_mean, double nll)
{
    for (int64_t n = side->first; n < side->end; n++) {
        double odds = rows->batch->supervised[n] != 0 ? -by_mean / (double)side->tokens : 0;
        rows->scale_N[n] = (float)(nll + odds);
    }
}

static void add_metrics(double *sums, double beta, const struct side *chosen, const struct side *rejected)
{
    sums[NLL] += chosen->nll;
    sums[CHOSEN_ROWS] += (double)(chosen->end - chosen->first);
    sums[REJECTED_ROWS] += (double)(rejected->end - rejected->first);
    sums[CHOSEN_LOGITS] += chosen->logits;
    sums[REJECTED_LOGITS] += rejected->logits;
    sums[CHOSEN_REWARD] += beta * chosen->mean;
    sums[REJECTED_REWARD] += beta * rejected->mean;
    sums[ACCURACY] += chosen->mean > rejected->mean;
    sums[MARGIN] += beta * (chosen->mean - rejected->mean);
    sums[CHOSEN_LOGP] += chosen->mean;
    sums[REJECTED_LOGP] += rejected->mean;
}

static tt_status run(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    double beta = objective->values[BETA], *sums = rows->sums;
    double pairs = (double)rows->counts->groups, nll = 1 / (double)rows->counts->leading_tokens;
    int64_t row = 0;
    for (int64_t pair = 0; pair < rows->batch->group_count; pair++) {
        struct side chosen = read_side(rows, 2 * pair, row);
        struct side rejected = read_side(rows, 2 * pair + 1, chosen.end);
        double x = log_odds(chosen.mean) - log_odds(rejected.mean), ratio = tt_log_logistic(x);
        double by_odds = -beta * exp(tt_log_logistic(-x)) / pairs;
        scale(rows, &chosen, by_odds / -expm1(below_one(chosen.mean)), nll);
        scale(rows, &rejected, -by_odds / -expm1(below_one(rejected.mean)), 0);
        row = rejected.end;
        sums[LOSS] += chosen.nll * nll * pairs - beta * ratio;
        sums[RATIO] += ratio;
        sums[ODDS] += x;
        add_metrics(sums, beta, &chosen, &rejected);
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
