/* Kahneman-Tversky optimization (Ethayarajh et al., arXiv 2402.01306), on completions that are labelled desirable or
 * not. With r = log p of a completion less that of the reference, s the logistic function and z the divergence of the
 * model from the reference, the loss of a desirable completion is
 *     desirable_weight * (1 - s(beta * (r - z)))
 * and that of another one undesirable_weight * (1 - s(beta * (z - r))); a step's is the mean over its rows. z is the
 * mean of r over mismatched completions (data/sampler.h), at least 0, without gradient, of the whole step on all
 * ranks, where TRL's KTOTrainer takes that of each micro batch. apo_zero_unpaired (arXiv 2408.06266) has no z: 1 -
 * s(beta * r), and s(beta * r). */
#include <math.h>

#include "data/row_kind.h"
#include "objective/logistic.h"
#include "objective/objective.h"

enum { BETA, DESIRABLE, UNDESIRABLE };
enum { KTO };                         /* the first of the words in objectives.def */
enum { DIVERGENCE, DIVERGENCE_ROWS }; /* shared values */

/* Names and defaults are those of TRL's KTOConfig. One row reads as one paragraph. */
/* clang-format off */
const struct tt_setting tt_objective_kto_settings[] = {
    {.name = "beta", TT_OBJECTIVE_SETTING(BETA), .default_text = "0.1", .minimum = 1e-6, .maximum = INFINITY,
     .of = "kto", .help = "With kto: how much a deviation from the reference counts."},
    {.name = "desirable_weight", TT_OBJECTIVE_SETTING(DESIRABLE), .default_text = "1", .minimum = 0,
     .maximum = INFINITY, .of = "kto", .help = "With kto: the weight of desirable completions."},
    {.name = "undesirable_weight", TT_OBJECTIVE_SETTING(UNDESIRABLE), .default_text = "1", .minimum = 0,
     .maximum = INFINITY, .of = "kto", .help = "With kto: the weight of undesirable completions."},
    {.name = NULL},
};
/* clang-format on */

static const struct tt_objective_default defaults[] = {{"learning_rate", "1e-6"},
                                                       {"lora_dropout", "0"},
                                                       {"train_sampling_strategy", "sequential"},
                                                       {NULL, NULL}};

static const struct tt_objective_column columns[] = {{"label", TT_PER_SEQUENCE, false}, {NULL, 0, false}};

/* The sums of a label: sums[label * OF_LABEL + which]. */
enum { COUNT, TOKENS, LOGITS, REWARD, LOGP, OF_LABEL };
enum { LOSS = 2 * OF_LABEL, ENTROPY, KL, KL_WEIGHT };
enum { CHOSEN = OF_LABEL, REJECTED = 0, REWARDS_METRIC = 3 };

static const struct tt_metric metrics[] = {
    {"loss", LOSS, TT_OVER_GROUPS, TT_BETTER_SMALLER},
    {"entropy", ENTROPY, TT_OVER_TOKENS, TT_BETTER_NONE},
    {"kl", KL, KL_WEIGHT, TT_BETTER_NONE},
    {"rewards/chosen", CHOSEN + REWARD, CHOSEN + COUNT, TT_BETTER_NONE},
    {"rewards/rejected", REJECTED + REWARD, REJECTED + COUNT, TT_BETTER_NONE},
    {"rewards/margins", REWARDS_METRIC, TT_OF_METRICS, TT_BETTER_GREATER},
    {"logps/chosen", CHOSEN + LOGP, CHOSEN + COUNT, TT_BETTER_NONE},
    {"logps/rejected", REJECTED + LOGP, REJECTED + COUNT, TT_BETTER_NONE},
    {"logits/chosen", CHOSEN + LOGITS, CHOSEN + TOKENS, TT_BETTER_NONE},
    {"logits/rejected", REJECTED + LOGITS, REJECTED + TOKENS, TT_BETTER_NONE},
};

/* The sum over the rows first .. end - 1 of log p less that of the reference. */
static double ratio_of(const struct tt_objective_rows *rows, int64_t first, int64_t end)
{
    double ratio = 0;
    for (int64_t n = first; n < end; n++) ratio += (double)rows->logp_N[n] - (double)rows->ref_logp_N[n];
    return ratio;
}

static tt_status share(const struct tt_objective *objective, const struct tt_objective_rows *rows,
                       double *shared)
{
    int64_t first = 0;
    (void)objective;
    for (int64_t s = 0; s < rows->batch->sequence_count; s++) {
        int64_t end = tt_objective_rows_end(rows->batch, s, first);
        shared[DIVERGENCE] += ratio_of(rows, first, end);
        shared[DIVERGENCE_ROWS]++;
        first = end;
    }
    return TT_OK;
}

/* The loss of a completion; *slope: its derivative by the ratio. */
static double loss_of(const struct tt_objective *objective, bool desirable, double ratio, double z,
                      double *slope)
{
    double beta = objective->values[BETA], weight = objective->values[desirable ? DESIRABLE : UNDESIRABLE];
    double x = beta * (desirable ? ratio - z : z - ratio);
    double missed = exp(tt_log_logistic(-x)); /* 1 - s(x) */
    *slope = (desirable ? -1 : 1) * weight * beta * missed * exp(tt_log_logistic(x));
    return weight * missed;
}

static tt_status run(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    const struct tt_batch *batch = rows->batch;
    const float *labels = tt_batch_column(batch, columns[0].name, columns[0].per);
    double *sums = rows->sums, beta = objective->values[BETA], z = 0;
    int64_t first = 0;
    if (rows->shared[DIVERGENCE_ROWS] > 0)
        z = fmax(0, rows->shared[DIVERGENCE] / rows->shared[DIVERGENCE_ROWS]);
    for (int64_t s = 0; s < batch->sequence_count; s++) {
        bool desirable = labels[s] != 0;
        int64_t end = tt_objective_rows_end(batch, s, first);
        double ratio = ratio_of(rows, first, end), slope,
               loss = loss_of(objective, desirable, ratio, z, &slope);
        double *of_label = sums + (desirable ? CHOSEN : REJECTED);
        for (int64_t n = first; n < end; n++) {
            rows->scale_N[n] = (float)(-slope / (double)rows->counts->groups);
            of_label[LOGP] += (double)rows->logp_N[n];
            of_label[LOGITS] += (double)rows->mean_N[n];
            sums[ENTROPY] += (double)rows->entropy_N[n];
        }
        of_label[COUNT]++;
        of_label[TOKENS] += (double)(end - first);
        of_label[REWARD] += beta * ratio;
        sums[LOSS] += loss;
        sums[KL] += z;
        sums[KL_WEIGHT]++;
        first = end;
    }
    return TT_OK;
}

const struct tt_objective_ops tt_objective_kto = {
    .name = "kto",
    .metrics = metrics,
    .metric_count = sizeof metrics / sizeof *metrics,
    .settings = tt_objective_kto_settings,
    .defaults = defaults,
    .needs = TT_NEEDS_REFERENCE | TT_NEEDS_WHOLE_ANSWERS | TT_NEEDS_UNPACKED | TT_NEEDS_MISMATCHED,
    .rows_kind = &tt_row_labelled,
    .columns = columns,
    .share = share,
    .share_losses = 1U << KTO,
    .rows = run,
};
