/* Rows of experts in FP8 (nn/experts.h), for linears that multiply codes (nn/expert_linear.h). A token's row is
 * quantized once, and its codes go to the rows of all its experts. */
#ifndef TT_NN_EXPERT_CODES_H
#define TT_NN_EXPERT_CODES_H

#include "backend/ops/swiglu.h"
#include "nn/expert_linear.h"

/* The rows of x for `reader`, pushed: their values where it takes no codes or where they are `read` all the same,
 * else a shape without memory; and into *rows, whose borders and slots are set, the codes that it takes. */
TT_MUST_USE tt_status tt_expert_codes_spread(const struct tt_expert_linear *reader, enum tt_linear_way way,
                                             const struct tt_pass *pass, const char *name, tt_tensor x_TD,
                                             bool read, struct tt_expert_rows *rows, tt_tensor *rows_MD);

/* Memory for codes [rows, columns] that `reader` takes; none, with empty codes, where it takes none. */
TT_MUST_USE tt_status tt_expert_codes_push(const struct tt_expert_linear *reader, enum tt_linear_way way,
                                           const struct tt_pass *pass, int64_t rows, int64_t columns,
                                           struct tt_quantized_rows *out);

/* The activation with its rows, which have memory. Where nobody `reads` its values and the device makes rows in one
 * pass, h has a shape and no memory. */
TT_MUST_USE tt_status tt_expert_codes_activate(const struct tt_pass *pass,
                                               const struct tt_swiglu_forward_args *args,
                                               const struct tt_quantized_rows *rows);
bool tt_expert_codes_alone(const struct tt_pass *pass, const struct tt_swiglu_forward_args *args);

/* The gradients of gate and up, and the rows of [dgate | dup]. The values are left out where nobody `reads` them and
 * the device makes rows in one pass. */
TT_MUST_USE tt_status tt_expert_codes_activate_back(const struct tt_pass *pass,
                                                    const struct tt_swiglu_backward_args *args, bool read,
                                                    const struct tt_quantized_rows *rows);

#endif
