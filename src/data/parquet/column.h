/* One column of one row group: its entries in order, page by page, each with its levels and, where it is defined, a
 * value. Memory: a page and a dictionary. */
#ifndef TT_DATA_PARQUET_COLUMN_H
#define TT_DATA_PARQUET_COLUMN_H

#include "data/parquet/codec.h"
#include "data/parquet/schema.h"
#include "data/parquet/values.h"

struct parquet_column {
    const struct parquet_node *node;
    const struct parquet_chunk *chunk;
    const uint8_t *start, *at, *end; /* start: of the file; at: the next page */
    uint32_t page_bytes_max;
    int64_t left;      /* entries in pages that are not read yet */
    int32_t page_left; /* entries of this page behind the current one */
    bool has_entry;    /* there is a current entry, with these levels: */
    int def, rep;
    struct parquet_runs defs, reps;
    struct parquet_values values;
    struct parquet_dictionary dictionary;
    uint8_t *page; /* owned; unpacked */
    size_t page_capacity;
    struct parquet_codec codec;
    const char *why;  /* of TT_ERR_DATA and TT_ERR_UNSUPPORTED, which leave no error record */
    uint64_t page_at; /* of the page that is read: its place in the file */
};

/* Begins a row group; keeps the memory of the one before. Reads the first entry. */
TT_MUST_USE tt_status parquet_column_open(struct parquet_column *column, const struct tt_file_map *file,
                                          const struct parquet_chunk *chunk, uint64_t data_bytes);
/* The value of the current entry, valid until the next call for this column. */
TT_MUST_USE tt_status parquet_column_value(struct parquet_column *column, struct parquet_value *value);
/* Moves to the next entry; at the end has_entry becomes false. */
TT_MUST_USE tt_status parquet_column_next(struct parquet_column *column);
void parquet_column_deinit(struct parquet_column *column);

#endif
