/* bf16 has every code exactly: 4 bits of exponent and 3 of mantissa are the same bits, moved, with the difference of
 * the biases added. The eight sizes below 2^-6, which are subnormal in E4M3 alone, and NaN come from a table. */
#ifndef TT_VECTOR_LANES

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off") /* each operation is rounded on its own */
#else
#pragma STDC FP_CONTRACT OFF
#endif

#include "backend/cpu/e4m3.h"

#include <math.h>

#include "tensor/dtype.h"

enum {
    WORD_NAN = 0x7fc0,
    WORD_SHIFT = 4,       /* 7 bits of mantissa instead of 3 */
    WORD_BIAS = 120 << 7, /* 127 - 7 */
    SIZE_BITS = 0x7f,
    SIZE_NORMAL = 8, /* the code of 2^-6, the least normal number */
};

/* bf16 of each code. m * 2^-9 for m below 8 is 2^e * (1 + the bits of m behind its first one). */
#define SMALL(m)                                                                                             \
    ((m) == 0 ? 0 : (m) < 2 ? 118 << 7 : (m) < 4 ? (119 << 7) + ((m)-2) * 64 : (120 << 7) + ((m)-4) * 32)
#define SIZE(c) ((c) < SIZE_NORMAL ? SMALL(c) : (c) == SIZE_BITS ? WORD_NAN : ((c) << WORD_SHIFT) + WORD_BIAS)
#define WORD(c) (uint16_t)(SIZE((c)&SIZE_BITS) | ((c)&0x80) << 8)
#define WORDS_4(c) WORD(c), WORD((c) + 1), WORD((c) + 2), WORD((c) + 3)
#define WORDS_16(c) WORDS_4(c), WORDS_4((c) + 4), WORDS_4((c) + 8), WORDS_4((c) + 12)
#define WORDS_64(c) WORDS_16(c), WORDS_16((c) + 16), WORDS_16((c) + 32), WORDS_16((c) + 48)
static const uint16_t words[256] = {WORDS_64(0), WORDS_64(64), WORDS_64(128), WORDS_64(192)};

#define TT_VECTOR_SOURCE "backend/cpu/e4m3.c"
#include "backend/cpu/vector_math_passes.h"

tt_cpu_e4m3_decode *tt_cpu_e4m3_decode_of(const struct tt_stream *stream)
{
    return TT_BEST(stream, decode_e4m3);
}

tt_cpu_e4m3_widen *tt_cpu_e4m3_widen_of(const struct tt_stream *stream)
{
    return TT_BEST(stream, widen_e4m3);
}

#else

#define words_of TT_PASS(words_of)
#define store_products_bf16 TT_PASS(store_products_bf16)
#define store_products_f32 TT_PASS(store_products_f32)
#define decode_rest TT_PASS(decode_rest)

#if TT_VECTOR_LANES == 16

/* 32 codes in bf16. */
TT_INLINE __m512i words_of(const uint8_t *codes)
{
    const __m512i table = _mm512_mask_set1_epi16(_mm512_loadu_si512(words), UINT32_C(1) << 31, WORD_NAN);
    const __m512i size_bits = _mm512_set1_epi16(SIZE_BITS), sign_bit = _mm512_set1_epi16(INT16_MIN);
    __m512i code = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)codes));
    __m512i size = _mm512_and_si512(code, size_bits);
    __m512i word = _mm512_add_epi16(_mm512_slli_epi16(size, WORD_SHIFT), _mm512_set1_epi16(WORD_BIAS));
    /* NaN, whose lowest 5 bits are 31, is 0 here */
    __m512i next = _mm512_and_si512(_mm512_add_epi16(code, _mm512_set1_epi16(1)), size_bits);
    __mmask32 by_table = _mm512_cmplt_epu16_mask(next, _mm512_set1_epi16(SIZE_NORMAL + 1));
    word = _mm512_mask_permutexvar_epi16(word, by_table, size, table);
    return _mm512_or_si512(word, _mm512_and_si512(code, sign_bit));
}

TT_INLINE __m512i TT_PASS(round_upper)(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x), upper = _mm512_srli_epi32(bits, 16);
    __m512i last = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    bits = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), last);
    return _mm512_srli_epi32(bits, 16);
}

/* The scale is no NaN, so a product is one only as 0x7fc0 << 16, with either sign, which is rounded to itself: where
 * the code is NaN, and for 0 times infinity. */
TT_INLINE void store_products_bf16(uint16_t *y, const uint8_t *codes, float scale)
{
    const __m512 factor = _mm512_set1_ps(scale);
    const __m512i zero = _mm512_setzero_si512();
    __m512i word = words_of(codes);
    __m512 first = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, word)), factor);
    __m512 second = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, word)), factor);
    _mm512_storeu_si512(y, _mm512_packus_epi32(TT_PASS(round_upper)(first), TT_PASS(round_upper)(second)));
}

TT_INLINE void store_products_f32(float *y, const uint8_t *codes, float scale)
{
    __m512i word = words_of(codes);
    vf first = vbf16_widen((vh)_mm512_castsi512_si256(word));
    vf second = vbf16_widen((vh)_mm512_extracti64x4_epi64(word, 1));
    vstore(y, 0, false, first * scale);
    vstore(y, TT_VECTOR_LANES, false, second * scale);
}

#elif TT_VECTOR_LANES == 8

/* 16 codes in bf16. */
TT_INLINE __m256i words_of(const uint8_t *codes)
{
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)words));
    const __m256i size_bits = _mm256_set1_epi16(SIZE_BITS), sign_bit = _mm256_set1_epi16(INT16_MIN);
    __m256i code = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)codes));
    __m256i size = _mm256_and_si256(code, size_bits);
    __m256i word = _mm256_add_epi16(_mm256_slli_epi16(size, WORD_SHIFT), _mm256_set1_epi16(WORD_BIAS));
    /* the two bytes of word number `size` of the table */
    __m256i bytes =
        _mm256_add_epi16(_mm256_mullo_epi16(size, _mm256_set1_epi16(0x0202)), _mm256_set1_epi16(0x0100));
    __m256i small = _mm256_cmpgt_epi16(_mm256_set1_epi16(SIZE_NORMAL), size);
    word = _mm256_blendv_epi8(word, _mm256_shuffle_epi8(table, bytes), small);
    __m256i is_nan = _mm256_cmpeq_epi16(size, size_bits);
    const __m256i to_nan = _mm256_set1_epi16(WORD_NAN - (SIZE_BITS << WORD_SHIFT) - WORD_BIAS);
    word = _mm256_add_epi16(word, _mm256_and_si256(is_nan, to_nan));
    return _mm256_or_si256(word, _mm256_and_si256(code, sign_bit));
}

TT_INLINE __m256i TT_PASS(round_upper)(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x), upper = _mm256_srli_epi32(bits, 16);
    __m256i last = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    bits = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), last);
    return _mm256_srli_epi32(bits, 16);
}

TT_INLINE void store_products_bf16(uint16_t *y, const uint8_t *codes, float scale)
{
    const __m256 factor = _mm256_set1_ps(scale);
    const __m256i zero = _mm256_setzero_si256();
    __m256i word = words_of(codes);
    __m256 first = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, word)), factor);
    __m256 second = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, word)), factor);
    _mm256_storeu_si256((__m256i *)(void *)y,
                        _mm256_packus_epi32(TT_PASS(round_upper)(first), TT_PASS(round_upper)(second)));
}

TT_INLINE void store_products_f32(float *y, const uint8_t *codes, float scale)
{
    __m256i word = words_of(codes);
    vf first = vbf16_widen((vh)_mm256_castsi256_si128(word));
    vf second = vbf16_widen((vh)_mm256_extracti128_si256(word, 1));
    vstore(y, 0, false, first * scale);
    vstore(y, TT_VECTOR_LANES, false, second * scale);
}

#endif

/* The codes behind the vectors. Inlined, because calling code for plain x86-64 here makes it wait for the upper halves
 * of registers. */
TT_INLINE void decode_rest(const uint8_t *codes, int64_t count, float scale, void *y, int64_t at, bool bf16)
{
    if (bf16)
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)y)[at + i] = tt_f32_to_bf16(tt_bf16_to_f32(words[codes[i]]) * scale);
    else
        for (int64_t i = 0; i < count; i++) ((float *)y)[at + i] = tt_bf16_to_f32(words[codes[i]]) * scale;
}

static void TT_PASS(decode_e4m3)(const uint8_t *codes, int64_t count, float scale, void *y, int64_t at,
                                 bool bf16)
{
    int64_t i = 0;
#if TT_VECTOR_LANES > 4
    const int64_t step = 2 * TT_VECTOR_LANES;
    if (bf16 && !isnan(scale))
        for (; i + step <= count; i += step) store_products_bf16((uint16_t *)y + at + i, codes + i, scale);
    if (!bf16)
        for (; i + step <= count; i += step) store_products_f32((float *)y + at + i, codes + i, scale);
#endif
    decode_rest(codes + i, count - i, scale, y, at + i, bf16);
}

static void TT_PASS(widen_e4m3)(const uint8_t *codes, int64_t count, uint16_t *y)
{
    int64_t i = 0;
#if TT_VECTOR_LANES == 16
    for (; i + 32 <= count; i += 32) _mm512_storeu_si512(y + i, words_of(codes + i));
#elif TT_VECTOR_LANES == 8
    for (; i + 16 <= count; i += 16) _mm256_storeu_si256((__m256i *)(void *)(y + i), words_of(codes + i));
#endif
    for (; i < count; i++) y[i] = words[codes[i]];
}

#undef words_of
#undef store_products_bf16
#undef store_products_f32
#undef decode_rest

#endif
