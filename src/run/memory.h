/* The state of a run between steps that is not a pure function of the step. A checkpoint stores it in
 * training_state.json, and a resume restores it (run/resume.h). Every rank has one; they are equal. */
#ifndef TT_RUN_MEMORY_H
#define TT_RUN_MEMORY_H

#include "engine/gradient_watch.h"
#include "run/patience.h"

/* Counters of the loop. window_*: since the last log row. */
struct tt_counters {
    double train_seconds; /* in training steps */
    double loss_sum;      /* over all steps */
    /* Sums of the steps' values of the objective's metrics since the last log row. */
    double window[TT_OBJECTIVE_METRICS_MAX];
    double window_tokens, window_seconds;
    int64_t window_steps, steps_done;
    int64_t tokens, supervised_tokens, samples;
    int64_t pixels; /* of images */
    double last_eval_loss;
};

/* The best evaluation so far, by metric_for_best_model. */
struct tt_best {
    bool known;
    double metric;
    int64_t step;
    const char *folder; /* lent: of its checkpoint; NULL: output_dir/checkpoint-<step> */
};

struct tt_memory {
    struct tt_counters counters;
    struct tt_best best;
    struct tt_patience patience;
    struct tt_gradient_watch watch;
    bool evaluation_due; /* a stop ended the evaluation after the last step: a resume begins with it */
};

#endif
