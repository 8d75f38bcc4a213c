/* How nn/linear.c multiplies the weights of a group: in as few products as their memory allows. */
#ifndef TT_NN_LINEAR_PARTS_H
#define TT_NN_LINEAR_PARTS_H

#include "nn/linear.h"

enum tt_linear_role { TT_ROLE_WEIGHT, TT_ROLE_LORA_A };

/* Makes `all` the [sum of rows, in] matrix over the values (or gradients) of one role when every linear of the group
 * has it (on a GPU: those of the group that have it) and they are contiguous. Only trainable parameters have a
 * gradient. */
bool tt_linear_stack(const struct tt_linear_group *group, const struct tt_pass *pass,
                     enum tt_linear_role role, bool grad, tt_tensor *all);

/* Linears first .. first + count - 1 of a group, for one product: one matrix of weights, their columns in y and h. */
struct tt_linear_part {
    int first, count;
    struct tt_matrix w_OI;
    int64_t out, first_out, first_r; /* out: rows of w_OI */
};

/* Whether a part follows `before` (NULL: the first one). */
bool tt_linear_has_part(const struct tt_linear_group *group, const struct tt_linear_part *before);
/* The part after `before`: all weights where they are contiguous, else some of them. `rows`: of the other operand.
 * `made`: NULL, or that operand in FP8. The caller releases scratch. */
TT_MUST_USE tt_status tt_linear_next_part(const struct tt_linear_group *group, const struct tt_pass *pass,
                                          enum tt_linear_way way, int64_t rows,
                                          const struct tt_quantized_rows *made,
                                          const struct tt_linear_part *before, struct tt_linear_part *part);
bool tt_linear_is_one_part(const struct tt_linear_group *group, const struct tt_pass *pass,
                           enum tt_linear_way way);

/* y = x W^T + h B^T (+ residual), also rotated unless `rotation` is NULL: then one product computes all of y. */
TT_MUST_USE tt_status tt_linear_products(const struct tt_linear_call *call, tt_tensor residual_TO,
                                         const struct tt_rotation *rotation, tt_tensor y_TO);
/* dx = dy W, plus dh A unless dh is empty. */
TT_MUST_USE tt_status tt_linear_products_back(const struct tt_linear_call *call, tt_tensor dy_TO,
                                              tt_tensor dh_TR, tt_tensor dx_TI);
/* dh = s dy B, and dB += dy^T h where B is trained. */
TT_MUST_USE tt_status tt_linear_through_b(const struct tt_linear_call *call, tt_tensor dy_TO,
                                          tt_tensor dh_TR);
/* The dropout of the linear's adapter in this pass. */
double tt_linear_active_dropout(const struct tt_linear *linear, const struct tt_pass *pass);

/* Columns of h that the linear's adapters of this pass have, and their part of A and of B. */
int64_t tt_linear_pass_r(const struct tt_linear *linear, const struct tt_pass *pass);
tt_tensor tt_linear_pass_A(const struct tt_linear *linear, const struct tt_pass *pass);
tt_tensor tt_linear_pass_B(const struct tt_linear *linear, const struct tt_pass *pass);

/* Whether the forward product reads x rounded. */
bool tt_linear_rounds_x(const struct tt_linear *linear);
/* The x that such products read: pushed and computed where the group has one, else x itself. */
TT_MUST_USE tt_status tt_linear_round_x(const struct tt_linear_call *call, tt_tensor *rounded_TI);

/* y's columns of this part += h B^T */
struct tt_low_rank tt_linear_low_up(const struct tt_linear_call *call, const struct tt_linear_part *part);
/* dx += dh A, with contiguous A's as one matrix. */
struct tt_low_rank tt_linear_low_down(const struct tt_linear_group *group, const struct tt_linear_part *part,
                                      tt_tensor dh_TR);

#endif
