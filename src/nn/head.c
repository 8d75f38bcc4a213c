/* The block of every head: its rows of the input, their norm, and both backward; what becomes of the rows is the head's
 * kind. */
#include "nn/head.h"

#include "backend/ops/elementwise.h"
#include "backend/ops/embedding.h"

tt_status tt_head_gather(const struct tt_pass *pass, tt_tensor rows_N, tt_tensor x_TD, tt_tensor *x_ND)
{
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "rows of the head", x_TD.dtype, rows_N.dims[0], x_TD.dims[1],
                           x_ND));
    struct tt_gather_rows_args args = {.x_TD = x_TD, .rows_N = rows_N, .y_ND = *x_ND};
    return tt_gather_rows(pass->lent.stream, &args);
}

/* 64-bit integers, copied as pairs of 32-bit words. */
tt_status tt_head_gather_keys(const struct tt_head *head, const struct tt_pass *pass, tt_tensor rows_N,
                              tt_tensor *keys_N)
{
    const struct tt_device_batch *batch = pass->in.batch;
    int64_t count = rows_N.dims[0];
    *keys_N = (tt_tensor){0};
    if (!pass->in.training || head->lm_head.linears[0].r == 0 || head->lm_head.linears[0].dropout <= 0)
        return TT_OK;
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "row keys", TT_I64, count, keys_N));
    struct tt_gather_rows_args args = {
        .x_TD = tt_tensor_2d(batch->row_keys_T.data, TT_F32, batch->token_count, 2),
        .rows_N = rows_N,
        .y_ND = tt_tensor_2d(keys_N->data, TT_F32, count, 2),
    };
    return tt_gather_rows(pass->lent.stream, &args);
}

static tt_status scale_rows(const struct tt_head *head, const struct tt_pass *pass, tt_tensor rows_ND)
{
    struct tt_scale_args args = {.x = rows_ND, .factor = head->scale};
    return head->scale == 0 ? TT_OK : tt_scale(pass->lent.stream, &args);
}

tt_status tt_head_norm_rows(const struct tt_head *head, const struct tt_pass *pass, tt_tensor x_ND,
                            tt_tensor n_ND, tt_tensor rstd_N)
{
    TT_TRY(tt_norm_forward(&head->norm, pass, x_ND, n_ND, rstd_N, NULL));
    return scale_rows(head, pass, n_ND);
}

tt_status tt_head_rows_backward(const struct tt_head *head, const struct tt_pass *pass,
                                const struct tt_head_rows_gradient *rows)
{
    tt_tensor dx_TD = rows->dx_TD;
    bool wants_dx = !tt_tensor_is_empty(dx_TD);
    if (tt_tensor_is_empty(rows->x_ND))
        return wants_dx ? tt_fill_zero(pass->lent.stream, dx_TD.data, tt_tensor_bytes(dx_TD)) : TT_OK;
    if (!wants_dx && !head->norm.weight->trainable) return TT_OK;
    TT_TRY(scale_rows(head, pass, rows->drows_ND));
    TT_TRY(
        tt_norm_backward(&head->norm, pass, rows->x_ND, rows->rstd_N, (tt_tensor){0}, rows->drows_ND, NULL));
    if (!wants_dx) return TT_OK;
    struct tt_scatter_rows_args args = {.x_ND = rows->drows_ND, .rows_N = rows->rows_N, .y_TD = dx_TD};
    return tt_scatter_rows(pass->lent.stream, &args);
}

static tt_status forward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *saved,
                         tt_tensor y_TD)
{
    const struct tt_head *head = block->impl;
    (void)y_TD;
    return head->ops->forward(head, pass, x_TD, saved);
}

static tt_status backward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                          const void *saved, tt_tensor dy_TD, tt_tensor dx_TD)
{
    const struct tt_head *head = block->impl;
    (void)dy_TD;
    return head->ops->backward(head, pass, x_TD, saved, dx_TD);
}

static tt_status visit_linears(const struct tt_block *block, tt_linear_visit *visit, void *context)
{
    const struct tt_head *head = block->impl;
    return tt_linear_group_visit(&head->lm_head, visit, context);
}

static double flops(const struct tt_block *block, double length, bool full)
{
    const struct tt_head *head = block->impl;
    (void)length;
    return tt_linear_group_flops(&head->lm_head, full);
}

static tt_param *split(const struct tt_block *block)
{
    const struct tt_head *head = block->impl;
    const struct tt_linear *linear = &head->lm_head.linears[0];
    bool plain = head->ops->splits && head->trained.rows == NULL && linear->r == 0 && linear->bias == NULL &&
                 !linear->weight->trainable && !tt_param_is_quantized(linear->weight) &&
                 !head->norm.weight->trainable;
    return plain ? linear->weight : NULL;
}

const struct tt_block_ops tt_head_block_ops = {
    .kind = "head",
    .role = TT_ROLE_OUTPUT,
    .levels = TT_LEVELS_ONE,
    .saved_bytes = sizeof(struct tt_head_saved),
    .forward = forward,
    .backward = backward,
    .visit_linears = visit_linears,
    .flops = flops,
    .split = split,
};
