/* Rows rounded to E4M3 and back, in groups of TT_FP8_BLOCK columns, the last of a row cut: what products over weights
 * with scales of squares (tensor/quant.h) read of their input on a server. Sources: vLLM's
 * csrc/quantization/w8a8/fp8/per_token_group_quant.cu; act_quant of DeepSeek-V3's inference/kernel.py.
 *
 *     scale = tt_e4m3_scale(largest size of the group), and tt_e4m3_power of it with `by_powers`
 *     y = E4M3(x / scale) * scale
 *
 * in fp32, each operation rounded separately; rounded once to y's type. Infinity and NaN make all of their group NaN.
 * The same bits on every device. */
#ifndef TT_BACKEND_OPS_ROUND_GROUPS_H
#define TT_BACKEND_OPS_ROUND_GROUPS_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_round_groups_args {
    tt_tensor x_MK; /* f32 | bf16, rows may be strided */
    bool by_powers; /* scales are rounded up to powers of two */
    tt_tensor y_MK; /* x's type and shape; x itself or apart from it */
};
TT_MUST_USE tt_status tt_round_groups(struct tt_stream *stream, const struct tt_round_groups_args *args);

#endif
