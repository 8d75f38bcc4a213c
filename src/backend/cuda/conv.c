/* Ops of images: processors only. */
#include "backend/cuda/cuda.h"

#define UNSUPPORTED(name)                                                                                    \
    tt_status tt_cuda_##name(struct tt_stream *stream, const struct tt_##name##_args *args)                  \
    {                                                                                                        \
        (void)stream, (void)args;                                                                            \
        return tt_fail(TT_ERR_UNSUPPORTED, #name ": ops on images run on processors only");                  \
    }
UNSUPPORTED(conv2d_forward)
UNSUPPORTED(conv2d_backward_input)
UNSUPPORTED(conv2d_backward_weight)
UNSUPPORTED(conv2d_backward_output)
UNSUPPORTED(maxpool2d_forward)
UNSUPPORTED(maxpool2d_backward)
UNSUPPORTED(upsample_add)
UNSUPPORTED(upsample_backward)
UNSUPPORTED(anchor_match)
UNSUPPORTED(focal_loss)
UNSUPPORTED(box_loss)
UNSUPPORTED(channel_sums)
UNSUPPORTED(channel_affine)
UNSUPPORTED(channel_mix)
UNSUPPORTED(norm_fold)
