/* The ops of ops/gemm_fused.h and ops/gemm_dropout.h as products and passes one after the other, by the
 * device's own table: what a back end does that has no single pass for them. Arguments have been checked. */
#ifndef TT_BACKEND_COMPOSE_H
#define TT_BACKEND_COMPOSE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/device_impl.h"

/* Where the device is not the host the narrow products come first and the wide one adds to them: reading y
 * then hides behind the wide one's arithmetic, while y += h B^T would pass over y once more. 16384 x 6144, in
 * 4096, r 24 on an H200 (2026-11-21): 0.09 + 1.20 ms instead of 1.19 + 0.18. */
tt_status tt_compose_gemm_lora(struct tt_stream *stream, const struct tt_gemm_lora_args *args);
/* The rotation of gemm_lora's y, once the product is there. */
tt_status tt_compose_rotation(struct tt_stream *stream, const struct tt_gemm_lora_args *args);
tt_status tt_compose_gemm_swiglu(struct tt_stream *stream, const struct tt_gemm_swiglu_args *args);
tt_status tt_compose_gemm_swiglu_backward(struct tt_stream *stream,
                                          const struct tt_gemm_swiglu_backward_args *args);
tt_status tt_compose_gemm_dropout(struct tt_stream *stream, const struct tt_gemm_dropout_args *args);
tt_status tt_compose_gemm_dropout_weights(struct tt_stream *stream,
                                          const struct tt_gemm_dropout_weights_args *args);
tt_status tt_compose_gemm_dropout_input(struct tt_stream *stream,
                                        const struct tt_gemm_dropout_input_args *args);

/* What cuda/gemm_dropout.cu has kernels for, and plans go by too: bf16, columns in 32s, one rank for all
 * parts, in 8s up to 64. */
bool tt_dropout_is_one_pass(tt_tensor wide, const struct tt_dropout_parts *parts, bool weights);
/* How many adapters of such a rank a pass takes together: their sums have to fit into registers. */
int tt_dropout_together(int64_t r, int count);

#ifdef __cplusplus
}
#endif

#endif
