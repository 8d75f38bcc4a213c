/* The kinds of rows that are read: by their members, or because an objective names the kind. One file each
 * (data/row_<name>.c), one line in data/row_kinds.def. */
#ifndef TT_DATA_ROW_KIND_H
#define TT_DATA_ROW_KIND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct tt_json_value;
struct tt_row;
struct tt_row_reader;

/* Rows are of a kind with a `plural` ("preferences") only where an objective names it, and become `samples_each`
 * samples. `members`: those that are read, ended by NULL, beside the fields that settings name; NULL: no more. */
struct tt_row_kind {
    const char *name, *plural;
    /* The name of a number that each sample has, a column of its batches with one value a sequence (data/batch.h);
     * NULL: none. */
    const char *value;
    const char *const *members;
    size_t samples_each; /* samples of a row, a group that stays together; 0: any number, each alone */
    /* Whether the row is of the kind; not asked with `plural`. */
    bool (*accepts)(const struct tt_row_reader *reader, const struct tt_json_value *row);
    /* Reads the current row and gives its sample reader->part. */
    tt_status (*read)(struct tt_row_reader *reader, const struct tt_json_value *row, struct tt_row *out);
    /* Gives, with several samples_each, sample reader->part of the row that was read, each once and in order. */
    tt_status (*next)(struct tt_row_reader *reader, struct tt_row *out);
};

#define ROW_KIND(name) extern const struct tt_row_kind tt_row_##name;
#include "data/row_kinds.def"
#undef ROW_KIND

#endif
