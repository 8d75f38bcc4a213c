/* The samples of a row (data/row_reader.h): cut, dropped or refused by max_length, and counted. For what
 * loads files (dataset_load.c) and what reads on while it trains (row_window.c). Internal to src/data. */
#ifndef TT_DATA_ROW_SAMPLES_H
#define TT_DATA_ROW_SAMPLES_H

#include "data/row_reader.h"
#include "data/store.h"

/* All lent. */
struct tt_row_making {
    const struct tt_rows *rows;
    const struct tt_data_config *config;
    size_t row_limit; /* rows to read, of a text samples; 0: all */
};
/* Where samples and counts are added. */
struct tt_row_target {
    struct tt_store *store;
    struct tt_dataset_report *report;
};
/* Tokens of a sample; whether every token of the rows is used: of a text, and of rows that are one stream. */
size_t tt_row_sample_limit(const struct tt_data_config *config);
bool tt_row_keeps_all(const struct tt_row_making *making);
/* Adds the samples of row `index` of making->rows. */
TT_MUST_USE tt_status tt_row_samples_add(const struct tt_row_making *making, struct tt_row_reader *reader,
                                         size_t index, const struct tt_row_target *to);

#endif
