/* Encodes blocks of 256 weights with scales for parts of 16 or 32: q2_K, q3_K, q4_K, q5_K and q6_K (gguf_types.h).
 *
 * The scale of a part is the best of several: each rounds the part's weights with another divisor, and then takes the
 * scale (and the least value) of least squares for these codes. q3_K instead moves one code at a time. Scales are then
 * rounded to multiples of one number of the whole block, and the codes are made anew with what readers see. A part
 * whose rounded scale is 0 keeps the codes of the search. */
#include <math.h>
#include <string.h>

#include "convert/gguf_blocks_impl.h"
#include "tensor/encode_isa.h"

enum { WEIGHTS = 256, LANES = TT_ENCODE_LANES, PART_MAX = 32, PARTS_MAX = 16 };
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t integers __attribute__((vector_size(4 * LANES)));

static const float least_magnitude = 1e-15f; /* parts below it are 0, in q3_K and q6_K */

/* Eight parts of a block beside each other: x[i] has weight i of each. */
struct group {
    int weights; /* of a part */
    lanes x[PART_MAX], codes[PART_MAX];
    lanes scale, least; /* `least`: what is subtracted */
};

/* A block: its codes in the order of the weights, and the numbers of its parts. */
struct block {
    struct group groups[2];
    int group_count;
    float scale[PARTS_MAX], least[PARTS_MAX];
    uint8_t codes[WEIGHTS];
};

/* ---- Lanes ---- */

BODY lanes choose(integers where, lanes yes, lanes no)
{
    return (lanes)((where & (integers)yes) | (~where & (integers)no));
}

BODY lanes magnitude(lanes x)
{
    return (lanes)((integers)x & 0x7fffffff);
}

/* The nearest integers, of halves the even ones, from `low` to `high`. The sum has the integer in its last bits;
 * numbers of 2^22 and more become others, as in ggml. */
BODY lanes nearest(lanes x, int low, int high)
{
    integers code = ((integers)(x + 12582912.0f) & 0x7fffff) - 0x400000;
    integers under = code<low, over = code> high;
    code = (under & low) | (~under & code);
    code = (over & high) | (~over & code);
    return __builtin_convertvector(code, lanes);
}

BODY int nearest_one(float x)
{
    float sum = x + 12582912.0f;
    int32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return (bits & 0x7fffff) - 0x400000;
}

BODY void open_block(const float *weights, int part, struct block *block)
{
    block->group_count = WEIGHTS / (LANES * part);
    for (int g = 0; g < block->group_count; g++) {
        struct group *group = &block->groups[g];
        group->weights = part;
        for (int i = 0; i < part; i++)
            for (int lane = 0; lane < LANES; lane++)
                group->x[i][lane] = weights[(g * LANES + lane) * part + i];
    }
}

BODY void take_scales(struct block *block)
{
    for (int g = 0; g < block->group_count; g++) {
        for (int lane = 0; lane < LANES; lane++) {
            block->scale[g * LANES + lane] = block->groups[g].scale[lane];
            block->least[g * LANES + lane] = block->groups[g].least[lane];
        }
    }
}

/* The codes for what readers multiply by and subtract. */
BODY void round_again(struct block *block, int part, const float *scale, const float *least, int low,
                      int high)
{
    for (int g = 0; g < block->group_count; g++) {
        struct group *group = &block->groups[g];
        lanes d, subtracted;
        for (int lane = 0; lane < LANES; lane++) {
            d[lane] = scale[g * LANES + lane];
            subtracted[lane] = least[g * LANES + lane];
        }
        for (int i = 0; i < part; i++) {
            lanes code = nearest((group->x[i] + subtracted) / d, low, high) - (float)low;
            code = choose(d != 0, code, group->codes[i]);
            for (int lane = 0; lane < LANES; lane++)
                block->codes[(g * LANES + lane) * part + i] = (uint8_t)code[lane];
        }
    }
}

/* ---- Scale and least value: q2_K, q4_K, q5_K ---- */

/* Divisors tried: (first + step * number + most code) / (largest - least). */
struct tries {
    int high;
    float first, step;
    int count;
    bool absolute; /* the error of a weight, else its square */
};

BODY lanes error_of(lanes difference, bool absolute)
{
    return absolute ? magnitude(difference) : difference * difference;
}

BODY void fit_least(struct group *group, int part, const lanes *importance, const struct tries *tries)
{
    const lanes *x = group->x, zero = {0};
    lanes least = x[0], most = x[0], sum_w = importance[0], sum_x = sum_w * x[0], best = {0}, codes[PART_MAX];
    for (int i = 1; i < part; i++) {
        least = choose(x[i] < least, x[i], least);
        most = choose(x[i] > most, x[i], most);
        sum_w += importance[i];
        sum_x += importance[i] * x[i];
    }
    least = choose(least > 0, zero, least);
    integers flat = most == least;
    lanes divisor = (float)tries->high / (most - least), scale = 1 / divisor, from = least, by = divisor;
    for (int i = 0; i < part; i++) {
        lanes code = nearest(divisor * (x[i] - least), 0, tries->high);
        best += importance[i] * error_of(scale * code + least - x[i], tries->absolute);
    }
    for (int number = 0; number <= tries->count; number++) {
        lanes sum_l = {0}, sum_ll = {0}, sum_xl = {0}, error = {0};
        divisor = (tries->first + tries->step * (float)number + (float)tries->high) / (most - least);
        for (int i = 0; i < part; i++) {
            lanes code = nearest(divisor * (x[i] - least), 0, tries->high), weighted = importance[i] * code;
            codes[i] = code;
            sum_l += weighted;
            sum_ll += weighted * code;
            sum_xl += weighted * x[i];
        }
        lanes determinant = sum_w * sum_ll - sum_l * sum_l;
        lanes new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
        lanes new_least = (sum_ll * sum_x - sum_l * sum_xl) / determinant;
        integers above = new_least > 0;
        new_scale = choose(above, sum_xl / sum_ll, new_scale);
        new_least = choose(above, zero, new_least);
        for (int i = 0; i < part; i++)
            error += importance[i] * error_of(new_scale * codes[i] + new_least - x[i], tries->absolute);
        integers better = (determinant > 0) & (error < best);
        best = choose(better, error, best);
        by = choose(better, divisor, by);
        from = choose(better, least, from);
        scale = choose(better, new_scale, scale);
        least = choose(better, new_least, least);
    }
    for (int i = 0; i < part; i++)
        group->codes[i] = choose(flat, zero, nearest(by * (x[i] - from), 0, tries->high));
    group->scale = choose(flat, zero, scale);
    group->least = -least;
}

/* A weight counts by its magnitude, in parts of 32 added to the root of the mean square. */
BODY void weigh(const struct group *group, int part, lanes *importance)
{
    lanes squares = {0}, root = {0};
    for (int i = 0; part == 32 && i < part; i++) squares += group->x[i] * group->x[i];
    for (int lane = 0; part == 32 && lane < LANES; lane++) root[lane] = sqrtf(squares[lane] / 32.0f);
    for (int i = 0; i < part; i++) importance[i] = root + magnitude(group->x[i]);
}

BODY void fit_parts(const float *weights, int part, const struct tries *tries, struct block *block)
{
    lanes importance[PART_MAX];
    open_block(weights, part, block);
    for (int g = 0; g < block->group_count; g++) {
        weigh(&block->groups[g], part, importance);
        fit_least(&block->groups[g], part, importance, tries);
    }
    take_scales(block);
}

BODY float largest(const float *values, int count)
{
    float found = 0;
    for (int i = 0; i < count; i++) found = values[i] > found ? values[i] : found;
    return found;
}

BODY float through_half(float value)
{
    return tt_f16_to_f32(tt_f32_to_f16(value));
}

/* Two scales of 6 bits each for 8 parts: the low bits of the first four of each in bytes 0 to 7, those of the others in
 * 8 to 11, whose high bits are those of bytes 0 to 7. Returns d and D. */
BODY void put_scales(struct block *block, uint8_t packed[12], float *d, float *subtracted)
{
    float most[2] = {largest(block->scale, LANES), largest(block->least, LANES)};
    *d = most[0] / 63.0f;
    *subtracted = most[1] / 63.0f;
    float whole = through_half(*d), whole_least = through_half(*subtracted);
    memset(packed, 0, 12);
    for (int j = 0; j < LANES; j++) {
        uint8_t s = (uint8_t)nearest_one((most[0] > 0 ? 63.0f / most[0] : 0.0f) * block->scale[j]);
        uint8_t t = (uint8_t)nearest_one((most[1] > 0 ? 63.0f / most[1] : 0.0f) * block->least[j]);
        s = s < 63 ? s : 63;
        t = t < 63 ? t : 63;
        if (j < 4) {
            packed[j] = s;
            packed[j + 4] = t;
        } else {
            packed[j + 4] = (uint8_t)((s & 15) | (t & 15) << 4);
            packed[j - 4] |= (uint8_t)(s >> 4 << 6);
            packed[j] |= (uint8_t)(t >> 4 << 6);
        }
        block->scale[j] = whole * (float)s;
        block->least[j] = whole_least * (float)t;
    }
}

/* Low four bits: of 64 weights the first 32 beside the others. */
BODY void put_nibbles(const uint8_t *codes, uint8_t *to)
{
    for (int at = 0; at < WEIGHTS; at += 64)
        for (int i = 0; i < 32; i++) *to++ = (uint8_t)((codes[at + i] & 15) | (codes[at + i + 32] & 15) << 4);
}

/* Two bits: of 128 weights four at a distance of 32. */
BODY void put_pairs(const uint8_t *codes, int shift, uint8_t *to)
{
    for (int at = 0; at < WEIGHTS; at += 128)
        for (int i = 0; i < 32; i++) {
            unsigned byte = 0;
            for (int k = 0; k < 4; k++) byte |= (codes[at + i + 32 * k] >> shift & 3u) << 2 * k;
            *to++ = (uint8_t)byte;
        }
}

/* One bit: bit k of byte i is of weight 32 k + i. */
BODY void put_bits(const uint8_t *codes, int shift, uint8_t *to)
{
    for (int i = 0; i < 32; i++) {
        unsigned byte = 0;
        for (int k = 0; k < 8; k++) byte |= (codes[32 * k + i] >> shift & 1u) << k;
        to[i] = (uint8_t)byte;
    }
}

BODY void q4_k(const float *weights, uint8_t *to)
{
    static const struct tries tries = {15, -1.0f, 0.1f, 20, false};
    struct block block;
    float d, subtracted;
    fit_parts(weights, 32, &tries, &block);
    put_scales(&block, to + 4, &d, &subtracted);
    gguf_put_half(gguf_put_half(to, d), subtracted);
    round_again(&block, 32, block.scale, block.least, 0, 15);
    put_nibbles(block.codes, to + 16);
}

BODY void q5_k(const float *weights, uint8_t *to)
{
    static const struct tries tries = {31, -0.5f, 0.1f, 15, false};
    struct block block;
    float d, subtracted;
    fit_parts(weights, 32, &tries, &block);
    put_scales(&block, to + 4, &d, &subtracted);
    gguf_put_half(gguf_put_half(to, d), subtracted);
    round_again(&block, 32, block.scale, block.least, 0, 31);
    put_bits(block.codes, 4, to + 16);
    put_nibbles(block.codes, to + 48);
}

BODY void q2_k(const float *weights, uint8_t *to)
{
    static const struct tries tries = {3, -0.5f, 0.1f, 15, true};
    struct block block;
    fit_parts(weights, 16, &tries, &block);
    float most = largest(block.scale, PARTS_MAX), most_least = largest(block.least, PARTS_MAX);
    float d = most / 15.0f, subtracted = most_least / 15.0f;
    for (int j = 0; j < PARTS_MAX; j++) {
        int s = most > 0 ? nearest_one(15.0f / most * block.scale[j]) : 0;
        int t = most_least > 0 ? nearest_one(15.0f / most_least * block.least[j]) : 0;
        to[j] = (uint8_t)((unsigned)s | (unsigned)t << 4);
        block.scale[j] = through_half(d) * (float)(to[j] & 15);
        block.least[j] = through_half(subtracted) * (float)(to[j] >> 4);
    }
    gguf_put_half(gguf_put_half(to + 80, d), subtracted);
    round_again(&block, 16, block.scale, block.least, 0, 3);
    put_pairs(block.codes, 0, to + 16);
}

/* ---- Scale alone: q3_K, q6_K ---- */

/* The weight of the largest magnitude in each part, of several the first. */
BODY lanes summit(const struct group *group, int part)
{
    lanes found = {0};
    for (int i = 0; i < part; i++)
        found = choose(magnitude(group->x[i]) > magnitude(found), group->x[i], found);
    return found;
}

/* Sums of least squares, in which a weight counts by its square. */
struct sums {
    lanes xl, ll;
};

BODY struct sums add_up(const struct group *group, int part, lanes divisor, int centre, lanes *codes)
{
    struct sums sums = {{0}, {0}};
    for (int i = 0; i < part; i++) {
        lanes x = group->x[i], code = nearest(divisor * x, -centre, centre - 1), square = x * x;
        if (codes != NULL) codes[i] = code;
        sums.xl += square * x * code;
        sums.ll += square * code * code;
    }
    return sums;
}

/* The largest weight is 19 times another number of steps: from centre - 0.9 to centre + 0.9. */
BODY void fit_centred(struct group *group, int part, int centre)
{
    lanes top = summit(group, part), zero = {0}, by = -(float)centre / top;
    struct sums sums = add_up(group, part, by, centre, NULL);
    lanes scale = choose(sums.ll != 0, sums.xl / sums.ll, zero), best = scale * sums.xl;
    for (int number = -9; number <= 9; number++) {
        if (number == 0) continue;
        lanes divisor = -((float)centre + 0.1f * (float)number) / top;
        sums = add_up(group, part, divisor, centre, NULL);
        integers better = (sums.ll > 0) & (sums.xl * sums.xl > best * sums.ll);
        by = choose(better, divisor, by);
        scale = choose(better, sums.xl / sums.ll, scale);
        best = choose(better, scale * sums.xl, best);
    }
    integers none = magnitude(top) < least_magnitude;
    for (int i = 0; i < part; i++)
        group->codes[i] = choose(none, zero, nearest(by * group->x[i], -centre, centre - 1) + (float)centre);
    group->scale = choose(none, zero, scale);
    group->least = zero;
}

/* Moves a code where that makes the part's squares of errors smaller, five times round. */
BODY void fit_by_moves(struct group *group, int part, int centre)
{
    lanes top = summit(group, part), zero = {0}, *codes = group->codes;
    struct sums sums = add_up(group, part, -(float)centre / top, centre, codes);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < part; i++) {
            lanes x = group->x[i], square = x * x;
            lanes xl = sums.xl - square * x * codes[i], ll = sums.ll - square * codes[i] * codes[i];
            lanes code = nearest(x * ll / xl, -centre, centre - 1);
            integers moves = (xl > 0) & (code != codes[i]);
            xl += square * x * code;
            ll += square * code * code;
            moves &= (ll > 0) & (xl * xl * sums.ll > sums.xl * sums.xl * ll);
            codes[i] = choose(moves, code, codes[i]);
            sums.xl = choose(moves, xl, sums.xl);
            sums.ll = choose(moves, ll, sums.ll);
        }
    }
    integers none = magnitude(top) < least_magnitude;
    for (int i = 0; i < part; i++) codes[i] = choose(none, zero, codes[i] + (float)centre);
    group->scale = choose(none | (sums.ll <= 0), zero, sums.xl / sums.ll);
    group->least = zero;
}

/* The value of the largest magnitude, of several the first. */
BODY float farthest(const float *values)
{
    float found = 0;
    for (int i = 0; i < PARTS_MAX; i++) found = fabsf(values[i]) > fabsf(found) ? values[i] : found;
    return found;
}

BODY void q6_k(const float *weights, uint8_t *to)
{
    struct block block;
    open_block(weights, 16, &block);
    for (int g = 0; g < block.group_count; g++) fit_centred(&block.groups[g], 16, 32);
    take_scales(&block);
    float most = farthest(block.scale), by = -128.0f / most;
    if (fabsf(most) < least_magnitude) {
        memset(to, 0, 210);
        return;
    }
    float d = through_half(1 / by);
    for (int j = 0; j < PARTS_MAX; j++) {
        int s = nearest_one(by * block.scale[j]);
        to[192 + j] = (uint8_t)(s < 127 ? s : 127);
        block.scale[j] = d * (float)(int8_t)to[192 + j];
    }
    gguf_put_half(to + 208, 1 / by);
    round_again(&block, 16, block.scale, block.least, -32, 31);
    for (int half = 0; half < 2; half++) {
        const uint8_t *codes = block.codes + 128 * half;
        for (int i = 0; i < 64; i++)
            to[64 * half + i] = (uint8_t)((codes[i] & 15) | (codes[i + 64] & 15) << 4);
    }
    put_pairs(block.codes, 4, to + 128);
}

/* 16 scales of 6 bits: low four bits in bytes 0 to 7, high two bits in 8 to 11. */
BODY void put_short_scales(struct block *block, float by, float d, uint8_t packed[12])
{
    memset(packed, 0, 12);
    for (int j = 0; j < PARTS_MAX; j++) {
        int s = (int8_t)nearest_one(by * block->scale[j]);
        s = s < -32 ? 0 : (s > 31 ? 31 : s) + 32;
        packed[j % 8] |= (uint8_t)((s & 15) << (j < 8 ? 0 : 4));
        packed[8 + j % 4] |= (uint8_t)(s >> 4 << 2 * (j / 4));
        block->scale[j] = d * (float)(s - 32);
    }
}

BODY void q3_k(const float *weights, uint8_t *to)
{
    struct block block;
    open_block(weights, 16, &block);
    for (int g = 0; g < block.group_count; g++) fit_by_moves(&block.groups[g], 16, 4);
    take_scales(&block);
    float most = farthest(block.scale), by = -32.0f / most, d = most != 0 ? 1 / by : 0;
    if (most != 0)
        put_short_scales(&block, by, through_half(d), to + 96);
    else
        memset(to + 96, 0, 12);
    gguf_put_half(to + 108, d);
    round_again(&block, 16, block.scale, block.least, -4, 3);
    put_bits(block.codes, 2, to);
    put_pairs(block.codes, 0, to + 32);
}

/* ---- Any processor, AVX2 ---- */

#define PASS(name, block_bytes)                                                                              \
    static void name##_any(const float *weights, int64_t blocks, uint8_t *to)                                \
    {                                                                                                        \
        for (int64_t i = 0; i < blocks; i++) name(weights + i * WEIGHTS, to + i * (block_bytes));            \
    }                                                                                                        \
    AVX2 static void name##_avx2(const float *weights, int64_t blocks, uint8_t *to)                          \
    {                                                                                                        \
        for (int64_t i = 0; i < blocks; i++) name(weights + i * WEIGHTS, to + i * (block_bytes));            \
    }                                                                                                        \
    void gguf_encode_##name(const float *weights, int64_t blocks, uint8_t *to)                               \
    {                                                                                                        \
        BEST(name)(weights, blocks, to);                                                                     \
    }
PASS(q2_k, 84)
PASS(q3_k, 110)
PASS(q4_k, 144)
PASS(q5_k, 176)
PASS(q6_k, 210)
