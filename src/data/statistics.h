/* Figures about the samples of a data set, as training uses them. */
#ifndef TT_DATA_STATISTICS_H
#define TT_DATA_STATISTICS_H

#include "data/dataset.h"

enum { TT_DATA_BINS_MAX = 12 };

struct tt_data_bin {
    int64_t from, to, samples; /* lengths from .. to */
};

struct tt_data_statistics {
    /* Tokens of a sample. median and p95: the smallest length that half, 95 % of the samples do not exceed. */
    int64_t shortest, median, p95, longest;
    double mean;
    struct tt_data_bin bins[TT_DATA_BINS_MAX]; /* of equal width, without a gap */
    int bin_count;
    int64_t duplicates; /* samples with the tokens and the supervision of an earlier one */
};

/* Reads every token. The data set is not empty. */
TT_MUST_USE tt_status tt_data_statistics_make(const struct tt_dataset *dataset,
                                              struct tt_data_statistics *out);

#endif
