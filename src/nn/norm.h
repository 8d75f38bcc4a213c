/* A root-mean-square norm with its weight, as the layers use it; or a layer norm without a bias. */
#ifndef TT_NN_NORM_H
#define TT_NN_NORM_H

#include "nn/linear.h"
#include "tensor/param.h"

struct tt_norm {
    tt_param *weight; /* NULL: there is none, and no norm (q/k norms of most families) unless it is bare */
    bool bare;        /* without a weight, as if that were 1 */
    double eps;
    float offset; /* added to the weight (backend/ops/rmsnorm.h); 1 of a bare one */
    bool centers; /* rows lose their mean first (backend/ops/center.h), and their result needs memory */
};

static inline bool tt_norm_exists(const struct tt_norm *norm)
{
    return norm->weight != NULL || norm->bare;
}
bool tt_norm_trains(const struct tt_norm *norm);
/* Memory for the result of a norm that a group multiplies, of the shape of x: its values in *y unless they are there, a
 * shape without memory where its rows in FP8 are enough; and these rows, as tt_linear_push_quantized_for. */
TT_MUST_USE tt_status tt_norm_push_result(const struct tt_norm *norm, const struct tt_linear_group *reader,
                                          const struct tt_pass *pass, const char *name, tt_tensor x_ND,
                                          tt_tensor *y_ND, struct tt_quantized_rows *rows);
/* y = norm(x); rstd may be empty. y may alias x. `rows`: NULL, without codes, or it receives y's rows in
 * FP8, and y may have a shape and no memory (tt_norm_push_result). */
TT_MUST_USE tt_status tt_norm_forward(const struct tt_norm *norm, const struct tt_pass *pass, tt_tensor x_ND,
                                      tt_tensor y_ND, tt_tensor rstd_N, const struct tt_quantized_rows *rows);
/* x := x + residual in place, y = norm(x) */
TT_MUST_USE tt_status tt_norm_forward_add(const struct tt_norm *norm, const struct tt_pass *pass,
                                          tt_tensor x_ND, tt_tensor residual_ND, tt_tensor y_ND,
                                          tt_tensor rstd_N, const struct tt_quantized_rows *rows);
/* dx = gradient of x (+ dres_ND unless empty), in place of dy, and in `rows` as tt_norm_forward; adds to the
 * gradient of a trainable weight. tt_norm_backward_to leaves dy alone. */
TT_MUST_USE tt_status tt_norm_backward(const struct tt_norm *norm, const struct tt_pass *pass, tt_tensor x_ND,
                                       tt_tensor rstd_N, tt_tensor dres_ND, tt_tensor dy_ND,
                                       const struct tt_quantized_rows *rows);
TT_MUST_USE tt_status tt_norm_backward_to(const struct tt_norm *norm, const struct tt_pass *pass,
                                          tt_tensor x_ND, tt_tensor rstd_N, tt_tensor dy_ND, tt_tensor dx_ND,
                                          const struct tt_quantized_rows *rows);

#endif
