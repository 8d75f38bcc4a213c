/* The logarithm of the sum of squares of the predicted probabilities of rows of logits, for losses that weigh answers
 * by how likely they are among others (WPO, arXiv 2406.11827, section 3.2):
 *     y[n] = log sum_v p[n,v]^2 = log sum_v exp(2 d[v]) - 2 log sum_v exp(d[v]),  d = logits - max
 * soft_cap as in cross_entropy.h. Exponentials are fp32, and so are their sums over parts of a row. */
#ifndef TT_BACKEND_OPS_LOG_SQUARES_H
#define TT_BACKEND_OPS_LOG_SQUARES_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_log_squares_args {
    tt_tensor logits_NV; /* f32 | bf16, rank 2 with contiguous last dimension */
    tt_tensor y_N;       /* f32, overwritten */
    float soft_cap;      /* 0: none */
};
TT_MUST_USE tt_status tt_log_squares(struct tt_stream *stream, const struct tt_log_squares_args *args);

#endif
