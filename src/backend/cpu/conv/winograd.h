/* Convolutions of 3 x 3 with stride 1 by Winograd's minimal filtering F(4 x 4, 3 x 3) (Lavin and Gray 2015, arXiv
 * 1509.09308): 4 x 4 places of y are made of 36 products instead of 144. Transforms and products are fp32, also between
 * images of bf16.
 *
 * Error: with the points 0, 1, -1, 1/2, -2 (Barabasz et al. 2020, arXiv 1803.10986) and sums of LEAST_CHANNELS channels
 * or more, in pieces of 64, it is at most twice that of a plain loop in fp32, as for all ops; with the usual points 2
 * and -2 it would be four times. Fewer channels are left to the direct product, whose sums are then so short that it
 * has less. A tile's sums depend on the channels alone: an image has the same bits in any batch, on any number of
 * threads. */
#ifndef TT_BACKEND_CPU_CONV_WINOGRAD_H
#define TT_BACKEND_CPU_CONV_WINOGRAD_H

#include "backend/cpu/gemm/variants.h"
#include "backend/ops/conv.h"

struct tt_winograd {
    int64_t images, height, width; /* of x and y, whose places are the same */
    tt_tensor x_PC, y_QO;          /* f32 | bf16, the same */
    const void *w;                 /* their type: element (o, c, tap) is at o * w_out + c * w_in + tap */
    int64_t w_out, w_in;
    bool flipped; /* tap 8 - tap instead: the gradient of x is such a convolution of dz */
    struct tt_gemm_epilogue epilogue;
};

/* Whether it is faster than the direct product, by the shape alone. */
bool tt_winograd_takes(const struct tt_stream *stream, const struct tt_conv_geometry *geometry,
                       tt_dtype dtype, int64_t in, int64_t out);
void tt_winograd_run(struct tt_stream *stream, const struct tt_winograd *problem);

/* The same for the gradient of the weights, by the transposed algorithm; its scratch_OK is not used. */
bool tt_winograd_takes_weight(const struct tt_stream *stream, const struct tt_conv_geometry *geometry,
                              tt_dtype dtype, int64_t in, int64_t out);
void tt_winograd_run_weight(struct tt_stream *stream, const struct tt_conv2d_backward_weight_args *args);

#endif
