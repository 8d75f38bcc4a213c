/* Packing and finishing with AVX-512: blocks of 16 x 16 words of 32 bits. A word is a float or a pair of bf16
 * that follow each other along k. */
#ifndef TT_BACKEND_CPU_GEMM_WORDS_H
#define TT_BACKEND_CPU_GEMM_WORDS_H

#include <immintrin.h>
#include <string.h>

#include "backend/cpu/gemm/kernel.h"
#include "backend/cpu/simd.h"

enum { TT_WORDS = 16 };

/* A tile as sixteen registers of sixteen 32-bit words: pairs of k. */
typedef __m512i tt_words[TT_WORDS];

/* Loads rows across .. across + 16 that run along k; each lane is a pair of k. `k` <= 32; the rest is zero. */
TT_SIMD_BODY void tt_words_along(tt_words tile, const uint16_t *from, int64_t stride, int64_t rows, int64_t k)
{
    __mmask32 mask = k >= 2 * TT_WORDS ? 0xffffffffu : (1u << k) - 1u;
    for (int i = 0; i < TT_WORDS; i++) {
        tile[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * stride) : _mm512_setzero_si512();
    }
}

/* Loads sixteen pairs of rows that run across, interleaved: register p holds k = 2p and 2p + 1 of sixteen
 * elements. */
TT_SIMD_BODY void tt_words_across(tt_words tile, const uint16_t *from, int64_t stride, int64_t valid,
                                  int64_t k)
{
    __mmask16 mask = valid >= TT_WORDS ? 0xffffu : (__mmask16)((1u << valid) - 1u);
    for (int p = 0; p < TT_WORDS; p++) {
        __m256i even =
            2 * p < k ? _mm256_maskz_loadu_epi16(mask, from + 2 * p * stride) : _mm256_setzero_si256();
        __m256i odd = 2 * p + 1 < k ? _mm256_maskz_loadu_epi16(mask, from + (2 * p + 1) * stride)
                                    : _mm256_setzero_si256();
        tile[p] =
            _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
    }
}

/* Transposes 16 x 16 words: pairs of rows, then pairs of pairs within 128 bits, then two rounds over the 128-bit
 * quarters. */
TT_SIMD_BODY void tt_words_transpose(tt_words r)
{
    tt_words t;
    for (int i = 0; i < TT_WORDS; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < TT_WORDS; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        __m512i low = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88),
                high = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        __m512i low2 = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        __m512i high2 = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
        t[i] = _mm512_shuffle_i32x4(low, low2, 0x88);
        t[i + 8] = _mm512_shuffle_i32x4(low, low2, 0xdd);
        t[i + 4] = _mm512_shuffle_i32x4(high, high2, 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(high, high2, 0xdd);
    }
    memcpy(r, t, sizeof t);
}

/* The same as tt_words_along for floats: each lane is one k, `k` <= 16. */
TT_SIMD_BODY void tt_words_along_f32(tt_words tile, const float *from, int64_t stride, int64_t rows,
                                     int64_t k)
{
    __mmask16 mask = k >= TT_WORDS ? 0xffffu : (__mmask16)((1u << k) - 1u);
    for (int i = 0; i < TT_WORDS; i++) {
        tile[i] = i < rows ? _mm512_maskz_loadu_epi32(mask, from + i * stride) : _mm512_setzero_si512();
    }
}

/* The first element of a panel, and the number of elements that the source has for it. */
struct tt_words_source {
    const void *from;
    bool bf16, k_contiguous;
    int64_t stride, valid;
};

TT_SIMD_BODY struct tt_words_source tt_words_source_at(const struct tt_gemm_source *source, int width,
                                                       int64_t first, int64_t k_first)
{
    int64_t offset =
        source->k_contiguous ? first * source->stride + k_first : k_first * source->stride + first;
    int64_t valid = source->across - first < width ? source->across - first : width;
    return (struct tt_words_source){.from = (const char *)source->data +
                                            offset * (int64_t)tt_dtype_bytes(source->dtype),
                                    .bf16 = source->dtype == TT_BF16,
                                    .k_contiguous = source->k_contiguous,
                                    .stride = source->stride,
                                    .valid = valid < 0 ? 0 : valid};
}

/* Loads sixteen elements across of one k as floats; the source has `left` of them. */
TT_SIMD_BODY __m512i tt_words_row(const struct tt_words_source *source, int64_t k, int64_t across)
{
    int64_t left = source->valid - across < 0 ? 0 : source->valid - across;
    __mmask16 mask = left >= TT_WORDS ? 0xffffu : (__mmask16)((1u << left) - 1u);
    int64_t at = k * source->stride + across;
    if (!source->bf16) return _mm512_maskz_loadu_epi32(mask, (const float *)source->from + at);
    return _mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)source->from + at)), 16);
}

/* Asks for the memory that is packed next, of `rows` stored rows from `row` on: rows along k continue in the next
 * panel, those across it TT_GEMM_PACK_K rows further. Packing waits for memory otherwise: a row gives few lines. */
TT_SIMD_BODY void tt_words_prefetch(const struct tt_words_source *source, const int width, int64_t k,
                                    int64_t rows)
{
    int64_t element = source->bf16 ? 2 : 4, row_bytes = source->stride * element;
    uintptr_t from = (uintptr_t)source->from;
    if (source->k_contiguous) {
        from += (uintptr_t)(width * row_bytes + k * element);
        for (int i = 0; i < width; i++, from += (uintptr_t)row_bytes)
            __builtin_prefetch((const void *)from, 0, 2);
        return;
    }
    from += (uintptr_t)((k + TT_GEMM_PACK_K) * row_bytes);
    for (int64_t i = 0; i < rows; i++, from += (uintptr_t)row_bytes)
        for (int64_t at = 0; at < width * element; at += 64)
            __builtin_prefetch((const void *)(from + (uintptr_t)at), 0, 2);
}

/* Packs panels of floats, to[k][width]. Stores are sixteen wide; what exceeds the panel is overwritten by the
 * next k, or at the end goes to the slack. */
TT_SIMD_BODY void tt_words_pack_floats(float *to, const struct tt_words_source *source, const int width,
                                       int64_t k)
{
    const int64_t step = source->k_contiguous ? (source->bf16 ? 2 * TT_WORDS : TT_WORDS) : 1;
    for (int64_t p = 0; p < k; p += step) {
        int64_t some = k - p < step ? k - p : step;
        tt_words_prefetch(source, width, p, some);
        for (int first = 0; first < width; first += TT_WORDS) {
            float *at = to + p * width + first;
            int64_t rows = source->valid - first;
            if (!source->k_contiguous) {
                _mm512_storeu_si512(at, tt_words_row(source, p, first));
                continue;
            }
            tt_words block;
            if (!source->bf16) {
                tt_words_along_f32(block, (const float *)source->from + first * source->stride + p,
                                   source->stride, rows, some);
                tt_words_transpose(block);
                for (int i = 0; i < some; i++) _mm512_storeu_si512(at + i * width, block[i]);
                continue;
            }
            tt_words_along(block, (const uint16_t *)source->from + first * source->stride + p, source->stride,
                           rows, some);
            tt_words_transpose(block);
            for (int i = 0; i < some; i += 2) {
                _mm512_storeu_si512(at + i * width, _mm512_slli_epi32(block[i / 2], 16));
                if (i + 1 < some)
                    _mm512_storeu_si512(at + (i + 1) * width,
                                        _mm512_and_si512(block[i / 2], _mm512_set1_epi32((int)0xffff0000u)));
            }
        }
    }
}

/* Packs panels of pairs of bf16, to[k / 2][width]; an odd k is padded with a zero. */
TT_SIMD_BODY void tt_words_pack_pairs(float *to, const struct tt_words_source *source, const int width,
                                      int64_t k)
{
    const uint16_t *from = source->from;
    for (int64_t p = 0; p < k; p += 2 * TT_WORDS) {
        int64_t some = k - p < 2 * TT_WORDS ? k - p : 2 * TT_WORDS;
        tt_words_prefetch(source, width, p, some);
        for (int first = 0; first < width; first += TT_WORDS) {
            float *at = to + p / 2 * width + first;
            int64_t rows = source->valid - first < 0 ? 0 : source->valid - first;
            tt_words block;
            if (source->k_contiguous) {
                tt_words_along(block, from + first * source->stride + p, source->stride, rows, some);
                tt_words_transpose(block);
            } else {
                tt_words_across(block, from + p * source->stride + first, source->stride, rows, some);
            }
            for (int i = 0; 2 * i < some; i++) _mm512_storeu_si512(at + i * width, block[i]);
        }
    }
}

/* The same as tt_f32_to_bf16: to nearest even, NaN stays NaN. */
TT_SIMD_BODY __m256i tt_words_round(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x00400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

TT_SIMD_BODY void tt_words_finish_row(void *c, const void *addend, const bool bf16, const float *sum,
                                      int64_t columns, float alpha, const bool adds, float beta)
{
    for (int64_t j = 0; j < columns; j += TT_WORDS) {
        __mmask16 mask = columns - j >= TT_WORDS ? 0xffffu : (__mmask16)((1u << (columns - j)) - 1u);
        __m512 result = _mm512_mul_ps(_mm512_set1_ps(alpha), _mm512_maskz_loadu_ps(mask, sum + j));
        if (adds) {
            __m512 before =
                bf16
                    ? _mm512_castsi512_ps(_mm512_slli_epi32(
                          _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)addend + j)),
                          16))
                    : _mm512_maskz_loadu_ps(mask, (const float *)addend + j);
            result = _mm512_fmadd_ps(_mm512_set1_ps(beta), before, result);
        }
        if (bf16) {
            _mm256_mask_storeu_epi16((uint16_t *)c + j, mask, tt_words_round(result));
        } else {
            _mm512_mask_storeu_ps((float *)c + j, mask, result);
        }
    }
}

TT_SIMD_BODY void tt_words_finish_as(const struct tt_gemm_target *c, int64_t at, const bool bf16,
                                     const float *sum, int64_t sum_stride, int64_t rows, int64_t columns,
                                     float alpha, const bool adds, float beta)
{
    int64_t element = bf16 ? 2 : 4;
    const char *addend = c->addend != NULL ? c->addend : c->data;
    for (int64_t i = 0; i < rows; i++) {
        int64_t offset = (at + i * c->stride) * element;
        tt_words_finish_row((char *)c->data + offset, addend + offset, bf16, sum + i * sum_stride, columns,
                            alpha, adds, beta);
    }
}

TT_SIMD_BODY void tt_words_finish(const struct tt_gemm_target *c, int64_t row, int64_t column,
                                  const float *sum, int64_t sum_stride, int64_t rows, int64_t columns,
                                  float alpha, float beta)
{
    int64_t at = row * c->stride + column;
    if (c->dtype == TT_BF16 && beta != 0.0f) {
        tt_words_finish_as(c, at, true, sum, sum_stride, rows, columns, alpha, true, beta);
    } else if (c->dtype == TT_BF16) {
        tt_words_finish_as(c, at, true, sum, sum_stride, rows, columns, alpha, false, beta);
    } else if (beta != 0.0f) {
        tt_words_finish_as(c, at, false, sum, sum_stride, rows, columns, alpha, true, beta);
    } else {
        tt_words_finish_as(c, at, false, sum, sum_stride, rows, columns, alpha, false, beta);
    }
}

#endif
