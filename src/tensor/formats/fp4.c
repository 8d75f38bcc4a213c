/* FP4 of bitsandbytes 0.50. */
#include "tensor/format.h"
#include "tensor/formats/four_bits.h"

/* One bit of sign, two of exponent, one of mantissa, largest value 1; in the order of the bits. */
static const float map[TT_QUANT_MAP] = {
    0.0f, 0.0625f / 12,  8.0f / 12,  12.0f / 12,  4.0f / 12,  6.0f / 12,  2.0f / 12,  3.0f / 12,
    0.0f, -0.0625f / 12, -8.0f / 12, -12.0f / 12, -4.0f / 12, -6.0f / 12, -2.0f / 12, -3.0f / 12,
};

const struct tt_weight_format tt_format_fp4 = {
    .name = "fp4",
    .load_bits = 4,
    .byte_weights = 2,
    .has_state = true,
    .files = {.sign = ".weight.quant_state.bitsandbytes__fp4",
              .tensors = tt_four_bits_tensors,
              .count = TT_FOUR_BITS_TENSORS},
    .map = map,
    .encode = tt_four_bits_encode,
    .decode = tt_four_bits_decode,
};
