/* The transposed matrix: y[n,m] = x[m,n], or with `accumulate` y[n,m] += x[m,n]. */
#ifndef TT_BACKEND_OPS_TRANSPOSE_H
#define TT_BACKEND_OPS_TRANSPOSE_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_transpose_args {
    tt_tensor x_MN; /* f32 | bf16; rows may be strided */
    tt_tensor y_NM; /* x's type, apart from x */
    bool accumulate;
};
TT_MUST_USE tt_status tt_transpose(struct tt_stream *stream, const struct tt_transpose_args *args);

#endif
