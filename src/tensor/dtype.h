/* Element types, with the names that safetensors and Hugging Face's config files give them. */
#ifndef TT_TENSOR_DTYPE_H
#define TT_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum tt_dtype {
    TT_DTYPE_NONE = 0,
    TT_F32,
    TT_BF16,
    TT_F16,
    TT_F64,
    TT_I64,
    TT_I32,
    TT_I16,
    TT_I8,
    TT_U8,
    TT_BOOL,
    TT_U16,
    TT_U32,
    TT_U64,
    TT_F8_E4M3,
    TT_F8_E5M2,
    TT_F8_E8M0, /* 2^(code - 127): scales */
    TT_DTYPE_COUNT
} tt_dtype;

size_t tt_dtype_bytes(tt_dtype dtype);                       /* bytes of one element */
const char *tt_dtype_name(tt_dtype dtype);                   /* "BF16": safetensors' spelling */
const char *tt_dtype_torch_name(tt_dtype dtype);             /* "bfloat16": config.json's spelling */
tt_dtype tt_dtype_from_name(const char *name, size_t bytes); /* safetensors' spelling; NONE when unknown */
/* "bfloat16", "torch.bfloat16", "bf16"; NONE */
tt_dtype tt_dtype_from_torch_name(const char *name);
bool tt_dtype_is_float(tt_dtype dtype);

/* bf16 is the upper half of an IEEE float; rounding is to nearest even, NaN stays NaN. */
static inline float tt_bf16_to_f32(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline uint16_t tt_f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x0040u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float tt_f16_to_f32(uint16_t bits);
uint16_t tt_f32_to_f16(float value);

/* Converts `count` elements between any two of F32, BF16, F16, F64 in host memory (same type: a copy). Returns false
 * for any other pair. The regions must not overlap, unless type and address are equal. */
bool tt_dtype_convert(void *to, tt_dtype to_dtype, const void *from, tt_dtype from_dtype, size_t count);

#endif
