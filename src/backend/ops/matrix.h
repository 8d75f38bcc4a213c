/* A weight matrix [N, K] as the operand of a product: dense, or coded in formats (tensor/quant.h), where several
 * matrices of equal K stand one below the other.
 *
 * The checked entries of operations decode a coded matrix into its scratch first, so that back ends see dense ones. On
 * a GPU decoding takes 1.5 % of a forward product of 16384 tokens (H200). FP8 is multiplied as it is
 * (ops/gemm_scaled.h) where `rows` is given: then the other operand is quantized by rows, too. */
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

/* The rows of the other operand in FP8, where a coded matrix is multiplied as it is. */
struct tt_quantized_rows {
    tt_tensor codes_MK, scale_M; /* as in tt_quantize_rows; written by the operation unless `made` */
    tt_tensor scratch;           /* of tt_gemm_scaled */
    bool made;                   /* codes and scales are there already: of exactly the other operand */
};

struct tt_matrix {
    tt_tensor dense; /* [N, K]; empty: coded */
    /* Multiplied as they are: for an operation with w^T the parts of w, else the transposed copies of these parts, each
     * coded by its own rows. */
    struct tt_coded parts[TT_MATRIX_PARTS];
    int count;         /* of parts; 0: dense */
    tt_tensor scratch; /* of one that is decoded: [N, K] in the type of the product; arbitrary afterwards */
    struct tt_quantized_rows quantized; /* empty: a coded matrix is decoded */
};

struct tt_matrix tt_matrix_of(tt_tensor dense);

static inline bool tt_matrix_is_multiplied_coded(const struct tt_matrix *matrix)
{
    return matrix->count > 0 && !tt_tensor_is_empty(matrix->quantized.codes_MK);
}
/* Type and shape of the operand: the dense matrix, or the scratch that a coded one is decoded into. */
static inline tt_tensor tt_matrix_operand(const struct tt_matrix *matrix)
{
    return matrix->count > 0 ? matrix->scratch : matrix->dense;
}

/* The shape of one that is multiplied coded, as that of a dense one with or without `trans`; without memory. */
tt_tensor tt_matrix_shape(const struct tt_matrix *matrix, bool trans, tt_dtype dtype);
/* Codes and scales of a part in FP8. */
static inline tt_tensor tt_coded_codes(const struct tt_coded *part)
{
    const struct tt_quant_layout *layout = part->layout;
    char *data = (char *)part->packed.data;
    return tt_tensor_2d(data + layout->codes.offset, TT_F8_E4M3, layout->rows, layout->cols);
}

static inline tt_tensor tt_coded_scales(const struct tt_coded *part)
{
    const struct tt_quant_layout *layout = part->layout;
    char *data = (char *)part->packed.data;
    return tt_tensor_1d(data + layout->absmax.offset, TT_F32, layout->rows);
}

/* Makes a coded matrix dense; a dense one stays as it is. TT_ERR_INTERNAL if the parts do not fill the scratch. */
TT_MUST_USE tt_status tt_matrix_decode(struct tt_stream *stream, struct tt_matrix *matrix);

#endif
