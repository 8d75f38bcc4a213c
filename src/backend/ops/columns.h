/* Ops on the columns of rows, of which weights that are split into magnitude and direction (DoRA, nn/linear_dora.c)
 * consist. Sums and products are fp32, rounded once. */
#ifndef TT_BACKEND_OPS_COLUMNS_H
#define TT_BACKEND_OPS_COLUMNS_H

#include "backend/device.h"
#include "tensor/tensor.h"

/* norm[n] = sqrt(sum over k of w[n, k]^2); inverse[n] = 1 / norm[n], 0 for a row of zeros. */
struct tt_row_norms_args {
    tt_tensor w_NK;              /* f32 | bf16 */
    tt_tensor norm_N, inverse_N; /* f32; one may be empty */
};
TT_MUST_USE tt_status tt_row_norms(struct tt_stream *stream, const struct tt_row_norms_args *args);

/* y[t, n] = x[t, n] * a[n] * b[n] + addend[t, n]. y may be x or the addend. */
struct tt_scale_columns_args {
    tt_tensor x_TN;      /* f32 | bf16 */
    tt_tensor a_N, b_N;  /* f32; b may be empty: 1 */
    tt_tensor addend_TN; /* empty, or f32 | bf16 */
    tt_tensor y_TN;      /* f32 | bf16 */
};
TT_MUST_USE tt_status tt_scale_columns(struct tt_stream *stream, const struct tt_scale_columns_args *args);

/* dots[n] += b[n] * sum over t of x[t, n] g[t, n], rows in groups that depend on the shape alone */
struct tt_column_dots_args {
    tt_tensor x_TN;   /* f32 | bf16 */
    tt_tensor g_TN;   /* f32 | bf16 */
    tt_tensor b_N;    /* f32 */
    tt_tensor dots_N; /* f32 */
};
TT_MUST_USE tt_status tt_column_dots(struct tt_stream *stream, const struct tt_column_dots_args *args);

#endif
