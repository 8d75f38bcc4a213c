/* Linear layers with LoRA. Kept for backward: h_TR, (sum of r) * bytes of the compute type per token. */
#include "nn/linear.h"

#include <assert.h>

#include "backend/ops/attention.h"
#include "backend/ops/columns.h"
#include "backend/ops/gemm.h"
#include "backend/ops/gemm_dropout.h"
#include "backend/ops/lora_gradients.h"
#include "backend/ops/swiglu.h"
#include "nn/adapter_kind.h"
#include "nn/linear_parts.h"

int64_t tt_linear_group_out(const struct tt_linear_group *group)
{
    int64_t out = 0;
    for (int i = 0; i < group->count; i++) out += group->linears[i].out;
    return out;
}

int64_t tt_linear_group_r(const struct tt_linear_group *group)
{
    int64_t r = 0;
    for (int i = 0; i < group->count; i++) r += group->linears[i].r;
    return r;
}

double tt_linear_group_flops(const struct tt_linear_group *group, bool full)
{
    double flops = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        bool with_weight = full || linear->weight->trainable;
        flops += (with_weight ? 6.0 : 4.0) * (double)linear->in * (double)linear->out;
        flops += 6.0 * (double)linear->r * (double)(linear->in + linear->out);
    }
    return flops;
}

tt_status tt_linear_group_visit(const struct tt_linear_group *group, tt_linear_visit *visit, void *context)
{
    for (int i = 0; i < group->count; i++) TT_TRY(visit(context, &group->linears[i]));
    return TT_OK;
}

static bool trains(const tt_param *param)
{
    return param != NULL && param->trainable;
}

bool tt_linear_group_trains(const struct tt_linear_group *group)
{
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        if (trains(linear->weight) || trains(linear->bias)) return true;
        if (trains(linear->lora_A) || trains(linear->lora_B) || trains(linear->vector)) return true;
    }
    return false;
}

bool tt_linear_group_needs_x(const struct tt_linear_group *group)
{
    for (int i = 0; i < group->count; i++) {
        if (trains(group->linears[i].weight) || trains(group->linears[i].lora_A)) return true;
    }
    return false;
}

bool tt_linear_reads_values(const struct tt_linear_group *group)
{
    return tt_linear_group_r(group) > 0 || tt_linear_group_trains(group);
}

tt_status tt_linear_push_h(const struct tt_linear_group *group, const struct tt_pass *pass, int64_t rows,
                           tt_tensor *h_TR)
{
    int64_t r = tt_linear_group_r(group);
    *h_TR = (tt_tensor){0};
    if (r == 0) return TT_OK;
    if (group->kind != NULL) return group->kind->push(group, pass, rows, h_TR);
    return tt_workspace_2d(pass->lent.workspace, "LoRA h", pass->in.compute_dtype, rows, r, h_TR);
}

struct tt_linear_call tt_linear_call_tokens(const struct tt_linear_group *group, const struct tt_pass *pass,
                                            tt_tensor x_TI, tt_tensor h_TR)
{
    return (struct tt_linear_call){.group = group,
                                   .pass = pass,
                                   .row_keys_T = pass->in.batch->row_keys_T,
                                   .x_TI = x_TI,
                                   .h_TR = h_TR,
                                   .adapter_T = pass->in.adapters.of_T};
}

/* c = alpha * op(a) * op(b) + beta * c */
static tt_status multiply(const struct tt_pass *pass, tt_tensor a, bool trans_a, tt_tensor b, bool trans_b,
                          float alpha, float beta, tt_tensor c)
{
    struct tt_gemm_args args = {
        .a = a, .b = b, .c = c, .trans_a = trans_a, .trans_b = trans_b, .alpha = alpha, .beta = beta};
    return tt_gemm(pass->lent.stream, &args);
}

double tt_linear_active_dropout(const struct tt_linear *linear, const struct tt_pass *pass)
{
    return pass->in.training && linear->r > 0 ? linear->dropout : 0.0;
}

/* NULL: LoRA as it is, or no adapter in this pass. */
static const struct tt_adapter_kind *active_kind(const struct tt_linear_call *call)
{
    return call->pass->in.adapters_off ? NULL : call->group->kind;
}

static bool any_dropout(const struct tt_linear_group *group, const struct tt_pass *pass)
{
    for (int i = 0; i < group->count; i++) {
        if (tt_linear_active_dropout(&group->linears[i], pass) > 0) return true;
    }
    return false;
}

/* The adapters of a group, or its trainable ones, as arguments of ops/gemm_dropout.h. */
static struct tt_dropout_parts dropout_parts(const struct tt_linear_call *call, bool training)
{
    const struct tt_linear_group *group = call->group;
    struct tt_dropout_parts parts = {.row_keys_M = call->row_keys_T};
    int64_t first = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        if (linear->r > 0 && (!training || trains(linear->lora_A))) {
            assert(parts.count < TT_DROPOUT_PARTS);
            parts.part[parts.count++] = (struct tt_dropout_part){
                .a_RK = linear->lora_A->value,
                .first_h = first,
                .scaling = linear->scaling,
                .rng = tt_rng_derive(call->pass->in.dropout_rng, linear->lora_A->name),
                .p = tt_linear_active_dropout(linear, call->pass),
                .da_RK = linear->lora_A->grad};
        }
        first += linear->r;
    }
    return parts;
}

static tt_status dropout_scratch(const struct tt_pass *pass, tt_tensor x_TI, tt_tensor *scratch_TI)
{
    return tt_workspace_2d(pass->lent.workspace, "dropped input", x_TI.dtype, x_TI.dims[0], x_TI.dims[1],
                           scratch_TI);
}

/* True if all have the same scaling, so that their narrow products can be combined. */
static bool scaled_alike(const struct tt_linear_group *group, float *scaling)
{
    *scaling = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        if (linear->r == 0) continue;
        if (*scaling != 0 && *scaling != linear->scaling) return false;
        *scaling = linear->scaling;
    }
    return true;
}

static tt_status lora_down_dropped(const struct tt_linear_call *call)
{
    struct tt_workspace *workspace = call->pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    struct tt_gemm_dropout_args args = {
        .x_MK = call->x_TI, .parts = dropout_parts(call, false), .h_MR = call->h_TR};
    TT_TRY(dropout_scratch(call->pass, call->x_TI, &args.scratch_MK));
    TT_TRY(tt_gemm_dropout(call->pass->lent.stream, &args));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

/* True if the pass has all adapters of the group. */
static bool has_all(const struct tt_linear_group *group, const struct tt_pass *pass)
{
    for (int i = 0; i < group->count; i++)
        if (tt_linear_pass_r(&group->linears[i], pass) != group->linears[i].r) return false;
    return true;
}

/* h = s x A^T of all rows */
static tt_status lora_down_whole(const struct tt_linear_call *call)
{
    const struct tt_linear_group *group = call->group;
    const struct tt_pass *pass = call->pass;
    tt_tensor a_all;
    float scaling;
    if (scaled_alike(group, &scaling) && has_all(group, pass) &&
        tt_linear_stack(group, pass, TT_ROLE_LORA_A, false, &a_all))
        return multiply(pass, call->x_TI, false, a_all, true, scaling, 0, call->h_TR);
    int64_t first = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        int64_t r = tt_linear_pass_r(linear, pass);
        if (r == 0) continue;
        TT_TRY(multiply(pass, call->x_TI, false, tt_linear_pass_A(linear, pass), true, linear->scaling, 0,
                        tt_tensor_cols(call->h_TR, first, r)));
        first += r;
    }
    return TT_OK;
}

/* Makes 0 what rows of h have of other adapters than their own; neighbours of one rank at once. */
static tt_status keep_own(const struct tt_linear_call *call)
{
    const struct tt_linear_group *group = call->group;
    const struct tt_pass_adapters *adapters = &call->pass->in.adapters;
    for (int i = 0, next; i < group->count; i = next) {
        int64_t r = tt_linear_pass_r(&group->linears[i], call->pass), first = 0, columns = r;
        for (int k = 0; k < i; k++) first += tt_linear_pass_r(&group->linears[k], call->pass);
        for (next = i + 1; next < group->count; next++) {
            int64_t more = tt_linear_pass_r(&group->linears[next], call->pass);
            if (more != 0 && more != r) break;
            columns += more;
        }
        if (r == 0) {
            next = i + 1;
            continue;
        }
        const struct tt_keep_columns_args args = {.x_TN = tt_tensor_cols(call->h_TR, first, columns),
                                                  .group_R = call->adapter_T,
                                                  .share = 1,
                                                  .first = adapters->first,
                                                  .count = adapters->count,
                                                  .each = r / adapters->count};
        TT_TRY(tt_keep_columns(call->pass->lent.stream, &args));
    }
    return TT_OK;
}

/* h = s drop(x) A^T */
static tt_status lora_down(const struct tt_linear_call *call)
{
    const struct tt_linear_group *group = call->group;
    const struct tt_pass *pass = call->pass;
    if (tt_linear_group_r(group) == 0 || pass->in.adapters_off) return TT_OK;
    if (any_dropout(group, pass)) return lora_down_dropped(call);
    TT_TRY(lora_down_whole(call));
    return pass->in.adapters.mixed ? keep_own(call) : TT_OK;
}

static bool has_bias(const struct tt_linear_group *group)
{
    for (int i = 0; i < group->count; i++)
        if (group->linears[i].bias != NULL) return true;
    return false;
}

static tt_status rotate(const struct tt_pass *pass, const struct tt_rotation *rotation, tt_tensor y_TO)
{
    struct tt_rope_args args = {.x_THE = tt_tensor_heads(tt_tensor_cols(y_TO, 0, rotation->columns),
                                                         rotation->columns / rotation->head_dim),
                                .positions_T = rotation->positions_T,
                                .cos_PE = rotation->cos_PE,
                                .sin_PE = rotation->sin_PE,
                                .pairs = rotation->pairs};
    return tt_rope(pass->lent.stream, &args);
}

static tt_status add_biases(const struct tt_linear_group *group, const struct tt_pass *pass, tt_tensor y_TO)
{
    int64_t first_out = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        if (linear->bias != NULL) {
            struct tt_bias_forward_args args = {.bias_N = linear->bias->value,
                                                .y_TN = tt_tensor_cols(y_TO, first_out, linear->out)};
            TT_TRY(tt_bias_forward(pass->lent.stream, &args));
        }
        first_out += linear->out;
    }
    return TT_OK;
}

/* True if one product computes all of y, so that later operations can be fused with it. */
static bool is_one_product(const struct tt_linear_group *group, const struct tt_pass *pass)
{
    return tt_linear_is_one_part(group, pass, TT_LINEAR_FORWARD) && !has_bias(group);
}

tt_status tt_linear_products(const struct tt_linear_call *call, tt_tensor residual_TO,
                             const struct tt_rotation *rotation, tt_tensor y_TO)
{
    const struct tt_linear_group *group = call->group;
    const struct tt_pass *pass = call->pass;
    struct tt_linear_part part, *before = NULL;
    tt_tensor rounded_TI;
    size_t start = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_linear_round_x(call, &rounded_TI));
    while (tt_linear_has_part(group, before)) {
        size_t mark = tt_workspace_mark(pass->lent.workspace);
        TT_TRY(tt_linear_next_part(group, pass, TT_LINEAR_FORWARD, call->x_TI.dims[0], call->quantized,
                                   before, &part));
        struct tt_gemm_lora_args args = {
            .x_MK = tt_linear_rounds_x(&group->linears[part.first]) ? rounded_TI : call->x_TI,
            .w = part.w_OI,
            .trans_w = true,
            .low = tt_linear_low_up(call, &part),
            .addend_MN = residual_TO,
            .y_MN = tt_tensor_cols(y_TO, part.first_out, part.out),
        };
        if (rotation != NULL) args.rotation = *rotation;
        TT_TRY(tt_gemm_lora(pass->lent.stream, &args));
        tt_workspace_release(pass->lent.workspace, mark);
        before = &part;
    }
    tt_workspace_release(pass->lent.workspace, start);
    return TT_OK;
}

/* y = x W^T + h B^T (+ residual) + bias, or what the kind of adapter makes of it, then rotated unless `rotation` is
 * NULL */
static tt_status up(const struct tt_linear_call *call, tt_tensor residual_TO,
                    const struct tt_rotation *rotation, tt_tensor y_TO)
{
    const struct tt_pass *pass = call->pass;
    const struct tt_adapter_kind *kind = active_kind(call);
    bool rotates_along = rotation != NULL && kind == NULL && is_one_product(call->group, pass);
    if (kind != NULL)
        TT_TRY(kind->forward(call, residual_TO, y_TO));
    else
        TT_TRY(tt_linear_products(call, residual_TO, rotates_along ? rotation : NULL, y_TO));
    if (tt_tensor_is_empty(y_TO)) return TT_OK;
    TT_TRY(add_biases(call->group, pass, y_TO));
    return rotation == NULL || rotates_along ? TT_OK : rotate(pass, rotation, y_TO);
}

tt_status tt_linear_forward(const struct tt_linear_call *call, tt_tensor y_TO)
{
    TT_TRY(lora_down(call));
    if (tt_tensor_is_empty(y_TO) && active_kind(call) == NULL) return TT_OK;
    return up(call, (tt_tensor){0}, NULL, y_TO);
}

tt_status tt_linear_forward_add(const struct tt_linear_call *call, tt_tensor residual_TO, tt_tensor y_TO)
{
    assert(call->group->count == 1);
    TT_TRY(lora_down(call));
    return up(call, residual_TO, NULL, y_TO);
}

tt_status tt_linear_forward_rotated(const struct tt_linear_call *call, const struct tt_rotation *rotation,
                                    tt_tensor y_TO)
{
    TT_TRY(lora_down(call));
    return up(call, (tt_tensor){0}, rotation, y_TO);
}

/* gate | up and the activation from one product. */
static tt_status up_with_swiglu(const struct tt_linear_call *call, const struct tt_linear_swiglu *swiglu)
{
    const struct tt_pass *pass = call->pass;
    struct tt_linear_part part;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor rounded_TI;
    TT_TRY(tt_linear_round_x(call, &rounded_TI));
    TT_TRY(tt_linear_next_part(call->group, pass, TT_LINEAR_FORWARD, call->x_TI.dims[0], call->quantized,
                               NULL, &part));
    struct tt_gemm_swiglu_args args = {.activation = swiglu->activation,
                                       .x_MK = rounded_TI,
                                       .w_2FK = part.w_OI,
                                       .low = tt_linear_low_up(call, &part),
                                       .gate_up_M2F = swiglu->gate_up_TF2,
                                       .keep = swiglu->keep,
                                       .act_MF = swiglu->act_TF,
                                       .act_rows = swiglu->quantized,
                                       .kept = swiglu->coded};
    TT_TRY(tt_gemm_swiglu(pass->lent.stream, &args));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

tt_status tt_linear_forward_swiglu(const struct tt_linear_call *call, const struct tt_linear_swiglu *swiglu)
{
    int64_t ffn = swiglu->act_TF.dims[1];
    TT_TRY(lora_down(call));
    if (active_kind(call) == NULL && is_one_product(call->group, call->pass))
        return up_with_swiglu(call, swiglu);
    TT_TRY(up(call, (tt_tensor){0}, NULL, swiglu->gate_up_TF2));
    struct tt_swiglu_forward_args args = {.activation = swiglu->activation,
                                          .gate_TF = tt_tensor_cols(swiglu->gate_up_TF2, 0, ffn),
                                          .up_TF = tt_tensor_cols(swiglu->gate_up_TF2, ffn, ffn),
                                          .h_TF = swiglu->act_TF};
    if (tt_tensor_is_empty(swiglu->quantized.codes_MK))
        return tt_swiglu_forward(call->pass->lent.stream, &args);
    struct tt_swiglu_rows_args rows = {args, swiglu->quantized.codes_MK, swiglu->quantized.scale_M,
                                       swiglu->coded};
    if (swiglu->only_rows) rows.pass.h_TF = (tt_tensor){0};
    return tt_swiglu_rows(call->pass->lent.stream, &rows);
}

/* dx += drop'(dh A) */
static tt_status add_through_dropout(const struct tt_linear_call *call, tt_tensor dh_TR, tt_tensor dx_TI)
{
    struct tt_workspace *workspace = call->pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    struct tt_gemm_dropout_input_args args = {
        .dh_MR = dh_TR, .parts = dropout_parts(call, false), .dx_MK = dx_TI};
    TT_TRY(dropout_scratch(call->pass, dx_TI, &args.scratch_MK));
    TT_TRY(tt_gemm_dropout_input(call->pass->lent.stream, &args));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

tt_status tt_linear_through_b(const struct tt_linear_call *call, tt_tensor dy_TO, tt_tensor dh_TR)
{
    const struct tt_linear_group *group = call->group;
    struct tt_lora_gradients_args args = {.dy_MN = dy_TO, .h_MR = call->h_TR, .dh_MR = dh_TR};
    int64_t first_out = 0, first_r = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        if (linear->r > 0) {
            assert(args.count < TT_LOW_RANK_PARTS);
            struct tt_lora_gradients_part *part = &args.part[args.count++];
            *part = (struct tt_lora_gradients_part){.b_NR = linear->lora_B->value,
                                                    .first_y = first_out,
                                                    .first_h = first_r,
                                                    .scaling = linear->scaling};
            if (trains(linear->lora_B)) part->db_NR = linear->lora_B->grad;
        }
        first_out += linear->out;
        first_r += linear->r;
    }
    return args.count > 0 ? tt_lora_gradients(call->pass->lent.stream, &args) : TT_OK;
}

tt_status tt_linear_products_back(const struct tt_linear_call *call, tt_tensor dy_TO, tt_tensor dh_TR,
                                  tt_tensor dx_TI)
{
    const struct tt_linear_group *group = call->group;
    const struct tt_pass *pass = call->pass;
    struct tt_linear_part part, *before = NULL;
    while (tt_linear_has_part(group, before)) {
        size_t mark = tt_workspace_mark(pass->lent.workspace);
        TT_TRY(tt_linear_next_part(group, pass, TT_LINEAR_BACKWARD, dy_TO.dims[0], call->quantized, before,
                                   &part));
        struct tt_gemm_lora_args args = {
            .x_MK = tt_tensor_cols(dy_TO, part.first_out, part.out),
            .w = part.w_OI,
            .addend_MN = before != NULL ? dx_TI : (tt_tensor){0},
            .y_MN = dx_TI,
        };
        if (!tt_tensor_is_empty(dh_TR)) args.low = tt_linear_low_down(group, &part, dh_TR);
        TT_TRY(tt_gemm_lora(pass->lent.stream, &args));
        tt_workspace_release(pass->lent.workspace, mark);
        before = &part;
    }
    return TT_OK;
}

tt_status tt_linear_backward_input(const struct tt_linear_call *call, tt_tensor dy_TO, tt_tensor dh_TR,
                                   tt_tensor dx_TI)
{
    bool dropout = any_dropout(call->group, call->pass);
    if (call->group->kind != NULL) return call->group->kind->backward_input(call, dy_TO, dh_TR, dx_TI);
    TT_TRY(tt_linear_through_b(call, dy_TO, dh_TR));
    if (tt_tensor_is_empty(dx_TI)) return TT_OK;
    TT_TRY(tt_linear_products_back(call, dy_TO, dropout ? (tt_tensor){0} : dh_TR, dx_TI));
    return dropout ? add_through_dropout(call, dh_TR, dx_TI) : TT_OK;
}

/* dgate | dup, and act when it is kept, from one product. */
static tt_status backward_with_swiglu(const struct tt_linear_call *call, tt_tensor dy_TO, tt_tensor dh_TR,
                                      const struct tt_linear_swiglu *swiglu)
{
    const struct tt_pass *pass = call->pass;
    struct tt_linear_part part;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_linear_through_b(call, dy_TO, dh_TR));
    TT_TRY(tt_linear_next_part(call->group, pass, TT_LINEAR_BACKWARD, dy_TO.dims[0], call->quantized, NULL,
                               &part));
    struct tt_gemm_swiglu_backward_args args = {.activation = swiglu->activation,
                                                .dy_MK = dy_TO,
                                                .w_KF = part.w_OI,
                                                .low = tt_linear_low_down(call->group, &part, dh_TR),
                                                .gate_up_M2F = swiglu->gate_up_TF2,
                                                .dact_MF = swiglu->act_TF,
                                                .wants_act = swiglu->keep,
                                                .gradient_rows = swiglu->quantized,
                                                .only_rows = swiglu->only_rows,
                                                .coded = swiglu->coded};
    TT_TRY(tt_gemm_swiglu_backward(pass->lent.stream, &args));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

tt_status tt_linear_backward_swiglu(const struct tt_linear_call *call, tt_tensor dy_TO, tt_tensor dh_TR,
                                    const struct tt_linear_swiglu *swiglu)
{
    int64_t ffn = swiglu->act_TF.dims[1];
    assert(call->group->count == 1);
    if (call->group->kind == NULL && !any_dropout(call->group, call->pass))
        return backward_with_swiglu(call, dy_TO, dh_TR, swiglu);
    TT_TRY(tt_linear_backward_input(call, dy_TO, dh_TR, swiglu->act_TF));
    struct tt_swiglu_backward_args args = {.activation = swiglu->activation, .dh_TF = swiglu->act_TF};
    if (swiglu->gate_up_TF2.data != NULL) {
        args.gate_TF = args.dgate_TF = tt_tensor_cols(swiglu->gate_up_TF2, 0, ffn);
        args.up_TF = args.dup_TF = tt_tensor_cols(swiglu->gate_up_TF2, ffn, ffn);
    }
    if (swiglu->keep) args.h_TF = swiglu->act_TF;
    if (tt_tensor_is_empty(swiglu->quantized.codes_MK))
        return tt_swiglu_backward(call->pass->lent.stream, &args);
    struct tt_swiglu_rows_backward_args rows = {args, swiglu->quantized.codes_MK, swiglu->quantized.scale_M,
                                                swiglu->coded};
    if (tt_swiglu_is_coded(&swiglu->coded)) rows.pass.gate_TF = rows.pass.up_TF = (tt_tensor){0};
    if (swiglu->only_rows) rows.pass.dgate_TF = rows.pass.dup_TF = (tt_tensor){0};
    return tt_swiglu_rows_backward(call->pass->lent.stream, &rows);
}

static tt_status lora_a_gradient_dropped(const struct tt_linear_call *call, tt_tensor dh_TR)
{
    struct tt_workspace *workspace = call->pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    struct tt_gemm_dropout_weights_args args = {
        .x_MK = call->x_TI, .parts = dropout_parts(call, true), .dh_MR = dh_TR};
    if (args.parts.count == 0) return TT_OK;
    TT_TRY(dropout_scratch(call->pass, call->x_TI, &args.scratch_MK));
    TT_TRY(tt_gemm_dropout_weights(call->pass->lent.stream, &args));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

/* dA += dh^T drop(x) */
static tt_status lora_a_gradient(const struct tt_linear_call *call, tt_tensor dh_TR)
{
    const struct tt_linear_group *group = call->group;
    tt_tensor da_all;
    if (any_dropout(group, call->pass)) return lora_a_gradient_dropped(call, dh_TR);
    if (tt_linear_stack(group, call->pass, TT_ROLE_LORA_A, true, &da_all)) {
        return multiply(call->pass, dh_TR, true, call->x_TI, false, 1, 1, da_all);
    }
    int64_t first = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        tt_tensor dh = tt_tensor_cols(dh_TR, first, linear->r);
        first += linear->r;
        if (!trains(linear->lora_A)) continue;
        TT_TRY(multiply(call->pass, dh, true, call->x_TI, false, 1, 1, linear->lora_A->grad));
    }
    return TT_OK;
}

tt_status tt_linear_backward_params(const struct tt_linear_call *call, tt_tensor dy_TO, tt_tensor dh_TR)
{
    const struct tt_linear_group *group = call->group;
    const struct tt_pass *pass = call->pass;
    tt_tensor dw_all;
    bool stacked = tt_linear_stack(group, pass, TT_ROLE_WEIGHT, true, &dw_all);
    if (stacked) TT_TRY(multiply(pass, dy_TO, true, call->x_TI, false, 1, 1, dw_all));
    int64_t first_out = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        tt_tensor dy = tt_tensor_cols(dy_TO, first_out, linear->out);
        if (!stacked && trains(linear->weight)) {
            TT_TRY(multiply(pass, dy, true, call->x_TI, false, 1, 1, linear->weight->grad));
        }
        if (trains(linear->bias)) {
            struct tt_bias_backward_args args = {.dy_TN = dy, .dbias_N = linear->bias->grad};
            TT_TRY(tt_bias_backward(pass->lent.stream, &args));
        }
        first_out += linear->out;
    }
    return tt_linear_group_r(group) > 0 ? lora_a_gradient(call, dh_TR) : TT_OK;
}
