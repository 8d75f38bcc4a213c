/* The parts of a job that a run reads, and those who listen to it. */
#ifndef TT_RUN_RUN_JOB_H
#define TT_RUN_RUN_JOB_H

#include "base/str.h"
#include "base/thread.h"
#include "config/settings.h"
#include "job/spec.h"
#include "trimtab.h"

/* All lent. */
struct tt_run_job {
    const struct tt_job_spec *all; /* for what its rows say of it (run/resume_identity.c) */
    const struct tt_objective *objective;
    const struct tt_model_spec *model;
    const struct tt_data_config *data;
    const struct tt_optim_config *optim;
    const struct tt_run_spec *run; /* the job's, or with the batch size that was found (run/run_plan.h) */
    const struct tt_watch_spec *watch;
    const struct tt_device_tuning *tuning;
    const struct tt_settings *settings;       /* NULL: nobody has them */
    const struct tt_train_observer *observer; /* NULL: nobody listens */
    struct tt_cancel *cancel;                 /* NULL: nobody stops it */
};

/* `settings` and `cancel` may be NULL; nobody listens yet. */
struct tt_run_job tt_run_job_of(const struct tt_job_spec *job, const struct tt_settings *settings,
                                struct tt_cancel *cancel);

/* Reports the lines of `text` to the observer. Control characters in them are escaped (base/utf8.h). */
void tt_run_report(const struct tt_run_job *job, const char *text);
/* The same of any bytes, U+0000 among them. */
void tt_run_report_span(const struct tt_run_job *job, struct tt_span text);
/* The same for one line: line breaks, from names, are escaped too. */
void tt_run_report_line(const struct tt_run_job *job, const char *line);

/* Type of the saved weights: `wanted`, else fp32 for adapters (their masters), else the type of the model's files. */
tt_dtype tt_run_save_dtype(enum tt_save_type wanted, const struct tt_model *model);

#endif
