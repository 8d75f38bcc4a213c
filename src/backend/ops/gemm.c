#include "backend/ops/gemm.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_gemm(struct tt_stream *stream, const struct tt_gemm_args *args)
{
    struct tt_check check = {.op = "gemm"};
    tt_check_tensor(&check, "a", args->a, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(&check, "b", args->b, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    int64_t m = args->a.dims[args->trans_a ? 1 : 0], k = args->a.dims[args->trans_a ? 0 : 1];
    int64_t n = args->b.dims[args->trans_b ? 0 : 1], b_k = args->b.dims[args->trans_b ? 1 : 0];
    char a_text[96], b_text[96];
    tt_check_that(&check, k == b_k, "the inner dimensions of a %s%s and b %s%s differ",
                  tt_tensor_format(args->a, a_text, sizeof a_text), args->trans_a ? " transposed" : "",
                  tt_tensor_format(args->b, b_text, sizeof b_text), args->trans_b ? " transposed" : "");
    tt_check_shape(&check, "c", args->c, TT_TYPES_REAL, 2, TT_DIMS(m, n));
    tt_check_apart(&check, "c", args->c, "a", args->a);
    tt_check_apart(&check, "c", args->c, "b", args->b);
    tt_check_addend(&check, args->addend, "c", args->c);
    tt_check_apart(&check, "c", args->c, "addend", args->addend); /* beta adds in place */
    if (check.status != TT_OK) return check.status;
    if (m == 0 || n == 0) return TT_OK;
    return tt_dispatch_gemm(stream, args);
}

tt_status tt_bias_forward(struct tt_stream *stream, const struct tt_bias_forward_args *args)
{
    struct tt_check check = {.op = "bias_forward"};
    tt_check_tensor(&check, "y", args->y_TN, TT_TYPES_REAL, 2, 2);
    tt_check_shape(&check, "bias", args->bias_N, TT_TYPES_REAL, 1, TT_DIMS(args->y_TN.dims[1]));
    tt_check_apart(&check, "y", args->y_TN, "bias", args->bias_N);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_bias_forward(stream, args);
}

tt_status tt_bias_backward(struct tt_stream *stream, const struct tt_bias_backward_args *args)
{
    struct tt_check check = {.op = "bias_backward"};
    tt_check_tensor(&check, "dy", args->dy_TN, TT_TYPES_REAL, 2, 2);
    tt_check_shape(&check, "dbias", args->dbias_N, TT_TYPES_F32, 1, TT_DIMS(args->dy_TN.dims[1]));
    tt_check_apart(&check, "dbias", args->dbias_N, "dy", args->dy_TN);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_bias_backward(stream, args);
}
