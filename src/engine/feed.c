#include "engine/feed.h"

void tt_feed_deinit(struct tt_feed *feed)
{
    if (feed->ops != NULL) feed->ops->destroy(feed->state);
    *feed = (struct tt_feed){0};
}

tt_status tt_feed_step(struct tt_feed *feed, int64_t step, struct tt_step_facts *facts)
{
    return feed->ops->step(feed->state, step, facts);
}

tt_status tt_feed_micro(struct tt_feed *feed, int64_t step, int64_t micro, struct tt_micro *out)
{
    *out = (struct tt_micro){0};
    return feed->ops->micro(feed->state, step, micro, out);
}

tt_status tt_feed_shared(struct tt_feed *feed, int64_t step, int64_t micro, struct tt_micro *out)
{
    if (feed->ops->shared == NULL) return tt_feed_micro(feed, step, micro, out);
    *out = (struct tt_micro){0};
    return feed->ops->shared(feed->state, step, micro, out);
}

bool tt_feed_ahead(struct tt_feed *feed, struct tt_micro *out)
{
    *out = (struct tt_micro){0};
    return feed->ops->ahead != NULL && feed->ops->ahead(feed->state, out);
}
