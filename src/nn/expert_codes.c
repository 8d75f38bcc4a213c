#include "nn/expert_codes.h"

#include "backend/ops/expert_rows.h"
#include "backend/ops/gemm_scaled.h"

tt_status tt_expert_codes_push(const struct tt_expert_linear *reader, enum tt_linear_way way,
                               const struct tt_pass *pass, int64_t rows, int64_t columns,
                               struct tt_quantized_rows *out)
{
    *out = (struct tt_quantized_rows){.made = false};
    if (!tt_expert_linear_takes_quantized(reader, way)) return TT_OK;
    out->made = true;
    struct tt_workspace *workspace = pass->lent.workspace;
    TT_TRY(tt_workspace_2d(workspace, "rows of experts in fp8", TT_F8_E4M3, rows, columns, &out->codes_MK));
    return tt_workspace_1d(workspace, "scales of rows of experts", TT_F32, rows, &out->scale_M);
}

/* The codes of x, in the rows of its experts; those of x itself are scratch above them. */
static tt_status spread_codes(const struct tt_pass *pass, tt_tensor x_TD, tt_tensor slot_M,
                              const struct tt_quantized_rows *out)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    struct tt_quantized_rows own;
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(tt_linear_push_quantized(pass, x_TD.dims[0], x_TD.dims[1], &own));
    struct tt_quantize_rows_args quantize = {x_TD, own.codes_MK, own.scale_M};
    struct tt_spread_rows_args spread = {own.codes_MK, slot_M, out->codes_MK, own.scale_M, out->scale_M};
    TT_TRY(tt_quantize_rows(pass->lent.stream, &quantize));
    TT_TRY(tt_spread_rows(pass->lent.stream, &spread));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

tt_status tt_expert_codes_spread(const struct tt_expert_linear *reader, enum tt_linear_way way,
                                 const struct tt_pass *pass, const char *name, tt_tensor x_TD, bool read,
                                 struct tt_expert_rows *rows, tt_tensor *rows_MD)
{
    int64_t count = rows->slot_M.dims[0], columns = x_TD.dims[1];
    *rows_MD = tt_tensor_2d(NULL, x_TD.dtype, count, columns);
    TT_TRY(tt_expert_codes_push(reader, way, pass, count, columns, &rows->quantized));
    bool coded = !tt_tensor_is_empty(rows->quantized.codes_MK);
    if (coded) TT_TRY(spread_codes(pass, x_TD, rows->slot_M, &rows->quantized));
    if (coded && !read) return TT_OK;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, name, x_TD.dtype, count, columns, rows_MD));
    struct tt_spread_rows_args values = {.x_TD = x_TD, .slot_M = rows->slot_M, .y_MD = *rows_MD};
    return tt_spread_rows(pass->lent.stream, &values);
}

bool tt_expert_codes_alone(const struct tt_pass *pass, const struct tt_swiglu_forward_args *args)
{
    return !tt_tensor_is_empty(args->up_TF) &&
           tt_swiglu_rows_in_one_pass(tt_stream_device(pass->lent.stream), args->gate_TF.dims[1],
                                      args->gate_TF.dtype);
}

tt_status tt_expert_codes_activate(const struct tt_pass *pass, const struct tt_swiglu_forward_args *args,
                                   const struct tt_quantized_rows *rows)
{
    struct tt_swiglu_rows_args both = {.pass = *args, .codes_TF = rows->codes_MK, .scale_T = rows->scale_M};
    struct tt_quantize_rows_args quantize = {args->h_TF, rows->codes_MK, rows->scale_M};
    if (args->h_TF.data == NULL) both.pass.h_TF = (tt_tensor){0};
    if (!tt_tensor_is_empty(args->up_TF)) return tt_swiglu_rows(pass->lent.stream, &both);
    TT_TRY(tt_swiglu_forward(pass->lent.stream, args));
    return tt_quantize_rows(pass->lent.stream, &quantize);
}

tt_status tt_expert_codes_activate_back(const struct tt_pass *pass,
                                        const struct tt_swiglu_backward_args *args, bool read,
                                        const struct tt_quantized_rows *rows)
{
    struct tt_swiglu_rows_backward_args both = {
        .pass = *args, .codes_T2F = rows->codes_MK, .scale_T = rows->scale_M};
    struct tt_quantize_rows_args quantize = {args->dgate_TF, rows->codes_MK, rows->scale_M};
    if (!tt_tensor_is_empty(args->up_TF)) {
        const struct tt_device *device = tt_stream_device(pass->lent.stream);
        if (!read && tt_swiglu_rows_in_one_pass(device, args->dh_TF.dims[1], args->dh_TF.dtype))
            both.pass.dgate_TF = both.pass.dup_TF = (tt_tensor){0};
        return tt_swiglu_rows_backward(pass->lent.stream, &both);
    }
    TT_TRY(tt_swiglu_backward(pass->lent.stream, args));
    return tt_quantize_rows(pass->lent.stream, &quantize);
}
