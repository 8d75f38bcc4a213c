#include "nn/short_conv.h"

#include "backend/ops/conv1d.h"
#include "nn/kv_cache.h"

struct saved {
    tt_tensor in_TP, h_in_TR, h_out_TR, rstd_T;
    tt_tensor n_TD, y_TD; /* empty: recomputed */
};
_Static_assert(sizeof(struct saved) <= TT_HALF_SAVED_BYTES, "the layer's record has room for it");

static const struct tt_norm no_norm;

static bool trains(const struct tt_half *half)
{
    const struct tt_short_conv *conv = half->impl;
    return conv->weight->trainable || (conv->bias != NULL && conv->bias->trainable) ||
           tt_norm_trains(&conv->norm) || tt_linear_group_trains(&conv->in) ||
           tt_linear_group_trains(&conv->out);
}

static tt_status push(const struct tt_pass *pass, const char *name, int64_t tokens, int64_t columns,
                      tt_tensor *out)
{
    return tt_workspace_2d(pass->lent.workspace, name, pass->in.compute_dtype, tokens, columns, out);
}

static tt_status push_kept(const struct tt_short_conv *conv, const struct tt_pass *pass, int64_t tokens,
                           bool keep, struct saved *saved)
{
    *saved = (struct saved){0};
    TT_TRY(push(pass, "gates and input of the convolution", tokens, 3 * conv->columns, &saved->in_TP));
    TT_TRY(tt_linear_push_h(&conv->in, pass, tokens, &saved->h_in_TR));
    TT_TRY(tt_linear_push_h(&conv->out, pass, tokens, &saved->h_out_TR));
    if (!keep) return TT_OK;
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "rstd", TT_F32, tokens, &saved->rstd_T));
    if (pass->in.level != TT_KEEP_ALL) return TT_OK;
    if (tt_linear_group_needs_x(&conv->in))
        TT_TRY(push(pass, "kept input of the convolution", tokens, conv->columns, &saved->n_TD));
    if (tt_linear_group_needs_x(&conv->out))
        TT_TRY(push(pass, "kept output of the convolution", tokens, conv->columns, &saved->y_TD));
    return TT_OK;
}

/* [D, 1, J] as [D, J]. */
static tt_tensor as_matrix(const struct tt_short_conv *conv, tt_tensor x)
{
    const int64_t *dims = conv->weight->dims;
    return tt_tensor_is_empty(x) ? x : tt_tensor_2d(x.data, x.dtype, dims[0], dims[2]);
}

/* Columns of [b | c | u], or of their gradients. */
static tt_tensor part_of(const struct tt_short_conv *conv, tt_tensor in_TP, int part)
{
    return tt_tensor_cols(in_TP, part * conv->columns, conv->columns);
}

static struct tt_conv1d_forward_args conv_args(const struct tt_short_conv *conv, const struct tt_pass *pass,
                                               const struct saved *saved, tt_tensor y_TD)
{
    const struct tt_device_batch *batch = pass->in.batch;
    struct tt_conv1d_forward_args args = {
        .sequences = {batch->host_cu_seqlens, batch->cu_seqlens, batch->sequence_count},
        .x_TC = part_of(conv, saved->in_TP, 2),
        .in_gate_TC = part_of(conv, saved->in_TP, 0),
        .out_gate_TC = part_of(conv, saved->in_TP, 1),
        .w_CJ = as_matrix(conv, conv->weight->value),
        .bias_C = tt_param_value(conv->bias),
        .y_TC = y_TD};
    if (pass->lent.cache != NULL)
        tt_kv_cache_states(pass->lent.cache, conv->layer, TT_STATE_CONV, &args.sequences, &args.states);
    return args;
}

/* The input of `out`, in the kept place or in scratch that is pushed here. */
static tt_status run_conv(const struct tt_short_conv *conv, const struct tt_pass *pass,
                          const struct saved *saved, tt_tensor *y_TD)
{
    *y_TD = saved->y_TD;
    if (tt_tensor_is_empty(*y_TD))
        TT_TRY(push(pass, "output of the convolution", saved->in_TP.dims[0], conv->columns, y_TD));
    struct tt_conv1d_forward_args args = conv_args(conv, pass, saved, *y_TD);
    return tt_conv1d_forward(pass->lent.stream, &args);
}

static tt_status forward(const struct tt_half *half, const struct tt_pass *pass,
                         const struct tt_half_input *in, void *record)
{
    const struct tt_short_conv *conv = half->impl;
    struct saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t start = tt_workspace_mark(workspace);
    TT_TRY(push_kept(conv, pass, in->x_TD.dims[0], in->keep, saved));
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor n_TD = saved->n_TD, y_TD;
    struct tt_quantized_rows rows;
    TT_TRY(tt_half_push_norm(&conv->norm, &conv->in, pass, in, "normed input of the convolution",
                             saved->rstd_T, &n_TD, &rows));
    struct tt_linear_call call = tt_linear_call_tokens(&conv->in, pass, n_TD, saved->h_in_TR);
    call.quantized = &rows;
    TT_TRY(tt_linear_forward(&call, saved->in_TP));
    tt_workspace_release(workspace, mark);
    bool done = tt_tensor_is_empty(in->y_TD) && tt_tensor_is_empty(saved->h_out_TR) &&
                tt_tensor_is_empty(saved->y_TD);
    if (!done) {
        TT_TRY(run_conv(conv, pass, saved, &y_TD));
        struct tt_linear_call out = tt_linear_call_tokens(&conv->out, pass, y_TD, saved->h_out_TR);
        TT_TRY(tt_half_finish(&no_norm, &out, in, (tt_tensor){0}, (tt_tensor){0}));
    }
    tt_workspace_release(workspace, in->keep ? mark : start);
    return TT_OK;
}

/* dy -> the gradient of the input of `out`, in dy_TD; adds to the gradients of `out`. */
static tt_status out_back(const struct tt_short_conv *conv, const struct tt_pass *pass,
                          const struct saved *saved, const struct tt_half_gradient *gradient, tt_tensor dy_TD)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor y_TD = saved->y_TD;
    if (tt_tensor_is_empty(y_TD) && tt_linear_group_needs_x(&conv->out))
        TT_TRY(run_conv(conv, pass, saved, &y_TD));
    TT_TRY(tt_half_last_back(&conv->out, pass, gradient, y_TD, saved->h_out_TR, dy_TD));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

static tt_status backward(const struct tt_half *half, const struct tt_pass *pass, const void *record,
                          struct tt_half_gradient *gradient)
{
    const struct tt_short_conv *conv = half->impl;
    const struct saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t tokens = gradient->dy_TD.dims[0];
    tt_tensor din_TP, dy_TD, dn_TD, n_TD = saved->n_TD;
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(push(pass, "gradient of gates and input", tokens, 3 * conv->columns, &din_TP));
    size_t scratch = tt_workspace_mark(workspace);
    TT_TRY(push(pass, "gradient of the convolution", tokens, conv->columns, &dy_TD));
    TT_TRY(out_back(conv, pass, saved, gradient, dy_TD));
    struct tt_conv1d_backward_args args = {.forward = conv_args(conv, pass, saved, (tt_tensor){0}),
                                           .dy_TC = dy_TD,
                                           .dx_TC = part_of(conv, din_TP, 2),
                                           .din_gate_TC = part_of(conv, din_TP, 0),
                                           .dout_gate_TC = part_of(conv, din_TP, 1),
                                           .dw_CJ = as_matrix(conv, tt_param_grad(conv->weight)),
                                           .dbias_C = tt_param_grad(conv->bias)};
    TT_TRY(tt_conv1d_backward(pass->lent.stream, &args));
    tt_workspace_release(workspace, scratch);

    TT_TRY(tt_half_push_gradient(&conv->norm, pass, gradient, &dn_TD));
    TT_TRY(tt_half_first_back(&conv->norm, &conv->in, pass, gradient, "normed input of the convolution",
                              tt_linear_group_needs_x(&conv->in), din_TP, NULL, saved->h_in_TR, &n_TD,
                              dn_TD));
    /* Memory of dn that is not dx lies above the mark. */
    if (!tt_tensor_is_empty(gradient->dx_TD)) tt_workspace_release(workspace, mark);
    return tt_half_end_backward(&conv->norm, pass, gradient, saved->rstd_T, dn_TD);
}

static const struct tt_linear_group *reader(const struct tt_half *half)
{
    const struct tt_short_conv *conv = half->impl;
    return &conv->out;
}

static tt_status visit_linears(const struct tt_half *half, tt_linear_visit *visit, void *context)
{
    const struct tt_short_conv *conv = half->impl;
    TT_TRY(tt_linear_group_visit(&conv->in, visit, context));
    return tt_linear_group_visit(&conv->out, visit, context);
}

static double flops(const struct tt_half *half, double length, bool full)
{
    const struct tt_short_conv *conv = half->impl;
    (void)length;
    return tt_linear_group_flops(&conv->in, full) + tt_linear_group_flops(&conv->out, full);
}

const struct tt_half_ops tt_short_conv_half = {
    .kind = "short convolution",
    .residual = "residual after a convolution",
    .forward = forward,
    .backward = backward,
    .reader = reader,
    .trains = trains,
    .visit_linears = visit_linears,
    .flops = flops,
};
