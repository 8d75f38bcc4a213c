#ifndef TT_VECTOR_LANES

#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/parallel.h"
#include "backend/ops/gemm_scaled.h"

enum {
    GROUPS_MAX = 32, /* groups of rows, for the weight's gradient */
    GROUP_ROWS_MIN = 32,
    WIDTH_MAX = TT_CPU_SCRATCH_BYTES / sizeof(float),
};

/* The address of row n, where rows are all dimensions but the last; NULL for a missing tensor. */
static inline void *row_of(const tt_tensor *x, int64_t n)
{
    if (tt_tensor_is_empty(*x)) return NULL;
    int64_t at =
        x->rank == 2 ? n * x->strides[0] : n / x->dims[1] * x->strides[0] + n % x->dims[1] * x->strides[1];
    return (char *)x->data + at * (x->dtype == TT_BF16 ? 2 : 4);
}

static inline int64_t row_count(const tt_tensor *x)
{
    return x->rank == 2 ? x->dims[0] : x->dims[0] * x->dims[1];
}

static inline int64_t width_of(const tt_tensor *x)
{
    return x->dims[x->rank - 1];
}

/* The weights of a norm: of a type, or none. */
enum scales { SCALES_NONE, SCALES_F32, SCALES_BF16 };

static inline enum scales scales_of(const tt_tensor *weight_D)
{
    if (weight_D->data == NULL) return SCALES_NONE;
    return weight_D->dtype == TT_BF16 ? SCALES_BF16 : SCALES_F32;
}

#define TT_VECTOR_SOURCE "backend/cpu/rmsnorm.c"
#include "backend/cpu/vector_math_passes.h"

/* The result's rows in FP8, where they are wanted. */
static tt_status quantize(struct tt_stream *stream, tt_tensor x_ND, tt_tensor codes_ND, tt_tensor scale_N)
{
    struct tt_quantize_rows_args args = {x_ND, codes_ND, scale_N};
    return tt_tensor_is_empty(codes_ND) ? TT_OK : tt_cpu_quantize_rows(stream, &args);
}

tt_status tt_cpu_rmsnorm_forward(struct tt_stream *stream, const struct tt_rmsnorm_forward_args *args)
{
    int64_t rows = row_count(&args->x_ND), width = width_of(&args->x_ND);
    void (*forward)(const struct tt_rmsnorm_forward_args *, int64_t) = TT_BEST(stream, forward);
    int threads = tt_cpu_threads(stream, rows * width);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < rows; n++) forward(args, n);
    return quantize(stream, args->y_ND, args->codes_ND, args->scale_N);
}

/* The rows of a weight gradient are divided into groups by their number alone. Each group sums its rows in order into a
 * line of its own, and the lines are added in order. */
tt_status tt_cpu_rmsnorm_backward(struct tt_stream *stream, const struct tt_rmsnorm_backward_args *args)
{
    int64_t rows = row_count(&args->x_ND), width = width_of(&args->x_ND);
    void (*backward)(const struct tt_rmsnorm_backward_args *, int64_t, int64_t, float *) =
        TT_BEST(stream, backward);
    int threads = tt_cpu_threads(stream, rows * width * 2);
    if (tt_tensor_is_empty(args->dweight_D)) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t n = 0; n < rows; n++) backward(args, n, n + 1, NULL);
        return quantize(stream, args->dx_ND, args->codes_ND, args->scale_N);
    }
    if (width > WIDTH_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "rmsnorm_backward: rows of %lld, the cpu's limit is %d",
                       (long long)width, WIDTH_MAX);
    int64_t groups = rows / GROUP_ROWS_MIN < GROUPS_MAX ? rows / GROUP_ROWS_MIN : GROUPS_MAX;
    if (groups > WIDTH_MAX / (width > 0 ? width : 1)) groups = WIDTH_MAX / width;
    if (groups < 1) groups = 1;
    float *lines = tt_cpu_scratch(stream, 0); /* the whole team uses it */
    memset(lines, 0, (size_t)(groups * width) * sizeof *lines);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t g = 0; g < groups; g++)
        backward(args, rows * g / groups, rows * (g + 1) / groups, lines + g * width);
    float *dweight = args->dweight_D.data;
    for (int64_t d = 0; d < width; d++) {
        double sum = 0;
        for (int64_t g = 0; g < groups; g++) sum += (double)lines[g * width + d];
        dweight[d] += (float)sum;
    }
    return quantize(stream, args->dx_ND, args->codes_ND, args->scale_N);
}

#else

/* offset + weight. The kind is a constant of the caller: with a test of the pointer compilers fuse other products and
 * sums, and results have other last bits. */
TT_INLINE vf TT_PASS(scales_at)(const void *weight, float offset, int64_t d, int64_t left,
                                const enum scales kind)
{
    if (kind == SCALES_NONE) return vsplat(offset);
    return vload_part(weight, d, kind == SCALES_BF16, left) + offset;
}

struct TT_PASS(forward_row) {
    const void *x, *residual, *weight;
    void *sum, *y;
    float offset;
};

/* Computes x + residual, rounded to x's type, as it is stored. */
TT_INLINE void TT_PASS(add_residual)(const struct TT_PASS(forward_row) * row, int64_t d, int64_t left,
                                     const bool bf16)
{
    vstore_part(row->sum, d, bf16,
                vload_part(row->x, d, bf16, left) + vload_part(row->residual, d, bf16, left), left);
}

/* Sums in four chains, so that an addition does not wait for the previous one. */
TT_INLINE float TT_PASS(square_sum)(const void *x, int64_t width, const bool bf16)
{
    vf sums[4] = {{0}, {0}, {0}, {0}};
    int64_t d = 0;
    for (; d + 4 * TT_VECTOR_LANES <= width; d += 4 * TT_VECTOR_LANES)
        for (int i = 0; i < 4; i++) {
            vf part = vload(x, d + i * TT_VECTOR_LANES, bf16);
            sums[i] += part * part;
        }
    for (; d < width; d += TT_VECTOR_LANES) {
        vf part = vload_part(x, d, bf16, width - d < TT_VECTOR_LANES ? width - d : TT_VECTOR_LANES);
        sums[0] += part * part;
    }
    return vsum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

TT_INLINE void TT_PASS(normalize)(const struct TT_PASS(forward_row) * row, const void *x, float rstd,
                                  int64_t d, int64_t left, const bool bf16, const enum scales kind)
{
    vf weight = TT_PASS(scales_at)(row->weight, row->offset, d, left, kind);
    vstore_part(row->y, d, bf16, vload_part(x, d, bf16, left) * rstd * weight, left);
}

TT_INLINE float TT_PASS(forward_typed)(struct TT_PASS(forward_row) row, int64_t width, double eps,
                                       const bool bf16, const enum scales kind)
{
    int64_t whole = width / TT_VECTOR_LANES * TT_VECTOR_LANES, d;
    const void *x = row.x;
    if (row.residual != NULL) {
        for (d = 0; d < whole; d += TT_VECTOR_LANES) TT_PASS(add_residual)(&row, d, TT_VECTOR_LANES, bf16);
        if (whole < width) TT_PASS(add_residual)(&row, whole, width - whole, bf16);
        x = row.sum;
    }
    double mean = (double)TT_PASS(square_sum)(x, width, bf16) / (double)width;
    float rstd = (float)(1.0 / sqrt(mean + eps));
    for (d = 0; d < whole; d += TT_VECTOR_LANES)
        TT_PASS(normalize)(&row, x, rstd, d, TT_VECTOR_LANES, bf16, kind);
    if (whole < width) TT_PASS(normalize)(&row, x, rstd, whole, width - whole, bf16, kind);
    return rstd;
}

TT_INLINE float TT_PASS(forward_scaled)(struct TT_PASS(forward_row) row, int64_t width, double eps,
                                        const bool bf16, enum scales kind)
{
    return kind == SCALES_BF16  ? TT_PASS(forward_typed)(row, width, eps, bf16, SCALES_BF16)
           : kind == SCALES_F32 ? TT_PASS(forward_typed)(row, width, eps, bf16, SCALES_F32)
                                : TT_PASS(forward_typed)(row, width, eps, bf16, SCALES_NONE);
}

static void TT_PASS(forward)(const struct tt_rmsnorm_forward_args *args, int64_t n)
{
    const struct TT_PASS(forward_row) row = {.x = row_of(&args->x_ND, n),
                                             .residual = row_of(&args->residual_ND, n),
                                             .weight = args->weight_D.data,
                                             .sum = row_of(&args->sum_ND, n),
                                             .y = row_of(&args->y_ND, n),
                                             .offset = args->offset};
    int64_t width = width_of(&args->x_ND);
    bool bf16 = args->x_ND.dtype == TT_BF16;
    enum scales kind = scales_of(&args->weight_D);
    float rstd = bf16 ? TT_PASS(forward_scaled)(row, width, args->eps, true, kind)
                      : TT_PASS(forward_scaled)(row, width, args->eps, false, kind);
    if (!tt_tensor_is_empty(args->rstd_N)) ((float *)args->rstd_N.data)[n] = rstd;
}

struct TT_PASS(backward_row) {
    const void *dy, *x, *weight, *dres;
    void *dx;
    float *dweight; /* the line of the row's group, or NULL */
    float rstd, offset;
};

/* The sum of dy * weight * x. */
TT_INLINE float TT_PASS(gradient_sum)(const struct TT_PASS(backward_row) * row, int64_t width,
                                      const bool bf16, const enum scales kind)
{
    vf sums[4] = {{0}, {0}, {0}, {0}};
    int64_t d = 0;
    for (; d + 4 * TT_VECTOR_LANES <= width; d += 4 * TT_VECTOR_LANES)
        for (int i = 0; i < 4; i++) {
            int64_t at = d + i * TT_VECTOR_LANES;
            vf weight = TT_PASS(scales_at)(row->weight, row->offset, at, TT_VECTOR_LANES, kind);
            sums[i] += vload(row->dy, at, bf16) * weight * vload(row->x, at, bf16);
        }
    for (; d < width; d += TT_VECTOR_LANES) {
        int64_t left = width - d < TT_VECTOR_LANES ? width - d : TT_VECTOR_LANES;
        sums[0] += vload_part(row->dy, d, bf16, left) *
                   TT_PASS(scales_at)(row->weight, row->offset, d, left, kind) *
                   vload_part(row->x, d, bf16, left);
    }
    return vsum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

TT_INLINE void TT_PASS(differentiate)(const struct TT_PASS(backward_row) * row, float mean, int64_t d,
                                      int64_t left, const bool bf16, const enum scales kind)
{
    vf dy = vload_part(row->dy, d, bf16, left), xhat = vload_part(row->x, d, bf16, left) * row->rstd;
    vf weight = TT_PASS(scales_at)(row->weight, row->offset, d, left, kind);
    vf dx = (dy * weight - xhat * mean) * row->rstd;
    if (row->dres != NULL) dx += vload_part(row->dres, d, bf16, left);
    vstore_part(row->dx, d, bf16, dx, left);
    if (row->dweight != NULL)
        vstore_part(row->dweight, d, false, vload_part(row->dweight, d, false, left) + dy * xhat, left);
}

TT_INLINE void TT_PASS(backward_typed)(struct TT_PASS(backward_row) row, int64_t width, const bool bf16,
                                       const enum scales kind)
{
    /* mean of g * xhat */
    float mean = TT_PASS(gradient_sum)(&row, width, bf16, kind) * row.rstd / (float)width;
    int64_t whole = width / TT_VECTOR_LANES * TT_VECTOR_LANES;
    for (int64_t d = 0; d < whole; d += TT_VECTOR_LANES)
        TT_PASS(differentiate)(&row, mean, d, TT_VECTOR_LANES, bf16, kind);
    if (whole < width) TT_PASS(differentiate)(&row, mean, whole, width - whole, bf16, kind);
}

TT_INLINE void TT_PASS(backward_scaled)(struct TT_PASS(backward_row) row, int64_t width, const bool bf16,
                                        enum scales kind)
{
    if (kind == SCALES_BF16)
        TT_PASS(backward_typed)(row, width, bf16, SCALES_BF16);
    else if (kind == SCALES_F32)
        TT_PASS(backward_typed)(row, width, bf16, SCALES_F32);
    else
        TT_PASS(backward_typed)(row, width, bf16, SCALES_NONE);
}

static void TT_PASS(backward)(const struct tt_rmsnorm_backward_args *args, int64_t first, int64_t end,
                              float *dweight)
{
    int64_t width = width_of(&args->x_ND);
    bool bf16 = args->x_ND.dtype == TT_BF16;
    enum scales kind = scales_of(&args->weight_D);
    for (int64_t n = first; n < end; n++) {
        const struct TT_PASS(backward_row) row = {.dy = row_of(&args->dy_ND, n),
                                                  .x = row_of(&args->x_ND, n),
                                                  .weight = args->weight_D.data,
                                                  .dres = row_of(&args->dres_ND, n),
                                                  .dx = row_of(&args->dx_ND, n),
                                                  .dweight = dweight,
                                                  .rstd = ((const float *)args->rstd_N.data)[n],
                                                  .offset = args->offset};
        if (bf16)
            TT_PASS(backward_scaled)(row, width, true, kind);
        else
            TT_PASS(backward_scaled)(row, width, false, kind);
    }
}

#endif
