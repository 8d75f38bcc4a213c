/* The files that the followers of trackers read, where output_dir is in a store that cannot append (base/store.h): a
 * folder of this machine with metrics.jsonl and generations.jsonl as they grow, run.json and trackers/. What a follower
 * leaves in trackers/ is put into output_dir, where the run that goes on finds it. */
#ifndef TT_RUN_TRACKER_MIRROR_H
#define TT_RUN_TRACKER_MIRROR_H

#include "base/file.h"

struct tt_journal;
struct tt_record_file;

struct tt_tracker_mirror {
    const char *output_dir; /* lent */
    struct tt_path folder;
    bool is_other; /* false: output_dir is on a disk, and no call has an effect */
};

/* `generations` may be NULL. Has trackers/config.json and run.json of output_dir. */
TT_MUST_USE tt_status tt_tracker_mirror_open(const char *output_dir, struct tt_journal *journal,
                                             struct tt_record_file *generations,
                                             struct tt_tracker_mirror *mirror);
/* Brings trackers/NAME.json from output_dir, if it is there. */
TT_MUST_USE tt_status tt_tracker_mirror_find(const struct tt_tracker_mirror *mirror, const char *name);
/* Puts it there. A failure is a warning. */
void tt_tracker_mirror_keep(const struct tt_tracker_mirror *mirror, const char *name);
/* Brings run.json, as it is at the end. */
void tt_tracker_mirror_end(const struct tt_tracker_mirror *mirror);
/* Removes the folder. */
void tt_tracker_mirror_close(struct tt_tracker_mirror *mirror);

#endif
