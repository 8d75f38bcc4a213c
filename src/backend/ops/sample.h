/* Choice of the next token of each row from its logits: a mask of the tokens that may come, repetition penalty,
 * temperature, top_k, top_p, min_p, in this order, then a draw; or the largest logit. transformers applies the same
 * rules in the same order.
 *
 * Every device chooses the same token, because what decides is integers. A token's *distance* from the largest
 * logit is log2(p_max / p) in steps of 2^-18, rounded; its *weight* is 2^40 / 2^distance, from a polynomial in
 * integers (below), within 7e-9 of the exact power of two and 0 from 41 on. Sums of weights are exact, so their
 * order does not matter. The order of tokens is ascending distance; of equal distances the lowest id comes first.
 * The draw takes the token into whose share `uniform` falls in that order. So a share differs from softmax's by
 * 3e-6 of itself at most, and tokens that are less than 2^-40 times as likely as the likeliest are never drawn.
 *
 * Where no draw is wanted, or the largest logit is infinite, the token is the lowest id with the largest logit. NaN
 * counts as less than every number; a row of NaN gives 0. */
#ifndef TT_BACKEND_OPS_SAMPLE_H
#define TT_BACKEND_OPS_SAMPLE_H

#include "backend/device.h"
#include "tensor/tensor.h"

enum {
    TT_SAMPLE_STEP_BITS = 18,   /* steps of a distance of 1 */
    TT_SAMPLE_WEIGHT_BITS = 40, /* the largest weight is 1 << 40 */
    TT_SAMPLE_DISTANCE_MAX = TT_SAMPLE_WEIGHT_BITS
                             << TT_SAMPLE_STEP_BITS, /* the last with a weight above 0 */
};

/* The rules of one row, made by tt_sample_rule_make. Devices read it as bytes of rules_N. */
struct tt_sample_rule {
    double uniform, top_p, penalty; /* penalty 1: none */
    float steps_per_logit;          /* 2 * 2^18 log2(e) / temperature: half steps */
    int32_t top_k;                  /* 0: all */
    int32_t distance_max;           /* of min_p */
    int32_t seen_row;               /* row of seen_SW; -1: none */
    int32_t draws;                  /* 0: the largest logit */
    int32_t mask;                   /* row of masks_SW, plus 1; 0: none */
};

/* The settings of a row: 0 turns each rule off. */
struct tt_sample_settings {
    bool draws;
    double temperature; /* > 0; 0: 1 */
    int64_t top_k;
    double top_p, min_p, penalty;
    double uniform; /* in [0, 1) */
    int32_t seen_row;
    int32_t mask; /* row of masks_SW, plus 1 */
};
struct tt_sample_rule tt_sample_rule_make(const struct tt_sample_settings *settings);

struct tt_sample_args {
    tt_tensor logits_NV; /* f32, contiguous rows; changed in rows with a penalty or a mask */
    tt_tensor rules_N;   /* u8 [N * sizeof(struct tt_sample_rule)] */
    /* i32 [S, tt_sample_seen_words(V)], a bit for each id that a sequence has seen, id 0 the lowest of word 0; empty
     * where no row has a penalty. The bit of the chosen id is set. No two rows have the same seen_row. */
    tt_tensor seen_SW;
    /* i32, the same shape, which any number of rows may share: the ids whose bit is 0 get the logit -infinity.
     * Empty where no row has a mask. */
    tt_tensor masks_SW;
    tt_tensor ids_N; /* i32, the result */
};
TT_MUST_USE tt_status tt_sample(struct tt_stream *stream, const struct tt_sample_args *args);

static inline int64_t tt_sample_seen_words(int64_t vocab)
{
    return (vocab + 31) / 32;
}

/* The arithmetic, for all devices. */
#ifdef __CUDACC__
#define TT_SAMPLE_INLINE static __host__ __device__ __forceinline__
#else
#define TT_SAMPLE_INLINE static inline
#endif

/* -1: no weight. One subtraction and one product, each rounded: nothing here may be contracted. */
TT_SAMPLE_INLINE int32_t tt_sample_distance(float logit, float top, float steps_per_logit)
{
    float half_steps = (top - logit) * steps_per_logit;
    if (!(half_steps < 2.0f * (float)TT_SAMPLE_DISTANCE_MAX)) return -1;
    return ((int32_t)half_steps + 1) >> 1;
}

/* 2^f by Horner's rule in 31 bits of fraction, f = whole - distance in [0, 1); the coefficients interpolate 2^f at
 * Chebyshev's nodes. Monotonic, because every step is. */
TT_SAMPLE_INLINE uint64_t tt_sample_weight(int32_t distance)
{
    uint32_t whole = ((uint32_t)distance + (1u << TT_SAMPLE_STEP_BITS) - 1) >> TT_SAMPLE_STEP_BITS;
    uint64_t f = ((whole << TT_SAMPLE_STEP_BITS) - (uint32_t)distance) << (32 - TT_SAMPLE_STEP_BITS);
    uint64_t power = 447061;
    power = 2725622 + (f * power >> 32);
    power = 20727931 + (f * power >> 32);
    power = 119176803 + (f * power >> 32);
    power = 515883993 + (f * power >> 32);
    power = 1488522215 + (f * power >> 32);
    power = 2147483648u + (f * power >> 32);
    return power << (TT_SAMPLE_WEIGHT_BITS - 31) >> whole;
}

/* The least sum of weights that is at least top_p of `sum`. */
TT_SAMPLE_INLINE uint64_t tt_sample_least(double top_p, uint64_t sum)
{
    double least = top_p * (double)sum;
    uint64_t whole = (uint64_t)least;
    whole += (double)whole < least;
    return whole > sum ? sum : whole < 1 ? 1 : whole;
}

/* The place of the draw in [0, sum). */
TT_SAMPLE_INLINE uint64_t tt_sample_place(double uniform, uint64_t sum)
{
    uint64_t place = (uint64_t)(uniform * (double)sum);
    return place < sum ? place : sum - 1;
}

/* The logit of an id that was seen. */
TT_SAMPLE_INLINE float tt_sample_penalized(float logit, double penalty)
{
    return (float)(logit < 0 ? (double)logit * penalty : (double)logit / penalty);
}

#endif
