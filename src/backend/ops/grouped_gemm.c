#include "backend/ops/grouped_gemm.h"

#include "backend/device_impl.h"
#include "backend/ops/gemm_scaled.h"

/* Experts by `border`; 0 after a failure. */
static int64_t check_border(struct tt_check *check, tt_tensor border)
{
    tt_check_tensor(check, "border", border, TT_TYPES_I32, 1, 1);
    tt_check_that(check, border.dims[0] >= 2, "border is of no expert");
    return check->status == TT_OK ? border.dims[0] - 1 : 0;
}

static void check_matrices(struct tt_check *check, const char *name, tt_tensor x, unsigned types,
                           int64_t experts, int64_t rows, int64_t columns)
{
    tt_check_shape(check, name, x, types, 3, TT_DIMS(experts, rows, columns));
    tt_check_contiguous(check, name, x);
}

/* x and w in FP8. */
static void check_codes(struct tt_check *check, const struct tt_stream *stream,
                        const struct tt_grouped_gemm_args *args, int64_t experts)
{
    const struct tt_grouped_codes *codes = &args->codes;
    int64_t m = args->x_MK.dims[0], k = args->x_MK.dims[1], n = args->y_MN.dims[1];
    tt_check_that(check, tt_tensor_is_empty(args->w_XNK) && args->coded.layout == NULL,
                  "codes of x beside another w");
    tt_check_that(check, args->alpha == 0 || args->alpha == 1, "alpha beside scales");
    tt_check_that(check, tt_gemm_scaled_takes(n, k), "%lld x %lld: not multiples of 16", (long long)n,
                  (long long)k);
    tt_check_quantized_rows(check, m, k, codes->x_MK, codes->x_scale_M);
    check_matrices(check, "codes of w", codes->w_XNK, 1u << TT_F8_E4M3, experts, n, k);
    tt_check_shape(check, "scales of w", codes->w_scale_XN, TT_TYPES_F32, 2, TT_DIMS(experts, n));
    tt_check_contiguous(check, "scales of w", codes->w_scale_XN);
    tt_check_scratch(check, args->scratch, tt_gemm_scaled_scratch(tt_stream_device(stream), m, n, k), 64);
    tt_check_apart(check, "y", args->y_MN, "codes of x", codes->x_MK);
}

/* w, or the segment of its codes and the scratch of its numbers. */
static void check_weight(struct tt_check *check, const struct tt_grouped_gemm_args *args, int64_t experts)
{
    int64_t in = args->x_MK.dims[1], out = args->y_MN.dims[1];
    int64_t rows = args->transposed ? in : out, columns = args->transposed ? out : in;
    const struct tt_quant_layout *layout = args->coded.layout;
    tt_tensor scratch = args->scratch;
    if (layout == NULL) {
        check_matrices(check, "w", args->w_XNK, TT_TYPES_REAL, experts, rows, columns);
        return;
    }
    tt_check_that(check, tt_tensor_is_empty(args->w_XNK), "w beside its codes");
    tt_check_that(check, layout->rows == experts * rows && layout->cols == columns,
                  "codes of [%lld, %lld] for %lld matrices of [%lld, %lld]", (long long)layout->rows,
                  (long long)layout->cols, (long long)experts, (long long)rows, (long long)columns);
    tt_check_shape(check, "codes", args->coded.packed, 1u << TT_U8, 1, TT_DIMS((int64_t)layout->bytes));
    tt_check_that(check, (uintptr_t)args->coded.packed.data % 16 == 0,
                  "codes do not lie at a multiple of 16 bytes");
    tt_check_tensor(check, "scratch", scratch, TT_TYPES_REAL, 3, 3);
    if (check->status != TT_OK) return;
    tt_check_that(check, scratch.dims[0] >= 1, "scratch of no matrix");
    check_matrices(check, "scratch", scratch, TT_TYPES_REAL, scratch.dims[0], rows, columns);
    tt_check_type(check, "scratch", scratch, args->x_MK.dtype);
    tt_check_apart(check, "scratch", scratch, "codes", args->coded.packed);
    tt_check_apart(check, "scratch", scratch, "x", args->x_MK);
    tt_check_apart(check, "scratch", scratch, "y", args->y_MN);
}

static void check_adapter(struct tt_check *check, const struct tt_grouped_gemm_args *args, int64_t experts)
{
    tt_tensor h = args->h_MR, b = args->b_XNR;
    int64_t out = args->y_MN.dims[1];
    tt_check_that(check, tt_tensor_is_empty(h) == tt_tensor_is_empty(b),
                  "h is given without b, or b without h");
    if (check->status != TT_OK || tt_tensor_is_empty(h)) return;
    tt_check_that(check, args->alpha == 0 || args->alpha == 1, "alpha beside an adapter");
    tt_check_tensor(check, "h", h, TT_TYPES_REAL, 2, 2);
    if (check->status != TT_OK) return;
    tt_check_shape(check, "h", h, TT_TYPES_REAL, 2, TT_DIMS(args->x_MK.dims[0], h.dims[1]));
    tt_check_type(check, "h", h, args->x_MK.dtype);
    check_matrices(check, "b", b, TT_TYPES_REAL, experts, args->transposed ? h.dims[1] : out,
                   args->transposed ? out : h.dims[1]);
    tt_check_apart(check, "y", args->y_MN, "h", h);
}

tt_status tt_grouped_gemm(struct tt_stream *stream, const struct tt_grouped_gemm_args *args)
{
    struct tt_check check = {.op = "grouped_gemm"};
    tt_tensor x = args->x_MK, y = args->y_MN;
    int64_t experts = check_border(&check, args->border_X1);
    bool scaled = tt_grouped_is_scaled(args);
    if (!scaled) tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(&check, "y", y, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "y", y, TT_TYPES_REAL, 2, TT_DIMS(x.dims[0], y.dims[1]));
    tt_check_type(&check, "y", y, x.dtype);
    if (scaled)
        check_codes(&check, stream, args, experts);
    else
        check_weight(&check, args, experts);
    check_adapter(&check, args, experts);
    if (!tt_tensor_is_empty(args->bias_XN)) {
        tt_check_shape(&check, "bias", args->bias_XN, TT_TYPES_REAL, 2, TT_DIMS(experts, y.dims[1]));
        tt_check_contiguous(&check, "bias", args->bias_XN);
    }
    if (!scaled) tt_check_apart(&check, "y", y, "x", x);
    tt_check_apart(&check, "y", y, "w", args->w_XNK);
    if (check.status != TT_OK || x.dims[0] == 0) return check.status;
    return tt_dispatch_grouped_gemm(stream, args);
}

tt_status tt_grouped_gradients(struct tt_stream *stream, const struct tt_grouped_gradients_args *args)
{
    struct tt_check check = {.op = "grouped_gradients"};
    tt_tensor dy = args->dy_MN, x = args->x_MK;
    int64_t experts = check_border(&check, args->border_X1);
    tt_check_tensor(&check, "dy", dy, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "x", x, TT_TYPES_REAL, 2, TT_DIMS(dy.dims[0], x.dims[1]));
    tt_check_type(&check, "x", x, dy.dtype);
    check_matrices(&check, "dw", args->dw_XNK, TT_TYPES_F32, experts, dy.dims[1], x.dims[1]);
    tt_check_apart(&check, "dw", args->dw_XNK, "dy", dy);
    tt_check_apart(&check, "dw", args->dw_XNK, "x", x);
    if (check.status != TT_OK || dy.dims[0] == 0) return check.status;
    return tt_dispatch_grouped_gradients(stream, args);
}
