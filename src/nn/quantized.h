/* A linear's weight as a matrix in the compute type, for any stored type.
 *
 * A quantized weight is decoded into scratch of the workspace for each product: in a forward pass, in a recomputation,
 * and for the gradient of the input. Keeping the decoded weights of a recomputation for backward would save 1 % of a
 * step and take the memory of the block in bf16 (docs/qlora.md). A stacked group is decoded at once, for one product,
 * up to TT_QUANTIZED_SCRATCH_BYTES; a larger group matrix by matrix. */
#ifndef TT_NN_QUANTIZED_H
#define TT_NN_QUANTIZED_H

#include "nn/linear.h"

#define TT_QUANTIZED_SCRATCH_BYTES ((size_t)256 << 20)

bool tt_linear_group_is_quantized(const struct tt_linear_group *group); /* at least one weight is */

/* Linears first .. first + count - 1 of a group with their weights as one matrix [sum of out, in]. */
struct tt_weight_part {
    int first, count;
    int64_t out; /* rows of w_OI */
    tt_tensor w_OI;
};
/* Number of linears from `first` on in one tt_quantized_part. */
int tt_quantized_part_count(const struct tt_linear_group *group, const struct tt_pass *pass, int first);
/* The part that begins with linear `first`: pushes scratch, which the caller releases after the product. A
 * weight that is not quantized is a part of its own. */
TT_MUST_USE tt_status tt_quantized_part(const struct tt_linear_group *group, const struct tt_pass *pass,
                                        int first, struct tt_weight_part *part);

#endif
