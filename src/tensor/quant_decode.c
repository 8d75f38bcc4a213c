/* Decoding on the host: plain code, for tests and tools. */
#include <string.h>

#include "tensor/format.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#else
#pragma STDC FP_CONTRACT OFF
#endif

static float float_at(const uint8_t *section, int64_t index)
{
    float value;
    memcpy(&value, section + index * (int64_t)sizeof value, sizeof value);
    return value;
}

float tt_quant_scale(const struct tt_quant_layout *layout, const void *data, int64_t block)
{
    const uint8_t *segment = data;
    const uint8_t *absmax = segment + layout->absmax.offset;
    if (!layout->format.nested) return float_at(absmax, block);
    float code = float_at(segment + layout->nested_map.offset, absmax[block]);
    float scaled =
        code * float_at(segment + layout->nested_absmax.offset, block / layout->format.nested_block);
    return scaled + float_at(segment + layout->offset.offset, 0);
}

void tt_quant_decode(const struct tt_quant_layout *layout, const void *segment, int64_t first, int64_t count,
                     void *to, tt_dtype dtype)
{
    enum { PIECE = 256 };
    const struct tt_weight_format *format = tt_weight_format(layout->format.type);
    float x[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t some = count - at < PIECE ? count - at : PIECE;
        for (int64_t i = 0; i < some; i++) {
            int64_t index = first + at + i;
            x[i] = format->decode(layout, segment, index,
                                  tt_quant_scale(layout, segment, tt_quant_block_of(layout, index)));
        }
        (void)tt_dtype_convert((char *)to + at * (int64_t)tt_dtype_bytes(dtype), dtype, x, TT_F32,
                               (size_t)some);
    }
}
