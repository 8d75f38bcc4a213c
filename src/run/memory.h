/* The state of a run between steps that is not a pure function of the step. A checkpoint stores it in
 * training_state.json, and a resume restores it (run/resume.h). Every rank has one; they are equal. */
#ifndef TT_RUN_MEMORY_H
#define TT_RUN_MEMORY_H

#include "engine/gradient_watch.h"
#include "engine/step.h"
#include "run/patience.h"

/* TRL's name of the loss that balances experts, in log rows. */
#define TT_AUX_LOSS "aux_loss"

/* Counters of the loop. window_*: since the last log row. */
struct tt_counters {
    double train_seconds; /* in training steps */
    double loss_sum;      /* over all steps */
    /* Sums of the steps' values of the objective's metrics since the last log row. */
    double window[TT_OBJECTIVE_METRICS_MAX];
    double window_aux_loss; /* of the loss that balances experts */
    double window_tokens, window_seconds;
    int64_t window_steps, steps_done;
    int64_t tokens, supervised_tokens, samples;
    int64_t pixels; /* of images */
    double last_eval_loss;
};

/* Adds a step, of so many of what the objective counts. */
void tt_counters_add_step(struct tt_counters *counters, const struct tt_train_step_result *result,
                          int64_t counted, double seconds);
/* Begins the next log row. */
void tt_counters_clear_window(struct tt_counters *counters);

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
