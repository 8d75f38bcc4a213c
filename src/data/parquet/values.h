/* The values of a page, as bytes of the type's plain encoding without the length: the common form of all encodings. */
#ifndef TT_DATA_PARQUET_VALUES_H
#define TT_DATA_PARQUET_VALUES_H

#include "base/str.h"
#include "data/parquet/bits.h"
#include "data/parquet/metadata.h"

enum {
    PARQUET_PLAIN,
    PARQUET_PLAIN_DICTIONARY = 2,
    PARQUET_RLE,
    PARQUET_BIT_PACKED,
    PARQUET_DELTA_BINARY_PACKED,
    PARQUET_DELTA_LENGTH_BYTE_ARRAY,
    PARQUET_DELTA_BYTE_ARRAY,
    PARQUET_RLE_DICTIONARY,
    PARQUET_BYTE_STREAM_SPLIT,
};

struct parquet_value {
    const uint8_t *data;
    size_t bytes;
};

struct parquet_dictionary {
    uint8_t *page; /* owned */
    struct parquet_value *values;
    size_t count;
};

struct parquet_values {
    enum parquet_type type;
    size_t width; /* bytes of a value; 0: each has its own */
    int encoding;
    const uint8_t *at, *end;
    const struct parquet_dictionary *dictionary;
    struct parquet_runs runs;
    struct parquet_deltas deltas, prefixes;
    uint64_t index, count; /* of BYTE_STREAM_SPLIT; index: also of plain booleans */
    struct tt_str made;    /* the last value of DELTA_BYTE_ARRAY, of BYTE_STREAM_SPLIT */
    uint8_t number[8];     /* the last one of deltas and booleans */
};

/* Bytes of a value of a type, where all have the same number; else 0. */
size_t parquet_width(enum parquet_type type, int32_t fixed_bytes);

/* Begins the values of a page; at most `most` of them. The decoder keeps its memory from page to page. False: *why says
 * what the encoding lacks or where it is damaged, and *unsupported whether it is one that cannot be read. */
bool parquet_values_open(struct parquet_values *values, int encoding, const uint8_t *data, size_t bytes,
                         uint64_t most, const char **why, bool *unsupported);
/* The next value, valid until the next call. TT_ERR_DATA without an error record: the page ends, or is damaged. */
TT_MUST_USE tt_status parquet_values_next(struct parquet_values *values, struct parquet_value *out);
void parquet_values_deinit(struct parquet_values *values);

/* Reads `count` plain values of a dictionary's page, which it takes over. TT_ERR_DATA without a record: they do not
 * fit. */
TT_MUST_USE tt_status parquet_dictionary_read(struct parquet_dictionary *dictionary, size_t width,
                                              uint8_t *page, size_t bytes, size_t count);
void parquet_dictionary_deinit(struct parquet_dictionary *dictionary);

#endif
