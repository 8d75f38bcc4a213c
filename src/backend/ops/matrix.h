/* A weight matrix [N, K] as the operand of a product: dense, or coded in formats (tensor/quant.h), where several
 * matrices of equal K stand one below the other.
 *
 * The checked entries of operations decode a coded matrix into its scratch first, so that back ends see dense ones. A
 * device that multiplies a format itself takes the parts there instead. On a GPU decoding takes 1.5 % of a forward
 * product of 16384 tokens (H200). */
#ifndef TT_BACKEND_OPS_MATRIX_H
#define TT_BACKEND_OPS_MATRIX_H

#include "backend/device.h"
#include "tensor/quant.h"
#include "tensor/tensor.h"

enum { TT_MATRIX_PARTS = 3 };

struct tt_coded {
    const struct tt_quant_layout *layout; /* lent */
    tt_tensor packed;                     /* the segment, as in tt_dequantize */
};

struct tt_matrix {
    tt_tensor dense; /* [N, K]; empty: coded */
    struct tt_coded parts[TT_MATRIX_PARTS];
    int count;         /* of parts; 0: dense */
    tt_tensor scratch; /* of a coded one: [N, K] in the type of the product; arbitrary afterwards */
};

struct tt_matrix tt_matrix_of(tt_tensor dense);

/* Type and shape of the operand: the dense matrix, or the scratch that a coded one is decoded into. */
static inline tt_tensor tt_matrix_operand(const struct tt_matrix *matrix)
{
    return matrix->count > 0 ? matrix->scratch : matrix->dense;
}

/* Makes a coded matrix dense; a dense one stays as it is. TT_ERR_INTERNAL if the parts do not fill the scratch. */
TT_MUST_USE tt_status tt_matrix_decode(struct tt_stream *stream, struct tt_matrix *matrix);

#endif
