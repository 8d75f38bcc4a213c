#include "nn/layer_inputs.h"

#include <math.h>

#include "backend/ops/elementwise.h"
#include "backend/ops/embedding.h"
#include "backend/ops/swiglu.h"
#include "nn/table.h"

/* ---- The side value ---- */

static tt_status scale_by(const struct tt_pass *pass, tt_tensor x, float factor)
{
    struct tt_scale_args args = {.x = x, .factor = factor};
    return tt_scale(pass->lent.stream, &args);
}

static tt_status push_like(const struct tt_pass *pass, const char *name, tt_tensor like, tt_tensor *out)
{
    return tt_workspace_2d(pass->lent.workspace, name, like.dtype, like.dims[0], like.dims[1], out);
}

/* The projection before its norm. */
static tt_status project(const struct tt_layer_inputs *inputs, const struct tt_linear_call *call,
                         tt_tensor y_TC)
{
    TT_TRY(tt_linear_forward(call, y_TC));
    return scale_by(call->pass, y_TC, inputs->scale);
}

static tt_status keep_rows(const struct tt_pass *pass, tt_tensor x_TD, tt_tensor *kept_TD)
{
    TT_TRY(push_like(pass, "embedded rows", x_TD, kept_TD));
    struct tt_cast_args copy = {.x = x_TD, .y = *kept_TD};
    return tt_cast(pass->lent.stream, &copy);
}

tt_status tt_layer_inputs_forward(const struct tt_layer_inputs *inputs, const struct tt_pass *pass,
                                  tt_tensor x_TD, bool parted, tt_tensor *kept_TD)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    tt_tensor value_TC = tt_side_columns(inputs->offers, pass, 0, inputs->offers->columns), h_TR, rows_TC;
    if (kept_TD != NULL && inputs->offers->trains) TT_TRY(keep_rows(pass, x_TD, kept_TD));
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(tt_linear_push_h(&inputs->projection, pass, x_TD.dims[0], &h_TR));
    TT_TRY(push_like(pass, "rows for each layer", value_TC, &rows_TC));
    struct tt_linear_call call = tt_linear_call_tokens(&inputs->projection, pass, x_TD, h_TR);
    TT_TRY(project(inputs, &call, value_TC));
    tt_tensor heads_TLP = tt_tensor_heads(value_TC, inputs->layers);
    TT_TRY(tt_norm_forward(&inputs->norm, pass, heads_TLP, heads_TLP, (tt_tensor){0}, NULL));
    TT_TRY(tt_table_read(pass, inputs->table, parted, rows_TC));
    TT_TRY(scale_by(pass, rows_TC, inputs->table_scale));
    struct tt_add_args add = {.a = value_TC, .b = rows_TC, .y = value_TC};
    TT_TRY(tt_add(pass->lent.stream, &add));
    TT_TRY(scale_by(pass, value_TC, sqrtf(0.5f)));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

static tt_status table_back(const struct tt_layer_inputs *inputs, const struct tt_pass *pass, tt_tensor d_TC)
{
    tt_tensor own_TC;
    if (!inputs->table->trainable) return TT_OK;
    TT_TRY(push_like(pass, "gradient of rows for each layer", d_TC, &own_TC));
    struct tt_cast_args copy = {.x = d_TC, .y = own_TC};
    TT_TRY(tt_cast(pass->lent.stream, &copy));
    TT_TRY(scale_by(pass, own_TC, inputs->table_scale));
    struct tt_embedding_backward_args args = {
        .dy_TD = own_TC, .ids_T = pass->in.batch->ids_T, .dtable_VD = inputs->table->grad};
    return tt_embedding_backward(pass->lent.stream, &args);
}

/* d: of the norm's output -> of the linear's, in place. */
static tt_status norm_back(const struct tt_layer_inputs *inputs, const struct tt_pass *pass,
                           const struct tt_linear_call *call, tt_tensor d_TC)
{
    tt_tensor raw_TC, normed_TC, rstd_N;
    int64_t layers = inputs->layers;
    TT_TRY(push_like(pass, "projection for each layer", d_TC, &raw_TC));
    TT_TRY(push_like(pass, "normed projection for each layer", d_TC, &normed_TC));
    TT_TRY(
        tt_workspace_1d(pass->lent.workspace, "rstd for each layer", TT_F32, d_TC.dims[0] * layers, &rstd_N));
    TT_TRY(project(inputs, call, raw_TC));
    tt_tensor raw_TLP = tt_tensor_heads(raw_TC, layers);
    TT_TRY(tt_norm_forward(&inputs->norm, pass, raw_TLP, tt_tensor_heads(normed_TC, layers), rstd_N, NULL));
    TT_TRY(tt_norm_backward(&inputs->norm, pass, raw_TLP, rstd_N, (tt_tensor){0},
                            tt_tensor_heads(d_TC, layers), NULL));
    return scale_by(pass, d_TC, inputs->scale);
}

tt_status tt_layer_inputs_backward(const struct tt_layer_inputs *inputs, const struct tt_pass *pass,
                                   tt_tensor kept_TD, tt_tensor dx_TD)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    tt_tensor sum_TC = tt_side_gradient(inputs->offers, pass, 0, inputs->offers->columns);
    tt_tensor d_TC, h_TR, dh_TR, side_TD = {0};
    if (tt_tensor_is_empty(sum_TC)) return TT_OK;
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(tt_workspace_2d(workspace, "gradient for each layer", kept_TD.dtype, sum_TC.dims[0],
                           sum_TC.dims[1], &d_TC));
    struct tt_cast_args cast = {.x = sum_TC, .y = d_TC};
    TT_TRY(tt_cast(pass->lent.stream, &cast));
    TT_TRY(scale_by(pass, d_TC, sqrtf(0.5f)));
    TT_TRY(table_back(inputs, pass, d_TC));
    TT_TRY(tt_linear_push_h(&inputs->projection, pass, d_TC.dims[0], &h_TR));
    TT_TRY(tt_linear_push_h(&inputs->projection, pass, d_TC.dims[0], &dh_TR));
    struct tt_linear_call call = tt_linear_call_tokens(&inputs->projection, pass, kept_TD, h_TR);
    TT_TRY(norm_back(inputs, pass, &call, d_TC));
    bool wanted = !tt_tensor_is_empty(dx_TD);
    if (wanted) TT_TRY(push_like(pass, "gradient of embedded rows", dx_TD, &side_TD));
    TT_TRY(tt_linear_backward_input(&call, d_TC, dh_TR, side_TD));
    TT_TRY(tt_linear_backward_params(&call, d_TC, dh_TR));
    struct tt_add_args add = {.a = dx_TD, .b = side_TD, .y = dx_TD};
    if (wanted) TT_TRY(tt_add(pass->lent.stream, &add));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

/* ---- The half ---- */

struct saved {
    tt_tensor gate_TP, h_gate_TR, h_out_TR, out_TD, rstd_out_T;
};
_Static_assert(sizeof(struct saved) <= TT_HALF_SAVED_BYTES, "the layer's record has room for it");

static const struct tt_norm no_norm = {.weight = NULL};

static tt_tensor values_of(const struct tt_layer_input *input, const struct tt_pass *pass)
{
    return tt_side_columns(input->reads, pass, input->first, input->columns);
}

static tt_status push_kept(const struct tt_layer_input *input, const struct tt_pass *pass, tt_tensor x_TD,
                           bool keep, struct saved *saved)
{
    int64_t tokens = x_TD.dims[0];
    struct tt_workspace *workspace = pass->lent.workspace;
    *saved = (struct saved){0};
    TT_TRY(tt_workspace_2d(workspace, "gate of a layer's input", x_TD.dtype, tokens, input->columns,
                           &saved->gate_TP));
    TT_TRY(tt_linear_push_h(&input->gate, pass, tokens, &saved->h_gate_TR));
    TT_TRY(tt_linear_push_h(&input->projection, pass, tokens, &saved->h_out_TR));
    TT_TRY(push_like(pass, "projected input of a layer", x_TD, &saved->out_TD));
    if (!keep) return TT_OK;
    return tt_workspace_1d(workspace, "rstd of a layer's input", TT_F32, tokens, &saved->rstd_out_T);
}

static tt_status forward(const struct tt_half *half, const struct tt_pass *pass,
                         const struct tt_half_input *in, void *record)
{
    const struct tt_layer_input *input = half->impl;
    struct saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    struct tt_quantized_rows rows;
    tt_tensor n_TD = {0}, act_TP;
    size_t start = tt_workspace_mark(workspace);
    TT_TRY(push_kept(input, pass, in->x_TD, in->keep, saved));
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(tt_half_push_norm(&no_norm, &input->gate, pass, in, "input of a layer", (tt_tensor){0}, &n_TD,
                             &rows));
    struct tt_linear_call gate = tt_linear_call_tokens(&input->gate, pass, n_TD, saved->h_gate_TR);
    TT_TRY(tt_linear_forward(&gate, saved->gate_TP));
    TT_TRY(push_like(pass, "gated input of a layer", saved->gate_TP, &act_TP));
    struct tt_swiglu_forward_args args = {.activation = input->activation,
                                          .gate_TF = saved->gate_TP,
                                          .up_TF = values_of(input, pass),
                                          .h_TF = act_TP};
    TT_TRY(tt_swiglu_forward(pass->lent.stream, &args));
    struct tt_linear_call out = tt_linear_call_tokens(&input->projection, pass, act_TP, saved->h_out_TR);
    TT_TRY(tt_half_finish(&input->post_norm, &out, in, saved->out_TD, saved->rstd_out_T));
    tt_workspace_release(workspace, in->keep ? mark : start);
    return TT_OK;
}

/* Gradients behind and of the last linear; the gate's in its place, and the side value's. */
static tt_status backward_out(const struct tt_layer_input *input, const struct tt_pass *pass,
                              const struct saved *saved, const struct tt_half_gradient *gradient)
{
    tt_tensor dout_TD, dact_TP, dvalue_TP, dh_TR;
    struct tt_quantized_rows rows;
    TT_TRY(tt_half_begin_backward(&input->post_norm, &input->projection, pass, gradient,
                                  "gradient of a layer's input", saved->out_TD, saved->rstd_out_T, &dout_TD,
                                  &rows));
    TT_TRY(push_like(pass, "gradient of a gated input", saved->gate_TP, &dact_TP));
    TT_TRY(push_like(pass, "gradient of a layer's values", saved->gate_TP, &dvalue_TP));
    TT_TRY(tt_linear_push_h(&input->projection, pass, dout_TD.dims[0], &dh_TR));
    struct tt_linear_call out = tt_linear_call_tokens(&input->projection, pass, dact_TP, saved->h_out_TR);
    out.quantized = &rows;
    TT_TRY(tt_linear_backward_input(&out, dout_TD, dh_TR, dact_TP));
    struct tt_swiglu_backward_args args = {.activation = input->activation,
                                           .dh_TF = dact_TP,
                                           .gate_TF = saved->gate_TP,
                                           .up_TF = values_of(input, pass),
                                           .dgate_TF = saved->gate_TP,
                                           .dup_TF = dvalue_TP,
                                           .h_TF = dact_TP};
    TT_TRY(tt_swiglu_backward(pass->lent.stream, &args));
    TT_TRY(tt_linear_backward_params(&out, dout_TD, dh_TR));
    return tt_side_add_gradient(input->reads, pass, input->first, dvalue_TP);
}

static tt_status backward(const struct tt_half *half, const struct tt_pass *pass, const void *record,
                          struct tt_half_gradient *gradient)
{
    const struct tt_layer_input *input = half->impl;
    const struct saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    tt_tensor dh_TR;
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(backward_out(input, pass, saved, gradient));
    TT_TRY(tt_linear_push_h(&input->gate, pass, saved->gate_TP.dims[0], &dh_TR));
    struct tt_linear_call gate = tt_linear_call_tokens(&input->gate, pass, gradient->x_TD, saved->h_gate_TR);
    TT_TRY(tt_linear_backward_input(&gate, saved->gate_TP, dh_TR, gradient->dx_TD));
    TT_TRY(tt_linear_backward_params(&gate, saved->gate_TP, dh_TR));
    tt_workspace_release(workspace, mark);
    return tt_half_end_backward(&no_norm, pass, gradient, (tt_tensor){0}, gradient->dx_TD);
}

static const struct tt_linear_group *reader(const struct tt_half *half)
{
    (void)half;
    return NULL; /* behind a norm */
}

static bool trains(const struct tt_half *half)
{
    const struct tt_layer_input *input = half->impl;
    return tt_norm_trains(&input->post_norm) || tt_linear_group_trains(&input->gate) ||
           tt_linear_group_trains(&input->projection);
}

static tt_status visit_linears(const struct tt_half *half, tt_linear_visit *visit, void *context)
{
    const struct tt_layer_input *input = half->impl;
    TT_TRY(tt_linear_group_visit(&input->gate, visit, context));
    return tt_linear_group_visit(&input->projection, visit, context);
}

static double flops(const struct tt_half *half, double length, bool full)
{
    const struct tt_layer_input *input = half->impl;
    (void)length;
    return tt_linear_group_flops(&input->gate, full) + tt_linear_group_flops(&input->projection, full);
}

const struct tt_half_ops tt_layer_input_half = {
    .kind = "layer input",
    .residual = "residual after a layer's input",
    .forward = forward,
    .backward = backward,
    .reader = reader,
    .trains = trains,
    .visit_linears = visit_linears,
    .flops = flops,
};
