/* E4M3, the 8-bit float of Micikevicius et al., arXiv 2209.05433: a sign, 4 bits of exponent, 3 of mantissa; the
 * largest number is 448, there is no infinity, and one code of each sign is NaN. Numbers are coded as CUDA's
 * saturating conversion does: rounded to nearest even, larger ones to 448, NaN to NaN.
 *
 * A row of numbers has one scale: the row is code * scale, and the code is that of number / scale, as in
 * compressed-tensors. The rule for the scale is the same for weights, activations and gradients, on every device:
 * largest size of the row / 448, of at least 2^-100 / 448, so that 1 / scale is a normal number for every row, also for
 * one of zeros. Infinity and NaN in a row make its scale infinite or NaN, and with it all of the row's products. */
#ifndef TT_TENSOR_E4M3_H
#define TT_TENSOR_E4M3_H

#include <stdint.h>
#include <string.h>

#define TT_E4M3_MOST 448.0f
#define TT_E4M3_LEAST_ROW 0x1p-100f
#define TT_E4M3_NAN 0x7f

/* `largest`: of the sizes |x| of the row. */
static inline float tt_e4m3_scale(float largest)
{
    return (largest < TT_E4M3_LEAST_ROW ? TT_E4M3_LEAST_ROW : largest) / TT_E4M3_MOST;
}

/* The scale rounded up to a power of two, as F8_E8M0 has them; infinity and NaN stay. */
static inline float tt_e4m3_power(float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    if (bits < 0x7f800000u && (bits & 0x7fffffu) != 0) bits = (bits & 0x7f800000u) + 0x800000u;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

/* Written without branches, so that a loop over it becomes vector code: choices are masks, because a compiler does not
 * move an addition, which might trap, out of a condition. */
static inline uint8_t tt_e4m3_from_f32(float value)
{
    const uint32_t least_normal = 121u << 23, most = 0x7e, nan = 0x7f; /* 2^-6 */
    const float magic = 0x1p14f; /* its last bit is 2^-9, the step below 2^-6 */
    uint32_t bits, size, small, magic_bits;
    memcpy(&bits, &value, sizeof bits);
    size = bits & 0x7fffffffu;
    float positive, sum;
    memcpy(&positive, &size, sizeof positive);
    sum = positive + magic;
    memcpy(&small, &sum, sizeof small);
    memcpy(&magic_bits, &magic, sizeof magic_bits);
    small -= magic_bits;
    uint32_t normal = ((size + 0x7ffffu + (size >> 20 & 1u)) >> 20) - (120u << 3);
    uint32_t large = normal < most ? normal : most;
    uint32_t is_small = -(uint32_t)(size < least_normal), is_nan = -(uint32_t)(size > 0x7f800000u);
    uint32_t code = (small & is_small) | (large & ~is_small) | (bits >> 24 & 0x80u);
    return (uint8_t)((nan & is_nan) | (code & ~is_nan));
}

static inline float tt_e4m3_to_f32(uint8_t code)
{
    uint32_t bits = (uint32_t)(code & 0x7f) << 20, sign = (uint32_t)(code & 0x80) << 24;
    float size;
    if ((code & 0x7f) == TT_E4M3_NAN) bits = 0x7fc00000u;
    memcpy(&size, &bits, sizeof size);
    if ((code & 0x7f) < 8)
        size = (float)(code & 7) * 0x1p-9f;
    else if ((code & 0x7f) != TT_E4M3_NAN)
        size *= 0x1p120f;
    memcpy(&bits, &size, sizeof bits);
    bits |= sign;
    memcpy(&size, &bits, sizeof size);
    return size;
}

#endif
