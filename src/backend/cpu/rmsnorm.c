#ifndef TT_VECTOR_LANES

#include <math.h>
#include <string.h>

#include "backend/cpu/parallel.h"

enum {
    GROUPS_MAX = 32, /* of rows, for the weight's gradient */
    GROUP_ROWS_MIN = 32,
    WIDTH_MAX = TT_CPU_SCRATCH_BYTES / sizeof(float),
};

/* Where row n begins: rows are all dimensions but the last. */
static inline int64_t row_offset(const tt_tensor *x, int64_t n)
{
    if (x->rank == 2) return n * x->strides[0];
    return n / x->dims[1] * x->strides[0] + n % x->dims[1] * x->strides[1];
}

static inline int64_t row_count(const tt_tensor *x)
{
    return x->rank == 2 ? x->dims[0] : x->dims[0] * x->dims[1];
}

#define TT_VECTOR_SOURCE "backend/cpu/rmsnorm.c"
#include "backend/cpu/vector_math_passes.h"

tt_status tt_cpu_rmsnorm_forward(struct tt_stream *stream, const struct tt_rmsnorm_forward_args *args)
{
    int64_t rows = row_count(&args->x_ND), width = args->weight_D.dims[0];
    void (*forward_row)(const struct tt_rmsnorm_forward_args *, int64_t) = TT_BEST(stream, forward_row);
    int threads = tt_cpu_threads(stream, rows * width);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < rows; n++) forward_row(args, n);
    return TT_OK;
}

/* With a weight gradient the rows are cut into groups by their number alone; each group sums its rows in
 * order into a line of its own, and the lines are added in order. */
tt_status tt_cpu_rmsnorm_backward(struct tt_stream *stream, const struct tt_rmsnorm_backward_args *args)
{
    int64_t rows = row_count(&args->x_ND), width = args->weight_D.dims[0];
    void (*backward_rows)(const struct tt_rmsnorm_backward_args *, int64_t, int64_t, float *) =
        TT_BEST(stream, backward_rows);
    int threads = tt_cpu_threads(stream, rows * width * 2);
    if (tt_tensor_is_empty(args->dweight_D)) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t n = 0; n < rows; n++) backward_rows(args, n, n + 1, NULL);
        return TT_OK;
    }
    if (width > WIDTH_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "rmsnorm_backward: rows of %lld, the cpu's limit is %d",
                       (long long)width, WIDTH_MAX);
    int64_t groups = rows / GROUP_ROWS_MIN < GROUPS_MAX ? rows / GROUP_ROWS_MIN : GROUPS_MAX;
    if (groups > WIDTH_MAX / (width > 0 ? width : 1)) groups = WIDTH_MAX / width;
    if (groups < 1) groups = 1;
    float *lines = tt_cpu_scratch(stream, 0); /* read by the whole team */
    memset(lines, 0, (size_t)(groups * width) * sizeof *lines);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t g = 0; g < groups; g++)
        backward_rows(args, rows * g / groups, rows * (g + 1) / groups, lines + g * width);
    float *dweight = args->dweight_D.data;
    for (int64_t d = 0; d < width; d++) {
        float sum = 0;
        for (int64_t g = 0; g < groups; g++) sum += lines[g * width + d];
        dweight[d] += sum;
    }
    return TT_OK;
}

#else

#define load_up_to TT_PASS(load_up_to)
#define store_up_to TT_PASS(store_up_to)

TT_INLINE vf load_up_to(const void *from, int64_t index, bool bf16, int64_t left)
{
    return left >= TT_VECTOR_LANES ? vload(from, index, bf16) : vload_some(from, index, bf16, left);
}

TT_INLINE void store_up_to(void *to, int64_t index, bool bf16, vf x, int64_t left)
{
    if (left >= TT_VECTOR_LANES)
        vstore(to, index, bf16, x);
    else
        vstore_some(to, index, bf16, x, left);
}

/* Sums run in four chains, so that an addition need not wait for the one before. */
TT_INLINE void TT_PASS(forward_typed)(const struct tt_rmsnorm_forward_args *args, int64_t n, const bool bf16,
                                      const bool weight_bf16)
{
    int64_t width = args->weight_D.dims[0];
    bool has_residual = !tt_tensor_is_empty(args->residual_ND);
    const tt_tensor *source = has_residual ? &args->sum_ND : &args->x_ND;
    int64_t at = row_offset(source, n), y_at = row_offset(&args->y_ND, n);
    if (has_residual) {
        int64_t x_at = row_offset(&args->x_ND, n), residual_at = row_offset(&args->residual_ND, n);
        for (int64_t d = 0; d < width; d += TT_VECTOR_LANES) {
            vf sum = load_up_to(args->x_ND.data, x_at + d, bf16, width - d) +
                     load_up_to(args->residual_ND.data, residual_at + d, bf16, width - d);
            store_up_to(source->data, at + d, bf16, sum, width - d);
        }
    }
    vf squares[4] = {{0}, {0}, {0}, {0}};
    int64_t d = 0;
    for (; d + 4 * TT_VECTOR_LANES <= width; d += 4 * TT_VECTOR_LANES)
        for (int i = 0; i < 4; i++) {
            vf x = vload(source->data, at + d + i * TT_VECTOR_LANES, bf16);
            squares[i] += x * x;
        }
    for (; d < width; d += TT_VECTOR_LANES) {
        vf x = load_up_to(source->data, at + d, bf16, width - d);
        squares[0] += x * x;
    }
    double sum = vsum((squares[0] + squares[1]) + (squares[2] + squares[3]));
    float rstd = (float)(1.0 / sqrt(sum / (double)width + args->eps));
    for (d = 0; d < width; d += TT_VECTOR_LANES) {
        vf x = load_up_to(source->data, at + d, bf16, width - d);
        vf weight = load_up_to(args->weight_D.data, d, weight_bf16, width - d);
        store_up_to(args->y_ND.data, y_at + d, bf16, x * rstd * weight, width - d);
    }
    if (!tt_tensor_is_empty(args->rstd_N)) ((float *)args->rstd_N.data)[n] = rstd;
}

static void TT_PASS(forward_row)(const struct tt_rmsnorm_forward_args *args, int64_t n)
{
    bool weight_bf16 = args->weight_D.dtype == TT_BF16;
    if (args->x_ND.dtype == TT_BF16)
        TT_PASS(forward_typed)(args, n, true, weight_bf16);
    else
        TT_PASS(forward_typed)(args, n, false, weight_bf16);
}

TT_INLINE void TT_PASS(backward_typed)(const struct tt_rmsnorm_backward_args *args, int64_t n, float *dweight,
                                       const bool bf16, const bool weight_bf16)
{
    int64_t width = args->weight_D.dims[0], x_at = row_offset(&args->x_ND, n),
            dy_at = row_offset(&args->dy_ND, n);
    int64_t dx_at = row_offset(&args->dx_ND, n);
    bool has_dres = !tt_tensor_is_empty(args->dres_ND);
    int64_t dres_at = has_dres ? row_offset(&args->dres_ND, n) : 0;
    const void *x_data = args->x_ND.data, *dy_data = args->dy_ND.data, *weight_data = args->weight_D.data;
    float rstd = ((const float *)args->rstd_N.data)[n];
    vf products[4] = {{0}, {0}, {0}, {0}};
    int64_t d = 0;
    for (; d + 4 * TT_VECTOR_LANES <= width; d += 4 * TT_VECTOR_LANES)
        for (int i = 0; i < 4; i++) {
            int64_t place = d + i * TT_VECTOR_LANES;
            products[i] += vload(dy_data, dy_at + place, bf16) * vload(weight_data, place, weight_bf16) *
                           vload(x_data, x_at + place, bf16);
        }
    for (; d < width; d += TT_VECTOR_LANES)
        products[0] += load_up_to(dy_data, dy_at + d, bf16, width - d) *
                       load_up_to(weight_data, d, weight_bf16, width - d) *
                       load_up_to(x_data, x_at + d, bf16, width - d);
    float sum = vsum((products[0] + products[1]) + (products[2] + products[3]));
    float mean = sum * rstd / (float)width; /* of g * xhat */
    for (d = 0; d < width; d += TT_VECTOR_LANES) {
        int64_t left = width - d;
        vf dy = load_up_to(dy_data, dy_at + d, bf16, left);
        vf xhat = load_up_to(x_data, x_at + d, bf16, left) * rstd;
        vf dx = (dy * load_up_to(weight_data, d, weight_bf16, left) - xhat * mean) * rstd;
        if (has_dres) dx += load_up_to(args->dres_ND.data, dres_at + d, bf16, left);
        store_up_to(args->dx_ND.data, dx_at + d, bf16, dx, left);
        if (dweight == NULL) continue;
        store_up_to(dweight, d, false, load_up_to(dweight, d, false, left) + dy * xhat, left);
    }
}

static void TT_PASS(backward_rows)(const struct tt_rmsnorm_backward_args *args, int64_t first, int64_t end,
                                   float *dweight)
{
    bool weight_bf16 = args->weight_D.dtype == TT_BF16;
    for (int64_t n = first; n < end; n++) {
        if (args->x_ND.dtype == TT_BF16)
            TT_PASS(backward_typed)(args, n, dweight, true, weight_bf16);
        else
            TT_PASS(backward_typed)(args, n, dweight, false, weight_bf16);
    }
}

#endif
