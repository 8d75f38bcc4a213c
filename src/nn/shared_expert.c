#include "nn/shared_expert.h"

#include "backend/ops/elementwise.h"
#include "backend/ops/expert_rows.h"
#include "backend/ops/route.h"
#include "backend/ops/swiglu.h"

static const struct tt_route_rule sigmoid = {.score = TT_ROUTE_SIGMOID};

bool tt_shared_expert_trains(const struct tt_shared_expert *shared)
{
    return tt_linear_group_trains(&shared->gate_up) || tt_linear_group_trains(&shared->down) ||
           tt_linear_group_trains(&shared->gate);
}

bool tt_shared_expert_needs_x(const struct tt_shared_expert *shared)
{
    return tt_linear_group_needs_x(&shared->gate_up) || tt_linear_group_needs_x(&shared->gate);
}

static bool is_gated(const struct tt_shared_expert *shared)
{
    return shared->gate.count > 0;
}

static int64_t width_of(const struct tt_shared_expert *shared)
{
    return shared->down.linears[0].in;
}

/* Gate and up of all tokens, or the activation's input and nothing. */
static tt_tensor gate_of(const struct tt_shared_expert *shared, const struct tt_shared_saved *saved)
{
    return tt_tensor_cols(saved->gate_up_TF2, 0, width_of(shared));
}

static tt_tensor up_of(const struct tt_shared_expert *shared, const struct tt_shared_saved *saved)
{
    int64_t width = width_of(shared);
    bool gated = tt_linear_group_out(&shared->gate_up) > width;
    return gated ? tt_tensor_cols(saved->gate_up_TF2, width, width) : (tt_tensor){0};
}

static tt_status push(const struct tt_pass *pass, const char *name, int64_t tokens, int64_t columns,
                      tt_tensor *out)
{
    return tt_workspace_2d(pass->lent.workspace, name, pass->in.compute_dtype, tokens, columns, out);
}

tt_status tt_shared_expert_push(const struct tt_shared_expert *shared, const struct tt_pass *pass,
                                int64_t tokens, struct tt_shared_saved *saved)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    *saved = (struct tt_shared_saved){0};
    if (shared->gate_up.count == 0) return TT_OK;
    TT_TRY(push(pass, "gate and up of the shared expert", tokens, tt_linear_group_out(&shared->gate_up),
                &saved->gate_up_TF2));
    TT_TRY(tt_linear_push_h(&shared->gate_up, pass, tokens, &saved->h_gate_up_TR));
    TT_TRY(tt_linear_push_h(&shared->down, pass, tokens, &saved->h_down_TR));
    if (!is_gated(shared)) return TT_OK;
    TT_TRY(push(pass, "gate of the shared expert", tokens, 1, &saved->logit_T1));
    TT_TRY(tt_linear_push_h(&shared->gate, pass, tokens, &saved->h_gate_TR));
    TT_TRY(tt_workspace_2d(workspace, "weight of the shared expert", TT_F32, tokens, 1, &saved->weight_T1));
    return tt_workspace_2d(workspace, "id of the shared expert", TT_I32, tokens, 1, &saved->id_T1);
}

tt_status tt_shared_expert_first(const struct tt_shared_expert *shared, const struct tt_pass *pass,
                                 const struct tt_shared_saved *saved, tt_tensor n_TD)
{
    if (shared->gate_up.count == 0) return TT_OK;
    struct tt_linear_call call = tt_linear_call_tokens(&shared->gate_up, pass, n_TD, saved->h_gate_up_TR);
    TT_TRY(tt_linear_forward(&call, saved->gate_up_TF2));
    if (!is_gated(shared)) return TT_OK;
    struct tt_linear_call gate = tt_linear_call_tokens(&shared->gate, pass, n_TD, saved->h_gate_TR);
    struct tt_route_forward_args route = {.rule = sigmoid,
                                          .logits_TX = saved->logit_T1,
                                          .ids_TS = saved->id_T1,
                                          .weights_TS = saved->weight_T1};
    TT_TRY(tt_linear_forward(&gate, saved->logit_T1));
    return tt_route_forward(pass->lent.stream, &route);
}

static tt_status push_activation(const struct tt_shared_expert *shared, const struct tt_pass *pass,
                                 const struct tt_shared_saved *saved, tt_tensor *act_TF)
{
    int64_t width = width_of(shared);
    TT_TRY(push(pass, "activation of the shared expert", saved->gate_up_TF2.dims[0], width, act_TF));
    struct tt_swiglu_forward_args args = {.activation = shared->activation,
                                          .gate_TF = gate_of(shared, saved),
                                          .up_TF = up_of(shared, saved),
                                          .h_TF = *act_TF};
    return tt_swiglu_forward(pass->lent.stream, &args);
}

/* The output of down, in scratch that is pushed here. */
static tt_status push_output(const struct tt_shared_expert *shared, const struct tt_pass *pass,
                             const struct tt_shared_saved *saved, tt_tensor act_TF, tt_tensor *out_TD)
{
    struct tt_linear_call down = tt_linear_call_tokens(&shared->down, pass, act_TF, saved->h_down_TR);
    TT_TRY(push(pass, "output of the shared expert", act_TF.dims[0], tt_linear_group_out(&shared->down),
                out_TD));
    return tt_linear_forward(&down, *out_TD);
}

tt_status tt_shared_expert_add(const struct tt_shared_expert *shared, const struct tt_pass *pass,
                               const struct tt_shared_saved *saved, tt_tensor y_TD)
{
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    bool again = tt_tensor_is_empty(y_TD);
    tt_tensor act_TF, out_TD;
    if (shared->gate_up.count == 0 || (again && tt_tensor_is_empty(saved->h_down_TR))) return TT_OK;
    TT_TRY(push_activation(shared, pass, saved, &act_TF));
    if (again) {
        struct tt_linear_call down = tt_linear_call_tokens(&shared->down, pass, act_TF, saved->h_down_TR);
        TT_TRY(tt_linear_forward(&down, y_TD));
    } else {
        TT_TRY(push_output(shared, pass, saved, act_TF, &out_TD));
        struct tt_add_args add = {.a = y_TD, .b = out_TD, .y = y_TD};
        struct tt_combine_rows_args gated = {
            .x_MD = out_TD, .weights_TS = saved->weight_T1, .addend_TD = y_TD, .y_TD = y_TD};
        TT_TRY(is_gated(shared) ? tt_combine_rows(pass->lent.stream, &gated)
                                : tt_add(pass->lent.stream, &add));
    }
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* dout -> the gradient of down's output, in scratch that is pushed here, and of the gate. */
static tt_status gate_back(const struct tt_shared_expert *shared, const struct tt_pass *pass,
                           const struct tt_shared_saved *saved, tt_tensor act_TF, tt_tensor *dout_TD,
                           tt_tensor dlogit_T1)
{
    int64_t tokens = act_TF.dims[0], dim = dout_TD->dims[1];
    tt_tensor dweight_T1, weighted_TD, out_TD;
    struct tt_cast_args copy = {.x = *dout_TD};
    TT_TRY(push(pass, "weighted gradient of the shared expert", tokens, dim, &weighted_TD));
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient of the weight of the shared expert", TT_F32,
                           tokens, 1, &dweight_T1));
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(push_output(shared, pass, saved, act_TF, &out_TD));
    copy.y = weighted_TD;
    TT_TRY(tt_cast(pass->lent.stream, &copy));
    struct tt_weigh_rows_args weigh = {
        .x_MD = out_TD, .g_MD = weighted_TD, .weights_TS = saved->weight_T1, .dweights_TS = dweight_T1};
    TT_TRY(tt_weigh_rows(pass->lent.stream, &weigh));
    tt_workspace_release(pass->lent.workspace, mark);
    *dout_TD = weighted_TD;
    struct tt_route_backward_args route = {.rule = sigmoid,
                                           .logits_TX = saved->logit_T1,
                                           .ids_TS = saved->id_T1,
                                           .dweights_TS = dweight_T1,
                                           .dlogits_TX = dlogit_T1};
    return tt_route_backward(pass->lent.stream, &route);
}

/* dout -> the gradients of gate and up, in their place; adds to those of down. */
static tt_status down_back(const struct tt_shared_expert *shared, const struct tt_pass *pass,
                           const struct tt_shared_saved *saved, tt_tensor act_TF, tt_tensor dout_TD)
{
    int64_t width = width_of(shared);
    tt_tensor dact_TF, dh_TR;
    TT_TRY(push(pass, "gradient of the shared activation", act_TF.dims[0], width, &dact_TF));
    TT_TRY(tt_linear_push_h(&shared->down, pass, act_TF.dims[0], &dh_TR));
    struct tt_linear_call down = tt_linear_call_tokens(&shared->down, pass, act_TF, saved->h_down_TR);
    TT_TRY(tt_linear_backward_input(&down, dout_TD, dh_TR, dact_TF));
    TT_TRY(tt_linear_backward_params(&down, dout_TD, dh_TR));
    struct tt_swiglu_backward_args args = {.activation = shared->activation,
                                           .dh_TF = dact_TF,
                                           .gate_TF = gate_of(shared, saved),
                                           .up_TF = up_of(shared, saved)};
    args.dgate_TF = args.gate_TF;
    args.dup_TF = args.up_TF;
    return tt_swiglu_backward(pass->lent.stream, &args);
}

tt_status tt_shared_expert_back(const struct tt_shared_expert *shared, const struct tt_pass *pass,
                                const struct tt_shared_saved *saved, tt_tensor dout_TD, tt_tensor n_TD,
                                tt_tensor dn_TD)
{
    size_t start = tt_workspace_mark(pass->lent.workspace);
    tt_tensor act_TF, dlogit_T1 = {0};
    if (shared->gate_up.count == 0) return TT_OK;
    if (is_gated(shared)) TT_TRY(push(pass, "gradient of the shared gate", dout_TD.dims[0], 1, &dlogit_T1));
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(push_activation(shared, pass, saved, &act_TF));
    if (is_gated(shared)) TT_TRY(gate_back(shared, pass, saved, act_TF, &dout_TD, dlogit_T1));
    TT_TRY(down_back(shared, pass, saved, act_TF, dout_TD));
    tt_workspace_release(pass->lent.workspace, mark);
    TT_TRY(tt_half_second_back(&shared->gate_up, pass, "gradient through the shared expert",
                               saved->gate_up_TF2, saved->h_gate_up_TR, n_TD, dn_TD));
    tt_workspace_release(pass->lent.workspace, mark);
    if (is_gated(shared))
        TT_TRY(tt_half_second_back(&shared->gate, pass, "gradient through the shared gate", dlogit_T1,
                                   saved->h_gate_TR, n_TD, dn_TD));
    tt_workspace_release(pass->lent.workspace, start);
    return TT_OK;
}

tt_status tt_shared_expert_visit(const struct tt_shared_expert *shared, tt_linear_visit *visit, void *context)
{
    TT_TRY(tt_linear_group_visit(&shared->gate_up, visit, context));
    TT_TRY(tt_linear_group_visit(&shared->down, visit, context));
    return tt_linear_group_visit(&shared->gate, visit, context);
}

double tt_shared_expert_flops(const struct tt_shared_expert *shared, bool full)
{
    return tt_linear_group_flops(&shared->gate_up, full) + tt_linear_group_flops(&shared->down, full) +
           tt_linear_group_flops(&shared->gate, full);
}
