/* A tensor view: type, shape, strides and address. It owns nothing and is copied freely.
 * Dims are outermost first; strides are in elements. A tensor of 0 elements may have data == NULL. */
#ifndef TT_TENSOR_TENSOR_H
#define TT_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stdint.h>
#include "tensor/dtype.h"

enum { TT_RANK_MAX = 4 };

typedef struct tt_tensor {
    void *data;
    tt_dtype dtype;
    int rank;
    int64_t dims[TT_RANK_MAX];
    int64_t strides[TT_RANK_MAX];
} tt_tensor;

/* Contiguous (row-major) views. */
tt_tensor tt_tensor_1d(void *data, tt_dtype dtype, int64_t d0);
tt_tensor tt_tensor_2d(void *data, tt_dtype dtype, int64_t d0, int64_t d1);
tt_tensor tt_tensor_3d(void *data, tt_dtype dtype, int64_t d0, int64_t d1, int64_t d2);
tt_tensor tt_tensor_4d(void *data, tt_dtype dtype, int64_t d0, int64_t d1, int64_t d2, int64_t d3);
/* [d0, d1] with `row_stride` elements from row to row. */
tt_tensor tt_tensor_2d_strided(void *data, tt_dtype dtype, int64_t d0, int64_t d1, int64_t row_stride);

tt_tensor tt_tensor_rows(tt_tensor tensor, int64_t first, int64_t count); /* of the first dimension */
tt_tensor tt_tensor_cols(tt_tensor matrix, int64_t first, int64_t count); /* of a 2-d view */
/* [T, H*E] -> [T, H, E], keeping the row stride; heads * head_dim must equal the columns. */
tt_tensor tt_tensor_heads(tt_tensor matrix, int64_t heads);

int64_t tt_tensor_count(tt_tensor tensor); /* elements */
size_t tt_tensor_bytes(tt_tensor tensor);  /* of its elements; without the gaps of strides */
bool tt_tensor_is_contiguous(tt_tensor tensor);
bool tt_tensor_is_empty(tt_tensor tensor); /* dtype NONE: "not given" */
bool tt_tensor_same_shape(tt_tensor a, tt_tensor b);
/* "BF16[16, 4096]" into `text`; returns `text`. */
const char *tt_tensor_format(tt_tensor tensor, char *text, size_t text_bytes);

#endif
