/* Direct preference optimization (Rafailov et al., arXiv 2305.18290). A group is a pair: the answer that was chosen,
 * then the one that was rejected. With log p and reference summed over the supervised tokens of an answer, the loss
 * of a pair is a function of (logp - ref) of both: by default -log s(x), s the logistic function, with
 *     x = beta * ((logp - ref) of the chosen - (logp - ref) of the rejected)
 * Others: dpo_losses.h. The loss of a step is the mean over its pairs; several losses are added with their weights.
 * aot and aot_unpaired sort the pairs of the step first, and compare what stands at the same place.
 * With ld_alpha (arXiv 2409.06411) the tokens of an answer beyond the length of the shorter one have that weight in
 * both sums; another divergence than the reverse KL one (arXiv 2309.16240) makes scores of the ratios. use_weighting
 * (arXiv 2406.11827) multiplies the loss of a pair by exp(mean(log p - log sum p^2)) of both answers, over their
 * tokens, without gradient. */
#include <math.h>

#include "data/row_kind.h"
#include "objective/dpo_losses.h"
#include "objective/objective.h"
#include "objective/pairs.h"

enum { BETA, LABEL_SMOOTHING, DISCOPOP_TAU, F_DIVERGENCE, F_ALPHA, LD_ALPHA, USE_WEIGHTING };

/* Names and defaults are those of TRL's DPOConfig. One row reads as one paragraph. */
/* clang-format off */
const struct tt_setting tt_objective_dpo_settings[] = {
    {.name = "beta", TT_OBJECTIVE_SETTING(BETA), .default_text = "0.1", .minimum = 1e-6, .maximum = INFINITY,
     .of = "dpo", .help = "With dpo: how much a deviation from the reference counts."},
    {.name = "label_smoothing", TT_OBJECTIVE_SETTING(LABEL_SMOOTHING), .default_text = "0", .minimum = 0,
     .maximum = 0.5, .of = "dpo",
     .help = "With dpo and loss_type robust, exo_pair, aot, aot_unpaired: how likely a preference is the wrong one."},
    {.name = "discopop_tau", TT_OBJECTIVE_SETTING(DISCOPOP_TAU), .default_text = "0.05", .minimum = 1e-6,
     .maximum = INFINITY, .of = "dpo", .help = "With dpo and loss_type discopop: where its two losses blend."},
    {.name = "f_divergence_type", TT_OBJECTIVE_SETTING(F_DIVERGENCE), .default_text = "reverse_kl",
     .choices = "reverse_kl forward_kl js_divergence alpha_divergence", .of = "dpo",
     .help = "With dpo: the divergence from the reference, for losses of the difference of two answers."},
    {.name = "f_alpha_divergence_coef", TT_OBJECTIVE_SETTING(F_ALPHA), .default_text = "0.5", .minimum = -100,
     .maximum = 100, .of = "dpo", .help = "With dpo and f_divergence_type alpha_divergence: its alpha."},
    {.name = "ld_alpha", TT_OBJECTIVE_SETTING(LD_ALPHA), .default_text = "1", .null_text = "1", .minimum = 0,
     .maximum = 1.0000001, .of = "dpo",
     .help = "With dpo: the weight of an answer's tokens beyond the length of the shorter answer (LD-DPO)."},
    {.name = "use_weighting", TT_OBJECTIVE_SETTING(USE_WEIGHTING), .default_text = "false", .choices = "false true",
     .synonyms = "False=false True=true 0=false 1=true no=false yes=true", .of = "dpo",
     .help = "With dpo: true weighs each pair by how likely its answers are to the model itself (WPO)."},
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

/* A pair while its loss is made. */
struct pair {
    struct tt_pair_side sides[2];
    struct tt_pair_report ratios[2]; /* log p as the loss weighs it; less that of the reference */
    int64_t shared;                  /* tokens of the shorter answer */
    double likely;                   /* the weight of the pair */
    double by_ratio[2], by_token;    /* of the step's loss, by the ratio, and by log p of each chosen token */
};

/* The weight of token n of a side. */
static double weight_of(const struct tt_objective *objective, const struct pair *pair, int s, int64_t n)
{
    return n - pair->sides[s].first < pair->shared ? 1 : objective->values[LD_ALPHA];
}

/* exp of the mean over an answer's tokens of log p - log sum p^2. */
static double likeliness(const struct tt_objective_rows *rows, const struct tt_pair_side *side)
{
    double sum = 0, tokens = side->tokens > 0 ? (double)side->tokens : 1;
    for (int64_t n = side->first; n < side->end; n++)
        sum += (double)rows->logp_N[n] - (double)rows->squares_N[n];
    return exp(sum / tokens);
}

static void read_ratios(const struct tt_objective *objective, const struct tt_objective_rows *rows,
                        struct pair *pair)
{
    pair->shared =
        pair->sides[0].tokens < pair->sides[1].tokens ? pair->sides[0].tokens : pair->sides[1].tokens;
    for (int s = 0; s < 2; s++) {
        double logp = 0, reference = 0;
        for (int64_t n = pair->sides[s].first; n < pair->sides[s].end; n++) {
            double weight = weight_of(objective, pair, s, n);
            logp += weight * (double)rows->logp_N[n];
            reference += weight * (double)rows->ref_logp_N[n];
        }
        pair->ratios[s] = (struct tt_pair_report){.reward = logp - reference, .logp = logp};
    }
}

/* Adds a loss of the pair: its value, and its derivatives by both ratios. */
static double add_loss(const struct tt_objective *objective, int loss, double weight, struct pair *pair)
{
    bool scores = tt_dpo_loss_reads_scores(loss);
    struct tt_dpo_score of[2];
    for (int s = 0; s < 2; s++)
        of[s] = tt_dpo_score_of(scores ? (int)objective->values[F_DIVERGENCE] : TT_DPO_REVERSE_KL,
                                objective->values[F_ALPHA], pair->ratios[s].reward);
    const struct tt_dpo_pair own = {.chosen = of[0].score,
                                    .rejected = of[1].score,
                                    .chosen_tokens = (double)pair->sides[0].tokens,
                                    .rejected_tokens = (double)pair->sides[1].tokens,
                                    .beta = objective->values[BETA],
                                    .smoothing = objective->values[LABEL_SMOOTHING],
                                    .tau = objective->values[DISCOPOP_TAU]};
    struct tt_dpo_loss made = tt_dpo_loss_of(loss, &own);
    pair->by_ratio[0] += weight * made.by_chosen * of[0].slope;
    pair->by_ratio[1] += weight * made.by_rejected * of[1].slope;
    return weight * made.loss;
}

/* ---- Losses of lists ---- */

/* Columns of the step's lists: log p of the chosen answer less that of the rejected one, the same of the reference, and
 * the ratios of both answers. */
enum { MARGIN, REFERENCE_MARGIN, CHOSEN_RATIO, REJECTED_RATIO, LISTED };

static void list_pair(const struct pair *pair, double values[LISTED])
{
    const struct tt_pair_report *chosen = &pair->ratios[0], *rejected = &pair->ratios[1];
    values[MARGIN] = chosen->logp - rejected->logp;
    values[REFERENCE_MARGIN] = values[MARGIN] - (chosen->reward - rejected->reward);
    values[CHOSEN_RATIO] = chosen->reward;
    values[REJECTED_RATIO] = rejected->reward;
}

/* The value of list `other` that stands where the pair's value of list `own` stands. */
static double beside(const struct tt_step_lists_view *lists, int64_t g, int own, int other)
{
    return lists->sorted[other * lists->count + lists->places[g * LISTED + own]];
}

/* Each value of a list has a partner in the other one; the loss counts pairs once, by the first list. */
static double add_transport(const struct tt_objective *objective, int loss, double weight,
                            const struct tt_step_lists_view *lists, int64_t g, struct pair *pair)
{
    double beta = objective->values[BETA], e = objective->values[LABEL_SMOOTHING], own[LISTED];
    list_pair(pair, own);
    if (loss == TT_DPO_AOT) {
        struct tt_dpo_loss made =
            tt_dpo_transport(beta, e, own[MARGIN] - beside(lists, g, MARGIN, REFERENCE_MARGIN));
        pair->by_ratio[0] += weight * made.by_chosen;
        pair->by_ratio[1] -= weight * made.by_chosen;
        return weight * made.loss;
    }
    struct tt_dpo_loss chosen =
        tt_dpo_transport(beta, e, own[CHOSEN_RATIO] - beside(lists, g, CHOSEN_RATIO, REJECTED_RATIO));
    struct tt_dpo_loss rejected =
        tt_dpo_transport(beta, e, beside(lists, g, REJECTED_RATIO, CHOSEN_RATIO) - own[REJECTED_RATIO]);
    pair->by_ratio[0] += weight * chosen.by_chosen;
    pair->by_ratio[1] -= weight * rejected.by_chosen;
    return weight * chosen.loss;
}

/* ---- The objective ---- */

/* All losses of the pair, number g of its micro batch. The cross entropy is a mean over the step's chosen tokens, and
 * the loss one over its pairs. */
static double add_losses(const struct tt_objective *objective, const struct tt_objective_rows *rows,
                         int64_t g, struct pair *pair)
{
    double value = 0, tokens = (double)rows->counts->leading_tokens, pairs = (double)rows->counts->groups;
    for (int i = 0; i < objective->loss_count; i++) {
        double weight = objective->loss_weights[i];
        if (objective->losses[i] == TT_DPO_SFT) {
            pair->by_token -= weight / tokens;
            value -= weight * pair->sides[0].logp / tokens * pairs;
        } else if (objective->losses[i] == TT_DPO_AOT || objective->losses[i] == TT_DPO_AOT_UNPAIRED) {
            value += add_transport(objective, objective->losses[i], weight, &rows->lists, g, pair);
        } else {
            value += add_loss(objective, objective->losses[i], weight * pair->likely, pair);
        }
    }
    return value;
}

static void scale(const struct tt_objective *objective, const struct tt_objective_rows *rows,
                  const struct pair *pair)
{
    for (int s = 0; s < 2; s++) {
        double by_ratio = -pair->by_ratio[s] / (double)rows->counts->groups;
        for (int64_t n = pair->sides[s].first; n < pair->sides[s].end; n++)
            rows->scale_N[n] =
                (float)(by_ratio * weight_of(objective, pair, s, n) - (s == 0 ? pair->by_token : 0));
    }
}

/* Pair number g, whose rows begin at *row; *row becomes their end. */
static struct pair read_pair(const struct tt_objective *objective, const struct tt_objective_rows *rows,
                             int64_t g, int64_t *row)
{
    struct pair pair = {0};
    for (int s = 0; s < 2; s++) {
        pair.sides[s] = tt_pair_side_read(rows, 2 * g + s, *row);
        *row = pair.sides[s].end;
    }
    read_ratios(objective, rows, &pair);
    pair.likely =
        rows->squares_N == NULL ? 1 : likeliness(rows, &pair.sides[0]) * likeliness(rows, &pair.sides[1]);
    return pair;
}

static tt_status share(const struct tt_objective *objective, const struct tt_objective_rows *rows,
                       double *shared)
{
    int64_t row = 0;
    (void)shared;
    for (int64_t g = 0; g < rows->batch->group_count; g++) {
        struct pair pair = read_pair(objective, rows, g, &row);
        list_pair(&pair, rows->listed + g * LISTED);
    }
    return TT_OK;
}

static tt_status run(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    double *sums = rows->sums;
    int64_t row = 0;
    for (int64_t n = 0; n < rows->batch->row_count; n++) sums[ENTROPY] += (double)rows->entropy_N[n];
    for (int64_t g = 0; g < rows->batch->group_count; g++) {
        struct pair pair = read_pair(objective, rows, g, &row);
        sums[LOSS] += add_losses(objective, rows, g, &pair);
        scale(objective, rows, &pair);
        for (int64_t n = pair.sides[0].first; n < pair.sides[0].end; n++)
            sums[CHOSEN_CORRECT] += rows->correct_N[n];
        tt_pair_add(sums, objective->values[BETA], pair.sides, pair.ratios);
    }
    return TT_OK;
}

static bool weighs_reference(const struct tt_objective *objective)
{
    return objective->values[LD_ALPHA] != 1;
}

static bool reads_squares(const struct tt_objective *objective)
{
    return objective->values[USE_WEIGHTING] != 0;
}

static bool has_loss(const struct tt_objective *objective, int loss)
{
    for (int i = 0; i < objective->loss_count; i++)
        if (objective->losses[i] == loss) return true;
    return false;
}

/* A divergence that a loss does not read. */
static tt_status check_divergence(const struct tt_objective *objective)
{
    char name[TT_OBJECTIVE_WORD_BYTES];
    bool alpha = objective->values[F_DIVERGENCE] == TT_DPO_ALPHA_DIVERGENCE;
    if (!alpha && !tt_objective_has_default(objective, F_ALPHA))
        return tt_fail(TT_ERR_USAGE,
                       "f_alpha_divergence_coef is given, and f_divergence_type is not alpha_divergence");
    for (int i = 0; i < objective->loss_count && objective->values[F_DIVERGENCE] != TT_DPO_REVERSE_KL; i++) {
        if (tt_dpo_loss_reads_scores(objective->losses[i])) continue;
        tt_status status = tt_fail(TT_ERR_USAGE, "loss_type %s has the reverse KL divergence alone",
                                   tt_objective_loss_word(objective, objective->losses[i], name));
        tt_hint("set f_divergence_type: reverse_kl, or another loss_type");
        return status;
    }
    return TT_OK;
}

/* Losses that are no values of a single pair. */
static tt_status check_weighting(const struct tt_objective *objective)
{
    static const int others[] = {TT_DPO_SFT, TT_DPO_AOT, TT_DPO_AOT_UNPAIRED};
    char name[TT_OBJECTIVE_WORD_BYTES];
    for (size_t i = 0; i < sizeof others / sizeof *others && reads_squares(objective); i++) {
        if (!has_loss(objective, others[i])) continue;
        return tt_fail(TT_ERR_USAGE, "use_weighting weighs pairs, and loss_type %s is no loss of a pair",
                       tt_objective_loss_word(objective, others[i], name));
    }
    return TT_OK;
}

/* Settings of single losses, which TRL ignores with others. */
static tt_status check(const struct tt_objective *objective)
{
    static const struct {
        int setting, losses[4];
    } single[] = {{LABEL_SMOOTHING, {TT_DPO_ROBUST, TT_DPO_EXO_PAIR, TT_DPO_AOT, TT_DPO_AOT_UNPAIRED}},
                  {DISCOPOP_TAU, {TT_DPO_DISCOPOP, TT_DPO_DISCOPOP, TT_DPO_DISCOPOP, TT_DPO_DISCOPOP}}};
    char name[TT_OBJECTIVE_WORD_BYTES], wanted[TT_OBJECTIVE_WORD_BYTES];
    (void)tt_objective_loss_word(objective, objective->losses[0], name);
    TT_TRY(check_divergence(objective));
    TT_TRY(check_weighting(objective));
    if (has_loss(objective, TT_DPO_EXO_PAIR) && objective->values[LABEL_SMOOTHING] == 0) {
        tt_status status = tt_fail(TT_ERR_USAGE, "loss_type exo_pair needs a label_smoothing above 0");
        tt_hint("its paper recommends 1e-3");
        return status;
    }
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        const int *losses = single[i].losses;
        if (has_loss(objective, losses[0]) || has_loss(objective, losses[1])) continue;
        if (has_loss(objective, losses[2]) || has_loss(objective, losses[3])) continue;
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
    .referenced = &tt_row_referenced,
    .weighs_reference = weighs_reference,
    .reads_squares = reads_squares,
    .share = share,
    .share_losses = 1U << TT_DPO_AOT | 1U << TT_DPO_AOT_UNPAIRED,
    .listed = LISTED,
    .adds_losses = true,
    .check = check,
    .rows = run,
};
