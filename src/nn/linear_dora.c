/* DoRA: weights split into magnitude and direction (Liu et al., arXiv 2402.09353), as PEFT 0.21 computes it:
 *
 *     y = (x - d) W^T + g (d W^T + s d A^T B^T),   g = m / |W + s B A|,   d = drop(x)
 *
 * The norm is that of each row of W + s B A, in fp32, and a constant for gradients. Without dropout d is x, and the
 * first product is none. A coded W is decoded a block of rows at a time.
 *
 * Kept for backward beside h: u = d W^T + h B^T of all outputs, and 1 / |W + s B A|. A linear of the group without LoRA
 * has u = y. Backward: with v = g dy, dB and dh as LoRA's of v, and
 *
 *     dm = sum over rows of dy u / |W + s B A|,   dx = dy W + drop'((v - dy) W + dh A)
 */
#include "backend/ops/columns.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/gemm.h"
#include "backend/ops/quant.h"
#include "base/integer.h"
#include "nn/adapter_kind.h"
#include "nn/linear_parts.h"

/* Bytes of the rows of a weight that are decoded for their norms: in a cache of a processor, and enough for a GPU. */
enum { HOST_BLOCK_BYTES = 1 << 20, DEVICE_BLOCK_BYTES = 64 << 20, ALIGNMENT = 64 };

/* Memory of a group: rows of h and u side by side, then the inverse norms of all outputs. */
struct kept {
    tt_tensor u_TO, inverse_O;
};

static size_t rows_bytes(int64_t rows, int64_t columns, tt_dtype dtype)
{
    return (size_t)tt_align_up((size_t)(rows * columns) * tt_dtype_bytes(dtype), ALIGNMENT);
}

static tt_status push(const struct tt_linear_group *group, const struct tt_pass *pass, int64_t rows,
                      tt_tensor *h_TR)
{
    int64_t r = tt_linear_group_r(group), out = tt_linear_group_out(group);
    tt_dtype dtype = pass->in.compute_dtype;
    tt_tensor memory;
    size_t bytes = rows_bytes(rows, r + out, dtype) + (size_t)out * sizeof(float);
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "DoRA h and u", TT_U8, (int64_t)bytes, &memory));
    *h_TR = tt_tensor_cols(tt_tensor_2d(memory.data, dtype, rows, r + out), 0, r);
    return TT_OK;
}

static struct kept kept_of(const struct tt_linear_group *group, tt_tensor h_TR)
{
    int64_t r = tt_linear_group_r(group), out = tt_linear_group_out(group);
    tt_tensor rows = tt_tensor_2d(h_TR.data, h_TR.dtype, h_TR.dims[0], r + out);
    char *behind = (char *)h_TR.data + rows_bytes(h_TR.dims[0], r + out, h_TR.dtype);
    return (struct kept){tt_tensor_cols(rows, r, out), tt_tensor_1d(behind, TT_F32, out)};
}

static tt_tensor part_of(tt_tensor vector, int64_t first, int64_t count)
{
    return tt_tensor_1d((char *)vector.data + (size_t)first * tt_dtype_bytes(vector.dtype), vector.dtype,
                        count);
}

/* ---- Norms ---- */

/* w = rows of W + s B A */
static tt_status make_rows(const struct tt_linear *linear, const struct tt_pass *pass, int64_t first,
                           tt_tensor w_NI)
{
    const tt_param *weight = linear->weight;
    int64_t count = w_NI.dims[0];
    if (tt_param_is_quantized(weight)) {
        struct tt_dequantize_args args = {
            .layout = weight->quant, .packed = weight->value, .first_row = first, .y_NK = w_NI};
        TT_TRY(tt_dequantize(pass->lent.stream, &args));
    } else {
        struct tt_cast_args args = {.x = tt_tensor_rows(weight->value, first, count), .y = w_NI};
        TT_TRY(tt_cast(pass->lent.stream, &args));
    }
    struct tt_gemm_args args = {.a = tt_tensor_rows(linear->lora_B->value, first, count),
                                .b = linear->lora_A->value,
                                .c = w_NI,
                                .alpha = linear->scaling,
                                .beta = 1};
    return tt_gemm(pass->lent.stream, &args);
}

/* norm = |W + s B A| of each row, and its inverse; one of the two may be empty. */
static tt_status find_norms(const struct tt_linear *linear, const struct tt_pass *pass, tt_tensor norm_N,
                            tt_tensor inverse_N)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    bool host = tt_device_is_host(tt_stream_device(pass->lent.stream));
    int64_t step = (host ? HOST_BLOCK_BYTES : DEVICE_BLOCK_BYTES) / (linear->in * (int64_t)sizeof(float));
    step = tt_smaller(tt_larger(step, 1), linear->out);
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor block_NI;
    TT_TRY(tt_workspace_2d(workspace, "rows of a weight", TT_F32, step, linear->in, &block_NI));
    for (int64_t first = 0; first < linear->out; first += step) {
        int64_t count = tt_smaller(step, linear->out - first);
        tt_tensor rows_NI = tt_tensor_rows(block_NI, 0, count);
        TT_TRY(make_rows(linear, pass, first, rows_NI));
        struct tt_row_norms_args args = {.w_NK = rows_NI};
        if (!tt_tensor_is_empty(norm_N)) args.norm_N = part_of(norm_N, first, count);
        if (!tt_tensor_is_empty(inverse_N)) args.inverse_N = part_of(inverse_N, first, count);
        TT_TRY(tt_row_norms(pass->lent.stream, &args));
    }
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

static tt_status begin(const struct tt_linear *linear, const struct tt_pass *pass, tt_tensor values_N)
{
    return find_norms(linear, pass, values_N, (tt_tensor){0});
}

/* g of m */
static tt_status fold(const struct tt_linear *linear, const struct tt_pass *pass, tt_tensor values_N)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor inverse_N, row_1N = tt_tensor_2d(values_N.data, TT_F32, 1, linear->out);
    TT_TRY(tt_workspace_1d(workspace, "inverse norms", TT_F32, linear->out, &inverse_N));
    TT_TRY(find_norms(linear, pass, (tt_tensor){0}, inverse_N));
    struct tt_scale_columns_args args = {.x_TN = row_1N, .a_N = inverse_N, .y_TN = row_1N};
    TT_TRY(tt_scale_columns(pass->lent.stream, &args));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

/* ---- Columns ---- */

/* y = a b x + addend */
static tt_status scale(const struct tt_pass *pass, tt_tensor x_TN, tt_tensor a_N, tt_tensor b_N,
                       tt_tensor addend_TN, tt_tensor y_TN)
{
    struct tt_scale_columns_args args = {
        .x_TN = x_TN, .a_N = a_N, .b_N = b_N, .addend_TN = addend_TN, .y_TN = y_TN};
    return tt_scale_columns(pass->lent.stream, &args);
}

static tt_status copy_or_add(const struct tt_pass *pass, tt_tensor x_TN, tt_tensor addend_TN, tt_tensor y_TN)
{
    if (tt_tensor_is_empty(addend_TN)) {
        struct tt_cast_args args = {.x = x_TN, .y = y_TN};
        return tt_cast(pass->lent.stream, &args);
    }
    struct tt_add_args args = {.a = x_TN, .b = addend_TN, .y = y_TN};
    return tt_add(pass->lent.stream, &args);
}

/* y = b - a, where y may be either */
static tt_status subtract(const struct tt_pass *pass, tt_tensor a, tt_tensor b, tt_tensor y)
{
    struct tt_cast_args cast = {.x = a, .y = y};
    struct tt_scale_args negate = {.x = y, .factor = -1};
    struct tt_add_args add = {.a = b, .b = y, .y = y};
    if (a.data != y.data) TT_TRY(tt_cast(pass->lent.stream, &cast));
    TT_TRY(tt_scale(pass->lent.stream, &negate));
    return tt_add(pass->lent.stream, &add);
}

static tt_status drop(const struct tt_linear_call *call, const struct tt_linear *linear, tt_tensor x_TI,
                      bool accumulate, tt_tensor y_TI)
{
    struct tt_dropout_args args = {
        .x_TD = x_TI,
        .row_keys_T = call->row_keys_T,
        .rng = tt_rng_derive(call->pass->in.dropout_rng, linear->lora_A->name),
        .p = tt_linear_active_dropout(linear, call->pass),
        .accumulate = accumulate,
        .y_TD = y_TI,
    };
    return tt_dropout(call->pass->lent.stream, &args);
}

/* ---- One linear of a group ---- */

struct part {
    struct tt_linear_group group; /* of this linear alone */
    struct tt_linear_call call;   /* of that group */
    int64_t first, out;           /* columns of y and u */
    bool drops;
};

static void take_part(const struct tt_linear_call *call, int index, struct part *part)
{
    const struct tt_linear_group *group = call->group;
    int64_t first_r = 0;
    const struct tt_linear *linear = &group->linears[index];
    *part = (struct part){.group = {.linears = &group->linears[index], .count = 1, .kind = group->kind},
                          .call = *call,
                          .out = linear->out,
                          .drops = tt_linear_active_dropout(linear, call->pass) > 0};
    for (int i = 0; i < index; i++) {
        part->first += group->linears[i].out;
        first_r += group->linears[i].r;
    }
    part->call.h_TR = linear->r > 0 ? tt_tensor_cols(call->h_TR, first_r, linear->r) : (tt_tensor){0};
    part->call.quantized = NULL;
}

static tt_tensor columns_of(tt_tensor x_TO, const struct part *part)
{
    return tt_tensor_is_empty(x_TO) ? x_TO : tt_tensor_cols(x_TO, part->first, part->out);
}

static bool any_drops(const struct tt_linear_call *call)
{
    for (int i = 0; i < call->group->count; i++)
        if (tt_linear_active_dropout(&call->group->linears[i], call->pass) > 0) return true;
    return false;
}

/* u = d W^T + h B^T, and y = (x - d) W^T (+ residual) where there is y */
static tt_status forward_dropped(const struct part *part, tt_tensor residual_TN, tt_tensor u_TN,
                                 tt_tensor y_TN)
{
    const struct tt_linear *linear = part->group.linears;
    const struct tt_pass *pass = part->call.pass;
    struct tt_linear_call call = part->call;
    tt_tensor x_TI = call.x_TI, d_TI;
    call.group = &part->group;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "dropped input", x_TI.dtype, x_TI.dims[0], x_TI.dims[1],
                           &d_TI));
    TT_TRY(drop(&call, linear, x_TI, false, d_TI));
    call.x_TI = d_TI;
    TT_TRY(tt_linear_products(&call, (tt_tensor){0}, NULL, u_TN));
    if (!tt_tensor_is_empty(y_TN)) {
        struct tt_linear plain = *linear;
        const struct tt_linear_group weight = {.linears = &plain, .count = 1};
        plain.r = 0;
        plain.lora_A = plain.lora_B = NULL;
        TT_TRY(subtract(pass, d_TI, x_TI, d_TI));
        call.group = &weight;
        call.h_TR = (tt_tensor){0};
        TT_TRY(tt_linear_products(&call, residual_TN, NULL, y_TN));
    }
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* u of all linears, and with dropout also y without g u. */
static tt_status make_u(const struct tt_linear_call *call, tt_tensor residual_TO, tt_tensor u_TO,
                        tt_tensor y_TO)
{
    if (!any_drops(call)) return tt_linear_products(call, (tt_tensor){0}, NULL, u_TO);
    for (int i = 0; i < call->group->count; i++) {
        struct part part;
        take_part(call, i, &part);
        part.call.group = &part.group;
        tt_tensor u_TN = columns_of(u_TO, &part), y_TN = columns_of(y_TO, &part);
        if (part.drops)
            TT_TRY(forward_dropped(&part, columns_of(residual_TO, &part), u_TN, y_TN));
        else
            TT_TRY(tt_linear_products(&part.call, (tt_tensor){0}, NULL, u_TN));
    }
    return TT_OK;
}

static tt_status forward(const struct tt_linear_call *call, tt_tensor residual_TO, tt_tensor y_TO)
{
    const struct tt_linear_group *group = call->group;
    struct kept kept = kept_of(group, call->h_TR);
    TT_TRY(make_u(call, residual_TO, kept.u_TO, y_TO));
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        struct part part;
        take_part(call, i, &part);
        tt_tensor inverse_N = part_of(kept.inverse_O, part.first, part.out);
        if (linear->vector != NULL && linear->vector->folded)
            inverse_N = (tt_tensor){0};
        else if (linear->vector != NULL)
            TT_TRY(find_norms(linear, call->pass, (tt_tensor){0}, inverse_N));
        if (tt_tensor_is_empty(y_TO)) continue;
        tt_tensor u_TN = columns_of(kept.u_TO, &part), y_TN = columns_of(y_TO, &part);
        tt_tensor addend_TN = part.drops ? y_TN : columns_of(residual_TO, &part);
        if (linear->vector != NULL)
            TT_TRY(scale(call->pass, u_TN, linear->vector->value, inverse_N, addend_TN, y_TN));
        else
            TT_TRY(copy_or_add(call->pass, u_TN, addend_TN, y_TN));
    }
    return TT_OK;
}

/* v = g dy, and dm += sum of dy u / |W + s B A| */
static tt_status through_magnitude(const struct tt_linear_call *call, tt_tensor dy_TO, tt_tensor v_TO)
{
    const struct tt_linear_group *group = call->group;
    struct kept kept = kept_of(group, call->h_TR);
    for (int i = 0; i < group->count; i++) {
        const tt_param *vector = group->linears[i].vector;
        struct part part;
        take_part(call, i, &part);
        tt_tensor dy_TN = columns_of(dy_TO, &part), v_TN = columns_of(v_TO, &part),
                  inverse_N = part_of(kept.inverse_O, part.first, part.out);
        if (vector == NULL) {
            TT_TRY(copy_or_add(call->pass, dy_TN, (tt_tensor){0}, v_TN));
            continue;
        }
        TT_TRY(scale(call->pass, dy_TN, vector->value, inverse_N, (tt_tensor){0}, v_TN));
        if (!vector->trainable) continue;
        struct tt_column_dots_args dots = {
            .x_TN = columns_of(kept.u_TO, &part), .g_TN = dy_TN, .b_N = inverse_N, .dots_N = vector->grad};
        TT_TRY(tt_column_dots(call->pass->lent.stream, &dots));
    }
    return TT_OK;
}

/* dx += drop'((v - dy) W + dh A), of one linear; v is overwritten. */
static tt_status add_dropped(const struct part *part, tt_tensor dy_TN, tt_tensor v_TN, tt_tensor dh_TR,
                             tt_tensor dx_TI)
{
    const struct tt_pass *pass = part->call.pass;
    struct tt_linear_call call = part->call;
    tt_tensor dd_TI;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    call.group = &part->group;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient of the dropped input", dx_TI.dtype, dx_TI.dims[0],
                           dx_TI.dims[1], &dd_TI));
    TT_TRY(subtract(pass, v_TN, dy_TN, v_TN));
    struct tt_scale_args negate = {.x = v_TN, .factor = -1};
    TT_TRY(tt_scale(pass->lent.stream, &negate));
    TT_TRY(tt_linear_products_back(&call, v_TN, dh_TR, dd_TI));
    TT_TRY(drop(&call, part->group.linears, dd_TI, true, dx_TI));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status backward_input(const struct tt_linear_call *call, tt_tensor dy_TO, tt_tensor dh_TR,
                                tt_tensor dx_TI)
{
    tt_tensor v_TO = kept_of(call->group, dh_TR).u_TO;
    struct tt_linear_call of_v = *call;
    of_v.quantized = NULL;
    TT_TRY(through_magnitude(call, dy_TO, v_TO));
    TT_TRY(tt_linear_through_b(call, v_TO, dh_TR));
    if (tt_tensor_is_empty(dx_TI)) return TT_OK;
    if (!any_drops(call)) return tt_linear_products_back(&of_v, v_TO, dh_TR, dx_TI);
    TT_TRY(tt_linear_products_back(&of_v, dy_TO, (tt_tensor){0}, dx_TI));
    for (int i = 0; i < call->group->count; i++) {
        struct part part;
        struct tt_linear_call dropped = of_v;
        dropped.h_TR = dh_TR;
        take_part(&dropped, i, &part);
        if (!part.drops) continue;
        TT_TRY(add_dropped(&part, columns_of(dy_TO, &part), columns_of(v_TO, &part), part.call.h_TR, dx_TI));
    }
    return TT_OK;
}

const struct tt_adapter_kind tt_adapter_dora = {.vector = "lora_magnitude_vector",
                                                .push = push,
                                                .forward = forward,
                                                .backward_input = backward_input,
                                                .begin = begin,
                                                .fold = fold};
