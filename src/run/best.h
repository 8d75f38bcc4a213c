/* The best checkpoint of a run: where it lies, whether it is whole, and its weights as the result. */
#ifndef TT_RUN_BEST_H
#define TT_RUN_BEST_H

#include "base/error.h"
#include "run/memory.h"

struct tt_load_source;
struct tt_resume;
struct tt_run_job;
struct tt_watch_spec;
struct tt_rank;
struct tt_world;

enum { TT_BEST_PATH_BYTES = 4096 };

/* Collective over processes, after tt_resume_open: finds the checkpoint of resume.best in the folder of the checkpoint
 * that the run resumes from, where trainer_state.json has it, or in output_dir. With load_best_model_at_end its weights
 * are verified as those of the checkpoint to resume from are; where they are gone or damaged, the best of the
 * checkpoints with an evaluation that are whole takes its place, with a warning, or none. */
TT_MUST_USE tt_status tt_best_find(const struct tt_run_job *job, struct tt_resume *resume,
                                   struct tt_world *world);
/* Stores the folder of the best checkpoint in `path`. */
TT_MUST_USE tt_status tt_best_path(const char *output_dir, const struct tt_best *best,
                                   char path[TT_BEST_PATH_BYTES]);
/* Collective over ranks, at the end: with load_best_model_at_end the weights of the best checkpoint are verified
 * and restored; `source`: the weights that the run began with. Where they are gone or damaged those of the last step
 * stay, with a warning. */
TT_MUST_USE tt_status tt_best_restore(const struct tt_run_job *job, const struct tt_load_source *source,
                                      struct tt_rank *rank, const struct tt_best *best);
/* The name of metric_for_best_model in log rows: "eval_loss", of one set "eval_NAME_loss". Returns `name`. */
const char *tt_best_metric_name(const struct tt_run_job *job, char *name, size_t bytes);
/* Whether a greater watch->metric is better. */
bool tt_best_is_greater(const struct tt_watch_spec *watch);

#endif
