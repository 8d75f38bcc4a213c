/* Convolutions in bf16 through cuDNN's graph API: one graph a pass, with bias, norm and relu in it. */
#ifndef TT_BACKEND_CUDA_CONV_CUDNN_H
#define TT_BACKEND_CUDA_CONV_CUDNN_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/cudnn/graph.h"
#include "backend/ops/conv.h"

/* Everything that a plan depends on. All members are int64_t, so that two shapes can be compared as bytes. */
struct tt_cudnn_conv_shape {
    int64_t pass; /* enum tt_cudnn_conv_pass */
    int64_t images, height, width, in, out, kernel, stride;
    int64_t padding, padding_end; /* above and left, below and right */
    int64_t x_row, y_row;         /* elements from pixel to pixel of x and y, or of their gradients */
    int64_t residual_row;         /* 0: none */
    int64_t scale, bias, relu, accumulate; /* 0 or 1 */
};

/* Ids of the real tensors. Filters are [O, kernel, kernel, C]: bf16, or fp32 as the result of TT_CUDNN_CONV_WEIGHT. */
enum tt_cudnn_conv_id {
    TT_CONV_ID_X = 1,
    TT_CONV_ID_W,
    TT_CONV_ID_Y,
    TT_CONV_ID_SCALE,
    TT_CONV_ID_BIAS,
    TT_CONV_ID_RESIDUAL, /* forward: added before the relu; gradient of the input: what is there already */
};

/* cudnn.c: one pass through cuDNN. `done` is false where cuDNN cannot be used, is older than 9.18.1 or has no plan
 * for the shape. Filters are copied into cuDNN's order first; channels of y that are no multiple of 8 are computed in
 * their padding, or padded, image by image, for the backward passes, as those of x are for the gradient of the weight.
 * A convolution with stride 2 of a few channels is computed on 2 x 2 pixels as one. */
TT_MUST_USE tt_status tt_cudnn_conv_forward(struct tt_stream *stream,
                                            const struct tt_conv2d_forward_args *args, bool *done);
TT_MUST_USE tt_status tt_cudnn_conv_input(struct tt_stream *stream,
                                          const struct tt_conv2d_backward_input_args *args, bool *done);
TT_MUST_USE tt_status tt_cudnn_conv_weight(struct tt_stream *stream,
                                           const struct tt_conv2d_backward_weight_args *args, bool *done);

/* Plans of many shapes at once, before their first use. After collect the three calls above queue nothing: they
 * remember the shapes that have no plan yet. make ends that and builds the plans by threads, one for each processor of
 * the rank and 16 at most; a shape without a plan may then lead to another one, so both are called until *asked, the
 * number of shapes, is 0. collect returns false where cuDNN cannot be used. */
bool tt_cudnn_conv_collect(struct tt_stream *stream);
TT_MUST_USE tt_status tt_cudnn_conv_make(struct tt_stream *stream, size_t *asked);

/* cudnn_graph.c: adds the operations of one pass; errors stay in the graph. */
void tt_cudnn_conv_graph(struct tt_cudnn_graph *graph, const struct tt_cudnn_conv_shape *shape);

#endif
