/* CSV files as rows of JSON: the first row names the columns, and each further one is an object whose values are texts.
 * As for Parquet and Arrow (data/unpack.h), the rows are written into a file without a name in TMPDIR. */
#ifndef TT_DATA_CSV_ROWS_H
#define TT_DATA_CSV_ROWS_H

#include "base/file.h"

struct tt_csv_rows_limits {
    uint64_t rows, row_bytes; /* 0: no limit */
};

/* Maps the rows, one a line; *lines, owned, has the line of `csv` on which each of the *count rows begins. Errors name
 * `path`. */
TT_MUST_USE tt_status tt_csv_rows_map(const char *path, const struct tt_file_map *csv,
                                      const struct tt_csv_rows_limits *limits, struct tt_file_map *out,
                                      uint64_t **lines, size_t *count);

/* Adds the hint for a file whose only name has another separator than commas in it; false: it has none. */
bool tt_csv_rows_hint(const char *name, size_t bytes);

#endif
