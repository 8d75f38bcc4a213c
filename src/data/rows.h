/* A data file as a list of rows with offset, length and line. JSON Lines, a JSON array, one object (of a .json file,
 * over any lines), or plain text (one row: the whole file), compressed or not, Parquet or Arrow (data/unpack.h), CSV
 * (data/csv_rows.h). This file finds the rows; data/row_reader.h parses them, in any thread. */
#ifndef TT_DATA_ROWS_H
#define TT_DATA_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "data/unpack.h"

struct tt_row_span {
    const char *data; /* in the map */
    size_t bytes;
    uint64_t line; /* from 1 */
};

/* Rows that are read on (data/row_flow.h) are in memory of a caller, and `before` counts those of the file before
 * them. */
struct tt_rows {
    const char *path; /* borrowed */
    struct tt_file_map map;
    bool plain_text, in_memory;
    size_t max_row_size;
    struct tt_row_span *spans;
    size_t count, capacity, before;
};

/* Whether a name has an ending of data files: .jsonl, .json, .ndjson, .csv, .txt, and .gz or .zst (.zstd) behind it;
 * .parquet, .arrow. */
bool tt_rows_is_name(const char *path);
/* Finds at most limits->rows rows from the start (data/unpack.h). A file without rows is TT_ERR_DATA, and so is a row
 * of more than limits->row_bytes: a line with its blanks, or an element of an array. That limit does not apply to text
 * files. The scan stops at the limit, before the end of the row. */
TT_MUST_USE tt_status tt_rows_open(const char *path, const struct tt_unpack_limits *limits,
                                   struct tt_rows *rows);
void tt_rows_close(struct tt_rows *rows); /* takes a zeroed struct */

/* Adds to the error of a row that is not JSON what is usually the matter: the encoding of the file, a row over
 * several lines, another format. */
void tt_rows_hint(const struct tt_rows *rows, size_t index);

#endif
