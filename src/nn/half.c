#include "nn/half.h"

#include "backend/ops/elementwise.h"

/* A half without a norm reads the stream itself. */
static tt_status complete_stream(const struct tt_pass *pass, const struct tt_half_input *in, tt_tensor *n_TD,
                                 struct tt_quantized_rows *rows)
{
    *rows = (struct tt_quantized_rows){.made = false};
    *n_TD = in->x_TD;
    if (tt_tensor_is_empty(in->delta_TD)) return TT_OK;
    *n_TD = in->delta_TD;
    struct tt_add_args add = {.a = in->delta_TD, .b = in->x_TD, .y = in->delta_TD};
    return tt_add(pass->lent.stream, &add);
}

tt_status tt_half_push_norm(const struct tt_norm *norm, const struct tt_linear_group *reader,
                            const struct tt_pass *pass, const struct tt_half_input *in, const char *name,
                            tt_tensor rstd_T, tt_tensor *n_TD, struct tt_quantized_rows *rows)
{
    if (!tt_norm_exists(norm)) return complete_stream(pass, in, n_TD, rows);
    TT_TRY(tt_norm_push_result(norm, reader, pass, name, in->x_TD, n_TD, rows));
    if (tt_tensor_is_empty(in->delta_TD)) return tt_norm_forward(norm, pass, in->x_TD, *n_TD, rstd_T, rows);
    return tt_norm_forward_add(norm, pass, in->delta_TD, in->x_TD, *n_TD, rstd_T, rows);
}

tt_status tt_half_push_norm_again(const struct tt_norm *norm, const struct tt_pass *pass,
                                  const struct tt_half_gradient *gradient, const char *name, tt_tensor *n_TD)
{
    tt_tensor x_TD = gradient->x_TD;
    if (!tt_tensor_is_empty(*n_TD)) return TT_OK;
    if (!tt_norm_exists(norm)) {
        *n_TD = x_TD;
        return TT_OK;
    }
    TT_TRY(tt_workspace_2d(pass->lent.workspace, name, pass->in.compute_dtype, x_TD.dims[0], x_TD.dims[1],
                           n_TD));
    return tt_norm_forward(norm, pass, x_TD, *n_TD, (tt_tensor){0}, NULL);
}

/* y = sum + norm(out), out = last linear. Without y, backward needs out and its rstd all the same. */
static tt_status finish_with_norm(const struct tt_norm *post_norm, const struct tt_linear_call *last,
                                  const struct tt_half_input *in, tt_tensor out_TD, tt_tensor rstd_T)
{
    const struct tt_pass *pass = last->pass;
    tt_tensor normed_TD = in->y_TD;
    TT_TRY(tt_linear_forward(last, out_TD));
    if (tt_tensor_is_empty(normed_TD))
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "normed output of a half", out_TD.dtype, out_TD.dims[0],
                               out_TD.dims[1], &normed_TD));
    TT_TRY(tt_norm_forward(post_norm, pass, out_TD, normed_TD, rstd_T, NULL));
    if (tt_tensor_is_empty(in->y_TD) || tt_tensor_is_empty(in->sum_TD)) return TT_OK;
    struct tt_add_args add = {.a = in->sum_TD, .b = in->y_TD, .y = in->y_TD};
    return tt_add(pass->lent.stream, &add);
}

/* y = sum + scale out */
static tt_status finish_with_scale(const struct tt_linear_call *last, const struct tt_half_input *in)
{
    struct tt_scale_args scale = {.x = in->y_TD, .factor = in->scale};
    TT_TRY(tt_linear_forward(last, in->y_TD));
    if (tt_tensor_is_empty(in->y_TD)) return TT_OK;
    TT_TRY(tt_scale(last->pass->lent.stream, &scale));
    struct tt_add_args add = {.a = in->sum_TD, .b = in->y_TD, .y = in->y_TD};
    return tt_tensor_is_empty(in->sum_TD) ? TT_OK : tt_add(last->pass->lent.stream, &add);
}

tt_status tt_half_finish(const struct tt_norm *post_norm, const struct tt_linear_call *last,
                         const struct tt_half_input *in, tt_tensor out_TD, tt_tensor rstd_T)
{
    if (tt_norm_exists(post_norm)) return finish_with_norm(post_norm, last, in, out_TD, rstd_T);
    if (in->scale != 0) return finish_with_scale(last, in);
    if (tt_tensor_is_empty(in->y_TD) || tt_tensor_is_empty(in->sum_TD))
        return tt_linear_forward(last, in->y_TD);
    return tt_linear_forward_add(last, in->sum_TD, in->y_TD);
}

/* dout = scale dy */
static tt_status scale_gradient(const struct tt_pass *pass, float factor, tt_tensor dy_TD, tt_tensor dout_TD)
{
    size_t bytes = (size_t)tt_tensor_count(dy_TD) * tt_dtype_bytes(dy_TD.dtype);
    struct tt_scale_args scale = {.x = dout_TD, .factor = factor};
    TT_TRY(tt_copy_on_device(pass->lent.stream, dout_TD.data, dy_TD.data, bytes));
    return tt_scale(pass->lent.stream, &scale);
}

tt_status tt_half_begin_backward(const struct tt_norm *post_norm, const struct tt_linear_group *last,
                                 const struct tt_pass *pass, const struct tt_half_gradient *gradient,
                                 const char *name, tt_tensor out_TD, tt_tensor rstd_T, tt_tensor *dout_TD,
                                 struct tt_quantized_rows *rows)
{
    int64_t tokens = gradient->dy_TD.dims[0], dim = gradient->dy_TD.dims[1];
    *dout_TD = gradient->dy_TD;
    *rows = gradient->dy_rows;
    if (!tt_norm_exists(post_norm) && gradient->scale == 0) return TT_OK;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, name, pass->in.compute_dtype, tokens, dim, dout_TD));
    if (!tt_norm_exists(post_norm)) return scale_gradient(pass, gradient->scale, gradient->dy_TD, *dout_TD);
    TT_TRY(tt_linear_push_quantized_for(last, TT_LINEAR_BACKWARD, pass, tokens, dim, rows));
    return tt_norm_backward_to(post_norm, pass, out_TD, rstd_T, gradient->dy_TD, *dout_TD, rows);
}

tt_status tt_half_last_back(const struct tt_linear_group *last, const struct tt_pass *pass,
                            const struct tt_half_gradient *gradient, tt_tensor x_TN, tt_tensor h_TR,
                            tt_tensor dx_TN)
{
    static const struct tt_norm none;
    tt_tensor dout_TD, dh_TR;
    struct tt_quantized_rows rows;
    TT_TRY(tt_half_begin_backward(&none, last, pass, gradient, "gradient of the output", (tt_tensor){0},
                                  (tt_tensor){0}, &dout_TD, &rows));
    TT_TRY(tt_linear_push_h(last, pass, dout_TD.dims[0], &dh_TR));
    struct tt_linear_call call = tt_linear_call_tokens(last, pass, x_TN, h_TR);
    call.quantized = &rows;
    TT_TRY(tt_linear_backward_input(&call, dout_TD, dh_TR, dx_TN));
    return tt_linear_backward_params(&call, dout_TD, dh_TR);
}

tt_status tt_half_first_back(const struct tt_norm *norm, const struct tt_linear_group *first,
                             const struct tt_pass *pass, const struct tt_half_gradient *gradient,
                             const char *name, bool reads_input, tt_tensor dout_TO,
                             const struct tt_quantized_rows *rows, tt_tensor h_TR, tt_tensor *n_TD,
                             tt_tensor dn_TD)
{
    tt_tensor dh_TR;
    TT_TRY(tt_linear_push_h(first, pass, dout_TO.dims[0], &dh_TR));
    struct tt_linear_call call = tt_linear_call_tokens(first, pass, *n_TD, h_TR);
    call.quantized = rows;
    TT_TRY(tt_linear_backward_input(&call, dout_TO, dh_TR, dn_TD));
    if (reads_input) TT_TRY(tt_half_push_norm_again(norm, pass, gradient, name, n_TD));
    call.x_TI = *n_TD;
    return tt_linear_backward_params(&call, dout_TO, dh_TR);
}

tt_status tt_half_second_back(const struct tt_linear_group *second, const struct tt_pass *pass,
                              const char *name, tt_tensor dout_TO, tt_tensor h_TR, tt_tensor n_TD,
                              tt_tensor dn_TD)
{
    tt_tensor dh_TR, side_TD = {0};
    bool wanted = !tt_tensor_is_empty(dn_TD);
    if (wanted)
        TT_TRY(
            tt_workspace_2d(pass->lent.workspace, name, dn_TD.dtype, dn_TD.dims[0], dn_TD.dims[1], &side_TD));
    TT_TRY(tt_linear_push_h(second, pass, dout_TO.dims[0], &dh_TR));
    struct tt_linear_call call = tt_linear_call_tokens(second, pass, n_TD, h_TR);
    TT_TRY(tt_linear_backward_input(&call, dout_TO, dh_TR, side_TD));
    TT_TRY(tt_linear_backward_params(&call, dout_TO, dh_TR));
    struct tt_add_args add = {.a = dn_TD, .b = side_TD, .y = dn_TD};
    return wanted ? tt_add(pass->lent.stream, &add) : TT_OK;
}

tt_status tt_half_push_gradient(const struct tt_norm *norm, const struct tt_pass *pass,
                                const struct tt_half_gradient *gradient, tt_tensor *dn_TD)
{
    *dn_TD = gradient->dx_TD;
    if (!tt_tensor_is_empty(*dn_TD) || !tt_norm_trains(norm)) return TT_OK;
    return tt_workspace_2d(pass->lent.workspace, "gradient of the normed input", pass->in.compute_dtype,
                           gradient->dy_TD.dims[0], gradient->dy_TD.dims[1], dn_TD);
}

tt_status tt_half_end_backward(const struct tt_norm *norm, const struct tt_pass *pass,
                               struct tt_half_gradient *gradient, tt_tensor rstd_T, tt_tensor dn_TD)
{
    const struct tt_linear_group *reader = gradient->dx_reader;
    gradient->dx_rows = (struct tt_quantized_rows){.made = false};
    if (tt_tensor_is_empty(dn_TD)) return TT_OK;
    if (!tt_norm_exists(norm)) {
        struct tt_add_args add = {.a = dn_TD, .b = gradient->dy_TD, .y = dn_TD};
        return gradient->carries ? tt_add(pass->lent.stream, &add) : TT_OK;
    }
    if (reader != NULL)
        TT_TRY(tt_linear_push_quantized_for(reader, TT_LINEAR_BACKWARD, pass, dn_TD.dims[0], dn_TD.dims[1],
                                            &gradient->dx_rows));
    return tt_norm_backward(norm, pass, gradient->x_TD, rstd_T,
                            gradient->carries ? gradient->dy_TD : (tt_tensor){0}, dn_TD, &gradient->dx_rows);
}
