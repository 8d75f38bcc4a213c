#include "nn/quantized.h"

#include "backend/ops/quant.h"

bool tt_linear_group_is_quantized(const struct tt_linear_group *group)
{
    for (int i = 0; i < group->count; i++)
        if (tt_param_is_quantized(group->linears[i].weight)) return true;
    return false;
}

/* At least one, at most as many as fit into the scratch together. */
int tt_quantized_part_count(const struct tt_linear_group *group, const struct tt_pass *pass, int first)
{
    int count = 1;
    size_t row_bytes = (size_t)group->linears[first].in * tt_dtype_bytes(pass->in.compute_dtype);
    int64_t out = group->linears[first].out;
    if (!tt_param_is_quantized(group->linears[first].weight)) return 1;
    for (int i = first + 1; i < group->count; i++, count++) {
        out += group->linears[i].out;
        if (!tt_param_is_quantized(group->linears[i].weight)) break;
        if ((size_t)out * row_bytes > TT_QUANTIZED_SCRATCH_BYTES) break;
    }
    return count;
}

tt_status tt_quantized_part(const struct tt_linear_group *group, const struct tt_pass *pass, int first,
                            struct tt_weight_part *part)
{
    const struct tt_linear *linear = &group->linears[first];
    *part = (struct tt_weight_part){.first = first, .count = 1, .out = linear->out};
    if (!tt_param_is_quantized(linear->weight)) {
        part->w_OI = linear->weight->value;
        return TT_OK;
    }
    part->count = tt_quantized_part_count(group, pass, first);
    for (int i = first + 1; i < first + part->count; i++) part->out += group->linears[i].out;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "dequantized weights", pass->in.compute_dtype, part->out,
                           linear->in, &part->w_OI));
    int64_t row = 0;
    for (int i = first; i < first + part->count; i++) {
        linear = &group->linears[i];
        struct tt_dequantize_args args = {.layout = linear->weight->quant,
                                          .packed = linear->weight->value,
                                          .y_NK = tt_tensor_rows(part->w_OI, row, linear->out)};
        TT_TRY(tt_dequantize(pass->lent.stream, &args));
        row += linear->out;
    }
    return TT_OK;
}
