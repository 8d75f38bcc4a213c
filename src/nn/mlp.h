/* The feed-forward half of a decoder layer, with its norm and residual:
 *     x_mid = x + attention;   y = x_mid + down(act(gate(n)) * up(n)),  n = norm(x_mid)
 * Some families norm the output of down before the residual.
 *
 * Kept for backward, in elements per token (c: compute type, f: fp32): x_mid D c, gate and up 2F c, rstd 1 f,
 * LoRA h of gate, up and down; with a norm after down its input and rstd, D c and 1 f. n (D c) and act(gate) * up
 * (F c), read by the gradients of LoRA and weights, are kept at TT_KEEP_ALL and recomputed otherwise.
 *
 * With `codes_gate_up` gate and up are kept in FP8 (2F bytes and 2 f), each with a scale a row; forward computes with
 * gate and up themselves, backward with the decoded codes. The activation is then recomputed at every level. */
#ifndef TT_NN_MLP_H
#define TT_NN_MLP_H

#include "nn/linear.h"
#include "nn/norm.h"

struct tt_mlp {
    struct tt_norm norm;
    struct tt_linear_group gate_up;
    struct tt_linear_group down;
    struct tt_norm post_norm; /* of down's output, before the residual; weight NULL: none */
    enum tt_activation activation;
    bool codes_gate_up;
};

struct tt_mlp_saved {
    tt_tensor x_mid_TD, gate_up_TF2, h_gate_up_TR, h_down_TR, rstd_T;
    /* with codes_gate_up: of gate, and of up; gate_up_TF2 is then scratch */
    struct tt_quant_layout coded_layout;
    tt_tensor coded_gate, coded_up; /* empty: gate_up_TF2 is kept */
    tt_tensor out_TD, rstd_out_T;   /* with a post norm: its input */
    tt_tensor n_TD, act_TF;         /* empty: recomputed */
};

/* Pushes x_mid: the attention half writes its output there, and the MLP completes it. */
TT_MUST_USE tt_status tt_mlp_push_mid(const struct tt_pass *pass, int64_t dim, struct tt_mlp_saved *saved);
/* x_mid holds the attention's output on entry. The rest of `saved` is pushed and stays with `keep`; y_TD may then be
 * empty (recomputation for backward): of down only its LoRA h is computed. */
TT_MUST_USE tt_status tt_mlp_forward(const struct tt_mlp *mlp, const struct tt_pass *pass, tt_tensor x_TD,
                                     bool keep, struct tt_mlp_saved *saved, tt_tensor y_TD);
/* dy_TD -> dmid_TD, the gradient of x_mid. The saved gate and up are overwritten by their gradients. Unless dmid_rows
 * is NULL it pushes dmid's rows in FP8 and leaves them, none where `reader`, which multiplies dmid next, takes none. */
TT_MUST_USE tt_status tt_mlp_backward(const struct tt_mlp *mlp, const struct tt_pass *pass,
                                      const struct tt_mlp_saved *saved, tt_tensor dy_TD, tt_tensor dmid_TD,
                                      const struct tt_linear_group *reader,
                                      struct tt_quantized_rows *dmid_rows);

#endif
