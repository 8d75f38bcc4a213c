#include "tensor/tensor.h"

#include <assert.h>
#include <stdio.h>

static tt_tensor make(void *data, tt_dtype dtype, int rank, const int64_t *dims)
{
    tt_tensor tensor = {.data = data, .dtype = dtype, .rank = rank};
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        assert(dims[i] >= 0);
        tensor.dims[i] = dims[i];
        tensor.strides[i] = stride;
        stride *= dims[i];
    }
    return tensor;
}

tt_tensor tt_tensor_1d(void *data, tt_dtype dtype, int64_t d0)
{
    return make(data, dtype, 1, (int64_t[]){d0});
}

tt_tensor tt_tensor_2d(void *data, tt_dtype dtype, int64_t d0, int64_t d1)
{
    return make(data, dtype, 2, (int64_t[]){d0, d1});
}

tt_tensor tt_tensor_3d(void *data, tt_dtype dtype, int64_t d0, int64_t d1, int64_t d2)
{
    return make(data, dtype, 3, (int64_t[]){d0, d1, d2});
}

tt_tensor tt_tensor_4d(void *data, tt_dtype dtype, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    return make(data, dtype, 4, (int64_t[]){d0, d1, d2, d3});
}

tt_tensor tt_tensor_2d_strided(void *data, tt_dtype dtype, int64_t d0, int64_t d1, int64_t row_stride)
{
    assert(row_stride >= d1 || d0 <= 1);
    tt_tensor tensor = make(data, dtype, 2, (int64_t[]){d0, d1});
    tensor.strides[0] = row_stride;
    return tensor;
}

/* Moves the start by `elements`; the data of an empty tensor may be NULL. */
static void advance(tt_tensor *tensor, int64_t elements)
{
    if (tensor->data != NULL)
        tensor->data = (char *)tensor->data + elements * (int64_t)tt_dtype_bytes(tensor->dtype);
}

tt_tensor tt_tensor_rows(tt_tensor tensor, int64_t first, int64_t count)
{
    assert(tensor.rank >= 1 && first >= 0 && count >= 0 && first <= tensor.dims[0] - count);
    advance(&tensor, first * tensor.strides[0]);
    tensor.dims[0] = count;
    return tensor;
}

tt_tensor tt_tensor_cols(tt_tensor matrix, int64_t first, int64_t count)
{
    assert(matrix.rank == 2 && first >= 0 && count >= 0 && first <= matrix.dims[1] - count);
    advance(&matrix, first * matrix.strides[1]);
    matrix.dims[1] = count;
    return matrix;
}

tt_tensor tt_tensor_heads(tt_tensor matrix, int64_t heads)
{
    assert(matrix.rank == 2 && heads > 0 && matrix.dims[1] % heads == 0 && matrix.strides[1] == 1);
    int64_t head_dim = matrix.dims[1] / heads, row_stride = matrix.strides[0];
    tt_tensor tensor = make(matrix.data, matrix.dtype, 3, (int64_t[]){matrix.dims[0], heads, head_dim});
    tensor.strides[0] = row_stride;
    return tensor;
}

int64_t tt_tensor_count(tt_tensor tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor.rank; i++) count *= tensor.dims[i];
    return tt_tensor_is_empty(tensor) ? 0 : count;
}

size_t tt_tensor_bytes(tt_tensor tensor)
{
    return (size_t)tt_tensor_count(tensor) * tt_dtype_bytes(tensor.dtype);
}

bool tt_tensor_is_contiguous(tt_tensor tensor)
{
    int64_t stride = 1;
    for (int i = tensor.rank - 1; i >= 0; i--) {
        if (tensor.dims[i] == 0) return true;
        if (tensor.dims[i] > 1 && tensor.strides[i] != stride) return false;
        stride *= tensor.dims[i];
    }
    return true;
}

bool tt_tensor_is_empty(tt_tensor tensor)
{
    return tensor.dtype == TT_DTYPE_NONE;
}

bool tt_tensor_same_shape(tt_tensor a, tt_tensor b)
{
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; i++) {
        if (a.dims[i] != b.dims[i]) return false;
    }
    return true;
}

const char *tt_tensor_format(tt_tensor tensor, char *text, size_t text_bytes)
{
    size_t used = 0;
    for (int i = -1; i <= tensor.rank; i++) {
        size_t left = used < text_bytes ? text_bytes - used : 0;
        char *at = left > 0 ? text + used : NULL;
        int written;
        if (i < 0) {
            written = snprintf(at, left, "%s[", tt_dtype_name(tensor.dtype));
        } else if (i == tensor.rank) {
            written = snprintf(at, left, "]");
        } else {
            written = snprintf(at, left, "%s%lld", i > 0 ? ", " : "", (long long)tensor.dims[i]);
        }
        if (written > 0) used += (size_t)written;
    }
    return text;
}
