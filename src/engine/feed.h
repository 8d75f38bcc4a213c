/* The micro batches of one rank in the order of its run: rows of tokens, or images that threads make ahead. The
 * micro batches of a step are a function of its number, so a run resumes from one integer. */
#ifndef TT_ENGINE_FEED_H
#define TT_ENGINE_FEED_H

#include "data/sampler.h"
#include "detect/loader.h"

/* Lent until the next one. */
struct tt_micro {
    struct tt_batch tokens;               /* empty where there are images */
    const struct tt_detect_batch *images; /* NULL: tokens */
};

struct tt_image_feed;

/* A struct with a sampler alone is a feed of tokens. */
struct tt_feed {
    const struct tt_sampler *sampler; /* lent; NULL: images */
    struct tt_batch_storage storage;
    struct tt_image_feed *images; /* owned */
};

/* Images: `config->rank` and `workers` are those of the rank; no thread starts before the first micro batch. */
TT_MUST_USE tt_status tt_feed_of_images(const struct tt_detect_loader_config *config, struct tt_feed *feed);
void tt_feed_deinit(struct tt_feed *feed);

/* Images count as samples, tokens and supervised tokens: the loss is divided by their number. */
TT_MUST_USE tt_status tt_feed_step(struct tt_feed *feed, int64_t step, struct tt_step_facts *facts);
/* `data_rank`: for a feed of tokens. Micro batches may be requested in any order; for images each jump restarts the
 * loader's threads. */
TT_MUST_USE tt_status tt_feed_micro(struct tt_feed *feed, int data_rank, int64_t step, int64_t micro,
                                    struct tt_micro *out);
/* Images: the micro batch after the last one, which tt_feed_micro gives next; waits for the threads that make it. The
 * last one's memory may change. NULL: rows, or a failure, which tt_feed_micro reports. */
const struct tt_detect_batch *tt_feed_ahead(struct tt_feed *feed);

#endif
