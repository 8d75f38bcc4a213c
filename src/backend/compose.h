/* Ops of ops/gemm_fused.h, gemm_dropout.h, lora_gradients.h, swiglu.h, ready_heads.h and quant.h composed of successive
 * products and passes of the device's own table, for back ends without a fused pass. Arguments were checked. */
#ifndef TT_BACKEND_COMPOSE_H
#define TT_BACKEND_COMPOSE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/device_impl.h"

/* The narrow products come first on devices other than the host, and the wide product adds to them: its arithmetic
 * hides the reading of y, while y += h B^T would need another pass over y. 16384 x 6144, in 4096, r 24 on an H200
 * (2026-11-21): 0.09 + 1.20 ms instead of 1.19 + 0.18. */
tt_status tt_compose_gemm_lora(struct tt_stream *stream, const struct tt_gemm_lora_args *args);
/* The rotation of gemm_lora's y, after the product. */
tt_status tt_compose_rotation(struct tt_stream *stream, const struct tt_gemm_lora_args *args);
tt_status tt_compose_gemm_swiglu(struct tt_stream *stream, const struct tt_gemm_swiglu_args *args);
tt_status tt_compose_gemm_swiglu_backward(struct tt_stream *stream,
                                          const struct tt_gemm_swiglu_backward_args *args);
/* SwiGLU, then the rounding of its rows, in two passes: the result in its own type must be given. */
tt_status tt_compose_swiglu_rows(struct tt_stream *stream, const struct tt_swiglu_rows_args *args);
tt_status tt_compose_swiglu_rows_backward(struct tt_stream *stream,
                                          const struct tt_swiglu_rows_backward_args *args);
/* Norms, rotations and copies, one after the other. */
tt_status tt_compose_ready_heads(struct tt_stream *stream, const struct tt_ready_heads_args *args);
/* The numbers of a quantized matrix in the scratch, then their rows in FP8. */
tt_status tt_compose_recode_rows(struct tt_stream *stream, const struct tt_recode_rows_args *args);
tt_status tt_compose_gemm_dropout(struct tt_stream *stream, const struct tt_gemm_dropout_args *args);
tt_status tt_compose_gemm_dropout_weights(struct tt_stream *stream,
                                          const struct tt_gemm_dropout_weights_args *args);
tt_status tt_compose_gemm_dropout_input(struct tt_stream *stream,
                                        const struct tt_gemm_dropout_input_args *args);
tt_status tt_compose_lora_gradients(struct tt_stream *stream, const struct tt_lora_gradients_args *args);

/* True for the cases with kernels in cuda/gemm/lora_gradients.cu, also for plans: bf16, all db given and in fp32, one
 * rank for all parts, a multiple of 8 up to 32, outputs in multiples of 8. */
bool tt_lora_gradients_in_one_pass(const struct tt_lora_gradients_args *args);
/* True for the cases with kernels in cuda/gemm/dropout.cu, also for plans: bf16, columns a multiple of 32, one rank for
 * all parts, a multiple of 8 up to 64. */
bool tt_dropout_is_one_pass(tt_tensor wide, const struct tt_dropout_parts *parts, bool weights);
/* Number of adapters of rank r in one pass, whose sums must fit into registers. */
int tt_dropout_together(int64_t r, int count);

#ifdef __cplusplus
}
#endif

#endif
