/* FlatBuffers, which Arrow's headers are written in: tables whose fields are found through a table of offsets. Every
 * offset is checked; what is not there, or not within the bytes, reads as absent. */
#ifndef TT_DATA_ARROW_FLAT_H
#define TT_DATA_ARROW_FLAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* A table; `at` 0: none. */
struct flat {
    const uint8_t *data;
    size_t bytes, at;
};

struct flat flat_root(const uint8_t *data, size_t bytes);
int64_t flat_integer(struct flat table, int field, size_t width, int64_t absent);
struct flat flat_table(struct flat table, int field);
struct tt_span flat_text(struct flat table, int field);
/* A vector with elements of `width` bytes; returns its count, and *at is where it begins. */
size_t flat_vector(struct flat table, int field, size_t width, size_t *at);
/* Table `index` of a vector of tables. */
struct flat flat_element(struct flat table, int field, size_t index);

#endif
