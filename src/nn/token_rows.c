#include "nn/token_rows.h"

#include "backend/ops/embedding.h"
#include "backend/ops/gemm.h"

bool tt_token_rows_count(const struct tt_token_rows *of, const struct tt_pass *pass)
{
    return of->rows != NULL && !pass->in.adapters_off;
}

tt_status tt_token_rows_read(const struct tt_token_rows *of, const struct tt_pass *pass, tt_tensor y_TD)
{
    struct tt_put_token_rows_args args = {.rows_KD = tt_param_value(of->rows),
                                          .tokens_K = tt_param_value(of->tokens),
                                          .ids_T = pass->in.batch->ids_T,
                                          .y_TD = y_TD};
    if (!tt_token_rows_count(of, pass) || pass->in.batch->token_count == 0) return TT_OK;
    return tt_put_token_rows(pass->lent.stream, &args);
}

tt_status tt_token_rows_read_backward(const struct tt_token_rows *of, const struct tt_pass *pass,
                                      tt_tensor dy_TD)
{
    struct tt_add_token_rows_args args = {.dy_TD = dy_TD,
                                          .tokens_K = tt_param_value(of->tokens),
                                          .ids_T = pass->in.batch->ids_T,
                                          .drows_KD = tt_param_grad(of->rows)};
    if (!tt_token_rows_count(of, pass) || pass->in.batch->token_count == 0) return TT_OK;
    return tt_tensor_is_empty(args.drows_KD) ? TT_OK : tt_add_token_rows(pass->lent.stream, &args);
}

/* A matrix [rows, K] of values of the tokens. */
static tt_status push_columns(const struct tt_token_rows *of, const struct tt_pass *pass, tt_tensor like_NV,
                              tt_tensor *columns_NK)
{
    return tt_workspace_2d(pass->lent.workspace, "columns of trained tokens", like_NV.dtype, like_NV.dims[0],
                           of->rows->dims[0], columns_NK);
}

tt_status tt_token_rows_logits(const struct tt_token_rows *of, const struct tt_pass *pass, tt_tensor n_ND,
                               tt_tensor logits_NV)
{
    tt_tensor columns_NK;
    if (!tt_token_rows_count(of, pass)) return TT_OK;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(push_columns(of, pass, logits_NV, &columns_NK));
    struct tt_gemm_args product = {
        .a = n_ND, .b = of->rows->value, .c = columns_NK, .trans_b = true, .alpha = 1.0f};
    TT_TRY(tt_gemm(pass->lent.stream, &product));
    struct tt_put_token_columns_args put = {
        .x_NK = columns_NK, .tokens_K = of->tokens->value, .y_NV = logits_NV};
    TT_TRY(tt_put_token_columns(pass->lent.stream, &put));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

tt_status tt_token_rows_take(const struct tt_token_rows *of, const struct tt_pass *pass, tt_tensor n_ND,
                             tt_tensor dlogits_NV, tt_tensor *dlogits_NK)
{
    *dlogits_NK = (tt_tensor){0};
    if (!tt_token_rows_count(of, pass)) return TT_OK;
    TT_TRY(push_columns(of, pass, dlogits_NV, dlogits_NK));
    struct tt_take_token_columns_args take = {
        .y_NV = dlogits_NV, .tokens_K = of->tokens->value, .x_NK = *dlogits_NK};
    TT_TRY(tt_take_token_columns(pass->lent.stream, &take));
    struct tt_gemm_args product = {.a = *dlogits_NK,
                                   .b = n_ND,
                                   .c = tt_param_grad(of->rows),
                                   .trans_a = true,
                                   .alpha = 1.0f,
                                   .beta = 1.0f};
    return tt_tensor_is_empty(product.c) ? TT_OK : tt_gemm(pass->lent.stream, &product);
}

tt_status tt_token_rows_add(const struct tt_token_rows *of, const struct tt_pass *pass, tt_tensor dlogits_NK,
                            tt_tensor dn_ND)
{
    struct tt_gemm_args args = {
        .a = dlogits_NK, .b = tt_param_value(of->rows), .c = dn_ND, .alpha = 1.0f, .beta = 1.0f};
    return tt_tensor_is_empty(dlogits_NK) ? TT_OK : tt_gemm(pass->lent.stream, &args);
}
