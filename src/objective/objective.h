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
#include "config/settings.h"
#include "data/batch.h"
#include "data/sampler.h"
#include "objective/step_lists.h"

enum {
    TT_OBJECTIVE_SUMS = 16,
    TT_OBJECTIVE_METRICS_MAX = 16,
    TT_OBJECTIVE_SETTINGS_MAX = 8,
    TT_OBJECTIVE_SHARED_MAX = 8,
    TT_OBJECTIVE_LOSSES_MAX = 4,
    TT_OBJECTIVE_WORD_BYTES = 40
};

/* Denominators that every step has; others are sums, by their index. */
enum {
    TT_OVER_TOKENS = -1, /* supervised tokens */
    TT_OVER_GROUPS = -2,
    TT_OVER_NOTHING = -3, /* the sum is the value: a mean already */
    TT_OF_METRICS = -4    /* `sum` is the index of a metric before it: that one less the next one */
};

enum { TT_LABELS_OF_MODEL = -1 }; /* as many as the model has */

enum tt_better { TT_BETTER_NONE, TT_BETTER_SMALLER, TT_BETTER_GREATER };

struct tt_metric {
    const char *name;      /* in log rows; those of an evaluation have "eval_" before it */
    int sum;               /* index of the sum */
    int over;              /* what divides it: TT_OVER_TOKENS, TT_OVER_GROUPS, or the index of another sum */
    enum tt_better better; /* TT_BETTER_NONE: no checkpoint can be the best by it */
};

/* Members of a row of an objective's own settings: a number, the `index`-th of its values. It is at least `minimum` and
 * below `maximum`; with `choices` it is the place of a word. */
#define TT_OBJECTIVE_SETTING(index) .type = TT_SETTING_DOUBLE, .offset = (index) * sizeof(double)

/* The value of a setting of others where no source sets it. */
struct tt_objective_default {
    const char *name, *value;
};

/* Conditions of an objective, which the resolving of a job checks. */
enum tt_objective_needs {
    /* A pass with adapters off comes first: the model before the training is the reference. A new LoRA adapter is all
     * that trains. */
    TT_NEEDS_REFERENCE = 1,
    TT_NEEDS_WHOLE_ANSWERS = 2, /* every token of an answer is supervised, and no other */
    TT_NEEDS_UNPACKED = 4,
    /* Rows of prompts reach the head too: batch->supervised marks the rows of answers. */
    TT_NEEDS_PROMPT_ROWS = 8,
    /* ops->share sees mismatched answers: each prompt with the answer of the sample before it in the step. */
    TT_NEEDS_MISMATCHED = 16,
};

/* Divisors of the sums of a global step or of an evaluation. */
struct tt_objective_counts {
    int64_t tokens;         /* rows: supervised ones, and those of prompts with TT_NEEDS_PROMPT_ROWS */
    int64_t leading_tokens; /* those of the first sequence of each group */
    int64_t groups;
};

/* A micro batch after its forward pass, in host memory. With scores the members of rows are NULL, and so are those of
 * scores without. */
struct tt_objective_rows {
    const struct tt_batch *batch;
    const struct tt_objective_counts *counts; /* of the whole global step, or of the whole evaluation */
    const float *logp_N;                      /* log p of the labels */
    const float *ref_logp_N;                  /* the same of the reference; NULL without TT_NEEDS_REFERENCE */
    const int32_t *correct_N;                 /* 1 where the label is the arg max */
    const float *entropy_N;                   /* of the predictions */
    const float *mean_N;                      /* of the logits over the vocabulary */
    const float *squares_N; /* log of the sum of their squares; NULL unless ops->reads_squares */
    const float *scores_BL; /* [sequences][label_count] */
    int64_t label_count;
    const double *shared;            /* [TT_OBJECTIVE_SHARED_MAX] sums of ops->share over the step */
    struct tt_step_lists_view lists; /* of what ops->share listed */
    double *listed;                  /* in `share`, to write: [groups][ops->listed]; else NULL */
    /* Written by it: the derivative of the step's loss by -logp; 0 for rows without gradient. NULL in `share`. */
    float *scale_N;
    float *dscores_BL; /* the same by the scores */
    double *tallies;   /* [label_count][ops->tallies_of_label], to add to */
    double *sums;      /* [TT_OBJECTIVE_SUMS], to add to; NULL in `share` */
};

/* A column of the data (data/batch.h) that an objective reads: tt_batch_column of its rows' batch. */
struct tt_objective_column {
    const char *name;
    enum tt_per per;
    bool on_device; /* the passes read it too: a copy is in the batch on the device (nn/pass.h) */
};

struct tt_objective;

struct tt_objective_ops {
    const char *name;
    const struct tt_metric *metrics;             /* in the order of log rows; the first is the loss */
    int metric_count;                            /* at most TT_OBJECTIVE_METRICS_MAX */
    int step_metric_count;                       /* so many of them steps report too; 0: all */
    enum tt_count_unit unit;                     /* that a run counts and times */
    bool adds_losses;                            /* loss_type may name several */
    bool evaluates_outputs;                      /* evaluations read what `want_logits` of nn/pass.h gives */
    const struct tt_setting *settings;           /* its own, ended by a row without name; NULL: none */
    const struct tt_objective_default *defaults; /* ended by one without name; NULL: none */
    unsigned needs;                              /* bits of enum tt_objective_needs */
    const struct tt_objective_column *columns;   /* ended by one without name; NULL: none */
    int labels; /* of the scores that the head gives (nn/head.h), TT_LABELS_OF_MODEL; 0: it is a language model */
    /* Values that evaluations add up for each label, over all ranks, and the sums that follow from them; 0, NULL: none.
     */
    int tallies_of_label;
    void (*finish)(const double *tallies, int64_t label_count, double *sums);
    const struct tt_row_kind *rows_kind; /* of the data (data/row_kind.h); NULL: any supervised rows */
    /* The kind of rows that may have log p of a precomputed reference, as values, in the place of rows_kind. NULL:
     * none may. */
    const struct tt_row_kind *referenced;
    /* Whether it weighs tokens of the reference, so that log p of a whole answer is not enough. NULL: no. */
    bool (*weighs_reference)(const struct tt_objective *objective);
    /* Whether it reads squares_N, which costs a pass over the logits. NULL: no. */
    bool (*reads_squares)(const struct tt_objective *objective);
    /* NULL, or checks values that do not go together: TT_ERR_USAGE */
    tt_status (*check)(const struct tt_objective *objective);
    /* NULL, or adds values of a micro batch (tt_sampler_shared) to shared[TT_OBJECTIVE_SHARED_MAX]. A pass over all
     * micro batches of the step, without dropout and gradient, calls it before the first `rows`; the values are
     * summed over the ranks. In an evaluation a step is a batch of all ranks. Not called without rows. */
    tt_status (*share)(const struct tt_objective *objective, const struct tt_objective_rows *rows,
                       double *shared);
    unsigned share_losses; /* bit i: loss i calls `share`; 0: every loss does */
    int listed;            /* values of each group that `share` lists, for step_lists.h; 0: none */
    /* Names of the sums to which a pass adds on the device (nn/pass.h), at most 8, ended by NULL: they are a rank's
     * first sums. NULL: "loss", "correct" and "entropy", those of the op loss_sums, which stand together. */
    const char *const *pass_sums;
    void (*derive)(double sums[TT_OBJECTIVE_SUMS]); /* NULL, or makes further sums of a rank's own */
    /* NULL: every row stands alone, and the sums are those of the op loss_sums. Not called without rows. */
    tt_status (*rows)(const struct tt_objective *objective, const struct tt_objective_rows *rows);
};

/* An objective as a job uses it. Copied by value. */
struct tt_objective {
    const struct tt_objective_ops *ops;
    double values[TT_OBJECTIVE_SETTINGS_MAX]; /* in the order of ops->settings */
    /* Places of loss_type among the words of objectives.def; several are added (ops->adds_losses). */
    int losses[TT_OBJECTIVE_LOSSES_MAX];
    double loss_weights[TT_OBJECTIVE_LOSSES_MAX]; /* 1 unless they are set */
    int loss_count;                               /* at least 1 */
    bool precomputed; /* the reference is in columns of the data (objective/reference.h): no passes of it */
};

/* Places of the objectives of a language model: the values of the setting `objective`. */
enum {
#define OBJECTIVE(name, what, losses) TT_OBJECTIVE_##name,
#include "objective/objectives.def"
    TT_OBJECTIVES
};
extern const struct tt_objective_ops *const tt_objectives[TT_OBJECTIVES];

enum { TT_METRIC_LOSS }; /* index of the loss among the metrics */

/* Makes it with the defaults of its settings. TT_ERR_USAGE lists the names when there is none of that name. */
TT_MUST_USE tt_status tt_objective_init(const char *name, struct tt_objective *out);
/* Sets the loss by its name, or by a JSON list of names. TT_ERR_UNSUPPORTED: the objective has no such loss, or adds
 * none up. */
TT_MUST_USE tt_status tt_objective_set_loss(struct tt_objective *objective, const char *loss_type);
/* Sets the weights of the losses by a JSON list of a number for each. TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_objective_set_loss_weights(struct tt_objective *objective, const char *loss_weights);
/* The name of a loss of the objective; empty where it has none. Returns `word`. */
const char *tt_objective_loss_word(const struct tt_objective *objective, int loss,
                                   char word[TT_OBJECTIVE_WORD_BYTES]);
/* All losses of the objective with their weights, as "sigmoid + 0.5 sft". */
void tt_objective_loss_words(const struct tt_objective *objective, char *text, size_t text_bytes);
/* Whether the value of the row `index` is its default. */
bool tt_objective_has_default(const struct tt_objective *objective, int index);
/* TT_ERR_USAGE: a value is outside its range, or values do not go together (ops->check). */
TT_MUST_USE tt_status tt_objective_check(const struct tt_objective *objective);
/* TT_ERR_DATA: the batch has tokens, and lacks a column that the objective reads. */
TT_MUST_USE tt_status tt_objective_check_columns(const struct tt_objective *objective,
                                                 const struct tt_batch *batch);
/* Checks the batch and calls ops->rows, or ops->share where `shared` is not NULL. */
TT_MUST_USE tt_status tt_objective_run(const struct tt_objective *objective,
                                       const struct tt_objective_rows *rows, double *shared);
/* Whether the passes of `share` come first. */
bool tt_objective_shares(const struct tt_objective *objective);
/* Whether the head makes squares_N for it. */
bool tt_objective_reads_squares(const struct tt_objective *objective);
/* The counts of a step, added to those of others. */
void tt_objective_count(struct tt_objective_counts *counts, const struct tt_step_facts *facts);
/* The end of the rows of sequence `s`, which begin at `first`. */
int64_t tt_objective_rows_end(const struct tt_batch *batch, int64_t s, int64_t first);

/* Whether the objective has a default of its own for the setting `name` of others. */
bool tt_objective_suggests(const struct tt_objective_ops *ops, const char *name);

/* The number of rows of the data that `sequences` sequences are made of: a group is one row. */
int64_t tt_objective_samples(const struct tt_objective *objective, int64_t sequences);
/* The number of metrics that steps report, the first ones of the list. */
int tt_objective_step_metrics(const struct tt_objective *objective);
/* The name of ops->unit. */
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

#define OBJECTIVE(name, what, losses)                                                                        \
    extern const struct tt_objective_ops tt_objective_##name;                                                \
    extern const struct tt_setting tt_objective_##name##_settings[];
#define TASK_OBJECTIVE(name) extern const struct tt_objective_ops tt_objective_##name;
#include "objective/objectives.def"

#endif
