/* MXFP4 (OCP Microscaling Formats Specification 1.0): blocks of 32 numbers in E2M1, two a byte, the first in the low
 * half, and for each block a power of two, 2^(scale - 127). */
#ifndef TT_TENSOR_MXFP4_H
#define TT_TENSOR_MXFP4_H

#include <stdint.h>

enum { TT_MXFP4_BLOCK = 32, TT_MXFP4_BYTES = TT_MXFP4_BLOCK / 2 };

/* Numbers first .. first + count - 1 as BF16, which holds all of them: the same bits as those of transformers 5.24
 * (convert_moe_packed_tensors of integrations/mxfp4.py), infinities of the scales 254 and 255 included. */
void tt_mxfp4_decode(const uint8_t *codes, const uint8_t *scales, int64_t first, int64_t count, uint16_t *to);

#endif
