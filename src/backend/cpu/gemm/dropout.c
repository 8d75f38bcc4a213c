/* Composed: dropout, then products. */
#include "backend/compose.h"
#include "backend/cpu/cpu_ops.h"

tt_status tt_cpu_gemm_dropout(struct tt_stream *stream, const struct tt_gemm_dropout_args *args)
{
    return tt_compose_gemm_dropout(stream, args);
}

tt_status tt_cpu_gemm_dropout_weights(struct tt_stream *stream,
                                      const struct tt_gemm_dropout_weights_args *args)
{
    return tt_compose_gemm_dropout_weights(stream, args);
}

tt_status tt_cpu_gemm_dropout_input(struct tt_stream *stream, const struct tt_gemm_dropout_input_args *args)
{
    return tt_compose_gemm_dropout_input(stream, args);
}
