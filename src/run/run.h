/* The state that the ranks of one process share during a run: filled by the trainer before the first rank starts,
 * read-only afterwards, except for the members of global rank 0. Internal to src/run. */
#ifndef TT_RUN_RUN_H
#define TT_RUN_RUN_H

#include "engine/plan.h"
#include "engine/step.h"
#include "infer/evaluator.h"
#include "job/inputs.h"
#include "job/spec.h"
#include "launch/fingerprint.h"
#include "monitor/live.h"
#include "run/journal.h"
#include "run/output_dir.h"
#include "run/resume.h"
#include "run/shown_pictures.h"
#include "run/shown_rows.h"
#include "run/task.h"

struct tt_run {
    const struct tt_job_spec *job; /* lent: for what its rows say of it (run/resume_identity.c) */
    /* the parts of the job that a run reads; lent */
    const struct tt_objective *objective;
    const struct tt_model_spec *model;
    const struct tt_data_config *data;
    const struct tt_optim_config *optim;
    const struct tt_run_spec *spec; /* or own_spec */
    const struct tt_watch_spec *watch;
    const struct tt_device_tuning *tuning;
    struct tt_run_spec own_spec;              /* with the batch size that was found (run/run_plan.h) */
    int64_t found_batch;                      /* 0: none, or as it was given */
    const struct tt_settings *settings;       /* NULL or lent */
    const struct tt_train_observer *observer; /* NULL or lent */
    struct tt_cancel *cancel;
    /* what chat templates print: of the settings, the checkpoint or the start */
    char date[TT_CHAT_DATE_BYTES];
    char name[80];          /* of the cluster for the run (RUN_UID), or empty */
    struct tt_str compared; /* owned: the settings by which a complete run is recognised (run/completion.h) */
    struct tt_inputs inputs;
    struct tt_task_data train_data, eval_data;
    struct tt_batch_limits train_limits, eval_limits;
    /* configuration of each rank; device and communicators are set per rank */
    struct tt_rank_config rank_config;
    struct tt_shown_rows shown; /* empty: evaluations complete no rows */
    struct tt_plan plan;
    int64_t steps_per_epoch, total_steps;
    int64_t logging_steps, eval_steps, save_steps; /* resolved: interval in steps; 0: never */
    double start_seconds;                          /* tt_clock_seconds when the run began */
    struct tt_resume resume;
    struct tt_fingerprint fingerprint; /* of the input files */
    struct tt_live *live;              /* NULL or lent: nobody watches */
    bool profiles;                     /* the setting */
    int64_t first_step;                /* steps done by the earlier part of a resumed run */

    /* global rank 0 only */
    struct tt_output_dir output;
    struct tt_journal *journal;
    struct tt_trackers *trackers;      /* NULL: none */
    struct tt_shown_pictures pictures; /* empty: evaluations show none */
    struct tt_json_value *record;      /* run.json; NULL: not begun */
    int64_t restarts;                  /* how often the run in output_dir was started again */
    struct tt_train_summary *summary;
};

/* Reports the lines of `text` to the observer. Control characters in them are escaped (base/utf8.h). */
void tt_run_report(const struct tt_run *run, const char *text);
/* The same of any bytes, U+0000 among them. */
void tt_run_report_span(const struct tt_run *run, struct tt_span text);
/* The same for one line: line breaks, from names, are escaped too. */
void tt_run_report_line(const struct tt_run *run, const char *line);

/* Opens the inputs with run->date, and computes their fingerprint. */
TT_MUST_USE tt_status tt_run_open_inputs(struct tt_run *run, const struct tt_job_spec *job,
                                         const struct tt_world *world);
/* Closes them and what tt_run_order_data made. Takes a zeroed struct. */
void tt_run_close_inputs(struct tt_run *run);

/* The weights that the run began with, as they were given; NULL: random ones. */
const char *tt_run_model_name(const struct tt_run *run);
/* Type of the saved weights: `wanted`, else fp32 for adapters (their masters), else the type of the model's files. */
tt_dtype tt_run_save_dtype(enum tt_save_type wanted, const struct tt_model *model);

/* The training of one rank from the first step to the last file (run/loop.c). `team`: NULL, or what completes rows at
 * evaluations. Collective.  */
TT_MUST_USE tt_status tt_run_loop(struct tt_run *run, struct tt_rank *rank, struct tt_generation_team *team);

#endif
