/* From weights to codes. The order of every rounding is that of bitsandbytes on a CPU, so nothing here may be
 * contracted to fused multiply-adds: the AVX2 path is compiled without them. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "tensor/quant.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#else
#pragma STDC FP_CONTRACT OFF
#endif

enum { PIECE = 4096 }; /* weights that are widened at a time */

static const float least_absmax = 1e-38f; /* what the library divides by where all weights are 0 */

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define AVX2
static bool has_avx2(void)
{
    return false;
}
#endif
/* The same loop for any processor and for AVX2: the compiler makes the vectors. */
#define BODY static inline __attribute__((always_inline))

BODY void widen_bf16(const uint16_t *from, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(to + i, &bits, sizeof bits);
    }
}

/* |x| as bits: larger numbers are larger integers, infinity is above all of them and NaN above infinity. */
BODY float largest(const float *x, int64_t count)
{
    int32_t most = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float value;
    memcpy(&value, &most, sizeof value);
    return value;
}

/* How many of the 15 borders lie below each of count <= PIECE numbers. */
BODY void ranks(const float *x, int64_t count, float factor, float divisor, const float *borders, uint8_t *to)
{
    for (int64_t i = 0; i < count; i++) {
        float value = divisor != 0.0f ? x[i] / divisor : x[i] * factor;
        int32_t rank = 0;
#pragma GCC unroll 15
        for (int b = 0; b < TT_QUANT_MAP - 1; b++) rank += value > borders[b];
        to[i] = (uint8_t)rank;
    }
}

#define PASS(suffix, attribute)                                                                              \
    attribute static void widen_bf16_##suffix(const uint16_t *from, int64_t count, float *to)                \
    {                                                                                                        \
        widen_bf16(from, count, to);                                                                         \
    }                                                                                                        \
    attribute static float largest_##suffix(const float *x, int64_t count)                                   \
    {                                                                                                        \
        return largest(x, count);                                                                            \
    }                                                                                                        \
    attribute static void ranks_##suffix(const float *x, int64_t count, float factor, const float *borders,  \
                                         uint8_t *to)                                                        \
    {                                                                                                        \
        ranks(x, count, factor, 0.0f, borders, to);                                                          \
    }
PASS(any, )
PASS(avx2, AVX2)
#define BEST(name) (has_avx2() ? name##_avx2 : name##_any)

/* Weights as the library sees them: int8 goes through fp16. */
static void widen(const struct tt_quant_layout *layout, const void *weights, tt_dtype dtype, int64_t first,
                  int64_t count, float *to)
{
    const char *from = (const char *)weights + first * (int64_t)tt_dtype_bytes(dtype);
    if (dtype == TT_BF16)
        BEST(widen_bf16)((const uint16_t *)from, count, to);
    else
        (void)tt_dtype_convert(to, TT_F32, from, dtype, (size_t)count);
    if (layout->format.type == TT_QUANT_INT8 && dtype != TT_F16)
        for (int64_t i = 0; i < count; i++) to[i] = tt_f16_to_f32(tt_f32_to_f16(to[i]));
}

void tt_quant_absmax(const struct tt_quant_layout *layout, int64_t first, int64_t count, const void *weights,
                     tt_dtype dtype, float *absmax)
{
    float (*best)(const float *, int64_t) = BEST(largest);
    bool four_bits = layout->format.type != TT_QUANT_INT8;
    float x[PIECE];
    int64_t origin = tt_quant_block_first(layout, first);
    for (int64_t block = first; block < first + count; block++) {
        int64_t at = tt_quant_block_first(layout, block), end = tt_quant_block_first(layout, block + 1);
        bool short_block = four_bits && end - at < layout->format.block;
        float most = 0;
        for (int64_t some; at < end; at += some) {
            some = end - at < PIECE ? end - at : PIECE;
            widen(layout, weights, dtype, at - origin, some, x);
            float here = best(x, some);
            most = isnan(here) || here > most ? here : most;
        }
        /* The library stores this floor for a last block that is not whole, and only there. */
        if (short_block && most < least_absmax) most = least_absmax;
        absmax[block - first] = most;
    }
}

tt_status tt_quant_check(const struct tt_quant_layout *layout, const float *absmax)
{
    for (int64_t i = 0; i < layout->blocks; i++) {
        if (isfinite(absmax[i])) continue;
        int64_t at = tt_quant_block_first(layout, i);
        return tt_fail(TT_ERR_DATA, "a weight between [%lld, %lld] and the end of its block of %lld is %s",
                       (long long)(at / layout->cols), (long long)(at % layout->cols),
                       (long long)(tt_quant_block_first(layout, i + 1) - at),
                       isnan(absmax[i]) ? "not a number" : "infinite");
    }
    return TT_OK;
}

enum { LANES = 8, STRANDS = 4, LEVELS = 4 };

static int ceil_log2(int64_t value)
{
    int bits = 0;
    while (((int64_t)1 << bits) < value) bits++;
    return bits;
}

/* Sums of `width` = lanes * STRANDS neighbouring columns over `rows` rows: in groups of 2^power rows, the
 * groups' sums again in groups, four levels high. */
static void cascade(const float *x, int64_t rows, int width, float *sums)
{
    float level[LEVELS][LANES * STRANDS] = {{0}};
    int power = ceil_log2(rows) / LEVELS;
    if (power < 4) power = 4;
    int64_t group = (int64_t)1 << power, row = 0;
    while (row + group <= rows) {
        for (int64_t end = row + group; row < end; row++)
            for (int c = 0; c < width; c++) level[0][c] += x[row * width + c];
        for (int up = 1; up < LEVELS; up++) {
            for (int c = 0; c < width; c++) {
                level[up][c] += level[up - 1][c];
                level[up - 1][c] = 0;
            }
            if ((row & ((group - 1) << (up * power))) != 0) break;
        }
    }
    for (; row < rows; row++)
        for (int c = 0; c < width; c++) level[0][c] += x[row * width + c];
    for (int up = 1; up < LEVELS; up++)
        for (int c = 0; c < width; c++) level[0][c] += level[up][c];
    memcpy(sums, level[0], (size_t)width * sizeof *sums);
}

/* `count` vectors of `lanes` numbers: four strands of vectors side by side, what is left over, then strand by
 * strand. */
static void sum_vectors(const float *x, int64_t count, int lanes, float *sum)
{
    float strands[LANES * STRANDS];
    int64_t rows = count / STRANDS;
    cascade(x, rows, lanes * STRANDS, strands);
    for (int64_t i = rows * STRANDS; i < count; i++)
        for (int lane = 0; lane < lanes; lane++) strands[lane] += x[i * lanes + lane];
    for (int strand = 1; strand < STRANDS; strand++)
        for (int lane = 0; lane < lanes; lane++) strands[lane] += strands[strand * lanes + lane];
    memcpy(sum, strands, (size_t)lanes * sizeof *sum);
}

float tt_quant_mean(const float *absmax, int64_t count)
{
    float sum = 0, lanes[LANES];
    if (count < 1) return 0;
    if (count < LANES) {
        sum_vectors(absmax, count, 1, &sum);
        return sum / (float)count;
    }
    int64_t vectors = count / LANES;
    sum_vectors(absmax, vectors, LANES, lanes);
    for (int64_t i = vectors * LANES; i < count; i++) sum += absmax[i];
    for (int lane = 0; lane < LANES; lane++) sum += lanes[lane];
    return sum / (float)count;
}

/* The codes in ascending order of what they stand for, and the borders: the middles, rounded to fp32. A
 * number on a border takes the lower code. */
struct coder {
    uint8_t order[TT_QUANT_MAP];
    float borders[TT_QUANT_MAP - 1];
};

static void coder_init(struct coder *coder, const float *map)
{
    for (int i = 0; i < TT_QUANT_MAP; i++) {
        int at = i;
        for (; at > 0 && map[coder->order[at - 1]] > map[i]; at--) coder->order[at] = coder->order[at - 1];
        coder->order[at] = (uint8_t)i;
    }
    for (int i = 0; i + 1 < TT_QUANT_MAP; i++)
        coder->borders[i] = (map[coder->order[i]] + map[coder->order[i + 1]]) / 2;
}

/* `count` weights of one block, from an even place on. */
static void encode_four(const struct coder *coder, const float *x, int64_t count, float absmax, bool whole,
                        uint8_t *codes)
{
    uint8_t rank[PIECE + 1];
    float floor = absmax > least_absmax ? absmax : least_absmax;
    if (whole)
        BEST(ranks)(x, count, 1.0f / floor, coder->borders, rank);
    else
        ranks(x, count, 0.0f, absmax, coder->borders, rank);
    if (count % 2 != 0) {
        float nothing = 0;
        ranks(&nothing, 1, 1.0f, 0.0f, coder->borders, rank + count);
    }
    for (int64_t i = 0; i < (count + 1) / 2; i++)
        codes[i] = (uint8_t)(coder->order[rank[2 * i]] << 4 | coder->order[rank[2 * i + 1]]);
}

/* To nearest even; |x| <= 127. */
static void encode_int8(const float *x, int64_t count, float absmax, uint8_t *codes)
{
    float factor = absmax > 0 ? 1.0f / absmax * 127.0f : 0.0f; /* torch divides a number by a tensor so */
    for (int64_t i = 0; i < count; i++) codes[i] = (uint8_t)(int8_t)nearbyintf(x[i] * factor);
}

void tt_quant_codes(const struct tt_quant_layout *layout, int64_t first, int64_t count, const void *weights,
                    tt_dtype dtype, const float *absmax, uint8_t *codes)
{
    bool int8 = layout->format.type == TT_QUANT_INT8;
    int64_t block_weights = int8 ? layout->cols : layout->format.block;
    struct coder coder;
    float x[PIECE];
    if (!int8) coder_init(&coder, tt_quant_map(layout->format.type));
    for (int64_t some, at = first; at < first + count; at += some) {
        int64_t block = at / block_weights, end = tt_quant_block_first(layout, block + 1);
        if (end > first + count) end = first + count;
        some = end - at < PIECE ? end - at : PIECE;
        widen(layout, weights, dtype, at - first, some, x);
        if (int8) {
            encode_int8(x, some, absmax[block], codes + (at - first));
        } else {
            bool whole = (block + 1) * block_weights <= layout->count;
            encode_four(&coder, x, some, absmax[block], whole, codes + (at - first) / 2);
        }
    }
}

/* The library rounds a number in [-1, 1] to a grid of 65536 points and takes the nearest code of the point.
 */
static uint8_t nested_code(float value)
{
    const float *map = tt_quant_nested_map();
    if (value < -1) value = -1;
    if (value > 1) value = 1;
    uint32_t point = (uint32_t)((value + 1.0f) * 0.5f * 65535.0f + 0.5f);
    float x = (float)((double)point / 65535.0 * 2.0 - 1.0);
    int low = 0, high = TT_QUANT_NESTED_MAP - 1; /* the answer lies between them */
    while (low < high) {
        int middle = (low + high) / 2;
        if (x > (map[middle] + map[middle + 1]) / 2)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint8_t)low;
}

void tt_quant_nested(const struct tt_quant_layout *layout, int64_t first, int64_t count, const float *absmax,
                     float offset, uint8_t *codes, float *nested_absmax)
{
    int64_t width = layout->format.nested_block, origin = first * width;
    for (int64_t block = first; block < first + count; block++) {
        int64_t at = block * width, end = at + width < layout->blocks ? at + width : layout->blocks;
        float most = 0;
        for (int64_t i = at; i < end; i++) {
            float size = fabsf(absmax[i] - offset);
            most = size > most ? size : most;
        }
        nested_absmax[block - first] = most;
        float factor = most > 0 ? 1.0f / most : 0.0f;
        for (int64_t i = at; i < end; i++)
            codes[i - origin] = most > 0 ? nested_code((absmax[i] - offset) * factor) : 0;
    }
}

/* A range of the segment that is to be filled. */
struct range {
    size_t first, end;
    uint8_t *to;
};

/* What of `section` lies in the range, counted from the section's begin; false: nothing. */
static bool covers(const struct range *range, const struct tt_quant_section *section, size_t *first,
                   size_t *end)
{
    size_t from = range->first > section->offset ? range->first : section->offset;
    size_t till =
        section->offset + section->bytes < range->end ? section->offset + section->bytes : range->end;
    if (from >= till) return false;
    *first = from - section->offset;
    *end = till - section->offset;
    return true;
}

static uint8_t *place(const struct range *range, const struct tt_quant_section *section, size_t byte)
{
    return range->to + (section->offset + byte - range->first);
}

static void fill_bytes(const struct range *range, const struct tt_quant_section *section, const void *from)
{
    size_t first, end;
    if (covers(range, section, &first, &end))
        memcpy(place(range, section, first), (const uint8_t *)from + first, end - first);
}

static void fill_nested(const struct tt_quant_layout *layout, const struct tt_quant_source *source,
                        const struct range *range)
{
    enum { BLOCK_MOST = 4096 };
    uint8_t codes[BLOCK_MOST];
    const struct tt_quant_section *sections[] = {&layout->absmax, &layout->nested_absmax};
    size_t width[] = {(size_t)layout->format.nested_block, sizeof(float)}; /* bytes of a nested block */
    for (int s = 0; s < 2; s++) {
        size_t first, end;
        if (!covers(range, sections[s], &first, &end)) continue;
        for (size_t block = first / width[s]; block * width[s] < end; block++) {
            float most;
            tt_quant_nested(layout, (int64_t)block, 1, source->absmax, source->offset, codes, &most);
            size_t from = block * width[s] > first ? block * width[s] : first;
            size_t till = (block + 1) * width[s] < end ? (block + 1) * width[s] : end;
            const uint8_t *made = s == 0 ? codes : (const uint8_t *)&most;
            memcpy(place(range, sections[s], from), made + (from - block * width[s]), till - from);
        }
    }
}

static tt_status fill_codes(const struct tt_quant_layout *layout, const struct tt_quant_source *source,
                            const struct range *range)
{
    enum { BUFFER = 1 << 20 };
    size_t first, end;
    if (!covers(range, &layout->codes, &first, &end)) return TT_OK;
    int64_t each = layout->format.type == TT_QUANT_INT8 ? 1 : 2; /* weights a byte */
    int64_t step = BUFFER / (int64_t)tt_dtype_bytes(source->dtype);
    int64_t last = (int64_t)end * each < layout->count ? (int64_t)end * each : layout->count;
    void *weights = tt_alloc_aligned(BUFFER);
    if (weights == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    for (int64_t at = (int64_t)first * each; at < last && status == TT_OK; at += step) {
        int64_t count = last - at < step ? last - at : step;
        status = source->read(source->context, at, count, weights);
        if (status == TT_OK)
            tt_quant_codes(layout, at, count, weights, source->dtype, source->absmax,
                           place(range, &layout->codes, (size_t)(at / each)));
    }
    tt_free(weights);
    return status;
}

tt_status tt_quant_encode(const struct tt_quant_layout *layout, const struct tt_quant_source *source,
                          size_t first, size_t bytes, void *to)
{
    struct range range = {.first = first, .end = first + bytes, .to = to};
    memset(to, 0, bytes);
    TT_TRY(fill_codes(layout, source, &range));
    if (layout->format.nested) {
        fill_nested(layout, source, &range);
        fill_bytes(&range, &layout->nested_map, tt_quant_nested_map());
        fill_bytes(&range, &layout->offset, &source->offset);
    } else {
        fill_bytes(&range, &layout->absmax, source->absmax);
    }
    fill_bytes(&range, &layout->map, tt_quant_map(layout->format.type));
    return TT_OK;
}
