/* Encoding of weights: what all formats share. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "tensor/encode_isa.h"
#include "tensor/format.h"

enum { PIECE = TT_ENCODE_PIECE, LANES = TT_ENCODE_LANES };
typedef int32_t v8i __attribute__((vector_size(32)));

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
    v8i most = {0}, bits;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        v8i larger = bits > most;
        most = (larger & bits) | (~larger & most);
    }
    for (; i < count; i++) {
        int32_t one;
        memcpy(&one, x + i, sizeof one);
        one &= 0x7fffffff;
        most[0] = one > most[0] ? one : most[0];
    }
    int32_t top = most[0];
    for (int lane = 1; lane < LANES; lane++) top = most[lane] > top ? most[lane] : top;
    float value;
    memcpy(&value, &top, sizeof value);
    return value;
}

#define PASS(suffix, attribute)                                                                              \
    attribute static void widen_bf16_##suffix(const uint16_t *from, int64_t count, float *to)                \
    {                                                                                                        \
        widen_bf16(from, count, to);                                                                         \
    }                                                                                                        \
    attribute static float largest_##suffix(const float *x, int64_t count)                                   \
    {                                                                                                        \
        return largest(x, count);                                                                            \
    }
PASS(any, )
PASS(avx2, AVX2)

static void through_f16_any(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) x[i] = tt_f16_to_f32(tt_f32_to_f16(x[i]));
}

AVX2 static void through_f16_avx2(float *x, int64_t count)
{
    int64_t i = 0;
#if defined(__x86_64__)
    for (; i + LANES <= count; i += LANES) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(half));
    }
#endif
    through_f16_any(x + i, count - i);
}

/* Weights in the library's precision: some formats round them to fp16 first. */
static void widen(const struct tt_quant_layout *layout, const void *weights, tt_dtype dtype, int64_t first,
                  int64_t count, float *to)
{
    const char *from = (const char *)weights + first * (int64_t)tt_dtype_bytes(dtype);
    if (dtype == TT_BF16)
        BEST(widen_bf16)((const uint16_t *)from, count, to);
    else
        (void)tt_dtype_convert(to, TT_F32, from, dtype, (size_t)count);
    if (dtype != TT_F16 && tt_weight_format(layout->format.type)->through_f16) BEST(through_f16)(to, count);
}

void tt_quant_absmax(const struct tt_quant_layout *layout, int64_t first, int64_t count, const void *weights,
                     tt_dtype dtype, float *absmax)
{
    float (*best)(const float *, int64_t) = BEST(largest);
    int64_t width = layout->block_weights;
    int64_t origin = tt_quant_block_first(layout, first), end = tt_quant_block_first(layout, first + count);
    float x[PIECE];
    for (int64_t i = 0; i < count; i++) absmax[i] = 0;
    for (int64_t some, at = origin; at < end; at += some) { /* pieces; each may hold a part of a block */
        some = end - at < PIECE ? end - at : PIECE;
        widen(layout, weights, dtype, at - origin, some, x);
        for (int64_t here, i = 0; i < some; i += here) {
            int64_t block = (at + i) / width;
            here = (block + 1) * width - (at + i) < some - i ? (block + 1) * width - (at + i) : some - i;
            float most = best(x + i, here), *to = absmax + (block - first);
            *to = isnan(most) || most > *to ? most : *to;
        }
    }
    /* The library stores this floor for an incomplete last block, and only there. */
    bool has_short = count > 0 && first + count == layout->blocks && layout->count % width != 0;
    if (has_short && absmax[count - 1] < tt_encode_least_absmax) absmax[count - 1] = tt_encode_least_absmax;
    float (*scale_of)(float) = tt_weight_format(layout->format.type)->scale_of;
    for (int64_t i = 0; scale_of != NULL && i < count; i++) absmax[i] = scale_of(absmax[i]);
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

enum { STRANDS = 4, LEVELS = 4 };

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

/* `count` vectors of `lanes` numbers: four strands of vectors side by side, then the remaining vectors, then strand by
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

float tt_quant_offset(const struct tt_quant_layout *layout, const float *absmax)
{
    bool has_mean = layout->format.nested && !tt_weight_format(layout->format.type)->powers;
    return has_mean ? tt_quant_mean(absmax, layout->blocks) : 0;
}

void tt_quant_codes(const struct tt_quant_layout *layout, int64_t first, int64_t count, const void *weights,
                    tt_dtype dtype, const float *absmax, uint8_t *codes)
{
    const struct tt_weight_format *format = tt_weight_format(layout->format.type);
    float x[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t some = count - at < PIECE ? count - at : PIECE;
        widen(layout, weights, dtype, at, some, x);
        format->encode(layout, x, first + at, some, absmax, codes + at / format->byte_weights);
    }
}

/* The midpoints between neighbours of the nested map. */
static void make_middles(float middles[TT_QUANT_NESTED_MAP - 1])
{
    const float *map = tt_quant_nested_map();
    for (int i = 0; i + 1 < TT_QUANT_NESTED_MAP; i++) middles[i] = (map[i] + map[i + 1]) / 2;
}

/* The library rounds a number in [-1, 1] to a grid of 65536 points and uses the code nearest to the point. */
static uint8_t nested_code(const float *middles, float value)
{
    if (value < -1) value = -1;
    if (value > 1) value = 1;
    uint32_t point = (uint32_t)((value + 1.0f) * 0.5f * 65535.0f + 0.5f);
    float x = (float)((double)point / 65535.0 * 2.0 - 1.0);
    int code = 0; /* number of the 255 midpoints below x */
    for (int step = 128; step > 0; step /= 2) code += x > middles[code + step - 1] ? step : 0;
    return (uint8_t)code;
}

enum { POWER_OF_ONE = 127 };

/* The exponents of powers of two. */
static void nest_powers(const struct tt_quant_layout *layout, int64_t first, int64_t count,
                        const float *absmax, uint8_t *codes, float *nested_absmax)
{
    int64_t width = layout->format.nested_block, origin = first * width, end = (first + count) * width;
    if (end > layout->blocks) end = layout->blocks;
    for (int64_t i = origin; i < end; i++) codes[i - origin] = (uint8_t)(ilogbf(absmax[i]) + POWER_OF_ONE);
    for (int64_t block = 0; block < count; block++) nested_absmax[block] = 1.0f;
}

void tt_quant_nested(const struct tt_quant_layout *layout, int64_t first, int64_t count, const float *absmax,
                     float offset, uint8_t *codes, float *nested_absmax)
{
    if (tt_weight_format(layout->format.type)->powers) {
        nest_powers(layout, first, count, absmax, codes, nested_absmax);
        return;
    }
    int64_t width = layout->format.nested_block, origin = first * width;
    float middles[TT_QUANT_NESTED_MAP - 1];
    make_middles(middles);
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
            codes[i - origin] = most > 0 ? nested_code(middles, (absmax[i] - offset) * factor) : 0;
    }
}

/* The range of the segment to fill. */
struct range {
    size_t first, end;
    uint8_t *to;
};

/* The part of `section` inside the range, counted from the start of the section; false: none. */
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
    int64_t each = layout->byte_weights;
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
        float powers[TT_QUANT_NESTED_MAP];
        bool has_powers = tt_weight_format(layout->format.type)->powers;
        for (int i = 0; i < TT_QUANT_NESTED_MAP; i++) powers[i] = ldexpf(1.0f, i - POWER_OF_ONE);
        fill_bytes(&range, &layout->nested_map, has_powers ? powers : tt_quant_nested_map());
        fill_bytes(&range, &layout->offset, &source->offset);
    } else {
        fill_bytes(&range, &layout->absmax, source->absmax);
    }
    fill_bytes(&range, &layout->map, tt_quant_map(layout->format.type));
    return TT_OK;
}
