#include "backend/cuda/conv/cudnn.h"

#include <stdio.h>

#include "backend/cuda/conv/plain.h"
#include "backend/cuda/conv/cudnn_plans.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

enum {
    THREADS_MAX = 16, /* that build plans at once */
    NOTICE_SECONDS = 1,
    ALIGNMENT = 16,
    VECTOR = TT_CONV_GROUP, /* channels that cuDNN's kernels read at once */
    FEW_CHANNELS = 4,       /* of 2 x 2 pixels: a vector each for two pixels */
    CUDNN_WORKSPACE_BYTES =
        8 << 20, /* the end of the stream's workspace; filters and padded gradients are before it */
    ROOM_BYTES = TT_CUDA_GEMM_WORKSPACE_BYTES - CUDNN_WORKSPACE_BYTES
};

struct tt_cuda_conv {
    struct tt_cudnn library;
    bool tried, usable;
    struct tt_cudnn_conv_plans plans;
    /* the filters that the last call has put in cuDNN's order, and where */
    const void *ordered_from, *ordered;
};

tt_status tt_cuda_conv_create(struct tt_device *device, struct tt_cuda_conv **out)
{
    (void)device;
    *out = tt_calloc(1, sizeof **out);
    return *out != NULL ? TT_OK : TT_ERR_MEMORY;
}

void tt_cuda_conv_destroy(struct tt_cuda_conv *conv)
{
    if (conv == NULL) return;
    tt_cudnn_conv_plans_deinit(&conv->plans);
    tt_cudnn_close(&conv->library);
    tt_free(conv);
}

/* Opens cuDNN at the first convolution: runs on text do not pay for it. */
static bool is_usable(struct tt_stream *stream, struct tt_cuda_conv *conv)
{
    struct cudaDeviceProp properties;
    if (conv->tried) return conv->usable;
    conv->tried = true;
    tt_status status = tt_cudnn_open(&conv->library);
    if (status == TT_OK) status = tt_cudnn_connect(&conv->library);
    if (status == TT_OK)
        status = tt_cuda_check(cudaGetDeviceProperties(&properties, tt_cuda_device_of(stream)->index), NULL,
                               "device properties");
    if (status != TT_OK) {
        tt_warn("convolutions run on slower kernels, without cuDNN: %s", tt_error_last()->message);
        tt_error_clear();
        return false;
    }
    struct tt_cudnn_conv_plans *plans = &conv->plans;
    *plans = (struct tt_cudnn_conv_plans){.cudnn = &conv->library,
                                          .index = tt_cuda_device_of(stream)->index,
                                          .workspace_limit = CUDNN_WORKSPACE_BYTES};
    snprintf(plans->device, sizeof plans->device, "%.96s %d.%d %d", properties.name, properties.major,
             properties.minor, properties.multiProcessorCount);
    conv->usable = true;
    return true;
}

bool tt_cudnn_conv_collect(struct tt_stream *stream)
{
    struct tt_cuda_conv *conv = tt_cuda_device_of(stream)->conv;
    if (!is_usable(stream, conv)) return false;
    tt_cudnn_conv_plans_collect(&conv->plans, true);
    return true;
}

tt_status tt_cudnn_conv_make(struct tt_stream *stream, size_t *asked)
{
    struct tt_cudnn_conv_plans *plans = &tt_cuda_device_of(stream)->conv->plans;
    int processors = stream->device->threads > 0 ? stream->device->threads : tt_cpu_count();
    int threads = processors < THREADS_MAX ? processors : THREADS_MAX;
    size_t made = 0;
    double start = tt_clock_seconds();
    tt_cudnn_conv_plans_collect(plans, false);
    *asked = plans->wanted_count;
    TT_TRY(tt_cudnn_conv_plans_make(plans, threads, &made));
    double seconds = tt_clock_seconds() - start;
    if (seconds > NOTICE_SECONDS && made > 0)
        tt_info(
            "%s: %zu plans of convolutions made in %.1f s by %d thread%s; other runs on such a GPU find them",
            stream->device->name, made, seconds, threads, threads == 1 ? "" : "s");
    return TT_OK;
}

static struct tt_cudnn_conv_shape shape_of(enum tt_cudnn_conv_pass pass,
                                           const struct tt_conv_geometry *geometry, tt_tensor x_PC,
                                           tt_tensor y_QO)
{
    return (struct tt_cudnn_conv_shape){.pass = (int64_t)pass,
                                        .images = geometry->images,
                                        .height = geometry->height,
                                        .width = geometry->width,
                                        .in = x_PC.dims[1],
                                        .out = y_QO.dims[1],
                                        .kernel = geometry->kernel,
                                        .stride = geometry->stride,
                                        .padding = geometry->padding,
                                        .padding_end = geometry->padding,
                                        .x_row = x_PC.strides[0],
                                        .y_row = y_QO.strides[0]};
}

static bool is_at_boundary(tt_tensor x)
{
    return (uintptr_t)x.data % ALIGNMENT == 0;
}

/* Whether rows are whole vectors. Compiled kernels that read less at once are not used: one for the gradient of 3 x 3
 * filters with 4 channels was wrong in half of the filters (cuDNN 9.19 on an H100). */
static bool is_in_vectors(int64_t channels, int64_t row)
{
    return channels % VECTOR == 0 && row % VECTOR == 0;
}

/* Parts of the stream's workspace, one after the other. */
struct room {
    char *at;
    size_t left;
};

static struct room room_of(const struct tt_stream *stream)
{
    return (struct room){tt_cuda_of(stream)->gemm_workspace, ROOM_BYTES};
}

static void *take(struct room *room, int64_t bytes)
{
    size_t rounded = ((size_t)bytes + 255) / 256 * 256;
    if (room->at == NULL || rounded > room->left) return NULL;
    void *part = room->at;
    room->at += rounded;
    room->left -= rounded;
    return part;
}

/* The tensors of one execution. */
struct pack {
    int64_t ids[8];
    void *pointers[8];
    int count;
};

static void put(struct pack *pack, enum tt_cudnn_conv_id id, void *data)
{
    pack->ids[pack->count] = (int64_t)id;
    pack->pointers[pack->count++] = data;
}

static tt_status execute(struct tt_stream *stream, const struct tt_cudnn_plan *plan, const struct pack *pack)
{
    void *workspace = (char *)tt_cuda_of(stream)->gemm_workspace + ROOM_BYTES;
    return tt_cudnn_plan_execute(plan, tt_cuda_handle(stream), pack->ids, pack->pointers, pack->count,
                                 workspace);
}

/* `w` becomes the filters in cuDNN's order, `rows` of them; NULL when there is no room. */
static tt_status order_filters(struct tt_stream *stream, struct room *room, tt_tensor w_OK, int64_t taps,
                               int64_t rows, bool again, void **w)
{
    struct tt_cuda_conv *conv = tt_cuda_device_of(stream)->conv;
    *w = w_OK.data;
    if (taps == 1 && rows == w_OK.dims[0] && is_at_boundary(w_OK)) return TT_OK;
    *w = take(room, rows * w_OK.dims[1] * (int64_t)sizeof(uint16_t));
    bool there = again && conv->ordered_from == w_OK.data && conv->ordered == *w;
    conv->ordered_from = w_OK.data;
    conv->ordered = *w;
    return *w != NULL && !there ? tt_cuda_conv_filters(stream, *w, rows, w_OK, taps) : TT_OK;
}

/* `to` is the vector with zeros up to `count`; NULL when there is no room. */
static tt_status extend(struct tt_stream *stream, struct room *room, tt_tensor vector, int64_t count,
                        void **to)
{
    size_t bytes = (size_t)vector.dims[0] * sizeof(float), all = (size_t)count * sizeof(float);
    *to = vector.data;
    if (count == vector.dims[0]) return TT_OK;
    *to = take(room, (int64_t)all);
    if (*to == NULL) return TT_OK;
    TT_TRY(tt_cuda_check(cudaMemsetAsync((char *)*to + bytes, 0, all - bytes, tt_cuda_handle(stream)), stream,
                         "padded vector"));
    return tt_cuda_check(
        cudaMemcpyAsync(*to, vector.data, bytes, cudaMemcpyDeviceToDevice, tt_cuda_handle(stream)), stream,
        "padded vector");
}

/* The operations after the product. `ready` is false when there is no room. */
static tt_status put_epilogue(struct tt_stream *stream, struct room *room,
                              const struct tt_conv2d_forward_args *args, int64_t out, struct pack *pack,
                              bool *ready)
{
    *ready = true;
    const struct {
        int64_t id;
        tt_tensor vector;
    } vectors[] = {{TT_CONV_ID_SCALE, args->scale_O}, {TT_CONV_ID_BIAS, args->bias_O}};
    for (int i = 0; i < 2; i++) {
        void *to = NULL;
        if (tt_tensor_is_empty(vectors[i].vector)) continue;
        TT_TRY(extend(stream, room, vectors[i].vector, out, &to));
        *ready &= to != NULL;
        put(pack, vectors[i].id, to);
    }
    return TT_OK;
}

static void shape_epilogue(struct tt_cudnn_conv_shape *shape, const struct tt_conv2d_forward_args *args)
{
    shape->scale = !tt_tensor_is_empty(args->scale_O);
    shape->bias = !tt_tensor_is_empty(args->bias_O);
    shape->relu = args->relu;
}

/* Images go as many at a time as there is room for, the same number each time. */
static int64_t images_together(int64_t images, int64_t bytes_of_one, size_t room)
{
    int64_t most = (int64_t)room / bytes_of_one;
    if (most > images) most = images;
    while (most > 1 && images % most != 0) most--;
    return most;
}

/* 2 x 2 pixels of up to 4 channels become one of 16: a filter of odd size K and stride 2 is then one of (K + 1) / 2 and
 * stride 1, whose first row and column of single pixels is 0, and the kernels read whole vectors. Where cuDNN has no
 * plan with unequal padding, a row and a column of zeros follow. */
static tt_status forward_of_pairs(struct tt_stream *stream, const struct tt_conv2d_forward_args *args,
                                  bool *done)
{
    struct tt_cuda_conv *conv = tt_cuda_device_of(stream)->conv;
    const struct tt_conv_geometry *g = &args->geometry;
    struct room room = room_of(stream);
    struct pack vectors = {0};
    int64_t height = g->height / 2, width = g->width / 2, in = 4 * FEW_CHANNELS, out = args->y_QO.dims[1];
    int64_t least = (g->kernel + 1) / 2, begin = (g->padding + 1) / 2, size = height * width * in * 2;
    bool ready;
    void *w = take(&room, out * (least + 1) * (least + 1) * in * (int64_t)sizeof(uint16_t));
    TT_TRY(put_epilogue(stream, &room, args, out, &vectors, &ready));
    int64_t together = images_together(g->images, size, room.left);
    void *x = together > 0 ? take(&room, together * size) : NULL;
    if (!ready || w == NULL || x == NULL) return TT_OK;
    struct tt_cudnn_conv_shape shape = {.pass = TT_CUDNN_CONV_FORWARD,
                                        .images = together,
                                        .height = height,
                                        .width = width,
                                        .in = in,
                                        .out = out,
                                        .kernel = least,
                                        .stride = 1,
                                        .padding = begin,
                                        .padding_end = least - 1 - begin,
                                        .x_row = in,
                                        .y_row = args->y_QO.strides[0]};
    shape_epilogue(&shape, args);
    bool pending;
    const struct tt_cudnn_plan *plan = tt_cudnn_conv_plans_find(&conv->plans, &shape, &pending);
    if (plan == NULL && !pending) {
        shape.kernel = least + 1;
        shape.padding_end = least - begin;
        plan = tt_cudnn_conv_plans_find(&conv->plans, &shape, &pending);
    }
    if (plan == NULL) return TT_OK;
    TT_TRY(tt_cuda_conv_pair_filters(stream, w, args->w_OK, g->kernel, shape.kernel));
    for (int64_t i = 0; i < g->images; i += together) {
        struct pack pack = vectors;
        tt_tensor from =
            tt_tensor_rows(args->x_PC, i * g->height * g->width, together * g->height * g->width);
        TT_TRY(tt_cuda_conv_pair_pixels(stream, x, from, g->width));
        put(&pack, TT_CONV_ID_X, x);
        put(&pack, TT_CONV_ID_W, w);
        put(&pack, TT_CONV_ID_Y,
            tt_tensor_rows(args->y_QO, i * height * width, together * height * width).data);
        TT_TRY(execute(stream, plan, &pack));
    }
    *done = true;
    return TT_OK;
}

static bool takes_pairs(const struct tt_conv2d_forward_args *args)
{
    const struct tt_conv_geometry *g = &args->geometry;
    return args->x_PC.dims[1] <= FEW_CHANNELS && args->x_PC.strides[0] % FEW_CHANNELS == 0 &&
           g->stride == 2 && g->padding % 2 == 1 && g->kernel == 2 * g->padding + 1 && g->height % 2 == 0 &&
           g->width % 2 == 0 && tt_tensor_is_empty(args->residual_QO) && args->y_QO.dims[1] % VECTOR == 0;
}

tt_status tt_cudnn_conv_forward(struct tt_stream *stream, const struct tt_conv2d_forward_args *args,
                                bool *done)
{
    struct tt_cuda_conv *conv = tt_cuda_device_of(stream)->conv;
    tt_tensor residual = args->residual_QO;
    int64_t taps = args->geometry.kernel * args->geometry.kernel;
    bool aligned = is_at_boundary(args->x_PC) && is_at_boundary(args->y_QO) && is_at_boundary(residual);
    if (args->x_PC.dtype != TT_BF16 || !aligned || !is_usable(stream, conv)) return TT_OK;
    if (takes_pairs(args)) TT_TRY(forward_of_pairs(stream, args, done));
    if (*done || !is_in_vectors(args->x_PC.dims[1], args->x_PC.strides[0])) return TT_OK;
    struct tt_cudnn_conv_shape shape =
        shape_of(TT_CUDNN_CONV_FORWARD, &args->geometry, args->x_PC, args->y_QO);
    shape_epilogue(&shape, args);
    if (args->padded) shape.out = tt_conv_grouped(shape.out);
    shape.residual_row = tt_tensor_is_empty(residual) ? 0 : residual.strides[0];
    struct room room = room_of(stream);
    struct pack pack = {0};
    void *w = NULL;
    bool ready, pending;
    const struct tt_cudnn_plan *plan = tt_cudnn_conv_plans_find(&conv->plans, &shape, &pending);
    if (plan == NULL) return TT_OK;
    TT_TRY(order_filters(stream, &room, args->w_OK, taps, shape.out, args->again, &w));
    TT_TRY(put_epilogue(stream, &room, args, shape.out, &pack, &ready));
    if (w == NULL || !ready) return TT_OK;
    put(&pack, TT_CONV_ID_X, args->x_PC.data);
    put(&pack, TT_CONV_ID_W, w);
    put(&pack, TT_CONV_ID_Y, args->y_QO.data);
    if (shape.residual_row > 0) put(&pack, TT_CONV_ID_RESIDUAL, residual.data);
    *done = true;
    return execute(stream, plan, &pack);
}

/* A backward pass in pieces: all images at once, or one by one where rows are copied into whole vectors. */
struct pieces {
    struct tt_cudnn_conv_shape shape; /* of one piece */
    int64_t count, pixels_in, pixels_out;
    void *x, *dz; /* room for the rows of one image; NULL: they are read where they are */
};

static bool split(struct pieces *pieces, struct room *room, const struct tt_conv_geometry *geometry,
                  bool padded)
{
    struct tt_cudnn_conv_shape *shape = &pieces->shape;
    int64_t images = shape->images;
    pieces->count = 1;
    pieces->pixels_in = images * geometry->height * geometry->width;
    pieces->pixels_out = tt_conv_pixels(geometry);
    if (padded) shape->out = tt_conv_grouped(shape->out);
    bool x_fits = is_in_vectors(shape->in, shape->x_row), dz_fits = is_in_vectors(shape->out, shape->y_row);
    if (x_fits && dz_fits) return true;
    pieces->count = images;
    pieces->pixels_in /= images;
    pieces->pixels_out /= images;
    shape->images = 1;
    if (!x_fits) {
        shape->in = shape->x_row = tt_conv_grouped(shape->in);
        pieces->x = take(room, pieces->pixels_in * shape->in * (int64_t)sizeof(uint16_t));
    }
    if (!dz_fits) {
        shape->out = shape->y_row = tt_conv_grouped(shape->out);
        pieces->dz = take(room, pieces->pixels_out * shape->out * (int64_t)sizeof(uint16_t));
    }
    return (x_fits || pieces->x != NULL) && (dz_fits || pieces->dz != NULL);
}

/* The rows of a piece, `columns` wide; copied to `room` unless it is NULL. */
static tt_status rows_of(struct tt_stream *stream, tt_tensor all, int64_t piece, int64_t count,
                         int64_t columns, void *room, void **rows)
{
    tt_tensor from = tt_tensor_rows(all, piece * count, count);
    *rows = room != NULL ? room : from.data;
    return room != NULL ? tt_cuda_conv_pad(stream, room, columns, from) : TT_OK;
}

static tt_status gradient_of(struct tt_stream *stream, const struct pieces *pieces, tt_tensor dz_QO,
                             int64_t piece, void **dz)
{
    return rows_of(stream, dz_QO, piece, pieces->pixels_out, pieces->shape.out, pieces->dz, dz);
}

tt_status tt_cudnn_conv_input(struct tt_stream *stream, const struct tt_conv2d_backward_input_args *args,
                              bool *done)
{
    struct tt_cuda_conv *conv = tt_cuda_device_of(stream)->conv;
    tt_tensor dx = args->dx_PC;
    int64_t taps = args->geometry.kernel * args->geometry.kernel;
    bool aligned = is_at_boundary(dx) && is_at_boundary(args->dz_QO);
    aligned &= is_in_vectors(dx.dims[1], dx.strides[0]);
    if (dx.dtype != TT_BF16 || !aligned || !is_usable(stream, conv)) return TT_OK;
    struct room room = room_of(stream);
    struct pieces pieces = {.shape = shape_of(TT_CUDNN_CONV_INPUT, &args->geometry, dx, args->dz_QO)};
    pieces.shape.accumulate = args->accumulate;
    if (!split(&pieces, &room, &args->geometry, args->padded)) return TT_OK;
    bool pending;
    const struct tt_cudnn_plan *plan = tt_cudnn_conv_plans_find(&conv->plans, &pieces.shape, &pending);
    void *w = NULL, *dz = NULL;
    if (plan == NULL) return TT_OK;
    TT_TRY(order_filters(stream, &room, args->w_OK, taps, pieces.shape.out, args->again, &w));
    if (w == NULL) return TT_OK;
    for (int64_t i = 0; i < pieces.count; i++) {
        struct pack pack = {0};
        void *to = tt_tensor_rows(dx, i * pieces.pixels_in, pieces.pixels_in).data;
        TT_TRY(gradient_of(stream, &pieces, args->dz_QO, i, &dz));
        put(&pack, TT_CONV_ID_X, to);
        put(&pack, TT_CONV_ID_W, w);
        put(&pack, TT_CONV_ID_Y, dz);
        if (args->accumulate) put(&pack, TT_CONV_ID_RESIDUAL, to);
        TT_TRY(execute(stream, plan, &pack));
    }
    *done = true;
    return TT_OK;
}

tt_status tt_cudnn_conv_weight(struct tt_stream *stream, const struct tt_conv2d_backward_weight_args *args,
                               bool *done)
{
    struct tt_cuda_conv *conv = tt_cuda_device_of(stream)->conv;
    int64_t taps = args->geometry.kernel * args->geometry.kernel;
    bool aligned = is_at_boundary(args->x_PC) && is_at_boundary(args->dz_QO);
    if (args->x_PC.dtype != TT_BF16 || !aligned || !is_usable(stream, conv)) return TT_OK;
    struct room room = room_of(stream);
    struct pieces pieces = {.shape =
                                shape_of(TT_CUDNN_CONV_WEIGHT, &args->geometry, args->x_PC, args->dz_QO)};
    if (!split(&pieces, &room, &args->geometry, args->padded)) return TT_OK;
    bool pending;
    const struct tt_cudnn_plan *plan = tt_cudnn_conv_plans_find(&conv->plans, &pieces.shape, &pending);
    float *sums = take(&room, pieces.shape.out * pieces.shape.in * taps * (int64_t)sizeof *sums);
    void *x = NULL, *dz = NULL;
    if (plan == NULL || sums == NULL) return TT_OK;
    for (int64_t i = 0; i < pieces.count; i++) {
        struct pack pack = {0};
        TT_TRY(rows_of(stream, args->x_PC, i, pieces.pixels_in, pieces.shape.in, pieces.x, &x));
        TT_TRY(gradient_of(stream, &pieces, args->dz_QO, i, &dz));
        put(&pack, TT_CONV_ID_X, x);
        put(&pack, TT_CONV_ID_W, sums);
        put(&pack, TT_CONV_ID_Y, dz);
        TT_TRY(execute(stream, plan, &pack));
        TT_TRY(tt_cuda_conv_add_filters(stream, args->dw_OK, sums, pieces.shape.in, taps));
    }
    *done = true;
    return TT_OK;
}
