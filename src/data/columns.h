/* Columns of values beside the samples of a store (data/batch.h). Internal to src/data. */
#ifndef TT_DATA_COLUMNS_H
#define TT_DATA_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "data/batch.h"

struct tt_column {
    char name[TT_COLUMN_NAME_BYTES];
    enum tt_per per;
    bool derived;  /* computed from the rows: no part of their sum */
    float *values; /* per token, also of a row: the value of a row stands at the token that it predicts */
};

/* A zeroed struct is empty. */
struct tt_columns {
    struct tt_column list[TT_COLUMNS_MAX];
    int count;
};

/* How many values each kind of column has. */
struct tt_column_counts {
    size_t tokens, samples, groups;
};

void tt_columns_deinit(struct tt_columns *columns);
/* Copies `values`; NULL: all 0. TT_ERR_USAGE: too many columns, a name that is taken or too long. */
TT_MUST_USE tt_status tt_columns_add(struct tt_columns *columns, const char *name, enum tt_per per,
                                     const struct tt_column_counts *counts, const float *values);
/* Copies `count` values of each kind from the places `from_at` of `from` to the places `at`. Both have the same
 * columns. */
void tt_columns_copy(struct tt_columns *columns, const struct tt_column_counts *at,
                     const struct tt_columns *from, const struct tt_column_counts *from_at,
                     const struct tt_column_counts *count);
/* Continues `sum` (base/crc64.h) over names, kinds and values of those that are not derived. */
uint64_t tt_columns_sum(const struct tt_columns *columns, const struct tt_column_counts *counts,
                        uint64_t sum);

#endif
