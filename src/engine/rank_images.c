/* Micro batches of images on the device. Where the device is the host, the batch lends its own memory to the pass; only
 * anchors have a buffer there, and a plan counts that memory, of the batch and of the next one that threads make. */
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "detect/anchors.h"
#include "engine/rank.h"

enum { ALIGNMENT = 256, BATCHES = 2 };

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
    bool host = tt_device_is_host(rank->device);
    size_t anchors = anchor_bytes(limits->height, limits->width), batch = batch_bytes(config);
    if (tt_device_is_plan(rank->device))
        TT_TRY(tt_host_buffer_create(rank->device, BATCHES * batch, TT_PURPOSE_STAGING, &rank->image_ring));
    return tt_buffer_create(rank->device, anchors + (host ? 0 : batch), TT_PURPOSE_BATCH,
                            &rank->image_buffer);
}

/* A canvas keeps its anchors until another one comes. */
static tt_status place_anchors(struct tt_rank *rank, int64_t height, int64_t width, tt_tensor *anchors_A4)
{
    struct tt_device_images *images = &rank->images;
    struct tt_anchor_grid grid = tt_anchor_grid_make(height, width);
    float *to = tt_buffer_data(rank->image_buffer);
    *anchors_A4 = tt_tensor_2d(to, TT_F32, grid.count, 4);
    if (tt_device_is_plan(rank->device) || (images->height == height && images->width == width)) return TT_OK;
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

/* The batch's own memory on the host; else a copy in the next piece of the buffer. */
static tt_status take(struct tt_rank *rank, char **next, const void *host, int64_t count, size_t element,
                      void **device)
{
    if (tt_device_is_host(rank->device) && !tt_device_is_plan(rank->device)) {
        *device = (void *)(uintptr_t)host;
        return TT_OK;
    }
    *device = *next;
    *next += aligned(count, element);
    if (count == 0 || tt_device_is_plan(rank->device)) return TT_OK;
    return tt_copy_to_device(rank->stream, *device, host, (size_t)count * element);
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

tt_status tt_rank_upload_images(struct tt_rank *rank, const struct tt_detect_batch *batch, double weight,
                                struct tt_pass *pass)
{
    tt_dtype dtype = rank->model->options.compute_dtype;
    void *pixels, *boxes, *labels, *offsets;
    tt_tensor anchors_A4;
    TT_TRY(check_limits(rank, batch));
    int64_t count = batch->image_count, places = count * batch->height * batch->width;
    bool planned = rank->image_ring != NULL && tt_device_is_host(rank->device);
    char *next = planned ? tt_buffer_data(rank->image_ring)
                         : (char *)tt_buffer_data(rank->image_buffer) +
                               anchor_bytes(rank->limits.height, rank->limits.width);
    TT_TRY(place_anchors(rank, batch->height, batch->width, &anchors_A4));
    TT_TRY(take(rank, &next, batch->pixels, places * TT_DETECT_CHANNELS, tt_dtype_bytes(dtype), &pixels));
    TT_TRY(take(rank, &next, batch->boxes, batch->box_count, 4 * sizeof(float), &boxes));
    TT_TRY(take(rank, &next, batch->labels, batch->box_count, sizeof(int32_t), &labels));
    TT_TRY(take(rank, &next, batch->offsets, count + 1, sizeof(int32_t), &offsets));
    rank->images = (struct tt_device_images){
        .count = count,
        .height = batch->height,
        .width = batch->width,
        .pixels_PC = tt_tensor_2d(pixels, dtype, places, TT_DETECT_CHANNELS),
        .boxes_M4 = tt_tensor_2d(boxes, TT_F32, batch->box_count, 4),
        .labels_M = tt_tensor_1d(labels, TT_I32, batch->box_count),
        .offsets = tt_tensor_1d(offsets, TT_I32, count + 1),
        .anchors_A4 = anchors_A4,
        .weight = (float)weight,
        .sums = tt_tensor_1d(tt_buffer_data(rank->sums_buffer), TT_F64, 2),
    };
    rank->batch = (struct tt_device_batch){.images = &rank->images};
    rank->results = (struct tt_pass_results){0};
    *pass = (struct tt_pass){
        .lent = {.stream = rank->stream, .workspace = rank->workspace},
        .in = {.batch = &rank->batch, .compute_dtype = dtype},
        .out = &rank->results,
    };
    return TT_OK;
}

tt_status tt_rank_upload_micro(struct tt_rank *rank, const struct tt_micro *micro, struct tt_pass *pass)
{
    if (micro->images == NULL) return tt_rank_upload(rank, &micro->tokens, pass);
    int64_t images = micro->images->step_images;
    return tt_rank_upload_images(rank, micro->images, 1.0 / (double)(images > 0 ? images : 1), pass);
}
