/* FP8: codes in E4M3 with a scale a row (tensor/e4m3.h), the channel form of compressed-tensors, which vLLM, SGLang and
 * transformers read; or with scales of squares, as DeepSeek-V3 has them. The section `absmax` holds the scales
 * themselves, because products take them as they are. */
#include "tensor/e4m3.h"

#include <stddef.h>

#include "tensor/encode_isa.h"
#include "tensor/format.h"

BODY void round_e4m3(const float *x, int64_t count, float scale, uint8_t *to)
{
    for (int64_t i = 0; i < count; i++) to[i] = tt_e4m3_from_f32(x[i] / scale);
}

static void round_e4m3_any(const float *x, int64_t count, float scale, uint8_t *to)
{
    round_e4m3(x, count, scale, to);
}

AVX2 static void round_e4m3_avx2(const float *x, int64_t count, float scale, uint8_t *to)
{
    round_e4m3(x, count, scale, to);
}

static void encode(const struct tt_quant_layout *layout, const float *x, int64_t first, int64_t count,
                   const float *scales, uint8_t *codes)
{
    for (int64_t here, i = 0; i < count; i += here) {
        int64_t row = (first + i) / layout->cols, end = (row + 1) * layout->cols;
        here = end - (first + i) < count - i ? end - (first + i) : count - i;
        BEST(round_e4m3)(x + i, here, scales[row], codes + i);
    }
}

static float decode(const struct tt_quant_layout *layout, const uint8_t *segment, int64_t index, float scale)
{
    return tt_e4m3_to_f32(segment[layout->codes.offset + (size_t)index]) * scale;
}

static const struct tt_format_tensor tensors[] = {
    {".weight", offsetof(struct tt_quant_layout, codes), TT_F8_E4M3, TT_F8_E4M3},
    {".weight_scale", offsetof(struct tt_quant_layout, absmax), TT_F32, TT_F32},
};

static const char *const unread[] = {".input_scale", ".output_scale", ".activation_scale", NULL};

const struct tt_weight_format tt_format_fp8 = {
    .name = "fp8",
    .byte_weights = 1,
    .row_blocks = true,
    .square = TT_FP8_BLOCK,
    .files = {.sign = ".weight_scale",
              .sign_too = ".weight_scale_inv",
              .unread = unread,
              .tensors = tensors,
              .count = sizeof tensors / sizeof *tensors,
              .original = TT_BF16,
              .compressed = true},
    .multiplies = true,
    .scale_of = tt_e4m3_scale,
    .encode = encode,
    .decode = decode,
};
