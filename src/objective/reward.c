/* Reward models: the head gives each answer, behind its prompt, one score r. The loss of a pair is that of Bradley and
 * Terry, with a margin m where the row has one (Touvron et al., arXiv 2307.09288), and with a coefficient c that
 * centers the scores (Eisenstein et al., arXiv 2312.09244):
 *     -log s(r of the chosen - r of the rejected - m) + c (r of the chosen + r of the rejected)^2
 * s the logistic function; a step's is the mean over its pairs: TRL's RewardTrainer. */
#include <math.h>

#include "data/row_kind.h"
#include "objective/logistic.h"
#include "objective/objective.h"

enum { CENTER };

/* Name and default are those of TRL's RewardConfig. One row reads as one paragraph. */
/* clang-format off */
const struct tt_setting tt_objective_reward_settings[] = {
    {.name = "center_rewards_coefficient", TT_OBJECTIVE_SETTING(CENTER), .default_text = "0", .null_text = "0",
     .minimum = 0, .maximum = INFINITY, .of = "reward",
     .help = "With reward: how much the square of the sum of both scores counts, which keeps their mean near 0; 0.01 "
             "is usual."},
    {.name = NULL},
};
/* clang-format on */

static const struct tt_objective_default defaults[] = {
    {"learning_rate", "1e-4"}, {"lora_dropout", "0"}, {"over_length", "drop"}, {NULL, NULL}};

static const struct tt_objective_column columns[] = {{"margin", TT_PER_SEQUENCE, false}, {NULL, 0, false}};

enum { LOSS, ACCURACY, MARGIN, REWARD, ANSWERS };

static const struct tt_metric metrics[] = {
    {"loss", LOSS, TT_OVER_GROUPS, TT_BETTER_SMALLER},
    {"accuracy", ACCURACY, TT_OVER_GROUPS, TT_BETTER_GREATER},
    {"margin", MARGIN, TT_OVER_GROUPS, TT_BETTER_GREATER},
    {"mean_reward", REWARD, ANSWERS, TT_BETTER_NONE},
};

static tt_status run(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    const float *margins = tt_batch_column(rows->batch, columns[0].name, columns[0].per);
    double *sums = rows->sums, center = objective->values[CENTER], pairs = (double)rows->counts->groups;
    for (int64_t s = 0; s < rows->batch->sequence_count; s += 2) {
        double chosen = (double)rows->scores_BL[s], rejected = (double)rows->scores_BL[s + 1];
        double lead = chosen - rejected - (double)margins[s], sum = chosen + rejected;
        double slope = -exp(tt_log_logistic(-lead)), centered = 2 * center * sum;
        rows->dscores_BL[s] = (float)((slope + centered) / pairs);
        rows->dscores_BL[s + 1] = (float)((centered - slope) / pairs);
        sums[LOSS] += -tt_log_logistic(lead) + center * sum * sum;
        sums[ACCURACY] += chosen > rejected;
        sums[MARGIN] += chosen - rejected;
        sums[REWARD] += sum;
        sums[ANSWERS] += 2;
    }
    return TT_OK;
}

const struct tt_objective_ops tt_objective_reward = {
    .name = "reward",
    .metrics = metrics,
    .metric_count = sizeof metrics / sizeof *metrics,
    .settings = tt_objective_reward_settings,
    .defaults = defaults,
    .needs = TT_NEEDS_WHOLE_ANSWERS | TT_NEEDS_UNPACKED,
    .labels = 1,
    .columns = columns,
    .rows_kind = &tt_row_margin,
    .rows = run,
};
