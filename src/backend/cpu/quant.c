/* Dequantization. All weights of a block with the same code have the same value, so the sixteen products are
 * computed, and rounded, once per block. The rest is a table look-up, which AVX2 does for 32 codes at a time. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off") /* each operation is rounded on its own */
#else
#pragma STDC FP_CONTRACT OFF
#endif

#include "backend/ops/quant.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "backend/compose.h"
#include "backend/cpu/e4m3.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/simd.h"

enum { PIECE = 16384 }; /* weights of a task */

/* The sections of a segment. */
struct packed {
    const uint8_t *codes, *absmax;
    const float *nested_absmax, *map, *nested_map;
    float offset;
    bool nested;
    int64_t block;
    int block_shift, nested_shift;
    tt_cpu_e4m3_decode *decode;
};

static struct packed packed_of(const struct tt_stream *stream, const struct tt_dequantize_args *args)
{
    const struct tt_quant_layout *layout = &args->layout;
    const uint8_t *data = args->packed.data;
    struct packed packed = {
        .codes = data + layout->codes.offset,
        .absmax = data + layout->absmax.offset,
        .nested_absmax = (const float *)(const void *)(data + layout->nested_absmax.offset),
        .map = (const float *)(const void *)(data + layout->map.offset),
        .nested_map = (const float *)(const void *)(data + layout->nested_map.offset),
        .nested = layout->format.nested,
        .block = layout->format.block,
        .decode = tt_cpu_e4m3_decode_of(stream),
    };
    if (packed.block > 0) packed.block_shift = __builtin_ctzll((uint64_t)packed.block);
    if (!packed.nested) return packed;
    packed.nested_shift = __builtin_ctzll((uint64_t)layout->format.nested_block);
    memcpy(&packed.offset, data + layout->offset.offset, sizeof packed.offset);
    return packed;
}

static float absmax_at(const struct packed *packed, int64_t block)
{
    if (!packed->nested) return ((const float *)(const void *)packed->absmax)[block];
    float scaled =
        packed->nested_map[packed->absmax[block]] * packed->nested_absmax[block >> packed->nested_shift];
    return scaled + packed->offset;
}

/* The values of the sixteen codes of one block. */
struct table {
    float wide[TT_QUANT_MAP];
    uint16_t narrow[TT_QUANT_MAP];
};

TT_SIMD_BODY void make_table(const struct packed *packed, int64_t block, const bool bf16, struct table *table)
{
    float absmax = absmax_at(packed, block);
    for (int i = 0; i < TT_QUANT_MAP; i += TT_LANES) {
        tt_v8 products = tt_v8_load(packed->map + i) * absmax;
        if (bf16)
            tt_v8_store_bf16(table->narrow + i, products);
        else
            tt_v8_store(table->wide + i, products);
    }
}

TT_SIMD_BODY void put(void *y, int64_t at, const struct table *table, int code, const bool bf16)
{
    if (bf16)
        ((uint16_t *)y)[at] = table->narrow[code];
    else
        ((float *)y)[at] = table->wide[code];
}

/* Decodes `count` weights from an even index on, one by one. */
TT_SIMD_BODY void look_up_rest(void *y, int64_t at, const uint8_t *codes, int64_t count,
                               const struct table *table, const bool bf16)
{
    for (int64_t i = 0; i < count; i++)
        put(y, at + i, table, i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15, bf16);
}

#if defined(__x86_64__)
/* Decodes 32 weights: their low and high bytes come from one table of 16 bytes each. */
TT_SIMD_AVX2 static int64_t look_up_bf16_avx2(void *y, int64_t at, const uint8_t *codes, int64_t count,
                                              const struct table *table)
{
    const __m128i nibble = _mm_set1_epi8(15), low_bytes = _mm_set1_epi16(255);
    __m128i first = _mm_loadu_si128((const __m128i *)table->narrow);
    __m128i second = _mm_loadu_si128((const __m128i *)(table->narrow + 8));
    __m128i low = _mm_packus_epi16(_mm_and_si128(first, low_bytes), _mm_and_si128(second, low_bytes));
    __m128i high = _mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(second, 8));
    int64_t i = 0;
    for (; i + 32 <= count; i += 32) {
        __m128i packed = _mm_loadu_si128((const __m128i *)(codes + i / 2));
        __m128i even = _mm_and_si128(_mm_srli_epi16(packed, 4), nibble), odd = _mm_and_si128(packed, nibble);
        __m128i half[2] = {_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)};
        for (int h = 0; h < 2; h++) {
            __m128i lows = _mm_shuffle_epi8(low, half[h]), highs = _mm_shuffle_epi8(high, half[h]);
            __m128i *to = (__m128i *)((uint16_t *)y + at + i + 16 * h);
            _mm_storeu_si128(to, _mm_unpacklo_epi8(lows, highs));
            _mm_storeu_si128(to + 1, _mm_unpackhi_epi8(lows, highs));
        }
    }
    return i;
}

/* Decodes 8 weights: the upper bit of a code selects one of two tables of eight. */
TT_SIMD_AVX2 static int64_t look_up_f32_avx2(void *y, int64_t at, const uint8_t *codes, int64_t count,
                                             const struct table *table)
{
    const __m256i shifts = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
    __m256 first = _mm256_loadu_ps(table->wide), second = _mm256_loadu_ps(table->wide + 8);
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint32_t word;
        memcpy(&word, codes + i / 2, sizeof word);
        __m256i code = _mm256_srlv_epi32(_mm256_set1_epi32((int)word), shifts);
        __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28));
        __m256 value = _mm256_blendv_ps(_mm256_permutevar8x32_ps(first, code),
                                        _mm256_permutevar8x32_ps(second, code), upper);
        _mm256_storeu_ps((float *)y + at + i, value);
    }
    return i;
}

/* The result goes through a pointer: returning a vector of 32 bytes has no common ABI with and without AVX. */
TT_SIMD_AVX2 static inline void widen_int8_avx2(const int8_t *codes, tt_v8 *x)
{
    __m128i narrow = _mm_loadl_epi64((const __m128i *)(const void *)codes);
    *x = (tt_v8)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(narrow));
}
#endif

TT_SIMD_BODY int64_t look_up_fast(void *y, int64_t at, const uint8_t *codes, int64_t count,
                                  const struct table *table, const bool bf16, const bool avx2)
{
#if defined(__x86_64__)
    if (avx2)
        return bf16 ? look_up_bf16_avx2(y, at, codes, count, table)
                    : look_up_f32_avx2(y, at, codes, count, table);
#endif
    (void)y, (void)at, (void)codes, (void)count, (void)table, (void)bf16, (void)avx2;
    return 0;
}

/* Decodes weights first .. first + count - 1 to y[at ...]. */
TT_SIMD_BODY void four_body(const struct packed *packed, int64_t first, int64_t count, void *y, int64_t at,
                            const bool bf16, const bool avx2)
{
    int64_t end = first + count;
    struct table table;
    at -= first;
    for (int64_t i = first; i < end;) {
        int64_t block = i >> packed->block_shift, stop = (block + 1) << packed->block_shift;
        if (stop > end) stop = end;
        make_table(packed, block, bf16, &table);
        if (i % 2 != 0) {
            put(y, at + i, &table, packed->codes[i / 2] & 15, bf16);
            i++;
        }
        if (i < stop) i += look_up_fast(y, at + i, packed->codes + i / 2, stop - i, &table, bf16, avx2);
        if (i < stop) look_up_rest(y, at + i, packed->codes + i / 2, stop - i, &table, bf16);
        i = stop;
    }
}

TT_SIMD_BODY tt_v8 widen_int8(const int8_t *codes, const bool avx2)
{
    tt_v8 x;
#if defined(__x86_64__)
    if (avx2) {
        widen_int8_avx2(codes, &x);
        return x;
    }
#endif
    (void)avx2;
    for (int i = 0; i < TT_LANES; i++) x[i] = codes[i];
    return x;
}

/* Decodes weights of one row. */
TT_SIMD_BODY void int8_body(const struct packed *packed, int64_t first, int64_t count, void *y, int64_t at,
                            float absmax, const bool bf16, const bool avx2)
{
    const int8_t *codes = (const int8_t *)packed->codes + first;
    int64_t i = 0;
    for (; i + TT_LANES <= count; i += TT_LANES) {
        tt_v8 x = widen_int8(codes + i, avx2) * absmax * (1.0f / 127.0f);
        if (bf16)
            tt_v8_store_bf16((uint16_t *)y + at + i, x);
        else
            tt_v8_store((float *)y + at + i, x);
    }
    for (; i < count; i++) {
        float x = (float)codes[i] * absmax * (1.0f / 127.0f);
        if (bf16)
            ((uint16_t *)y)[at + i] = tt_f32_to_bf16(x);
        else
            ((float *)y)[at + i] = x;
    }
}

static void fp8_row(const struct packed *packed, int64_t first, int64_t count, void *y, int64_t at,
                    float scale, bool bf16)
{
    packed->decode(packed->codes + first, count, scale, y, at, bf16);
}

/* fp8 in squares: weights of one row, from column `col` on. */
static void fp8_squares(const struct packed *packed, int64_t row, int64_t col, int64_t count, int64_t cols,
                        int64_t row_squares, void *y, int64_t at, bool bf16)
{
    const float *scales = (const float *)(const void *)packed->absmax + row / TT_FP8_BLOCK * row_squares;
    for (int64_t here, end = col + count; col < end; col += here, at += here) {
        here = TT_FP8_BLOCK - col % TT_FP8_BLOCK;
        if (here > end - col) here = end - col;
        fp8_row(packed, row * cols + col, here, y, at, scales[col / TT_FP8_BLOCK], bf16);
    }
}

typedef void span_function(const struct packed *packed, int64_t first, int64_t count, void *y, int64_t at,
                           bool bf16);
typedef void row_function(const struct packed *packed, int64_t first, int64_t count, void *y, int64_t at,
                          float absmax, bool bf16);

TT_SIMD_AVX2 static void four_avx2(const struct packed *packed, int64_t first, int64_t count, void *y,
                                   int64_t at, bool bf16)
{
    if (bf16)
        four_body(packed, first, count, y, at, true, true);
    else
        four_body(packed, first, count, y, at, false, true);
}

static void four_portable(const struct packed *packed, int64_t first, int64_t count, void *y, int64_t at,
                          bool bf16)
{
    four_body(packed, first, count, y, at, bf16, false);
}

TT_SIMD_AVX2 static void int8_avx2(const struct packed *packed, int64_t first, int64_t count, void *y,
                                   int64_t at, float absmax, bool bf16)
{
    if (bf16)
        int8_body(packed, first, count, y, at, absmax, true, true);
    else
        int8_body(packed, first, count, y, at, absmax, false, true);
}

static void int8_portable(const struct packed *packed, int64_t first, int64_t count, void *y, int64_t at,
                          float absmax, bool bf16)
{
    int8_body(packed, first, count, y, at, absmax, bf16, false);
}

tt_status tt_cpu_dequantize(struct tt_stream *stream, const struct tt_dequantize_args *args)
{
    struct packed packed = packed_of(stream, args);
    bool avx2 = tt_cpu_isa(stream) >= TT_CPU_AVX2, bf16 = args->y_NK.dtype == TT_BF16;
    bool fp8 = args->layout.format.type == TT_QUANT_FP8, by_rows = args->layout.format.block == 0;
    int64_t squares = args->layout.row_squares;
    int64_t rows = args->y_NK.dims[0], cols = args->layout.cols, first = args->first_row * cols;
    int64_t stride = args->y_NK.strides[0];
    void *y = args->y_NK.data;
    int threads = tt_cpu_threads(stream, rows * cols);
    if (!by_rows && squares == 0 && tt_tensor_is_contiguous(args->y_NK)) cols *= rows, rows = 1;
    int64_t pieces = (cols + PIECE - 1) / PIECE;
    span_function *four = avx2 ? four_avx2 : four_portable;
    row_function *row_of = fp8 ? fp8_row : avx2 ? int8_avx2 : int8_portable;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < rows * pieces; task++) {
        int64_t row = task / pieces, col = task % pieces * PIECE;
        int64_t count = cols - col < PIECE ? cols - col : PIECE, from = first + row * cols + col;
        if (squares > 0)
            fp8_squares(&packed, args->first_row + row, col, count, cols, squares, y, row * stride + col,
                        bf16);
        else if (by_rows)
            row_of(&packed, from, count, y, row * stride + col, absmax_at(&packed, args->first_row + row),
                   bf16);
        else
            four(&packed, from, count, y, row * stride + col, bf16);
    }
    return TT_OK;
}

tt_status tt_cpu_recode_rows(struct tt_stream *stream, const struct tt_recode_rows_args *args)
{
    return tt_compose_recode_rows(stream, args);
}
