/* The gate of attention's output: a linear of its own, or columns of q's linear, behind each head of q. */
#include "backend/ops/swiglu.h"
#include "nn/self_attention_impl.h"

static bool has_linear(const struct tt_self_attention *attention)
{
    return attention->gate.count > 0;
}

bool tt_attention_needs_input(const struct tt_self_attention *attention)
{
    return tt_linear_group_needs_x(&attention->qkv) || tt_linear_group_needs_x(&attention->gate);
}

tt_status tt_attention_push_gate(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                 int64_t tokens, struct tt_attention_saved *saved)
{
    if (!has_linear(attention)) return TT_OK;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gate of attention", pass->in.compute_dtype, tokens,
                           attention->heads * attention->head_dim, &saved->gate_TC));
    return tt_linear_push_h(&attention->gate, pass, tokens, &saved->h_gate_TR);
}

tt_status tt_attention_push_input(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                  tt_tensor x_TD, tt_tensor *n_TD)
{
    if (!has_linear(attention) || !tt_norm_exists(&attention->norm) || !tt_tensor_is_empty(*n_TD))
        return TT_OK;
    return tt_workspace_2d(pass->lent.workspace, "normed input of attention", pass->in.compute_dtype,
                           x_TD.dims[0], x_TD.dims[1], n_TD);
}

tt_status tt_attention_project_gate(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                    tt_tensor n_TD, const struct tt_quantized_rows *rows,
                                    const struct tt_attention_saved *saved)
{
    if (!has_linear(attention)) return TT_OK;
    struct tt_linear_call call = tt_linear_call_tokens(&attention->gate, pass, n_TD, saved->h_gate_TR);
    if (tt_linear_takes_quantized(&attention->gate, TT_LINEAR_FORWARD)) call.quantized = rows;
    return tt_linear_forward(&call, saved->gate_TC);
}

/* The gates among the columns that the linears make, or what stands in their place. */
static tt_tensor gates_of(const struct tt_self_attention *attention, tt_tensor gate_TC, tt_tensor qkv_TC)
{
    if (!attention->gates_heads) return gate_TC;
    int64_t columns = tt_attention_q_columns(attention), dim = attention->head_dim;
    tt_tensor gates_THE = tt_tensor_heads(tt_tensor_cols(qkv_TC, 0, columns), attention->heads);
    gates_THE.dims[2] = dim;
    if (gates_THE.data != NULL)
        gates_THE.data = (char *)gates_THE.data + (size_t)dim * tt_dtype_bytes(gates_THE.dtype);
    return gates_THE;
}

/* Rows as the gates have them. */
static tt_tensor like_gates(const struct tt_self_attention *attention, tt_tensor x_TC)
{
    return attention->gates_heads ? tt_tensor_heads(x_TC, attention->heads) : x_TC;
}

tt_status tt_attention_apply_gate(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                  bool keep, const struct tt_attention_saved *saved, tt_tensor *gated_TC)
{
    *gated_TC = saved->o_TC;
    if (!has_linear(attention) && !attention->gates_heads) return TT_OK;
    if (keep)
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "gated output of attention", saved->o_TC.dtype,
                               saved->o_TC.dims[0], saved->o_TC.dims[1], gated_TC));
    struct tt_swiglu_forward_args args = {.activation = TT_ACTIVATION_SIGMOID,
                                          .gate_TF = gates_of(attention, saved->gate_TC, saved->qkv_TC),
                                          .up_TF = like_gates(attention, saved->o_TC),
                                          .h_TF = like_gates(attention, *gated_TC)};
    return tt_swiglu_forward(pass->lent.stream, &args);
}

tt_status tt_attention_gate_back(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                 const struct tt_attention_saved *saved, tt_tensor dqkv_TC,
                                 tt_tensor *gated_TC, tt_tensor *do_TC)
{
    if (!has_linear(attention) && !attention->gates_heads) return TT_OK;
    *gated_TC = *do_TC;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient before the gate", gated_TC->dtype,
                           gated_TC->dims[0], gated_TC->dims[1], do_TC));
    struct tt_swiglu_backward_args args = {.activation = TT_ACTIVATION_SIGMOID,
                                           .dh_TF = like_gates(attention, *gated_TC),
                                           .gate_TF = gates_of(attention, saved->gate_TC, saved->qkv_TC),
                                           .up_TF = like_gates(attention, saved->o_TC),
                                           .dgate_TF = gates_of(attention, saved->gate_TC, dqkv_TC),
                                           .dup_TF = like_gates(attention, *do_TC),
                                           .h_TF = like_gates(attention, *gated_TC)};
    return tt_swiglu_backward(pass->lent.stream, &args);
}

tt_status tt_attention_gate_linear_back(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                        const struct tt_attention_saved *saved, tt_tensor n_TD,
                                        tt_tensor dn_TD)
{
    if (!has_linear(attention)) return TT_OK;
    return tt_half_second_back(&attention->gate, pass, "gradient through the gate", saved->gate_TC,
                               saved->h_gate_TR, n_TD, dn_TD);
}
