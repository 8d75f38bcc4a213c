/* Convolutions on cuda: bf16 through cuDNN where it has an engine, the rest by our own kernels (plain.h). */
#include "backend/cuda/conv/plain.h"
#include "backend/cuda/conv/cudnn.h"

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

static bool is_of_points(const struct tt_conv_geometry *geometry)
{
    return geometry->kernel == 1 && geometry->stride == 1;
}

tt_status tt_cuda_conv2d_backward_weight(struct tt_stream *stream,
                                         const struct tt_conv2d_backward_weight_args *args)
{
    bool done = false;
    if (args->dz_QO.dims[0] == 0) return TT_OK;
    if (is_of_points(&args->geometry)) return weight_of_points(stream, args);
    TT_TRY(tt_cudnn_conv_weight(stream, args, &done));
    return done ? TT_OK : tt_cuda_conv_plain_weight(stream, args);
}

/* The call of an op above, as far as cuDNN. */
static tt_status ask(struct tt_stream *stream, const struct tt_conv2d_request *request)
{
    bool done = false;
    switch (request->pass) {
    case TT_CONV2D_FORWARD:
        return tt_cudnn_conv_forward(stream, &request->args.forward, &done);
    case TT_CONV2D_BACKWARD_INPUT:
        return tt_cudnn_conv_input(stream, &request->args.input, &done);
    default:
        if (is_of_points(&request->args.weight.geometry)) return TT_OK;
        return tt_cudnn_conv_weight(stream, &request->args.weight, &done);
    }
}

tt_status tt_cuda_conv2d_prepare(struct tt_stream *stream, const struct tt_conv2d_requests *requests)
{
    size_t asked = 1;
    while (asked > 0) {
        tt_status status = TT_OK;
        if (!tt_cudnn_conv_collect(stream)) return TT_OK;
        for (size_t i = 0; i < requests->count && status == TT_OK; i++)
            status = ask(stream, &requests->items[i]);
        tt_status made = tt_cudnn_conv_make(stream, &asked);
        if (status != TT_OK || made != TT_OK) return status != TT_OK ? status : made;
    }
    return TT_OK;
}
