/* Contrastive preference optimization (Xu et al., arXiv 2401.08417) and SimPO (Meng et al., arXiv 2405.14734),
 * without a reference. A group is a pair: the answer that was chosen, then the one that was rejected. With p the
 * log-probability of an answer, summed over its tokens (sigmoid, hinge) or their mean (ipo, simpo, alphapo), the
 * loss of a pair is a function of
 *     d = p of the chosen - p of the rejected
 * and to its mean over the pairs cpo_alpha times the cross entropy of the chosen answers is added, a mean over their
 * tokens in the step. With alphapo_alpha the rewards are those of AlphaPO (arXiv 2501.03884), (1 - e^(-alpha p)) /
 * alpha, in the place of p. TRL's CPOTrainer computes the same; its logits/ are means over prompts and padding too,
 * here over the answers. */
#include <math.h>

#include "data/row_kind.h"
#include "objective/logistic.h"
#include "objective/objective.h"
#include "objective/pairs.h"

enum { BETA, LABEL_SMOOTHING, CPO_ALPHA, SIMPO_GAMMA, ALPHA };
enum { SIGMOID, HINGE, IPO, SIMPO, ALPHAPO }; /* the words in objectives.def */

/* Names and defaults are those of TRL's CPOConfig. One row reads as one paragraph. */
/* clang-format off */
const struct tt_setting tt_objective_cpo_settings[] = {
    {.name = "beta", TT_OBJECTIVE_SETTING(BETA), .default_text = "0.1", .minimum = 1e-6, .maximum = INFINITY,
     .of = "cpo", .help = "With cpo: how much the difference of the two answers counts; papers use 2 to 2.5 with "
     "loss_type simpo."},
    {.name = "label_smoothing", TT_OBJECTIVE_SETTING(LABEL_SMOOTHING), .default_text = "0", .minimum = 0,
     .maximum = 0.5, .of = "cpo",
     .help = "With cpo and loss_type sigmoid, simpo or alphapo: the probability that a preference is the wrong way "
     "round."},
    {.name = "cpo_alpha", TT_OBJECTIVE_SETTING(CPO_ALPHA), .default_text = "1", .minimum = 0, .maximum = INFINITY,
     .of = "cpo",
     .help = "With cpo: the weight of the chosen answers' cross entropy; 0 with loss_type simpo is SimPO."},
    {.name = "simpo_gamma", TT_OBJECTIVE_SETTING(SIMPO_GAMMA), .default_text = "0.5", .minimum = 0,
     .maximum = INFINITY, .of = "cpo",
     .help = "With cpo and loss_type simpo or alphapo: the margin that the chosen answer should have."},
    {.name = "alphapo_alpha", TT_OBJECTIVE_SETTING(ALPHA), .default_text = "0", .minimum = -INFINITY,
     .maximum = INFINITY, .of = "cpo", .help = "With cpo: the shape of AlphaPO's rewards; 0: log-probabilities."},
    {.name = NULL},
};
/* clang-format on */

static const struct tt_objective_default defaults[] = {
    {"learning_rate", "1e-6"}, {"lora_dropout", "0"}, {NULL, NULL}};

enum { LOSS = TT_PAIR_SUMS, NLL };

static const struct tt_metric metrics[] = {
    {"loss", LOSS, TT_OVER_GROUPS, TT_BETTER_SMALLER},
    {"nll_loss", NLL, TT_PAIR_CHOSEN_ROWS, TT_BETTER_SMALLER},
    TT_PAIR_REWARD_METRICS,
    TT_PAIR_LOGIT_METRICS,
};

/* The loss of a difference of rewards, and its derivative. */
struct loss {
    double value, slope;
};

static struct loss smoothed(double x, double beta, double smoothing)
{
    double right = tt_log_logistic(x), wrong = tt_log_logistic(-x);
    return (struct loss){-(1 - smoothing) * right - smoothing * wrong,
                         beta * (smoothing * exp(right) - (1 - smoothing) * exp(wrong))};
}

static struct loss loss_of(const struct tt_objective *objective, double d)
{
    double beta = objective->values[BETA], smoothing = objective->values[LABEL_SMOOTHING], x = beta * d;
    double error = d - 1 / (2 * beta);
    switch (objective->losses[0]) {
    case SIGMOID:
        return smoothed(x, beta, smoothing);
    case HINGE:
        return (struct loss){x < 1 ? 1 - x : 0, x < 1 ? -beta : 0};
    case IPO:
        return (struct loss){error * error, 2 * error};
    default: /* simpo, alphapo */
        return smoothed(x - objective->values[SIMPO_GAMMA], beta, smoothing);
    }
}

static bool is_of_means(const struct tt_objective *objective)
{
    return objective->losses[0] >= IPO;
}

static double nll_weight(const struct tt_objective *objective)
{
    return objective->losses[0] == ALPHAPO ? 0 : objective->values[CPO_ALPHA];
}

/* The log p of an answer as the loss reads it, and its reward. */
static struct tt_pair_report report_of(const struct tt_objective *objective, const struct tt_pair_side *side)
{
    double alpha = objective->values[ALPHA];
    double logp = is_of_means(objective) && side->tokens > 0 ? side->logp / (double)side->tokens : side->logp;
    return (struct tt_pair_report){.reward = alpha == 0 ? logp : -expm1(-alpha * logp) / alpha, .logp = logp};
}

/* `by_reward`: the derivative of the step's loss by the reward; `nll`: that by -log p of each row. */
static void scale(const struct tt_objective *objective, const struct tt_objective_rows *rows,
                  const struct tt_pair_side *side, double logp, double by_reward, double nll)
{
    double by_logp = by_reward * exp(-objective->values[ALPHA] * logp);
    if (is_of_means(objective)) by_logp /= (double)side->tokens;
    for (int64_t n = side->first; n < side->end; n++) rows->scale_N[n] = (float)(nll - by_logp);
}

static tt_status run(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    double *sums = rows->sums, pairs = (double)rows->counts->groups;
    double nll = nll_weight(objective) / (double)rows->counts->leading_tokens;
    int64_t row = 0;
    for (int64_t pair = 0; pair < rows->batch->group_count; pair++) {
        struct tt_pair_side sides[2];
        struct tt_pair_report reports[2];
        for (int s = 0; s < 2; s++) {
            sides[s] = tt_pair_side_read(rows, 2 * pair + s, row);
            reports[s] = report_of(objective, &sides[s]);
            row = sides[s].end;
        }
        struct loss loss = loss_of(objective, reports[0].reward - reports[1].reward);
        scale(objective, rows, &sides[0], reports[0].logp, loss.slope / pairs, nll);
        scale(objective, rows, &sides[1], reports[1].logp, -loss.slope / pairs, 0);
        sums[LOSS] += loss.value - sides[0].logp * nll * pairs;
        sums[NLL] -= sides[0].logp;
        tt_pair_add(sums, objective->values[BETA], sides, reports);
    }
    return TT_OK;
}

/* Settings that the loss does not read, which TRL ignores. */
static tt_status check(const struct tt_objective *objective)
{
    int loss = objective->losses[0];
    char name[TT_OBJECTIVE_WORD_BYTES];
    const struct {
        int setting;
        bool ignored;
        const char *hint;
    } rules[] = {
        {LABEL_SMOOTHING, loss == HINGE || loss == IPO, "loss_type sigmoid, simpo and alphapo read it"},
        {SIMPO_GAMMA, loss < SIMPO, "loss_type simpo and alphapo read it"},
        {CPO_ALPHA, loss == ALPHAPO, "alphapo has no cross entropy: set loss_type: simpo to weigh one"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i].ignored || tt_objective_has_default(objective, rules[i].setting)) continue;
        tt_status status = tt_fail(TT_ERR_USAGE, "%s is given, and loss_type is %s",
                                   tt_objective_cpo_settings[rules[i].setting].name,
                                   tt_objective_loss_word(objective, loss, name));
        tt_hint("%s", rules[i].hint);
        return status;
    }
    return TT_OK;
}

const struct tt_objective_ops tt_objective_cpo = {
    .name = "cpo",
    .metrics = metrics,
    .metric_count = sizeof metrics / sizeof *metrics,
    .settings = tt_objective_cpo_settings,
    .defaults = defaults,
    .needs = TT_NEEDS_WHOLE_ANSWERS | TT_NEEDS_UNPACKED,
    .rows_kind = &tt_row_pair,
    .check = check,
    .rows = run,
};
