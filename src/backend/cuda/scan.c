/* The scan on GPUs: refused, because no kernel computes it there yet. */
#include "backend/cuda/cuda.h"

static tt_status refuse(const char *op)
{
    tt_fail(TT_ERR_UNSUPPORTED, "%s: GPUs cannot compute layers with a state yet (gated delta rule, Mamba-2)",
            op);
    tt_hint("train such a model on processors: device: cpu");
    return TT_ERR_UNSUPPORTED;
}

tt_status tt_cuda_scan_forward(struct tt_stream *stream, const struct tt_scan_forward_args *args)
{
    (void)stream, (void)args;
    return refuse("scan_forward");
}

tt_status tt_cuda_scan_backward(struct tt_stream *stream, const struct tt_scan_backward_args *args)
{
    (void)stream, (void)args;
    return refuse("scan_backward");
}
