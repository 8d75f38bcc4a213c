/* Parquet's packed integers: runs (levels, indices of dictionaries, booleans) and deltas (integers, lengths). */
#ifndef TT_DATA_PARQUET_BITS_H
#define TT_DATA_PARQUET_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Runs: one value many times, or values of `width` bits, the lowest first. */
struct parquet_runs {
    const uint8_t *at, *end;
    int width;     /* 0..32; 0: all values are 0 and need no bytes */
    uint64_t left; /* values left in this run */
    uint32_t value;
    const uint8_t *packed; /* NULL: the run is `value`; else where it begins */
    uint64_t bit;
};

struct parquet_runs parquet_runs_make(const uint8_t *data, size_t bytes, int width);
/* The next value; false at the end of the bytes, or where they are damaged. */
bool parquet_runs_next(struct parquet_runs *runs, uint32_t *out);

/* Deltas (DELTA_BINARY_PACKED). */
struct parquet_deltas {
    const uint8_t *at, *end;
    uint64_t left;                      /* values that are not read yet */
    uint64_t block, blocks_parts, part; /* values of a block, its parts, values of a part */
    bool first;
    uint64_t value, least;
    const uint8_t *widths; /* of this block's parts */
    uint64_t part_index, part_left;
    const uint8_t *packed;
    uint64_t bit;
    int width;
};

/* Reads the header; false where it is damaged, or has more than `most` values. */
bool parquet_deltas_open(const uint8_t *data, size_t bytes, uint64_t most, struct parquet_deltas *deltas);
bool parquet_deltas_next(struct parquet_deltas *deltas, int64_t *out);
/* Where the bytes behind all values begin; NULL where the values are damaged. */
const uint8_t *parquet_deltas_end(const struct parquet_deltas *deltas);

#endif
