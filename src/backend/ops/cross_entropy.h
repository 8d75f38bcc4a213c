/* Softmax cross-entropy over rows of logits, with its gradient written in place.
 *     loss[n] = logsumexp(logits[n]) - logits[n, label[n]]
 *     dlogits[n,v] = (softmax(logits[n])[v] - [v = label]) * scale        (only when `gradient`)
 * with scale = grad_scale_N[n] where that is given, else grad_scale.
 * With label_smoothing s (Szegedy et al. 2015; transformers' LabelSmoother):
 *     loss = (1 - s) * nll + s * mean_v(-log p[v]), and the gradient to match.
 * soft_cap c > 0 (Gemma 2): all of this is of the capped logits c tanh(logits[n,v] / c), and dlogits is multiplied by
 * their derivative 1 - tanh^2(logits[n,v] / c). `correct` compares the logits themselves, whose order is the same.
 * Also, for the journal, the entropy of the predicted distribution in nats, without a gradient:
 *     entropy[n] = -sum_v p[v] log p[v] = log(sum_v e[v]) - sum_v e[v] d[v] / sum_v e[v],  d = logits - max, e = exp(d)
 * Arithmetic is fp32. */
#ifndef TT_BACKEND_OPS_CROSS_ENTROPY_H
#define TT_BACKEND_OPS_CROSS_ENTROPY_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_cross_entropy_args {
    tt_tensor logits_NV; /* f32 | bf16; becomes dlogits when `gradient` */
    tt_tensor labels_N;  /* i32, each in [0, V) */
    tt_tensor loss_N;    /* f32, overwritten */
    tt_tensor correct_N; /* empty, or i32: 1 when the arg max (the lowest index on a tie) is the label */
    tt_tensor entropy_N; /* empty, or f32, overwritten */
    tt_tensor mean_N;    /* empty, or f32, overwritten: the mean of the logits */
    float grad_scale;    /* 1 / supervised tokens of the global step */
    /* Empty, or f32: one scale for each row instead of grad_scale, of either sign. */
    tt_tensor grad_scale_N;
    float label_smoothing;
    float soft_cap; /* 0: none */
    bool gradient;
};
TT_MUST_USE tt_status tt_cross_entropy(struct tt_stream *stream, const struct tt_cross_entropy_args *args);

/* sums[0] += sum of loss_N, sums[1] += sum of correct_N, sums[2] += sum of entropy_N, in fp64, in order of n in fixed
 * groups: the result depends only on the values. */
struct tt_loss_sums_args {
    tt_tensor loss_N;    /* f32 */
    tt_tensor correct_N; /* empty, or i32 */
    tt_tensor entropy_N; /* empty, or f32 */
    tt_tensor sums;      /* f64 [3] */
};
TT_MUST_USE tt_status tt_loss_sums(struct tt_stream *stream, const struct tt_loss_sums_args *args);

#endif
