#include "backend/ops/gemm_fused.h"

#include "backend/compose.h"
#include "backend/ops/check.h"

static void check_low_rank(struct tt_check *check, const struct tt_low_rank *low, tt_tensor x, bool trans,
                           tt_tensor y)
{
    tt_check_that(check, low->count >= 0 && low->count <= TT_LOW_RANK_PARTS, "%d parts of low rank",
                  low->count);
    if (check->status != TT_OK || low->count == 0) return;
    tt_check_tensor(check, "h", low->h_MR, TT_TYPES_REAL, 2, 2);
    tt_check_type(check, "h", low->h_MR, x.dtype);
    if (check->status != TT_OK) return;
    int64_t n = y.dims[1], before = 0, end = 0; /* columns of the part before */
    tt_check_apart(check, "y", y, "h", low->h_MR);
    tt_check_that(check, low->h_MR.dims[0] == x.dims[0], "h has %lld rows, x %lld",
                  (long long)low->h_MR.dims[0], (long long)x.dims[0]);
    for (int i = 0; i < low->count; i++) {
        tt_tensor b = low->parts[i].b;
        int64_t h = low->parts[i].first_h, first = low->parts[i].first_y;
        tt_check_tensor(check, "b", b, TT_TYPES_REAL, 2, 2);
        tt_check_apart(check, "y", y, "b", b);
        if (check->status != TT_OK) return;
        int64_t r = b.dims[trans ? 1 : 0], columns = b.dims[trans ? 0 : 1];
        tt_check_that(check, h >= 0 && h + r <= low->h_MR.dims[1],
                      "b of part %d is for columns %lld to %lld of h, which has %lld", i, (long long)h,
                      (long long)(h + r), (long long)low->h_MR.dims[1]);
        tt_check_that(check, first >= 0 && first + columns <= n,
                      "b of part %d is for columns %lld to %lld of %lld", i, (long long)first,
                      (long long)(first + columns), (long long)n);
        tt_check_that(check, first >= end || (first == before && first + columns == end),
                      "part %d covers some columns of the one before it", i);
        before = first;
        end = first + columns;
    }
}

static void check_coded(struct tt_check *check, const struct tt_matrix *w, bool trans)
{
    tt_check_that(check, w->count <= TT_MATRIX_PARTS, "%d parts", w->count);
    for (int i = 0; i < w->count && check->status == TT_OK; i++) {
        const struct tt_quant_layout *layout = w->parts[i].layout, *first = w->parts[0].layout;
        bool squares = layout->row_squares > 0;
        tt_check_that(check, tt_quant_multiplies(layout->format.type) && !squares,
                      "w is %s%s, only fp8 by rows is multiplied coded",
                      tt_quant_type_name(layout->format.type), squares ? " in squares" : "");
        tt_check_shape(check, "a part of w", w->parts[i].packed, 1u << TT_U8, 1,
                       TT_DIMS((int64_t)layout->bytes));
        tt_check_that(check, trans ? layout->cols == first->cols : layout->rows == first->rows,
                      "part %d of w is [%lld, %lld], the first [%lld, %lld]", i, (long long)layout->rows,
                      (long long)layout->cols, (long long)first->rows, (long long)first->cols);
    }
}

/* The weight, or its shape and x's type where it is multiplied coded; its memory is then checked by tt_gemm_scaled's
 * rules. */
static tt_tensor check_weight(struct tt_check *check, const struct tt_matrix *matrix, bool trans, tt_tensor x)
{
    tt_tensor w = tt_matrix_operand(matrix);
    if (check->status != TT_OK) return w;
    if (!tt_matrix_is_multiplied_coded(matrix)) {
        tt_check_tensor(check, "w", w, TT_TYPES_REAL, 2, 2);
        return w;
    }
    check_coded(check, matrix, trans);
    return tt_matrix_shape(matrix, trans, x.dtype);
}

static void check_rotation(struct tt_check *check, const struct tt_rotation *rotation, int64_t m, int64_t n)
{
    int64_t columns = rotation->columns, head_dim = rotation->head_dim;
    if (columns == 0) return;
    tt_check_that(
        check, columns > 0 && columns <= n && head_dim > 0 && head_dim % 2 == 0 && columns % head_dim == 0,
        "%lld of %lld columns are heads of %lld", (long long)columns, (long long)n, (long long)head_dim);
    tt_check_shape(check, "positions", rotation->positions_T, TT_TYPES_I32, 1, TT_DIMS(m));
    tt_check_tensor(check, "cos", rotation->cos_PE, TT_TYPES_F32, 2, 2);
    if (check->status != TT_OK) return;
    tt_check_shape(check, "cos", rotation->cos_PE, TT_TYPES_F32, 2,
                   TT_DIMS(rotation->cos_PE.dims[0], head_dim / 2));
    tt_check_like(check, "sin", rotation->sin_PE, TT_TYPES_F32, "cos", rotation->cos_PE);
}

tt_status tt_gemm_lora(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    struct tt_check check = {.op = "gemm_lora"};
    tt_tensor x = args->x_MK, y = args->y_MN;
    bool made = tt_matrix_is_multiplied_coded(&args->w) && args->w.quantized.made; /* x itself is not read */
    if (!made) tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    tt_tensor w = check_weight(&check, &args->w, args->trans_w, x);
    if (check.status != TT_OK) return check.status;
    int64_t m = x.dims[0], n = w.dims[args->trans_w ? 0 : 1], k = w.dims[args->trans_w ? 1 : 0];
    tt_check_that(&check, x.dims[1] == k, "x has %lld columns, w is for %lld", (long long)x.dims[1],
                  (long long)k);
    tt_check_shape(&check, "y", y, TT_TYPES_REAL, 2, TT_DIMS(m, n));
    if (!made) tt_check_apart(&check, "y", y, "x", x);
    if (w.data != NULL) tt_check_apart(&check, "y", y, "w", w);
    check_low_rank(&check, &args->low, x, args->trans_w, y);
    check_rotation(&check, &args->rotation, m, n);
    tt_check_addend(&check, args->addend_MN, "y", y);
    if (check.status != TT_OK) return check.status;
    if (m == 0 || n == 0) return TT_OK;
    if (tt_matrix_is_multiplied_coded(&args->w)) return tt_compose_gemm_lora(stream, args);
    struct tt_gemm_lora_args decoded = *args;
    TT_TRY(tt_matrix_decode(stream, &decoded.w));
    return tt_dispatch_gemm_lora(stream, &decoded);
}

static void check_act(struct tt_check *check, const struct tt_gemm_swiglu_args *args, int64_t m, int64_t f)
{
    tt_tensor x = args->x_MK, both = args->gate_up_M2F, act = args->act_MF;
    tt_check_shape(check, "act", act, TT_TYPES_REAL, 2, TT_DIMS(m, f));
    tt_check_type(check, "act", act, x.dtype);
    if (x.data != NULL) tt_check_apart(check, "act", act, "x", x);
    if (check->status != TT_OK) return;
    if (args->keep)
        tt_check_apart(check, "act", act, "gate and up", both);
    else
        tt_check_same_or_apart(check, "act", act, "gate", tt_tensor_cols(both, 0, f));
    tt_check_apart(check, "act", act, "up", tt_tensor_cols(both, f, f));
}

tt_status tt_gemm_swiglu(struct tt_stream *stream, const struct tt_gemm_swiglu_args *args)
{
    struct tt_check check = {.op = "gemm_swiglu"};
    tt_tensor x = args->x_MK, both = args->gate_up_M2F;
    bool coded = tt_matrix_is_multiplied_coded(&args->w_2FK),
         made = coded && args->w_2FK.quantized.made, /* x itself is not read */
        makes_rows = !tt_tensor_is_empty(args->act_rows.codes_MK);
    if (!made) tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    tt_tensor w = check_weight(&check, &args->w_2FK, true, x);
    if (check.status != TT_OK) return check.status;
    int64_t m = x.dims[0], f = w.dims[0] / 2;
    tt_check_that(&check, w.dims[0] % 2 == 0 && w.dims[1] == x.dims[1],
                  "w is [%lld, %lld], x has %lld columns", (long long)w.dims[0], (long long)w.dims[1],
                  (long long)x.dims[1]);
    tt_check_that(&check, coded || !makes_rows, "rows of act in FP8 for a dense w");
    tt_check_that(&check, makes_rows || !tt_swiglu_is_coded(&args->kept), "gate and up in FP8, and not act");
    tt_check_shape(&check, "gate and up", both, TT_TYPES_REAL, 2, TT_DIMS(m, 2 * f));
    tt_check_type(&check, "gate and up", both, x.dtype);
    if (!made) tt_check_apart(&check, "gate and up", both, "x", x);
    check_low_rank(&check, &args->low, x, true, both);
    if (check.status == TT_OK && (!makes_rows || args->act_MF.data != NULL)) check_act(&check, args, m, f);
    if (check.status != TT_OK) return check.status;
    if (m == 0 || f == 0) return TT_OK;
    if (coded) return tt_compose_gemm_swiglu(stream, args);
    struct tt_gemm_swiglu_args decoded = *args;
    TT_TRY(tt_matrix_decode(stream, &decoded.w_2FK));
    return tt_dispatch_gemm_swiglu(stream, &decoded);
}

tt_status tt_gemm_swiglu_backward(struct tt_stream *stream, const struct tt_gemm_swiglu_backward_args *args)
{
    struct tt_check check = {.op = "gemm_swiglu_backward"};
    tt_tensor dy = args->dy_MK, both = args->gate_up_M2F, dact = args->dact_MF;
    tt_check_tensor(&check, "dy", dy, TT_TYPES_REAL, 2, 2);
    tt_tensor w = check_weight(&check, &args->w_KF, false, dy);
    if (check.status != TT_OK) return check.status;
    int64_t m = dy.dims[0], f = w.dims[1];
    bool makes_rows = !tt_tensor_is_empty(args->gradient_rows.codes_MK),
         is_coded = tt_swiglu_is_coded(&args->coded), stores = !(is_coded && args->only_rows);
    tt_check_that(&check, makes_rows || !is_coded, "gate and up in FP8, and not their gradients");
    tt_check_that(&check, w.dims[0] == dy.dims[1], "dy has %lld columns, w is for %lld",
                  (long long)dy.dims[1], (long long)w.dims[0]);
    tt_check_shape(&check, "dact", dact, TT_TYPES_REAL, 2, TT_DIMS(m, f));
    tt_check_type(&check, "dact", dact, dy.dtype);
    tt_check_apart(&check, "dact", dact, "dy", dy);
    if (stores) {
        tt_check_shape(&check, "gate and up", both, TT_TYPES_REAL, 2, TT_DIMS(m, 2 * f));
        tt_check_type(&check, "gate and up", both, dy.dtype);
        tt_check_apart(&check, "gate and up", both, "dy", dy);
        tt_check_apart(&check, "dact", dact, "gate and up", both);
    }
    check_low_rank(&check, &args->low, dy, false, dact);
    if (check.status != TT_OK) return check.status;
    if (m == 0 || f == 0) return TT_OK;
    if (tt_matrix_is_multiplied_coded(&args->w_KF)) return tt_compose_gemm_swiglu_backward(stream, args);
    struct tt_gemm_swiglu_backward_args decoded = *args;
    TT_TRY(tt_matrix_decode(stream, &decoded.w_KF));
    return tt_dispatch_gemm_swiglu_backward(stream, &decoded);
}
