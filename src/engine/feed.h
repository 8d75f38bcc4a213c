/* The micro batches of one rank in the order of its run, from a source of one kind: rows of tokens (feed_rows.h), or
 * images that threads make ahead (feed_images.h). The micro batches of a step are a function of its number, so a run
 * resumes from one integer. */
#ifndef TT_ENGINE_FEED_H
#define TT_ENGINE_FEED_H

#include "data/sampler.h"
#include "detect/loader.h"

/* Lent until the next one. */
struct tt_micro {
    struct tt_batch tokens;               /* empty where there are images */
    const struct tt_detect_batch *images; /* NULL: tokens */
};

struct tt_feed_ops {
    tt_status (*step)(void *state, int64_t step, struct tt_step_facts *facts);
    tt_status (*micro)(void *state, int64_t step, int64_t micro, struct tt_micro *out);
    const struct tt_detect_batch *(*ahead)(void *state); /* NULL: nothing is made ahead */
    void (*destroy)(void *state);
};

/* A zeroed struct is empty. */
struct tt_feed {
    const struct tt_feed_ops *ops;
    void *state; /* owned */
};

void tt_feed_deinit(struct tt_feed *feed);
TT_MUST_USE tt_status tt_feed_step(struct tt_feed *feed, int64_t step, struct tt_step_facts *facts);
/* Micro batches may be requested in any order; of what is made ahead each jump makes all anew. */
TT_MUST_USE tt_status tt_feed_micro(struct tt_feed *feed, int64_t step, int64_t micro, struct tt_micro *out);
/* The micro batch after the last one, which tt_feed_micro gives next; waits for the threads that make it. The last
 * one's memory may change. NULL: nothing is made ahead, or a failure, which tt_feed_micro reports. */
const struct tt_detect_batch *tt_feed_ahead(struct tt_feed *feed);

#endif
