#include "nn/expert_linear.h"

#include "backend/ops/columns.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/gemm_scaled.h"
#include "backend/ops/grouped_gemm.h"
#include "backend/ops/route.h"
#include "backend/ops/transpose.h"

static bool trains_param(const tt_param *param)
{
    return param != NULL && param->trainable;
}

bool tt_expert_linear_trains(const struct tt_expert_linear *linear)
{
    return trains_param(linear->weight) || trains_param(linear->bias) || trains_param(linear->lora_A) ||
           trains_param(linear->lora_B);
}

bool tt_expert_linear_needs_x(const struct tt_expert_linear *linear)
{
    return trains_param(linear->weight) || trains_param(linear->lora_A);
}

tt_status tt_expert_linear_push_h(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                                  int64_t rows, tt_tensor *h_MR)
{
    *h_MR = (tt_tensor){0};
    if (linear->r == 0) return TT_OK;
    return tt_workspace_2d(pass->lent.workspace, "LoRA h of experts", pass->in.compute_dtype, rows, linear->r,
                           h_MR);
}

/* ---- A and B by expert ---- */

/* The same numbers as [X, R, I], of this rank's experts. */
static tt_tensor view_A(const struct tt_expert_linear *linear, const struct tt_pass *pass, tt_tensor a)
{
    struct tt_expert_share share = tt_expert_share_of(pass, linear->experts);
    if (tt_tensor_is_empty(a)) return a;
    return tt_tensor_rows(tt_tensor_3d(a.data, a.dtype, linear->experts, linear->r, linear->in), share.first,
                          share.count);
}

/* B or its gradient as a matrix with a column for each of this rank's experts. */
static tt_tensor view_B(const struct tt_expert_linear *linear, const struct tt_pass *pass, tt_tensor b)
{
    struct tt_expert_share share = tt_expert_share_of(pass, linear->experts);
    return tt_tensor_cols(tt_tensor_2d(b.data, b.dtype, linear->out * linear->r, linear->experts),
                          share.first, share.count);
}

/* Scratch [X, O, R] of this rank's experts, also as the matrix with a row for each. */
static tt_status push_B(const struct tt_expert_linear *linear, const struct tt_pass *pass, tt_dtype dtype,
                        tt_tensor *by_row, tt_tensor *b_XOR)
{
    int64_t experts = tt_expert_share_of(pass, linear->experts).count;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "LoRA B by expert", dtype, experts, linear->out * linear->r,
                           by_row));
    *b_XOR = tt_tensor_3d(by_row->data, dtype, experts, linear->out, linear->r);
    return TT_OK;
}

static tt_status copy_B(const struct tt_expert_linear *linear, const struct tt_pass *pass, tt_tensor *b_XOR)
{
    tt_tensor b = linear->lora_B->value, by_row;
    TT_TRY(push_B(linear, pass, b.dtype, &by_row, b_XOR));
    struct tt_transpose_args args = {.x_MN = view_B(linear, pass, b), .y_NM = by_row};
    return tt_transpose(pass->lent.stream, &args);
}

/* ---- Products ---- */

/* Experts that are decoded or transposed together, to numbers of so many bytes. A host takes one at a time. */
static int64_t experts_together(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                                size_t bytes)
{
    size_t each = (size_t)(linear->out * linear->in) * bytes;
    int64_t count = (int64_t)(TT_LINEAR_SCRATCH_BYTES / each),
            experts = tt_expert_share_of(pass, linear->experts).count;
    if (count < 1 || tt_device_is_host(tt_stream_device(pass->lent.stream))) return 1;
    return count < experts ? count : experts;
}

/* The layout of the codes of this rank's experts, as they are lent. */
static tt_status own_layout(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                            struct tt_quant_layout *own)
{
    int64_t experts = tt_expert_share_of(pass, linear->experts).count;
    *own = linear->weight->quant;
    if (experts == linear->experts) return TT_OK;
    return tt_quant_layout_make(own->format, experts * linear->out, linear->in, own);
}

/* The weight as an operand; pushes the scratch of a coded one, whose layout in *own is that of this rank's experts. */
static tt_status push_weight(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                             struct tt_quant_layout *own, struct tt_grouped_gemm_args *product)
{
    const tt_param *weight = linear->weight;
    if (!tt_param_is_quantized(weight)) {
        product->w_XNK = weight->value;
        return TT_OK;
    }
    TT_TRY(own_layout(linear, pass, own));
    int64_t count = experts_together(linear, pass, tt_dtype_bytes(pass->in.compute_dtype));
    tt_tensor flat;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "decoded experts", pass->in.compute_dtype,
                           count * linear->out, linear->in, &flat));
    product->coded = (struct tt_coded){own, weight->value};
    product->scratch = tt_tensor_3d(flat.data, flat.dtype, count, linear->out, linear->in);
    return TT_OK;
}

/* ---- Products of codes ---- */

/* Codes and scales of experts `first` .. `first + count - 1` of this rank's. */
static tt_tensor codes_of(const struct tt_expert_linear *linear, const struct tt_quant_layout *own,
                          int64_t first, int64_t count)
{
    const struct tt_coded weight = {own, linear->weight->value};
    return tt_tensor_rows(tt_coded_codes(&weight), first * linear->out, count * linear->out);
}

static tt_tensor scales_of(const struct tt_expert_linear *linear, const struct tt_quant_layout *own,
                           int64_t first, int64_t count)
{
    const struct tt_coded weight = {own, linear->weight->value};
    tt_tensor all = tt_coded_scales(&weight);
    return tt_tensor_1d((float *)all.data + first * linear->out, TT_F32, count * linear->out);
}

/* The other operand's rows, and scratch where the device wants some. */
static tt_status push_quantized(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                                const struct tt_quantized_rows *rows, struct tt_quant_layout *own,
                                struct tt_grouped_gemm_args *product)
{
    TT_TRY(own_layout(linear, pass, own));
    size_t bytes = tt_gemm_scaled_scratch(tt_stream_device(pass->lent.stream), rows->codes_MK.dims[0],
                                          product->y_MN.dims[1], rows->codes_MK.dims[1]);
    product->codes.x_MK = rows->codes_MK;
    product->codes.x_scale_M = rows->scale_M;
    if (bytes == 0) return TT_OK;
    return tt_workspace_1d(pass->lent.workspace, "decoded fp8", TT_U8, (int64_t)bytes, &product->scratch);
}

static void set_codes(struct tt_grouped_gemm_args *product, tt_tensor codes, tt_tensor scales,
                      int64_t experts)
{
    int64_t rows = codes.dims[0] / experts;
    product->codes.w_XNK = tt_tensor_3d(codes.data, TT_F8_E4M3, experts, rows, codes.dims[1]);
    product->codes.w_scale_XN = tt_tensor_2d(scales.data, TT_F32, experts, rows);
}

/* Codes of some experts, transposed in scratch: [X K, N] and the scales of these rows. */
static tt_status push_transposed(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                                 int64_t count, struct tt_transpose_codes_args *args)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    TT_TRY(tt_workspace_2d(workspace, "transposed fp8 of experts", TT_F8_E4M3, count * linear->in,
                           linear->out, &args->transposed_KN));
    return tt_workspace_1d(workspace, "scales of transposed experts", TT_F32, count * linear->in,
                           &args->transposed_scale_K);
}

/* Matrices of some experts of a contiguous stack. */
static tt_tensor matrices_of(tt_tensor stack, int64_t first, int64_t count)
{
    size_t each = (size_t)(stack.dims[1] * stack.dims[2]) * tt_dtype_bytes(stack.dtype);
    return tt_tensor_3d((char *)stack.data + (size_t)first * each, stack.dtype, count, stack.dims[1],
                        stack.dims[2]);
}

/* The same product for some experts after the others. */
static tt_status multiply_transposed(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                                     const struct tt_quant_layout *own,
                                     const struct tt_grouped_gemm_args *whole)
{
    int64_t most = experts_together(linear, pass, 1), count,
            experts = tt_expert_share_of(pass, linear->experts).count;
    struct tt_transpose_codes_args turn = {.matrices = most};
    TT_TRY(push_transposed(linear, pass, most, &turn));
    for (int64_t first = 0; first < experts; first += count) {
        struct tt_grouped_gemm_args part = *whole;
        count = experts - first < most ? experts - first : most;
        struct tt_transpose_codes_args some = {
            .codes_NK = codes_of(linear, own, first, count),
            .scale_N = scales_of(linear, own, first, count),
            .transposed_KN = tt_tensor_rows(turn.transposed_KN, 0, count * linear->in),
            .transposed_scale_K = tt_tensor_1d(turn.transposed_scale_K.data, TT_F32, count * linear->in),
            .matrices = count};
        TT_TRY(tt_transpose_codes(pass->lent.stream, &some));
        part.border_X1 = tt_tensor_1d((int32_t *)whole->border_X1.data + first, TT_I32, count + 1);
        set_codes(&part, some.transposed_KN, some.transposed_scale_K, count);
        if (!tt_tensor_is_empty(whole->b_XNR)) part.b_XNR = matrices_of(whole->b_XNR, first, count);
        TT_TRY(tt_grouped_gemm(pass->lent.stream, &part));
    }
    return TT_OK;
}

static tt_status push_adapter(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                              tt_tensor h_MR, struct tt_grouped_gemm_args *product)
{
    if (linear->r == 0 || pass->in.adapters_off) return TT_OK;
    product->h_MR = h_MR;
    return copy_B(linear, pass, &product->b_XNR);
}

/* Makes 0 what rows of h have of other adapters than their tokens'. */
static tt_status keep_own(const struct tt_expert_linear *linear, const struct tt_pass *pass, tt_tensor slot_M,
                          tt_tensor h_MR)
{
    const struct tt_pass_adapters *adapters = &pass->in.adapters;
    int64_t count = linear->adapters > 1 ? linear->adapters : 1;
    if (pass->in.adapters_off || adapters->count == 0 || (count == 1 && !adapters->mixed)) return TT_OK;
    if (tt_expert_share_of(pass, linear->experts).size > 1)
        return tt_fail(TT_ERR_INTERNAL, "adapters of rows where ranks share the experts");
    const struct tt_keep_columns_args args = {.x_TN = h_MR,
                                              .group_R = adapters->of_T,
                                              .row_T = slot_M,
                                              .share = linear->slots,
                                              .count = count,
                                              .each = linear->r / count};
    return tt_keep_columns(pass->lent.stream, &args);
}

/* Bias or its gradient, of this rank's experts. */
static tt_tensor own_bias(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                          tt_tensor bias_XO)
{
    struct tt_expert_share share = tt_expert_share_of(pass, linear->experts);
    return tt_tensor_is_empty(bias_XO) ? bias_XO : tt_tensor_rows(bias_XO, share.first, share.count);
}

tt_tensor tt_expert_linear_bias(const struct tt_expert_linear *linear, const struct tt_pass *pass)
{
    return own_bias(linear, pass, tt_param_value(linear->bias));
}

tt_status tt_expert_linear_forward(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                                   const struct tt_expert_rows *rows, tt_tensor x_MI, tt_tensor h_MR,
                                   tt_tensor y_MO)
{
    tt_tensor border_X1 = rows->border_X1;
    struct tt_quant_layout own;
    struct tt_grouped_gemm_args product = {.border_X1 = border_X1,
                                           .x_MK = x_MI,
                                           .bias_XN = tt_expert_linear_bias(linear, pass),
                                           .y_MN = y_MO,
                                           .share = tt_expert_share_of(pass, linear->experts).size};
    if (linear->r > 0) {
        struct tt_grouped_gemm_args narrow = {.border_X1 = border_X1,
                                              .x_MK = x_MI,
                                              .w_XNK = view_A(linear, pass, linear->lora_A->value),
                                              .alpha = linear->scaling,
                                              .y_MN = h_MR,
                                              .share = product.share};
        TT_TRY(tt_grouped_gemm(pass->lent.stream, &narrow));
        TT_TRY(keep_own(linear, pass, rows->slot_M, h_MR));
    }
    if (tt_tensor_is_empty(y_MO)) return TT_OK;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(push_adapter(linear, pass, h_MR, &product));
    if (tt_tensor_is_empty(rows->quantized.codes_MK)) {
        TT_TRY(push_weight(linear, pass, &own, &product));
    } else {
        TT_TRY(push_quantized(linear, pass, &rows->quantized, &own, &product));
        int64_t experts = tt_expert_share_of(pass, linear->experts).count;
        set_codes(&product, codes_of(linear, &own, 0, experts), scales_of(linear, &own, 0, experts), experts);
    }
    TT_TRY(tt_grouped_gemm(pass->lent.stream, &product));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

tt_status tt_expert_linear_back(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                                const struct tt_expert_rows *rows, tt_tensor dy_MO, tt_tensor dh_MR,
                                tt_tensor dx_MI)
{
    tt_tensor border_X1 = rows->border_X1;
    bool coded = !tt_tensor_is_empty(rows->quantized.codes_MK);
    struct tt_quant_layout own;
    struct tt_grouped_gemm_args product = {.border_X1 = border_X1,
                                           .x_MK = dy_MO,
                                           .transposed = true,
                                           .y_MN = dx_MI,
                                           .share = tt_expert_share_of(pass, linear->experts).size};
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    if (linear->r > 0) {
        struct tt_grouped_gemm_args narrow = {.border_X1 = border_X1,
                                              .x_MK = dy_MO,
                                              .transposed = true,
                                              .alpha = linear->scaling,
                                              .y_MN = dh_MR,
                                              .share = product.share};
        TT_TRY(copy_B(linear, pass, &narrow.w_XNK));
        TT_TRY(tt_grouped_gemm(pass->lent.stream, &narrow));
        tt_workspace_release(pass->lent.workspace, mark);
        product.h_MR = dh_MR;
        product.b_XNR = view_A(linear, pass, linear->lora_A->value);
    }
    if (tt_tensor_is_empty(dx_MI)) return TT_OK;
    if (coded) {
        TT_TRY(push_quantized(linear, pass, &rows->quantized, &own, &product));
        TT_TRY(multiply_transposed(linear, pass, &own, &product));
    } else {
        TT_TRY(push_weight(linear, pass, &own, &product));
        TT_TRY(tt_grouped_gemm(pass->lent.stream, &product));
    }
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* ---- Gradients ---- */

static tt_status add_gradient(const struct tt_pass *pass, tt_tensor border_X1, tt_tensor dy_MN,
                              tt_tensor x_MK, tt_tensor dw_XNK)
{
    struct tt_grouped_gradients_args args = {border_X1, dy_MN, x_MK, dw_XNK,
                                             tt_expert_share_of(pass, 1).size};
    return tt_tensor_is_empty(dw_XNK) ? TT_OK : tt_grouped_gradients(pass->lent.stream, &args);
}

static tt_status add_gradient_of_B(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                                   tt_tensor border_X1, tt_tensor dy_MO, tt_tensor h_MR)
{
    tt_tensor grad = tt_param_grad(linear->lora_B), by_row, db_XOR;
    if (tt_tensor_is_empty(grad)) return TT_OK;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(push_B(linear, pass, grad.dtype, &by_row, &db_XOR));
    TT_TRY(tt_fill_zero(pass->lent.stream, by_row.data, tt_tensor_bytes(by_row)));
    TT_TRY(add_gradient(pass, border_X1, dy_MO, h_MR, db_XOR));
    struct tt_transpose_args args = {.x_MN = by_row, .y_NM = view_B(linear, pass, grad), .accumulate = true};
    TT_TRY(tt_transpose(pass->lent.stream, &args));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* 1 for each row: the weight of a row that has one expert. */
static tt_status push_ones(const struct tt_pass *pass, int64_t rows, tt_tensor *ones_M1)
{
    static const struct tt_route_rule one = {.score = TT_ROUTE_SOFTMAX};
    struct tt_workspace *workspace = pass->lent.workspace;
    tt_tensor zeros_M1, wide_M1, id_M1;
    TT_TRY(tt_workspace_2d(workspace, "ones", pass->in.compute_dtype, rows, 1, ones_M1));
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(tt_workspace_2d(workspace, "logits of ones", TT_F32, rows, 1, &zeros_M1));
    TT_TRY(tt_workspace_2d(workspace, "wide ones", TT_F32, rows, 1, &wide_M1));
    TT_TRY(tt_workspace_2d(workspace, "ids of ones", TT_I32, rows, 1, &id_M1));
    struct tt_route_forward_args route = {
        .rule = one, .logits_TX = zeros_M1, .ids_TS = id_M1, .weights_TS = wide_M1};
    struct tt_cast_args cast = {.x = wide_M1, .y = *ones_M1};
    TT_TRY(tt_fill_zero(pass->lent.stream, zeros_M1.data, tt_tensor_bytes(zeros_M1)));
    TT_TRY(tt_route_forward(pass->lent.stream, &route));
    TT_TRY(tt_cast(pass->lent.stream, &cast));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

static tt_status add_bias_gradient(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                                   tt_tensor border_X1, tt_tensor dy_MO)
{
    tt_tensor grad_XO = own_bias(linear, pass, tt_param_grad(linear->bias)), ones_M1;
    if (tt_tensor_is_empty(grad_XO)) return TT_OK;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(push_ones(pass, dy_MO.dims[0], &ones_M1));
    TT_TRY(add_gradient(pass, border_X1, dy_MO, ones_M1,
                        tt_tensor_3d(grad_XO.data, grad_XO.dtype, grad_XO.dims[0], grad_XO.dims[1], 1)));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

tt_status tt_expert_linear_gradients(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                                     tt_tensor border_X1, tt_tensor x_MI, tt_tensor h_MR, tt_tensor dy_MO,
                                     tt_tensor dh_MR)
{
    TT_TRY(add_bias_gradient(linear, pass, border_X1, dy_MO));
    TT_TRY(add_gradient(pass, border_X1, dy_MO, x_MI, tt_param_grad(linear->weight)));
    TT_TRY(add_gradient(pass, border_X1, dh_MR, x_MI, view_A(linear, pass, tt_param_grad(linear->lora_A))));
    return add_gradient_of_B(linear, pass, border_X1, dy_MO, h_MR);
}

tt_status tt_expert_linear_visit(const struct tt_expert_linear *linear, tt_linear_visit *visit, void *context)
{
    const struct tt_linear shown = {.weight = linear->weight,
                                    .bias = linear->bias,
                                    .lora_A = linear->lora_A,
                                    .lora_B = linear->lora_B,
                                    .in = linear->in,
                                    .out = linear->out,
                                    .r = linear->r,
                                    .experts = linear->experts,
                                    .slots = linear->slots,
                                    .adapters = linear->adapters,
                                    .scaling = linear->scaling};
    return visit(context, &shown);
}

double tt_expert_linear_flops(const struct tt_expert_linear *linear, bool full)
{
    double each = (full || linear->weight->trainable ? 6.0 : 4.0) * (double)linear->in * (double)linear->out;
    return (double)linear->slots * (each + 6.0 * (double)linear->r * (double)(linear->in + linear->out));
}
