#include "backend/compose.h"

static tt_status multiply(struct tt_stream *stream, tt_tensor a, tt_tensor b, bool trans_b, tt_tensor addend,
                          tt_tensor c)
{
    bool adds = !tt_tensor_is_empty(addend);
    struct tt_gemm_args args = {.a = a, .b = b, .c = c, .trans_b = trans_b, .alpha = 1, .beta = adds ? 1 : 0};
    if (adds && addend.data != c.data) args.addend = addend;
    return stream->device->table->ops->gemm(stream, &args);
}

/* y = x op(w) (+ addend) in FP8. With w^T each part makes its columns of y, else each multiplies its columns of x and
 * adds to those before it. */
static tt_status multiply_coded(struct tt_stream *stream, const struct tt_gemm_lora_args *args,
                                tt_tensor addend)
{
    const struct tt_quantized_rows *rows = &args->w.quantized;
    bool adds = !tt_tensor_is_empty(addend);
    int64_t first = 0, extent;
    for (int i = 0; i < args->w.count; i++, first += extent) {
        struct tt_gemm_scaled_args product = {.a_MK = rows->codes_MK,
                                              .a_scale_M = rows->scale_M,
                                              .b_NK = tt_coded_codes(&args->w.parts[i]),
                                              .b_scale_N = tt_coded_scales(&args->w.parts[i]),
                                              .addend_MN = i > 0 ? args->y_MN : addend,
                                              .y_MN = args->y_MN,
                                              .scratch = rows->scratch};
        extent = product.b_NK.dims[args->trans_w ? 0 : 1];
        if (args->trans_w) {
            product.addend_MN = adds ? tt_tensor_cols(addend, first, extent) : (tt_tensor){0};
            product.y_MN = tt_tensor_cols(args->y_MN, first, extent);
        } else {
            product.a_MK = tt_tensor_cols(rows->codes_MK, first, extent);
        }
        TT_TRY(tt_dispatch_gemm_scaled(stream, &product));
    }
    return TT_OK;
}

/* The wide product alone. */
static tt_status multiply_wide(struct tt_stream *stream, const struct tt_gemm_lora_args *args,
                               tt_tensor addend)
{
    if (tt_matrix_is_multiplied_coded(&args->w)) return multiply_coded(stream, args, addend);
    return multiply(stream, args->x_MK, args->w.dense, args->trans_w, addend, args->y_MN);
}

struct part {
    tt_tensor h, b, y;
    int64_t end; /* its last column of y plus 1 */
};

static struct part part_at(const struct tt_gemm_lora_args *args, int i)
{
    const struct tt_low_rank *low = &args->low;
    tt_tensor b = low->parts[i].b;
    int64_t r = b.dims[args->trans_w ? 1 : 0], columns = b.dims[args->trans_w ? 0 : 1],
            first = low->parts[i].first_y;
    return (struct part){.h = tt_tensor_cols(low->h_MR, low->parts[i].first_h, r),
                         .b = b,
                         .y = tt_tensor_cols(args->y_MN, first, columns),
                         .end = first + columns};
}

/* y[:, from .. to] = 0, computed as a product with K = 0. */
static tt_status clear(struct tt_stream *stream, const struct tt_gemm_lora_args *args, int64_t from,
                       int64_t to)
{
    if (from >= to) return TT_OK;
    bool trans = args->trans_w;
    tt_tensor none = tt_tensor_2d(NULL, args->x_MK.dtype, trans ? to - from : 0, trans ? 0 : to - from);
    return multiply(stream, tt_tensor_cols(args->x_MK, 0, 0), none, trans, (tt_tensor){0},
                    tt_tensor_cols(args->y_MN, from, to - from));
}

/* True if the narrow products cover every column of y, so that each column has its addend added once. */
static bool covers(const struct tt_gemm_lora_args *args)
{
    int64_t end = 0;
    for (int i = 0; i < args->low.count; i++) {
        if (args->low.parts[i].first_y > end) return false;
        struct part part = part_at(args, i);
        if (part.end > end) end = part.end;
    }
    return end == args->y_MN.dims[1];
}

/* y = low rank (+ addend) */
static tt_status narrow(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    int64_t done = 0; /* columns before this one have been computed */
    for (int i = 0; i < args->low.count; i++) {
        struct part part = part_at(args, i);
        int64_t first = args->low.parts[i].first_y;
        tt_tensor addend = {0};
        if (first < done)
            addend = part.y;
        else if (!tt_tensor_is_empty(args->addend_MN))
            addend = tt_tensor_cols(args->addend_MN, first, part.end - first);
        TT_TRY(clear(stream, args, done, first));
        TT_TRY(multiply(stream, part.h, part.b, args->trans_w, addend, part.y));
        if (part.end > done) done = part.end;
    }
    return clear(stream, args, done, args->y_MN.dims[1]);
}

static tt_status product(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    tt_tensor addend = args->addend_MN;
    bool adds = !tt_tensor_is_empty(addend), in_place = adds && addend.data == args->y_MN.data;
    bool as_host = stream->device->is_host && !tt_matrix_is_multiplied_coded(&args->w);
    if (args->low.count > 0 && !as_host && (!adds || covers(args))) {
        TT_TRY(narrow(stream, args));
        return multiply_wide(stream, args, args->y_MN);
    }
    bool late = adds && !in_place && as_host; /* added to the whole sum, rounded once more */
    TT_TRY(multiply_wide(stream, args, late ? (tt_tensor){0} : addend));
    for (int i = 0; i < args->low.count; i++) {
        struct part part = part_at(args, i);
        TT_TRY(multiply(stream, part.h, part.b, args->trans_w, part.y, part.y));
    }
    if (!late) return TT_OK;
    struct tt_add_args add = {.a = args->y_MN, .b = addend, .y = args->y_MN};
    return stream->device->table->ops->add(stream, &add);
}

/* All of it in one kernel, where the device has one. */
static tt_status coded_at_once(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    struct tt_device *device = stream->device;
    if (device->table->gemm_coded == NULL) return TT_ERR_UNSUPPORTED;
    tt_span_begin(stream, TT_OP_gemm_scaled);
    tt_status status = device->table->gemm_coded(stream, args);
    tt_span_end(stream, TT_OP_gemm_scaled);
    return status;
}

static tt_status quantize_input(struct tt_stream *stream, struct tt_gemm_lora_args *args)
{
    struct tt_quantized_rows *rows = &args->w.quantized;
    struct tt_quantize_rows_args quantize = {
        .x_MK = args->x_MK, .codes_MK = rows->codes_MK, .scale_M = rows->scale_M};
    if (rows->made) return TT_OK;
    rows->made = true;
    return tt_dispatch_quantize_rows(stream, &quantize);
}

tt_status tt_compose_gemm_lora(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    struct tt_gemm_lora_args with_rows = *args;
    if (tt_matrix_is_multiplied_coded(&args->w)) {
        TT_TRY(quantize_input(stream, &with_rows));
        tt_status status = coded_at_once(stream, &with_rows);
        if (status != TT_ERR_UNSUPPORTED) return status;
    }
    TT_TRY(product(stream, &with_rows));
    return tt_compose_rotation(stream, args);
}

tt_status tt_compose_rotation(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    const struct tt_rotation *rotation = &args->rotation;
    if (rotation->columns == 0) return TT_OK;
    struct tt_rope_args rope = {.x_THE = tt_tensor_heads(tt_tensor_cols(args->y_MN, 0, rotation->columns),
                                                         rotation->columns / rotation->head_dim),
                                .positions_T = rotation->positions_T,
                                .cos_PE = rotation->cos_PE,
                                .sin_PE = rotation->sin_PE,
                                .pairs = rotation->pairs};
    return stream->device->table->ops->rope(stream, &rope);
}

/* The host's own gemm_lora includes the narrow products; a GPU's would call compose again. FP8 is always composed. */
static tt_status lora_product(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    if (stream->device->is_host && !tt_matrix_is_multiplied_coded(&args->w))
        return stream->device->table->ops->gemm_lora(stream, args);
    return tt_compose_gemm_lora(stream, args);
}

tt_status tt_compose_gemm_swiglu(struct tt_stream *stream, const struct tt_gemm_swiglu_args *args)
{
    struct tt_gemm_lora_args product = {
        .x_MK = args->x_MK, .w = args->w_2FK, .trans_w = true, .low = args->low, .y_MN = args->gate_up_M2F};
    int64_t f = args->gate_up_M2F.dims[1] / 2;
    struct tt_swiglu_forward_args pass = {.activation = args->activation,
                                          .gate_TF = tt_tensor_cols(args->gate_up_M2F, 0, f),
                                          .up_TF = tt_tensor_cols(args->gate_up_M2F, f, f),
                                          .h_TF = args->act_MF};
    TT_TRY(lora_product(stream, &product));
    if (!tt_tensor_is_empty(args->act_rows.codes_MK)) {
        struct tt_swiglu_rows_args rows = {pass, args->act_rows.codes_MK, args->act_rows.scale_M, args->kept};
        if (args->act_MF.data == NULL) rows.pass.h_TF = (tt_tensor){0};
        return tt_dispatch_swiglu_rows(stream, &rows);
    }
    if (tt_matrix_is_multiplied_coded(&args->w_2FK)) return tt_dispatch_swiglu_forward(stream, &pass);
    return stream->device->table->ops->swiglu_forward(stream, &pass);
}

tt_status tt_compose_gemm_swiglu_backward(struct tt_stream *stream,
                                          const struct tt_gemm_swiglu_backward_args *args)
{
    struct tt_gemm_lora_args product = {
        .x_MK = args->dy_MK, .w = args->w_KF, .low = args->low, .y_MN = args->dact_MF};
    int64_t f = args->dact_MF.dims[1];
    struct tt_swiglu_backward_args pass = {.activation = args->activation, .dh_TF = args->dact_MF};
    if (args->wants_act) pass.h_TF = args->dact_MF;
    if (args->gate_up_M2F.data != NULL) {
        pass.gate_TF = pass.dgate_TF = tt_tensor_cols(args->gate_up_M2F, 0, f);
        pass.up_TF = pass.dup_TF = tt_tensor_cols(args->gate_up_M2F, f, f);
    }
    TT_TRY(lora_product(stream, &product));
    if (!tt_tensor_is_empty(args->gradient_rows.codes_MK)) {
        struct tt_swiglu_rows_backward_args rows = {pass, args->gradient_rows.codes_MK,
                                                    args->gradient_rows.scale_M, args->coded};
        if (tt_swiglu_is_coded(&args->coded)) rows.pass.gate_TF = rows.pass.up_TF = (tt_tensor){0};
        if (args->only_rows) rows.pass.dgate_TF = rows.pass.dup_TF = (tt_tensor){0};
        return tt_dispatch_swiglu_rows_backward(stream, &rows);
    }
    if (tt_matrix_is_multiplied_coded(&args->w_KF)) return tt_dispatch_swiglu_backward(stream, &pass);
    return stream->device->table->ops->swiglu_backward(stream, &pass);
}

/* x as a matrix in FP8. */
static tt_status encode(struct tt_stream *stream, tt_tensor x, const struct tt_coded *to)
{
    struct tt_quantize_rows_args rows = {x, tt_coded_codes(to), tt_coded_scales(to)};
    return stream->device->table->ops->quantize_rows(stream, &rows);
}

static tt_status decode(struct tt_stream *stream, const struct tt_coded *from, tt_tensor to)
{
    struct tt_dequantize_args args = {.layout = *from->layout, .packed = from->packed, .y_NK = to};
    return stream->device->table->ops->dequantize(stream, &args);
}

tt_status tt_compose_swiglu_rows(struct tt_stream *stream, const struct tt_swiglu_rows_args *args)
{
    const struct tt_op_table *ops = stream->device->table->ops;
    struct tt_quantize_rows_args rows = {args->pass.h_TF, args->codes_TF, args->scale_T};
    if (tt_swiglu_is_coded(&args->kept)) { /* first, because h may take the place of gate */
        TT_TRY(encode(stream, args->pass.gate_TF, &args->kept.gate_TF));
        TT_TRY(encode(stream, args->pass.up_TF, &args->kept.up_TF));
    }
    TT_TRY(ops->swiglu_forward(stream, &args->pass));
    return ops->quantize_rows(stream, &rows);
}

tt_status tt_compose_swiglu_rows_backward(struct tt_stream *stream,
                                          const struct tt_swiglu_rows_backward_args *args)
{
    const struct tt_op_table *ops = stream->device->table->ops;
    tt_tensor both = args->pass.dgate_TF;
    both.dims[1] *= 2;
    struct tt_quantize_rows_args rows = {both, args->codes_T2F, args->scale_T};
    struct tt_swiglu_backward_args pass = args->pass;
    if (tt_swiglu_is_coded(&args->coded)) {
        pass.gate_TF = pass.dgate_TF;
        pass.up_TF = pass.dup_TF;
        TT_TRY(decode(stream, &args->coded.gate_TF, pass.gate_TF));
        TT_TRY(decode(stream, &args->coded.up_TF, pass.up_TF));
    }
    TT_TRY(ops->swiglu_backward(stream, &pass));
    return ops->quantize_rows(stream, &rows);
}

tt_status tt_compose_recode_rows(struct tt_stream *stream, const struct tt_recode_rows_args *args)
{
    const struct tt_op_table *ops = stream->device->table->ops;
    struct tt_dequantize_args decode = {
        .layout = args->layout, .packed = args->packed, .y_NK = args->scratch_NK};
    struct tt_quantize_rows_args rows = {args->scratch_NK, args->codes_NK, args->scale_N};
    TT_TRY(ops->dequantize(stream, &decode));
    return ops->quantize_rows(stream, &rows);
}

static tt_status drop(struct tt_stream *stream, const struct tt_dropout_parts *parts, int i, tt_tensor x,
                      bool accumulate, tt_tensor y)
{
    struct tt_dropout_args args = {.x_TD = x,
                                   .row_keys_T = parts->row_keys_M,
                                   .rng = parts->part[i].rng,
                                   .p = parts->part[i].p,
                                   .accumulate = accumulate,
                                   .y_TD = y};
    return stream->device->table->ops->dropout(stream, &args);
}

/* Returns drop(x) in `scratch`; x itself when p is 0. */
static tt_status dropped(struct tt_stream *stream, const struct tt_dropout_parts *parts, int i, tt_tensor x,
                         tt_tensor scratch, tt_tensor *out)
{
    *out = parts->part[i].p > 0 ? scratch : x;
    return parts->part[i].p > 0 ? drop(stream, parts, i, x, false, scratch) : TT_OK;
}

tt_status tt_compose_gemm_dropout(struct tt_stream *stream, const struct tt_gemm_dropout_args *args)
{
    for (int i = 0; i < args->parts.count; i++) {
        const struct tt_dropout_part *part = &args->parts.part[i];
        struct tt_gemm_args gemm = {.b = part->a_RK,
                                    .trans_b = true,
                                    .c = tt_tensor_cols(args->h_MR, part->first_h, part->a_RK.dims[0]),
                                    .alpha = part->scaling};
        TT_TRY(dropped(stream, &args->parts, i, args->x_MK, args->scratch_MK, &gemm.a));
        TT_TRY(stream->device->table->ops->gemm(stream, &gemm));
    }
    return TT_OK;
}

tt_status tt_compose_gemm_dropout_weights(struct tt_stream *stream,
                                          const struct tt_gemm_dropout_weights_args *args)
{
    for (int i = 0; i < args->parts.count; i++) {
        const struct tt_dropout_part *part = &args->parts.part[i];
        struct tt_gemm_args gemm = {.a = tt_tensor_cols(args->dh_MR, part->first_h, part->da_RK.dims[0]),
                                    .trans_a = true,
                                    .c = part->da_RK,
                                    .alpha = 1,
                                    .beta = 1};
        TT_TRY(dropped(stream, &args->parts, i, args->x_MK, args->scratch_MK, &gemm.b));
        TT_TRY(stream->device->table->ops->gemm(stream, &gemm));
    }
    return TT_OK;
}

tt_status tt_compose_gemm_dropout_input(struct tt_stream *stream,
                                        const struct tt_gemm_dropout_input_args *args)
{
    for (int i = 0; i < args->parts.count; i++) {
        const struct tt_dropout_part *part = &args->parts.part[i];
        bool drops = part->p > 0;
        struct tt_gemm_args gemm = {.a = tt_tensor_cols(args->dh_MR, part->first_h, part->a_RK.dims[0]),
                                    .b = part->a_RK,
                                    .c = drops ? args->scratch_MK : args->dx_MK,
                                    .alpha = 1,
                                    .beta = drops ? 0 : 1};
        TT_TRY(stream->device->table->ops->gemm(stream, &gemm));
        if (drops) TT_TRY(drop(stream, &args->parts, i, args->scratch_MK, true, args->dx_MK));
    }
    return TT_OK;
}

tt_status tt_compose_lora_gradients(struct tt_stream *stream, const struct tt_lora_gradients_args *args)
{
    const struct tt_op_table *ops = stream->device->table->ops;
    for (int i = 0; i < args->count; i++) {
        const struct tt_lora_gradients_part *part = &args->part[i];
        tt_tensor dy = tt_tensor_cols(args->dy_MN, part->first_y, part->b_NR.dims[0]);
        struct tt_gemm_args hidden = {.a = dy,
                                      .b = part->b_NR,
                                      .c = tt_tensor_cols(args->dh_MR, part->first_h, part->b_NR.dims[1]),
                                      .alpha = part->scaling};
        TT_TRY(ops->gemm(stream, &hidden));
        if (tt_tensor_is_empty(part->db_NR)) continue;
        struct tt_gemm_args weights = {.a = dy,
                                       .trans_a = true,
                                       .b = tt_tensor_cols(args->h_MR, part->first_h, part->b_NR.dims[1]),
                                       .c = part->db_NR,
                                       .alpha = 1,
                                       .beta = 1};
        TT_TRY(ops->gemm(stream, &weights));
    }
    return TT_OK;
}

bool tt_lora_gradients_in_one_pass(const struct tt_lora_gradients_args *args)
{
    if (args->count == 0 || args->dy_MN.dtype != TT_BF16) return false;
    int64_t r = args->part[0].b_NR.dims[1];
    for (int i = 0; i < args->count; i++) {
        const struct tt_lora_gradients_part *part = &args->part[i];
        if (part->b_NR.dims[1] != r || part->b_NR.dims[0] == 0 || part->b_NR.dims[0] % 8 != 0) return false;
        if (part->db_NR.dtype != TT_F32) return false;
    }
    return r > 0 && r <= 32 && r % 8 == 0;
}

bool tt_dropout_is_one_pass(tt_tensor wide, const struct tt_dropout_parts *parts, bool weights)
{
    int64_t columns = wide.dims[1], r = 0;
    if (parts->count == 0 || wide.dtype != TT_BF16 || columns == 0 || columns % 32 != 0) return false;
    for (int i = 0; i < parts->count; i++) {
        int64_t rank = weights ? parts->part[i].da_RK.dims[0] : parts->part[i].a_RK.dims[0];
        if (i > 0 && rank != r) return false;
        r = rank;
    }
    return r > 0 && r <= 64 && r % 8 == 0;
}

int tt_dropout_together(int64_t r, int count)
{
    return r <= 16 ? count : 1;
}

static tt_status norm_heads(struct tt_stream *stream, const struct tt_head_norm *norm, tt_tensor x_THE)
{
    struct tt_rmsnorm_forward_args args = {
        .x_ND = x_THE, .weight_D = norm->weight_E, .offset = norm->offset, .eps = norm->eps, .y_ND = x_THE};
    return norm->is ? stream->device->table->ops->rmsnorm_forward(stream, &args) : TT_OK;
}

static tt_status rotate_heads(struct tt_stream *stream, const struct tt_ready_heads_args *args,
                              tt_tensor x_THE)
{
    if (tt_tensor_is_empty(args->cos_PE)) return TT_OK;
    x_THE.dims[2] = 2 * args->cos_PE.dims[1];
    struct tt_rope_args rope = {.x_THE = x_THE,
                                .positions_T = args->positions_T,
                                .cos_PE = args->cos_PE,
                                .sin_PE = args->sin_PE,
                                .pairs = args->pairs};
    return stream->device->table->ops->rope(stream, &rope);
}

/* The heads of a token, one beside the other, to their row. */
static tt_status store_heads(struct tt_stream *stream, tt_tensor x_TKE, tt_tensor rows_T, tt_tensor cache_RC)
{
    tt_tensor x_TC = x_TKE;
    x_TC.rank = 2;
    x_TC.dims[1] *= x_TC.dims[2];
    x_TC.strides[1] = 1;
    struct tt_scatter_rows_args args = {.x_ND = x_TC, .rows_N = rows_T, .y_TD = cache_RC, .keep = true};
    return stream->device->table->ops->scatter_rows(stream, &args);
}

tt_status tt_compose_ready_heads(struct tt_stream *stream, const struct tt_ready_heads_args *args)
{
    TT_TRY(norm_heads(stream, &args->q_norm, args->q_THE));
    TT_TRY(norm_heads(stream, &args->k_norm, args->k_TKE));
    TT_TRY(rotate_heads(stream, args, args->q_THE));
    TT_TRY(rotate_heads(stream, args, args->k_TKE));
    TT_TRY(store_heads(stream, args->k_TKE, args->rows_T, args->k_cache_RC));
    return store_heads(stream, args->v_TKE, args->rows_T, args->v_cache_RC);
}
