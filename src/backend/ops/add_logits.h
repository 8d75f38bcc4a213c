/* Sums of single logits with numbers: logits[row, id] += value for each entry, in fp32. Penalties, biases and bans (a
 * value of -infinity) of the choice of a token are such lists. No two entries have the same row and id. */
#ifndef TT_BACKEND_OPS_ADD_LOGITS_H
#define TT_BACKEND_OPS_ADD_LOGITS_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_add_logits_args {
    tt_tensor logits_NV; /* f32, contiguous rows */
    tt_tensor rows_E;    /* i32, [0, N) */
    tt_tensor ids_E;     /* i32, [0, V) */
    tt_tensor values_E;  /* f32 */
};
TT_MUST_USE tt_status tt_add_logits(struct tt_stream *stream, const struct tt_add_logits_args *args);

#endif
