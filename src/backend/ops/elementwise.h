/* Small element-wise ops. Shapes are equal unless noted; rank 1 or 2; rows may be strided. */
#ifndef TT_BACKEND_OPS_ELEMENTWISE_H
#define TT_BACKEND_OPS_ELEMENTWISE_H

#include "backend/device.h"
#include "base/rng.h"
#include "tensor/tensor.h"

/* y = a + b, rounded once; y may alias either. */
struct tt_add_args {
    tt_tensor a, b; /* f32 | bf16, each its own */
    tt_tensor y;
};
TT_MUST_USE tt_status tt_add(struct tt_stream *stream, const struct tt_add_args *args);

/* y = the sum of the rows of x, added in their order in fp32 and rounded once. */
struct tt_sum_rows_args {
    tt_tensor x_RD; /* f32 | bf16, at least one row */
    tt_tensor y_D;  /* of x's type, apart from it */
};
TT_MUST_USE tt_status tt_sum_rows(struct tt_stream *stream, const struct tt_sum_rows_args *args);

/* x *= factor; with `by` a factor in device memory instead */
struct tt_scale_args {
    tt_tensor x; /* f32 | bf16 */
    float factor;
    tt_tensor by_1; /* empty, or f32 [1] */
};
TT_MUST_USE tt_status tt_scale(struct tt_stream *stream, const struct tt_scale_args *args);

/* x = cap tanh(x / cap) */
struct tt_soft_cap_args {
    tt_tensor x; /* f32 | bf16 */
    float cap;   /* above 0 */
};
TT_MUST_USE tt_status tt_soft_cap(struct tt_stream *stream, const struct tt_soft_cap_args *args);

/* y = x in y's type; f32, bf16, f16 in any pair. */
struct tt_cast_args {
    tt_tensor x;
    tt_tensor y;
};
TT_MUST_USE tt_status tt_cast(struct tt_stream *stream, const struct tt_cast_args *args);

/* Inverted dropout: y = keep ? x / (1 - p) : 0. The mask of element (t, d) is a pure function of (rng, row_keys[t], d):
 * a token has the same mask in any batch and on any rank. The same call on gradients is the backward pass. `accumulate`
 * adds to y instead (y += ...). p is rounded to steps of 2^-14, also in the factor, which preserves the expectation.
 * With h = d % 8, keep iff the lower 14 bits of half h % 2 (0: the lower) of word h / 2 of tt_rng_block(rng, row_key,
 * d / 8) are at least tt_dropout_threshold(p): as fp16 such bits are finite numbers in the same order, and GPUs compare
 * two at once. */
enum { TT_DROPOUT_STEPS = 1 << 14 };
static inline uint32_t tt_dropout_threshold(double p)
{
    uint32_t threshold = (uint32_t)(p * TT_DROPOUT_STEPS + 0.5);
    return threshold < TT_DROPOUT_STEPS ? threshold : TT_DROPOUT_STEPS - 1; /* at least one value is kept */
}
static inline float tt_dropout_factor(double p)
{
    return (float)TT_DROPOUT_STEPS / (float)(TT_DROPOUT_STEPS - tt_dropout_threshold(p));
}
struct tt_dropout_args {
    tt_tensor x_TD;       /* f32 | bf16 */
    tt_tensor row_keys_T; /* i64 */
    struct tt_rng rng;
    double p; /* 0 <= p < 1 */
    bool accumulate;
    tt_tensor y_TD; /* may alias x when not accumulating */
};
TT_MUST_USE tt_status tt_dropout(struct tt_stream *stream, const struct tt_dropout_args *args);

/* Fills from counters first, first + 1, ...: an element has the same value in a slice as in the whole tensor. uniform:
 * [-scale, scale); normal: deviation scale. */
struct tt_random_fill_args {
    tt_tensor y; /* f32 | bf16, contiguous, rank 1 or 2 */
    struct tt_rng rng;
    int64_t first;
    int64_t row_step; /* rank 2: counters from row to row, for columns of a wider matrix */
    bool normal;
    double scale;
};
TT_MUST_USE tt_status tt_random_fill(struct tt_stream *stream, const struct tt_random_fill_args *args);

#endif
