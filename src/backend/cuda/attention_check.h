/* Whether cuDNN's attention can be trusted here: a small packed batch through it and through this library's
 * own kernels. cuDNN has had releases that were wrong for one head dimension or for sequences that do not
 * fill their buffer; a wrong gradient shows nowhere else. */
#ifndef TT_BACKEND_CUDA_ATTENTION_CHECK_H
#define TT_BACKEND_CUDA_ATTENTION_CHECK_H

#include "backend/cuda/cudnn_attention.h"

struct tt_cuda_attention_errors {
    bool compared;        /* false: the own kernels do not take this, or there was no memory to spare */
    double o, dq, dk, dv; /* |cuDNN - own| / |own| */
};

/* With the shapes, strides and window of `like`, and its plan or, dense, one of the same kind; the backward
 * pass too when like->lse_HT is given.
 * Takes and frees device memory (some 100 MB) and waits for the stream: once per configuration.
 * TT_ERR_UNSUPPORTED: cuDNN declines. */
TT_MUST_USE tt_status tt_cuda_attention_check(struct tt_cuda_cudnn *cudnn, struct tt_stream *stream,
                                              const struct tt_attention_forward_args *like, bool dense,
                                              struct tt_cuda_attention_errors *errors);

#endif
