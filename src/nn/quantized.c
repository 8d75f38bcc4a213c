#include "nn/quantized.h"

#include "backend/ops/quant.h"

bool tt_linear_group_is_quantized(const struct tt_linear_group *group)
{
    for (int i = 0; i < group->count; i++)
        if (tt_param_is_quantized(group->linears[i].weight)) return true;
    return false;
}

/* How many quantized linears from `first` on fit into the scratch together; at least one. */
static int count_together(const struct tt_linear_group *group, int first, size_t row_bytes, int64_t *out)
{
    int count = 1;
    *out = group->linears[first].out;
    for (int i = first + 1; i < group->count; i++, count++) {
        const struct tt_linear *linear = &group->linears[i];
        size_t bytes = (size_t)(*out + linear->out) * row_bytes;
        if (!tt_param_is_quantized(linear->weight) || bytes > TT_QUANTIZED_SCRATCH_BYTES) break;
        *out += linear->out;
    }
    return count;
}

tt_status tt_quantized_part(const struct tt_linear_group *group, struct tt_step *step, int first,
                            struct tt_weight_part *part)
{
    const struct tt_linear *linear = &group->linears[first];
    *part = (struct tt_weight_part){.first = first, .count = 1, .out = linear->out};
    if (!tt_param_is_quantized(linear->weight)) {
        part->w_OI = linear->weight->value;
        return TT_OK;
    }
    size_t row_bytes = (size_t)linear->in * tt_dtype_bytes(step->compute_dtype);
    part->count = count_together(group, first, row_bytes, &part->out);
    TT_TRY(tt_workspace_2d(step->workspace, "dequantized weights", step->compute_dtype, part->out, linear->in,
                           &part->w_OI));
    int64_t row = 0;
    for (int i = first; i < first + part->count; i++) {
        linear = &group->linears[i];
        struct tt_dequantize_args args = {.layout = linear->weight->quant,
                                          .packed = linear->weight->value,
                                          .y_NK = tt_tensor_rows(part->w_OI, row, linear->out)};
        TT_TRY(tt_dequantize(step->stream, &args));
        row += linear->out;
    }
    return TT_OK;
}
