/* The objective of a training: its loss, and the metrics that steps and evaluations report. One file each, listed in
 * objectives.def; journal, checkpoints and evaluation read the names from here.
 *
 * There are two kinds. Where every row stands alone (sft), the head makes loss and gradient in one pass over the
 * logits, and the device adds up the sums. Where rows belong together (an answer and another one), the objective has a
 * function `rows`: between forward and backward it turns the log-probabilities of a micro batch into one scale for each
 * row's gradient, in host memory. The head then computes its logits twice (nn/head.h).
 *
 * A metric is a quotient of sums over a global step (or an evaluation): each rank adds to its sums as its micro batches
 * run, and the sums are added over the ranks once a step. */
#ifndef TT_OBJECTIVE_OBJECTIVE_H
#define TT_OBJECTIVE_OBJECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "data/batch.h"

enum { TT_OBJECTIVE_SUMS = 16, TT_OBJECTIVE_METRICS_MAX = 16, TT_OBJECTIVE_OPTIONS_MAX = 8 };

/* Denominators that every step has; others are sums, by their index. */
enum {
    TT_OVER_TOKENS = -1, /* supervised tokens */
    TT_OVER_GROUPS = -2,
    TT_OVER_NOTHING = -3 /* the sum is the value: a mean already */
};

enum tt_better { TT_BETTER_NONE, TT_BETTER_SMALLER, TT_BETTER_GREATER };

struct tt_metric {
    const char *name;      /* in log rows; those of an evaluation have "eval_" before it */
    int sum;               /* index of the sum */
    int over;              /* what divides it: TT_OVER_TOKENS, TT_OVER_GROUPS, or the index of another sum */
    enum tt_better better; /* TT_BETTER_NONE: no checkpoint can be the best by it */
};

/* A numeric option of an objective: at least `least`, and below `below`. */
struct tt_objective_option {
    const char *name;
    double by_default, least, below;
};

/* What divides the sums of a global step or of an evaluation. */
struct tt_objective_counts {
    int64_t tokens; /* supervised */
    int64_t groups;
};

/* A micro batch after its forward pass, in host memory. */
struct tt_objective_rows {
    const struct tt_batch *batch;
    const struct tt_objective_counts *counts; /* of the whole global step */
    const float *logp_N;                      /* log p of the labels */
    const float *ref_logp_N;                  /* the same of the reference; NULL where `reference` is false */
    const int32_t *correct_N;                 /* 1 where the label is the arg max */
    const float *entropy_N;                   /* of the predictions */
    const float *mean_N;                      /* of the logits over the vocabulary */
    float *scale_N;                           /* to write: the derivative of the step's loss by -logp */
    double *sums;                             /* [TT_OBJECTIVE_SUMS], to add to */
};

struct tt_objective;

struct tt_objective_ops {
    const char *name;
    const struct tt_metric *metrics; /* in the order of log rows; the first is the loss */
    int metric_count;                /* at most TT_OBJECTIVE_METRICS_MAX */
    int step_metric_count;           /* so many of them steps report too; 0: all */
    const char *unit;                /* the unit that a run counts and times: "images"; NULL: "tokens" */
    const struct tt_objective_option *options;
    int option_count;
    /* A pass with adapters off comes first: the model before the training is the reference. */
    bool reference;
    int group_size; /* sequences of a group; 0: any number */
    /* NULL: every row stands alone, and the sums are those of the op loss_sums. Not called without rows. */
    tt_status (*rows)(const struct tt_objective *objective, const struct tt_objective_rows *rows);
};

/* An objective as a job uses it. Copied by value. */
struct tt_objective {
    const struct tt_objective_ops *ops;
    double options[TT_OBJECTIVE_OPTIONS_MAX]; /* in the order of ops->options */
};

enum { TT_METRIC_LOSS }; /* index of the loss among the metrics */

/* With the defaults of its options. TT_ERR_USAGE lists the names when there is none of that name. */
TT_MUST_USE tt_status tt_objective_init(const char *name, struct tt_objective *out);
/* TT_ERR_USAGE: it has no such option, or the value is outside its range. */
TT_MUST_USE tt_status tt_objective_set(struct tt_objective *objective, const char *option, double value);
/* Checks the batch and calls ops->rows. */
TT_MUST_USE tt_status tt_objective_run(const struct tt_objective *objective,
                                       const struct tt_objective_rows *rows);
/* The end of the rows of sequence `s`, which begin at `first`. */
int64_t tt_objective_rows_end(const struct tt_batch *batch, int64_t s, int64_t first);

/* The number of rows of the data that `sequences` sequences are made of: a group is one row. */
int64_t tt_objective_samples(const struct tt_objective *objective, int64_t sequences);
/* The number of metrics that steps report, the first ones of the list. */
int tt_objective_step_metrics(const struct tt_objective *objective);
/* "tokens", or ops->unit. */
const char *tt_objective_unit(const struct tt_objective *objective);
/* The metric by which a checkpoint can be the best: by name, with "eval_" or without; the loss where `name` is NULL.
 * NULL: none of that name. */
const struct tt_metric *tt_objective_best_metric(const struct tt_objective *objective, const char *name);
/* Names of these metrics, as "loss and mean_token_accuracy". */
void tt_objective_best_names(const struct tt_objective *objective, char *text, size_t text_bytes);

/* metrics[i] is the value of ops->metrics[i]; `of_none` where it has nothing to divide by. */
void tt_objective_metrics(const struct tt_objective *objective, const double sums[TT_OBJECTIVE_SUMS],
                          const struct tt_objective_counts *counts, double of_none,
                          double metrics[TT_OBJECTIVE_METRICS_MAX]);

#define OBJECTIVE(name) extern const struct tt_objective_ops tt_objective_##name;
#include "objective/objectives.def"
#undef OBJECTIVE

#endif
