/* Rotary position embedding, on matrices of heads. */
#ifndef TT_VECTOR_LANES

#include "backend/compose.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/ops/attention.h"
#include "backend/ops/gemm_scaled.h"

#define TT_VECTOR_SOURCE "backend/cpu/rope.c"
#include "backend/cpu/vector_math_passes.h"

tt_status tt_cpu_rope(struct tt_stream *stream, const struct tt_rope_args *args)
{
    int64_t tokens = args->x_THE.dims[0], positions = args->cos_PE.dims[0];
    const int32_t *position_T = args->positions_T.data;
    for (int64_t t = 0; t < tokens; t++) {
        if (position_T[t] >= 0 && position_T[t] < positions) continue;
        return tt_fail(TT_ERR_INTERNAL, "rope: token %lld has position %d, the table ends at %lld",
                       (long long)t, position_T[t], (long long)positions);
    }
    void (*rotate_token)(const struct tt_rope_args *, int64_t) = TT_BEST(stream, rotate_token);
    int threads = tt_cpu_threads(stream, tokens * args->x_THE.dims[1] * args->x_THE.dims[2]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++) rotate_token(args, t);
    struct tt_quantize_rows_args rows = {args->rows_TC, args->codes_TC, args->scale_T};
    return tt_tensor_is_empty(args->codes_TC) ? TT_OK : tt_cpu_quantize_rows(stream, &rows);
}

tt_status tt_cpu_ready_heads(struct tt_stream *stream, const struct tt_ready_heads_args *args)
{
    return tt_compose_ready_heads(stream, args);
}

#else

TT_INLINE void TT_PASS(rotate_head)(void *x, int64_t at, const float *cos, const float *sin, int64_t half,
                                    float direction, const bool bf16)
{
    int64_t e = 0;
    for (; e + TT_VECTOR_LANES <= half; e += TT_VECTOR_LANES) {
        vf a = vload(x, at + e, bf16), b = vload(x, at + half + e, bf16);
        vf c = vload(cos, e, false), s = vload(sin, e, false) * direction;
        vstore(x, at + e, bf16, a * c - b * s);
        vstore(x, at + half + e, bf16, b * c + a * s);
    }
    int64_t left = half - e;
    if (left == 0) return;
    vf a = vload_some(x, at + e, bf16, left), b = vload_some(x, at + half + e, bf16, left);
    vf c = vload_some(cos, e, false, left), s = vload_some(sin, e, false, left) * direction;
    vstore_some(x, at + e, bf16, a * c - b * s, left);
    vstore_some(x, at + half + e, bf16, b * c + a * s, left);
}

TT_INLINE void TT_PASS(rotate_pairs)(void *x, int64_t at, const float *cos, const float *sin, int64_t half,
                                     float direction, const bool bf16)
{
    enum { WIDE = 2 * TT_VECTOR_LANES };
    for (int64_t e = 0; e < half; e += TT_VECTOR_LANES) {
        int64_t left = half - e < TT_VECTOR_LANES ? half - e : TT_VECTOR_LANES;
        int64_t low = 2 * left < TT_VECTOR_LANES ? 2 * left : TT_VECTOR_LANES, high = 2 * left - low;
        float both[WIDE];
        vstore(both, 0, false, vload_part(x, at + 2 * e, bf16, low));
        if (high > 0)
            vstore(both, TT_VECTOR_LANES, false, vload_part(x, at + 2 * e + TT_VECTOR_LANES, bf16, high));
        for (int64_t i = 0; i < left; i++) {
            float a = both[2 * i], b = both[2 * i + 1], c = cos[e + i], s = sin[e + i] * direction;
            both[2 * i] = a * c - b * s;
            both[2 * i + 1] = b * c + a * s;
        }
        vstore_part(x, at + 2 * e, bf16, vload(both, 0, false), low);
        if (high > 0)
            vstore_part(x, at + 2 * e + TT_VECTOR_LANES, bf16, vload(both, TT_VECTOR_LANES, false), high);
    }
}

TT_INLINE void TT_PASS(rotate_typed)(const struct tt_rope_args *args, int64_t at, const float *cos,
                                     const float *sin, const bool bf16)
{
    int64_t half = args->x_THE.dims[2] / 2;
    float direction = args->inverse ? -1.0f : 1.0f;
    if (args->pairs)
        TT_PASS(rotate_pairs)(args->x_THE.data, at, cos, sin, half, direction, bf16);
    else
        TT_PASS(rotate_head)(args->x_THE.data, at, cos, sin, half, direction, bf16);
}

static void TT_PASS(rotate_token)(const struct tt_rope_args *args, int64_t t)
{
    const tt_tensor *x = &args->x_THE;
    int64_t position = ((const int32_t *)args->positions_T.data)[t];
    const float *cos = (const float *)args->cos_PE.data + position * args->cos_PE.strides[0];
    const float *sin = (const float *)args->sin_PE.data + position * args->sin_PE.strides[0];
    for (int64_t h = 0; h < x->dims[1]; h++) {
        int64_t at = t * x->strides[0] + h * x->strides[1];
        if (x->dtype == TT_BF16)
            TT_PASS(rotate_typed)(args, at, cos, sin, true);
        else
            TT_PASS(rotate_typed)(args, at, cos, sin, false);
    }
}

#endif
