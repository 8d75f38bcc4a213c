/* The interface of a kind of adapter: how a group of linears computes with LoRA's matrices where y = W x + s B A x is
 * not all. nn/linear.c computes h = s drop(x) A^T, A's gradient, biases and rotations for every kind. */
#ifndef TT_NN_ADAPTER_KIND_H
#define TT_NN_ADAPTER_KIND_H

#include "nn/linear.h"

struct tt_adapter_kind {
    const char *vector; /* the name of its parameter [out], fp32; NULL: none */
    /* Does what tt_linear_push_h does, for a group with LoRA: h may be columns of wider rows, and memory may follow
     * them. */
    tt_status (*push)(const struct tt_linear_group *group, const struct tt_pass *pass, int64_t rows,
                      tt_tensor *h_TR);
    /* y (+ residual) without biases, where h is there already. Without y (empty): what backward reads. */
    tt_status (*forward)(const struct tt_linear_call *call, tt_tensor residual_TO, tt_tensor y_TO);
    /* Does what tt_linear_backward_input does. */
    tt_status (*backward_input)(const struct tt_linear_call *call, tt_tensor dy_TO, tt_tensor dh_TR,
                                tt_tensor dx_TI);
    /* The values with which the vector of a linear begins, to `values_N` (f32); scratch is popped. */
    tt_status (*begin)(const struct tt_linear *linear, const struct tt_pass *pass, tt_tensor values_N);
    /* Turns values of the vector into its factors (tt_param.folded), in place. */
    tt_status (*fold)(const struct tt_linear *linear, const struct tt_pass *pass, tt_tensor values_N);
};

#define KIND(name, setting) extern const struct tt_adapter_kind tt_adapter_##name;
#include "nn/adapter_kinds.def"
#undef KIND

#endif
