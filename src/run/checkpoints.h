/* The checkpoints of a run: checkpoint-N folders in output_dir, how many are kept, which is the best, and the result
 * at the end. Collective calls; every rank has the same view. A save is written while training goes on
 * (checkpoint/save.h): the next one waits for it. */
#ifndef TT_RUN_CHECKPOINTS_H
#define TT_RUN_CHECKPOINTS_H

#include "checkpoint/save.h"
#include "run/memory.h"
#include "run/run.h"

struct tt_checkpoints {
    struct tt_memory *memory; /* lent */
    bool first;               /* global rank 0, which reports */
    struct tt_saver *saver;
    /* What the thread of a save may know when it removes old ones. */
    struct {
        const struct tt_run *run;
        struct tt_best best;
        int64_t newest;
    } keep;
    double save_seconds, stall_seconds; /* of the longest save */
    /* On rank 0, of the save under way. */
    struct {
        int64_t step;
        double begun;           /* tt_clock_seconds */
        double prepare_seconds; /* until the saver had it */
        /* tt_clock_seconds once it was whole, from the thread of the save; 0: not told */
        double durable;
    } save;
    bool told_grace;
};

/* A zeroed struct is empty. Collective. */
TT_MUST_USE tt_status tt_checkpoints_init(struct tt_checkpoints *checkpoints, struct tt_run *run,
                                          struct tt_rank *rank, struct tt_memory *memory);
/* A save under way, after an error, is brought to its end if it can be. */
void tt_checkpoints_deinit(struct tt_checkpoints *checkpoints, struct tt_run *run);

/* Takes note of an evaluation after `step`, when a best metric is asked for at all (as transformers does: when
 * load_best_model_at_end, metric_for_best_model or save_strategy best is set); an evaluation before the first step
 * does not count. `saved`: a checkpoint of this step follows anyway. With load_best_model_at_end only such steps can
 * be the best. */
void tt_checkpoints_note_metric(struct tt_checkpoints *checkpoints, const struct tt_job_spec *config,
                                const struct tt_evaluation *evaluation, int64_t step, bool saved);
/* Begins checkpoint-<step>, when the save before is done. Once it is whole, what save_total_limit no longer allows is
 * removed: first those of later steps, which an earlier run left, then the oldest, never the best. */
TT_MUST_USE tt_status tt_checkpoints_save(struct tt_checkpoints *checkpoints, struct tt_run *run,
                                          struct tt_rank *rank, int64_t step);
/* Before values change. Not collective. */
TT_MUST_USE tt_status tt_checkpoints_before_update(void *checkpoints);
/* After each step: tells of a save that has ended. `failed`: some rank said that its part failed. What then happens is
 * on_save_error's to say. */
TT_MUST_USE tt_status tt_checkpoints_look(struct tt_checkpoints *checkpoints, struct tt_run *run, bool failed,
                                          double step_seconds);
/* The result, after `step`, into output_dir itself; with load_best_model_at_end the best checkpoint's weights are read
 * back first. `stopped`: the last checkpoint must be whole. */
TT_MUST_USE tt_status tt_checkpoints_finish(struct tt_checkpoints *checkpoints, struct tt_run *run,
                                            struct tt_rank *rank, int64_t step, bool stopped);
/* "8.13 ms", "414 ms", "4.88 s", "1m40s"; returns `text`. */
const char *tt_checkpoints_format_seconds(double seconds, char *text, size_t text_bytes);
/* Room for what is kept, one save under way and the result: known before the first step. */
TT_MUST_USE tt_status tt_checkpoints_check_space(const struct tt_run *run, const struct tt_model *model);

#endif
