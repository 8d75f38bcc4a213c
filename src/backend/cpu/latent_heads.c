/* Heads of multi-head latent attention: columns of linears, rotated and laid side by side. */
#ifndef TT_VECTOR_LANES

#include <math.h>

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/attention.h"
#include "backend/ops/latent_heads.h"

/* A token of the pass. */
struct token {
    const struct tt_latent_heads_args *args;
    struct tt_latent_widths widths;
    int64_t row;
    const float *cos, *sin;
    float factor; /* of queries */
};

#define TT_VECTOR_SOURCE "backend/cpu/latent_heads.c"
#include "backend/cpu/vector_math_passes.h"

static float query_factor(const struct tt_latent_heads_args *args, int64_t position)
{
    if (args->temperature == 0) return 1;
    return (float)(1 + args->temperature * log(1 + (double)(position / args->original_positions)));
}

tt_status tt_cpu_latent_heads(struct tt_stream *stream, const struct tt_latent_heads_args *args)
{
    void (*forward_token)(const struct token *) = TT_BEST(stream, forward_token);
    void (*backward_token)(const struct token *) = TT_BEST(stream, backward_token);
    int64_t tokens = args->q_THW.dims[0], rows = args->cos_PE.dims[0];
    const int32_t *positions = args->positions_T.data;
    for (int64_t t = 0; t < tokens; t++)
        if (positions[t] < 0 || positions[t] >= rows)
            return tt_fail(TT_ERR_INTERNAL,
                           "latent_heads: token %lld has position %d, the table ends at %lld", (long long)t,
                           positions[t], (long long)rows);
    int threads = tt_cpu_threads(stream, 3 * tokens * args->q_THW.dims[1] * args->q_THW.dims[2]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++) {
        const struct token token = {
            .args = args,
            .widths = tt_latent_widths_of(args),
            .row = t,
            .cos = (const float *)args->cos_PE.data + positions[t] * args->cos_PE.strides[0],
            .sin = (const float *)args->sin_PE.data + positions[t] * args->sin_PE.strides[0],
            .factor = query_factor(args, positions[t]),
        };
        if (args->backward)
            backward_token(&token);
        else
            forward_token(&token);
    }
    return TT_OK;
}

#else

/* to[0 .. count) = factor * from[0 .. count), of a row each. */
TT_INLINE void TT_PASS(move)(const tt_tensor *to, int64_t to_at, const tt_tensor *from, int64_t from_at,
                             int64_t count, float factor)
{
    bool bf16 = to->dtype == TT_BF16;
    for (int64_t d = 0; d < count; d += TT_VECTOR_LANES)
        vstore_part(to->data, to_at + d, bf16, vload_part(from->data, from_at + d, bf16, count - d) * factor,
                    count - d);
}
#define move TT_PASS(move)

TT_INLINE void TT_PASS(clear)(const tt_tensor *to, int64_t at, int64_t count)
{
    for (int64_t d = 0; d < count; d += TT_VECTOR_LANES)
        vstore_part(to->data, at + d, to->dtype == TT_BF16, vsplat(0), count - d);
}
#define clear TT_PASS(clear)

/* sum[0 .. count) += x of a row */
TT_INLINE void TT_PASS(join)(float *sum, const tt_tensor *x, int64_t at, int64_t count)
{
    for (int64_t d = 0; d < count; d += TT_VECTOR_LANES) {
        int64_t left = count - d;
        vf both = vload_part(sum, d, false, left) + vload_part(x->data, at + d, x->dtype == TT_BF16, left);
        vstore_part(sum, d, false, both, left);
    }
}
#define join TT_PASS(join)

/* x turned by the token's angles, or back. */
TT_INLINE void TT_PASS(turn)(const struct token *token, float *x, float direction)
{
    int64_t half = token->widths.rotated / 2;
    int64_t step = token->args->pairs ? 2 : 1, apart = token->args->pairs ? 1 : half;
    for (int64_t e = 0; e < half; e++) {
        float a = x[e * step], b = x[e * step + apart], c = token->cos[e], s = token->sin[e] * direction;
        x[e * step] = a * c - b * s;
        x[e * step + apart] = b * c + a * s;
    }
}
#define turn TT_PASS(turn)

TT_INLINE void TT_PASS(move_turned)(const struct token *token, const tt_tensor *to, int64_t to_at,
                                    const tt_tensor *from, int64_t from_at, float direction, float factor)
{
    float held[TT_ATTENTION_HEAD_DIM_MAX];
    const tt_tensor row = {.data = held, .dtype = TT_F32};
    int64_t count = token->widths.rotated;
    for (int64_t d = 0; d < count; d++) held[d] = 0;
    join(held, from, from_at, count);
    turn(token, held, direction);
    for (int64_t d = 0; d < count; d += TT_VECTOR_LANES) {
        vf x = vload_part(row.data, d, false, count - d) * factor;
        vstore_part(to->data, to_at + d, to->dtype == TT_BF16, x, count - d);
    }
}
#define move_turned TT_PASS(move_turned)

TT_INLINE int64_t TT_PASS(at)(const struct token *token, const tt_tensor *x, int64_t head)
{
    return token->row * x->strides[0] + head * x->strides[1];
}
#define at TT_PASS(at)

static void TT_PASS(forward_token)(const struct token *token)
{
    const struct tt_latent_heads_args *args = token->args;
    const tt_tensor *q = &args->q_THW, *k = &args->k_THW, *v = &args->v_THW;
    int64_t plain = token->widths.plain, rotated = token->widths.rotated, value = token->widths.value;
    int64_t width = q->dims[2], shared_at = token->row * args->shared_TR.strides[0];
    for (int64_t h = 0; h < token->widths.heads; h++) {
        int64_t from_q = token->row * args->q_TC.strides[0] + h * (plain + rotated);
        int64_t from_kv = token->row * args->kv_TC.strides[0] + h * (plain + value);
        int64_t to_q = at(token, q, h), to_k = at(token, k, h), to_v = at(token, v, h);
        move(q, to_q, &args->q_TC, from_q, plain, token->factor);
        move_turned(token, q, to_q + plain, &args->q_TC, from_q + plain, 1, token->factor);
        clear(q, to_q + plain + rotated, width - plain - rotated);
        move(k, to_k, &args->kv_TC, from_kv, plain, 1);
        move_turned(token, k, to_k + plain, &args->shared_TR, shared_at, 1, 1);
        clear(k, to_k + plain + rotated, width - plain - rotated);
        move(v, to_v, &args->kv_TC, from_kv + plain, value, 1);
        clear(v, to_v + value, width - value);
    }
}

static void TT_PASS(backward_token)(const struct token *token)
{
    const struct tt_latent_heads_args *args = token->args;
    const tt_tensor *q = &args->q_THW, *k = &args->k_THW, *v = &args->v_THW;
    int64_t plain = token->widths.plain, rotated = token->widths.rotated, value = token->widths.value;
    float sum[TT_ATTENTION_HEAD_DIM_MAX];
    const tt_tensor sums = {.data = sum, .dtype = TT_F32};
    for (int64_t d = 0; d < rotated; d++) sum[d] = 0;
    for (int64_t h = 0; h < token->widths.heads; h++) {
        int64_t to_q = token->row * args->q_TC.strides[0] + h * (plain + rotated);
        int64_t to_kv = token->row * args->kv_TC.strides[0] + h * (plain + value);
        int64_t from_q = at(token, q, h), from_k = at(token, k, h), from_v = at(token, v, h);
        move(&args->q_TC, to_q, q, from_q, plain, token->factor);
        move_turned(token, &args->q_TC, to_q + plain, q, from_q + plain, -1, token->factor);
        move(&args->kv_TC, to_kv, k, from_k, plain, 1);
        move(&args->kv_TC, to_kv + plain, v, from_v, value, 1);
        join(sum, k, from_k + plain, rotated);
    }
    turn(token, sum, -1);
    const tt_tensor *shared = &args->shared_TR;
    for (int64_t d = 0; d < rotated; d += TT_VECTOR_LANES)
        vstore_part(shared->data, token->row * shared->strides[0] + d, shared->dtype == TT_BF16,
                    vload_part(sums.data, d, false, rotated - d), rotated - d);
}

#endif
