/* The objective of a training: its loss, and the metrics that steps and evaluations report. One file each,
 * listed in objectives.def; journal, checkpoints and evaluation read the names from here.
 *
 * A metric is a quotient of sums over a global step (or an evaluation): each rank adds to its sums as its micro batches
 * run, and the sums are added over the ranks once a step. */
#ifndef TT_OBJECTIVE_OBJECTIVE_H
#define TT_OBJECTIVE_OBJECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { TT_OBJECTIVE_SUMS = 16, TT_OBJECTIVE_METRICS_MAX = 16 };

/* Denominators that every step has; others are sums, by their index. */
enum {
    TT_OVER_TOKENS = -1, /* supervised tokens */
};

enum tt_better { TT_BETTER_NONE, TT_BETTER_SMALLER, TT_BETTER_GREATER };

struct tt_metric {
    const char *name;      /* in log rows; those of an evaluation have "eval_" before it */
    int sum;               /* index of the sum */
    int over;              /* TT_OVER_TOKENS, or the index of another sum: what divides it */
    enum tt_better better; /* TT_BETTER_NONE: no checkpoint can be the best by it */
};

struct tt_objective_ops {
    const char *name;
    const struct tt_metric *metrics; /* in the order of log rows; the first is the loss */
    int metric_count;                /* at most TT_OBJECTIVE_METRICS_MAX */
};

/* An objective as a job uses it. Copied by value. */
struct tt_objective {
    const struct tt_objective_ops *ops;
};

enum { TT_METRIC_LOSS }; /* index of the loss among the metrics */

/* TT_ERR_USAGE lists the names when there is none of that name. */
TT_MUST_USE tt_status tt_objective_init(const char *name, struct tt_objective *out);

/* The metric by which a checkpoint can be the best: by name, with "eval_" or without; the loss where `name` is NULL.
 * NULL: none of that name. */
const struct tt_metric *tt_objective_best_metric(const struct tt_objective *objective, const char *name);
/* Names of these metrics, as "loss and mean_token_accuracy". */
void tt_objective_best_names(const struct tt_objective *objective, char *text, size_t text_bytes);

/* What divides the sums of a global step or of an evaluation. */
struct tt_objective_counts {
    int64_t tokens; /* supervised */
};
/* metrics[i] is the value of ops->metrics[i]; `of_none` where it has nothing to divide by. */
void tt_objective_metrics(const struct tt_objective *objective, const double sums[TT_OBJECTIVE_SUMS],
                          const struct tt_objective_counts *counts, double of_none,
                          double metrics[TT_OBJECTIVE_METRICS_MAX]);

#define OBJECTIVE(name) extern const struct tt_objective_ops tt_objective_##name;
#include "objective/objectives.def"
#undef OBJECTIVE

#endif
