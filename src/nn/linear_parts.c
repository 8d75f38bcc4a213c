#include "nn/linear_parts.h"

#include "backend/ops/gemm_scaled.h"
#include "backend/ops/quant.h"
#include "backend/ops/round_groups.h"

static const tt_param *param_of(const struct tt_linear *linear, enum tt_linear_role role)
{
    return role == TT_ROLE_WEIGHT ? linear->weight : linear->lora_A;
}

static bool on_gpu(const struct tt_pass *pass)
{
    return !tt_device_is_host(tt_stream_device(pass->lent.stream));
}

bool tt_linear_stack(const struct tt_linear_group *group, const struct tt_pass *pass,
                     enum tt_linear_role role, bool grad, tt_tensor *all)
{
    tt_tensor first = {0};
    int64_t rows = 0;
    for (int i = 0; i < group->count; i++) {
        const tt_param *param = param_of(&group->linears[i], role);
        if (param == NULL && role == TT_ROLE_LORA_A && on_gpu(pass)) continue;
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

static int64_t each_r(const struct tt_linear *linear)
{
    return linear->adapters > 1 ? linear->r / linear->adapters : linear->r;
}

int64_t tt_linear_pass_r(const struct tt_linear *linear, const struct tt_pass *pass)
{
    int64_t count = pass->in.adapters.count;
    return count > 0 ? count * each_r(linear) : linear->r;
}

tt_tensor tt_linear_pass_A(const struct tt_linear *linear, const struct tt_pass *pass)
{
    int64_t r = tt_linear_pass_r(linear, pass), first = pass->in.adapters.first * each_r(linear);
    tt_tensor a = linear->lora_A->value;
    return r == linear->r ? a : tt_tensor_rows(a, first, r);
}

tt_tensor tt_linear_pass_B(const struct tt_linear *linear, const struct tt_pass *pass)
{
    int64_t r = tt_linear_pass_r(linear, pass), first = pass->in.adapters.first * each_r(linear);
    tt_tensor b = linear->lora_B->value;
    return r == linear->r ? b : tt_tensor_cols(b, first, r);
}

bool tt_linear_has_part(const struct tt_linear_group *group, const struct tt_linear_part *before)
{
    return before == NULL || before->first + before->count < group->count;
}

static enum tt_product_kind kind_of(const struct tt_linear *linear, enum tt_linear_way way)
{
    return way == TT_LINEAR_FORWARD ? linear->forward : linear->backward;
}

/* Whether codes are multiplied as they are; otherwise the weight is dense or decoded. */
static bool is_coded(const struct tt_linear *linear, enum tt_linear_way way)
{
    return kind_of(linear, way) >= TT_PRODUCT_CODED;
}

/* The number of weights from `first` on that one product takes: one that is dense, all that are multiplied coded, or as
 * many decoded ones as fit into the scratch together, at least one. */
static int weight_count(const struct tt_linear_group *group, const struct tt_pass *pass,
                        enum tt_linear_way way, int first)
{
    const struct tt_linear *linear = &group->linears[first];
    int count = 1, rest = group->count - first;
    int64_t out = linear->out;
    bool first_is_coded = is_coded(linear, way);
    if (!tt_param_is_quantized(linear->weight)) return 1;
    size_t row_bytes = (size_t)linear->in * tt_dtype_bytes(pass->in.compute_dtype);
    while (count < rest && count < TT_MATRIX_PARTS && tt_param_is_quantized(linear[count].weight)) {
        out += linear[count].out;
        if (is_coded(&linear[count], way) != first_is_coded) break;
        if (!first_is_coded && (size_t)out * row_bytes > TT_LINEAR_SCRATCH_BYTES) break;
        count++;
    }
    return count;
}

tt_status tt_linear_push_quantized(const struct tt_pass *pass, int64_t rows, int64_t cols,
                                   struct tt_quantized_rows *out)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    *out = (struct tt_quantized_rows){.made = false};
    TT_TRY(tt_workspace_2d(workspace, "rows in fp8", TT_F8_E4M3, rows, cols, &out->codes_MK));
    return tt_workspace_1d(workspace, "scales of rows", TT_F32, rows, &out->scale_M);
}

bool tt_linear_takes_quantized(const struct tt_linear_group *group, enum tt_linear_way way)
{
    if (way == TT_LINEAR_BACKWARD && group->kind != NULL) return false;
    for (int i = 0; i < group->count; i++)
        if (!is_coded(&group->linears[i], way)) return false;
    return group->count <= TT_MATRIX_PARTS;
}

tt_status tt_linear_push_quantized_for(const struct tt_linear_group *reader, enum tt_linear_way way,
                                       const struct tt_pass *pass, int64_t rows, int64_t cols,
                                       struct tt_quantized_rows *out)
{
    *out = (struct tt_quantized_rows){.made = false};
    return tt_linear_takes_quantized(reader, way) ? tt_linear_push_quantized(pass, rows, cols, out) : TT_OK;
}

/* Memory for the other operand, `cols` wide, in FP8. */
static tt_status push_quantized(const struct tt_pass *pass, int64_t rows, int64_t cols,
                                const struct tt_quantized_rows *made, struct tt_matrix *matrix)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    struct tt_quantized_rows *quantized = &matrix->quantized;
    size_t most = 0;
    bool is_made = made != NULL && !tt_tensor_is_empty(made->codes_MK);
    if (is_made)
        *quantized = *made;
    else
        TT_TRY(tt_linear_push_quantized(pass, rows, cols, quantized));
    quantized->made = is_made;
    for (int i = 0; i < matrix->count; i++) {
        const struct tt_quant_layout *layout = matrix->parts[i].layout;
        size_t bytes =
            tt_gemm_scaled_scratch(tt_stream_device(pass->lent.stream), rows, layout->rows, layout->cols);
        if (bytes > most) most = bytes;
    }
    if (most == 0) return TT_OK;
    return tt_workspace_1d(workspace, "decoded fp8", TT_U8, (int64_t)most, &quantized->scratch);
}

/* The weight in FP8 in scratch, whatever its format. */
static tt_status recode(const struct tt_linear *linear, const struct tt_pass *pass, struct tt_coded *out)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    const struct tt_quant_layout *layout = &linear->recoded_layout;
    out->layout = layout;
    TT_TRY(tt_workspace_1d(workspace, "weights in fp8", TT_U8, (int64_t)layout->bytes, &out->packed));
    size_t mark = tt_workspace_mark(workspace);
    struct tt_recode_rows_args args = {.layout = linear->weight->quant,
                                       .packed = linear->weight->value,
                                       .codes_NK = tt_coded_codes(out),
                                       .scale_N = tt_coded_scales(out)};
    TT_TRY(tt_workspace_2d(workspace, "dequantized weights", pass->in.compute_dtype, layout->rows,
                           layout->cols, &args.scratch_NK));
    TT_TRY(tt_recode_rows(pass->lent.stream, &args));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

/* The transposed weight in scratch. */
static tt_status transpose(const struct tt_linear *linear, const struct tt_pass *pass, struct tt_coded *out)
{
    const struct tt_quant_layout *layout = &linear->transposed_layout;
    struct tt_coded weight = {&linear->weight->quant, linear->weight->value};
    out->layout = layout;
    TT_TRY(
        tt_workspace_1d(pass->lent.workspace, "transposed fp8", TT_U8, (int64_t)layout->bytes, &out->packed));
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    if (linear->forward == TT_PRODUCT_RECODED) TT_TRY(recode(linear, pass, &weight));
    struct tt_transpose_codes_args args = {.codes_NK = tt_coded_codes(&weight),
                                           .scale_N = tt_coded_scales(&weight),
                                           .transposed_KN = tt_coded_codes(out),
                                           .transposed_scale_K = tt_coded_scales(out)};
    TT_TRY(tt_transpose_codes(pass->lent.stream, &args));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status find_codes(const struct tt_linear *linear, const struct tt_pass *pass,
                            enum tt_linear_way way, struct tt_coded *out)
{
    enum tt_product_kind kind = kind_of(linear, way);
    if (kind == TT_PRODUCT_TRANSPOSED) return transpose(linear, pass, out);
    if (kind == TT_PRODUCT_RECODED) return recode(linear, pass, out);
    bool copy = kind == TT_PRODUCT_CODED && way == TT_LINEAR_BACKWARD;
    const tt_param *param = copy ? linear->transposed : linear->weight;
    *out = (struct tt_coded){&param->quant, param->value};
    return TT_OK;
}

tt_status tt_linear_next_part(const struct tt_linear_group *group, const struct tt_pass *pass,
                              enum tt_linear_way way, int64_t rows, const struct tt_quantized_rows *made,
                              const struct tt_linear_part *before, struct tt_linear_part *part)
{
    tt_tensor w_all;
    struct tt_linear_part next = {0};
    if (before != NULL) {
        next.first = before->first + before->count;
        next.first_out = before->first_out + before->out;
        next.first_r = before->first_r;
        for (int i = before->first; i < next.first; i++)
            next.first_r += tt_linear_pass_r(&group->linears[i], pass);
    }
    const struct tt_linear *linear = &group->linears[next.first];
    bool whole = next.first == 0 && tt_linear_stack(group, pass, TT_ROLE_WEIGHT, false, &w_all);
    next.count = whole ? group->count : weight_count(group, pass, way, next.first);
    for (int i = 0; i < next.count; i++) next.out += linear[i].out;
    *part = next;
    if (whole || !tt_param_is_quantized(linear->weight)) {
        part->w_OI = tt_matrix_of(whole ? w_all : linear->weight->value);
        return TT_OK;
    }
    part->w_OI.count = next.count;
    for (int i = 0; i < next.count; i++) TT_TRY(find_codes(&linear[i], pass, way, &part->w_OI.parts[i]));
    if (is_coded(linear, way))
        return push_quantized(pass, rows, way == TT_LINEAR_FORWARD ? linear->in : next.out, made,
                              &part->w_OI);
    return tt_workspace_2d(pass->lent.workspace, "dequantized weights", pass->in.compute_dtype, next.out,
                           linear->in, &part->w_OI.scratch);
}

bool tt_linear_is_one_part(const struct tt_linear_group *group, const struct tt_pass *pass,
                           enum tt_linear_way way)
{
    tt_tensor w_all;
    return tt_linear_stack(group, pass, TT_ROLE_WEIGHT, false, &w_all) ||
           weight_count(group, pass, way, 0) == group->count;
}

bool tt_linear_rounds_x(const struct tt_linear *linear)
{
    return linear->forward == TT_PRODUCT_ROUNDED_X || linear->forward == TT_PRODUCT_ROUNDED_X_BY_POWERS;
}

tt_status tt_linear_round_x(const struct tt_linear_call *call, tt_tensor *rounded_TI)
{
    const struct tt_linear *linear = NULL;
    const struct tt_pass *pass = call->pass;
    tt_tensor x = call->x_TI;
    *rounded_TI = x;
    for (int i = 0; i < call->group->count; i++)
        if (tt_linear_rounds_x(&call->group->linears[i])) linear = &call->group->linears[i];
    if (linear == NULL) return TT_OK;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "input rounded to fp8", x.dtype, x.dims[0], x.dims[1],
                           rounded_TI));
    struct tt_round_groups_args args = {
        .x_MK = x, .by_powers = linear->forward == TT_PRODUCT_ROUNDED_X_BY_POWERS, .y_MK = *rounded_TI};
    return tt_round_groups(pass->lent.stream, &args);
}

struct tt_low_rank tt_linear_low_up(const struct tt_linear_call *call, const struct tt_linear_part *part)
{
    const struct tt_linear_group *group = call->group;
    struct tt_low_rank low = {.h_MR = call->h_TR};
    int64_t first_y = 0, first_h = part->first_r;
    if (call->pass->in.adapters_off) return (struct tt_low_rank){0};
    for (int i = part->first; i < part->first + part->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        if (linear->r > 0) {
            low.parts[low.count].b = tt_linear_pass_B(linear, call->pass);
            low.parts[low.count].first_h = first_h;
            low.parts[low.count++].first_y = first_y;
        }
        first_y += linear->out;
        first_h += tt_linear_pass_r(linear, call->pass);
    }
    return low;
}

struct tt_low_rank tt_linear_low_down(const struct tt_linear_group *group, const struct tt_linear_part *part,
                                      tt_tensor dh_TR)
{
    struct tt_low_rank low = {.h_MR = dh_TR};
    int64_t first_h = part->first_r;
    for (int i = part->first; i < part->first + part->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        if (linear->r == 0) continue;
        tt_tensor a = linear->lora_A->value, *last = low.count > 0 ? &low.parts[low.count - 1].b : NULL;
        if (last != NULL && tt_tensor_is_contiguous(a) && tt_tensor_is_contiguous(*last) &&
            a.dtype == last->dtype &&
            (const char *)last->data + tt_tensor_bytes(*last) == (const char *)a.data) {
            *last = tt_tensor_2d(last->data, last->dtype, last->dims[0] + a.dims[0], a.dims[1]);
        } else {
            low.parts[low.count].b = a;
            low.parts[low.count++].first_h = first_h;
        }
        first_h += linear->r;
    }
    return low;
}
