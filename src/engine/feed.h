/* The micro batches of one rank in the order of its run, from a source of one kind: rows of tokens (feed_rows.h), or
 * images that threads make ahead (feed_images.h). The micro batches of a step are a function of its number, so a run
 * resumes from one integer. */
#ifndef TT_ENGINE_FEED_H
#define TT_ENGINE_FEED_H

#include "data/sampler.h"
#include "nn/pass.h"

/* A part of a micro batch beside its tokens, in host memory. The kind's header makes it (engine/rank_images.h). */
struct tt_micro_part {
    enum tt_attachment_kind kind;
    const void *batch; /* of the kind's type */
    double weight;     /* of the losses of each of its items */
};

/* Lent until the next one. */
struct tt_micro {
    struct tt_batch tokens; /* may be empty */
    struct tt_micro_part parts[TT_ATTACHMENTS_MAX];
    int part_count;
};

struct tt_feed_ops {
    tt_status (*step)(void *state, int64_t step, struct tt_step_facts *facts);
    tt_status (*micro)(void *state, int64_t step, int64_t micro, struct tt_micro *out);
    /* The micro batch of the pass before the gradients; NULL: that of `micro`. */
    tt_status (*shared)(void *state, int64_t step, int64_t micro, struct tt_micro *out);
    bool (*ahead)(void *state, struct tt_micro *out); /* NULL: nothing is made ahead */
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
/* The micro batch of the pass before the gradients (tt_sampler_shared). */
TT_MUST_USE tt_status tt_feed_shared(struct tt_feed *feed, int64_t step, int64_t micro, struct tt_micro *out);
/* The micro batch after the last one, which tt_feed_micro gives next; waits for the threads that make it. The last
 * one's memory may change. False: nothing is made ahead, or a failure, which tt_feed_micro reports. */
bool tt_feed_ahead(struct tt_feed *feed, struct tt_micro *out);

#endif
