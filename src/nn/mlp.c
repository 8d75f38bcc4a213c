#include "nn/mlp.h"

tt_status tt_mlp_push_mid(struct tt_step *step, int64_t dim, struct tt_mlp_saved *saved)
{
    return tt_workspace_2d(step->workspace, "residual after attention", step->compute_dtype,
                           step->batch->token_count, dim, &saved->x_mid_TD);
}

static tt_tensor gate_of(const struct tt_mlp_saved *saved)
{
    return tt_tensor_cols(saved->gate_up_TF2, 0, saved->gate_up_TF2.dims[1] / 2);
}

/* n and the activation where they are kept; scratch is pushed for the others later, above everything that
 * stays. */
static tt_status push_kept(const struct tt_mlp *mlp, struct tt_step *step, int64_t tokens, int64_t dim,
                           struct tt_mlp_saved *saved)
{
    TT_TRY(tt_workspace_1d(step->workspace, "rstd", TT_F32, tokens, &saved->rstd_T));
    if (step->level != TT_KEEP_ALL) return TT_OK;
    if (tt_linear_group_needs_x(&mlp->gate_up))
        TT_TRY(tt_workspace_2d(step->workspace, "kept input of the MLP", step->compute_dtype, tokens, dim,
                               &saved->n_TD));
    if (!tt_linear_group_needs_x(&mlp->down)) return TT_OK;
    return tt_workspace_2d(step->workspace, "kept MLP activation", step->compute_dtype, tokens,
                           saved->gate_up_TF2.dims[1] / 2, &saved->act_TF);
}

/* gate and up of norm(x_mid + x), and with `act_TF` the activation. */
static tt_status run_gate_up(const struct tt_mlp *mlp, struct tt_step *step, tt_tensor x_TD, bool keep,
                             const struct tt_mlp_saved *saved, tt_tensor act_TF)
{
    size_t mark = tt_workspace_mark(step->workspace);
    tt_tensor n_TD = saved->n_TD, row_keys_T = step->batch->row_keys_T;
    if (tt_tensor_is_empty(n_TD))
        TT_TRY(tt_workspace_2d(step->workspace, "normed input of the MLP", step->compute_dtype, x_TD.dims[0],
                               x_TD.dims[1], &n_TD));
    TT_TRY(tt_norm_forward_add(&mlp->norm, step, saved->x_mid_TD, x_TD, n_TD, saved->rstd_T));
    if (tt_tensor_is_empty(act_TF))
        TT_TRY(tt_linear_forward(&mlp->gate_up, step, row_keys_T, n_TD, saved->h_gate_up_TR,
                                 saved->gate_up_TF2));
    else
        TT_TRY(tt_linear_forward_swiglu(&mlp->gate_up, step, row_keys_T, n_TD, saved->h_gate_up_TR, keep,
                                        saved->gate_up_TF2, act_TF));
    tt_workspace_release(step->workspace, mark);
    return TT_OK;
}

/* y = x_mid + down(act). Without y only what backward reads is made: the kept activation, and down's h. */
static tt_status run(const struct tt_mlp *mlp, struct tt_step *step, tt_tensor x_TD, bool keep,
                     const struct tt_mlp_saved *saved, tt_tensor y_TD)
{
    size_t mark = tt_workspace_mark(step->workspace);
    tt_tensor act_TF = saved->act_TF, gate_up_TF2 = saved->gate_up_TF2, row_keys_T = step->batch->row_keys_T;
    bool again = tt_tensor_is_empty(y_TD);
    if (again && tt_tensor_is_empty(act_TF) && tt_tensor_is_empty(saved->h_down_TR))
        return run_gate_up(mlp, step, x_TD, keep, saved, (tt_tensor){0});
    if (!keep)
        act_TF = gate_of(saved); /* in place when backward does not need gate */
    else if (tt_tensor_is_empty(act_TF))
        TT_TRY(tt_workspace_2d(step->workspace, "MLP activation", step->compute_dtype, gate_up_TF2.dims[0],
                               gate_up_TF2.dims[1] / 2, &act_TF));
    TT_TRY(run_gate_up(mlp, step, x_TD, keep, saved, act_TF));
    if (again)
        TT_TRY(tt_linear_forward(&mlp->down, step, row_keys_T, act_TF, saved->h_down_TR, y_TD));
    else
        TT_TRY(tt_linear_forward_add(&mlp->down, step, row_keys_T, act_TF, saved->h_down_TR, saved->x_mid_TD,
                                     y_TD));
    tt_workspace_release(step->workspace, mark);
    return TT_OK;
}

tt_status tt_mlp_forward(const struct tt_mlp *mlp, struct tt_step *step, tt_tensor x_TD, bool keep,
                         struct tt_mlp_saved *saved, tt_tensor y_TD)
{
    struct tt_workspace *workspace = step->workspace;
    int64_t tokens = x_TD.dims[0], ffn2 = tt_linear_group_out(&mlp->gate_up);
    size_t start = tt_workspace_mark(workspace);
    saved->rstd_T = saved->n_TD = saved->act_TF = (tt_tensor){0};
    TT_TRY(tt_workspace_2d(workspace, "gate and up", step->compute_dtype, tokens, ffn2, &saved->gate_up_TF2));
    TT_TRY(tt_linear_push_h(&mlp->gate_up, step, tokens, &saved->h_gate_up_TR));
    TT_TRY(tt_linear_push_h(&mlp->down, step, tokens, &saved->h_down_TR));
    if (keep) TT_TRY(push_kept(mlp, step, tokens, x_TD.dims[1], saved));
    TT_TRY(run(mlp, step, x_TD, keep, saved, y_TD));
    if (!keep) tt_workspace_release(workspace, start);
    return TT_OK;
}

tt_status tt_mlp_backward(const struct tt_mlp *mlp, struct tt_step *step, const struct tt_mlp_saved *saved,
                          tt_tensor dy_TD, tt_tensor dmid_TD)
{
    struct tt_workspace *workspace = step->workspace;
    int64_t tokens = dy_TD.dims[0], dim = dy_TD.dims[1], ffn = tt_linear_group_out(&mlp->gate_up) / 2;
    tt_tensor row_keys_T = step->batch->row_keys_T, dact_TF, dh_TR, n_TD;
    size_t mark = tt_workspace_mark(workspace);

    /* d(act) first; then, in one pass, dgate and dup in place of gate and up, and act itself, unless it was
     * kept, in place of d(act). */
    TT_TRY(tt_workspace_2d(workspace, "gradient of the MLP activation", step->compute_dtype, tokens, ffn,
                           &dact_TF));
    TT_TRY(tt_linear_push_h(&mlp->down, step, tokens, &dh_TR));
    tt_tensor act_TF = saved->act_TF;
    bool again = tt_tensor_is_empty(act_TF) && tt_linear_group_needs_x(&mlp->down);
    if (again) act_TF = dact_TF;
    TT_TRY(tt_linear_backward_swiglu(&mlp->down, step, row_keys_T, dy_TD, dh_TR, saved->gate_up_TF2, dact_TF,
                                     again));
    TT_TRY(tt_linear_backward_params(&mlp->down, step, row_keys_T, act_TF, saved->h_down_TR, dy_TD, dh_TR));
    tt_workspace_release(workspace, mark);

    TT_TRY(tt_linear_push_h(&mlp->gate_up, step, tokens, &dh_TR));
    TT_TRY(tt_linear_backward_input(&mlp->gate_up, step, row_keys_T, saved->gate_up_TF2, dh_TR, dmid_TD));
    n_TD = saved->n_TD;
    if (tt_tensor_is_empty(n_TD) && tt_linear_group_needs_x(&mlp->gate_up)) {
        TT_TRY(
            tt_workspace_2d(workspace, "normed input of the MLP", step->compute_dtype, tokens, dim, &n_TD));
        TT_TRY(tt_norm_forward(&mlp->norm, step, saved->x_mid_TD, n_TD, (tt_tensor){0}));
    }
    TT_TRY(tt_linear_backward_params(&mlp->gate_up, step, row_keys_T, n_TD, saved->h_gate_up_TR,
                                     saved->gate_up_TF2, dh_TR));
    TT_TRY(tt_norm_backward(&mlp->norm, step, saved->x_mid_TD, saved->rstd_T, dy_TD, dmid_TD));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}
