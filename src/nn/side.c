#include "nn/side.h"

#include "backend/ops/elementwise.h"

static tt_status push_gradient(const struct tt_pass *pass, int64_t columns, tt_tensor *grad_TC)
{
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient of a side value", TT_F32,
                           pass->in.batch->token_count, columns, grad_TC));
    return tt_fill_zero(pass->lent.stream, grad_TC->data, tt_tensor_bytes(*grad_TC));
}

tt_status tt_sides_push(const struct tt_side *const *sides, int count, const struct tt_pass *pass,
                        struct tt_side_value *values)
{
    for (int i = 0; i < count; i++) {
        const struct tt_side *side = sides[i];
        values[i] = (struct tt_side_value){.value_TC = {.data = NULL}};
        if (side->cached && pass->lent.cache != NULL) continue;
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "side value", pass->in.compute_dtype,
                               pass->in.batch->token_count, side->columns, &values[i].value_TC));
        if (pass->in.gradient && side->trains) TT_TRY(push_gradient(pass, side->columns, &values[i].grad_TC));
    }
    return TT_OK;
}

static tt_tensor columns_of(tt_tensor all_TC, int64_t first, int64_t count)
{
    return tt_tensor_is_empty(all_TC) ? (tt_tensor){0} : tt_tensor_cols(all_TC, first, count);
}

tt_tensor tt_side_columns(const struct tt_side *side, const struct tt_pass *pass, int64_t first,
                          int64_t count)
{
    return columns_of(pass->lent.sides[side->index].value_TC, first, count);
}

tt_tensor tt_side_gradient(const struct tt_side *side, const struct tt_pass *pass, int64_t first,
                           int64_t count)
{
    return columns_of(pass->lent.sides[side->index].grad_TC, first, count);
}

tt_status tt_side_offer(const struct tt_side *side, const struct tt_pass *pass, int64_t first, tt_tensor x_TC)
{
    struct tt_cast_args copy = {.x = x_TC, .y = tt_side_columns(side, pass, first, x_TC.dims[1])};
    if (pass->in.again || tt_tensor_is_empty(copy.y)) return TT_OK;
    return tt_cast(pass->lent.stream, &copy);
}

tt_status tt_side_add_gradient(const struct tt_side *side, const struct tt_pass *pass, int64_t first,
                               tt_tensor d_TC)
{
    tt_tensor sum_TC = tt_side_gradient(side, pass, first, d_TC.dims[1]);
    struct tt_add_args add = {.a = sum_TC, .b = d_TC, .y = sum_TC};
    return tt_tensor_is_empty(sum_TC) ? TT_OK : tt_add(pass->lent.stream, &add);
}

tt_status tt_side_take_gradient(const struct tt_side *side, const struct tt_pass *pass, int64_t first,
                                tt_tensor d_TC)
{
    struct tt_add_args add = {.a = d_TC, .b = tt_side_gradient(side, pass, first, d_TC.dims[1]), .y = d_TC};
    return tt_tensor_is_empty(add.b) ? TT_OK : tt_add(pass->lent.stream, &add);
}
