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
/* to [O, C, taps] (f32) += from [rows, taps, in] (f32), the first O filters and C channels. */
tt_status tt_cuda_conv_add_filters(struct tt_stream *stream, tt_tensor to_OK, const float *from, int64_t in,
                                   int64_t taps);
/* Pixels in pairs of rows and columns (forward_of_pairs in cudnn.c).
 * to [images, H / 2, W / 2, (2 rows, 2 columns, 4 channels)] (bf16) = from [images * H * W, C], C <= 4, 0 beyond C. */
tt_status tt_cuda_conv_pair_pixels(struct tt_stream *stream, void *to, tt_tensor from_PC, int64_t width);
/* to [O, size, size, (2 rows, 2 columns, 4 channels)] (bf16) = from [O, C, kernel, kernel], behind one row and column
 * of zeros, and 0 beyond. */
tt_status tt_cuda_conv_pair_filters(struct tt_stream *stream, void *to, tt_tensor from_OK, int64_t kernel,
                                    int64_t size);
/* Zeros in the rest of the last group of channels of rows with room for it. */
tt_status tt_cuda_conv_clear_padding(struct tt_stream *stream, tt_tensor y_PC);
/* to [pixels, columns] (bf16) = from [pixels, C] (bf16), 0 beyond C. */
tt_status tt_cuda_conv_pad(struct tt_stream *stream, void *to, int64_t columns, tt_tensor from_PC);

#ifdef __cplusplus
}
#endif

#endif
