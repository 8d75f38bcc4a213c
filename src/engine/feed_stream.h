/* A feed of rows that are read while they train. */
#ifndef TT_ENGINE_FEED_STREAM_H
#define TT_ENGINE_FEED_STREAM_H

#include "data/step_flow.h"
#include "engine/feed.h"

/* `flow`: lent. `data_rank`: as of tt_feed_of_rows. */
TT_MUST_USE tt_status tt_feed_of_stream(struct tt_step_flow *flow, int data_rank, struct tt_feed *feed);

#endif
