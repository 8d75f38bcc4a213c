/* Parquet files as rows of JSON: one line for each row, an object with all columns, as JSON Lines of the same data
 * would have. So the rest of the program knows one kind of row.
 *
 * Read: version 1 and 2 pages; all encodings but ALP and the old bit-packed levels; no compression, Snappy, gzip,
 * Zstandard, raw LZ4; structs, lists, maps from texts; checksums. Refused: encryption, LZO, Brotli, LZ4 in frames,
 * types that have no text (json_text.h). Every count and length comes from a stranger and is checked before it is
 * used. */
#ifndef TT_DATA_PARQUET_PARQUET_H
#define TT_DATA_PARQUET_PARQUET_H

#include "base/file.h"

struct tt_parquet_limits {
    uint64_t rows;       /* read at most so many from the start; 0: all */
    uint64_t row_bytes;  /* a longer row is an error; 0: no limit */
    uint64_t free_bytes; /* the rows may have so many bytes, or `ratio` times those of the file */
    uint64_t ratio;
    uint32_t page_bytes; /* a larger page is an error; 0: no limit but the format's 2 GiB */
};

/* Whether a file is Parquet, by its first bytes. */
bool tt_parquet_is(const struct tt_file_map *file);
/* Calls `put` with bytes of whole lines, in order. TT_ERR_DATA for damage, with file, row and column;
 * TT_ERR_UNSUPPORTED for what is not read. */
TT_MUST_USE tt_status tt_parquet_read(const char *path, const struct tt_file_map *file,
                                      const struct tt_parquet_limits *limits,
                                      tt_status (*put)(void *context, const char *data, size_t bytes),
                                      void *context);

#endif
