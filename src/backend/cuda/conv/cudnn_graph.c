/* The graphs of convolutions in cuDNN's graph API. */
#include "backend/cuda/conv/cudnn.h"

/* Images in channels-last order as {N, C, H, W}. */
static struct tt_cudnn_tensor image(int64_t images, int64_t channels, int64_t height, int64_t width,
                                    int64_t row)
{
    return (struct tt_cudnn_tensor){.type = CUDNN_DATA_BFLOAT16,
                                    .dims = {images, channels, height, width},
                                    .strides = {height * width * row, 1, width * row, row}};
}

static struct tt_cudnn_tensor in_fp32(struct tt_cudnn_tensor tensor)
{
    tensor.type = CUDNN_DATA_FLOAT;
    return tensor;
}

static struct tt_cudnn_tensor filter(const struct tt_cudnn_conv_shape *shape, cudnnDataType_t type)
{
    int64_t in = shape->in, kernel = shape->kernel;
    return (struct tt_cudnn_tensor){.type = type,
                                    .dims = {shape->out, in, kernel, kernel},
                                    .strides = {kernel * kernel * in, 1, kernel * in, in}};
}

/* Vectors may begin anywhere in a buffer of parameters. */
static struct tt_cudnn_tensor channels(int64_t count)
{
    return (struct tt_cudnn_tensor){.type = CUDNN_DATA_FLOAT,
                                    .dims = {1, count, 1, 1},
                                    .strides = {count, 1, count, count},
                                    .alignment = sizeof(float)};
}

/* y = relu(z * scale + bias + residual): the last operation that there is writes y. */
static void after_forward(struct tt_cudnn_graph *graph, const struct tt_cudnn_conv_shape *shape, int z)
{
    const struct {
        int64_t wanted;
        cudnnPointwiseMode_t mode;
        int operand;
    } steps[] = {
        {shape->scale, CUDNN_POINTWISE_MUL, TT_CONV_ID_SCALE},
        {shape->bias, CUDNN_POINTWISE_ADD, TT_CONV_ID_BIAS},
        {shape->residual_row, CUDNN_POINTWISE_ADD, TT_CONV_ID_RESIDUAL},
        {shape->relu, CUDNN_POINTWISE_RELU_FWD, 0},
    };
    int left = 0;
    for (int i = 0; i < 4; i++) left += steps[i].wanted != 0;
    for (int i = 0; i < 4; i++) {
        if (steps[i].wanted == 0) continue;
        z = tt_cudnn_float(graph, steps[i].mode, z, steps[i].operand, --left == 0 ? TT_CONV_ID_Y : 0);
    }
}

static int64_t side_of_y(const struct tt_cudnn_conv_shape *shape, int64_t side)
{
    return (side + shape->padding + shape->padding_end - shape->kernel) / shape->stride + 1;
}

void tt_cudnn_conv_graph(struct tt_cudnn_graph *graph, const struct tt_cudnn_conv_shape *shape)
{
    int64_t out_h = side_of_y(shape, shape->height), out_w = side_of_y(shape, shape->width);
    struct tt_cudnn_tensor x = image(shape->images, shape->in, shape->height, shape->width, shape->x_row);
    struct tt_cudnn_tensor y = image(shape->images, shape->out, out_h, out_w, shape->y_row);
    bool is_weight = shape->pass == TT_CUDNN_CONV_WEIGHT;
    tt_cudnn_tensor(graph, TT_CONV_ID_X, x);
    tt_cudnn_tensor(graph, TT_CONV_ID_Y, y);
    tt_cudnn_tensor(graph, TT_CONV_ID_W, filter(shape, is_weight ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16));
    struct tt_cudnn_conv conv = {.pass = (enum tt_cudnn_conv_pass)shape->pass,
                                 .stride = shape->stride,
                                 .padding = shape->padding,
                                 .padding_end = shape->padding_end,
                                 .x = TT_CONV_ID_X,
                                 .w = TT_CONV_ID_W,
                                 .y = TT_CONV_ID_Y};
    if (is_weight) {
        /* A convolution whose result is fp32 is refused; one with a copy behind it is not. */
        conv.w = tt_cudnn_virtual(graph, filter(shape, CUDNN_DATA_FLOAT));
        tt_cudnn_convolution(graph, &conv);
        tt_cudnn_float(graph, CUDNN_POINTWISE_IDENTITY, conv.w, 0, TT_CONV_ID_W);
        return;
    }
    if (shape->pass == TT_CUDNN_CONV_INPUT) {
        if (shape->accumulate) {
            tt_cudnn_tensor(graph, TT_CONV_ID_RESIDUAL, x);
            conv.x = tt_cudnn_virtual(graph, in_fp32(x));
        }
        tt_cudnn_convolution(graph, &conv);
        if (shape->accumulate)
            tt_cudnn_float(graph, CUDNN_POINTWISE_ADD, conv.x, TT_CONV_ID_RESIDUAL, TT_CONV_ID_X);
        return;
    }
    if (shape->scale) tt_cudnn_tensor(graph, TT_CONV_ID_SCALE, channels(shape->out));
    if (shape->bias) tt_cudnn_tensor(graph, TT_CONV_ID_BIAS, channels(shape->out));
    if (shape->residual_row > 0)
        tt_cudnn_tensor(graph, TT_CONV_ID_RESIDUAL,
                        image(shape->images, shape->out, out_h, out_w, shape->residual_row));
    bool plain = !shape->scale && !shape->bias && shape->residual_row == 0 && !shape->relu;
    if (!plain) conv.y = tt_cudnn_virtual(graph, in_fp32(y));
    tt_cudnn_convolution(graph, &conv);
    if (!plain) after_forward(graph, shape, conv.y);
}
