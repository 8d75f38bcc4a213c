/* Direct preference optimization (Rafailov et al., arXiv 2305.18290). A group is a pair: the answer that was chosen,
 * then the one that was rejected. With log p and reference summed over the supervised tokens of an answer, the loss of
 * a pair is a function of (logp - ref) of both: by default -log s(x), s the logistic function, with
 *     x = beta * ((logp - ref) of the chosen - (logp - ref) of the rejected)
 * Others: dpo_losses.h. The loss of a step is the mean over its pairs. */
#include <math.h>

#include "data/row_kind.h"
#include "objective/dpo_losses.h"
#include "objective/objective.h"
#include "objective/pairs.h"

enum { BETA, LABEL_SMOOTHING, DISCOPOP_TAU };

/* Names and defaults are those of TRL's DPOConfig. One row reads as one paragraph. */
/* clang-format off */
const struct tt_setting tt_objective_dpo_settings[] = {
    {.name = "beta", TT_OBJECTIVE_SETTING(BETA), .default_text = "0.1", .minimum = 1e-6, .maximum = INFINITY,
     .of = "dpo", .help = "With dpo: how much a deviation from the reference counts."},
    {.name = "label_smoothing", TT_OBJECTIVE_SETTING(LABEL_SMOOTHING), .default_text = "0", .minimum = 0,
     .maximum = 0.5, .of = "dpo",
     .help = "With dpo and loss_type robust or exo_pair: the probability that a preference is the wrong way round."},
    {.name = "discopop_tau", TT_OBJECTIVE_SETTING(DISCOPOP_TAU), .default_text = "0.05", .minimum = 1e-6,
     .maximum = INFINITY, .of = "dpo", .help = "With dpo and loss_type discopop: where its two losses blend."},
    {.name = NULL},
};
/* clang-format on */

static const struct tt_objective_default defaults[] = {
    {"learning_rate", "1e-6"}, {"lora_dropout", "0"}, {NULL, NULL}};

enum { LOSS = TT_PAIR_SUMS, ENTROPY, CHOSEN_CORRECT };

static const struct tt_metric metrics[] = {
    {"loss", LOSS, TT_OVER_GROUPS, TT_BETTER_SMALLER},
    {"entropy", ENTROPY, TT_OVER_TOKENS, TT_BETTER_NONE},
    TT_PAIR_LOGIT_METRICS,
    {"mean_token_accuracy", CHOSEN_CORRECT, TT_PAIR_CHOSEN_ROWS, TT_BETTER_GREATER},
    TT_PAIR_REWARD_METRICS,
};

/* The log p of the reference, summed over the rows of an answer. */
static double read_reference(const struct tt_objective_rows *rows, const struct tt_pair_side *side)
{
    double reference = 0;
    for (int64_t n = side->first; n < side->end; n++) {
        reference += (double)rows->ref_logp_N[n];
        rows->sums[ENTROPY] += (double)rows->entropy_N[n];
    }
    return reference;
}

static void scale(const struct tt_objective_rows *rows, const struct tt_pair_side *side, double value)
{
    for (int64_t n = side->first; n < side->end; n++) rows->scale_N[n] = (float)value;
}

static struct tt_dpo_loss loss_of(const struct tt_objective *objective, const struct tt_pair_side sides[2],
                                  const struct tt_pair_report ratios[2])
{
    const struct tt_dpo_pair pair = {.chosen = ratios[0].reward,
                                     .rejected = ratios[1].reward,
                                     .chosen_tokens = (double)sides[0].tokens,
                                     .rejected_tokens = (double)sides[1].tokens,
                                     .beta = objective->values[BETA],
                                     .smoothing = objective->values[LABEL_SMOOTHING],
                                     .tau = objective->values[DISCOPOP_TAU]};
    return tt_dpo_loss_of(objective->loss, &pair);
}

static tt_status run(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    double *sums = rows->sums, pairs = (double)rows->counts->groups;
    int64_t row = 0;
    for (int64_t pair = 0; pair < rows->batch->group_count; pair++) {
        struct tt_pair_side sides[2];
        struct tt_pair_report ratios[2]; /* log p less that of the reference */
        for (int s = 0; s < 2; s++) {
            sides[s] = tt_pair_side_read(rows, 2 * pair + s, row);
            ratios[s].logp = sides[s].logp;
            ratios[s].reward = sides[s].logp - read_reference(rows, &sides[s]);
            row = sides[s].end;
        }
        struct tt_dpo_loss loss = loss_of(objective, sides, ratios);
        scale(rows, &sides[0], -loss.by_chosen / pairs);
        scale(rows, &sides[1], -loss.by_rejected / pairs);
        sums[LOSS] += loss.loss;
        for (int64_t n = sides[0].first; n < sides[0].end; n++) sums[CHOSEN_CORRECT] += rows->correct_N[n];
        tt_pair_add(sums, objective->values[BETA], sides, ratios);
    }
    return TT_OK;
}

/* Settings of single losses, which TRL ignores with others. */
static tt_status check(const struct tt_objective *objective)
{
    static const struct {
        int setting, losses[2];
    } single[] = {{LABEL_SMOOTHING, {TT_DPO_ROBUST, TT_DPO_EXO_PAIR}},
                  {DISCOPOP_TAU, {TT_DPO_DISCOPOP, TT_DPO_DISCOPOP}}};
    char name[TT_OBJECTIVE_WORD_BYTES], wanted[TT_OBJECTIVE_WORD_BYTES];
    int loss = objective->loss;
    (void)tt_objective_loss_word(objective, loss, name);
    if (loss == TT_DPO_EXO_PAIR && objective->values[LABEL_SMOOTHING] == 0) {
        tt_status status = tt_fail(TT_ERR_USAGE, "loss_type exo_pair needs a label_smoothing above 0");
        tt_hint("its paper recommends 1e-3");
        return status;
    }
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        const int *losses = single[i].losses;
        if (loss == losses[0] || loss == losses[1]) continue;
        if (tt_objective_has_default(objective, single[i].setting)) continue;
        tt_status status = tt_fail(TT_ERR_USAGE, "%s is given, and loss_type is %s",
                                   tt_objective_dpo_settings[single[i].setting].name, name);
        tt_hint("TRL's %s ignores it: set loss_type: %s", name,
                tt_objective_loss_word(objective, losses[0], wanted));
        return status;
    }
    return TT_OK;
}

const struct tt_objective_ops tt_objective_dpo = {
    .name = "dpo",
    .metrics = metrics,
    .metric_count = sizeof metrics / sizeof *metrics,
    .settings = tt_objective_dpo_settings,
    .defaults = defaults,
    .needs = TT_NEEDS_REFERENCE | TT_NEEDS_WHOLE_ANSWERS | TT_NEEDS_UNPACKED,
    .rows_kind = &tt_row_pair,
    .check = check,
    .rows = run,
};
