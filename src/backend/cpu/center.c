#ifndef TT_VECTOR_LANES

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/center.h"

#define TT_VECTOR_SOURCE "backend/cpu/center.c"
#include "backend/cpu/vector_math_passes.h"

tt_status tt_cpu_center(struct tt_stream *stream, const struct tt_center_args *args)
{
    int64_t rows = args->x_ND.dims[0], width = args->x_ND.dims[1];
    void (*center_row)(const struct tt_center_args *, int64_t) = TT_BEST(stream, center_row);
    int threads = tt_cpu_threads(stream, rows * width);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < rows; n++) center_row(args, n);
    return TT_OK;
}

#else

TT_INLINE void TT_PASS(center_typed)(const void *x, int64_t from, void *y, int64_t to, int64_t width,
                                     const bool bf16)
{
    vf sum = {0};
    int64_t d, left;
    for (d = 0; d < width; d += TT_VECTOR_LANES) {
        left = width - d < TT_VECTOR_LANES ? width - d : TT_VECTOR_LANES;
        sum += vload_part(x, from + d, bf16, left);
    }
    float mean = vsum(sum) / (float)width;
    for (d = 0; d < width; d += TT_VECTOR_LANES) {
        left = width - d < TT_VECTOR_LANES ? width - d : TT_VECTOR_LANES;
        vstore_part(y, to + d, bf16, vload_part(x, from + d, bf16, left) - mean, left);
    }
}

static void TT_PASS(center_row)(const struct tt_center_args *args, int64_t n)
{
    const tt_tensor *x = &args->x_ND, *y = &args->y_ND;
    int64_t from = n * x->strides[0], to = n * y->strides[0];
    if (x->dtype == TT_BF16)
        TT_PASS(center_typed)(x->data, from, y->data, to, x->dims[1], true);
    else
        TT_PASS(center_typed)(x->data, from, y->data, to, x->dims[1], false);
}

#endif
