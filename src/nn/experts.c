#include "nn/experts.h"

#include "backend/ops/elementwise.h"
#include "backend/ops/expert_rows.h"
#include "backend/ops/grouped_gemm.h"
#include "nn/expert_codes.h"

/* Where ranks share the experts (nn/expert_exchange.h) N places and their M = N S slots are those of all ranks, borders
 * and rows those of this rank's experts, and T are this rank's tokens; else N is T. */
struct saved {
    tt_tensor all_weights_NS, all_ids_NS, place_NS, slot_M, border_X1;
    tt_tensor logits_TX, weights_TS, ids_TS, rstd_T; /* weights and ids: this rank's of `all` */
    tt_tensor out_TD, post_rstd_T, router_rstd_T;    /* with these norms */
    tt_tensor gate_up_M2I, h_gate_up_MR, h_down_MR, h_router_TR;
    tt_tensor n_TD, act_MI; /* empty: recomputed */
    struct tt_shared_saved shared;
};
_Static_assert(sizeof(struct saved) <= TT_HALF_SAVED_BYTES, "the layer's record has room for it");

static bool trains(const struct tt_half *half)
{
    const struct tt_experts *experts = half->impl;
    return tt_norm_trains(&experts->norm) || tt_norm_trains(&experts->post_norm) ||
           tt_norm_trains(&experts->router_norm) || tt_linear_group_trains(&experts->router) ||
           tt_expert_linear_trains(&experts->gate_up) || tt_expert_linear_trains(&experts->down) ||
           tt_shared_expert_trains(&experts->shared);
}

/* Whether backward reads the normed input. */
static bool needs_input(const struct tt_experts *experts)
{
    return tt_expert_linear_needs_x(&experts->gate_up) ||
           (!tt_norm_exists(&experts->router_norm) && tt_linear_group_needs_x(&experts->router)) ||
           tt_shared_expert_needs_x(&experts->shared);
}

static struct tt_expert_share share_of(const struct tt_experts *experts, const struct tt_pass *pass)
{
    return tt_expert_share_of(pass, experts->gate_up.experts);
}

static tt_status push(const struct tt_pass *pass, const char *name, int64_t rows, int64_t columns,
                      tt_tensor *out)
{
    return tt_workspace_2d(pass->lent.workspace, name, pass->in.compute_dtype, rows, columns, out);
}

/* The choice and the order of rows; the same for both directions. */
static tt_status push_choice(const struct tt_experts *experts, const struct tt_pass *pass, int64_t tokens,
                             struct saved *saved)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    struct tt_expert_share share = share_of(experts, pass);
    int64_t slots = experts->slots, places = tt_expert_share_rows(&share, tokens);
    tt_dtype logits = experts->wide_logits ? TT_F32 : pass->in.compute_dtype;
    TT_TRY(tt_workspace_2d(workspace, "router logits", logits, tokens, experts->gate_up.experts,
                           &saved->logits_TX));
    TT_TRY(tt_linear_push_h(&experts->router, pass, tokens, &saved->h_router_TR));
    TT_TRY(tt_workspace_2d(workspace, "weights of experts", TT_F32, places, slots, &saved->all_weights_NS));
    TT_TRY(tt_workspace_2d(workspace, "chosen experts", TT_I32, places, slots, &saved->all_ids_NS));
    TT_TRY(tt_workspace_2d(workspace, "rows of slots", TT_I32, places, slots, &saved->place_NS));
    TT_TRY(tt_workspace_1d(workspace, "slots of rows", TT_I32, places * slots, &saved->slot_M));
    saved->weights_TS = tt_expert_share_own(&share, saved->all_weights_NS, tokens);
    saved->ids_TS = tt_expert_share_own(&share, saved->all_ids_NS, tokens);
    return tt_workspace_1d(workspace, "borders of experts", TT_I32, share.count + 1, &saved->border_X1);
}

/* The factor of each row of a norm. */
static tt_status push_factor(const struct tt_norm *norm, const struct tt_pass *pass, int64_t tokens,
                             tt_tensor *rstd_T)
{
    if (!tt_norm_exists(norm)) return TT_OK;
    return tt_workspace_1d(pass->lent.workspace, "rstd", TT_F32, tokens, rstd_T);
}

static tt_status push_kept(const struct tt_experts *experts, const struct tt_pass *pass,
                           const struct tt_half_input *in, struct saved *saved)
{
    int64_t tokens = in->x_TD.dims[0], dim = experts->gate_up.in;
    TT_TRY(push_choice(experts, pass, tokens, saved));
    int64_t rows = saved->slot_M.dims[0];
    TT_TRY(push(pass, "gate and up of experts", rows, experts->gate_up.out, &saved->gate_up_M2I));
    TT_TRY(tt_expert_linear_push_h(&experts->gate_up, pass, rows, &saved->h_gate_up_MR));
    TT_TRY(tt_expert_linear_push_h(&experts->down, pass, rows, &saved->h_down_MR));
    TT_TRY(tt_shared_expert_push(&experts->shared, pass, tokens, &saved->shared));
    if (tt_norm_exists(&experts->post_norm))
        TT_TRY(push(pass, "output of the mixture", tokens, dim, &saved->out_TD));
    if (!in->keep) return TT_OK;
    TT_TRY(push_factor(&experts->norm, pass, tokens, &saved->rstd_T));
    TT_TRY(push_factor(&experts->post_norm, pass, tokens, &saved->post_rstd_T));
    TT_TRY(push_factor(&experts->router_norm, pass, tokens, &saved->router_rstd_T));
    if (pass->in.level != TT_KEEP_ALL) return TT_OK;
    if (needs_input(experts)) TT_TRY(push(pass, "kept input of experts", tokens, dim, &saved->n_TD));
    return push(pass, "kept activation of experts", rows, experts->down.in, &saved->act_MI);
}

/* Rows of this rank's tokens become those of all places, pushed here where ranks share the experts. */
static tt_status push_all(const struct tt_experts *experts, const struct tt_pass *pass, const char *name,
                          tt_tensor *x_TD)
{
    struct tt_expert_share share = share_of(experts, pass);
    tt_tensor own_TD = *x_TD;
    if (share.size <= 1) return TT_OK;
    return tt_expert_share_push(&share, pass, name, own_TD, experts->gate_up.in, x_TD);
}

/* y = addend + the rows of each token, weighted unless `weights` is empty. Where ranks share the experts an empty y is
 * of no token here. */
static tt_status gather_rows(const struct tt_experts *experts, const struct tt_pass *pass,
                             const struct saved *saved, tt_tensor rows_MD, tt_tensor weights_NS,
                             tt_tensor addend_TD, tt_tensor y_TD)
{
    struct tt_expert_share share = share_of(experts, pass);
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    struct tt_combine_rows_args args = {.x_MD = rows_MD,
                                        .weights_TS = weights_NS,
                                        .place_TS = saved->place_NS,
                                        .addend_TD = addend_TD,
                                        .y_TD = y_TD};
    if (share.size <= 1) return tt_combine_rows(pass->lent.stream, &args);
    args.addend_TD = (tt_tensor){0};
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "sums of experts", TT_F32, saved->place_NS.dims[0],
                           rows_MD.dims[1], &args.y_TD));
    TT_TRY(tt_combine_rows(pass->lent.stream, &args));
    TT_TRY(tt_expert_share_return(&share, pass, args.y_TD, addend_TD, y_TD));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* Gate and up of all rows, or the activation's input and nothing. */
static tt_tensor gate_of(const struct tt_experts *experts, const struct saved *saved)
{
    return tt_tensor_cols(saved->gate_up_M2I, 0, experts->down.in);
}

static tt_tensor up_of(const struct tt_experts *experts, const struct saved *saved)
{
    int64_t width = experts->down.in;
    bool gated = experts->gate_up.out > width;
    return gated ? tt_tensor_cols(saved->gate_up_M2I, width, width) : (tt_tensor){0};
}

/* The activation, in the kept place or in scratch that is pushed here; `made`: a kept one is there. `rows`: NULL, or
 * for down the rows in FP8 that it takes; the values then have no memory where nobody reads them. */
static tt_status push_activation(const struct tt_experts *experts, const struct tt_pass *pass,
                                 const struct saved *saved, bool made, struct tt_quantized_rows *rows,
                                 tt_tensor *act_MI)
{
    bool kept = !tt_tensor_is_empty(saved->act_MI);
    int64_t count = saved->slot_M.dims[0], width = experts->down.in;
    struct tt_swiglu_forward_args args = {.activation = experts->activation,
                                          .gate_TF = gate_of(experts, saved),
                                          .up_TF = up_of(experts, saved)};
    *act_MI = saved->act_MI;
    if (kept && made) return TT_OK;
    if (rows != NULL)
        TT_TRY(tt_expert_codes_push(&experts->down, TT_LINEAR_FORWARD, pass, count, width, rows));
    bool coded = rows != NULL && !tt_tensor_is_empty(rows->codes_MK);
    bool alone = coded && experts->down.r == 0 && tt_expert_codes_alone(pass, &args);
    if (!kept && alone) *act_MI = tt_tensor_2d(NULL, pass->in.compute_dtype, count, width);
    if (!kept && !alone) TT_TRY(push(pass, "activation of experts", count, width, act_MI));
    args.h_TF = *act_MI;
    if (coded) return tt_expert_codes_activate(pass, &args, rows);
    return tt_swiglu_forward(pass->lent.stream, &args);
}

static tt_status scale_logits(const struct tt_experts *experts, const struct tt_pass *pass,
                              tt_tensor logits_TX)
{
    struct tt_scale_args scale = {.x = logits_TX, .factor = experts->router_scale};
    return experts->router_scale == 0 ? TT_OK : tt_scale(pass->lent.stream, &scale);
}

/* The router reads n, or x_TD by a norm of its own, in scratch. */
static tt_status push_router_input(const struct tt_experts *experts, const struct tt_pass *pass,
                                   tt_tensor x_TD, tt_tensor rstd_T, tt_tensor *n_TD)
{
    if (!tt_norm_exists(&experts->router_norm)) return TT_OK;
    TT_TRY(push(pass, "normed input of the router", x_TD.dims[0], x_TD.dims[1], n_TD));
    return tt_norm_forward(&experts->router_norm, pass, x_TD, *n_TD, rstd_T, NULL);
}

/* stream_TD: x, complete. */
static tt_status choose(const struct tt_experts *experts, const struct tt_pass *pass,
                        const struct saved *saved, tt_tensor stream_TD, tt_tensor n_TD)
{
    TT_TRY(push_router_input(experts, pass, stream_TD, saved->router_rstd_T, &n_TD));
    struct tt_linear_call call = tt_linear_call_tokens(&experts->router, pass, n_TD, saved->h_router_TR);
    struct tt_route_forward_args route = {.rule = experts->rule,
                                          .logits_TX = saved->logits_TX,
                                          .bias_X = tt_param_value(experts->choice_bias),
                                          .scale_X = tt_param_value(experts->scale),
                                          .ids_TS = saved->ids_TS,
                                          .weights_TS = saved->weights_TS};
    if (!pass->in.again) route.load_2X = pass->lent.balance.load_2X;
    TT_TRY(tt_linear_forward(&call, saved->logits_TX));
    TT_TRY(scale_logits(experts, pass, saved->logits_TX));
    return tt_route_forward(pass->lent.stream, &route);
}

/* The slots whose experts this rank has. */
static tt_status order(const struct tt_experts *experts, const struct tt_pass *pass,
                       const struct saved *saved)
{
    struct tt_expert_share share = share_of(experts, pass);
    int64_t tokens = saved->ids_TS.dims[0];
    struct tt_order_rows_args args = {saved->all_ids_NS, saved->place_NS, saved->slot_M,
                                      saved->border_X1,  share.size > 1,  share.first};
    TT_TRY(tt_expert_share_gather(&share, pass, saved->all_ids_NS, tokens, true));
    TT_TRY(tt_expert_share_gather(&share, pass, saved->all_weights_NS, tokens, false));
    return tt_order_rows(pass->lent.stream, &args);
}

/* y = sum + post_norm(the weighted rows); y may be the sum's place, or empty where backward alone reads them. */
static tt_status combine_normed(const struct tt_experts *experts, const struct tt_pass *pass,
                                const struct tt_half_input *in, const struct saved *saved, tt_tensor rows_MD)
{
    tt_tensor normed_TD, sum_TD = in->sum_TD;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(gather_rows(experts, pass, saved, rows_MD, saved->all_weights_NS, (tt_tensor){0}, saved->out_TD));
    if (saved->out_TD.dims[0] == 0) return TT_OK;
    TT_TRY(
        push(pass, "normed output of the mixture", saved->out_TD.dims[0], saved->out_TD.dims[1], &normed_TD));
    bool alone = tt_tensor_is_empty(sum_TD) && !tt_tensor_is_empty(in->y_TD);
    TT_TRY(tt_norm_forward(&experts->post_norm, pass, saved->out_TD, alone ? in->y_TD : normed_TD,
                           saved->post_rstd_T, NULL));
    struct tt_add_args add = {.a = sum_TD, .b = normed_TD, .y = in->y_TD};
    if (!alone && !tt_tensor_is_empty(in->y_TD)) TT_TRY(tt_add(pass->lent.stream, &add));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* y = sum + scale * (the weighted rows + those of the shared expert) */
static tt_status combine(const struct tt_experts *experts, const struct tt_pass *pass,
                         const struct tt_half_input *in, const struct saved *saved, tt_tensor rows_MD)
{
    if (tt_norm_exists(&experts->post_norm)) return combine_normed(experts, pass, in, saved, rows_MD);
    TT_TRY(gather_rows(experts, pass, saved, rows_MD, saved->all_weights_NS,
                       in->scale == 0 ? in->sum_TD : (tt_tensor){0}, in->y_TD));
    if (saved->ids_TS.dims[0] == 0) return TT_OK;
    TT_TRY(tt_shared_expert_add(&experts->shared, pass, &saved->shared, in->y_TD));
    if (in->scale == 0) return TT_OK;
    struct tt_scale_args scale = {.x = in->y_TD, .factor = in->scale};
    struct tt_add_args add = {.a = in->sum_TD, .b = in->y_TD, .y = in->y_TD};
    TT_TRY(tt_scale(pass->lent.stream, &scale));
    return tt_tensor_is_empty(in->sum_TD) ? TT_OK : tt_add(pass->lent.stream, &add);
}

/* The choice, gate and up. */
static tt_status run_first(const struct tt_experts *experts, const struct tt_pass *pass,
                           const struct tt_half_input *in, const struct saved *saved)
{
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor n_TD = saved->n_TD, rows_MD;
    struct tt_quantized_rows rows;
    if (saved->ids_TS.dims[0] > 0) {
        TT_TRY(tt_half_push_norm(&experts->norm, &experts->router, pass, in, "normed input of experts",
                                 saved->rstd_T, &n_TD, &rows));
        TT_TRY(
            choose(experts, pass, saved, tt_tensor_is_empty(in->delta_TD) ? in->x_TD : in->delta_TD, n_TD));
        TT_TRY(tt_shared_expert_first(&experts->shared, pass, &saved->shared, n_TD));
    }
    TT_TRY(order(experts, pass, saved));
    TT_TRY(push_all(experts, pass, "normed input of all ranks", &n_TD));
    struct tt_expert_rows of = {.border_X1 = saved->border_X1, .slot_M = saved->slot_M};
    TT_TRY(tt_expert_codes_spread(&experts->gate_up, TT_LINEAR_FORWARD, pass, "rows of experts", n_TD,
                                  experts->gate_up.r > 0, &of, &rows_MD));
    TT_TRY(tt_expert_linear_forward(&experts->gate_up, pass, &of, rows_MD, saved->h_gate_up_MR,
                                    saved->gate_up_M2I));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status forward(const struct tt_half *half, const struct tt_pass *pass,
                         const struct tt_half_input *in, void *record)
{
    const struct tt_experts *experts = half->impl;
    struct saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t start = tt_workspace_mark(workspace);
    *saved = (struct saved){0};
    /* nobody waits for a rank alone */
    if (in->x_TD.dims[0] == 0 && share_of(experts, pass).size <= 1) return TT_OK;
    TT_TRY(push_kept(experts, pass, in, saved));
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(run_first(experts, pass, in, saved));
    /* backward reads the input of the post norm */
    bool again = tt_tensor_is_empty(in->y_TD) && !tt_norm_exists(&experts->post_norm);
    if (!again || experts->down.r > 0 || !tt_tensor_is_empty(saved->act_MI)) {
        tt_tensor act_MI, out_MD = {0};
        struct tt_expert_rows of = {.border_X1 = saved->border_X1, .slot_M = saved->slot_M};
        TT_TRY(push_activation(experts, pass, saved, false, again ? NULL : &of.quantized, &act_MI));
        if (!again) TT_TRY(push(pass, "output of experts", act_MI.dims[0], experts->down.out, &out_MD));
        TT_TRY(tt_expert_linear_forward(&experts->down, pass, &of, act_MI, saved->h_down_MR, out_MD));
        if (!again) TT_TRY(combine(experts, pass, in, saved, out_MD));
    }
    if (tt_tensor_is_empty(in->y_TD) && saved->ids_TS.dims[0] > 0)
        TT_TRY(tt_shared_expert_add(&experts->shared, pass, &saved->shared, in->y_TD));
    tt_workspace_release(workspace, in->keep ? mark : start);
    return TT_OK;
}

static tt_status weigh(const struct tt_pass *pass, const struct saved *saved, tt_tensor x_MD, tt_tensor g_MD,
                       tt_tensor dweights_NS)
{
    struct tt_weigh_rows_args args = {.x_MD = x_MD,
                                      .g_MD = g_MD,
                                      .weights_TS = saved->all_weights_NS,
                                      .slot_M = saved->slot_M,
                                      .dweights_TS = dweights_NS};
    return tt_weigh_rows(pass->lent.stream, &args);
}

/* Adds <dy, bias of its expert> of each row to the gradient of its weight: the gradient of down's input does not see
 * the bias of down's output. */
static tt_status weigh_bias(const struct tt_experts *experts, const struct tt_pass *pass,
                            const struct saved *saved, tt_tensor dy_MD, tt_tensor dweights_NS)
{
    tt_tensor bias_XD = tt_expert_linear_bias(&experts->down, pass), dot_M1, wide_M1;
    int64_t rows = dy_MD.dims[0];
    if (tt_tensor_is_empty(bias_XD)) return TT_OK;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(push(pass, "products with biases of experts", rows, 1, &dot_M1));
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "wide products with biases", TT_F32, rows, 1, &wide_M1));
    struct tt_grouped_gemm_args product = {
        .border_X1 = saved->border_X1,
        .x_MK = dy_MD,
        .w_XNK = tt_tensor_3d(bias_XD.data, bias_XD.dtype, bias_XD.dims[0], 1, bias_XD.dims[1]),
        .y_MN = dot_M1};
    struct tt_cast_args cast = {.x = dot_M1, .y = wide_M1};
    tt_tensor sum = tt_tensor_2d(dweights_NS.data, TT_F32, rows, 1);
    struct tt_combine_rows_args add = {.x_MD = wide_M1,
                                       .place_TS = tt_tensor_2d(saved->place_NS.data, TT_I32, rows, 1),
                                       .addend_TD = sum,
                                       .y_TD = sum};
    TT_TRY(tt_grouped_gemm(pass->lent.stream, &product));
    TT_TRY(tt_cast(pass->lent.stream, &cast));
    TT_TRY(tt_combine_rows(pass->lent.stream, &add));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* The gradient of the activation -> those of gate and up in the place of these, and in FP8 in the rows that gate_up
 * takes; the values are left out where nobody reads them. */
static tt_status activation_back(const struct tt_experts *experts, const struct tt_pass *pass,
                                 const struct saved *saved, tt_tensor dact_MI,
                                 const struct tt_quantized_rows *rows)
{
    tt_tensor gate_MI = gate_of(experts, saved), up_MI = up_of(experts, saved);
    struct tt_swiglu_backward_args args = {.activation = experts->activation,
                                           .dh_TF = dact_MI,
                                           .gate_TF = gate_MI,
                                           .up_TF = up_MI,
                                           .dgate_TF = gate_MI,
                                           .dup_TF = up_MI};
    if (tt_tensor_is_empty(rows->codes_MK)) return tt_swiglu_backward(pass->lent.stream, &args);
    return tt_expert_codes_activate_back(pass, &args, tt_expert_linear_trains(&experts->gate_up), rows);
}

/* dout -> the gradients of the weights, and of gate and up in the place of these and in `rows`; adds to those of
 * down. */
static tt_status down_back(const struct tt_experts *experts, const struct tt_pass *pass,
                           const struct saved *saved, tt_tensor dout_ND, tt_tensor dweights_NS,
                           const struct tt_quantized_rows *rows)
{
    const struct tt_expert_linear *down = &experts->down;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    int64_t count = saved->slot_M.dims[0], width = down->in;
    bool read = down->bias != NULL || tt_expert_linear_trains(down);
    struct tt_expert_rows of = {.border_X1 = saved->border_X1, .slot_M = saved->slot_M};
    tt_tensor act_MI, dact_MI, dh_MR, dy_MD;
    TT_TRY(push_activation(experts, pass, saved, true, NULL, &act_MI));
    TT_TRY(push(pass, "gradient of the activation of experts", count, width, &dact_MI));
    size_t scratch = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_expert_codes_spread(down, TT_LINEAR_BACKWARD, pass, "gradient of the output of experts",
                                  dout_ND, read, &of, &dy_MD));
    TT_TRY(tt_expert_linear_push_h(down, pass, count, &dh_MR));
    TT_TRY(tt_expert_linear_back(down, pass, &of, dy_MD, dh_MR, dact_MI));
    TT_TRY(weigh(pass, saved, act_MI, dact_MI, dweights_NS));
    TT_TRY(weigh_bias(experts, pass, saved, dy_MD, dweights_NS));
    if (tt_expert_linear_trains(down)) {
        TT_TRY(weigh(pass, saved, (tt_tensor){0}, dy_MD, (tt_tensor){0}));
        if (down->r > 0) TT_TRY(weigh(pass, saved, (tt_tensor){0}, dh_MR, (tt_tensor){0}));
        TT_TRY(
            tt_expert_linear_gradients(down, pass, saved->border_X1, act_MI, saved->h_down_MR, dy_MD, dh_MR));
    }
    tt_workspace_release(pass->lent.workspace, scratch);
    TT_TRY(activation_back(experts, pass, saved, dact_MI, rows));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* The gradients of gate and up, also in FP8 -> dn, where that is wanted; adds to those of gate_up. */
static tt_status first_back(const struct tt_experts *experts, const struct tt_pass *pass,
                            const struct saved *saved, const struct tt_quantized_rows *gradient,
                            tt_tensor n_TD, tt_tensor dn_TD)
{
    const struct tt_expert_rows of = {saved->border_X1, saved->slot_M, *gradient};
    const struct tt_expert_linear *gate_up = &experts->gate_up;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    bool wanted = !tt_tensor_is_empty(dn_TD) || share_of(experts, pass).size > 1;
    int64_t rows = saved->slot_M.dims[0];
    tt_tensor dh_MR, rows_MD = {0}, none = {0};
    TT_TRY(tt_expert_linear_push_h(gate_up, pass, rows, &dh_MR));
    if (wanted) TT_TRY(push(pass, "gradient of the rows of experts", rows, gate_up->in, &rows_MD));
    TT_TRY(tt_expert_linear_back(gate_up, pass, &of, saved->gate_up_M2I, dh_MR, rows_MD));
    if (wanted) TT_TRY(gather_rows(experts, pass, saved, rows_MD, none, none, dn_TD));
    tt_tensor x_MD = {0};
    if (tt_expert_linear_needs_x(gate_up)) {
        TT_TRY(push_all(experts, pass, "normed input of all ranks", &n_TD));
        if (!wanted) TT_TRY(push(pass, "rows of experts", rows, n_TD.dims[1], &rows_MD));
        struct tt_spread_rows_args again = {.x_TD = n_TD, .slot_M = saved->slot_M, .y_MD = rows_MD};
        TT_TRY(tt_spread_rows(pass->lent.stream, &again));
        x_MD = rows_MD;
    }
    TT_TRY(tt_expert_linear_gradients(gate_up, pass, saved->border_X1, x_MD, saved->h_gate_up_MR,
                                      saved->gate_up_M2I, dh_MR));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* The gradient of the logits -> that of x through the router's own norm, in dr_TD where that has memory; adds to those
 * of the router and its norm. */
static tt_status router_back_alone(const struct tt_experts *experts, const struct tt_pass *pass,
                                   const struct saved *saved, tt_tensor x_TD, tt_tensor dlogits_TX,
                                   tt_tensor dr_TD)
{
    const struct tt_linear_group *router = &experts->router;
    tt_tensor r_TD = {0}, dh_TR;
    if (tt_linear_group_needs_x(router))
        TT_TRY(push_router_input(experts, pass, x_TD, (tt_tensor){0}, &r_TD));
    TT_TRY(tt_linear_push_h(router, pass, dlogits_TX.dims[0], &dh_TR));
    struct tt_linear_call call = tt_linear_call_tokens(router, pass, r_TD, saved->h_router_TR);
    TT_TRY(tt_linear_backward_input(&call, dlogits_TX, dh_TR, dr_TD));
    TT_TRY(tt_linear_backward_params(&call, dlogits_TX, dh_TR));
    if (tt_tensor_is_empty(dr_TD)) return TT_OK;
    return tt_norm_backward(&experts->router_norm, pass, x_TD, saved->router_rstd_T, (tt_tensor){0}, dr_TD,
                            NULL);
}

/* The gradients of the weights -> dn, to which it adds, or through a norm of the router's own -> dr; and to those of
 * the router. */
static tt_status router_back(const struct tt_experts *experts, const struct tt_pass *pass,
                             const struct saved *saved, tt_tensor x_TD, tt_tensor dweights_TS, tt_tensor n_TD,
                             tt_tensor dn_TD, tt_tensor dr_TD)
{
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    int64_t tokens = saved->logits_TX.dims[0], count = saved->logits_TX.dims[1];
    tt_tensor dlogits_TX, narrow_TX;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient of router logits", saved->logits_TX.dtype, tokens,
                           count, &dlogits_TX));
    struct tt_route_backward_args args = {.rule = experts->rule,
                                          .logits_TX = saved->logits_TX,
                                          .scale_X = tt_param_value(experts->scale),
                                          .ids_TS = saved->ids_TS,
                                          .dweights_TS = dweights_TS,
                                          .dload_X = pass->lent.balance.dload_X,
                                          .dlogits_TX = dlogits_TX};
    TT_TRY(tt_route_backward(pass->lent.stream, &args));
    if (dlogits_TX.dtype != pass->in.compute_dtype) {
        TT_TRY(push(pass, "rounded gradient of router logits", tokens, count, &narrow_TX));
        struct tt_cast_args cast = {.x = dlogits_TX, .y = narrow_TX};
        TT_TRY(tt_cast(pass->lent.stream, &cast));
        dlogits_TX = narrow_TX;
    }
    TT_TRY(scale_logits(experts, pass, dlogits_TX));
    if (tt_norm_exists(&experts->router_norm))
        TT_TRY(router_back_alone(experts, pass, saved, x_TD, dlogits_TX, dr_TD));
    else
        TT_TRY(tt_half_second_back(&experts->router, pass, "gradient through the router", dlogits_TX,
                                   saved->h_router_TR, n_TD, dn_TD));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* Memory for the gradient that reaches x through the router's own norm; empty where nobody wants it. */
static tt_status push_router_gradient(const struct tt_experts *experts, const struct tt_pass *pass,
                                      const struct tt_half_gradient *gradient, tt_tensor *dr_TD)
{
    *dr_TD = (tt_tensor){0};
    if (!tt_norm_exists(&experts->router_norm)) return TT_OK;
    if (tt_tensor_is_empty(gradient->dx_TD) && !tt_norm_trains(&experts->router_norm)) return TT_OK;
    return push(pass, "gradient through the router's norm", gradient->dy_TD.dims[0], gradient->dy_TD.dims[1],
                dr_TD);
}

/* The gradient of the output of this rank's tokens -> that of their weights. */
static tt_status output_back(const struct tt_experts *experts, const struct tt_pass *pass,
                             const struct saved *saved, tt_tensor dout_TD, tt_tensor dweights_TS,
                             const struct tt_quantized_rows *gradient)
{
    struct tt_expert_share share = share_of(experts, pass);
    tt_tensor dweights_NS;
    if (share.size <= 1) return down_back(experts, pass, saved, dout_TD, dweights_TS, gradient);
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient of the weights of all ranks", TT_F32,
                           saved->all_weights_NS.dims[0], experts->slots, &dweights_NS));
    TT_TRY(tt_fill_zero(pass->lent.stream, dweights_NS.data, tt_tensor_bytes(dweights_NS)));
    TT_TRY(push_all(experts, pass, "gradient of experts of all ranks", &dout_TD));
    TT_TRY(down_back(experts, pass, saved, dout_TD, dweights_NS, gradient));
    TT_TRY(tt_expert_share_return(&share, pass, dweights_NS, (tt_tensor){0}, dweights_TS));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* Memory for the gradients of gate and up in FP8, where gate_up takes them. */
static tt_status push_gate_up_rows(const struct tt_experts *experts, const struct tt_pass *pass,
                                   const struct saved *saved, struct tt_quantized_rows *rows)
{
    return tt_expert_codes_push(&experts->gate_up, TT_LINEAR_BACKWARD, pass, saved->gate_up_M2I.dims[0],
                                experts->gate_up.out, rows);
}

/* Backward for the tokens of other ranks, whose experts this one has. */
static tt_status backward_empty(const struct tt_experts *experts, const struct tt_pass *pass,
                                const struct saved *saved)
{
    const tt_tensor none = {0};
    struct tt_quantized_rows rows;
    if (share_of(experts, pass).size <= 1) return TT_OK;
    TT_TRY(push_gate_up_rows(experts, pass, saved, &rows));
    TT_TRY(output_back(experts, pass, saved, none, none, &rows));
    return first_back(experts, pass, saved, &rows, none, none);
}

static tt_status backward(const struct tt_half *half, const struct tt_pass *pass, const void *record,
                          struct tt_half_gradient *gradient)
{
    const struct tt_experts *experts = half->impl;
    const struct saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    tt_tensor dout_TD, dweights_TS, dn_TD, dr_TD, n_TD = saved->n_TD;
    struct tt_quantized_rows rows, gate_up_rows;
    if (saved->ids_TS.dims[0] == 0) return backward_empty(experts, pass, saved);
    TT_TRY(tt_half_push_gradient(&experts->norm, pass, gradient, &dn_TD));
    TT_TRY(push_router_gradient(experts, pass, gradient, &dr_TD));
    size_t start = tt_workspace_mark(workspace);
    TT_TRY(tt_workspace_2d(workspace, "gradient of the weights of experts", TT_F32, saved->ids_TS.dims[0],
                           experts->slots, &dweights_TS));
    TT_TRY(tt_half_begin_backward(&experts->post_norm, &experts->router, pass, gradient,
                                  "gradient of experts", saved->out_TD, saved->post_rstd_T, &dout_TD, &rows));
    TT_TRY(push_gate_up_rows(experts, pass, saved, &gate_up_rows));
    TT_TRY(output_back(experts, pass, saved, dout_TD, dweights_TS, &gate_up_rows));
    if (needs_input(experts))
        TT_TRY(tt_half_push_norm_again(&experts->norm, pass, gradient, "normed input of experts", &n_TD));
    TT_TRY(first_back(experts, pass, saved, &gate_up_rows, n_TD, dn_TD));
    TT_TRY(tt_shared_expert_back(&experts->shared, pass, &saved->shared, dout_TD, n_TD, dn_TD));
    if (!tt_tensor_is_empty(dn_TD) || !tt_tensor_is_empty(dr_TD) || tt_linear_group_trains(&experts->router))
        TT_TRY(router_back(experts, pass, saved, gradient->x_TD, dweights_TS, n_TD, dn_TD, dr_TD));
    tt_workspace_release(workspace, start);
    TT_TRY(tt_half_end_backward(&experts->norm, pass, gradient, saved->rstd_T, dn_TD));
    struct tt_add_args add = {.a = gradient->dx_TD, .b = dr_TD, .y = gradient->dx_TD};
    bool adds = !tt_tensor_is_empty(gradient->dx_TD) && !tt_tensor_is_empty(dr_TD);
    return adds ? tt_add(pass->lent.stream, &add) : TT_OK;
}

static bool exchanges(const struct tt_half *half)
{
    (void)half;
    return true;
}

/* No group of linears multiplies the gradient of the output itself. */
static const struct tt_linear_group *reader(const struct tt_half *half)
{
    (void)half;
    return NULL;
}

static tt_status visit_linears(const struct tt_half *half, tt_linear_visit *visit, void *context)
{
    const struct tt_experts *experts = half->impl;
    TT_TRY(tt_linear_group_visit(&experts->router, visit, context));
    TT_TRY(tt_expert_linear_visit(&experts->gate_up, visit, context));
    TT_TRY(tt_expert_linear_visit(&experts->down, visit, context));
    return tt_shared_expert_visit(&experts->shared, visit, context);
}

static double flops(const struct tt_half *half, double length, bool full)
{
    const struct tt_experts *experts = half->impl;
    (void)length;
    return tt_linear_group_flops(&experts->router, full) + tt_expert_linear_flops(&experts->gate_up, full) +
           tt_expert_linear_flops(&experts->down, full) + tt_shared_expert_flops(&experts->shared, full);
}

const struct tt_half_ops tt_experts_half = {
    .kind = "experts",
    .residual = "residual after experts",
    .forward = forward,
    .backward = backward,
    .reader = reader,
    .trains = trains,
    .exchanges = exchanges,
    .visit_linears = visit_linears,
    .flops = flops,
};
