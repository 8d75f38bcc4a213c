/* Anchors against boxes, and the losses of a detector's heads. The arithmetic of overlaps and targets has the order and
 * the roundings of the processors' (no fused multiply-add): equal overlaps stay equal. */
#include "backend/cuda/sheet.cuh"

namespace
{

enum {
    THREADS = 256,
    SHARES = 32,      /* blocks of a box */
    FOCAL_PIECES = 4, /* of a thread */
    BOX_GROUP = 1024, /* rows */
    GROUPS_MAX = TT_CUDA_SCRATCH_BYTES / (int)sizeof(double),
};

__device__ __forceinline__ float area_of(float4 box)
{
    return __fmul_rn(__fsub_rn(box.z, box.x), __fsub_rn(box.w, box.y));
}

__device__ __forceinline__ float overlap(float4 box, float4 anchor)
{
    float left = box.x > anchor.x ? box.x : anchor.x, top = box.y > anchor.y ? box.y : anchor.y;
    float right = box.z < anchor.z ? box.z : anchor.z, bottom = box.w < anchor.w ? box.w : anchor.w;
    float width = right > left ? __fsub_rn(right, left) : 0.0f,
          height = bottom > top ? __fsub_rn(bottom, top) : 0.0f;
    float inner = __fmul_rn(width, height);
    return __fdiv_rn(inner, __fsub_rn(__fadd_rn(area_of(box), area_of(anchor)), inner));
}

__device__ __forceinline__ float4 box_at(const float *boxes, int64_t i)
{
    return make_float4(boxes[4 * i], boxes[4 * i + 1], boxes[4 * i + 2], boxes[4 * i + 3]);
}

/* A block compares one box with a share of the anchors. Overlaps are not negative: they are ordered as their bits. */
__global__ void __launch_bounds__(THREADS)
    find_best(float *best, const float *boxes, const float *anchors, int64_t anchor_count)
{
    __shared__ float partial[THREADS / 32];
    float4 box = box_at(boxes, blockIdx.x);
    float largest = 0.0f;
    for (int64_t a = (int64_t)blockIdx.y * THREADS + threadIdx.x; a < anchor_count;
         a += (int64_t)gridDim.y * THREADS) {
        float iou = overlap(box, box_at(anchors, a));
        if (iou > largest) largest = iou;
    }
    for (int step = 16; step > 0; step /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = largest;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < THREADS / 32; i++) largest = fmaxf(largest, partial[i]);
    atomicMax(reinterpret_cast<int *>(best + blockIdx.x), __float_as_int(largest));
}

struct matching {
    const float *anchors, *boxes, *best;
    const int32_t *offsets;
    int32_t *match, *foreground;
    int64_t anchor_count;
    float low, high;
};

__global__ void __launch_bounds__(THREADS) match_anchors(const struct matching args)
{
    int64_t a = (int64_t)blockIdx.x * THREADS + threadIdx.x, image = blockIdx.y;
    int32_t match = TT_MATCH_BACKGROUND;
    if (a < args.anchor_count) {
        float4 anchor = box_at(args.anchors, a);
        int32_t own = -1;
        float largest = -1.0f;
        bool is_best = false;
        for (int32_t m = args.offsets[image]; m < args.offsets[image + 1]; m++) {
            float iou = overlap(box_at(args.boxes, m), anchor);
            is_best |= iou == args.best[m];
            if (iou <= largest) continue;
            largest = iou;
            own = m;
        }
        if (own >= 0)
            match = is_best || largest >= args.high ? own
                    : largest < args.low            ? (int32_t)TT_MATCH_BACKGROUND
                                                    : (int32_t)TT_MATCH_IGNORED;
        args.match[image * args.anchor_count + a] = match;
    }
    int count = __syncthreads_count(match >= 0);
    if (threadIdx.x == 0 && count > 0) atomicAdd(&args.foreground[image], count);
}

/* The predictions of one loss as rows of places: row q has anchors q * each and following, `columns` of each; anchor p
 * of all belongs to anchor p % anchors of image p / anchors. */
struct predictions {
    void *data;
    int64_t row, rows; /* elements from row to row; the number of rows */
    int64_t each, columns;
    const int32_t *match, *foreground;
    int64_t match_row, anchors;
    float weight;

    __device__ __forceinline__ float weight_of(int64_t image) const
    {
        int32_t count = foreground[image];
        return weight / (float)(count > 1 ? count : 1);
    }

    __device__ __forceinline__ int32_t match_of(int64_t p) const
    {
        return match[p / anchors * match_row + p % anchors];
    }
};

struct focal {
    struct predictions p;
    const int32_t *labels;
    float alpha, gamma;
    int places; /* rows of an image */
    bool gradient;
};

/* ln(1 + e) for e from 0 to 1, relative error 1.5e-7: a polynomial through Chebyshev's points of ln(1 + e) / e. */
__device__ __forceinline__ float log_of_one_and(float e)
{
    float p = 0.00525345793f;
    p = fmaf(p, e, -0.0295885075f);
    p = fmaf(p, e, 0.0783616677f);
    p = fmaf(p, e, -0.136747703f);
    p = fmaf(p, e, 0.191114306f);
    p = fmaf(p, e, -0.248443693f);
    p = fmaf(p, e, 0.333192706f);
    p = fmaf(p, e, -0.499995023f);
    return fmaf(p, e, 1.0f) * e;
}

/* f(z) = -(1 - s)^gamma ln s with s = sigmoid(z), and its derivative. For bf16 the exponential and the reciprocal have
 * the processors' approximations: 2^-21 of the result. */
template <typename T> __device__ __forceinline__ float focal_of(float z, float gamma, float *slope)
{
    constexpr bool exact = sizeof(T) > 2;
    float e = exact ? expf(-fabsf(z)) : __expf(-fabsf(z)), ln = fminf(z, 0.0f) - log_of_one_and(e);
    float large = exact ? 1.0f / (1.0f + e) : __fdividef(1.0f, 1.0f + e), small = e * large;
    float s = z >= 0.0f ? large : small, rest = z >= 0.0f ? small : large;
    float power = gamma == 2.0f ? rest * rest : powf(rest, gamma);
    *slope = power * (gamma * s * ln - rest);
    return -power * ln;
}

/* The target of an anchor: the column of its class, -1: none, or -2: the anchor is left out. */
__device__ __forceinline__ int target_of(const struct focal &f, int64_t image, int anchor)
{
    int32_t match = f.p.match[image * f.p.match_row + anchor];
    if (match == TT_MATCH_IGNORED) return -2;
    return match >= 0 ? f.labels[match] : -1;
}

/* W neighbouring columns of a row, from `column` on; beyond the last one nothing is written. */
template <typename T, int W>
__device__ __forceinline__ double focal_piece(const struct focal &f, int64_t row, int column)
{
    int classes = (int)f.p.columns, width = classes * (int)f.p.each;
    int64_t image = (uint32_t)row / (uint32_t)f.places;
    int place = (int)(row - image * f.places), anchor = column / classes, k = column - anchor * classes;
    float weight = f.p.weight_of(image), up = f.alpha * weight, down = (1.0f - f.alpha) * weight, sum = 0.0f,
          x[W];
    int target = target_of(f, image, place * (int)f.p.each + anchor);
    T *at = static_cast<T *>(f.p.data) + row * f.p.row + column;
    vec<T, W> loaded = load<T, W>(at);
    widen(loaded, x);
#pragma unroll
    for (int i = 0; i < W; i++) {
        if (i > 0 && k == classes && column + i < width) {
            k = 0;
            target = target_of(f, image, place * (int)f.p.each + ++anchor);
        }
        bool is_target = k == target;
        float slope, loss = focal_of<T>(is_target ? x[i] : -x[i], f.gamma, &slope) * (is_target ? up : down);
        bool counts = target != -2 && column + i < width;
        sum += counts ? loss : 0.0f;
        x[i] = counts ? slope * (is_target ? up : -down) : 0.0f;
        k++;
    }
    if (!f.gradient) return (double)sum;
    if (column + W <= width) {
        narrow(loaded, x);
        store(at, loaded);
    } else {
#pragma unroll
        for (int i = 0; i < W; i++)
            if (column + i < width) store_one(at + i, x[i]);
    }
    return (double)sum;
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) run_focal(double *sums, const struct focal f, const struct sheet s)
{
    __shared__ double partial[32];
    double sum = 0;
    for (int i = 0; i < FOCAL_PIECES; i++) {
        int64_t piece = ((int64_t)blockIdx.x * FOCAL_PIECES + i) * THREADS + threadIdx.x;
        int64_t row = s.row_of(piece);
        if (row < s.rows) sum += focal_piece<T, W>(f, row, (int)(piece - row * s.row_pieces) * W);
    }
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

struct box_losses {
    struct predictions p;
    const float *anchors, *boxes;
    enum tt_box_loss kind;
    bool gradient;
};

__device__ __forceinline__ void encode(float4 anchor, float4 box, float (&target)[4])
{
    float width = __fsub_rn(anchor.z, anchor.x), height = __fsub_rn(anchor.w, anchor.y);
    float box_width = __fsub_rn(box.z, box.x), box_height = __fsub_rn(box.w, box.y);
    float x = __fadd_rn(anchor.x, __fmul_rn(0.5f, width)), y = __fadd_rn(anchor.y, __fmul_rn(0.5f, height));
    float box_x = __fadd_rn(box.x, __fmul_rn(0.5f, box_width)),
          box_y = __fadd_rn(box.y, __fmul_rn(0.5f, box_height));
    target[0] = __fdiv_rn(__fsub_rn(box_x, x), width);
    target[1] = __fdiv_rn(__fsub_rn(box_y, y), height);
    target[2] = logf(__fdiv_rn(box_width, width));
    target[3] = logf(__fdiv_rn(box_height, height));
}

template <typename T> __device__ __forceinline__ T *delta_at(const struct box_losses &b, int64_t p)
{
    return static_cast<T *>(b.p.data) + p / b.p.each * b.p.row + p % b.p.each * 4;
}

template <typename T> __device__ float box_row(const struct box_losses &b, int64_t p)
{
    T *at = delta_at<T>(b, p);
    float target[4], sum = 0.0f, weight = b.p.weight_of(p / b.p.anchors);
    int32_t match = b.p.match_of(p);
    if (match >= 0) encode(box_at(b.anchors, p % b.p.anchors), box_at(b.boxes, match), target);
    for (int i = 0; i < 4; i++) {
        float distance = match >= 0 ? load_one(at + i) - target[i] : 0.0f, loss = fabsf(distance);
        float slope = distance > 0.0f ? 1.0f : distance < 0.0f ? -1.0f : 0.0f;
        if (b.kind == TT_BOX_SMOOTH_L1 && loss < 1.0f) {
            slope = distance;
            loss = 0.5f * distance * distance;
        } else if (b.kind == TT_BOX_SMOOTH_L1) {
            loss -= 0.5f;
        }
        if (match >= 0) sum += weight * loss;
        if (b.gradient) store_one(at + i, match >= 0 ? weight * slope : 0.0f);
    }
    return sum;
}

/* The part of a gradient that the first of two sides has in their larger one. */
__device__ __forceinline__ float share(float own, float other)
{
    return own > other ? 1.0f : own < other ? 0.0f : 0.5f;
}

/* One axis of a box and its truth. */
struct axis_of_boxes {
    float low, high, truth_low, truth_high, anchor_side, side, inner, outer;

    __device__ axis_of_boxes(float anchor_low, float anchor_high, float truth_from, float truth_to,
                             float shift, float log_side)
    {
        truth_low = truth_from, truth_high = truth_to;
        anchor_side = anchor_high - anchor_low;
        side = expf(fminf(log_side, TT_BOX_LOG_MAX)) * anchor_side;
        float middle = shift * anchor_side + (anchor_low + 0.5f * anchor_side);
        low = middle - 0.5f * side, high = middle + 0.5f * side;
        inner = fminf(high, truth_high) - fmaxf(low, truth_low);
        outer = fmaxf(high, truth_high) - fminf(low, truth_low);
    }

    /* `in`, `out`: slopes by the inner and the outer side; `both`: by the own one. */
    __device__ void slopes(float in, float out, float both, float log_side, float *shift,
                           float *log_slope) const
    {
        float to_high = both + in * share(truth_high, high) + out * share(high, truth_high);
        float to_low = -both - in * share(low, truth_low) - out * share(truth_low, low);
        *shift = anchor_side * (to_low + to_high);
        *log_slope = log_side <= TT_BOX_LOG_MAX ? 0.5f * side * (to_high - to_low) : 0.0f;
    }
};

template <typename T> __device__ float giou_row(const struct box_losses &b, int64_t p)
{
    T *at = delta_at<T>(b, p);
    float slope[4] = {}, d[4], weight = b.p.weight_of(p / b.p.anchors);
    int32_t match = b.p.match_of(p);
    for (int i = 0; i < 4; i++) d[i] = load_one(at + i);
    for (int i = 0; i < 4 && match < 0 && b.gradient; i++) store_one(at + i, 0.0f);
    if (match < 0) return 0.0f;
    float4 anchor = box_at(b.anchors, p % b.p.anchors), truth = box_at(b.boxes, match);
    struct axis_of_boxes x(anchor.x, anchor.z, truth.x, truth.z, d[0], d[2]);
    struct axis_of_boxes y(anchor.y, anchor.w, truth.y, truth.w, d[1], d[3]);
    bool meets = x.inner > 0.0f && y.inner > 0.0f;
    float shared = meets ? x.inner * y.inner : 0.0f, hull = x.outer * y.outer;
    float both = (x.high - x.low) * (y.high - y.low) + area_of(truth) - shared;
    float loss = 1.0f - shared / (both + TT_GIOU_EPS) + (hull - both) / (hull + TT_GIOU_EPS);
    if (!b.gradient) return weight * loss;
    float of_both = shared / ((both + TT_GIOU_EPS) * (both + TT_GIOU_EPS)) - 1.0f / (hull + TT_GIOU_EPS);
    float of_shared = meets ? -1.0f / (both + TT_GIOU_EPS) - of_both : 0.0f;
    float of_hull = (both + TT_GIOU_EPS) / ((hull + TT_GIOU_EPS) * (hull + TT_GIOU_EPS));
    x.slopes(of_shared * y.inner, of_hull * y.outer, of_both * (y.high - y.low), d[2], &slope[0], &slope[2]);
    y.slopes(of_shared * x.inner, of_hull * x.outer, of_both * (x.high - x.low), d[3], &slope[1], &slope[3]);
    for (int i = 0; i < 4; i++) store_one(at + i, weight * slope[i]);
    return weight * loss;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) run_boxes(double *sums, const struct box_losses b)
{
    __shared__ double partial[32];
    int64_t first = (int64_t)blockIdx.x * BOX_GROUP, count = b.p.rows * b.p.each;
    int64_t end = first + BOX_GROUP < count ? first + BOX_GROUP : count;
    double sum = 0;
    for (int64_t p = first + threadIdx.x; p < end; p += THREADS)
        sum += (double)(b.kind == TT_BOX_GIOU ? giou_row<T>(b, p) : box_row<T>(b, p));
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

struct predictions predictions_of(const tt_tensor &rows, int64_t row_anchors, const tt_tensor &match,
                                  const tt_tensor &foreground, float weight)
{
    struct predictions p = {};
    p.data = rows.data, p.row = rows.strides[0], p.rows = rows.dims[0];
    p.each = row_anchors > 0 ? row_anchors : 1, p.columns = rows.dims[1] / p.each;
    p.match = static_cast<const int32_t *>(match.data), p.match_row = match.strides[0],
    p.anchors = match.dims[1];
    p.foreground = static_cast<const int32_t *>(foreground.data);
    p.weight = weight;
    return p;
}

tt_status too_many(const char *op)
{
    return tt_fail(TT_ERR_UNSUPPORTED, "%s: more predictions than a GPU adds up at once", op);
}

template <typename T, int W>
tt_status focal_typed(struct tt_stream *stream, const struct focal &f, const struct tt_focal_loss_args *args)
{
    struct sheet s = make_sheet(f.p.rows, args->logits_PK.dims[1], W);
    int64_t each = (int64_t)THREADS * FOCAL_PIECES, groups = (s.rows * s.row_pieces + each - 1) / each;
    if (groups > GROUPS_MAX) return too_many("focal_loss");
    double *sums = static_cast<double *>(tt_cuda_scratch(stream));
    run_focal<T, W><<<(unsigned)groups, THREADS, 0, tt_cuda_handle(stream)>>>(sums, f, s);
    launch_add_sums(stream, static_cast<double *>(args->sums.data), sums, (int)groups);
    return tt_cuda_launched(stream, "focal_loss", &args->logits_PK);
}

} // namespace

extern "C" tt_status tt_cuda_anchor_match(struct tt_stream *stream, const struct tt_anchor_match_args *args)
{
    int64_t images = args->match_NA.dims[0], anchors = args->match_NA.dims[1];
    int64_t boxes = tt_tensor_is_empty(args->boxes_M4) ? 0 : args->boxes_M4.dims[0];
    cudaStream_t handle = tt_cuda_handle(stream);
    if (images == 0) return TT_OK;
    struct matching m = {};
    m.anchors = static_cast<const float *>(args->anchors_A4.data);
    m.boxes = static_cast<const float *>(args->boxes_M4.data);
    m.best = static_cast<const float *>(args->best_M.data);
    m.offsets = static_cast<const int32_t *>(args->offsets.data);
    m.match = static_cast<int32_t *>(args->match_NA.data);
    m.foreground = static_cast<int32_t *>(args->foreground_N.data);
    m.anchor_count = anchors;
    m.low = args->low, m.high = args->high;
    TT_TRY(tt_cuda_check(cudaMemsetAsync(m.foreground, 0, (size_t)images * sizeof(int32_t), handle), stream,
                         "anchor_match"));
    if (boxes > 0) {
        TT_TRY(tt_cuda_check(cudaMemsetAsync(args->best_M.data, 0, (size_t)boxes * sizeof(float), handle),
                             stream, "anchor_match"));
        find_best<<<dim3((unsigned)boxes, SHARES), THREADS, 0, handle>>>(
            static_cast<float *>(args->best_M.data), m.boxes, m.anchors, anchors);
    }
    dim3 blocks((unsigned)((anchors + THREADS - 1) / THREADS), (unsigned)images);
    if (anchors > 0) match_anchors<<<blocks, THREADS, 0, handle>>>(m);
    return tt_cuda_launched(stream, "anchor_match", &args->match_NA);
}

extern "C" tt_status tt_cuda_focal_loss(struct tt_stream *stream, const struct tt_focal_loss_args *args)
{
    struct focal f = {};
    f.p =
        predictions_of(args->logits_PK, args->row_anchors, args->match_NA, args->foreground_N, args->weight);
    f.labels = static_cast<const int32_t *>(args->labels_M.data);
    f.alpha = args->alpha, f.gamma = args->gamma, f.gradient = args->gradient;
    f.places = (int)(f.p.anchors / f.p.each);
    if (f.p.rows == 0) return TT_OK;
    return with_type(args->logits_PK.dtype, [&](auto type) {
        using T = decltype(type);
        constexpr int W = wide<T>();
        bool aligned = is_aligned(args->logits_PK, W) && args->logits_PK.strides[0] % W == 0;
        return aligned ? focal_typed<T, W>(stream, f, args) : focal_typed<T, 1>(stream, f, args);
    });
}

extern "C" tt_status tt_cuda_box_loss(struct tt_stream *stream, const struct tt_box_loss_args *args)
{
    struct box_losses b = {};
    b.p =
        predictions_of(args->deltas_P4, args->row_anchors, args->match_NA, args->foreground_N, args->weight);
    b.anchors = static_cast<const float *>(args->anchors_A4.data);
    b.boxes = static_cast<const float *>(args->boxes_M4.data);
    b.kind = args->kind, b.gradient = args->gradient;
    int64_t groups = (b.p.rows * b.p.each + BOX_GROUP - 1) / BOX_GROUP;
    if (groups == 0) return TT_OK;
    if (groups > GROUPS_MAX) return too_many("box_loss");
    double *sums = static_cast<double *>(tt_cuda_scratch(stream));
    if (args->deltas_P4.dtype == TT_BF16)
        run_boxes<bf16><<<(unsigned)groups, THREADS, 0, tt_cuda_handle(stream)>>>(sums, b);
    else
        run_boxes<float><<<(unsigned)groups, THREADS, 0, tt_cuda_handle(stream)>>>(sums, b);
    launch_add_sums(stream, static_cast<double *>(args->sums.data), sums, (int)groups);
    return tt_cuda_launched(stream, "box_loss", &args->deltas_P4);
}
