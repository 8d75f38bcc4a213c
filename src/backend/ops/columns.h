/* Ops on the columns of rows, of which weights that are split into magnitude and direction (DoRA, nn/linear_dora.c)
 * and adapters side by side consist. Sums and products are fp32, rounded once. */
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

/* The columns of groups that lie side by side: column c is of group first + c / each % count. Row t keeps those of
 * its own group, group[row[t] / share], and all others become 0 whatever they hold; a group that no column has, as -1,
 * keeps none. So one product computes the narrow products of several adapters (nn/linear.h). */
struct tt_keep_columns_args {
    tt_tensor x_TN;    /* f32 | bf16, in place; N a multiple of count * each */
    tt_tensor group_R; /* i32 */
    tt_tensor row_T;   /* i32, each in 0 .. R share - 1; empty: row t itself, and share is 1 */
    int64_t share;
    int64_t first, count, each;
};
TT_MUST_USE tt_status tt_keep_columns(struct tt_stream *stream, const struct tt_keep_columns_args *args);

#endif
