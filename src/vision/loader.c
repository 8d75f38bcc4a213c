#include "vision/loader.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "image/resize.h"
#include "vision/image_files.h"

enum { WORKERS_MAX = 64 };

/* A batch in the ring, and the work on it. */
struct slot {
    struct tt_image_canvas canvas;
    void *pixels;
    size_t pixel_bytes;
    int64_t taken, done; /* images that a thread has begun, and finished */
    bool opened;
    tt_status status; /* of the first image that failed, or of opening the slot */
    int64_t failed;
    struct tt_error error;
};

struct tt_image_loader {
    struct tt_image_loader_config config;
    struct slot *slots;
    int slot_count;
    int64_t opened, lent; /* batches that were opened, and given to the caller */
    struct tt_thread *threads[WORKERS_MAX];
    int thread_count;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopped, opening;
    double waited;
};

/* ---- Opening a batch ---- */

static void *allocate(const struct tt_image_loader_config *config, size_t bytes)
{
    return config->allocate != NULL ? config->allocate(config->memory, bytes) : tt_alloc_aligned(bytes);
}

static void release(const struct tt_image_loader_config *config, void *block)
{
    if (block == NULL) return;
    if (config->allocate != NULL)
        config->release(config->memory, block);
    else
        tt_free(block);
}

static tt_status grow_pixels(const struct tt_image_loader_config *config, struct slot *slot, size_t bytes)
{
    if (bytes <= slot->pixel_bytes) return TT_OK;
    release(config, slot->pixels);
    slot->pixel_bytes = 0;
    slot->pixels = allocate(config, bytes);
    if (slot->pixels == NULL) return TT_ERR_MEMORY;
    slot->pixel_bytes = bytes;
    return TT_OK;
}

static size_t image_bytes(const struct tt_image_loader_config *config, const struct tt_image_canvas *canvas)
{
    return (size_t)canvas->height * (size_t)canvas->width * (size_t)config->channels *
           tt_dtype_bytes(config->pixel_dtype);
}

static tt_status open_slot(struct tt_image_loader *loader, int number)
{
    const struct tt_image_loader_config *config = &loader->config;
    struct slot *slot = &loader->slots[number];
    slot->canvas = (struct tt_image_canvas){0};
    TT_TRY(config->open(config->owner, number, &slot->canvas));
    TT_TRY(grow_pixels(config, slot, (size_t)slot->canvas.count * image_bytes(config, &slot->canvas)));
    slot->canvas.pixels = slot->pixels;
    return TT_OK;
}

/* ---- Threads ---- */

static tt_status make_pixels(const struct tt_image_loader *loader, const struct slot *slot, int64_t index)
{
    const struct tt_image_loader_config *config = &loader->config;
    const struct tt_image_canvas *canvas = &slot->canvas;
    const struct tt_image_place *place = &canvas->places[index];
    const struct tt_image_file *file = place->file;
    struct tt_image decoded = {0};
    size_t bytes = image_bytes(config, canvas);
    const struct tt_image_target target = {.pixels = (char *)slot->pixels + (size_t)index * bytes,
                                           .dtype = config->pixel_dtype,
                                           .row_stride = canvas->width * config->channels,
                                           .channels = config->channels,
                                           .height = place->height,
                                           .width = place->width,
                                           .flipped = place->flipped};
    TT_TRY(tt_pixel_cache_read(config->cache, file, config->max_pixels, &decoded));
    tt_status status = TT_OK;
    if (decoded.height != file->height || decoded.width != file->width)
        status = tt_image_files_fail_size(file, decoded.height, decoded.width, "the data set says");
    if (status == TT_OK) {
        memset(target.pixels, 0, bytes);
        status = tt_image_normalize_resize(decoded.rgb, decoded.height, decoded.width, &target);
    }
    tt_image_deinit(&decoded);
    return status;
}

/* The first image of the oldest batch that no thread has; NULL: there is none. Under the lock. */
static struct slot *find_work(struct tt_image_loader *loader)
{
    for (int64_t b = loader->lent; b < loader->opened; b++) {
        struct slot *slot = &loader->slots[b % loader->slot_count];
        if (slot->opened && slot->taken < slot->canvas.count) return slot;
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
static bool open_next(struct tt_image_loader *loader)
{
    int64_t held = loader->lent > 0 ? loader->lent - 1 : 0;
    if (loader->opening || loader->opened - held >= loader->slot_count) return false;
    int number = (int)(loader->opened % loader->slot_count);
    struct slot *slot = &loader->slots[number];
    loader->opening = true;
    slot->opened = false;
    loader->opened++;
    pthread_mutex_unlock(&loader->lock);
    slot->taken = slot->done = 0;
    slot->status = TT_OK;
    tt_status status = open_slot(loader, number);
    pthread_mutex_lock(&loader->lock);
    if (status != TT_OK) {
        keep_error(slot, -1, status);
        slot->canvas.count = 0;
    }
    slot->opened = true;
    loader->opening = false;
    pthread_cond_broadcast(&loader->changed);
    return true;
}

static void work_on(struct tt_image_loader *loader, struct slot *slot)
{
    int64_t index = slot->taken++;
    pthread_mutex_unlock(&loader->lock);
    tt_status status = make_pixels(loader, slot, index);
    pthread_mutex_lock(&loader->lock);
    if (status != TT_OK) keep_error(slot, index, status);
    if (++slot->done == slot->canvas.count) pthread_cond_broadcast(&loader->changed);
}

static tt_status work(void *argument)
{
    struct tt_image_loader *loader = argument;
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

int tt_image_loader_slots(int ahead)
{
    return (ahead > 1 ? ahead : 1) + 1;
}

tt_status tt_image_loader_create(const struct tt_image_loader_config *config, struct tt_image_loader **out)
{
    if (config->pixel_dtype != TT_F32 && config->pixel_dtype != TT_BF16)
        return tt_fail(TT_ERR_INTERNAL, "images are not made as %s", tt_dtype_name(config->pixel_dtype));
    struct tt_image_loader *loader = tt_calloc(1, sizeof *loader);
    if (loader == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    loader->config = *config;
    loader->slot_count = tt_image_loader_slots(config->ahead);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->changed, NULL);
    loader->slots = tt_calloc((size_t)loader->slot_count, sizeof *loader->slots);
    if (loader->slots == NULL) TT_GO(TT_ERR_MEMORY);
    int workers = config->workers > 1 ? config->workers : 1;
    for (int i = 0; i < workers && i < WORKERS_MAX; i++) {
        TT_GO(tt_thread_start("images", work, loader, &loader->threads[i]));
        loader->thread_count++;
    }
    *out = loader;
    return TT_OK;
out:
    tt_image_loader_destroy(loader);
    return status;
}

static bool is_finished(const struct tt_image_loader *loader, const struct slot *slot)
{
    return loader->opened > loader->lent && slot->opened && slot->done == slot->canvas.count;
}

tt_status tt_image_loader_next(struct tt_image_loader *loader, int *number,
                               const struct tt_image_canvas **canvas)
{
    double start = tt_clock_seconds();
    pthread_mutex_lock(&loader->lock);
    *number = (int)(loader->lent % loader->slot_count);
    struct slot *slot = &loader->slots[*number];
    while (!is_finished(loader, slot)) pthread_cond_wait(&loader->changed, &loader->lock);
    loader->lent++;
    loader->waited += tt_clock_seconds() - start;
    tt_status status = slot->status;
    pthread_cond_broadcast(&loader->changed); /* the slot of the batch before is free */
    pthread_mutex_unlock(&loader->lock);
    if (status != TT_OK) return tt_error_restore(&slot->error);
    *canvas = &slot->canvas;
    return TT_OK;
}

double tt_image_loader_waited(const struct tt_image_loader *loader)
{
    return loader->waited;
}

void tt_image_loader_destroy(struct tt_image_loader *loader)
{
    if (loader == NULL) return;
    pthread_mutex_lock(&loader->lock);
    loader->stopped = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->thread_count; i++) (void)!tt_thread_join(loader->threads[i]);
    for (int s = 0; loader->slots != NULL && s < loader->slot_count; s++)
        release(&loader->config, loader->slots[s].pixels);
    tt_free(loader->slots);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    tt_free(loader);
}
