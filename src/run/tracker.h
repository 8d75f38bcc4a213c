/* The trackers of report_to (job/trackers.def): for each a follower, a Python process that reads the files of
 * output_dir and feeds the user's library (run/python/tracker.py, found beside the program; tracker_python runs
 * it). A follower is in a process group of its own, so that signals for the training do not reach it;
 * its standard input is a pipe that closes when the training ends or dies; what it prints is a few lines for people.
 * Nothing here waits for one before the end, and none can fail a run. Rank 0 only, one thread at a time. */
#ifndef TT_RUN_TRACKER_H
#define TT_RUN_TRACKER_H

#include "run/tracker_config.h"

struct tt_trackers;
struct tt_record_file;

/* The files of a run that followers read besides run.json. */
struct tt_trackers_files {
    struct tt_journal *journal;
    struct tt_record_file *generations; /* NULL: none */
};

/* When run.json is written and the files are open. Writes output_dir/trackers/config.json. Where output_dir is in a
 * store that cannot append, followers get a copy of the files (tracker_mirror.h). NULL: no tracker was started;
 * warnings say why. */
struct tt_trackers *tt_trackers_open(const struct tt_run_job *job, const struct tt_tracker_config *config,
                                     const struct tt_trackers_files *files);
/* Logs what followers say and which have ended. Takes NULL. */
void tt_trackers_poll(struct tt_trackers *trackers);
/* When all files of the run are written: waits until the followers have sent the rest, at most tracker_seconds, of a
 * run that was stopped at most 5, and ends those that have not. Takes NULL. */
void tt_trackers_close(struct tt_trackers *trackers, bool stopped);

#endif
