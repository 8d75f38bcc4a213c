/* Linear layers y = x W^T (+ bias) + s * (drop(x) A^T) B^T, in groups with the same x.
 *
 * Low-rank adaptation: Hu et al., arXiv 2106.09685; s = alpha / r or alpha / sqrt(r) as PEFT defines it. W, A and B are
 * stored [out, in], [r, in], [out, r].
 *
 * A group (q, k, v; gate, up; or a single linear) writes one matrix y_TO with the outputs as successive columns.
 * Weights (or A's, or their gradients) of a group that are contiguous in memory are multiplied as one stacked matrix.
 * Their addresses are checked at every call, because the views are lent each time. Both ways need the same scratch, so
 * the memory plan does not depend on the addresses.
 *
 * Several adapters of one base (infer/adapter_set.h) lie side by side: A has the rows of the first one, then those of
 * the second, ..., B such columns, and h as well. A pass whose rows have different ones (struct tt_pass_adapters)
 * computes h of all that any row has, makes 0 what is another's, and adds h B^T: one product for all rows, with as many
 * more columns along its inner dimension. Rows without an adapter have an h of zeros. Not with DoRA.
 *
 * Dropout masks are a function of (rng, row key, column): they are recomputed in the backward pass, never kept.
 * Backward needs x and h_TR = s drop(x) A^T, [T, sum of r], which the caller keeps.
 */
#ifndef TT_NN_LINEAR_H
#define TT_NN_LINEAR_H

#include "backend/ops/gemm_fused.h"
#include "nn/block.h"

struct tt_adapter_kind; /* nn/adapter_kind.h */

/* How a product reads the weight. Forward: all but TRANSPOSED. Gradient of the input: DECODED, CODED, TRANSPOSED. */
enum tt_product_kind {
    TT_PRODUCT_DECODED, /* as it is, or decoded into scratch */
    /* the same, and x is rounded to E4M3 in groups of columns (ops/round_groups.h), with scales that are powers of two
     * or not; adapters and gradients read x itself */
    TT_PRODUCT_ROUNDED_X,
    TT_PRODUCT_ROUNDED_X_BY_POWERS,
    TT_PRODUCT_CODED, /* FP8, the codes as stored: of the weight, for gradients of `transposed` */
    TT_PRODUCT_RECODED, /* FP8 of recoded_layout, into which a weight of another format is quantized each time */
    TT_PRODUCT_TRANSPOSED, /* FP8 of transposed_layout, into which the codes are transposed each time */
};

/* Parameters are lent by the model. Without LoRA: lora_A and lora_B are NULL and r is 0. A weight that is coded in a
 * format is decoded for each product (ops/matrix.h): in a forward pass, in a recomputation, and for the gradient of
 * the input. FP8 is multiplied as it is, with x and dy quantized by rows: forward with the weight, for the gradient of
 * the input with `transposed`. Keeping the decoded weights of a recomputation for backward would save 1 % of a step and
 * take the memory of the block in bf16 (docs/qlora.md). */
struct tt_linear {
    tt_param *weight;
    tt_param *transposed; /* the weight transposed and coded by its own rows; NULL: none */
    enum tt_product_kind forward, backward;
    struct tt_quant_layout recoded_layout, transposed_layout;
    tt_param *bias; /* NULL: none */
    tt_param *lora_A, *lora_B;
    tt_param *vector;                   /* [out], of the adapter's kind; NULL: none */
    const struct tt_adapter_kind *kind; /* of the group */
    int64_t in, out, r;
    int64_t adapters; /* side by side, of r / adapters each; 0: one */
    /* 0; else this only shows a linear of experts (nn/expert_linear.h), of which a token has `slots`, to a visitor */
    int64_t experts, slots;
    float scaling;
    double dropout; /* on the input of A, in training passes */
};

/* Coded weights of a group are decoded together, for one product, up to this; a larger group comes in parts. */
#define TT_LINEAR_SCRATCH_BYTES ((size_t)256 << 20)

struct tt_linear_group {
    struct tt_linear *linears; /* [count], the same `in`; lent. At most TT_LOW_RANK_PARTS have LoRA */
    int count;
    const struct tt_adapter_kind *kind; /* NULL: LoRA, or no adapter */
};

int64_t tt_linear_group_out(const struct tt_linear_group *group); /* O: columns of y */
int64_t tt_linear_group_r(const struct tt_linear_group *group);   /* R: columns of h; 0 without LoRA */
/* Training FLOPs a row: multiply-adds are 2; a frozen matrix needs the forward product and the input's gradient, a
 * trainable matrix (with `full` every one) also its own gradient. */
double tt_linear_group_flops(const struct tt_linear_group *group, bool full);
/* Calls `visit` for each linear of the group until one fails. */
TT_MUST_USE tt_status tt_linear_group_visit(const struct tt_linear_group *group, tt_linear_visit *visit,
                                            void *context);
bool tt_linear_group_trains(const struct tt_linear_group *group);
/* True if tt_linear_backward_params reads x. */
bool tt_linear_group_needs_x(const struct tt_linear_group *group);
/* Pushes h_TR (or dh_TR) of `rows` rows in the compute type; empty when R is 0. With a kind of adapter that keeps
 * more they are columns of wider rows. */
TT_MUST_USE tt_status tt_linear_push_h(const struct tt_linear_group *group, const struct tt_pass *pass,
                                       int64_t rows, tt_tensor *h_TR);

/* Which product: y = x W^T, or dx = dy W. */
enum tt_linear_way { TT_LINEAR_FORWARD, TT_LINEAR_BACKWARD };
/* Whether all weights of the group are multiplied coded. */
bool tt_linear_takes_quantized(const struct tt_linear_group *group, enum tt_linear_way way);
/* Whether the values of x (or dy) are read where its rows are given in FP8: by adapters, by gradients of weights. */
bool tt_linear_reads_values(const struct tt_linear_group *group);
/* Memory for a matrix in FP8 with a scale a row. */
TT_MUST_USE tt_status tt_linear_push_quantized(const struct tt_pass *pass, int64_t rows, int64_t cols,
                                               struct tt_quantized_rows *out);

/* The same for a matrix that a group multiplies next; none, with empty codes, where it takes no rows. */
TT_MUST_USE tt_status tt_linear_push_quantized_for(const struct tt_linear_group *reader,
                                                   enum tt_linear_way way, const struct tt_pass *pass,
                                                   int64_t rows, int64_t cols, struct tt_quantized_rows *out);

/* Arguments of the forward and both backward functions for one use of a group in a pass. */
struct tt_linear_call {
    const struct tt_linear_group *group;
    const struct tt_pass *pass;
    tt_tensor row_keys_T; /* of the rows of x; read where dropout is active */
    tt_tensor x_TI;       /* may be empty in backward where tt_linear_group_needs_x is false */
    tt_tensor h_TR;       /* written by forward; empty when R is 0 */
    /* NULL, without codes, or where tt_linear_takes_quantized x in FP8 (backward: dy). The values are then read only
     * where tt_linear_reads_values, and need no memory otherwise. */
    const struct tt_quantized_rows *quantized;
    tt_tensor adapter_T; /* i32: the number of each row's adapter; read where those of the pass are mixed */
};
/* A call whose rows are the tokens of the batch. */
struct tt_linear_call tt_linear_call_tokens(const struct tt_linear_group *group, const struct tt_pass *pass,
                                            tt_tensor x_TI, tt_tensor h_TR);

/* y_TO is overwritten and may be of a wider type than x; when it is empty only h_TR is computed (the recomputation of a
 * block needs no more of its last linear). */
TT_MUST_USE tt_status tt_linear_forward(const struct tt_linear_call *call, tt_tensor y_TO);
/* The same as tt_linear_forward for a group of one, with `residual_TO` (y's type and shape, apart from y) added to
 * y. */
TT_MUST_USE tt_status tt_linear_forward_add(const struct tt_linear_call *call, tt_tensor residual_TO,
                                            tt_tensor y_TO);
/* The same as tt_linear_forward, with the first columns of y rotated by `rotation`. */
TT_MUST_USE tt_status tt_linear_forward_rotated(const struct tt_linear_call *call,
                                                const struct tt_rotation *rotation, tt_tensor y_TO);
/* dx = dy W + drop'(dh A), dh = s dy B; where B trains, dB += dy^T h, which reads dy with the same pass. dx_TI may be
 * empty (no trainable block below): then it is not computed. Does not read x. */
TT_MUST_USE tt_status tt_linear_backward_input(const struct tt_linear_call *call, tt_tensor dy_TO,
                                               tt_tensor dh_TR, tt_tensor dx_TI);
/* Adds to the other gradients of trainable parameters: dW += dy^T x, dbias += sum dy, dA += dh^T drop(x). Call it after
 * tt_linear_backward_input, which computes dh. */
TT_MUST_USE tt_status tt_linear_backward_params(const struct tt_linear_call *call, tt_tensor dy_TO,
                                                tt_tensor dh_TR);

/* A gated linear unit with a product: act = activation(gate) * up. */
struct tt_linear_swiglu {
    enum tt_activation activation;
    tt_tensor gate_up_TF2; /* gate | up; backward replaces them by their gradients */
    tt_tensor act_TF;
    /* Forward: keeps gate and up; otherwise gate_up_TF2 is arbitrary afterwards, and act_TF may be its first half.
     * Backward: stores act in act_TF, which is scratch otherwise. */
    bool keep;
    /* Empty, or where all these weights are multiplied coded: receives in FP8 act's rows (forward), those of the
     * gradients of gate | up (backward). */
    struct tt_quantized_rows quantized;
    /* the values are not stored (tt_swiglu_rows_in_one_pass); act_TF of forward has no memory */
    bool only_rows;
    /* None, or with rows: gate and up in FP8, which forward writes, and backward reads instead of gate_up_TF2; that is
     * then for the gradients alone, and with only_rows has no memory. */
    struct tt_swiglu_coded coded;
};
/* The same as tt_linear_forward for a group with the output gate | up, of two linears or one; also computes act. */
TT_MUST_USE tt_status tt_linear_forward_swiglu(const struct tt_linear_call *call,
                                               const struct tt_linear_swiglu *swiglu);
/* The same as tt_linear_backward_input for a group of one whose x was act. */
TT_MUST_USE tt_status tt_linear_backward_swiglu(const struct tt_linear_call *call, tt_tensor dy_TO,
                                                tt_tensor dh_TR, const struct tt_linear_swiglu *swiglu);

#endif
