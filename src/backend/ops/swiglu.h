/* Gated linear units (Shazeer, arXiv 2002.05202): h = act(gate) * up. Most activations have the form
 * act(x) = x f(x):
 *     SiLU       f = 1 / (1 + exp(-x))
 *     GELU       f = (1 + erf(x / sqrt(2))) / 2 (Hendrycks and Gimpel, arXiv 1606.08415)
 *     GELU tanh  f = (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
 *     ReLU^2     f = max(x, 0) (So et al., arXiv 2109.08668)
 *     sigmoid    act = f = 1 / (1 + exp(-x)), which gates the output of attention
 *     clamped    act(x) = z / (1 + exp(-1.702 z)), z = min(x, 7), and min(max(up, -7), 7) + 1 in the place of up
 *                (GptOssExperts of transformers); gradients are 0 where a number is cut
 * The activation alone, h = act(gate), is the unit without up.
 * The tensors of one pass have one shape: rows, or the heads of rows [T, H, E] with any strides (a gate beside each
 * head of q).
 * Backward: dup = dh * act(gate); dgate = dh * up * act'(gate), which is dh * up * (f + gate * f'). */
#ifndef TT_BACKEND_OPS_SWIGLU_H
#define TT_BACKEND_OPS_SWIGLU_H

#include "backend/device.h"
#include "backend/ops/matrix.h"
#include "tensor/tensor.h"

enum tt_activation {
    TT_ACTIVATION_SILU,
    TT_ACTIVATION_GELU,
    TT_ACTIVATION_GELU_TANH,
    TT_ACTIVATION_SIGMOID,
    TT_ACTIVATION_RELU2,
    TT_ACTIVATION_CLAMPED,
    TT_ACTIVATIONS
};

/* The clamped one's border and factor. */
#define TT_SWIGLU_LIMIT 7.0f
#define TT_SWIGLU_ALPHA 1.702f

struct tt_swiglu_forward_args {
    enum tt_activation activation;
    tt_tensor gate_TF; /* f32 | bf16; rows may be strided, here and of up (halves of one [T, 2F]) */
    tt_tensor up_TF;   /* empty: act(gate) */
    tt_tensor h_TF;    /* may alias gate */
};
TT_MUST_USE tt_status tt_swiglu_forward(struct tt_stream *stream, const struct tt_swiglu_forward_args *args);

struct tt_swiglu_backward_args {
    enum tt_activation activation;
    tt_tensor dh_TF;
    tt_tensor gate_TF, up_TF;   /* up empty, and then dup: act(gate) */
    tt_tensor dgate_TF, dup_TF; /* may alias gate and up */
    tt_tensor h_TF;             /* empty, or output: act(gate) * up, recomputed; may alias dh */
};
TT_MUST_USE tt_status tt_swiglu_backward(struct tt_stream *stream,
                                         const struct tt_swiglu_backward_args *args);

/* Gate and up kept for backward in FP8, each with a scale a row, as by tt_quantize_rows; layout NULL: they are not. */
struct tt_swiglu_coded {
    struct tt_coded gate_TF, up_TF;
};

static inline bool tt_swiglu_is_coded(const struct tt_swiglu_coded *coded)
{
    return coded->gate_TF.layout != NULL;
}

/* The same, and the rows of the result in FP8 as by tt_quantize_rows (gemm_scaled.h): the same codes and scales. A GPU
 * has one kernel for both where tt_swiglu_rows_in_one_pass; it need not store a result that nobody else reads. */
struct tt_swiglu_rows_args {
    struct tt_swiglu_forward_args pass; /* h_TF: empty only in one pass */
    tt_tensor codes_TF, scale_T;        /* F8_E4M3 contiguous, f32 */
    struct tt_swiglu_coded kept;        /* none, or outputs: gate and up, of which h is not made */
};
TT_MUST_USE tt_status tt_swiglu_rows(struct tt_stream *stream, const struct tt_swiglu_rows_args *args);

/* The rows are those of [dgate | dup]. From `coded` gate and up are read as tt_dequantize decodes them into dh's type;
 * gate_TF and up_TF are then empty. */
struct tt_swiglu_rows_backward_args {
    /* dgate_TF, dup_TF: halves of one matrix; both empty only in one pass */
    struct tt_swiglu_backward_args pass;
    tt_tensor codes_T2F, scale_T;
    struct tt_swiglu_coded coded; /* none, or inputs */
};
TT_MUST_USE tt_status tt_swiglu_rows_backward(struct tt_stream *stream,
                                              const struct tt_swiglu_rows_backward_args *args);

/* Whether the kernel takes rows of `width` (F) columns of this type, in vectors of 8; whether this device has it. */
static inline bool tt_swiglu_rows_fit(int64_t width, tt_dtype dtype)
{
    return dtype == TT_BF16 && width % 8 == 0 && width <= 32768;
}
bool tt_swiglu_rows_in_one_pass(const struct tt_device *device, int64_t width, tt_dtype dtype);

#endif
