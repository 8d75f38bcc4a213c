#include "monitor/rows.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

enum { BLOCK_BYTES = 4 << 20, LINE_BYTES_MAX = 64 << 20 };

static tt_status take_line(struct tt_rows *rows, const char *path, const char *line, size_t bytes,
                           tt_rows_take *take, void *context)
{
    struct tt_json json = {0};
    tt_status status = TT_OK;
    if (bytes == 0) return TT_OK;
    if (tt_json_parse_nul(line, bytes, path, &json) == TT_OK && tt_json_is_object(json.root))
        status = take(context, json.root);
    else
        rows->broken++;
    tt_json_deinit(&json);
    return status;
}

/* Takes the whole lines of a block; *used is their length. */
static tt_status take_lines(struct tt_rows *rows, const char *path, const char *block, size_t bytes,
                            tt_rows_take *take, void *context, size_t *used)
{
    const char *at = block, *end = block + bytes, *line_end;
    while (at < end && (line_end = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        TT_TRY(take_line(rows, path, at, (size_t)(line_end - at), take, context));
        at = line_end + 1;
    }
    *used = (size_t)(at - block);
    if (*used == 0) return TT_OK;
    size_t kept = *used < TT_ROWS_MARK_BYTES ? *used : TT_ROWS_MARK_BYTES;
    memcpy(rows->mark, at - kept, kept);
    rows->mark_bytes = kept;
    rows->taken += *used;
    return TT_OK;
}

static tt_status is_anew(const struct tt_rows *rows, const char *path, int file, uint64_t bytes, bool *anew)
{
    char mark[TT_ROWS_MARK_BYTES];
    *anew = bytes < rows->taken;
    if (*anew || rows->mark_bytes == 0) return TT_OK;
    TT_TRY(tt_file_pread(file, path, mark, rows->mark_bytes, rows->taken - rows->mark_bytes));
    *anew = memcmp(mark, rows->mark, rows->mark_bytes) != 0;
    return TT_OK;
}

static tt_status read_new(struct tt_rows *rows, const char *path, int file, uint64_t bytes, bool last,
                          tt_rows_take *take, void *context)
{
    tt_status status = TT_OK;
    size_t capacity = BLOCK_BYTES;
    char *block = NULL;
    rows->torn = false;
    while (rows->taken < bytes) {
        uint64_t left = bytes - rows->taken;
        size_t count = left < capacity ? (size_t)left : capacity, used;
        char *larger = tt_realloc(block, capacity, 1);
        if (larger == NULL) TT_GO(TT_ERR_MEMORY);
        block = larger;
        TT_GO(tt_file_pread(file, path, block, count, rows->taken));
        TT_GO(take_lines(rows, path, block, count, take, context, &used));
        if (used > 0) continue;
        if (count == left && last) TT_GO(take_line(rows, path, block, count, take, context));
        rows->torn = count == left && !last;
        if (count == left) break;
        if (capacity >= LINE_BYTES_MAX)
            TT_GO(tt_fail(TT_ERR_DATA, "'%s' has a line of more than %d bytes", path, LINE_BYTES_MAX));
        capacity *= 2;
    }
out:
    tt_free(block);
    return status;
}

tt_status tt_rows_read(struct tt_rows *rows, const char *path, bool last, tt_rows_take *take, void *context,
                       bool *anew)
{
    tt_status status = TT_OK;
    int file = -1;
    uint64_t bytes;
    *anew = false;
    if (!tt_path_exists(path)) {
        *anew = rows->taken > 0;
    } else {
        TT_TRY(tt_file_open_read(path, &file, &bytes));
        TT_GO(is_anew(rows, path, file, bytes, anew));
        if (!*anew) TT_GO(read_new(rows, path, file, bytes, last, take, context));
    }
    if (*anew) *rows = (struct tt_rows){0};
out:
    tt_file_close(file);
    return status;
}
