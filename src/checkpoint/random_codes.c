#include "checkpoint/random_codes.h"

#include <math.h>
#include <string.h>

#include "tensor/e4m3.h"

enum { BLOCK = 16 }; /* bytes of one random block */

/* x with P(normal number < x) = p. */
static double quantile(double p)
{
    double low = -10, high = 10;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2.0)) / 2 < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

float tt_random_codes_init(struct tt_random_codes *codes, const tt_param *param, uint64_t seed)
{
    const tt_param *original = param->transposed_of != NULL ? param->transposed_of : param;
    *codes = (struct tt_random_codes){.rows = param->quant.rows, .cols = param->quant.cols};
    codes->rng = tt_rng_derive(tt_rng_derive(tt_rng_make(seed), "init"), original->name);
    codes->transposed = param->transposed_of != NULL;
    codes->has_table = param->quant.format.type == TT_QUANT_FP8;
    if (!codes->has_table) return (float)(2.0 * param->init_scale);
    const float deviation = TT_E4M3_MOST / 3;
    for (int i = 0; i < 256; i++)
        codes->table[i] = tt_e4m3_from_f32((float)quantile((i + 0.5) / 256) * deviation);
    return (float)param->init_scale / deviation;
}

static void fill_straight(const struct tt_random_codes *codes, int64_t first, int64_t count, uint8_t *to)
{
    for (int64_t at = first; at < first + count;) {
        uint32_t words[4];
        tt_rng_block(codes->rng, 0, (uint64_t)at / BLOCK, words);
        int64_t in_block = at % BLOCK, left = BLOCK - in_block;
        if (left > first + count - at) left = first + count - at;
        memcpy(to + (at - first), (const char *)words + in_block, (size_t)left);
        at += left;
    }
}

/* A block of the original is 16 places of one of its rows (its columns are a multiple of 16): 16 rows of one column
 * here. */
static void fill_transposed(const struct tt_random_codes *codes, int64_t first, int64_t count, uint8_t *to)
{
    int64_t cols = codes->cols, end = first + count;
    for (int64_t group = first / cols / BLOCK * BLOCK; group * cols < end; group += BLOCK) {
        for (int64_t col = 0; col < cols; col++) {
            uint8_t bytes[BLOCK];
            uint32_t words[4];
            tt_rng_block(codes->rng, 0, (uint64_t)(col * codes->rows + group) / BLOCK, words);
            memcpy(bytes, words, sizeof bytes);
            for (int64_t i = 0; i < BLOCK; i++) {
                int64_t at = (group + i) * cols + col;
                if (at >= first && at < end) to[at - first] = bytes[i];
            }
        }
    }
}

void tt_random_codes_fill(const struct tt_random_codes *codes, int64_t first, int64_t count, uint8_t *to)
{
    if (codes->transposed)
        fill_transposed(codes, first, count, to);
    else
        fill_straight(codes, first, count, to);
    for (int64_t i = 0; i < count && codes->has_table; i++) to[i] = codes->table[to[i]];
}
