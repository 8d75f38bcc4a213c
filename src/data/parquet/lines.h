/* Lines of JSON on their way to a file, with bounds: the target of the readers of Parquet and Arrow. */
#ifndef TT_DATA_PARQUET_LINES_H
#define TT_DATA_PARQUET_LINES_H

#include "base/str.h"
#include "data/parquet/parquet.h"

struct parquet_lines {
    const char *path;
    const struct tt_parquet_limits *limits;
    struct tt_parquet_sink sink;
    struct tt_str text; /* owned: rows that are not put yet */
    size_t row_start;   /* of the current row in it */
    uint64_t row;       /* from 1 */
    uint64_t written;
};

/* Whether as many rows are there as wanted. */
bool parquet_lines_full(const struct parquet_lines *lines);
void parquet_lines_begin(struct parquet_lines *lines);
/* TT_ERR_DATA when the current row or all rows have become too long: called within rows, once for each element. */
TT_MUST_USE tt_status parquet_lines_check(const struct parquet_lines *lines);
/* TT_ERR_DATA where a value of so many bytes makes the current row too long: called before it is written. */
TT_MUST_USE tt_status parquet_lines_fits(const struct parquet_lines *lines, size_t bytes);
/* Gives a binary value to the sink, and writes its number. */
TT_MUST_USE tt_status parquet_lines_keep(struct parquet_lines *lines, const uint8_t *data, size_t bytes);
TT_MUST_USE tt_status parquet_lines_end(struct parquet_lines *lines);
TT_MUST_USE tt_status parquet_lines_flush(struct parquet_lines *lines);

#endif
