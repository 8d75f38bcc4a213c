/* Convolutions that support everything: both types, any alignment, any number of channels. They multiply as the
 * operands are stored and add in fp32 in the order of taps and channels, or of pixels for the gradient of the weights.
 * They serve fp32, and what cuDNN declines, at a tenth of cuDNN's speed or less. */
#ifndef TT_BACKEND_CUDA_CONV_PLAIN_H
#define TT_BACKEND_CUDA_CONV_PLAIN_H

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

tt_status tt_cuda_conv_plain_forward(struct tt_stream *stream, const struct tt_conv2d_forward_args *args);
tt_status tt_cuda_conv_plain_input(struct tt_stream *stream,
                                   const struct tt_conv2d_backward_input_args *args);
tt_status tt_cuda_conv_plain_weight(struct tt_stream *stream,
                                    const struct tt_conv2d_backward_weight_args *args);

/* Copies between torch's order of filters and cuDNN's. `taps` is kernel * kernel.
 * to [rows, taps, C] (bf16) = from [O, C, taps] (bf16); rows - O filters are 0. */
tt_status tt_cuda_conv_filters(struct tt_stream *stream, void *to, int64_t rows, tt_tensor from_OK,
                               int64_t taps);
/* to [O, C, taps] (f32) += from [rows, taps, C] (f32), the first O filters. */
tt_status tt_cuda_conv_add_filters(struct tt_stream *stream, tt_tensor to_OK, const float *from,
                                   int64_t taps);
/* to [pixels, columns] (bf16) = from [pixels, C] (bf16), 0 beyond C. */
tt_status tt_cuda_conv_pad(struct tt_stream *stream, void *to, int64_t columns, tt_tensor from_PC);

#ifdef __cplusplus
}
#endif

#endif
