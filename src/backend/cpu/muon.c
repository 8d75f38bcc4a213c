#ifndef TT_VECTOR_LANES

#include <math.h>

#include "backend/ops/muon.h"
#include "tensor/dtype.h"

/* torch.lerp(a, b, weight) for the two weights of a step; `far`: from b backwards, as torch does from 0.5 on. */
struct lerp {
    float weight;
    bool far;
};

struct direction {
    struct lerp momentum, nesterov;
    const float *grad;
    float *m;
    void *y;
    float grad_scale;
    bool has_nesterov;
};

#define TT_VECTOR_SOURCE "backend/cpu/muon.c"
#include "backend/cpu/vector_math_passes.h"

enum {
    PIECE = 16384,                                             /* elements, a multiple of all vector widths */
    SUMS_MAX = TT_CPU_SCRATCH_BYTES / (int)sizeof(double) / 2, /* partial sums kept at once */
};

static struct lerp make_lerp(double weight)
{
    float rounded = (float)weight;
    return rounded < 0.5f ? (struct lerp){rounded, false} : (struct lerp){1.0f - rounded, true};
}

tt_status tt_cpu_muon_direction(struct tt_stream *stream, const struct tt_muon_direction_args *args)
{
    int64_t count = args->grad.dims[0], pieces = (count + PIECE - 1) / PIECE;
    const struct direction direction = {
        .momentum = make_lerp(1.0 - args->momentum),
        .nesterov = make_lerp(args->momentum),
        .grad = args->grad.data,
        .m = args->m.data,
        .y = args->y.data,
        .grad_scale = args->grad_scale,
        .has_nesterov = args->nesterov,
    };
    bool bf16 = args->y.dtype == TT_BF16;
    void (*direction_piece)(const struct direction *, bool, int64_t, int64_t) =
        TT_BEST(stream, direction_piece);
    int threads = tt_cpu_threads(stream, count * 3);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t first = piece * PIECE, end = first + PIECE < count ? first + PIECE : count;
        direction_piece(&direction, bf16, first, end);
    }
    return TT_OK;
}

/* The norm as a value of the type of x, at least eps. */
static float norm_of(double squares, bool bf16, double eps)
{
    float norm = (float)sqrt(squares), least = (float)eps;
    if (bf16) norm = tt_bf16_to_f32(tt_f32_to_bf16(norm));
    return norm > least ? norm : least;
}

tt_status tt_cpu_muon_normalize(struct tt_stream *stream, const struct tt_muon_normalize_args *args)
{
    int64_t count = args->x.dims[0], pieces = (count + PIECE - 1) / PIECE;
    bool bf16 = args->x.dtype == TT_BF16;
    double (*norm_piece)(const void *, bool, int64_t, int64_t) = TT_BEST(stream, norm_piece);
    void (*divide_piece)(void *, bool, float, int64_t, int64_t) = TT_BEST(stream, divide_piece);
    double *sums = tt_cpu_scratch(stream, 0), total = 0; /* the whole team writes and reads it */
    int threads = tt_cpu_threads(stream, count);
    for (int64_t done = 0; done < pieces; done += SUMS_MAX) {
        int64_t now = pieces - done < SUMS_MAX ? pieces - done : SUMS_MAX;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = 0; i < now; i++) {
            int64_t first = (done + i) * PIECE, end = first + PIECE < count ? first + PIECE : count;
            sums[i] = norm_piece(args->x.data, bf16, first, end);
        }
        for (int64_t i = 0; i < now; i++) total += sums[i];
    }
    *(double *)args->squares.data = total;
    float norm = norm_of(total, bf16, args->eps);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t first = piece * PIECE, end = first + PIECE < count ? first + PIECE : count;
        divide_piece(args->x.data, bf16, norm, first, end);
    }
    return TT_OK;
}

tt_status tt_cpu_muon_apply(struct tt_stream *stream, const struct tt_muon_apply_args *args)
{
    int64_t count = args->param.dims[0], pieces = (count + PIECE - 1) / PIECE;
    void (*apply_piece)(const struct tt_muon_apply_args *, int64_t, int64_t) = TT_BEST(stream, apply_piece);
    int threads = tt_cpu_threads(stream, count * 2);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t first = piece * PIECE;
        apply_piece(args, first, first + PIECE < count ? first + PIECE : count);
    }
    return TT_OK;
}

#else

TT_INLINE vf TT_PASS(load)(const void *x, int64_t i, const bool bf16, int64_t left)
{
    return left == TT_VECTOR_LANES ? vload(x, i, bf16) : vload_some(x, i, bf16, left);
}

TT_INLINE void TT_PASS(store)(void *x, int64_t i, const bool bf16, vf value, int64_t left)
{
    if (left == TT_VECTOR_LANES)
        vstore(x, i, bf16, value);
    else
        vstore_some(x, i, bf16, value, left);
}

TT_INLINE vf TT_PASS(lerp)(vf a, vf b, const struct lerp *lerp)
{
    return lerp->far ? b - (b - a) * lerp->weight : a + (b - a) * lerp->weight;
}

static void TT_PASS(direction_piece)(const struct direction *d, bool bf16, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i += TT_VECTOR_LANES) {
        int64_t left = end - i < TT_VECTOR_LANES ? end - i : TT_VECTOR_LANES;
        vf g = TT_PASS(load)(d->grad, i, false, left) * d->grad_scale;
        vf m = TT_PASS(lerp)(TT_PASS(load)(d->m, i, false, left), g, &d->momentum);
        TT_PASS(store)(d->m, i, false, m, left);
        TT_PASS(store)(d->y, i, bf16, d->has_nesterov ? TT_PASS(lerp)(g, m, &d->nesterov) : m, left);
    }
}

static double TT_PASS(norm_piece)(const void *x, bool bf16, int64_t first, int64_t end)
{
    double sums[16] = {0};
    for (int64_t i = first; i < end; i++) {
        float value = bf16 ? tt_bf16_to_f32(((const uint16_t *)x)[i]) : ((const float *)x)[i];
        sums[i % 16] += (double)value * (double)value;
    }
    for (int half = 8; half > 0; half /= 2)
        for (int k = 0; k < half; k++) sums[k] += sums[k + half];
    return sums[0];
}

static void TT_PASS(divide_piece)(void *x, bool bf16, float norm, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i += TT_VECTOR_LANES) {
        int64_t left = end - i < TT_VECTOR_LANES ? end - i : TT_VECTOR_LANES;
        TT_PASS(store)(x, i, bf16, TT_PASS(load)(x, i, bf16, left) / norm, left);
    }
}

static void TT_PASS(apply_piece)(const struct tt_muon_apply_args *args, int64_t first, int64_t end)
{
    float keep = (float)(1.0 - args->decay), lr = (float)args->lr;
    bool bf16 = args->x.dtype == TT_BF16;
    for (int64_t i = first; i < end; i += TT_VECTOR_LANES) {
        int64_t left = end - i < TT_VECTOR_LANES ? end - i : TT_VECTOR_LANES;
        vf p = TT_PASS(load)(args->param.data, i, false, left) * keep;
        TT_PASS(store)(args->param.data, i, false, p - TT_PASS(load)(args->x.data, i, bf16, left) * lr, left);
    }
}

#endif
