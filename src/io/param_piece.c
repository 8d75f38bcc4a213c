/* Elements of a piece, read from a tensor of the files and written to one. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/integer.h"
#include "io/param_source.h"

enum {
    WINDOW_BYTES = 1 << 20, /* read or written at once */
    FAR_BYTES = 32 << 10,   /* runs of so many bytes are read alone */
    SPARSE = 8              /* of so many bytes one is wanted at least, or runs are read alone */
};

int64_t tt_source_piece_place(const struct tt_source_piece *piece, int64_t element)
{
    int64_t row = element / piece->columns, column = element % piece->columns;
    return piece->offset + row / piece->group_rows * piece->group_stride +
           row % piece->group_rows * piece->row_stride + column * piece->column_stride;
}

int64_t tt_source_piece_run(const struct tt_source_piece *piece, int64_t element)
{
    int64_t all = piece->rows * piece->columns, group = piece->group_rows * piece->columns;
    if (piece->column_stride != 1) return 1;
    if (piece->row_stride != piece->columns) return piece->columns - element % piece->columns;
    return piece->group_stride == group ? all - element : group - element % group;
}

/* ---- By rows ---- */

/* The end of the runs from element `at` on that one read covers: close together, and short. */
static int64_t window_end(const struct tt_source_piece *piece, int64_t at, int64_t end, size_t width)
{
    int64_t low = tt_source_piece_place(piece, at), wanted = 0, next = at;
    while (next < end) {
        int64_t run = tt_smaller(tt_source_piece_run(piece, next), end - next);
        int64_t span = tt_source_piece_place(piece, next) + run - low;
        bool fits = span <= WINDOW_BYTES / (int64_t)width && span <= SPARSE * (wanted + run) &&
                    run < FAR_BYTES / (int64_t)width;
        if (next > at && !fits) break;
        next += run;
        wanted += run;
        if (!fits) break;
    }
    return next;
}

static tt_status read_rows(const struct tt_source_piece *piece, const struct tt_safetensors *file,
                           const struct tt_safetensors_entry *entry, int64_t first, int64_t count, char *to)
{
    size_t width = tt_dtype_bytes(entry->dtype);
    char *window = NULL;
    tt_status status = TT_OK;
    for (int64_t at = first, end = first + count; at < end && status == TT_OK;) {
        int64_t next = window_end(piece, at, end, width), low = tt_source_piece_place(piece, at);
        int64_t run = tt_smaller(tt_source_piece_run(piece, at), end - at);
        if (run == next - at) {
            status = tt_safetensors_read(file, entry, low, run, to, entry->dtype);
            to += (size_t)run * width;
            at = next;
            continue;
        }
        if (window == NULL) window = tt_alloc_aligned(WINDOW_BYTES);
        if (window == NULL) return TT_ERR_MEMORY;
        int64_t span = tt_source_piece_place(piece, next - 1) + 1 - low;
        status = tt_safetensors_read(file, entry, low, span, window, entry->dtype);
        for (; at < next && status == TT_OK; at += run, to += (size_t)run * width) {
            run = tt_smaller(tt_source_piece_run(piece, at), next - at);
            memcpy(to, window + (size_t)(tt_source_piece_place(piece, at) - low) * width,
                   (size_t)run * width);
        }
    }
    tt_free(window);
    return status;
}

static tt_status write_rows(const struct tt_source_piece *piece, const struct tt_source_output *file,
                            int64_t first, int64_t count, const char *from)
{
    for (int64_t at = first, end = first + count; at < end;) {
        int64_t run = tt_smaller(tt_source_piece_run(piece, at), end - at);
        TT_TRY(tt_file_pwrite(file->descriptor, file->path, from, (size_t)run * file->width,
                              file->offset + (uint64_t)tt_source_piece_place(piece, at) * file->width));
        from += (size_t)run * file->width;
        at += run;
    }
    return TT_OK;
}

/* ---- Transposed ---- */

/* Rows [row, row + rows) of the columns [column, column + columns) of a piece. */
struct block {
    int64_t row, rows, column, columns;
};

/* Elements [first, first + count): a part of a row, whole rows, a part of a row. */
static int cut_blocks(const struct tt_source_piece *piece, int64_t first, int64_t count,
                      struct block blocks[3])
{
    int64_t wide = piece->columns, end = first + count;
    int used = 0;
    if (first % wide != 0 && first < end) {
        int64_t columns = tt_smaller(wide - first % wide, end - first);
        blocks[used++] = (struct block){first / wide, 1, first % wide, columns};
        first += columns;
    }
    if (end - first >= wide) {
        blocks[used++] = (struct block){first / wide, (end - first) / wide, 0, wide};
        first += (end - first) / wide * wide;
    }
    if (first < end) blocks[used++] = (struct block){first / wide, 1, 0, end - first};
    return used;
}

/* The columns of a block that lie in one window of the tensor, from the place of the first on. */
struct window {
    int64_t column, columns, low, span;
};

/* `dense`: only where the columns touch. */
static struct window window_of(const struct tt_source_piece *piece, const struct block *block, int64_t column,
                               size_t width, bool dense)
{
    int64_t wide = piece->columns, top = block->row * wide + column;
    int64_t low = tt_source_piece_place(piece, top);
    int64_t high = tt_source_piece_place(piece, (block->row + block->rows - 1) * wide + column);
    int64_t span = high - low + 1, step = piece->column_stride, most = WINDOW_BYTES / (int64_t)width;
    bool close = dense ? span == step && span == block->rows : step <= SPARSE * block->rows;
    int64_t columns = close && most > span ? 1 + (most - span) / step : 1;
    columns = tt_smaller(columns, block->column + block->columns - column);
    return (struct window){column, columns, low, span + (columns - 1) * step};
}

/* Copies the elements of a window between its place in memory and theirs. */
static void move_window(const struct tt_source_piece *piece, const struct block *block,
                        const struct window *window, size_t width, char *in_window, char *elements,
                        bool reads)
{
    for (int64_t r = 0; r < block->rows; r++) {
        int64_t at = (block->row + r) * piece->columns + window->column;
        int64_t place = tt_source_piece_place(piece, at) - window->low;
        char *element = elements + (size_t)(r * block->columns + window->column - block->column) * width;
        for (int64_t c = 0; c < window->columns; c++, element += width, place += piece->column_stride) {
            char *stored = in_window + (size_t)place * width;
            memcpy(reads ? element : stored, reads ? stored : element, width);
        }
    }
}

static tt_status read_turned(const struct tt_source_piece *piece, const struct tt_safetensors *file,
                             const struct tt_safetensors_entry *entry, const struct block *block,
                             char **buffer, char *to)
{
    size_t width = tt_dtype_bytes(entry->dtype);
    for (int64_t column = block->column; column < block->column + block->columns;) {
        struct window window = window_of(piece, block, column, width, false);
        size_t bytes = (size_t)window.span * width;
        if (*buffer == NULL) *buffer = tt_alloc_aligned(bytes > WINDOW_BYTES ? bytes : WINDOW_BYTES);
        if (*buffer == NULL) return TT_ERR_MEMORY;
        TT_TRY(tt_safetensors_read(file, entry, window.low, window.span, *buffer, entry->dtype));
        move_window(piece, block, &window, width, *buffer, to, true);
        column += window.columns;
    }
    return TT_OK;
}

static tt_status write_turned(const struct tt_source_piece *piece, const struct tt_source_output *file,
                              const struct block *block, char **buffer, const char *from)
{
    size_t width = file->width;
    for (int64_t column = block->column; column < block->column + block->columns;) {
        struct window window = window_of(piece, block, column, width, true);
        size_t bytes = (size_t)window.span * width;
        uint64_t at = file->offset + (uint64_t)window.low * width;
        if (*buffer == NULL) *buffer = tt_alloc_aligned(bytes > WINDOW_BYTES ? bytes : WINDOW_BYTES);
        if (*buffer == NULL) return TT_ERR_MEMORY;
        if (window.span != block->rows * window.columns)
            TT_TRY(tt_file_pread(file->descriptor, file->path, *buffer, bytes, at));
        move_window(piece, block, &window, width, *buffer, (char *)(uintptr_t)from, false);
        TT_TRY(tt_file_pwrite(file->descriptor, file->path, *buffer, bytes, at));
        column += window.columns;
    }
    return TT_OK;
}

/* ---- Either ---- */

tt_status tt_source_piece_read(const struct tt_source_piece *piece, const struct tt_safetensors *file,
                               const struct tt_safetensors_entry *entry, int64_t first, int64_t count,
                               void *to)
{
    struct block blocks[3];
    char *at = to;
    tt_status status = TT_OK;
    if (tt_source_piece_by_rows(piece)) return read_rows(piece, file, entry, first, count, to);
    int used = cut_blocks(piece, first, count, blocks);
    for (int b = 0; b < used && status == TT_OK; b++) {
        char *buffer = NULL; /* its size is the block's */
        status = read_turned(piece, file, entry, &blocks[b], &buffer, at);
        tt_free(buffer);
        at += (size_t)(blocks[b].rows * blocks[b].columns) * tt_dtype_bytes(entry->dtype);
    }
    return status;
}

tt_status tt_source_piece_write(const struct tt_source_piece *piece, const struct tt_source_output *file,
                                int64_t first, int64_t count, const void *from)
{
    struct block blocks[3];
    const char *at = from;
    tt_status status = TT_OK;
    if (tt_source_piece_by_rows(piece)) return write_rows(piece, file, first, count, from);
    int used = cut_blocks(piece, first, count, blocks);
    for (int b = 0; b < used && status == TT_OK; b++) {
        char *buffer = NULL;
        status = write_turned(piece, file, &blocks[b], &buffer, at);
        tt_free(buffer);
        at += (size_t)(blocks[b].rows * blocks[b].columns) * file->width;
    }
    return status;
}
