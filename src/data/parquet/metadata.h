/* The footer of a Parquet file and the headers of its pages, as they are written. Names are lent by the file. */
#ifndef TT_DATA_PARQUET_METADATA_H
#define TT_DATA_PARQUET_METADATA_H

#include "base/file.h"
#include "base/str.h"

enum parquet_type {
    PARQUET_BOOLEAN,
    PARQUET_INT32,
    PARQUET_INT64,
    PARQUET_INT96,
    PARQUET_FLOAT,
    PARQUET_DOUBLE,
    PARQUET_BYTES,
    PARQUET_FIXED_BYTES,
    PARQUET_GROUP, /* no type of values */
};

enum parquet_repetition { PARQUET_REQUIRED, PARQUET_OPTIONAL, PARQUET_REPEATED };

/* ConvertedType; -1: none. */
enum {
    PARQUET_OLD_UTF8,
    PARQUET_OLD_MAP,
    PARQUET_OLD_MAP_KEY_VALUE,
    PARQUET_OLD_LIST,
    PARQUET_OLD_ENUM,
    PARQUET_OLD_DECIMAL,
    PARQUET_OLD_DATE,
    PARQUET_OLD_TIME_MILLIS,
    PARQUET_OLD_TIME_MICROS,
    PARQUET_OLD_TIMESTAMP_MILLIS,
    PARQUET_OLD_TIMESTAMP_MICROS,
    PARQUET_OLD_UINT_8,
    PARQUET_OLD_UINT_64 = 14,
    PARQUET_OLD_INT_8,
    PARQUET_OLD_INT_64 = 18,
    PARQUET_OLD_JSON,
    PARQUET_OLD_BSON,
    PARQUET_OLD_INTERVAL,
};

/* LogicalType; 0: none. */
enum {
    PARQUET_STRING = 1,
    PARQUET_MAP,
    PARQUET_LIST,
    PARQUET_ENUM,
    PARQUET_DECIMAL,
    PARQUET_DATE,
    PARQUET_TIME,
    PARQUET_TIMESTAMP,
    PARQUET_INTEGER = 10,
    PARQUET_UNKNOWN,
    PARQUET_JSON,
    PARQUET_BSON,
    PARQUET_UUID,
    PARQUET_FLOAT16,
};

enum { PARQUET_MILLIS = 1, PARQUET_MICROS, PARQUET_NANOS };

/* A row of the schema. */
struct parquet_element {
    struct tt_span name;
    enum parquet_type type;
    enum parquet_repetition repetition;
    int32_t bytes; /* of PARQUET_FIXED_BYTES */
    size_t children;
    int converted, logical;
    int32_t scale;  /* of a decimal */
    int unit;       /* of times */
    bool utc;       /* of times */
    bool is_signed; /* of integers */
};

/* The values of one column in one row group. */
struct parquet_chunk {
    enum parquet_type type;
    int codec;
    int64_t values; /* with nulls */
    uint64_t offset, bytes;
    bool encrypted, elsewhere; /* elsewhere: in another file */
};

struct parquet_row_group {
    int64_t rows;
    size_t first_chunk, chunk_count;
};

/* Key and value that a writer added. */
struct parquet_note {
    struct tt_span key, value;
};

struct parquet_metadata {
    struct parquet_element *elements;
    size_t element_count, element_capacity;
    struct parquet_row_group *groups;
    size_t group_count, group_capacity;
    struct parquet_chunk *chunks;
    size_t chunk_count, chunk_capacity;
    struct parquet_note *notes;
    size_t note_count, note_capacity;
    uint64_t data_bytes; /* of the file before the footer */
};

/* Whether a file begins as Parquet files do, also encrypted ones. */
bool parquet_is_magic(const struct tt_file_map *file);
TT_MUST_USE tt_status parquet_metadata_read(const char *path, const struct tt_file_map *file,
                                            struct parquet_metadata *metadata);
void parquet_metadata_deinit(struct parquet_metadata *metadata);

enum { PARQUET_DATA_PAGE, PARQUET_INDEX_PAGE, PARQUET_DICTIONARY_PAGE, PARQUET_DATA_PAGE_V2 };

struct parquet_page {
    int type;
    uint32_t bytes, packed_bytes;
    bool has_sum;
    uint32_t sum; /* CRC-32 of the packed bytes */
    int32_t values;
    int encoding, def_encoding, rep_encoding;
    uint32_t def_bytes, rep_bytes; /* of version 2 */
    bool packed;                   /* of version 2: false: the values are not compressed */
};

/* Reads the header at *at and moves *at behind it; false where it is damaged. */
bool parquet_page_read(const uint8_t **at, const uint8_t *end, struct parquet_page *page);

#endif
