/* Thrift's compact protocol, which Parquet's headers are written in: fields by number, each with its type.
 *
 * The first damage ends the reading: `failed` is set, and every later call returns 0, an empty span or false. So a
 * reader of a struct checks `failed` once, at its end. */
#ifndef TT_DATA_PARQUET_THRIFT_H
#define TT_DATA_PARQUET_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum thrift_type {
    THRIFT_STOP,
    THRIFT_TRUE,
    THRIFT_FALSE,
    THRIFT_BYTE,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BINARY,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_MAP,
    THRIFT_STRUCT,
    THRIFT_UUID,
};

struct thrift {
    const uint8_t *at, *end;
    bool failed;
};

/* A field of the struct that is being read; zeroed before the first. */
struct thrift_field {
    int id;
    enum thrift_type type;
};

/* Reads the header of the next field; false at the end of the struct. The caller reads or skips the value. */
bool thrift_next(struct thrift *thrift, struct thrift_field *field);
void thrift_skip(struct thrift *thrift, enum thrift_type type);
/* Values of a field; one of another type is damage. Integers beyond `least`..`most` are, too. */
int64_t thrift_integer(struct thrift *thrift, enum thrift_type type, int64_t least, int64_t most);
bool thrift_bool(struct thrift *thrift, enum thrift_type type);
struct tt_span thrift_binary(struct thrift *thrift, enum thrift_type type);
/* The number of elements, which are structs and follow. */
size_t thrift_structs(struct thrift *thrift, enum thrift_type type);
/* Whether the value is a struct, whose fields follow. */
bool thrift_struct(struct thrift *thrift, enum thrift_type type);

/* An unsigned number in groups of 7 bits. Returns false where it does not end, or is longer than 64 bits. */
bool thrift_varint(const uint8_t **at, const uint8_t *end, uint64_t *out);
int64_t thrift_zigzag(uint64_t value);

#endif
