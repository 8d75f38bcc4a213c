/* Micro batches of images on the device. Where the device is the host, the batch lends its own memory to the pass; only
 * anchors have a buffer there, and a plan counts that memory, of the batch and of the next one that threads make. Else
 * batches alternate between two slots: a copy stream fills one while the passes read the other. */
#include "engine/rank_images.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "detect/anchors.h"
#include "engine/rank.h"
#include "engine/rehearsal.h"

/* Micro batches on their way to a device that is not the host: threads write them into page-locked pieces of `ring`,
 * and a stream of its own copies each into one of two slots, the next one while the passes read the last. */
enum { SLOTS = 2 };
struct upload {
    struct tt_buffer *ring; /* in a plan the memory of batches on the host too */
    atomic_bool lent[SLOTS];
    struct tt_stream *stream;                         /* NULL where the device is the host */
    struct tt_event *filled[SLOTS], *released[SLOTS]; /* released: no pass reads the slot */
    int slot;                                         /* that the passes read */
    const struct tt_detect_batch *ahead;              /* in the other slot; NULL: none */
};

struct images {
    struct tt_buffer *buffer; /* anchors, and where the device is not the host the slots */
    int64_t height, width;    /* the canvas of the anchors; 0: none yet */
    struct upload upload;
    struct tt_rehearsals rehearsals;
};

enum { ALIGNMENT = 256 };

static size_t aligned(int64_t count, size_t element)
{
    return tt_align_up((size_t)count * element, ALIGNMENT);
}

static size_t anchor_bytes(int64_t height, int64_t width)
{
    return aligned(tt_anchor_grid_make(height, width).count, 4 * sizeof(float));
}

static size_t batch_bytes(const struct tt_rank_config *config)
{
    const struct tt_batch_limits *limits = &config->limits;
    return aligned(limits->images * limits->height * limits->width * TT_DETECT_CHANNELS,
                   tt_dtype_bytes(config->model_options.compute_dtype)) +
           aligned(limits->boxes, 4 * sizeof(float)) + aligned(limits->boxes, sizeof(int32_t)) +
           aligned(limits->images + 1, sizeof(int32_t));
}

static tt_status create(const struct tt_rank_config *config, struct tt_rank *rank, void **state)
{
    const struct tt_batch_limits *limits = &config->limits;
    if (limits->images == 0) return TT_OK;
    struct images *images = tt_calloc(1, sizeof *images);
    if (images == NULL) return TT_ERR_MEMORY;
    *state = images;
    struct upload *upload = &images->upload;
    bool host = tt_device_is_host(rank->device);
    size_t anchors = anchor_bytes(limits->height, limits->width), batch = batch_bytes(config);
    if (!host || tt_device_is_plan(rank->device))
        TT_TRY(tt_host_buffer_create(rank->device, SLOTS * batch, TT_PURPOSE_STAGING, &upload->ring));
    if (!host) TT_TRY(tt_stream_create_copy(rank->device, &upload->stream));
    for (int i = 0; i < SLOTS && !host; i++) {
        TT_TRY(tt_event_create(rank->device, &upload->filled[i]));
        TT_TRY(tt_event_create(rank->device, &upload->released[i]));
    }
    return tt_buffer_create(rank->device, anchors + (host ? 0 : SLOTS * batch), TT_PURPOSE_BATCH,
                            &images->buffer);
}

static void destroy(void *state)
{
    struct images *images = state;
    struct upload *upload = &images->upload;
    for (int i = 0; i < SLOTS; i++) {
        tt_event_destroy(upload->filled[i]);
        tt_event_destroy(upload->released[i]);
    }
    tt_stream_destroy(upload->stream);
    tt_buffer_destroy(images->buffer);
    tt_buffer_destroy(upload->ring);
    tt_rehearsals_deinit(&images->rehearsals);
    tt_free(images);
}

static size_t piece_bytes(const struct images *images)
{
    return tt_buffer_bytes(images->upload.ring) / SLOTS;
}

void *tt_rank_lend_pixels(void *context, size_t bytes)
{
    struct images *images = tt_rank_attached_state(context, TT_ATTACHED_IMAGES);
    struct upload *upload = &images->upload;
    for (int i = 0; i < SLOTS && upload->ring != NULL && bytes <= piece_bytes(images); i++)
        if (!atomic_exchange(&upload->lent[i], true))
            return (char *)tt_buffer_data(upload->ring) + (size_t)i * piece_bytes(images);
    return tt_alloc_aligned(bytes);
}

void tt_rank_return_pixels(void *context, void *block)
{
    struct images *images = tt_rank_attached_state(context, TT_ATTACHED_IMAGES);
    struct upload *upload = &images->upload;
    for (int i = 0; i < SLOTS && upload->ring != NULL; i++) {
        if (block != (char *)tt_buffer_data(upload->ring) + (size_t)i * piece_bytes(images)) continue;
        atomic_store(&upload->lent[i], false);
        return;
    }
    tt_free(block);
}

/* A canvas keeps its anchors until another one comes. */
static tt_status place_anchors(const struct tt_rank *rank, struct images *images, int64_t height,
                               int64_t width, tt_tensor *anchors_A4)
{
    struct tt_anchor_grid grid = tt_anchor_grid_make(height, width);
    float *to = tt_buffer_data(images->buffer);
    *anchors_A4 = tt_tensor_2d(to, TT_F32, grid.count, 4);
    if (tt_device_is_plan(rank->device) || (images->height == height && images->width == width)) return TT_OK;
    images->height = height;
    images->width = width;
    if (tt_device_is_host(rank->device)) {
        tt_anchor_grid_write(&grid, to);
        return TT_OK;
    }
    float *host = tt_alloc_aligned((size_t)grid.count * 4 * sizeof *host);
    if (host == NULL) return TT_ERR_MEMORY;
    tt_anchor_grid_write(&grid, host);
    tt_status status = tt_copy_to_device(rank->stream, to, host, (size_t)grid.count * 4 * sizeof *host);
    if (status == TT_OK) status = tt_stream_synchronize(rank->stream);
    tt_free(host);
    return status;
}

/* The arrays of a batch as a pass reads them. */
struct arrays {
    void *pixels, *boxes, *labels, *offsets;
};

static void *next_piece(char **next, int64_t count, size_t element)
{
    void *piece = *next;
    *next += aligned(count, element);
    return piece;
}

/* Where the arrays are in a slot, or in the memory that a plan counts on the host. */
static struct arrays lay_out(const struct tt_rank *rank, const struct images *images, int slot,
                             const struct tt_detect_batch *batch)
{
    const struct tt_batch_limits *limits = &rank->limits;
    size_t anchors = anchor_bytes(limits->height, limits->width);
    bool host = tt_device_is_host(rank->device);
    char *next = host ? tt_buffer_data(images->upload.ring)
                      : (char *)tt_buffer_data(images->buffer) + anchors + (size_t)slot * piece_bytes(images);
    int64_t places = batch->image_count * batch->height * batch->width;
    struct arrays to;
    to.pixels =
        next_piece(&next, places * TT_DETECT_CHANNELS, tt_dtype_bytes(rank->model->options.compute_dtype));
    to.boxes = next_piece(&next, batch->box_count, 4 * sizeof(float));
    to.labels = next_piece(&next, batch->box_count, sizeof(int32_t));
    to.offsets = next_piece(&next, batch->image_count + 1, sizeof(int32_t));
    return to;
}

/* Copies to a slot when the passes before have read it. */
static tt_status fill_slot(const struct tt_rank *rank, struct images *images, int slot,
                           const struct tt_detect_batch *batch)
{
    struct upload *upload = &images->upload;
    const struct arrays to = lay_out(rank, images, slot, batch);
    size_t boxes = (size_t)batch->box_count, count = (size_t)batch->image_count;
    size_t element = tt_dtype_bytes(rank->model->options.compute_dtype);
    size_t pixels = count * (size_t)batch->height * (size_t)batch->width * TT_DETECT_CHANNELS * element;
    TT_TRY(tt_stream_wait(upload->stream, upload->released[slot]));
    if (count > 0) {
        TT_TRY(tt_copy_to_device(upload->stream, to.pixels, batch->pixels, pixels));
        TT_TRY(tt_copy_to_device(upload->stream, to.offsets, batch->offsets, (count + 1) * sizeof(int32_t)));
    }
    if (boxes > 0) {
        TT_TRY(tt_copy_to_device(upload->stream, to.boxes, batch->boxes, boxes * 4 * sizeof(float)));
        TT_TRY(tt_copy_to_device(upload->stream, to.labels, batch->labels, boxes * sizeof(int32_t)));
    }
    return tt_event_record(upload->filled[slot], upload->stream);
}

/* The host waits for the copy: the batch's memory may be used again. */
static tt_status bring(const struct tt_rank *rank, struct images *images, const struct tt_detect_batch *batch,
                       struct arrays *to)
{
    struct upload *upload = &images->upload;
    int slot = (upload->slot + 1) % SLOTS;
    TT_TRY(tt_event_record(upload->released[upload->slot], rank->stream));
    if (upload->ahead != batch) TT_TRY(fill_slot(rank, images, slot, batch));
    upload->ahead = NULL;
    upload->slot = slot;
    *to = lay_out(rank, images, slot, batch);
    TT_TRY(tt_stream_wait(rank->stream, upload->filled[slot]));
    return tt_event_synchronize(upload->filled[slot]);
}

static void forget_ahead(void *state)
{
    struct images *images = state;
    images->upload.ahead = NULL;
}

static bool takes_ahead(const struct tt_rank *rank, const void *state)
{
    const struct images *images = state;
    return images->upload.stream != NULL && !tt_device_is_plan(rank->device);
}

/* Pixels, boxes, ... where the pass reads them. */
static tt_status place(const struct tt_rank *rank, struct images *images, const struct tt_detect_batch *batch,
                       struct arrays *to)
{
    if (tt_device_is_plan(rank->device)) {
        *to = lay_out(rank, images, 0, batch);
        return TT_OK;
    }
    if (!tt_device_is_host(rank->device)) return bring(rank, images, batch, to);
    *to = (struct arrays){(void *)(uintptr_t)batch->pixels, (void *)(uintptr_t)batch->boxes,
                          (void *)(uintptr_t)batch->labels, (void *)(uintptr_t)batch->offsets};
    return TT_OK;
}

static tt_status check_limits(const struct tt_rank *rank, const struct tt_detect_batch *batch)
{
    const struct tt_batch_limits *limits = &rank->limits;
    tt_dtype dtype = rank->model->options.compute_dtype;
    if (batch->image_count > 0 && batch->pixel_dtype != dtype)
        return tt_fail(TT_ERR_INTERNAL, "pixels of %s for a network in %s", tt_dtype_name(batch->pixel_dtype),
                       tt_dtype_name(dtype));
    bool fits = batch->image_count <= limits->images && batch->height <= limits->height &&
                batch->width <= limits->width && batch->box_count <= limits->boxes;
    return fits ? TT_OK
                : tt_fail(TT_ERR_INTERNAL,
                          "a micro batch of %lld images of %lld x %lld is larger than the %lld of %lld x "
                          "%lld planned for",
                          (long long)batch->image_count, (long long)batch->width, (long long)batch->height,
                          (long long)limits->images, (long long)limits->width, (long long)limits->height);
}

static tt_status attach_ahead(struct tt_rank *rank, void *state, const struct tt_micro_part *part)
{
    struct images *images = state;
    TT_TRY(check_limits(rank, part->batch));
    TT_TRY(fill_slot(rank, images, (images->upload.slot + 1) % SLOTS, part->batch));
    images->upload.ahead = part->batch;
    return TT_OK;
}

static tt_status attach(struct tt_rank *rank, void *state, const struct tt_micro_part *part,
                        struct tt_attachment *attachment)
{
    const struct tt_detect_batch *batch = part->batch;
    tt_dtype dtype = rank->model->options.compute_dtype;
    struct arrays to;
    tt_tensor anchors_A4;
    TT_TRY(check_limits(rank, batch));
    int64_t count = batch->image_count, places = count * batch->height * batch->width;
    TT_TRY(place_anchors(rank, state, batch->height, batch->width, &anchors_A4));
    TT_TRY(place(rank, state, batch, &to));
    *attachment = (struct tt_attachment){
        .kind = TT_ATTACHED_IMAGES,
        .count = count,
        .height = batch->height,
        .width = batch->width,
        .pixels_PC = tt_tensor_2d(to.pixels, dtype, places, TT_DETECT_CHANNELS),
        .boxes = {.boxes_M4 = tt_tensor_2d(to.boxes, TT_F32, batch->box_count, 4),
                  .labels_M = tt_tensor_1d(to.labels, TT_I32, batch->box_count),
                  .offsets = tt_tensor_1d(to.offsets, TT_I32, count + 1),
                  .anchors_A4 = anchors_A4,
                  .weight = (float)part->weight},
    };
    return TT_OK;
}

static tt_status attach_largest(struct tt_rank *rank, void *state, const struct tt_batch_limits *limits,
                                struct tt_attachment *to)
{
    const struct tt_detect_batch batch = {.image_count = limits->images,
                                          .height = limits->height,
                                          .width = limits->width,
                                          .pixel_dtype = rank->model->options.compute_dtype,
                                          .box_count = limits->boxes};
    const struct tt_micro_part part = tt_images_part(&batch, 1.0);
    return attach(rank, state, &part, to);
}

static tt_status prepare(struct tt_rank *rank, void *state, const struct tt_attachment *attachment,
                         const struct tt_pass *pass)
{
    struct images *images = state;
    const struct tt_canvas canvas = {attachment->count, attachment->height, attachment->width,
                                     pass->in.gradient};
    return tt_rehearsals_prepare(&images->rehearsals, rank, &canvas);
}

const struct tt_attached_ops tt_attached_images = {
    .kind = TT_ATTACHED_IMAGES,
    .create = create,
    .destroy = destroy,
    .attach = attach,
    .attach_largest = attach_largest,
    .prepare = prepare,
    .takes_ahead = takes_ahead,
    .attach_ahead = attach_ahead,
    .forget_ahead = forget_ahead,
};
