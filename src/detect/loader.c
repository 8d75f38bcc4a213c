#include "detect/loader.h"

#include <math.h>

#include "base/alloc.h"
#include "vision/loader.h"

/* Members of a slot of the ring beside its pixels. */
struct slot {
    struct tt_detect_batch batch;
    struct tt_detect_image *images;
    struct tt_image_place *places;
    int32_t *offsets;
    float (*boxes)[4];
    int32_t *labels;
    size_t image_capacity, box_capacity;
};

struct tt_detect_loader {
    struct tt_detect_loader_config config;
    struct tt_detect_order *order; /* of the epoch that is opened */
    int64_t epoch, steps;          /* of an epoch */
    int64_t step, micro;           /* the next one to open; step counts from the start of the run */
    struct slot *slots;
    int slot_count;
    struct tt_image_loader *images;
};

/* ---- Opening a batch ---- */

/* Boxes that train: no crowds, within the image, scaled as torchvision scales them, in fp32. */
static tt_status add_boxes(const struct tt_detect_loader *loader, struct slot *slot,
                           const struct tt_detect_image *image)
{
    const struct tt_detect_dataset *dataset = loader->config.dataset;
    const struct tt_detect_record *record = tt_detect_dataset_record(dataset, image->index);
    const struct tt_detect_box *boxes = tt_detect_dataset_boxes(dataset, image->index);
    float ratio_x = (float)image->width / (float)record->file.width,
          ratio_y = (float)image->height / (float)record->file.height;
    for (int64_t b = 0; b < record->box_count; b++) {
        const struct tt_detect_box *box = &boxes[b];
        float width = (float)record->file.width, height = (float)record->file.height;
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
    tt_free(slot->places);
    tt_free(slot->offsets);
    slot->images = tt_calloc(count + 1, sizeof *slot->images);
    slot->places = tt_calloc(count + 1, sizeof *slot->places);
    slot->offsets = tt_calloc(count + 1, sizeof *slot->offsets);
    bool all = slot->images != NULL && slot->places != NULL && slot->offsets != NULL;
    slot->image_capacity = all ? count : 0;
    return all ? TT_OK : TT_ERR_MEMORY;
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
        slot->places[i] = (struct tt_image_place){&record->file, place.height, place.width, place.flipped};
        slot->images[i] = (struct tt_detect_image){.index = share->images[i],
                                                   .id = record->id,
                                                   .height = place.height,
                                                   .width = place.width,
                                                   .original_height = record->file.height,
                                                   .original_width = record->file.width,
                                                   .flipped = place.flipped};
        slot->offsets[i] = (int32_t)slot->batch.box_count;
        TT_TRY(add_boxes(loader, slot, &slot->images[i]));
    }
    slot->offsets[share->count] = (int32_t)slot->batch.box_count;
    return TT_OK;
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

static tt_status open_slot(void *owner, int number, struct tt_image_canvas *canvas)
{
    struct tt_detect_loader *loader = owner;
    struct slot *slot = &loader->slots[number];
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
    slot->batch.images = slot->images;
    slot->batch.offsets = slot->offsets;
    slot->batch.boxes = (float *)slot->boxes;
    slot->batch.labels = slot->labels;
    *canvas = (struct tt_image_canvas){
        .count = share.count, .height = share.height, .width = share.width, .places = slot->places};
    return TT_OK;
}

/* ---- The caller ---- */

static tt_status create_images(struct tt_detect_loader *loader)
{
    const struct tt_detect_loader_config *config = &loader->config;
    const struct tt_image_loader_config images = {.workers = config->workers,
                                                  .ahead = config->ahead,
                                                  .pixel_dtype = config->pixel_dtype,
                                                  .channels = TT_DETECT_CHANNELS,
                                                  .max_pixels = config->max_pixels,
                                                  .cache = config->cache,
                                                  .allocate = config->allocate,
                                                  .release = config->release,
                                                  .memory = config->context,
                                                  .open = open_slot,
                                                  .owner = loader};
    return tt_image_loader_create(&images, &loader->images);
}

tt_status tt_detect_loader_create(const struct tt_detect_loader_config *config, int64_t first_step,
                                  struct tt_detect_loader **out)
{
    struct tt_detect_loader *loader = tt_calloc(1, sizeof *loader);
    if (loader == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    loader->config = *config;
    loader->step = first_step;
    loader->slot_count = tt_image_loader_slots(config->ahead);
    loader->slots = tt_calloc((size_t)loader->slot_count, sizeof *loader->slots);
    if (loader->slots == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(order_epoch(loader, 0)); /* an epoch's steps */
    TT_GO(create_images(loader));
    *out = loader;
    return TT_OK;
out:
    tt_detect_loader_destroy(loader);
    return status;
}

tt_status tt_detect_loader_next(struct tt_detect_loader *loader, const struct tt_detect_batch **batch)
{
    int number;
    const struct tt_image_canvas *canvas;
    TT_TRY(tt_image_loader_next(loader->images, &number, &canvas));
    struct slot *slot = &loader->slots[number];
    slot->batch.pixels = canvas->pixels;
    *batch = &slot->batch;
    return TT_OK;
}

double tt_detect_loader_waited(const struct tt_detect_loader *loader)
{
    return tt_image_loader_waited(loader->images);
}

void tt_detect_loader_destroy(struct tt_detect_loader *loader)
{
    if (loader == NULL) return;
    tt_image_loader_destroy(loader->images); /* ends the threads, which open slots */
    for (int s = 0; loader->slots != NULL && s < loader->slot_count; s++) {
        struct slot *slot = &loader->slots[s];
        tt_free(slot->images);
        tt_free(slot->places);
        tt_free(slot->offsets);
        tt_free(slot->boxes);
        tt_free(slot->labels);
    }
    tt_free(loader->slots);
    tt_detect_order_destroy(loader->order);
    tt_free(loader);
}
