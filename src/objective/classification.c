/* Classification of sequences: the head gives each sequence a score for each label, and the loss is the cross entropy
 * of its label, a mean over the sequences of the step, as transformers' ForSequenceClassificationLoss has it for
 * single labels (loss_utils.py, 5.24). Evaluations report F1 too: of two labels that of label 1, of more the mean over
 * all labels that occur or are predicted (sklearn.metrics.f1_score, average binary and macro). */
#include <math.h>

#include "data/row_kind.h"
#include "objective/objective.h"

const struct tt_setting tt_objective_classification_settings[] = {{.name = NULL}};

static const struct tt_objective_default defaults[] = {{"lora_dropout", "0"}, {NULL, NULL}};

static const struct tt_objective_column columns[] = {{"label", TT_PER_SEQUENCE, false}, {NULL, 0, false}};

enum { LOSS, HITS, F1 };

static const struct tt_metric metrics[] = {
    {"loss", LOSS, TT_OVER_GROUPS, TT_BETTER_SMALLER},
    {"accuracy", HITS, TT_OVER_GROUPS, TT_BETTER_GREATER},
    {"f1", F1, TT_OVER_NOTHING, TT_BETTER_GREATER},
};
enum { OF_STEPS = 2 }; /* F1 is of evaluations */

/* The tallies of a label: tallies[label * OF_LABEL + which]. */
enum { HIT, PREDICTED, WANTED, OF_LABEL };

static int64_t largest(const float *scores, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (scores[i] > scores[best]) best = i;
    return best;
}

/* log of the sum of exp(score). */
static double log_sum(const float *scores, int64_t count, double most)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += exp((double)scores[i] - most);
    return most + log(sum);
}

static tt_status run(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    const float *labels = tt_batch_column(rows->batch, columns[0].name, columns[0].per);
    int64_t count = rows->label_count;
    (void)objective;
    for (int64_t s = 0; s < rows->batch->sequence_count; s++) {
        const float *scores = rows->scores_BL + s * count;
        int64_t label = (int64_t)labels[s], best = largest(scores, count);
        if (label >= count)
            return tt_fail(TT_ERR_DATA, "a row has label %lld, and the model has scores of %lld labels",
                           (long long)label, (long long)count);
        double all = log_sum(scores, count, (double)scores[best]);
        for (int64_t i = 0; i < count; i++)
            rows->dscores_BL[s * count + i] =
                (float)((exp((double)scores[i] - all) - (i == label)) / (double)rows->counts->groups);
        rows->sums[LOSS] += all - (double)scores[label];
        rows->sums[HITS] += best == label;
        rows->tallies[label * OF_LABEL + HIT] += best == label;
        rows->tallies[label * OF_LABEL + WANTED]++;
        rows->tallies[best * OF_LABEL + PREDICTED]++;
    }
    return TT_OK;
}

static void finish(const double *tallies, int64_t label_count, double *sums)
{
    double sum = 0, present = 0;
    for (int64_t label = label_count == 2; label < label_count; label++) {
        const double *own = tallies + label * OF_LABEL;
        double all = own[PREDICTED] + own[WANTED];
        if (all > 0) sum += 2 * own[HIT] / all;
        present += all > 0;
    }
    sums[F1] = present > 0 ? sum / present : 0;
}

const struct tt_objective_ops tt_objective_classification = {
    .name = "classification",
    .metrics = metrics,
    .metric_count = sizeof metrics / sizeof *metrics,
    .step_metric_count = OF_STEPS,
    .settings = tt_objective_classification_settings,
    .defaults = defaults,
    .needs = TT_NEEDS_UNPACKED,
    .labels = TT_LABELS_OF_MODEL,
    .tallies_of_label = OF_LABEL,
    .columns = columns,
    .rows_kind = &tt_row_classified,
    .rows = run,
    .finish = finish,
};
