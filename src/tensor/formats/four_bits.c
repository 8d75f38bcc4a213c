/* Codes of 4 bits: an index into the format's map of 16 values, times the absmax of the block. */
#include "tensor/formats/four_bits.h"

#include <stddef.h>
#include <string.h>

#include "tensor/encode_isa.h"
#include "tensor/format.h"

enum { PIECE = TT_ENCODE_PIECE, LANES = TT_ENCODE_LANES };

const struct tt_format_tensor tt_four_bits_tensors[TT_FOUR_BITS_TENSORS] = {
    {".weight", offsetof(struct tt_quant_layout, codes), TT_DTYPE_NONE, TT_DTYPE_NONE},
    {".weight.absmax", offsetof(struct tt_quant_layout, absmax), TT_F32, TT_U8},
    {".weight.quant_map", offsetof(struct tt_quant_layout, map), TT_F32, TT_F32},
    {".weight.nested_absmax", offsetof(struct tt_quant_layout, nested_absmax), TT_F32, TT_F32},
    {".weight.nested_quant_map", offsetof(struct tt_quant_layout, nested_map), TT_F32, TT_F32},
};

/* The number of the 15 borders below each number times `factor`. */
static void ranks_any(const float *x, int64_t count, float factor, const float *borders, uint8_t *to)
{
    for (int64_t i = 0; i < count; i++) {
        float value = x[i] * factor;
        int rank = 0;
        for (int b = 0; b < TT_QUANT_MAP - 1; b++) rank += value > borders[b];
        to[i] = (uint8_t)rank;
    }
}

AVX2 static void ranks_avx2(const float *x, int64_t count, float factor, const float *borders, uint8_t *to)
{
    enum { GROUP = 4 };
    int64_t i = 0;
#if defined(__x86_64__)
    for (; i + GROUP * LANES <= count; i += GROUP * LANES) {
        __m256 value[GROUP];
        __m256i rank[GROUP];
        for (int g = 0; g < GROUP; g++) {
            value[g] = _mm256_mul_ps(_mm256_loadu_ps(x + i + LANES * g), _mm256_set1_ps(factor));
            rank[g] = _mm256_setzero_si256();
        }
        for (int b = 0; b < TT_QUANT_MAP - 1; b++)
            for (int g = 0; g < GROUP; g++) {
                __m256 above = _mm256_cmp_ps(value[g], _mm256_set1_ps(borders[b]), _CMP_GT_OQ);
                rank[g] = _mm256_sub_epi32(rank[g], _mm256_castps_si256(above));
            }
        /* Packing works within halves, so that words of four come out as 0 2 4 6 1 3 5 7. */
        __m256i low = _mm256_packs_epi32(rank[0], rank[1]), high = _mm256_packs_epi32(rank[2], rank[3]);
        __m256i bytes = _mm256_packus_epi16(low, high);
        bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((__m256i *)(void *)(to + i), bytes);
    }
#endif
    ranks_any(x + i, count - i, factor, borders, to + i);
}

/* Two codes a byte, the first in the high half; `order` maps a rank to its code. */
static void pack_any(const uint8_t *ranks, int64_t pairs, const uint8_t *order, uint8_t *codes)
{
    for (int64_t i = 0; i < pairs; i++)
        codes[i] = (uint8_t)(order[ranks[2 * i]] << 4 | order[ranks[2 * i + 1]]);
}

AVX2 static void pack_avx2(const uint8_t *ranks, int64_t pairs, const uint8_t *order, uint8_t *codes)
{
    int64_t i = 0;
#if defined(__x86_64__)
    const __m128i table = _mm_loadu_si128((const __m128i *)(const void *)order),
                  weights = _mm_set1_epi16(0x0110);
    for (; i + 16 <= pairs; i += 16) {
        const __m128i *from = (const __m128i *)(const void *)(ranks + 2 * i);
        __m128i first = _mm_maddubs_epi16(_mm_shuffle_epi8(table, _mm_loadu_si128(from)), weights);
        __m128i second = _mm_maddubs_epi16(_mm_shuffle_epi8(table, _mm_loadu_si128(from + 1)), weights);
        _mm_storeu_si128((__m128i *)(void *)(codes + i), _mm_packus_epi16(first, second));
    }
#endif
    pack_any(ranks + 2 * i, pairs - i, order, codes + i);
}

/* The codes in ascending order of their values, and the borders: the midpoints, rounded to fp32. A number on a border
 * gets the lower code. */
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

/* `count` weights of one block; `whole`: the block is complete. */
static void rank_block(const struct coder *coder, const float *x, int64_t count, float absmax, bool whole,
                       uint8_t *rank)
{
    float floor = absmax > tt_encode_least_absmax ? absmax : tt_encode_least_absmax;
    if (whole) {
        BEST(ranks)(x, count, 1.0f / floor, coder->borders, rank);
        return;
    }
    for (int64_t i = 0; i < count; i++) { /* in an incomplete block the library divides */
        float value = x[i] / absmax;
        ranks_any(&value, 1, 1.0f, coder->borders, rank + i);
    }
}

/* A piece has at most PIECE weights. Pieces begin at even positions. An odd count is padded with the code of 0. */
void tt_four_bits_encode(const struct tt_quant_layout *layout, const float *x, int64_t first, int64_t count,
                         const float *absmax, uint8_t *codes)
{
    struct coder made, *coder = &made;
    uint8_t rank[PIECE + 1];
    int64_t width = layout->format.block;
    coder_init(coder, tt_weight_format(layout->format.type)->map);
    for (int64_t here, i = 0; i < count; i += here) {
        int64_t block = (first + i) / width, end = (block + 1) * width;
        here = end - (first + i) < count - i ? end - (first + i) : count - i;
        rank_block(coder, x + i, here, absmax[block], end <= layout->count, rank + i);
    }
    const float nothing = 0;
    if (count % 2 != 0) ranks_any(&nothing, 1, 1.0f, coder->borders, rank + count);
    BEST(pack)(rank, (count + 1) / 2, coder->order, codes);
}

float tt_four_bits_decode(const struct tt_quant_layout *layout, const uint8_t *segment, int64_t index,
                          float absmax)
{
    uint8_t pair = segment[layout->codes.offset + (size_t)(index / 2)];
    size_t code = index % 2 == 0 ? (size_t)pair >> 4 : (size_t)pair & 15;
    float value;
    memcpy(&value, segment + layout->map.offset + code * sizeof value, sizeof value);
    return value * absmax;
}
