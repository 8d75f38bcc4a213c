/* The output_dir of a training run: locked for as long as the run lasts, proved writable before the first step,
 * cleared of what killed runs left unfinished, and removed again when the run ends before it wrote anything. On the
 * process of rank 0. */
#ifndef TT_RUN_OUTPUT_DIR_H
#define TT_RUN_OUTPUT_DIR_H

#include "base/lock.h"
#include "job/spec.h"

struct tt_output_dir {
    const char *path; /* lent; NULL: not claimed */
    struct tt_lock *lock;
    char *created; /* the first of the folders that were created for it, or NULL */
    bool checked;
};

/* Before anything in it is read: creates and locks the folder. TT_ERR_USAGE while another run uses it. */
TT_MUST_USE tt_status tt_output_dir_claim(const struct tt_job_spec *config, struct tt_output_dir *out);
/* An earlier result is not overwritten unasked; what killed runs left unfinished is removed. `resumes`: the run goes
 * on from a checkpoint. */
TT_MUST_USE tt_status tt_output_dir_check(struct tt_output_dir *output, const struct tt_job_spec *config,
                                          bool resumes);
/* Before a save. A folder that was removed is created and locked again; TT_ERR_USAGE when another run has taken it. */
TT_MUST_USE tt_status tt_output_dir_hold(struct tt_output_dir *output);
/* When all ranks of this process have ended; keeps the error record. `failed`: what was unfinished then is removed. A
 * zeroed struct is released. */
void tt_output_dir_release(struct tt_output_dir *output, bool failed);

#endif
