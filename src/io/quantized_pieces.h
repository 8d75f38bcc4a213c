/* Pieces of quantized matrices. A matrix P.weight that the files hold in codes has its scales and tables in tensors
 * beside it (io/quantized.h): where a parameter is a part of its rows, each of these tensors has a part for it too. A
 * part of scales is rows of a view, [rows / each, columns] with the scales of `each` rows of the matrix in a row:
 *
 *     4 bits, int8   each = block / gcd(block, cols), columns = each * cols / block, for blocks of weights or of scales
 *     FP8 in blocks  each = 128, columns = ceil(cols / 128)
 *
 * so that codes and scales of the part are those of the whole, bit for bit. A table belongs to each part, as does the
 * JSON, with the shape of the part. Internal to src/io (joined.c). */
#ifndef TT_IO_QUANTIZED_PIECES_H
#define TT_IO_QUANTIZED_PIECES_H

#include "io/param_source.h"
#include "io/quantized.h"

enum { TT_QUANTIZED_BESIDE_MAX = 16 };

/* One tensor of a quantized matrix, the codes among them. */
struct tt_quantized_beside {
    const char *ending; /* after the module's name: ".weight", ".weight.absmax" */
    const struct tt_stored_tensor_place *place;
    int64_t each, columns; /* of the view; each 0: all of it belongs to every part */
    bool is_state;         /* the JSON */
};

struct tt_quantized_matrix {
    const struct tt_stored_tensor_place *codes; /* NULL: the tensor is not quantized */
    struct tt_quant_layout layout;
    tt_dtype dtype; /* of the original weights */
    float offset;
    struct tt_quantized_beside beside[TT_QUANTIZED_BESIDE_MAX]; /* the codes first */
    int count;
};

/* The tensors of the matrix whose codes are at `place`, one of the list (in order of name). TT_ERR_DATA for scales that
 * do not fit. */
TT_MUST_USE tt_status tt_quantized_matrix_find(const struct tt_stored_tensor_place *place,
                                               const struct tt_stored_tensor_place *tensors, size_t count,
                                               struct tt_quantized_matrix *out);
/* The piece of such a tensor for a piece of the matrix; rows that are not whole blocks are TT_ERR_UNSUPPORTED. */
TT_MUST_USE tt_status tt_quantized_piece(const struct tt_quantized_matrix *matrix,
                                         const struct tt_quantized_beside *beside,
                                         const struct tt_source_piece *of, struct tt_source_piece *piece);
/* The JSON for a part of so many rows. */
TT_MUST_USE tt_status tt_quantized_piece_state(const struct tt_quantized_matrix *matrix, int64_t rows,
                                               struct tt_str *text);
#endif
