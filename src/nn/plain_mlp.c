#include "nn/plain_mlp.h"

struct saved {
    tt_tensor up_TF, h_up_TR, h_down_TR, rstd_T;
    tt_tensor n_TD, act_TF; /* empty: recomputed */
};
_Static_assert(sizeof(struct saved) <= TT_HALF_SAVED_BYTES, "the layer's record has room for it");

static const struct tt_norm no_norm;
static const char input_name[] = "normed input of the MLP";

static tt_status push(const struct tt_pass *pass, const char *name, int64_t tokens, int64_t columns,
                      tt_tensor *out)
{
    return tt_workspace_2d(pass->lent.workspace, name, pass->in.compute_dtype, tokens, columns, out);
}

static tt_status push_kept(const struct tt_plain_mlp *mlp, const struct tt_pass *pass, tt_tensor x_TD,
                           bool keep, struct saved *saved)
{
    int64_t tokens = x_TD.dims[0], ffn = tt_linear_group_out(&mlp->up);
    *saved = (struct saved){0};
    TT_TRY(push(pass, "up", tokens, ffn, &saved->up_TF));
    TT_TRY(tt_linear_push_h(&mlp->up, pass, tokens, &saved->h_up_TR));
    TT_TRY(tt_linear_push_h(&mlp->down, pass, tokens, &saved->h_down_TR));
    if (!keep) return TT_OK;
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "rstd", TT_F32, tokens, &saved->rstd_T));
    if (pass->in.level != TT_KEEP_ALL) return TT_OK;
    if (tt_linear_group_needs_x(&mlp->up))
        TT_TRY(push(pass, "kept input of the MLP", tokens, x_TD.dims[1], &saved->n_TD));
    if (tt_linear_group_needs_x(&mlp->down))
        TT_TRY(push(pass, "kept MLP activation", tokens, ffn, &saved->act_TF));
    return TT_OK;
}

static tt_status activate(const struct tt_plain_mlp *mlp, const struct tt_pass *pass, tt_tensor up_TF,
                          tt_tensor act_TF)
{
    struct tt_swiglu_forward_args args = {.activation = mlp->activation, .gate_TF = up_TF, .h_TF = act_TF};
    return tt_swiglu_forward(pass->lent.stream, &args);
}

/* The activation and what follows; without y only what backward reads of it. */
static tt_status finish(const struct tt_plain_mlp *mlp, const struct tt_pass *pass,
                        const struct tt_half_input *in, const struct saved *saved)
{
    tt_tensor act_TF = saved->act_TF;
    if (tt_tensor_is_empty(in->y_TD) && tt_tensor_is_empty(act_TF) && tt_tensor_is_empty(saved->h_down_TR))
        return TT_OK;
    /* in up's place where no backward pass reads that */
    if (!in->keep)
        act_TF = saved->up_TF;
    else if (tt_tensor_is_empty(act_TF))
        TT_TRY(push(pass, "MLP activation", saved->up_TF.dims[0], saved->up_TF.dims[1], &act_TF));
    TT_TRY(activate(mlp, pass, saved->up_TF, act_TF));
    struct tt_linear_call down = tt_linear_call_tokens(&mlp->down, pass, act_TF, saved->h_down_TR);
    return tt_half_finish(&no_norm, &down, in, (tt_tensor){0}, (tt_tensor){0});
}

static tt_status forward(const struct tt_half *half, const struct tt_pass *pass,
                         const struct tt_half_input *in, void *record)
{
    const struct tt_plain_mlp *mlp = half->impl;
    struct saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t start = tt_workspace_mark(workspace);
    TT_TRY(push_kept(mlp, pass, in->x_TD, in->keep, saved));
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor n_TD = saved->n_TD;
    struct tt_quantized_rows rows;
    TT_TRY(tt_half_push_norm(&mlp->norm, &mlp->up, pass, in, input_name, saved->rstd_T, &n_TD, &rows));
    struct tt_linear_call up = tt_linear_call_tokens(&mlp->up, pass, n_TD, saved->h_up_TR);
    up.quantized = &rows;
    TT_TRY(tt_linear_forward(&up, saved->up_TF));
    tt_workspace_release(workspace, mark);
    TT_TRY(finish(mlp, pass, in, saved));
    tt_workspace_release(workspace, in->keep ? mark : start);
    return TT_OK;
}

/* dy -> the gradient of the activation, in dact_TF; adds to the gradients of `down`. */
static tt_status down_back(const struct tt_plain_mlp *mlp, const struct tt_pass *pass,
                           const struct saved *saved, const struct tt_half_gradient *gradient,
                           tt_tensor dact_TF)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor act_TF = saved->act_TF;
    if (tt_tensor_is_empty(act_TF) && tt_linear_group_needs_x(&mlp->down)) {
        TT_TRY(push(pass, "MLP activation", dact_TF.dims[0], dact_TF.dims[1], &act_TF));
        TT_TRY(activate(mlp, pass, saved->up_TF, act_TF));
    }
    TT_TRY(tt_half_last_back(&mlp->down, pass, gradient, act_TF, saved->h_down_TR, dact_TF));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

static tt_status backward(const struct tt_half *half, const struct tt_pass *pass, const void *record,
                          struct tt_half_gradient *gradient)
{
    const struct tt_plain_mlp *mlp = half->impl;
    const struct saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    tt_tensor dup_TF, dn_TD, n_TD = saved->n_TD;
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(push(pass, "gradient of the MLP activation", gradient->dy_TD.dims[0],
                tt_linear_group_out(&mlp->up), &dup_TF));
    TT_TRY(down_back(mlp, pass, saved, gradient, dup_TF));
    struct tt_swiglu_backward_args args = {
        .activation = mlp->activation, .dh_TF = dup_TF, .gate_TF = saved->up_TF, .dgate_TF = dup_TF};
    TT_TRY(tt_swiglu_backward(pass->lent.stream, &args));

    TT_TRY(tt_half_push_gradient(&mlp->norm, pass, gradient, &dn_TD));
    TT_TRY(tt_half_first_back(&mlp->norm, &mlp->up, pass, gradient, input_name,
                              tt_linear_group_needs_x(&mlp->up), dup_TF, NULL, saved->h_up_TR, &n_TD, dn_TD));
    /* Memory of dn that is not dx lies above the mark. */
    if (!tt_tensor_is_empty(gradient->dx_TD)) tt_workspace_release(workspace, mark);
    return tt_half_end_backward(&mlp->norm, pass, gradient, saved->rstd_T, dn_TD);
}

static const struct tt_linear_group *reader(const struct tt_half *half)
{
    const struct tt_plain_mlp *mlp = half->impl;
    return &mlp->down;
}

static bool trains(const struct tt_half *half)
{
    const struct tt_plain_mlp *mlp = half->impl;
    return tt_norm_trains(&mlp->norm) || tt_linear_group_trains(&mlp->up) ||
           tt_linear_group_trains(&mlp->down);
}

static tt_status visit_linears(const struct tt_half *half, tt_linear_visit *visit, void *context)
{
    const struct tt_plain_mlp *mlp = half->impl;
    TT_TRY(tt_linear_group_visit(&mlp->up, visit, context));
    return tt_linear_group_visit(&mlp->down, visit, context);
}

static double flops(const struct tt_half *half, double length, bool full)
{
    const struct tt_plain_mlp *mlp = half->impl;
    (void)length;
    return tt_linear_group_flops(&mlp->up, full) + tt_linear_group_flops(&mlp->down, full);
}

const struct tt_half_ops tt_plain_mlp_half = {
    .kind = "MLP",
    .residual = "residual after MLP",
    .forward = forward,
    .backward = backward,
    .reader = reader,
    .trains = trains,
    .visit_linears = visit_linears,
    .flops = flops,
};
