/* Dropout, as an op of its own. */
#ifndef TT_VECTOR_LANES

#include "backend/ops/elementwise.h"

struct dropout_scalars {
    int32_t threshold;
    float factor;
};

#define TT_VECTOR_SOURCE "backend/cpu/dropout.c"
#include "backend/cpu/vector_math_passes.h"

/* Cost of an element in loads: a generator block serves eight elements. */
enum { COST = 2 };

tt_status tt_cpu_dropout(struct tt_stream *stream, const struct tt_dropout_args *args)
{
    const struct dropout_scalars scalars = {
        .threshold = (int32_t)tt_dropout_threshold(args->p),
        .factor = tt_dropout_factor(args->p),
    };
    int64_t rows = args->x_TD.dims[0];
    void (*dropout_row)(const struct tt_dropout_args *, const struct dropout_scalars *, int64_t) =
        TT_BEST(stream, dropout_row);
    int threads = tt_cpu_threads(stream, rows * args->x_TD.dims[1] * COST);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < rows; t++) dropout_row(args, &scalars, t);
    return TT_OK;
}

#else

/* The number of groups of TT_VECTOR_LANES / 2 generator blocks that are computed at once. They are independent
 * of each other, which hides the latency of the products. */
#define GROUPS 4
#define DRAWN (GROUPS * TT_VECTOR_LANES / 2 * 8)

#if TT_VECTOR_LANES > 4

/* Philox4x32-10 (base/rng.h) with one block per 64-bit lane; a word of the block is in the low half of a lane,
 * so the widening product is one instruction. The high halves contain garbage that no instruction reads. */
typedef uint64_t TT_PASS(vq) __attribute__((vector_size(4 * TT_VECTOR_LANES), may_alias));
#define vq TT_PASS(vq)

TT_INLINE vq TT_PASS(widening_product)(vq a, vq b)
{
#if TT_VECTOR_LANES == 16
    return (vq)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#else
    return (vq)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#endif
}

/* Stores the words of TT_VECTOR_LANES / 2 blocks in order (0 .. 3 of the first block, 0 .. 3 of the second, ...). */
TT_INLINE void TT_PASS(interleave)(uint32_t *words, vq c0, vq c1, vq c2, vq c3)
{
    const vq low = (vq){0} + 0xffffffffu;
    vq a = (c0 & low) | (c1 << 32), b = (c2 & low) | (c3 << 32);
#if TT_VECTOR_LANES == 16
    const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const __m512i second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_si512(words, _mm512_permutex2var_epi64((__m512i)a, first, (__m512i)b));
    _mm512_storeu_si512(words + 16, _mm512_permutex2var_epi64((__m512i)a, second, (__m512i)b));
#else
    __m256i even = _mm256_unpacklo_epi64((__m256i)a, (__m256i)b); /* blocks 0 and 2 */
    __m256i odd = _mm256_unpackhi_epi64((__m256i)a, (__m256i)b);  /* blocks 1 and 3 */
    _mm256_storeu_si256((__m256i *)words, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((__m256i *)(words + 8), _mm256_permute2x128_si256(even, odd, 0x31));
#endif
}

/* The keys of the ten rounds, broadcast to vectors once per row. */
struct TT_PASS(round_keys) {
    vq key0[10], key1[10];
};
#define round_keys TT_PASS(round_keys)

TT_INLINE void TT_PASS(make_round_keys)(struct round_keys *keys, struct tt_rng rng)
{
    uint32_t k0 = (uint32_t)rng.key, k1 = (uint32_t)(rng.key >> 32);
    for (int round = 0; round < 10; round++) {
        keys->key0[round] = (vq){0} + k0;
        keys->key1[round] = (vq){0} + k1;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

TT_INLINE void TT_PASS(draw)(const struct round_keys *keys, uint64_t row_key, uint64_t block,
                             uint32_t words[DRAWN / 2])
{
    const vq m0 = (vq){0} + 0xD2511F53u, m1 = (vq){0} + 0xCD9E8D57u;
    const uint64_t counting[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    vq c0[GROUPS], c1[GROUPS], c2[GROUPS], c3[GROUPS];
#pragma GCC unroll 4
    for (int g = 0; g < GROUPS; g++) {
        memcpy(&c0[g], counting, sizeof c0[g]);
        c0[g] += block + (uint64_t)(g * TT_VECTOR_LANES / 2);
        c1[g] = c0[g] >> 32;
        c2[g] = (vq){0} + row_key;
        c3[g] = (vq){0} + (row_key >> 32);
    }
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS; g++) {
            vq p0 = TT_PASS(widening_product)(m0, c0[g]), p1 = TT_PASS(widening_product)(m1, c2[g]);
            c0[g] = (p1 >> 32) ^ (c1[g] ^ keys->key0[round]);
            c1[g] = p1;
            c2[g] = (p0 >> 32) ^ (c3[g] ^ keys->key1[round]);
            c3[g] = p0;
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < GROUPS; g++)
        TT_PASS(interleave)(words + g * 2 * TT_VECTOR_LANES, c0[g], c1[g], c2[g], c3[g]);
}

#else

struct TT_PASS(round_keys) {
    struct tt_rng rng;
};
#define round_keys TT_PASS(round_keys)

TT_INLINE void TT_PASS(make_round_keys)(struct round_keys *keys, struct tt_rng rng)
{
    keys->rng = rng;
}

TT_INLINE void TT_PASS(draw)(const struct round_keys *keys, uint64_t row_key, uint64_t block,
                             uint32_t words[DRAWN / 2])
{
    for (int i = 0; i < DRAWN / 8; i++) tt_rng_block(keys->rng, row_key, block + (uint64_t)i, words + 4 * i);
}

#endif

/* The mask of the elements from number `first` on: the halves of words are in memory in the order of elements. */
TT_INLINE vi TT_PASS(kept)(const uint32_t *words, int64_t first, const struct dropout_scalars *scalars)
{
    vh half;
    memcpy(&half, (const uint16_t *)words + first, sizeof half);
    half &= (vh){0} + (TT_DROPOUT_STEPS - 1);
    return (vi)(__builtin_convertvector(half, vi) >= vsplat_int(scalars->threshold));
}

TT_INLINE void TT_PASS(dropout_typed)(const struct tt_dropout_args *args,
                                      const struct dropout_scalars *scalars, int64_t t, const bool x_bf16,
                                      const bool y_bf16, const bool accumulate)
{
    const void *x = args->x_TD.data;
    void *y = args->y_TD.data;
    int64_t x_at = t * args->x_TD.strides[0], y_at = t * args->y_TD.strides[0], cols = args->x_TD.dims[1];
    uint64_t row_key = (uint64_t)((const int64_t *)args->row_keys_T.data)[t];
    struct round_keys keys;
    TT_PASS(make_round_keys)(&keys, args->rng);
    uint32_t words[DRAWN / 2];
    int64_t d = 0;
    for (; d + DRAWN <= cols; d += DRAWN) {
        TT_PASS(draw)(&keys, row_key, (uint64_t)d / 8, words);
#pragma GCC unroll 8
        for (int64_t i = 0; i < DRAWN; i += TT_VECTOR_LANES) {
            vf in = vload(x, x_at + d + i, x_bf16) * scalars->factor;
            vf out = vselect(TT_PASS(kept)(words, i, scalars), in, vsplat(0));
            if (accumulate) out += vload(y, y_at + d + i, y_bf16);
            vstore(y, y_at + d + i, y_bf16, out);
        }
    }
    if (d < cols) TT_PASS(draw)(&keys, row_key, (uint64_t)d / 8, words);
    for (int64_t i = 0; d + i < cols; i += TT_VECTOR_LANES) {
        int64_t left = cols - d - i < TT_VECTOR_LANES ? cols - d - i : TT_VECTOR_LANES;
        vf in = vload_some(x, x_at + d + i, x_bf16, left) * scalars->factor;
        vf out = vselect(TT_PASS(kept)(words, i, scalars), in, vsplat(0));
        if (accumulate) out += vload_some(y, y_at + d + i, y_bf16, left);
        vstore_some(y, y_at + d + i, y_bf16, out, left);
    }
}

static void TT_PASS(dropout_row)(const struct tt_dropout_args *args, const struct dropout_scalars *scalars,
                                 int64_t t)
{
    bool x_bf16 = args->x_TD.dtype == TT_BF16, y_bf16 = args->y_TD.dtype == TT_BF16;
    if (x_bf16 && y_bf16)
        TT_PASS(dropout_typed)(args, scalars, t, true, true, args->accumulate);
    else if (!x_bf16 && !y_bf16)
        TT_PASS(dropout_typed)(args, scalars, t, false, false, args->accumulate);
    else
        TT_PASS(dropout_typed)(args, scalars, t, x_bf16, y_bf16, args->accumulate);
}

#endif
