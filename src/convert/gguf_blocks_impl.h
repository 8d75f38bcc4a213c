/* Encoders of the types of gguf_types.def: for src/convert alone. */
#ifndef TT_CONVERT_GGUF_BLOCKS_IMPL_H
#define TT_CONVERT_GGUF_BLOCKS_IMPL_H

#include "tensor/dtype.h"

#define PLAIN(word, number, name, dtype)
#define BLOCKS(word, number, name, weights_, bytes, at, halves, encode)                                      \
    void encode(const float *weights, int64_t blocks, uint8_t *to);
#include "convert/gguf_types.def"
#undef PLAIN
#undef BLOCKS

/* Little-endian; returns where to go on. */
static inline uint8_t *gguf_put_half(uint8_t *to, float value)
{
    uint16_t bits = tt_f32_to_f16(value);
    to[0] = (uint8_t)bits;
    to[1] = (uint8_t)(bits >> 8);
    return to + 2;
}

#endif
