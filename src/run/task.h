/* The questions of a run to its task: the order of its data, a rank's feed, an evaluation, figures and files. One file
 * each, run/task_<name>.c; what a job asks is in job/task.h. Nobody else asks which task it is. */
#ifndef TT_RUN_TASK_H
#define TT_RUN_TASK_H

#include "checkpoint/writer.h"
#include "detect/order.h"
#include "engine/feed.h"
#include "infer/evaluator.h"
#include "job/inputs.h"
#include "monitor/run_figures.h"
#include "run/memory.h"
#include "run/run_job.h"

struct tt_json;
struct tt_json_value;
struct tt_shown_pictures;
struct tt_shown_pictures_config;

enum { TT_TASK_FILES = 2 };

/* How a data set is ordered. */
struct tt_task_order {
    bool train;
    int data_size; /* ranks that take different samples */
    int64_t batch_size, accumulation;
    uint64_t seed;
    const struct tt_run_spec *run;     /* lent: sampling */
    const struct tt_data_config *rows; /* lent: packing */
    unsigned needs;                    /* of the objective */
    bool shares;                       /* prompts (job/shared_prompt.h) */
};

/* A data set in its order. A zeroed struct is empty. */
struct tt_task_data {
    struct tt_sampler *sampler;  /* owned: of rows */
    struct tt_step_flow *stream; /* owned: of rows that are read while they train, in place of `sampler` */
    struct tt_detect_order_config order; /* of images */
};
void tt_task_data_deinit(struct tt_task_data *data);

struct tt_task_evaluation {
    const struct tt_inputs *inputs;
    const struct tt_task_data *data;
    struct tt_cancel *cancel;           /* NULL or lent */
    bool *stopped;                      /* as of tt_evaluate */
    struct tt_by_source *by_source;     /* of rows; empty: none */
    struct tt_shown_pictures *pictures; /* NULL: nobody sees any */
    int64_t step;
};

struct tt_task_run_ops {
    enum tt_count_unit unit; /* that its log rows count */
    /* The change to try where a part of the time is long; NULL: the same for every task. */
    const char *advice[TT_SHARE_COUNT];
    /* A metric of evaluations that /metrics has beside the loss; NULL: none. */
    const char *gauge, *gauge_help;
    tt_status (*order)(const struct tt_inputs *inputs, const struct tt_task_order *how,
                       struct tt_task_data *data);
    tt_status (*epoch_steps)(const struct tt_inputs *inputs, const struct tt_task_data *data, int64_t *steps);
    /* The limits of the micro batches of the first `steps` steps; 0: of an epoch. */
    struct tt_batch_limits (*limits)(const struct tt_inputs *inputs, const struct tt_task_data *data,
                                     int64_t steps);
    bool (*evaluates)(const struct tt_inputs *inputs); /* there is evaluation data */
    /* Samples to train on. */
    double (*samples)(const struct tt_inputs *inputs, const struct tt_objective *objective);
    /* Appends a line about the training or the evaluation data. */
    tt_status (*describe)(const struct tt_inputs *inputs, bool train, struct tt_str *text);
    /* Reports what the run begins with. */
    tt_status (*report)(const struct tt_run_job *job, const struct tt_inputs *inputs);
    /* Opens the pictures that evaluations show, in the process of rank 0. NULL: there are none. */
    tt_status (*show)(const struct tt_shown_pictures_config *config, struct tt_shown_pictures *pictures);
    /* The sum of the training data, and what a resume compares beside the settings (run/resume.h). */
    uint64_t (*sum)(const struct tt_inputs *inputs);
    void (*identify)(const struct tt_inputs *inputs, const struct tt_data_config *data,
                     struct tt_json_value *to);
    /* Where the training data stand behind `done` steps, owned by the caller, and goes on there at first_step: for what
     * the number of steps does not say. NULL both: it says all. `position` NULL: a checkpoint of a run without it. */
    tt_status (*position)(const struct tt_task_data *data, int64_t done, struct tt_json_value **position);
    tt_status (*go_on)(struct tt_task_data *data, const struct tt_json *json,
                       const struct tt_json_value *position, int64_t first_step);
    /* The training data of a rank. */
    tt_status (*feed)(const struct tt_inputs *inputs, const struct tt_task_data *data, struct tt_rank *rank,
                      struct tt_feed *feed);
    /* Collective. */
    tt_status (*evaluate)(const struct tt_task_evaluation *how, struct tt_rank *rank,
                          struct tt_evaluation *evaluation);
    /* FLOPs of the training so far. */
    double (*flops)(const struct tt_model *model, const struct tt_counters *counters);
    /* Labels that an evaluation has counted. */
    int64_t (*labels)(const struct tt_evaluation *evaluation);
    /* The weights that a run begins with, as they were given; NULL: random ones. */
    const char *(*weights)(const struct tt_inputs *inputs, const struct tt_model_spec *model);
    /* Files beside the weights of a checkpoint. `files`: room for them. */
    void (*saves)(const struct tt_inputs *inputs, struct tt_save_template files[TT_TASK_FILES],
                  struct tt_saver_config *config);
};

/* Those of the task at a place of job/task.h, or that the inputs are of. */
const struct tt_task_run_ops *tt_task_run_at(int task);
const struct tt_task_run_ops *tt_task_run_of(const struct tt_inputs *inputs);

#endif
