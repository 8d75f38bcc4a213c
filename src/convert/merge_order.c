#include "convert/merge_order.h"

#include <string.h>

void merge_order_heads(const struct tt_merge_output *output, int64_t rows, const void *from, void *to)
{
    int64_t head = output->head_rows;
    size_t row_bytes = (size_t)output->tensor->columns * tt_dtype_bytes(output->dtype);
    for (int64_t row = 0; row < rows; row++) {
        int64_t in_head = row % head, place = row - in_head + tt_interleaved_row(in_head, head, 2);
        memcpy((char *)to + (size_t)place * row_bytes, (const char *)from + (size_t)row * row_bytes,
               row_bytes);
    }
}

int64_t merge_place(const struct tt_gguf_arrangement *to, int64_t index)
{
    int64_t inside = index - to->first, block = inside / to->size;
    if (inside < 0) return index;
    return to->first + (block % to->each * to->groups + block / to->each) * to->size + inside % to->size;
}

void merge_order_columns(const struct tt_merge_output *output, int64_t rows, const void *from, void *to)
{
    int64_t columns = output->tensor->columns;
    size_t width = tt_dtype_bytes(output->dtype), row_bytes = (size_t)columns * width;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < columns; c++)
            memcpy((char *)to + (size_t)row * row_bytes +
                       (size_t)merge_place(&output->arrangement, c) * width,
                   (const char *)from + (size_t)row * row_bytes + (size_t)c * width, width);
}

void merge_transpose(const struct tt_merge_output *output, int64_t rows, const void *from, void *to)
{
    int64_t columns = output->tensor->columns;
    size_t width = tt_dtype_bytes(output->dtype);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < columns; c++)
            memcpy((char *)to + (size_t)(c * rows + row) * width,
                   (const char *)from + (size_t)(row * columns + c) * width, width);
}
