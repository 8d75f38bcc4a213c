#include "nn/norm.h"

#include "backend/ops/rmsnorm.h"

tt_status tt_norm_forward(const struct tt_norm *norm, const struct tt_pass *pass, tt_tensor x_ND,
                          tt_tensor y_ND, tt_tensor rstd_N)
{
    struct tt_rmsnorm_forward_args args = {.x_ND = x_ND,
                                           .weight_D = norm->weight->value,
                                           .offset = norm->offset,
                                           .eps = norm->eps,
                                           .y_ND = y_ND,
                                           .rstd_N = rstd_N};
    return tt_rmsnorm_forward(pass->lent.stream, &args);
}

tt_status tt_norm_forward_add(const struct tt_norm *norm, const struct tt_pass *pass, tt_tensor x_ND,
                              tt_tensor residual_ND, tt_tensor y_ND, tt_tensor rstd_N)
{
    struct tt_rmsnorm_forward_args args = {.x_ND = x_ND,
                                           .residual_ND = residual_ND,
                                           .weight_D = norm->weight->value,
                                           .offset = norm->offset,
                                           .eps = norm->eps,
                                           .sum_ND = x_ND,
                                           .y_ND = y_ND,
                                           .rstd_N = rstd_N};
    return tt_rmsnorm_forward(pass->lent.stream, &args);
}

static tt_status backward(const struct tt_norm *norm, const struct tt_pass *pass,
                          struct tt_rmsnorm_backward_args *args)
{
    args->weight_D = norm->weight->value;
    args->offset = norm->offset;
    if (norm->weight->trainable) args->dweight_D = norm->weight->grad;
    return tt_rmsnorm_backward(pass->lent.stream, args);
}

tt_status tt_norm_backward(const struct tt_norm *norm, const struct tt_pass *pass, tt_tensor x_ND,
                           tt_tensor rstd_N, tt_tensor dres_ND, tt_tensor dy_ND)
{
    struct tt_rmsnorm_backward_args args = {
        .dy_ND = dy_ND, .x_ND = x_ND, .rstd_N = rstd_N, .dres_ND = dres_ND, .dx_ND = dy_ND};
    return backward(norm, pass, &args);
}

tt_status tt_norm_backward_to(const struct tt_norm *norm, const struct tt_pass *pass, tt_tensor x_ND,
                              tt_tensor rstd_N, tt_tensor dy_ND, tt_tensor dx_ND)
{
    struct tt_rmsnorm_backward_args args = {.dy_ND = dy_ND, .x_ND = x_ND, .rstd_N = rstd_N, .dx_ND = dx_ND};
    return backward(norm, pass, &args);
}
