/* MXFP4 (tensor/mxfp4.h): numbers in E2M1, and for each block of 32 a power of two, which the nested form of scales
 * holds as its exponent + 127. It is made of numbers that are in this form already, as folders have them: each block
 * gets the least scale that holds its largest number, and decodes to the same numbers. */
#include "tensor/mxfp4.h"

#include <math.h>

#include "tensor/format.h"
#include "tensor/formats/four_bits.h"

/* The order is that of the codes: one bit of sign, two of exponent, one of mantissa. */
static const float map[TT_QUANT_MAP] = {
    0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f,
};

enum { SIGN = 8, LEAST = -127, MOST = 127 };

/* 2^e with 6 * 2^e >= absmax > 3 * 2^e, within the exponents. */
static float scale_of(float absmax)
{
    if (!isfinite(absmax)) return absmax;
    int exponent = absmax > 0 ? ilogbf(absmax) - 2 : LEAST;
    if (absmax > ldexpf(map[SIGN - 1], exponent)) exponent++;
    if (exponent < LEAST) exponent = LEAST;
    return ldexpf(1.0f, exponent > MOST ? MOST : exponent);
}

/* The nearest number, the smaller one of two. */
static uint8_t code_of(float x, float scale)
{
    double size = fabs((double)x) / (double)scale;
    int code = 0;
    for (int i = 1; i < SIGN; i++) code += size > ((double)map[i - 1] + (double)map[i]) / 2;
    return (uint8_t)(signbit(x) ? code | SIGN : code);
}

static void encode(const struct tt_quant_layout *layout, const float *x, int64_t first, int64_t count,
                   const float *scales, uint8_t *codes)
{
    for (int64_t i = 0; i < count; i++) {
        uint8_t code = code_of(x[i], scales[(first + i) / layout->format.block]);
        codes[i / 2] = (uint8_t)(i % 2 == 0 ? code << 4 : codes[i / 2] | code);
    }
}

const struct tt_weight_format tt_format_mxfp4 = {
    .name = "mxfp4",
    .byte_weights = 2,
    .block = TT_MXFP4_BLOCK,
    .powers = true,
    .map = map,
    .scale_of = scale_of,
    .encode = encode,
    .decode = tt_four_bits_decode,
};
