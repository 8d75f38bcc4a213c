/* Convolutions on cuda: bf16 through cuDNN where it has an engine, the rest by our own kernels (conv_plain.h). */
#include "backend/cuda/conv_plain.h"
#include "backend/cuda/cudnn_conv.h"

tt_status tt_cuda_conv2d_forward(struct tt_stream *stream, const struct tt_conv2d_forward_args *args)
{
    bool done = false;
    if (args->y_QO.dims[0] == 0) return TT_OK;
    TT_TRY(tt_cudnn_conv_forward(stream, args, &done));
    if (done) return TT_OK;
    if (args->padded) TT_TRY(tt_cuda_conv_clear_padding(stream, args->y_QO));
    return tt_cuda_conv_plain_forward(stream, args);
}

tt_status tt_cuda_conv2d_backward_input(struct tt_stream *stream,
                                        const struct tt_conv2d_backward_input_args *args)
{
    bool done = false;
    if (args->dx_PC.dims[0] == 0) return TT_OK;
    TT_TRY(tt_cudnn_conv_input(stream, args, &done));
    return done ? TT_OK : tt_cuda_conv_plain_input(stream, args);
}

/* A product over all pixels: cuBLASLt splits the long sum, and cuDNN's kernels with fp32 results do not. With 8 images
 * of 800 x 800 on an H100, cuDNN took 1,540 us for 256 -> 128 channels at 200 x 200 pixels (torch 99), and 393 for
 * 512 -> 128 at 100 x 100 (torch 46). */
static tt_status weight_of_points(struct tt_stream *stream, const struct tt_conv2d_backward_weight_args *args)
{
    const struct tt_gemm_args product = {
        .a = args->dz_QO, .b = args->x_PC, .c = args->dw_OK, .trans_a = true, .alpha = 1.0f, .beta = 1.0f};
    return tt_cuda_gemm(stream, &product);
}

tt_status tt_cuda_conv2d_backward_weight(struct tt_stream *stream,
                                         const struct tt_conv2d_backward_weight_args *args)
{
    bool done = false;
    if (args->dz_QO.dims[0] == 0) return TT_OK;
    if (args->geometry.kernel == 1 && args->geometry.stride == 1) return weight_of_points(stream, args);
    TT_TRY(tt_cudnn_conv_weight(stream, args, &done));
    return done ? TT_OK : tt_cuda_conv_plain_weight(stream, args);
}
