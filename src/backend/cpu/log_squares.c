#ifndef TT_VECTOR_LANES

#include <math.h>

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/log_squares.h"

#define TT_VECTOR_SOURCE "backend/cpu/log_squares.c"
#include "backend/cpu/vector_math_passes.h"

tt_status tt_cpu_log_squares(struct tt_stream *stream, const struct tt_log_squares_args *args)
{
    int64_t rows = args->logits_NV.dims[0], words = args->logits_NV.dims[1];
    void (*squares_row)(const struct tt_log_squares_args *, int64_t) = TT_BEST(stream, squares_row);
    int threads = tt_cpu_threads(stream, rows * words * 2);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < rows; n++) squares_row(args, n);
    return TT_OK;
}

#else

/* A part is short enough for its sums in fp32. */
#define SQUARES_PART 2048

/* The words from v on, at most a vector of them, as they are or capped; beyond the end: none, whose exp is 0. */
TT_INLINE vf TT_PASS(squares_load)(const void *row, int64_t v, int64_t words, const bool bf16,
                                   const float cap)
{
    int64_t left = words - v < TT_VECTOR_LANES ? words - v : TT_VECTOR_LANES;
    vf x = vload_part(row, v, bf16, left);
    if (cap > 0) x = cap * vtanh(x / cap);
    for (int64_t i = left; i < TT_VECTOR_LANES; i++) x[i] = -INFINITY;
    return x;
}

TT_INLINE void TT_PASS(squares_typed)(const struct tt_log_squares_args *args, int64_t n, const bool bf16,
                                      const float cap)
{
    int64_t words = args->logits_NV.dims[1];
    const void *row = (const char *)args->logits_NV.data + n * args->logits_NV.strides[0] * (bf16 ? 2 : 4);
    vf top = vsplat(-3.4028235e38f);
    double sum = 0, squares = 0;
    for (int64_t v = 0; v < words; v += TT_VECTOR_LANES)
        top = vmax(top, TT_PASS(squares_load)(row, v, words, bf16, cap));
    float largest = vmax_of(top);
    for (int64_t part = 0; part < words; part += SQUARES_PART) {
        int64_t end = part + SQUARES_PART < words ? part + SQUARES_PART : words;
        vf sums = {0}, square_sums = {0};
        for (int64_t v = part; v < end; v += TT_VECTOR_LANES) {
            vf e = vexp(TT_PASS(squares_load)(row, v, words, bf16, cap) - largest);
            sums += e;
            square_sums += e * e;
        }
        sum += (double)vsum(sums);
        squares += (double)vsum(square_sums);
    }
    ((float *)args->y_N.data)[n] = (float)(log(squares) - 2 * log(sum));
}

static void TT_PASS(squares_row)(const struct tt_log_squares_args *args, int64_t n)
{
    if (args->logits_NV.dtype == TT_BF16)
        TT_PASS(squares_typed)(args, n, true, args->soft_cap);
    else
        TT_PASS(squares_typed)(args, n, false, args->soft_cap);
}

#endif
