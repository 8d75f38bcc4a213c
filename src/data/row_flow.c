#include "data/row_flow.h"

#include <string.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/file.h"
#include "base/store.h"
#include "data/rows.h"

enum { PIECE_BYTES = 4 << 20, EDGE_BYTES = 64 << 10, BLOCK_BYTES = 4 << 10, BLOCKS = 64 };

struct tt_row_flow {
    const struct tt_sources *sources;
    const struct tt_data_config *config;
    int64_t max_rows;
    struct tt_flow_place place;
    bool is_open;
    /* a file of lines: descriptor, its bytes, and those of the buffer that are not used yet */
    int descriptor;
    uint64_t bytes, read;
    char *buffer;
    size_t capacity, start, end;
    struct tt_rows rows; /* another file */
};

tt_status tt_row_flow_create(const struct tt_sources *sources, const struct tt_data_config *config,
                             int64_t max_rows, struct tt_row_flow **out)
{
    struct tt_row_flow *flow = tt_calloc(1, sizeof *flow);
    if (flow == NULL) return TT_ERR_MEMORY;
    *flow = (struct tt_row_flow){
        .sources = sources, .config = config, .max_rows = max_rows, .place.line = 1, .descriptor = -1};
    *out = flow;
    return TT_OK;
}

static void close_file(struct tt_row_flow *flow)
{
    tt_file_close(flow->descriptor);
    flow->descriptor = -1;
    flow->start = flow->end = 0;
    tt_rows_close(&flow->rows);
    flow->is_open = false;
}

void tt_row_flow_destroy(struct tt_row_flow *flow)
{
    if (flow == NULL) return;
    close_file(flow);
    tt_free(flow->buffer);
    tt_free(flow);
}

tt_status tt_row_flow_seek(struct tt_row_flow *flow, const struct tt_flow_place *place)
{
    close_file(flow);
    flow->place = place != NULL ? *place : (struct tt_flow_place){.line = 1};
    if (flow->place.file >= 0 && (uint64_t)flow->place.file <= flow->sources->file_count &&
        flow->place.offset >= 0 && flow->place.row >= 0 && flow->place.line > 0)
        return TT_OK;
    return tt_fail(TT_ERR_DATA, "the data has no file %lld to go on with", (long long)flow->place.file);
}

static const char *path_of(const struct tt_row_flow *flow)
{
    return flow->sources->files[flow->place.file].path;
}

static tt_status copy_row(const char *data, size_t bytes, struct tt_flow_row *row)
{
    row->data = tt_calloc(bytes + 1, 1);
    if (row->data == NULL) return TT_ERR_MEMORY;
    memcpy(row->data, data, bytes);
    row->bytes = bytes;
    return TT_OK;
}

/* ---- Files of lines ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Reads more bytes behind those of the buffer; none at the end of the file. */
static tt_status refill(struct tt_row_flow *flow)
{
    size_t got = 0, kept = flow->end - flow->start;
    if (flow->start > 0) memmove(flow->buffer, flow->buffer + flow->start, kept);
    flow->start = 0;
    flow->end = kept;
    if (flow->capacity - kept < PIECE_BYTES) {
        size_t capacity = 2 * flow->capacity > kept + PIECE_BYTES ? 2 * flow->capacity : kept + PIECE_BYTES;
        char *grown = tt_realloc(flow->buffer, capacity, 1);
        if (grown == NULL) return TT_ERR_MEMORY;
        flow->buffer = grown;
        flow->capacity = capacity;
    }
    uint64_t left = flow->bytes - flow->read;
    size_t bytes = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
    if (bytes == 0) return TT_OK;
    TT_TRY(tt_file_read_some(flow->descriptor, path_of(flow), flow->buffer + kept, bytes, flow->read, &got));
    if (got < bytes) {
        tt_fail(TT_ERR_DATA, "'%s' became shorter while it was read: it ends after %llu of %llu bytes",
                path_of(flow), (unsigned long long)(flow->read + got), (unsigned long long)flow->bytes);
        tt_hint("data of a run must not change; a resume goes on when the file is as it was");
        return TT_ERR_DATA;
    }
    flow->end += got;
    flow->read += got;
    return TT_OK;
}

static tt_status fail_long(const struct tt_row_flow *flow)
{
    tt_fail(TT_ERR_DATA,
            "'%s', row %lld (line %lld): the line is longer than max_row_size (%zu); it begins at byte %lld",
            path_of(flow), (long long)flow->place.row + 1, (long long)flow->place.line,
            flow->config->max_row_size, (long long)flow->place.offset);
    tt_hint("raise max_row_size, or cut the row into several; a file without line ends is one row");
    return TT_ERR_DATA;
}

/* Finds the next line in the buffer: its bytes without the newline, and those with it. 0 of the latter: the file is at
 * its end. */
static tt_status find_line(struct tt_row_flow *flow, size_t *bytes, size_t *whole)
{
    size_t limit = flow->config->max_row_size > 0 ? flow->config->max_row_size : SIZE_MAX;
    for (size_t seen = 0;;) {
        const char *at = flow->buffer + flow->start;
        size_t there = flow->end - flow->start;
        const char *newline = there > seen ? memchr(at + seen, '\n', there - seen) : NULL;
        *bytes = newline != NULL ? (size_t)(newline - at) : there;
        if (*bytes > limit) return fail_long(flow);
        *whole = newline != NULL ? *bytes + 1 : there;
        if (newline != NULL || flow->read == flow->bytes) return TT_OK;
        seen = there;
        TT_TRY(refill(flow));
    }
}

/* Blank lines are no rows. */
static tt_status next_line(struct tt_row_flow *flow, struct tt_flow_row *row, bool *end)
{
    for (;;) {
        size_t bytes = 0, whole = 0, blank = 0;
        TT_TRY(find_line(flow, &bytes, &whole));
        *end = whole == 0;
        if (*end) return TT_OK;
        const char *at = flow->buffer + flow->start;
        while (blank < bytes && is_space(at[blank])) blank++;
        row->place = flow->place;
        flow->start += whole;
        flow->place.offset += (int64_t)whole;
        flow->place.line++;
        if (blank == bytes) continue;
        row->line = (uint64_t)flow->place.line - 1;
        return copy_row(at + blank, bytes - blank, row);
    }
}

/* Whether the file whose first bytes are in the buffer is one of lines; a byte order mark is skipped. */
static bool has_lines(struct tt_row_flow *flow)
{
    static const unsigned char gzip[] = {0x1f, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    const char *at = flow->buffer, *end = at + flow->end;
    if (flow->end >= 4 && (memcmp(at, gzip, 2) == 0 || memcmp(at, zstd, 4) == 0)) return false;
    if (flow->end >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0) {
        at += 3;
        flow->start = 3;
    }
    while (at < end && is_space(*at)) at++;
    return at == end || *at != '[';
}

static tt_status open_lines(struct tt_row_flow *flow, bool *lines)
{
    const char *path = path_of(flow);
    *lines = false;
    if (!tt_ends_with(path, ".jsonl") && !tt_ends_with(path, ".ndjson")) return TT_OK;
    TT_TRY(tt_file_open_read(path, &flow->descriptor, &flow->bytes));
    flow->read = 0;
    TT_TRY(refill(flow));
    *lines = has_lines(flow);
    if (!*lines || flow->place.offset == 0) {
        flow->place.offset = (int64_t)flow->start;
        return TT_OK;
    }
    if ((uint64_t)flow->place.offset > flow->bytes)
        return tt_fail(TT_ERR_DATA, "'%s' has %llu bytes, and reading goes on at byte %lld", path,
                       (unsigned long long)flow->bytes, (long long)flow->place.offset);
    flow->read = (uint64_t)flow->place.offset;
    flow->start = flow->end = 0;
    return TT_OK;
}

/* ---- Files ---- */

static tt_status open_file(struct tt_row_flow *flow)
{
    bool lines;
    TT_TRY(open_lines(flow, &lines));
    flow->is_open = true;
    if (lines) return TT_OK;
    tt_file_close(flow->descriptor);
    flow->descriptor = -1;
    const struct tt_unpack_limits limits = {0, flow->config->max_row_size, flow->config->max_unpacked_size};
    return tt_rows_open(path_of(flow), &limits, &flow->rows);
}

static tt_status next_span(struct tt_row_flow *flow, struct tt_flow_row *row, bool *end)
{
    *end = (uint64_t)flow->place.row >= flow->rows.count;
    if (*end) return TT_OK;
    const struct tt_row_span *span = &flow->rows.spans[flow->place.row];
    row->place = flow->place;
    row->line = span->line;
    TT_TRY(copy_row(span->data, span->bytes, row));
    tt_file_map_release(span->data, span->bytes);
    return TT_OK;
}

static void next_file(struct tt_row_flow *flow)
{
    const struct tt_source_file *files = flow->sources->files;
    size_t file = (size_t)flow->place.file;
    bool same = file + 1 < flow->sources->file_count && files[file + 1].source == files[file].source;
    close_file(flow);
    flow->place = (struct tt_flow_place){.file = flow->place.file + 1,
                                         .line = 1,
                                         .rows = flow->place.rows,
                                         .source_rows = same ? flow->place.source_rows : 0};
}

tt_status tt_row_flow_next(struct tt_row_flow *flow, struct tt_flow_row *row, bool *end)
{
    const int64_t most = flow->config->max_source_samples;
    *end = true;
    while ((size_t)flow->place.file < flow->sources->file_count) {
        bool at_end = most > 0 && flow->place.source_rows >= most;
        if (flow->max_rows > 0 && flow->place.rows >= flow->max_rows) return TT_OK;
        if (!at_end && !flow->is_open) TT_TRY(open_file(flow));
        if (!at_end)
            TT_TRY(flow->descriptor >= 0 ? next_line(flow, row, &at_end) : next_span(flow, row, &at_end));
        if (at_end && flow->is_open && flow->place.row == 0)
            return tt_fail(TT_ERR_DATA, "'%s' has no rows", path_of(flow));
        if (at_end) {
            next_file(flow);
            continue;
        }
        flow->place.row++;
        flow->place.rows++;
        flow->place.source_rows++;
        *end = false;
        return TT_OK;
    }
    return TT_OK;
}

/* ---- Sums ---- */

static tt_status sum_range(int descriptor, const char *path, uint64_t offset, size_t bytes, char *buffer,
                           uint64_t *sum)
{
    TT_TRY(tt_file_pread(descriptor, path, buffer, bytes, offset));
    *sum = tt_crc64(*sum, buffer, bytes);
    return TT_OK;
}

static tt_status sum_file(int descriptor, const char *path, uint64_t bytes, char *buffer, uint64_t *sum)
{
    size_t edge = bytes < EDGE_BYTES ? (size_t)bytes : EDGE_BYTES;
    uint64_t stretch = bytes / BLOCKS;
    *sum = tt_crc64(*sum, &bytes, sizeof bytes);
    if (edge == 0) return TT_OK;
    TT_TRY(sum_range(descriptor, path, 0, edge, buffer, sum));
    TT_TRY(sum_range(descriptor, path, bytes - edge, edge, buffer, sum));
    for (uint64_t i = 0; i < BLOCKS && !tt_store_owns(descriptor) && stretch >= BLOCK_BYTES; i++)
        TT_TRY(sum_range(descriptor, path, i * stretch, BLOCK_BYTES, buffer, sum));
    return TT_OK;
}

tt_status tt_sources_sum(const struct tt_sources *sources, uint64_t *sum, uint64_t *bytes)
{
    char *buffer = tt_alloc_aligned(EDGE_BYTES);
    tt_status status = buffer != NULL ? TT_OK : TT_ERR_MEMORY;
    *sum = *bytes = 0;
    for (size_t i = 0; status == TT_OK && i < sources->file_count; i++) {
        const char *path = sources->files[i].path;
        int descriptor = -1;
        uint64_t size = 0;
        status = tt_file_open_read(path, &descriptor, &size);
        if (status == TT_OK) status = sum_file(descriptor, path, size, buffer, sum);
        tt_file_close(descriptor);
        *bytes += size;
    }
    tt_free(buffer);
    return status;
}
