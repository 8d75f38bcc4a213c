#include "backend/ops/add_logits.h"

#include "backend/cpu/cpu_ops.h"

tt_status tt_cpu_add_logits(struct tt_stream *stream, const struct tt_add_logits_args *args)
{
    const int32_t *rows = args->rows_E.data, *ids = args->ids_E.data;
    const float *values = args->values_E.data;
    float *logits = args->logits_NV.data;
    (void)stream;
    for (int64_t e = 0; e < args->rows_E.dims[0]; e++)
        logits[rows[e] * args->logits_NV.strides[0] + ids[e]] += values[e];
    return TT_OK;
}
