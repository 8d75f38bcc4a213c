/* Micro batches of images on the device. Where the device is the host, the batch lends its own memory to the pass; only
 * anchors have a buffer there, and a plan counts that memory, of the batch and of the next one that threads make. Else
 * batches alternate between two slots: a copy stream fills one while the passes read the other. */
#include "base/alloc.h"
#include "base/integer.h"
#include "detect/anchors.h"
#include "engine/rank_images.h"
#include "engine/rank_impl.h"

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

tt_status tt_rank_images_init(const struct tt_rank_config *config, struct tt_rank *rank)
{
    const struct tt_batch_limits *limits = &config->limits;
    if (limits->images == 0) return TT_OK;
    rank->images = tt_calloc(1, sizeof *rank->images);
    if (rank->images == NULL) return TT_ERR_MEMORY;
    struct tt_image_upload *upload = &rank->images->upload;
    bool host = tt_device_is_host(rank->device);
    size_t anchors = anchor_bytes(limits->height, limits->width), batch = batch_bytes(config);
    if (!host || tt_device_is_plan(rank->device))
        TT_TRY(
            tt_host_buffer_create(rank->device, TT_IMAGE_SLOTS * batch, TT_PURPOSE_STAGING, &upload->ring));
    if (!host) TT_TRY(tt_stream_create_copy(rank->device, &upload->stream));
    for (int i = 0; i < TT_IMAGE_SLOTS && !host; i++) {
        TT_TRY(tt_event_create(rank->device, &upload->filled[i]));
        TT_TRY(tt_event_create(rank->device, &upload->released[i]));
    }
    return tt_buffer_create(rank->device, anchors + (host ? 0 : TT_IMAGE_SLOTS * batch), TT_PURPOSE_BATCH,
                            &rank->images->buffer);
}

void tt_rank_images_deinit(struct tt_rank *rank)
{
    if (rank->images == NULL) return;
    struct tt_image_upload *upload = &rank->images->upload;
    for (int i = 0; i < TT_IMAGE_SLOTS; i++) {
        tt_event_destroy(upload->filled[i]);
        tt_event_destroy(upload->released[i]);
    }
    tt_stream_destroy(upload->stream);
    tt_buffer_destroy(rank->images->buffer);
    tt_buffer_destroy(upload->ring);
    tt_rehearsals_deinit(&rank->images->rehearsals);
    tt_free(rank->images);
    rank->images = NULL;
}

static size_t piece_bytes(const struct tt_rank *rank)
{
    return tt_buffer_bytes(rank->images->upload.ring) / TT_IMAGE_SLOTS;
}

void *tt_rank_lend_pixels(void *context, size_t bytes)
{
    struct tt_rank *rank = context;
    struct tt_image_upload *upload = &rank->images->upload;
    for (int i = 0; i < TT_IMAGE_SLOTS && upload->ring != NULL && bytes <= piece_bytes(rank); i++)
        if (!atomic_exchange(&upload->lent[i], true))
            return (char *)tt_buffer_data(upload->ring) + (size_t)i * piece_bytes(rank);
    return tt_alloc_aligned(bytes);
}

void tt_rank_return_pixels(void *context, void *block)
{
    struct tt_rank *rank = context;
    struct tt_image_upload *upload = &rank->images->upload;
    for (int i = 0; i < TT_IMAGE_SLOTS && upload->ring != NULL; i++) {
        if (block != (char *)tt_buffer_data(upload->ring) + (size_t)i * piece_bytes(rank)) continue;
        atomic_store(&upload->lent[i], false);
        return;
    }
    tt_free(block);
}

/* A canvas keeps its anchors until another one comes. */
static tt_status place_anchors(struct tt_rank *rank, int64_t height, int64_t width, tt_tensor *anchors_A4)
{
    struct tt_rank_images *images = rank->images;
    struct tt_anchor_grid grid = tt_anchor_grid_make(height, width);
    float *to = tt_buffer_data(rank->images->buffer);
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
static struct arrays lay_out(const struct tt_rank *rank, int slot, const struct tt_detect_batch *batch)
{
    const struct tt_batch_limits *limits = &rank->limits;
    size_t anchors = anchor_bytes(limits->height, limits->width);
    bool host = tt_device_is_host(rank->device);
    char *next =
        host ? tt_buffer_data(rank->images->upload.ring)
             : (char *)tt_buffer_data(rank->images->buffer) + anchors + (size_t)slot * piece_bytes(rank);
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
static tt_status fill_slot(struct tt_rank *rank, int slot, const struct tt_detect_batch *batch)
{
    struct tt_image_upload *upload = &rank->images->upload;
    const struct arrays to = lay_out(rank, slot, batch);
    size_t boxes = (size_t)batch->box_count, images = (size_t)batch->image_count;
    size_t element = tt_dtype_bytes(rank->model->options.compute_dtype);
    size_t pixels = images * (size_t)batch->height * (size_t)batch->width * TT_DETECT_CHANNELS * element;
    TT_TRY(tt_stream_wait(upload->stream, upload->released[slot]));
    if (images > 0) {
        TT_TRY(tt_copy_to_device(upload->stream, to.pixels, batch->pixels, pixels));
        TT_TRY(tt_copy_to_device(upload->stream, to.offsets, batch->offsets, (images + 1) * sizeof(int32_t)));
    }
    if (boxes > 0) {
        TT_TRY(tt_copy_to_device(upload->stream, to.boxes, batch->boxes, boxes * 4 * sizeof(float)));
        TT_TRY(tt_copy_to_device(upload->stream, to.labels, batch->labels, boxes * sizeof(int32_t)));
    }
    return tt_event_record(upload->filled[slot], upload->stream);
}

/* The host waits for the copy: the batch's memory may be used again. */
static tt_status bring(struct tt_rank *rank, const struct tt_detect_batch *batch, struct arrays *to)
{
    struct tt_image_upload *upload = &rank->images->upload;
    int slot = (upload->slot + 1) % TT_IMAGE_SLOTS;
    TT_TRY(tt_event_record(upload->released[upload->slot], rank->stream));
    if (upload->ahead != batch) TT_TRY(fill_slot(rank, slot, batch));
    upload->ahead = NULL;
    upload->slot = slot;
    *to = lay_out(rank, slot, batch);
    TT_TRY(tt_stream_wait(rank->stream, upload->filled[slot]));
    return tt_event_synchronize(upload->filled[slot]);
}

void tt_rank_forget_ahead(struct tt_rank *rank)
{
    if (rank->images != NULL) rank->images->upload.ahead = NULL;
}

bool tt_rank_takes_ahead(const struct tt_rank *rank)
{
    return rank->images != NULL && rank->images->upload.stream != NULL && !tt_device_is_plan(rank->device);
}

/* Pixels, boxes, ... where the pass reads them. */
static tt_status place(struct tt_rank *rank, const struct tt_detect_batch *batch, struct arrays *to)
{
    if (tt_device_is_plan(rank->device)) {
        *to = lay_out(rank, 0, batch);
        return TT_OK;
    }
    if (!tt_device_is_host(rank->device)) return bring(rank, batch, to);
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

tt_status tt_rank_upload_ahead(struct tt_rank *rank, const struct tt_detect_batch *batch)
{
    struct tt_image_upload *upload = &rank->images->upload;
    if (!tt_rank_takes_ahead(rank)) return TT_OK;
    TT_TRY(check_limits(rank, batch));
    TT_TRY(fill_slot(rank, (upload->slot + 1) % TT_IMAGE_SLOTS, batch));
    upload->ahead = batch;
    return TT_OK;
}

tt_status tt_rank_attach_images(struct tt_rank *rank, const struct tt_detect_batch *batch, double weight)
{
    tt_dtype dtype = rank->model->options.compute_dtype;
    struct arrays to;
    tt_tensor anchors_A4;
    TT_TRY(check_limits(rank, batch));
    int64_t count = batch->image_count, places = count * batch->height * batch->width;
    TT_TRY(place_anchors(rank, batch->height, batch->width, &anchors_A4));
    TT_TRY(place(rank, batch, &to));
    rank->batch.attachments[rank->batch.attachment_count++] = (struct tt_attachment){
        .kind = TT_ATTACHED_IMAGES,
        .count = count,
        .height = batch->height,
        .width = batch->width,
        .pixels_PC = tt_tensor_2d(to.pixels, dtype, places, TT_DETECT_CHANNELS),
        .boxes = {.boxes_M4 = tt_tensor_2d(to.boxes, TT_F32, batch->box_count, 4),
                  .labels_M = tt_tensor_1d(to.labels, TT_I32, batch->box_count),
                  .offsets = tt_tensor_1d(to.offsets, TT_I32, count + 1),
                  .anchors_A4 = anchors_A4,
                  .weight = (float)weight},
    };
    return TT_OK;
}
