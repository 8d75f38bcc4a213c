/* Linear layers with LoRA. Kept for backward: h_TR, (sum of r) * bytes of the compute type per token. */
#include "nn/linear.h"

#include <assert.h>

#include "backend/ops/elementwise.h"
#include "backend/ops/gemm.h"
#include "nn/quantized.h"

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

static bool trains(const tt_param *param)
{
    return param != NULL && param->trainable;
}

bool tt_linear_group_trains(const struct tt_linear_group *group)
{
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        if (trains(linear->weight) || trains(linear->bias)) return true;
        if (trains(linear->lora_A) || trains(linear->lora_B)) return true;
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

tt_status tt_linear_push_h(const struct tt_linear_group *group, struct tt_step *step, int64_t rows,
                           tt_tensor *h_TR)
{
    int64_t r = tt_linear_group_r(group);
    *h_TR = (tt_tensor){0};
    if (r == 0) return TT_OK;
    return tt_workspace_2d(step->workspace, "LoRA h", step->compute_dtype, rows, r, h_TR);
}

/* c = alpha * op(a) * op(b) + beta * addend (c itself when that is empty) */
static tt_status multiply_add(struct tt_step *step, tt_tensor a, bool trans_a, tt_tensor b, bool trans_b,
                              float alpha, float beta, tt_tensor addend, tt_tensor c)
{
    struct tt_gemm_args args = {.a = a,
                                .b = b,
                                .c = c,
                                .addend = addend,
                                .trans_a = trans_a,
                                .trans_b = trans_b,
                                .alpha = alpha,
                                .beta = beta};
    return tt_gemm(step->stream, &args);
}

static tt_status multiply(struct tt_step *step, tt_tensor a, bool trans_a, tt_tensor b, bool trans_b,
                          float alpha, float beta, tt_tensor c)
{
    return multiply_add(step, a, trans_a, b, trans_b, alpha, beta, (tt_tensor){0}, c);
}

enum role { ROLE_WEIGHT, ROLE_LORA_A };

static const tt_param *param_of(const struct tt_linear *linear, enum role role)
{
    return role == ROLE_WEIGHT ? linear->weight : linear->lora_A;
}

/* Results on the host stay what they have been, bit for bit; on a GPU, where reading an activation once more
 * is what the narrow products of LoRA cost, they are ordered otherwise. */
static bool on_gpu(const struct tt_step *step)
{
    return !tt_device_is_host(tt_stream_device(step->stream));
}

/* Makes `all` the [sum of rows, in] matrix over the values (or gradients) of one role when every linear of
 * the group has it (on a GPU: those of the group that have it) and they lie one after the other. A gradient
 * counts only when the parameter trains. */
static bool stack(const struct tt_linear_group *group, const struct tt_step *step, enum role role, bool grad,
                  tt_tensor *all)
{
    tt_tensor first = {0};
    int64_t rows = 0;
    for (int i = 0; i < group->count; i++) {
        const tt_param *param = param_of(&group->linears[i], role);
        if (param == NULL && role == ROLE_LORA_A && on_gpu(step)) continue;
        if (param == NULL || tt_param_is_quantized(param) || (grad && !param->trainable)) return false;
        tt_tensor part = grad ? param->grad : param->value;
        if (tt_tensor_is_empty(part) || !tt_tensor_is_contiguous(part)) return false;
        if (rows == 0) first = part;
        const char *expected =
            (const char *)first.data + (size_t)(rows * part.dims[1]) * tt_dtype_bytes(part.dtype);
        if (part.dtype != first.dtype || (const char *)part.data != expected) return false;
        rows += part.dims[0];
    }
    if (rows == 0) return false;
    *all = tt_tensor_2d(first.data, first.dtype, rows, first.dims[1]);
    return true;
}

static double active_dropout(const struct tt_linear *linear, const struct tt_step *step)
{
    return step->training && linear->r > 0 ? linear->dropout : 0.0;
}

static bool any_dropout(const struct tt_linear_group *group, const struct tt_step *step)
{
    for (int i = 0; i < group->count; i++) {
        if (active_dropout(&group->linears[i], step) > 0) return true;
    }
    return false;
}

static tt_status drop(const struct tt_linear *linear, struct tt_step *step, tt_tensor row_keys_T, tt_tensor x,
                      bool accumulate, tt_tensor y)
{
    struct tt_dropout_args args = {.x_TD = x,
                                   .row_keys_T = row_keys_T,
                                   .rng = tt_rng_derive(step->dropout_rng, linear->lora_A->name),
                                   .p = active_dropout(linear, step),
                                   .accumulate = accumulate,
                                   .y_TD = y};
    return tt_dropout(step->stream, &args);
}

/* h = drop(x) A^T */
static tt_status lora_down(const struct tt_linear_group *group, struct tt_step *step, tt_tensor row_keys_T,
                           tt_tensor x_TI, tt_tensor h_TR)
{
    tt_tensor a_all, dropped_TI;
    bool dropout = any_dropout(group, step);
    if (!dropout && stack(group, step, ROLE_LORA_A, false, &a_all)) {
        return multiply(step, x_TI, false, a_all, true, 1, 0, h_TR);
    }
    size_t mark = tt_workspace_mark(step->workspace);
    if (dropout) {
        TT_TRY(tt_workspace_2d(step->workspace, "dropped input", x_TI.dtype, x_TI.dims[0], x_TI.dims[1],
                               &dropped_TI));
    }
    int64_t first = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        if (linear->r == 0) continue;
        tt_tensor input = x_TI;
        if (active_dropout(linear, step) > 0) {
            TT_TRY(drop(linear, step, row_keys_T, x_TI, false, dropped_TI));
            input = dropped_TI;
        }
        TT_TRY(multiply(step, input, false, linear->lora_A->value, true, 1, 0,
                        tt_tensor_cols(h_TR, first, linear->r)));
        first += linear->r;
    }
    tt_workspace_release(step->workspace, mark);
    return TT_OK;
}

/* y += s h B^T, or y = s h B^T: then columns without LoRA become 0 when `zeros` says so. */
static tt_status lora_up(const struct tt_linear_group *group, struct tt_step *step, tt_tensor h_TR, bool adds,
                         bool zeros, tt_tensor y_TO)
{
    int64_t first_out = 0, first_r = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        tt_tensor y = tt_tensor_cols(y_TO, first_out, linear->out),
                  h = tt_tensor_cols(h_TR, first_r, linear->r);
        if (linear->r > 0) {
            TT_TRY(multiply(step, h, false, linear->lora_B->value, true, linear->scaling, adds ? 1 : 0, y));
        } else if (zeros) { /* a product over nothing */
            tt_tensor nothing = tt_tensor_2d(NULL, h.dtype, linear->out, 0);
            TT_TRY(multiply(step, h, false, nothing, true, 1, 0, y));
        }
        first_out += linear->out;
        first_r += linear->r;
    }
    return TT_OK;
}

/* y (+)= x W^T for a group of which some weights are quantized. */
static tt_status quantized_products(const struct tt_linear_group *group, struct tt_step *step, tt_tensor x_TI,
                                    bool adds, tt_tensor y_TO)
{
    struct tt_weight_part part;
    int64_t first_out = 0;
    for (int i = 0; i < group->count; i += part.count) {
        size_t mark = tt_workspace_mark(step->workspace);
        TT_TRY(tt_quantized_part(group, step, i, &part));
        TT_TRY(multiply(step, x_TI, false, part.w_OI, true, 1, adds ? 1 : 0,
                        tt_tensor_cols(y_TO, first_out, part.out)));
        tt_workspace_release(step->workspace, mark);
        first_out += part.out;
    }
    return TT_OK;
}

/* On a GPU the narrow product comes first and the wide one adds to it: reading y hides behind the wide one's
 * arithmetic, while y += s h B^T would pass over y once more. 16384 x 6144, in 4096, r 24 on an H200
 * (2026-11-21): 0.09 + 1.20 ms instead of 1.19 + 0.18. */
tt_status tt_linear_forward(const struct tt_linear_group *group, struct tt_step *step, tt_tensor row_keys_T,
                            tt_tensor x_TI, tt_tensor h_TR, tt_tensor y_TO)
{
    tt_tensor w_all;
    bool lora = tt_linear_group_r(group) > 0, lora_first = lora && on_gpu(step);
    if (tt_tensor_is_empty(y_TO)) return lora ? lora_down(group, step, row_keys_T, x_TI, h_TR) : TT_OK;
    bool quantized = tt_linear_group_is_quantized(group);
    bool stacked = quantized || stack(group, step, ROLE_WEIGHT, false, &w_all);
    if (lora_first) {
        TT_TRY(lora_down(group, step, row_keys_T, x_TI, h_TR));
        TT_TRY(lora_up(group, step, h_TR, false, stacked, y_TO));
    }
    if (quantized)
        TT_TRY(quantized_products(group, step, x_TI, lora_first, y_TO));
    else if (stacked)
        TT_TRY(multiply(step, x_TI, false, w_all, true, 1, lora_first ? 1 : 0, y_TO));
    int64_t first_out = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        tt_tensor y = tt_tensor_cols(y_TO, first_out, linear->out);
        bool adds = lora_first && linear->r > 0;
        if (!stacked) TT_TRY(multiply(step, x_TI, false, linear->weight->value, true, 1, adds ? 1 : 0, y));
        if (linear->bias != NULL) {
            struct tt_bias_forward_args args = {.bias_N = linear->bias->value, .y_TN = y};
            TT_TRY(tt_bias_forward(step->stream, &args));
        }
        first_out += linear->out;
    }
    if (!lora || lora_first) return TT_OK;
    TT_TRY(lora_down(group, step, row_keys_T, x_TI, h_TR));
    return lora_up(group, step, h_TR, true, false, y_TO);
}

tt_status tt_linear_forward_add(const struct tt_linear_group *group, struct tt_step *step,
                                tt_tensor row_keys_T, tt_tensor x_TI, tt_tensor h_TR, tt_tensor residual_TO,
                                tt_tensor y_TO)
{
    const struct tt_linear *linear = &group->linears[0];
    assert(group->count == 1);
    if (!on_gpu(step)) {
        struct tt_add_args add = {.a = y_TO, .b = residual_TO, .y = y_TO};
        TT_TRY(tt_linear_forward(group, step, row_keys_T, x_TI, h_TR, y_TO));
        return tt_add(step->stream, &add);
    }
    tt_tensor addend = residual_TO; /* of the first product; what follows adds to y */
    if (linear->r > 0) {
        TT_TRY(lora_down(group, step, row_keys_T, x_TI, h_TR));
        TT_TRY(
            multiply_add(step, h_TR, false, linear->lora_B->value, true, linear->scaling, 1, addend, y_TO));
        addend = (tt_tensor){0};
    }
    struct tt_weight_part part;
    size_t mark = tt_workspace_mark(step->workspace);
    TT_TRY(tt_quantized_part(group, step, 0, &part));
    TT_TRY(multiply_add(step, x_TI, false, part.w_OI, true, 1, 1, addend, y_TO));
    tt_workspace_release(step->workspace, mark);
    if (linear->bias == NULL) return TT_OK;
    struct tt_bias_forward_args bias = {.bias_N = linear->bias->value, .y_TN = y_TO};
    return tt_bias_forward(step->stream, &bias);
}

/* dx += drop'(dh A); without dropout also dx = dh A. */
static tt_status lora_input_gradient(const struct tt_linear_group *group, struct tt_step *step,
                                     tt_tensor row_keys_T, tt_tensor dh_TR, bool adds, tt_tensor dx_TI)
{
    tt_tensor a_all, through_TI;
    bool dropout = any_dropout(group, step);
    if (!dropout && stack(group, step, ROLE_LORA_A, false, &a_all)) {
        return multiply(step, dh_TR, false, a_all, false, 1, adds ? 1 : 0, dx_TI);
    }
    size_t mark = tt_workspace_mark(step->workspace);
    if (dropout) {
        TT_TRY(tt_workspace_2d(step->workspace, "gradient of dropped input", dx_TI.dtype, dx_TI.dims[0],
                               dx_TI.dims[1], &through_TI));
    }
    int64_t first = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        if (linear->r == 0) continue;
        tt_tensor dh = tt_tensor_cols(dh_TR, first, linear->r);
        if (active_dropout(linear, step) > 0) {
            TT_TRY(multiply(step, dh, false, linear->lora_A->value, false, 1, 0, through_TI));
            TT_TRY(drop(linear, step, row_keys_T, through_TI, true, dx_TI));
        } else {
            TT_TRY(multiply(step, dh, false, linear->lora_A->value, false, 1, adds ? 1 : 0, dx_TI));
        }
        adds = true;
        first += linear->r;
    }
    tt_workspace_release(step->workspace, mark);
    return TT_OK;
}

/* dh = s dy B */
static tt_status lora_hidden_gradient(const struct tt_linear_group *group, struct tt_step *step,
                                      tt_tensor dy_TO, tt_tensor dh_TR)
{
    int64_t first_out = 0, first_r = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        if (linear->r > 0) {
            TT_TRY(multiply(step, tt_tensor_cols(dy_TO, first_out, linear->out), false, linear->lora_B->value,
                            false, linear->scaling, 0, tt_tensor_cols(dh_TR, first_r, linear->r)));
        }
        first_out += linear->out;
        first_r += linear->r;
    }
    return TT_OK;
}

/* dx (+)= dy W */
static tt_status base_input_gradient(const struct tt_linear_group *group, struct tt_step *step,
                                     tt_tensor dy_TO, bool adds, tt_tensor dx_TI)
{
    tt_tensor w_all;
    if (stack(group, step, ROLE_WEIGHT, false, &w_all))
        return multiply(step, dy_TO, false, w_all, false, 1, adds ? 1 : 0, dx_TI);
    int64_t first_out = 0;
    struct tt_weight_part part;
    for (int i = 0; i < group->count; i += part.count) {
        size_t mark = tt_workspace_mark(step->workspace);
        TT_TRY(tt_quantized_part(group, step, i, &part));
        TT_TRY(multiply(step, tt_tensor_cols(dy_TO, first_out, part.out), false, part.w_OI, false, 1,
                        adds || i > 0 ? 1 : 0, dx_TI));
        tt_workspace_release(step->workspace, mark);
        first_out += part.out;
    }
    return TT_OK;
}

/* The order is that of tt_linear_forward, for the same reason. A mask on dh A needs a pass over dx anyway. */
tt_status tt_linear_backward_input(const struct tt_linear_group *group, struct tt_step *step,
                                   tt_tensor row_keys_T, tt_tensor dy_TO, tt_tensor dh_TR, tt_tensor dx_TI)
{
    bool lora = tt_linear_group_r(group) > 0, lora_first = lora && on_gpu(step) && !any_dropout(group, step);
    if (lora) TT_TRY(lora_hidden_gradient(group, step, dy_TO, dh_TR));
    if (tt_tensor_is_empty(dx_TI)) return TT_OK;
    if (lora_first) TT_TRY(lora_input_gradient(group, step, row_keys_T, dh_TR, false, dx_TI));
    TT_TRY(base_input_gradient(group, step, dy_TO, lora_first, dx_TI));
    if (!lora || lora_first) return TT_OK;
    return lora_input_gradient(group, step, row_keys_T, dh_TR, true, dx_TI);
}

/* dA += dh^T drop(x) */
static tt_status lora_a_gradient(const struct tt_linear_group *group, struct tt_step *step,
                                 tt_tensor row_keys_T, tt_tensor x_TI, tt_tensor dh_TR)
{
    tt_tensor da_all, dropped_TI;
    bool dropout = any_dropout(group, step);
    if (!dropout && stack(group, step, ROLE_LORA_A, true, &da_all)) {
        return multiply(step, dh_TR, true, x_TI, false, 1, 1, da_all);
    }
    size_t mark = tt_workspace_mark(step->workspace);
    if (dropout) {
        TT_TRY(tt_workspace_2d(step->workspace, "dropped input", x_TI.dtype, x_TI.dims[0], x_TI.dims[1],
                               &dropped_TI));
    }
    int64_t first = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        tt_tensor dh = tt_tensor_cols(dh_TR, first, linear->r);
        first += linear->r;
        if (!trains(linear->lora_A)) continue;
        tt_tensor input = x_TI;
        if (active_dropout(linear, step) > 0) {
            TT_TRY(drop(linear, step, row_keys_T, x_TI, false, dropped_TI));
            input = dropped_TI;
        }
        TT_TRY(multiply(step, dh, true, input, false, 1, 1, linear->lora_A->grad));
    }
    tt_workspace_release(step->workspace, mark);
    return TT_OK;
}

tt_status tt_linear_backward_params(const struct tt_linear_group *group, struct tt_step *step,
                                    tt_tensor row_keys_T, tt_tensor x_TI, tt_tensor h_TR, tt_tensor dy_TO,
                                    tt_tensor dh_TR)
{
    tt_tensor dw_all;
    bool stacked = stack(group, step, ROLE_WEIGHT, true, &dw_all);
    if (stacked) TT_TRY(multiply(step, dy_TO, true, x_TI, false, 1, 1, dw_all));
    int64_t first_out = 0, first_r = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        tt_tensor dy = tt_tensor_cols(dy_TO, first_out, linear->out);
        if (!stacked && trains(linear->weight)) {
            TT_TRY(multiply(step, dy, true, x_TI, false, 1, 1, linear->weight->grad));
        }
        if (trains(linear->bias)) {
            struct tt_bias_backward_args args = {.dy_TN = dy, .dbias_N = linear->bias->grad};
            TT_TRY(tt_bias_backward(step->stream, &args));
        }
        if (trains(linear->lora_B)) {
            tt_tensor h = tt_tensor_cols(h_TR, first_r, linear->r);
            TT_TRY(multiply(step, dy, true, h, false, linear->scaling, 1, linear->lora_B->grad));
        }
        first_out += linear->out;
        first_r += linear->r;
    }
    if (tt_linear_group_r(group) == 0) return TT_OK;
    return lora_a_gradient(group, step, row_keys_T, x_TI, dh_TR);
}
