/* A half of a layer: it norms the residual stream, computes, and its result is added to the stream:
 *     x_next = x + scale * post_norm(body(norm(x)))
 * Either norm may be missing.
 *
 * Attention and MLP are halves, in a file each; a layer is a list of halves (nn/layer.h).
 *
 * A half may offer a side value, and read those of halves and blocks before it (nn/side.h): attention does with keys
 * and values.
 *
 * The sum of stream and result waits for the norm of the half behind, which reads both anyway; only the last half of a
 * layer adds its result itself. */
#ifndef TT_NN_HALF_H
#define TT_NN_HALF_H

#include "nn/linear.h"
#include "nn/norm.h"

enum { TT_HALF_SAVED_BYTES = 2048 };

struct tt_half {
    const struct tt_half_ops *ops;
    void *impl; /* the kind's description, in the model's arena */
    /* It reads the stream that the half before it has read: their results are added together (Cohere, GPT-NeoX). */
    bool beside;
    float scale; /* of the result before the sum, without a post norm; 0: none */
    /* with `beside`: of the sum of both results, before that is added to the stream; NULL: none */
    const struct tt_norm *joint_norm;
};

struct tt_half_input {
    tt_tensor x_TD; /* the stream, or its part before `delta_TD` */
    /* the result of the half before, which becomes the stream in place; empty: x_TD is the stream */
    tt_tensor delta_TD;
    /* what the result is added to: the stream, or with `beside` what the half before makes of it; empty: nothing, y is
     * the result alone */
    tt_tensor sum_TD;
    tt_tensor y_TD; /* to write; empty, in the last half alone: recomputation for backward */
    float scale;    /* the half's */
    bool keep;      /* a backward pass follows: `saved` is pushed and stays; otherwise everything is popped */
};

struct tt_half_gradient {
    tt_tensor x_TD;  /* the stream that the half has read */
    tt_tensor dy_TD; /* of the stream behind it */
    /* dy in FP8, pushed by the half behind for the `reader`; without codes: none */
    struct tt_quantized_rows dy_rows;
    bool carries; /* dx includes dy: the stream reaches y beside the half */
    float scale;  /* the half's */
    /* to write, in other memory than dy; empty: nothing below trains */
    tt_tensor dx_TD;
    const struct tt_linear_group *dx_reader; /* multiplies dx next; NULL: nobody reads its rows */
    struct tt_quantized_rows dx_rows;        /* to write: pushed, and left, where dx_reader takes them */
};

/* A kind of half. `saved` is its record of what forward keeps, in TT_HALF_SAVED_BYTES bytes of host memory. */
struct tt_half_ops {
    const char *kind;     /* "attention" */
    const char *residual; /* name of the stream behind it in tables of memory */
    tt_status (*forward)(const struct tt_half *half, const struct tt_pass *pass,
                         const struct tt_half_input *in, void *saved);
    /* Adds to the gradients of trainable parameters. The layer pops what it leaves on the workspace. */
    tt_status (*backward)(const struct tt_half *half, const struct tt_pass *pass, const void *saved,
                          struct tt_half_gradient *gradient);
    /* The group that multiplies dy itself; NULL behind a post norm. */
    const struct tt_linear_group *(*reader)(const struct tt_half *half);
    bool (*trains)(const struct tt_half *half);
    tt_status (*visit_linears)(const struct tt_half *half, tt_linear_visit *visit, void *context);
    double (*flops)(const struct tt_half *half, double length, bool full); /* as those of a block */
    /* NULL: false; else whether it asks other ranks for rows in every pass (TT_EXCHANGE_ACTIVATIONS). Then forward and
     * backward are called without tokens too, with empty tensors. */
    bool (*exchanges)(const struct tt_half *half);
};

extern const struct tt_half_ops tt_attention_half, tt_mlp_half, tt_plain_mlp_half, tt_layer_input_half,
    tt_recurrence_half, tt_short_conv_half, tt_experts_half;

/* ---- For the kinds ---- */

/* The stream, completed in delta_TD where there is one, and normed for the group that multiplies it: as
 * tt_norm_push_result gives memory to the result, named `name`. Without a norm (weight NULL) *n_TD is the stream. */
TT_MUST_USE tt_status tt_half_push_norm(const struct tt_norm *norm, const struct tt_linear_group *reader,
                                        const struct tt_pass *pass, const struct tt_half_input *in,
                                        const char *name, tt_tensor rstd_T, tt_tensor *n_TD,
                                        struct tt_quantized_rows *rows);
/* The same values once more in backward, unless *n_TD has them. */
TT_MUST_USE tt_status tt_half_push_norm_again(const struct tt_norm *norm, const struct tt_pass *pass,
                                              const struct tt_half_gradient *gradient, const char *name,
                                              tt_tensor *n_TD);
/* The last linear, its post norm, and the sum. out_TD and rstd_T: the norm's input and factor, which backward reads;
 * empty without a post norm (weight NULL), rstd_T also where no backward pass follows. */
TT_MUST_USE tt_status tt_half_finish(const struct tt_norm *post_norm, const struct tt_linear_call *last,
                                     const struct tt_half_input *in, tt_tensor out_TD, tt_tensor rstd_T);
/* The gradient of the last linear's output, and its rows in FP8 where that takes them: dy, or behind a post norm or a
 * scale scratch named `name`, pushed here. */
TT_MUST_USE tt_status tt_half_begin_backward(const struct tt_norm *post_norm,
                                             const struct tt_linear_group *last, const struct tt_pass *pass,
                                             const struct tt_half_gradient *gradient, const char *name,
                                             tt_tensor out_TD, tt_tensor rstd_T, tt_tensor *dout_TD,
                                             struct tt_quantized_rows *rows);
/* Backward of the last linear of a half without a post norm: dy -> the gradient of its input x, in dx_TN. */
TT_MUST_USE tt_status tt_half_last_back(const struct tt_linear_group *last, const struct tt_pass *pass,
                                        const struct tt_half_gradient *gradient, tt_tensor x_TN,
                                        tt_tensor h_TR, tt_tensor dx_TN);
/* Backward of the linears that multiply the normed input: dout -> dn; `rows`: those of dout in FP8, or NULL. Where
 * `reads_input` *n_TD becomes the normed input, made again in scratch named `name` unless it is there. */
TT_MUST_USE tt_status tt_half_first_back(const struct tt_norm *norm, const struct tt_linear_group *first,
                                         const struct tt_pass *pass, const struct tt_half_gradient *gradient,
                                         const char *name, bool reads_input, tt_tensor dout_TO,
                                         const struct tt_quantized_rows *rows, tt_tensor h_TR,
                                         tt_tensor *n_TD, tt_tensor dn_TD);
/* The same for a second group of them, whose gradient joins dn where that is wanted. */
TT_MUST_USE tt_status tt_half_second_back(const struct tt_linear_group *second, const struct tt_pass *pass,
                                          const char *name, tt_tensor dout_TO, tt_tensor h_TR, tt_tensor n_TD,
                                          tt_tensor dn_TD);
/* Memory for the gradient of the normed input: dx, or where nothing below trains scratch for the norm's own weight;
 * empty where that does not train either. */
TT_MUST_USE tt_status tt_half_push_gradient(const struct tt_norm *norm, const struct tt_pass *pass,
                                            const struct tt_half_gradient *gradient, tt_tensor *dn_TD);
/* dn_TD, the gradient of the normed input -> dx in place, with its rows; nothing where it is empty. */
TT_MUST_USE tt_status tt_half_end_backward(const struct tt_norm *norm, const struct tt_pass *pass,
                                           struct tt_half_gradient *gradient, tt_tensor rstd_T,
                                           tt_tensor dn_TD);

#endif
