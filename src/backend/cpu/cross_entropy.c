#ifndef TT_VECTOR_LANES

#include <math.h>

#include "backend/ops/cross_entropy.h"

#define TT_VECTOR_SOURCE "backend/cpu/cross_entropy.c"
#include "backend/cpu/vector_math_passes.h"

tt_status tt_cpu_cross_entropy(struct tt_stream *stream, const struct tt_cross_entropy_args *args)
{
    int64_t rows = args->logits_NV.dims[0], words = args->logits_NV.dims[1];
    const int32_t *labels = args->labels_N.data;
    for (int64_t n = 0; n < rows; n++) {
        if (labels[n] >= 0 && labels[n] < words) continue;
        return tt_fail(TT_ERR_DATA, "cross_entropy: label %lld is %d, which is outside 0..%lld", (long long)n,
                       labels[n], (long long)words - 1);
    }
    void (*entropy_row)(const struct tt_cross_entropy_args *, int64_t) = TT_BEST(stream, entropy_row);
    int threads = tt_cpu_threads(stream, rows * words * 2);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < rows; n++) entropy_row(args, n);
    return TT_OK;
}

tt_status tt_cpu_loss_sums(struct tt_stream *stream, const struct tt_loss_sums_args *args)
{
    (void)stream;
    const float *loss = args->loss_N.data;
    const int32_t *correct = tt_tensor_is_empty(args->correct_N) ? NULL : args->correct_N.data;
    const float *entropy = tt_tensor_is_empty(args->entropy_N) ? NULL : args->entropy_N.data;
    double *sums = args->sums.data;
    for (int64_t n = 0; n < args->loss_N.dims[0]; n++) {
        sums[0] += (double)loss[n];
        if (correct != NULL) sums[1] += (double)correct[n];
        if (entropy != NULL) sums[2] += (double)entropy[n];
    }
    return TT_OK;
}

#else

/* Values of the logits read so far: the largest before it is capped, the sum of exp(logit - largest), the sum of
 * (logit - largest) times that, the plain sum. */
struct TT_PASS(tally) {
    float largest;
    double exp_sum, weighted, sum;
};
#define tally TT_PASS(tally)

/* A logit as it is, or capped. */
TT_INLINE vf TT_PASS(capped)(vf x, const float cap)
{
    if (cap > 0) x = cap * vtanh(x / cap);
    return x;
}

TT_INLINE float TT_PASS(capped_one)(float x, const float cap)
{
    if (cap > 0) x = TT_PASS(capped)(vsplat(x), cap)[0];
    return x;
}

/* A piece fits the first-level cache, so that its second reading does not go to memory. */
#define PIECE 2048

/* exp of this is 0 in fp32. A word whose logit is -inf then adds 0 to `weighted`, not 0 times infinity. */
#define NOTHING -128.0f

TT_INLINE void TT_PASS(count_piece)(struct tally *tally, const void *row, int64_t first, int64_t end,
                                    const bool bf16, const float cap)
{
    vf top = vsplat(tally->largest), exps[2] = {{0}, {0}}, sums[2] = {{0}, {0}}, weighted[2] = {{0}, {0}};
    int64_t v = first;
    for (; v + 2 * TT_VECTOR_LANES <= end; v += 2 * TT_VECTOR_LANES) {
        vf a = vload(row, v, bf16), b = vload(row, v + TT_VECTOR_LANES, bf16);
        top = vmax(top, vmax(a, b));
        if (cap > 0) continue;
        sums[0] += a;
        sums[1] += b;
    }
    float largest = vmax_of(top);
    double rest = 0, rest_exp = 0, rest_weighted = 0;
    for (int64_t u = v; u < end; u++) {
        float x = bf16 ? tt_bf16_to_f32(((const uint16_t *)row)[u]) : ((const float *)row)[u];
        largest = x > largest ? x : largest;
        rest += (double)TT_PASS(capped_one)(x, cap);
    }
    float reference = TT_PASS(capped_one)(largest, cap);
    for (int64_t u = first; u < v; u += 2 * TT_VECTOR_LANES) {
        vf a = TT_PASS(capped)(vload(row, u, bf16), cap),
           b = TT_PASS(capped)(vload(row, u + TT_VECTOR_LANES, bf16), cap);
        if (cap > 0) {
            sums[0] += a;
            sums[1] += b;
        }
        a -= reference;
        b -= reference;
        vf exp_a = vexp(a), exp_b = vexp(b);
        exps[0] += exp_a;
        exps[1] += exp_b;
        weighted[0] += exp_a * vmax(a, vsplat(NOTHING));
        weighted[1] += exp_b * vmax(b, vsplat(NOTHING));
    }
    for (int64_t u = v; u < end; u++) {
        float x = bf16 ? tt_bf16_to_f32(((const uint16_t *)row)[u]) : ((const float *)row)[u];
        float below = TT_PASS(capped_one)(x, cap) - reference, e = expf(below);
        rest_exp += (double)e;
        rest_weighted += (double)e * (double)fmaxf(below, NOTHING);
    }
    double down = (double)TT_PASS(capped_one)(tally->largest, cap) - (double)reference;
    tally->weighted = (tally->weighted + tally->exp_sum * down) * exp(down) +
                      (double)vsum(weighted[0] + weighted[1]) + rest_weighted;
    tally->exp_sum = tally->exp_sum * exp(down) + (double)vsum(exps[0] + exps[1]) + rest_exp;
    tally->sum += (double)vsum(sums[0] + sums[1]) + rest;
    tally->largest = largest;
}

struct TT_PASS(slope) {
    float log_sum, factor, everywhere;
};

TT_INLINE vf TT_PASS(gradient_of)(const struct TT_PASS(slope) * slope, vf x, const float cap)
{
    if (cap <= 0) return vexp(x - slope->log_sum) * slope->factor - slope->everywhere;
    vf t = vtanh(x / cap);
    return (vexp(cap * t - slope->log_sum) * slope->factor - slope->everywhere) * (1.0f - t * t);
}

TT_INLINE void TT_PASS(write_gradient)(void *row, int64_t words, const struct TT_PASS(slope) * slope,
                                       const bool bf16, const float cap)
{
    int64_t v = 0;
    for (; v + TT_VECTOR_LANES <= words; v += TT_VECTOR_LANES)
        vstore(row, v, bf16, TT_PASS(gradient_of)(slope, vload(row, v, bf16), cap));
    int64_t left = words - v;
    vstore_some(row, v, bf16, TT_PASS(gradient_of)(slope, vload_some(row, v, bf16, left), cap), left);
}

TT_INLINE void TT_PASS(entropy_typed)(const struct tt_cross_entropy_args *args, int64_t n, const bool bf16,
                                      const float cap)
{
    int64_t words = args->logits_NV.dims[1], label = ((const int32_t *)args->labels_N.data)[n];
    void *row = (char *)args->logits_NV.data + n * args->logits_NV.strides[0] * (bf16 ? 2 : 4);
    float at_label = bf16 ? tt_bf16_to_f32(((const uint16_t *)row)[label]) : ((const float *)row)[label];
    /* The words before the label come first: if one of them is as large, it is the arg max. */
    struct tally tally = {.largest = -3.4028235e38f};
    for (int64_t v = 0; v < label; v += PIECE)
        TT_PASS(count_piece)(&tally, row, v, v + PIECE < label ? v + PIECE : label, bf16, cap);
    bool first_of_largest = label == 0 || at_label > tally.largest;
    for (int64_t v = label; v < words; v += PIECE)
        TT_PASS(count_piece)(&tally, row, v, v + PIECE < words ? v + PIECE : words, bf16, cap);
    bool largest_of_all = at_label >= tally.largest;
    double t = cap > 0 ? tanh((double)at_label / (double)cap) : 0;
    at_label = TT_PASS(capped_one)(at_label, cap);
    double log_sum = (double)TT_PASS(capped_one)(tally.largest, cap) + log(tally.exp_sum),
           smoothing = (double)args->label_smoothing;
    double loss = log_sum - (1 - smoothing) * (double)at_label;
    if (smoothing > 0) loss -= smoothing * tally.sum / (double)words;
    ((float *)args->loss_N.data)[n] = (float)loss;
    if (!tt_tensor_is_empty(args->correct_N))
        ((int32_t *)args->correct_N.data)[n] = first_of_largest && largest_of_all;
    if (!tt_tensor_is_empty(args->entropy_N))
        ((float *)args->entropy_N.data)[n] = (float)(log(tally.exp_sum) - tally.weighted / tally.exp_sum);
    if (!tt_tensor_is_empty(args->mean_N))
        ((float *)args->mean_N.data)[n] = (float)(tally.sum / (double)words);
    if (!args->gradient) return;
    float row_scale = tt_tensor_is_empty(args->grad_scale_N) ? args->grad_scale
                                                             : ((const float *)args->grad_scale_N.data)[n];
    double scale = (double)row_scale;
    struct TT_PASS(slope) slope = {(float)log_sum, row_scale, (float)(smoothing * scale / (double)words)};
    TT_PASS(write_gradient)(row, words, &slope, bf16, cap);
    double probability = exp((double)at_label - log_sum);
    float exact = (float)((probability - (1 - smoothing) - smoothing / (double)words) * scale * (1 - t * t));
    if (bf16)
        ((uint16_t *)row)[label] = tt_f32_to_bf16(exact);
    else
        ((float *)row)[label] = exact;
}

static void TT_PASS(entropy_row)(const struct tt_cross_entropy_args *args, int64_t n)
{
    bool bf16 = args->logits_NV.dtype == TT_BF16;
    if (args->soft_cap > 0)
        TT_PASS(entropy_typed)(args, n, bf16, args->soft_cap);
    else if (bf16)
        TT_PASS(entropy_typed)(args, n, true, 0);
    else
        TT_PASS(entropy_typed)(args, n, false, 0);
}

#endif
