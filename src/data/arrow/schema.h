/* The columns of an Arrow file, and where their values are in the current batch. */
#ifndef TT_DATA_ARROW_SCHEMA_H
#define TT_DATA_ARROW_SCHEMA_H

#include "data/arrow/flat.h"
#include "data/parquet/schema.h"

enum arrow_layout {
    ARROW_NULL,  /* no buffers */
    ARROW_BITS,  /* booleans */
    ARROW_FIXED, /* `width` bytes each */
    ARROW_BYTES, /* offsets, bytes */
    ARROW_LIST,  /* offsets; the child has the elements */
    ARROW_FIXED_LIST,
    ARROW_OBJECT,
    ARROW_MAP,
};

struct arrow_column {
    enum arrow_layout layout;
    struct parquet_node node; /* name and kind of the values, for their text */
    bool days_in_millis;      /* dates */
    size_t width;             /* of a value; of an offset; elements of a fixed list */
    size_t parent, next;      /* as in struct parquet_node: the first child is the column after it */
    /* Members of the current batch: */
    uint64_t length;
    const uint8_t *valid; /* bits, or NULL: all are there */
    const uint8_t *offsets, *data;
    uint64_t data_bytes;
};

struct arrow_schema {
    struct arrow_column *columns; /* the row first, as an object */
    size_t count, capacity;
};

TT_MUST_USE tt_status arrow_schema_read(const char *path, struct flat table, struct arrow_schema *schema);
/* Sets the places of a batch's values; false with *why where it is damaged or not supported. */
TT_MUST_USE tt_status arrow_batch_read(const char *path, struct arrow_schema *schema, struct flat batch,
                                       const uint8_t *body, uint64_t body_bytes);
void arrow_schema_deinit(struct arrow_schema *schema);

#endif
