#include "engine/feed.h"

#include "base/alloc.h"

struct tt_image_feed {
    struct tt_detect_loader_config config;
    struct tt_detect_order *order; /* of `epoch` */
    int64_t epoch, steps;          /* steps of an epoch */
    struct tt_detect_loader *loader;
    int64_t step, micro; /* the next one of the loader */
    struct {
        bool taken; /* from the loader, and not given yet */
        int64_t step, micro;
        const struct tt_detect_batch *batch; /* NULL: it failed */
        struct tt_error error;
    } ahead;
};

static tt_status order_epoch(struct tt_image_feed *feed, int64_t epoch)
{
    if (feed->order != NULL && feed->epoch == epoch) return TT_OK;
    tt_detect_order_destroy(feed->order);
    feed->order = NULL;
    TT_TRY(tt_detect_order_create(feed->config.dataset, &feed->config.order, epoch, &feed->order));
    feed->epoch = epoch;
    feed->steps = tt_detect_order_steps(feed->order);
    return TT_OK;
}

tt_status tt_feed_of_images(const struct tt_detect_loader_config *config, struct tt_feed *feed)
{
    *feed = (struct tt_feed){.images = tt_calloc(1, sizeof *feed->images)};
    if (feed->images == NULL) return TT_ERR_MEMORY;
    feed->images->config = *config;
    tt_status status = order_epoch(feed->images, 0);
    if (status != TT_OK) tt_feed_deinit(feed);
    return status;
}

void tt_feed_deinit(struct tt_feed *feed)
{
    if (feed->images != NULL) {
        tt_detect_loader_destroy(feed->images->loader);
        tt_detect_order_destroy(feed->images->order);
        tt_free(feed->images);
    }
    tt_batch_storage_deinit(&feed->storage);
    *feed = (struct tt_feed){0};
}

tt_status tt_feed_step(struct tt_feed *feed, int64_t step, struct tt_step_facts *facts)
{
    struct tt_image_feed *images = feed->images;
    if (images == NULL) {
        tt_sampler_step(feed->sampler, step, facts);
        return TT_OK;
    }
    TT_TRY(order_epoch(images, step / images->steps));
    struct tt_detect_step_facts all = tt_detect_order_step(images->order, step % images->steps);
    *facts = (struct tt_step_facts){.epoch = images->epoch,
                                    .micro_count = all.micro_count,
                                    .supervised_tokens = all.images,
                                    .tokens = all.images,
                                    .samples = all.images,
                                    .pixels = all.pixels};
    return TT_OK;
}

static tt_status next_of_loader(struct tt_image_feed *feed, const struct tt_detect_batch **batch)
{
    TT_TRY(tt_detect_loader_next(feed->loader, batch));
    if (++feed->micro < (*batch)->micro_count) return TT_OK;
    feed->micro = 0;
    feed->step++;
    return TT_OK;
}

const struct tt_detect_batch *tt_feed_ahead(struct tt_feed *feed)
{
    struct tt_image_feed *images = feed->images;
    if (images == NULL || images->loader == NULL || images->ahead.taken) return NULL;
    images->ahead.taken = true;
    images->ahead.step = images->step;
    images->ahead.micro = images->micro;
    images->ahead.batch = NULL;
    if (next_of_loader(images, &images->ahead.batch) == TT_OK) return images->ahead.batch;
    images->ahead.batch = NULL;
    tt_error_copy(&images->ahead.error);
    tt_error_clear();
    return NULL;
}

tt_status tt_feed_micro(struct tt_feed *feed, int data_rank, int64_t step, int64_t micro,
                        struct tt_micro *out)
{
    struct tt_image_feed *images = feed->images;
    *out = (struct tt_micro){0};
    if (images == NULL)
        return tt_sampler_batch(feed->sampler, step, micro, data_rank, &feed->storage, &out->tokens);
    bool taken = images->ahead.taken && images->ahead.step == step && images->ahead.micro == micro;
    images->ahead.taken = false;
    if (taken) {
        out->images = images->ahead.batch;
        return out->images != NULL ? TT_OK : tt_error_restore(&images->ahead.error);
    }
    if (images->loader == NULL || images->step != step || images->micro > micro) {
        tt_detect_loader_destroy(images->loader);
        images->loader = NULL;
        TT_TRY(tt_detect_loader_create(&images->config, step, &images->loader));
        images->step = step;
        images->micro = 0;
    }
    do TT_TRY(next_of_loader(images, &out->images));
    while (out->images->micro < micro);
    return TT_OK;
}
