/* int8 of bitsandbytes 0.50: a scale a row. The weights are rounded to fp16 first. */
#include <math.h>
#include <stddef.h>

#include "tensor/encode_isa.h"
#include "tensor/format.h"

/* Rounding is to nearest even; |x| * factor <= 127. */
BODY void round_int8(const float *x, int64_t count, float factor, int8_t *to)
{
    for (int64_t i = 0; i < count; i++) to[i] = (int8_t)(int32_t)nearbyintf(x[i] * factor);
}

static void round_int8_any(const float *x, int64_t count, float factor, int8_t *to)
{
    round_int8(x, count, factor, to);
}

AVX2 static void round_int8_avx2(const float *x, int64_t count, float factor, int8_t *to)
{
    round_int8(x, count, factor, to);
}

static void encode(const struct tt_quant_layout *layout, const float *x, int64_t first, int64_t count,
                   const float *absmax, uint8_t *codes)
{
    for (int64_t here, i = 0; i < count; i += here) {
        int64_t row = (first + i) / layout->cols, end = (row + 1) * layout->cols;
        here = end - (first + i) < count - i ? end - (first + i) : count - i;
        /* as torch divides a scalar by a tensor */
        float factor = absmax[row] > 0 ? 1.0f / absmax[row] * 127.0f : 0.0f;
        BEST(round_int8)(x + i, here, factor, (int8_t *)codes + i);
    }
}

static float decode(const struct tt_quant_layout *layout, const uint8_t *segment, int64_t index, float absmax)
{
    float scaled = (float)(int8_t)segment[layout->codes.offset + (size_t)index] * absmax;
    return scaled * (1.0f / 127.0f);
}

static const struct tt_format_tensor tensors[] = {
    {".weight", offsetof(struct tt_quant_layout, codes), TT_I8, TT_I8},
    {".SCB", offsetof(struct tt_quant_layout, absmax), TT_F32, TT_F32},
};

const struct tt_weight_format tt_format_int8 = {
    .name = "int8",
    .load_bits = 8,
    .byte_weights = 1,
    .row_blocks = true,
    .through_f16 = true,
    .files = {.sign = ".SCB",
              .order = ".weight_format",
              .tensors = tensors,
              .count = sizeof tensors / sizeof *tensors,
              .original = TT_F16},
    .encode = encode,
    .decode = decode,
};
