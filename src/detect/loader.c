#include "detect/loader.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "detect/image_files.h"
#include "image/resize.h"

enum { WORKERS_MAX = 64 };

/* A batch in the ring, and the work on it. */
struct slot {
    struct tt_detect_batch batch;
    void *pixels;
    size_t pixel_bytes;
    struct tt_detect_image *images;
    int32_t *offsets;
    float (*boxes)[4];
    int32_t *labels;
    size_t image_capacity, box_capacity;
    int64_t taken, done; /* images that a thread has begun, and finished */
    bool opened;
    tt_status status; /* of the first image that failed, or of opening the slot */
    int64_t failed;
    struct tt_error error;
};

struct tt_detect_loader {
    struct tt_detect_loader_config config;
    struct tt_detect_order *order; /* of the epoch that is opened */
    int64_t epoch, steps;          /* of an epoch */
    int64_t step, micro;           /* the next one to open; step counts from the start of the run */
    struct slot *slots;
    int64_t slot_count;
    int64_t opened, lent; /* batches that were opened, and given to the caller */
    struct tt_thread *threads[WORKERS_MAX];
    int thread_count;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopped, opening;
    double waited;
};

/* ---- Opening a batch ---- */

static void *allocate(const struct tt_detect_loader_config *config, size_t bytes)
{
    return config->allocate != NULL ? config->allocate(config->context, bytes) : tt_alloc_aligned(bytes);
}

static void release(const struct tt_detect_loader_config *config, void *block)
{
    if (block == NULL) return;
    if (config->allocate != NULL)
        config->release(config->context, block);
    else
        tt_free(block);
}

static tt_status grow_pixels(const struct tt_detect_loader_config *config, struct slot *slot, size_t bytes)
{
    if (bytes <= slot->pixel_bytes) return TT_OK;
    release(config, slot->pixels);
    slot->pixel_bytes = 0;
    slot->pixels = allocate(config, bytes);
    if (slot->pixels == NULL) return TT_ERR_MEMORY;
    slot->pixel_bytes = bytes;
    return TT_OK;
}

/* Boxes that train: no crowds, within the image, scaled as torchvision scales them, in fp32. */
static tt_status add_boxes(const struct tt_detect_loader *loader, struct slot *slot,
                           const struct tt_detect_image *image)
{
    const struct tt_detect_dataset *dataset = loader->config.dataset;
    const struct tt_detect_record *record = tt_detect_dataset_record(dataset, image->index);
    const struct tt_detect_box *boxes = tt_detect_dataset_boxes(dataset, image->index);
    float ratio_x = (float)image->width / (float)record->width,
          ratio_y = (float)image->height / (float)record->height;
    for (int64_t b = 0; b < record->box_count; b++) {
        const struct tt_detect_box *box = &boxes[b];
        float width = (float)record->width, height = (float)record->height;
        float x1 = (float)box->x, x2 = x1 + (float)box->w, y1 = (float)box->y, y2 = y1 + (float)box->h;
        x1 = fminf(fmaxf(x1, 0), width);
        x2 = fminf(fmaxf(x2, 0), width);
        y1 = fminf(fmaxf(y1, 0), height);
        y2 = fminf(fmaxf(y2, 0), height);
        if (box->crowd || !(x2 > x1) || !(y2 > y1)) continue;
        size_t at = (size_t)slot->batch.box_count, capacity = slot->box_capacity;
        TT_TRY(tt_grow(&slot->labels, at, &capacity));
        TT_TRY(tt_grow(&slot->boxes, at, &slot->box_capacity));
        float *to = slot->boxes[at];
        to[0] = (image->flipped ? width - x2 : x1) * ratio_x;
        to[1] = y1 * ratio_y;
        to[2] = (image->flipped ? width - x1 : x2) * ratio_x;
        to[3] = y2 * ratio_y;
        slot->labels[at] = box->label;
        slot->batch.box_count++;
    }
    return TT_OK;
}

static tt_status grow_images(struct slot *slot, size_t count)
{
    if (count <= slot->image_capacity && slot->offsets != NULL) return TT_OK;
    tt_free(slot->images);
    tt_free(slot->offsets);
    slot->images = tt_calloc(count + 1, sizeof *slot->images);
    slot->offsets = tt_calloc(count + 1, sizeof *slot->offsets);
    slot->image_capacity = slot->images != NULL && slot->offsets != NULL ? count : 0;
    return slot->images != NULL && slot->offsets != NULL ? TT_OK : TT_ERR_MEMORY;
}

static tt_status fill_facts(const struct tt_detect_loader *loader, struct slot *slot,
                            const struct tt_detect_share *share)
{
    const struct tt_detect_loader_config *config = &loader->config;
    TT_TRY(grow_images(slot, (size_t)share->count));
    for (int64_t i = 0; i < share->count; i++) {
        const struct tt_detect_record *record = tt_detect_dataset_record(config->dataset, share->images[i]);
        struct tt_detect_placement place =
            tt_detect_place(record, share->images[i], &config->order, slot->batch.epoch);
        slot->images[i] = (struct tt_detect_image){.index = share->images[i],
                                                   .id = record->id,
                                                   .height = place.height,
                                                   .width = place.width,
                                                   .original_height = record->height,
                                                   .original_width = record->width,
                                                   .flipped = place.flipped};
        slot->offsets[i] = (int32_t)slot->batch.box_count;
        TT_TRY(add_boxes(loader, slot, &slot->images[i]));
    }
    slot->offsets[share->count] = (int32_t)slot->batch.box_count;
    size_t pixels = (size_t)share->count * (size_t)share->height * (size_t)share->width * TT_DETECT_CHANNELS;
    return grow_pixels(config, slot, pixels * tt_dtype_bytes(config->pixel_dtype));
}

static tt_status order_epoch(struct tt_detect_loader *loader, int64_t epoch)
{
    if (loader->order != NULL && loader->epoch == epoch) return TT_OK;
    tt_detect_order_destroy(loader->order);
    loader->order = NULL;
    TT_TRY(tt_detect_order_create(loader->config.dataset, &loader->config.order, epoch, &loader->order));
    loader->epoch = epoch;
    loader->steps = tt_detect_order_steps(loader->order);
    return TT_OK;
}

static tt_status open_slot(struct tt_detect_loader *loader, struct slot *slot)
{
    int64_t epoch = loader->step / loader->steps, step = loader->step % loader->steps;
    TT_TRY(order_epoch(loader, epoch));
    struct tt_detect_step_facts facts = tt_detect_order_step(loader->order, step);
    struct tt_detect_share share =
        tt_detect_order_share(loader->order, step, loader->micro, loader->config.rank);
    slot->batch = (struct tt_detect_batch){.epoch = epoch,
                                           .step = loader->step,
                                           .micro = loader->micro,
                                           .micro_count = facts.micro_count,
                                           .step_images = facts.images,
                                           .image_count = share.count,
                                           .height = share.height,
                                           .width = share.width,
                                           .pixel_dtype = loader->config.pixel_dtype};
    if (++loader->micro == facts.micro_count) {
        loader->micro = 0;
        loader->step++;
    }
    TT_TRY(fill_facts(loader, slot, &share));
    slot->batch.pixels = slot->pixels;
    slot->batch.images = slot->images;
    slot->batch.offsets = slot->offsets;
    slot->batch.boxes = (float *)slot->boxes;
    slot->batch.labels = slot->labels;
    return TT_OK;
}

/* ---- Threads ---- */

static tt_status make_pixels(const struct tt_detect_loader *loader, const struct slot *slot, int64_t index)
{
    const struct tt_detect_batch *batch = &slot->batch;
    const struct tt_detect_image *image = &slot->images[index];
    const struct tt_detect_record *record = tt_detect_dataset_record(loader->config.dataset, image->index);
    struct tt_image decoded = {0};
    size_t bytes = (size_t)batch->height * (size_t)batch->width * TT_DETECT_CHANNELS *
                   tt_dtype_bytes(batch->pixel_dtype);
    const struct tt_image_target target = {.pixels = (char *)slot->pixels + (size_t)index * bytes,
                                           .dtype = batch->pixel_dtype,
                                           .row_stride = batch->width * TT_DETECT_CHANNELS,
                                           .channels = TT_DETECT_CHANNELS,
                                           .height = image->height,
                                           .width = image->width,
                                           .flipped = image->flipped};
    TT_TRY(tt_pixel_cache_read(loader->config.cache, record, loader->config.max_pixels, &decoded));
    tt_status status = TT_OK;
    if (decoded.height != record->height || decoded.width != record->width)
        status = tt_image_files_fail_size(record, decoded.height, decoded.width, "the data set says");
    if (status == TT_OK) {
        memset(target.pixels, 0, bytes);
        status = tt_image_normalize_resize(decoded.rgb, decoded.height, decoded.width, &target);
    }
    tt_image_deinit(&decoded);
    return status;
}

/* The first image of the oldest batch that no thread has; NULL: there is none. Under the lock. */
static struct slot *find_work(struct tt_detect_loader *loader)
{
    for (int64_t b = loader->lent; b < loader->opened; b++) {
        struct slot *slot = &loader->slots[b % loader->slot_count];
        if (slot->opened && slot->taken < slot->batch.image_count) return slot;
    }
    return NULL;
}

static void keep_error(struct slot *slot, int64_t index, tt_status status)
{
    if (slot->status != TT_OK && slot->failed <= index) return;
    slot->status = status;
    slot->failed = index;
    tt_error_copy(&slot->error);
}

/* Opens the next batch while there is room for one: the slot of the batch that the caller has is not used. Under the
 * lock, which is unlocked meanwhile; one thread at a time. false: there is no room. */
static bool open_next(struct tt_detect_loader *loader)
{
    int64_t held = loader->lent > 0 ? loader->lent - 1 : 0;
    if (loader->opening || loader->opened - held >= loader->slot_count) return false;
    struct slot *slot = &loader->slots[loader->opened % loader->slot_count];
    loader->opening = true;
    slot->opened = false;
    loader->opened++;
    pthread_mutex_unlock(&loader->lock);
    slot->taken = slot->done = 0;
    slot->status = TT_OK;
    tt_status status = open_slot(loader, slot);
    pthread_mutex_lock(&loader->lock);
    if (status != TT_OK) {
        keep_error(slot, -1, status);
        slot->batch.image_count = 0;
    }
    slot->opened = true;
    loader->opening = false;
    pthread_cond_broadcast(&loader->changed);
    return true;
}

static void work_on(struct tt_detect_loader *loader, struct slot *slot)
{
    int64_t index = slot->taken++;
    pthread_mutex_unlock(&loader->lock);
    tt_status status = make_pixels(loader, slot, index);
    pthread_mutex_lock(&loader->lock);
    if (status != TT_OK) keep_error(slot, index, status);
    if (++slot->done == slot->batch.image_count) pthread_cond_broadcast(&loader->changed);
}

static tt_status work(void *argument)
{
    struct tt_detect_loader *loader = argument;
    pthread_mutex_lock(&loader->lock);
    while (!loader->stopped) {
        struct slot *slot = find_work(loader);
        if (slot != NULL)
            work_on(loader, slot);
        else if (!open_next(loader))
            pthread_cond_wait(&loader->changed, &loader->lock);
    }
    pthread_mutex_unlock(&loader->lock);
    return TT_OK;
}

/* ---- The caller ---- */

tt_status tt_detect_loader_create(const struct tt_detect_loader_config *config, int64_t first_step,
                                  struct tt_detect_loader **out)
{
    if (config->pixel_dtype != TT_F32 && config->pixel_dtype != TT_BF16)
        return tt_fail(TT_ERR_INTERNAL, "images are not made as %s", tt_dtype_name(config->pixel_dtype));
    struct tt_detect_loader *loader = tt_calloc(1, sizeof *loader);
    if (loader == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    loader->config = *config;
    loader->step = first_step;
    loader->slot_count = (config->ahead > 1 ? config->ahead : 1) + 1; /* one is lent */
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->changed, NULL);
    loader->slots = tt_calloc((size_t)loader->slot_count, sizeof *loader->slots);
    if (loader->slots == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(order_epoch(loader, 0)); /* an epoch's steps */
    int workers = config->workers > 1 ? config->workers : 1;
    for (int i = 0; i < workers && i < WORKERS_MAX; i++) {
        TT_GO(tt_thread_start("images", work, loader, &loader->threads[i]));
        loader->thread_count++;
    }
    *out = loader;
    return TT_OK;
out:
    tt_detect_loader_destroy(loader);
    return status;
}

static bool is_finished(const struct tt_detect_loader *loader, const struct slot *slot)
{
    return loader->opened > loader->lent && slot->opened && slot->done == slot->batch.image_count;
}

tt_status tt_detect_loader_next(struct tt_detect_loader *loader, const struct tt_detect_batch **batch)
{
    double start = tt_clock_seconds();
    pthread_mutex_lock(&loader->lock);
    struct slot *slot = &loader->slots[loader->lent % loader->slot_count];
    while (!is_finished(loader, slot)) pthread_cond_wait(&loader->changed, &loader->lock);
    loader->lent++;
    loader->waited += tt_clock_seconds() - start;
    tt_status status = slot->status;
    pthread_cond_broadcast(&loader->changed); /* the slot of the batch before is free */
    pthread_mutex_unlock(&loader->lock);
    if (status != TT_OK) return tt_error_restore(&slot->error);
    *batch = &slot->batch;
    return TT_OK;
}

double tt_detect_loader_waited(const struct tt_detect_loader *loader)
{
    return loader->waited;
}

void tt_detect_loader_destroy(struct tt_detect_loader *loader)
{
    if (loader == NULL) return;
    pthread_mutex_lock(&loader->lock);
    loader->stopped = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->thread_count; i++) (void)!tt_thread_join(loader->threads[i]);
    for (int64_t s = 0; loader->slots != NULL && s < loader->slot_count; s++) {
        struct slot *slot = &loader->slots[s];
        release(&loader->config, slot->pixels);
        tt_free(slot->images);
        tt_free(slot->offsets);
        tt_free(slot->boxes);
        tt_free(slot->labels);
    }
    tt_free(loader->slots);
    tt_detect_order_destroy(loader->order);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    tt_free(loader);
}
