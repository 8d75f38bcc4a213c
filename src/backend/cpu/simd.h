/* Vectors of eight floats in the compiler's own vector types: one source, compiled for each instruction set.
 *
 * The program is built for every x86-64 (or other) machine and chooses at run time. A kernel is written once as an
 * always-inline body over ranges (no OpenMP inside it), with one wrapper per instruction set:
 *
 *     TT_SIMD_BODY void row_body(float *y, const float *x, int64_t n) { ... tt_v8 ... }
 *     TT_SIMD_AVX2 static void row_avx2(float *y, const float *x, int64_t n) { row_body(y, x, n); }
 *     static void row_portable(float *y, const float *x, int64_t n) { row_body(y, x, n); }
 *     ... (tt_cpu_isa(stream) >= TT_CPU_AVX2 ? row_avx2 : row_portable)(y, x, n);
 *
 * The last n % 8 elements use tt_v8_load_some / tt_v8_store_some. */
#ifndef TT_BACKEND_CPU_SIMD_H
#define TT_BACKEND_CPU_SIMD_H

#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* Wide vectors are passed only between always-inline functions, so their calling convention does not matter. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define TT_SIMD_BODY static inline __attribute__((always_inline, unused))
#if defined(__x86_64__)
#define TT_SIMD_AVX2 __attribute__((target("avx2,fma,f16c")))
#else
#define TT_SIMD_AVX2
#endif

enum { TT_LANES = 8 };

typedef float tt_v8 __attribute__((vector_size(32)));
typedef int32_t tt_v8i __attribute__((vector_size(32)));
typedef uint32_t tt_v8u __attribute__((vector_size(32)));
typedef uint16_t tt_v8h __attribute__((vector_size(16)));

TT_SIMD_BODY tt_v8 tt_v8_set(float value)
{
    return (tt_v8){value, value, value, value, value, value, value, value};
}

/* Pointers need no alignment in this file. */
TT_SIMD_BODY tt_v8 tt_v8_load(const float *from)
{
    tt_v8 x;
    memcpy(&x, from, sizeof x);
    return x;
}

TT_SIMD_BODY void tt_v8_store(float *to, tt_v8 x)
{
    memcpy(to, &x, sizeof x);
}

TT_SIMD_BODY tt_v8 tt_v8_load_bf16(const uint16_t *from)
{
#if defined(__AVX2__)
    /* GCC 12 would widen by halves. */
    __m128i half = _mm_loadu_si128((const __m128i *)from);
    return (tt_v8)_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
#else
    tt_v8h half;
    memcpy(&half, from, sizeof half);
    return (tt_v8)(__builtin_convertvector(half, tt_v8u) << 16);
#endif
}

/* Rounds to nearest even; NaN stays NaN (tt_f32_to_bf16 for eight). */
TT_SIMD_BODY void tt_v8_store_bf16(uint16_t *to, tt_v8 x)
{
    tt_v8u bits = (tt_v8u)x;
    tt_v8u rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    tt_v8u is_nan = (tt_v8u)(x != x);
    bits = ((is_nan & (bits | 0x00400000u)) | (~is_nan & rounded)) >> 16;
#if defined(__AVX2__)
    __m256i upper = (__m256i)bits;
    _mm_storeu_si128((__m128i *)to,
                     _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1)));
#else
    tt_v8h half = __builtin_convertvector(bits, tt_v8h);
    memcpy(to, &half, sizeof half);
#endif
}

/* Loads the first `count` (0..8) lanes; the others are 0, and memory behind them is not accessed. */
TT_SIMD_BODY tt_v8 tt_v8_load_some(const float *from, int64_t count)
{
    tt_v8 x = tt_v8_set(0.0f);
    memcpy(&x, from, (size_t)count * sizeof *from);
    return x;
}

TT_SIMD_BODY void tt_v8_store_some(float *to, tt_v8 x, int64_t count)
{
    memcpy(to, &x, (size_t)count * sizeof *to);
}

TT_SIMD_BODY tt_v8 tt_v8_load_some_bf16(const uint16_t *from, int64_t count)
{
    uint16_t lanes[TT_LANES] = {0};
    memcpy(lanes, from, (size_t)count * sizeof *from);
    return tt_v8_load_bf16(lanes);
}

TT_SIMD_BODY void tt_v8_store_some_bf16(uint16_t *to, tt_v8 x, int64_t count)
{
    uint16_t lanes[TT_LANES];
    tt_v8_store_bf16(lanes, x);
    memcpy(to, lanes, (size_t)count * sizeof *to);
}

TT_SIMD_BODY tt_v8 tt_v8_select(tt_v8i mask, tt_v8 yes, tt_v8 no)
{
    return (tt_v8)((mask & (tt_v8i)yes) | (~mask & (tt_v8i)no));
}

/* ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)) */
TT_SIMD_BODY float tt_v8_sum(tt_v8 x)
{
    x += __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
    x += __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5);
    return x[0] + x[1];
}

TT_SIMD_BODY float tt_v8_largest(tt_v8 x)
{
    float most = x[0];
    for (int i = 1; i < TT_LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* e^x to about 2 units in the last place: x = n ln 2 + r, |r| <= ln 2 / 2, and the Taylor polynomial of degree 7
 * in r (its remainder is below 2^-27). The result is 0 where it would be subnormal; NaN stays NaN. */
TT_SIMD_BODY tt_v8 tt_v8_exp(tt_v8 x)
{
    const float round_to_integer = 12582912.0f; /* 1.5 * 2^23: adding it leaves no fraction bits */
    tt_v8i vanishes = x < tt_v8_set(-87.33f);
    tt_v8 top = tt_v8_set(89.0f), bottom = tt_v8_set(-88.0f);
    x = tt_v8_select(x > top, top, x);
    x = tt_v8_select(x < bottom, bottom, x);
    tt_v8 n = (x * 1.44269504089f + round_to_integer) - round_to_integer;
    tt_v8 r = x - n * 0.693359375f; /* exact: 9 bits of ln 2 */
    r = r - n * -2.12194440e-4f;    /* the rest of ln 2 */
    tt_v8 p = r * (1.0f / 5040.0f) + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* 2^n in two factors, since n may be 128. A NaN lane may convert to any n: NaN times anything is NaN. */
    tt_v8 finite_n = tt_v8_select(x == x, n, tt_v8_set(0.0f));
    tt_v8i whole = __builtin_convertvector(finite_n, tt_v8i);
    tt_v8i half = whole >> 1;
    tt_v8 first = (tt_v8)((half + 127) << 23), second = (tt_v8)((whole - half + 127) << 23);
    return tt_v8_select(vanishes, tt_v8_set(0.0f), p * first * second);
}

#endif
