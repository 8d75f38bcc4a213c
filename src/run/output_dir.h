/* The output_dir of a training run: locked during the run, checked to be writable before the first step, cleared of
 * unfinished files of killed runs, and removed when the run ends before it wrote anything. In the process of rank 0. */
#ifndef TT_RUN_OUTPUT_DIR_H
#define TT_RUN_OUTPUT_DIR_H

#include "base/lock.h"
#include "job/parts.h"

struct tt_output_dir {
    const char *path; /* lent; NULL: not claimed */
    struct tt_lock *lock;
    char *created; /* the topmost folder that was created for it, or NULL */
    bool checked;
    bool unlocked; /* as the setting unlocked_store */
    bool restarts; /* a cluster starts the run again when it fails */
};

/* Creates and locks the folder; call it before reading from it. TT_ERR_USAGE while another run uses the folder; with
 * `restarts` it may be an earlier start of this one, which ends: TT_ERR_COMM. */
TT_MUST_USE tt_status tt_output_dir_claim(const struct tt_run_spec *run, const struct tt_model_spec *model,
                                          bool restarts, struct tt_output_dir *out);
/* Refuses to overwrite an earlier result unless requested, and a folder where no file can be created; removes
 * unfinished files of killed runs. `resumes`: the run
 * resumes from a checkpoint, or begins again after it was killed. */
TT_MUST_USE tt_status tt_output_dir_check(struct tt_output_dir *output, const struct tt_run_spec *run,
                                          bool resumes);
/* Removes unfinished files of killed runs. */
TT_MUST_USE tt_status tt_output_dir_clear(struct tt_output_dir *output);
/* Call before a save. Creates and locks a removed folder again; fails as tt_output_dir_claim when another process has
 * taken it. */
TT_MUST_USE tt_status tt_output_dir_hold(struct tt_output_dir *output);
/* Call when all ranks of this process have ended; keeps the error record. `failed`: removes unfinished files. A zeroed
 * struct is released. */
void tt_output_dir_release(struct tt_output_dir *output, bool failed);

#endif
