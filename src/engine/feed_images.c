#include "engine/feed_images.h"

#include "base/alloc.h"
#include "engine/rank_images.h"

struct images {
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

static tt_status order_epoch(struct images *images, int64_t epoch)
{
    if (images->order != NULL && images->epoch == epoch) return TT_OK;
    tt_detect_order_destroy(images->order);
    images->order = NULL;
    TT_TRY(tt_detect_order_create(images->config.dataset, &images->config.order, epoch, &images->order));
    images->epoch = epoch;
    images->steps = tt_detect_order_steps(images->order);
    return TT_OK;
}

static tt_status step_of(void *state, int64_t step, struct tt_step_facts *facts)
{
    struct images *images = state;
    TT_TRY(order_epoch(images, step / images->steps));
    struct tt_detect_step_facts all = tt_detect_order_step(images->order, step % images->steps);
    *facts = (struct tt_step_facts){.epoch = images->epoch,
                                    .micro_count = all.micro_count,
                                    .samples = all.images,
                                    .images = all.images,
                                    .supervised = all.images,
                                    .pixels = all.pixels};
    return TT_OK;
}

static tt_status next_of_loader(struct images *images, const struct tt_detect_batch **batch)
{
    TT_TRY(tt_detect_loader_next(images->loader, batch));
    if (++images->micro < (*batch)->micro_count) return TT_OK;
    images->micro = 0;
    images->step++;
    return TT_OK;
}

/* The heads multiply each image's losses by one over the images of the step. */
static void give(const struct tt_detect_batch *batch, struct tt_micro *out)
{
    int64_t images = batch->step_images;
    out->parts[out->part_count++] = tt_images_part(batch, 1.0 / (double)(images > 0 ? images : 1));
}

static bool ahead_of(void *state, struct tt_micro *out)
{
    struct images *images = state;
    if (images->loader == NULL || images->ahead.taken) return false;
    images->ahead.taken = true;
    images->ahead.step = images->step;
    images->ahead.micro = images->micro;
    images->ahead.batch = NULL;
    if (next_of_loader(images, &images->ahead.batch) == TT_OK) {
        give(images->ahead.batch, out);
        return true;
    }
    images->ahead.batch = NULL;
    tt_error_copy(&images->ahead.error);
    tt_error_clear();
    return false;
}

static tt_status micro_of(void *state, int64_t step, int64_t micro, struct tt_micro *out)
{
    struct images *images = state;
    bool taken = images->ahead.taken && images->ahead.step == step && images->ahead.micro == micro;
    images->ahead.taken = false;
    if (taken) {
        if (images->ahead.batch == NULL) return tt_error_restore(&images->ahead.error);
        give(images->ahead.batch, out);
        return TT_OK;
    }
    if (images->loader == NULL || images->step != step || images->micro > micro) {
        tt_detect_loader_destroy(images->loader);
        images->loader = NULL;
        TT_TRY(tt_detect_loader_create(&images->config, step, &images->loader));
        images->step = step;
        images->micro = 0;
    }
    const struct tt_detect_batch *batch = NULL;
    do TT_TRY(next_of_loader(images, &batch));
    while (batch->micro < micro);
    give(batch, out);
    return TT_OK;
}

static void destroy(void *state)
{
    struct images *images = state;
    tt_detect_loader_destroy(images->loader);
    tt_detect_order_destroy(images->order);
    tt_free(images);
}

static const struct tt_feed_ops ops = {
    .step = step_of, .micro = micro_of, .ahead = ahead_of, .destroy = destroy};

tt_status tt_feed_of_images(const struct tt_detect_loader_config *config, struct tt_feed *feed)
{
    struct images *images = tt_calloc(1, sizeof *images);
    *feed = (struct tt_feed){0};
    if (images == NULL) return TT_ERR_MEMORY;
    images->config = *config;
    *feed = (struct tt_feed){.ops = &ops, .state = images};
    tt_status status = order_epoch(images, 0);
    if (status != TT_OK) tt_feed_deinit(feed);
    return status;
}
