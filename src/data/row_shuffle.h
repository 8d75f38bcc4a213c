/* The rows of a stream in the order in which they train: epoch after epoch, each through a shuffle buffer.
 *
 * The buffer holds the next `buffer_size` rows; each row that is taken is one of them, chosen by the seed, and the
 * next one of the files gets its place; at the end of an epoch what is left is taken likewise. Source: Hugging Face
 * datasets 4.x, IterableDataset.shuffle (BufferShuffledExamplesIterable). A row of a source with a weight is there as
 * often as it says (data/sources.h), a fraction by a draw for each row. The order is a function of the seed, the sizes
 * and the files.
 *
 * A place in it is a few numbers: the rows that are in the buffer there follow from the seed, and are read again from
 * the oldest of them on. */
#ifndef TT_DATA_ROW_SHUFFLE_H
#define TT_DATA_ROW_SHUFFLE_H

#include "data/row_flow.h"

struct tt_row_shuffle_config {
    const struct tt_sources *sources;    /* lent */
    const struct tt_data_config *config; /* lent */
    int64_t max_rows;                    /* of an epoch; 0: all */
    uint64_t seed;
    size_t buffer_size; /* rows; 1: the order of the files */
};

/* A place: all zeros but the line, which is 1, are the beginning. */
struct tt_shuffle_place {
    int64_t epoch, taken;      /* rows of the epoch that were taken */
    int64_t count;             /* of the epoch, copies included; 0: not known yet */
    int64_t oldest;            /* its number in the epoch, from 0 */
    struct tt_flow_place from; /* where it is */
};

struct tt_row_shuffle;
TT_MUST_USE tt_status tt_row_shuffle_create(const struct tt_row_shuffle_config *config,
                                            struct tt_row_shuffle **out);
void tt_row_shuffle_destroy(struct tt_row_shuffle *shuffle); /* takes NULL */
/* Goes on at a place of the same files and settings. */
TT_MUST_USE tt_status tt_row_shuffle_seek(struct tt_row_shuffle *shuffle,
                                          const struct tt_shuffle_place *place);
/* The place of the row that tt_row_shuffle_next gives next. */
struct tt_shuffle_place tt_row_shuffle_place(const struct tt_row_shuffle *shuffle);
/* *end: the epoch is at its end, and the next call begins another one. The row's data are the caller's. */
TT_MUST_USE tt_status tt_row_shuffle_next(struct tt_row_shuffle *shuffle, struct tt_flow_row *row, bool *end);

#endif
