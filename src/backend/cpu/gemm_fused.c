/* On a processor what is read again lies in its caches: the parts follow each other. */
#include "backend/compose.h"
#include "backend/cpu/cpu_ops.h"

tt_status tt_cpu_gemm_lora(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    return tt_compose_gemm_lora(stream, args);
}

tt_status tt_cpu_gemm_swiglu(struct tt_stream *stream, const struct tt_gemm_swiglu_args *args)
{
    return tt_compose_gemm_swiglu(stream, args);
}

tt_status tt_cpu_gemm_swiglu_backward(struct tt_stream *stream,
                                      const struct tt_gemm_swiglu_backward_args *args)
{
    return tt_compose_gemm_swiglu_backward(stream, args);
}
