/* A feed of rows of tokens. */
#ifndef TT_ENGINE_FEED_ROWS_H
#define TT_ENGINE_FEED_ROWS_H

#include "engine/feed.h"

/* `sampler`: lent. `data_rank`: the part of each micro batch of the world that is this rank's (engine/mesh.h). */
TT_MUST_USE tt_status tt_feed_of_rows(const struct tt_sampler *sampler, int data_rank, struct tt_feed *feed);

#endif
