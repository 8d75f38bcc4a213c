/* A check of cuDNN's attention: a small packed batch is computed by cuDNN and by this library's own kernels, and
 * the results are compared. Some cuDNN releases computed wrong gradients for one head dimension, or for
 * sequences that do not fill their buffer. No other check would notice a wrong gradient. */
#ifndef TT_BACKEND_CUDA_ATTENTION_CHECK_H
#define TT_BACKEND_CUDA_ATTENTION_CHECK_H

#include "backend/cuda/attention/cudnn.h"

struct tt_cuda_attention_errors {
    bool compared;        /* false: our own kernels do not support the arguments, or memory was short */
    double o, dq, dk, dv; /* |cuDNN - own| / |own| */
};

/* Compares the two for the shapes, strides and window of `like`. Without `dense` the plan of `like` itself runs;
 * with `dense` a plan of the same kind for a smaller batch. The backward pass is compared too when like->lse_HT
 * is given. The check allocates and frees about 100 MB of device memory and waits for the stream, so the caller
 * runs it once per configuration. TT_ERR_UNSUPPORTED: cuDNN declines the arguments. */
TT_MUST_USE tt_status tt_cuda_attention_check(struct tt_cuda_cudnn *cudnn, struct tt_stream *stream,
                                              const struct tt_attention_forward_args *like, bool dense,
                                              struct tt_cuda_attention_errors *errors);

#endif
