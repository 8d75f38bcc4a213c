/* The checkpoints of a run: checkpoint-N folders in output_dir, their number, the best one, and the result at the end.
 * Collective calls; every rank has the same view. A save is written during training (checkpoint/save.h); the next one
 * waits for it. */
#ifndef TT_RUN_CHECKPOINTS_H
#define TT_RUN_CHECKPOINTS_H

#include "checkpoint/save.h"
#include "run/run.h"

struct tt_checkpoints {
    struct tt_memory *memory; /* lent */
    bool first;               /* global rank 0, which reports */
    struct tt_saver *saver;
    /* Input of a save's thread for removing old checkpoints. */
    struct {
        const struct tt_run *run;
        struct tt_best best;
        int64_t newest;
        bool replaced; /* the checkpoints of an earlier run, which this one overwrites, are removed */
    } keep;
    struct tt_save_template task_files[TT_TASK_FILES];
    double save_seconds, stall_seconds; /* of the longest save */
    double step_seconds;                /* of the last step; 0: none yet */
    /* The save in progress, on rank 0. */
    struct {
        int64_t step;
        double begun;           /* tt_clock_seconds */
        double prepare_seconds; /* until the saver took over */
        /* tt_clock_seconds when it was complete, from the thread of the save; 0: not reported yet */
        double durable;
    } save;
    bool grace_reported;
};

/* A zeroed struct is empty. Collective. */
TT_MUST_USE tt_status tt_checkpoints_init(struct tt_checkpoints *checkpoints, struct tt_run *run,
                                          struct tt_rank *rank, struct tt_memory *memory);
/* Finishes a save in progress, also after an error, if possible. */
void tt_checkpoints_deinit(struct tt_checkpoints *checkpoints, struct tt_run *run);

/* Records the value of watch->metric after `step` if the best is tracked (as in transformers: when
 * load_best_model_at_end, metric_for_best_model, save_strategy best or early_stopping_patience is set); an evaluation
 * before the first step does not count. `saved`: a checkpoint of this step follows in any case. With
 * load_best_model_at_end only such steps can be the best. */
void tt_checkpoints_record_metric(struct tt_checkpoints *checkpoints, const struct tt_watch_spec *watch,
                                  double metric, int64_t step, bool saved);
/* Starts to save checkpoint-<step>, after the previous save. When it is complete, those of an earlier run are removed
 * where this one began anew in its folder (overwrite_output_dir), and then those beyond save_total_limit: first those
 * of later steps, left by an earlier run, then the oldest, never the best. */
TT_MUST_USE tt_status tt_checkpoints_save(struct tt_checkpoints *checkpoints, struct tt_run *run,
                                          struct tt_rank *rank, int64_t step);
/* Call before values change. Not collective. */
TT_MUST_USE tt_status tt_checkpoints_before_update(void *checkpoints);
/* Call after each step: reports a finished save. `failed`: a rank has reported a failed part; on_save_error decides
 * what follows. */
TT_MUST_USE tt_status tt_checkpoints_poll(struct tt_checkpoints *checkpoints, struct tt_run *run, bool failed,
                                          double step_seconds);
/* Writes the result, after `step`, into output_dir itself; with load_best_model_at_end it first restores the weights of
 * the best checkpoint. `stopped`: the last checkpoint must be complete. */
TT_MUST_USE tt_status tt_checkpoints_finish(struct tt_checkpoints *checkpoints, struct tt_run *run,
                                            struct tt_rank *rank, int64_t step, bool stopped);

#endif
