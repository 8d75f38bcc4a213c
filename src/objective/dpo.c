/* Direct preference optimization (Rafailov et al., arXiv 2305.18290). A group is a pair: the answer that was chosen,
 * then the one that was rejected. With log p and reference summed over the supervised tokens of an answer, the loss of
 * a pair is a function of (logp - ref) of both: by default -log s(x), s the logistic function, with
 *     x = beta * ((logp - ref) of the chosen - (logp - ref) of the rejected)
 * Others: dpo_losses.h. The loss of a step is the mean over its pairs. */
#include <math.h>

#include "data/row_kind.h"
#include "objective/dpo_losses.h"
#include "objective/objective.h"

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

static struct tt_dpo_loss loss_of(const struct tt_objective *objective, const struct answer *chosen,
                                  const struct answer *rejected)
{
    const struct tt_dpo_pair pair = {.chosen = chosen->ratio,
                                     .rejected = rejected->ratio,
                                     .chosen_tokens = (double)(chosen->end - chosen->first),
                                     .rejected_tokens = (double)(rejected->end - rejected->first),
                                     .beta = objective->values[BETA],
                                     .smoothing = objective->values[LABEL_SMOOTHING],
                                     .tau = objective->values[DISCOPOP_TAU]};
    return tt_dpo_loss_of(objective->loss, &pair);
}

static tt_status run(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    double beta = objective->values[BETA], *sums = rows->sums;
    int64_t row = 0;
    for (int64_t pair = 0; pair < rows->batch->group_count; pair++) {
        struct answer chosen = read_answer(rows, 2 * pair, row);
        struct answer rejected = read_answer(rows, 2 * pair + 1, chosen.end);
        struct tt_dpo_loss loss = loss_of(objective, &chosen, &rejected);
        scale(rows, &chosen, -loss.by_chosen / (double)rows->counts->groups);
        scale(rows, &rejected, -loss.by_rejected / (double)rows->counts->groups);
        row = rejected.end;
        sums[LOSS] += loss.loss;
        for (int64_t n = chosen.first; n < chosen.end; n++) sums[CHOSEN_CORRECT] += rows->correct_N[n];
        sums[CHOSEN_TOKENS] += (double)(chosen.end - chosen.first);
        sums[REJECTED_TOKENS] += (double)(rejected.end - rejected.first);
        sums[CHOSEN_LOGITS] += chosen.logits;
        sums[REJECTED_LOGITS] += rejected.logits;
        sums[CHOSEN_REWARD] += beta * chosen.ratio;
        sums[REJECTED_REWARD] += beta * rejected.ratio;
        sums[ACCURACY] += chosen.ratio > rejected.ratio;
        sums[MARGIN] += beta * (chosen.ratio - rejected.ratio);
        sums[CHOSEN_LOGP] += chosen.logp;
        sums[REJECTED_LOGP] += rejected.logp;
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
