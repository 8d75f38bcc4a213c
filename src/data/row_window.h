/* Rows of a stream as units of batches: the next rows of data/row_shuffle.h, tokenized by several threads, and packed
 * among themselves. A window ends after 1,000 rows (TRL packs batches of datasets' map, which has as many), after 64
 * MiB of them, or with the epoch, so that its units do not depend on ranks or batches. */
#ifndef TT_DATA_ROW_WINDOW_H
#define TT_DATA_ROW_WINDOW_H

#include "data/store.h"
#include "data/row_shuffle.h"

/* Tokens first .. first + count - 1 of a sample. */
struct tt_window_piece {
    size_t sample;
    int32_t first, count;
};

/* A zeroed struct is empty. Unit u is the pieces units[u] .. units[u + 1] - 1: a group of whole samples, a pack, or
 * max_length tokens of a stream. */
struct tt_row_window {
    struct tt_shuffle_place place; /* of its first row */
    struct tt_store store;
    struct tt_dataset_report report;
    struct tt_window_piece *pieces;
    size_t *units;
    size_t unit_count, piece_count, piece_capacity, unit_capacity;
    bool ends_epoch;
};

struct tt_window_config {
    const struct tt_sources *sources; /* all lent */
    const struct tt_data_config *config;
    const struct tt_tokenizer *tokenizer;
    int64_t vocab_size;
    int64_t pack_length; /* tokens of a pack */
    uint64_t seed;
    bool shuffle; /* the packs of a window too, which are made longest first */
};

struct tt_window_reader;
TT_MUST_USE tt_status tt_window_reader_create(const struct tt_window_config *config,
                                              struct tt_window_reader **out);
void tt_window_reader_destroy(struct tt_window_reader *reader); /* takes NULL */
/* Fills an empty window with the next rows. It may have no units. The first row that is wrong, in the order in which
 * they are read, is the error. */
TT_MUST_USE tt_status tt_window_read(struct tt_window_reader *reader, struct tt_row_shuffle *shuffle,
                                     struct tt_row_window *window);
void tt_row_window_deinit(struct tt_row_window *window);

#endif
