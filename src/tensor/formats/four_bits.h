#ifndef TT_TENSOR_FORMATS_FOUR_BITS_H
#define TT_TENSOR_FORMATS_FOUR_BITS_H

#include "tensor/format.h"

/* The codes may have any type: bnb_4bit_quant_storage is a name for their bytes. */
enum { TT_FOUR_BITS_TENSORS = 5 };
extern const struct tt_format_tensor tt_four_bits_tensors[TT_FOUR_BITS_TENSORS];

/* encode and decode (tensor/format.h) of the formats of 4 bits. */
void tt_four_bits_encode(const struct tt_quant_layout *layout, const float *x, int64_t first, int64_t count,
                         const float *absmax, uint8_t *codes);
float tt_four_bits_decode(const struct tt_quant_layout *layout, const uint8_t *segment, int64_t index,
                          float absmax);

#endif
