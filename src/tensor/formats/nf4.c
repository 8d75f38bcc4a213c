/* NF4 of bitsandbytes 0.50: the quantiles of a normal distribution. */
#include "tensor/format.h"
#include "tensor/formats/four_bits.h"

static const float map[TT_QUANT_MAP] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

const struct tt_weight_format tt_format_nf4 = {
    .name = "nf4",
    .load_bits = 4,
    .byte_weights = 2,
    .has_state = true,
    .files = {.sign = ".weight.quant_state.bitsandbytes__nf4",
              .tensors = tt_four_bits_tensors,
              .count = TT_FOUR_BITS_TENSORS},
    .map = map,
    .encode = tt_four_bits_encode,
    .decode = tt_four_bits_decode,
};
