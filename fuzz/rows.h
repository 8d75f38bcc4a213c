/* Shared by targets of readers of rows. The first byte of an input chooses limits; the rest is the file. The rows must
 * be lines of valid JSON. */
#ifndef TT_FUZZ_ROWS_H
#define TT_FUZZ_ROWS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "data/parquet/parquet.h"

static tt_status fuzz_keep_row(void *context, const char *data, size_t bytes)
{
    return tt_str_append(context, data, bytes);
}

/* Only the parser's own limits may refuse a line. */
static void fuzz_check_row(const char *line, size_t bytes)
{
    struct tt_json json = {0};
    const struct tt_json_source source = {.text = line, .bytes = bytes, .origin = "row", .nul = true};
    if (tt_json_parse_source(&source, &json) != TT_OK) {
        const char *message = tt_error_last()->message;
        /* Names and keys of maps may be there twice, and nested more deeply than JSON is read. */
        if (strstr(message, "duplicate") == NULL && strstr(message, "deep") == NULL) abort();
    }
    tt_json_deinit(&json);
}

typedef __typeof__(tt_parquet_read) fuzz_read_rows;

static int fuzz_check_rows(fuzz_read_rows *read, const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const struct tt_parquet_limits limits = {.rows = data[0] & 1 ? 3 : 0,
                                             .row_bytes = data[0] & 2 ? 1000 : 0,
                                             .total_bytes = 1 << 20,
                                             .page_bytes = 1 << 16};
    struct tt_file_map file = {data + 1, size - 1};
    struct tt_str rows = {0};
    tt_status status = read("fuzz", &file, &limits, fuzz_keep_row, &rows);
    if (status != TT_OK && status != TT_ERR_DATA && status != TT_ERR_UNSUPPORTED) abort();
    for (const char *at = tt_str_text(&rows), *end = at + rows.bytes; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL) abort();
        fuzz_check_row(at, (size_t)(newline - at));
        at = newline + 1;
    }
    tt_str_deinit(&rows);
    return 0;
}

#endif
