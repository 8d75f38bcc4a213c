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
    uint64_t rows;        /* read at most so many from the start; 0: all */
    uint64_t row_bytes;   /* a longer row, or value of a row, is an error; 0: no limit */
    uint64_t total_bytes; /* more bytes of rows are an error; 0: no limit */
    const char *remedy;   /* the hint of that error */
    uint32_t page_bytes;  /* a larger page is an error; 0: no limit but the format's 2 GiB */
};

/* Where rows go. */
struct tt_parquet_sink {
    /* Called with bytes of whole lines, in order. */
    tt_status (*put)(void *context, const char *data, size_t bytes);
    /* NULL: values of binary columns are text, or an error. Else called with each of them, before the line of its row
     * is put; the row has *number in its place. Bytes within the map of the file stay valid with it, others until the
     * call returns. */
    tt_status (*keep)(void *context, const uint8_t *data, size_t bytes, uint64_t *number);
    void *context;
};

/* Whether a file is Parquet, by its first bytes. */
bool tt_parquet_is(const struct tt_file_map *file);
/* Calls `put` with bytes of whole lines, in order. TT_ERR_DATA for damage, with file, row and column;
 * TT_ERR_UNSUPPORTED for an unsupported feature. */
TT_MUST_USE tt_status tt_parquet_read(const char *path, const struct tt_file_map *file,
                                      const struct tt_parquet_limits *limits,
                                      tt_status (*put)(void *context, const char *data, size_t bytes),
                                      void *context);
/* The same into a sink. */
TT_MUST_USE tt_status tt_parquet_read_into(const char *path, const struct tt_file_map *file,
                                           const struct tt_parquet_limits *limits,
                                           const struct tt_parquet_sink *sink);
/* The value of a key in the metadata that writers add, lent by the file; no data where there is none. Hugging Face's
 * datasets stores the types of the columns under "huggingface", as JSON. */
TT_MUST_USE tt_status tt_parquet_note(const char *path, const struct tt_file_map *file, const char *key,
                                      struct tt_span *value);

#endif
