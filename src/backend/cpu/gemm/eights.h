/* Packing with AVX2: panels of floats, to[k][width], from rows that run along k. 128 bits of a row, eight bf16
 * or four floats, are loaded into the two halves of a register, from rows i and i + 4, so that later no element
 * has to cross the halves. */
#ifndef TT_BACKEND_CPU_GEMM_EIGHTS_H
#define TT_BACKEND_CPU_GEMM_EIGHTS_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/simd.h"

/* Gathers four 32-bit words of `rows` (5 to 8) rows: word w of row i is lane i of block[w]. The other lanes are
 * undefined. */
TT_SIMD_BODY void tt_eights_words(__m256i block[4], const char *from, int64_t row_bytes, const int rows)
{
    __m256i y[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        y[i] = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(from + i * row_bytes)));
        if (i + 4 < rows)
            y[i] = _mm256_inserti128_si256(y[i],
                                           _mm_loadu_si128((const __m128i *)(from + (i + 4) * row_bytes)), 1);
    }
    __m256i low = _mm256_unpacklo_epi32(y[0], y[1]), high = _mm256_unpackhi_epi32(y[0], y[1]);
    __m256i low2 = _mm256_unpacklo_epi32(y[2], y[3]), high2 = _mm256_unpackhi_epi32(y[2], y[3]);
    block[0] = _mm256_unpacklo_epi64(low, low2);
    block[1] = _mm256_unpackhi_epi64(low, low2);
    block[2] = _mm256_unpacklo_epi64(high, high2);
    block[3] = _mm256_unpackhi_epi64(high, high2);
}

/* Packs `rows` <= 8 rows across the panel, 128 bits of each. Stores are eight wide; what exceeds the panel is
 * overwritten by the next k, or at the end goes to the slack. */
TT_SIMD_BODY void tt_eights_group(float *to, const char *from, const bool bf16, int64_t row_bytes,
                                  const int rows, const int width)
{
    __m256i block[4];
    tt_eights_words(block, from, row_bytes, rows);
#pragma GCC unroll 4
    for (int w = 0; w < 4; w++) {
        if (!bf16) {
            _mm256_storeu_si256((__m256i *)(to + w * width), block[w]);
            continue;
        }
        _mm256_storeu_si256((__m256i *)(to + 2 * w * width), _mm256_slli_epi32(block[w], 16));
        _mm256_storeu_si256((__m256i *)(to + (2 * w + 1) * width),
                            _mm256_and_si256(block[w], _mm256_set1_epi32((int)0xffff0000u)));
    }
}

/* Packs a panel of `width` whole rows that run along k. Returns the number of k done: all but the last few. */
TT_SIMD_BODY int64_t tt_eights_turn_as(float *to, const char *from, const bool bf16, int64_t row_bytes,
                                       const int width, int64_t k)
{
    const int64_t step = bf16 ? 8 : 4;
    int64_t p = 0;
    for (; p + step <= k; p += step, from += 16, to += step * width) {
        /* Prefetches the next panel's rows: they are short and not contiguous, so hardware does not prefetch them. */
        if (p % (4 * step) == 0)
            for (int i = 0; i < width; i++) __builtin_prefetch(from + (width + i) * row_bytes);
#pragma GCC unroll 4
        for (int first = 0; first < width; first += 8)
            tt_eights_group(to + first, from + first * row_bytes, bf16, row_bytes,
                            width - first < 8 ? width - first : 8, width);
    }
    return p;
}

TT_SIMD_BODY int64_t tt_eights_turn(float *to, const char *from, bool bf16, int64_t stride, const int width,
                                    int64_t k)
{
    return bf16 ? tt_eights_turn_as(to, from, true, stride * 2, width, k)
                : tt_eights_turn_as(to, from, false, stride * 4, width, k);
}

#endif
