/* The state that the ranks of one process share during a run: filled by the trainer before the first rank starts,
 * read-only afterwards, except for `rank0`. Its parts are those that the other files of src/run take; none of them
 * includes this one. Internal to src/run. */
#ifndef TT_RUN_RUN_H
#define TT_RUN_RUN_H

#include "engine/plan.h"
#include "monitor/live.h"
#include "run/journal.h"
#include "run/output_dir.h"
#include "run/resume.h"
#include "run/run_data.h"
#include "run/run_job.h"
#include "run/run_length.h"
#include "run/shown_pictures.h"
#include "run/shown_rows.h"

/* The files that global rank 0 writes; empty in other processes. */
struct tt_run_rank0 {
    struct tt_output_dir output;
    struct tt_journal *journal;
    struct tt_trackers *trackers;      /* NULL: none */
    struct tt_hub_push *push;          /* NULL: none */
    struct tt_shown_pictures pictures; /* empty: evaluations show none */
    struct tt_json_value *record;      /* run.json; NULL: not begun */
    int64_t restarts;                  /* how often the run in output_dir was started again */
    struct tt_train_summary *summary;  /* lent */
};

struct tt_run {
    struct tt_run_job job;
    struct tt_run_data data;
    struct tt_run_length length;
    struct tt_resume resume;
    /* configuration of each rank; device and communicators are set per rank */
    struct tt_rank_config rank_config;
    struct tt_plan plan;
    struct tt_run_spec found;   /* run->job.run where a batch size was found (run/run_plan.h) */
    int64_t found_batch;        /* 0: none, or as it was given */
    struct tt_shown_rows shown; /* empty: evaluations complete no rows */
    struct tt_live *live;       /* NULL or lent: nobody watches */
    char name[80];              /* of the cluster for the run (RUN_UID), or empty */
    struct tt_str compared; /* owned: the settings by which a complete run is recognised (run/completion.h) */
    int first_rank;         /* of this process */
    double start_seconds;   /* tt_clock_seconds when the run began */
    struct tt_run_rank0 rank0;
};

/* The training of one rank from the first step to the last file (run/loop.c). `team`: NULL, or what completes rows at
 * evaluations. Collective.  */
TT_MUST_USE tt_status tt_run_loop(struct tt_run *run, struct tt_rank *rank, struct tt_generation_team *team);

#endif
