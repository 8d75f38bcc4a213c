/* The checkpoints of a run: checkpoint-N folders in output_dir, how many are kept, which is the best, and the result at
 * the end. Collective calls; every rank has the same view. */
#ifndef TT_TRAIN_CHECKPOINTS_H
#define TT_TRAIN_CHECKPOINTS_H

#include "train/run.h"

struct tt_checkpoints {
    bool has_best;
    double best_metric;
    int64_t best_step;
};

/* Type of the saved weights: save_dtype, else fp32 for adapters (their masters), else the type the model came in. */
tt_dtype tt_checkpoints_dtype(const struct tt_train_config *config, const struct tt_model *model);
/* Takes note of an evaluation after `step`, when a best metric is asked for at all (as transformers does: when
 * load_best_model_at_end, metric_for_best_model or save_strategy best is set); an evaluation before the first step does not
 * count. `saved`: a checkpoint of this step follows anyway. With load_best_model_at_end only such steps can be the best. */
void tt_checkpoints_note_metric(struct tt_checkpoints *checkpoints, const struct tt_train_config *config,
                                const struct tt_evaluation *evaluation, int64_t step, bool saved);
/* Writes checkpoint-<step> and then removes what save_total_limit no longer allows: first those of later steps, which an
 * earlier run left, then the oldest, never the best. */
TT_MUST_USE tt_status tt_checkpoints_save(struct tt_checkpoints *checkpoints, struct tt_run *run, struct tt_rank *rank,
                                          int64_t step);
/* The result into output_dir itself; with load_best_model_at_end the best checkpoint's weights are read back first. */
TT_MUST_USE tt_status tt_checkpoints_finish(struct tt_checkpoints *checkpoints, struct tt_run *run, struct tt_rank *rank);

#endif
