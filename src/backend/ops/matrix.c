#include "backend/ops/matrix.h"

#include "backend/ops/check.h"
#include "backend/ops/quant.h"

struct tt_matrix tt_matrix_of(tt_tensor dense)
{
    return (struct tt_matrix){.dense = dense};
}

tt_tensor tt_matrix_shape(const struct tt_matrix *matrix, bool trans, tt_dtype dtype)
{
    int64_t sum = 0, other = matrix->parts[0].layout->rows;
    for (int i = 0; i < matrix->count; i++)
        sum += trans ? matrix->parts[i].layout->rows : matrix->parts[i].layout->cols;
    return tt_tensor_2d(NULL, dtype, sum, trans ? matrix->parts[0].layout->cols : other);
}

tt_status tt_matrix_decode(struct tt_stream *stream, struct tt_matrix *matrix)
{
    struct tt_check check = {.op = "matrix"};
    tt_tensor scratch = matrix->scratch;
    int64_t row = 0;
    if (matrix->count == 0) return TT_OK;
    tt_check_that(&check, matrix->count <= TT_MATRIX_PARTS, "%d parts", matrix->count);
    tt_check_tensor(&check, "scratch", scratch, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    for (int i = 0; i < matrix->count; i++) row += matrix->parts[i].layout->rows;
    tt_check_that(&check, row == scratch.dims[0], "%lld rows of parts, %lld of scratch", (long long)row,
                  (long long)scratch.dims[0]);
    if (check.status != TT_OK) return check.status;
    row = 0;
    for (int i = 0; i < matrix->count; i++) {
        const struct tt_coded *part = &matrix->parts[i];
        struct tt_dequantize_args args = {.layout = *part->layout,
                                          .packed = part->packed,
                                          .y_NK = tt_tensor_rows(scratch, row, part->layout->rows)};
        TT_TRY(tt_dequantize(stream, &args));
        row += part->layout->rows;
    }
    *matrix = tt_matrix_of(scratch);
    return TT_OK;
}
