/* A linear's weight as a matrix in the type that computes, whatever it is stored as.
 *
 * What is quantized is made into scratch of the workspace for each product and forgotten after it: in a
 * forward pass, when the block runs again, and for the gradient of its input. Keeping what a block's second
 * run made for its backward would save 1 % of a step and take as much memory as the block in bf16
 * (docs/qlora.md). A stacked group is made at once, for one product, up to TT_QUANTIZED_SCRATCH_BYTES; a
 * larger one in parts, matrix by matrix. */
#ifndef TT_NN_QUANTIZED_H
#define TT_NN_QUANTIZED_H

#include "nn/linear.h"

#define TT_QUANTIZED_SCRATCH_BYTES ((size_t)256 << 20)

bool tt_linear_group_is_quantized(const struct tt_linear_group *group); /* some weight of it */

/* Linears first .. first + count - 1 of a group with their weights as one matrix [sum of out, in]. */
struct tt_weight_part {
    int first, count;
    int64_t out; /* rows of w_OI */
    tt_tensor w_OI;
};
/* How many linears from `first` on tt_quantized_part takes together. */
int tt_quantized_part_count(const struct tt_linear_group *group, const struct tt_pass *pass, int first);
/* The part that begins with linear `first`: pushes scratch, which the caller releases after the product. A
 * weight that is not quantized is a part of its own. */
TT_MUST_USE tt_status tt_quantized_part(const struct tt_linear_group *group, const struct tt_pass *pass,
                                        int first, struct tt_weight_part *part);

#endif
