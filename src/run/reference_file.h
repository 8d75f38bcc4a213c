/* Log p by a reference in a file: of every supervised token of a data set, in order, and, where a loss reads answers of
 * other rows, of each of these as a whole. A header, the values, and a sum over both. */
#ifndef TT_RUN_REFERENCE_FILE_H
#define TT_RUN_REFERENCE_FILE_H

#include "data/dataset.h"

/* All lent. */
struct tt_reference_file {
    const char *path;
    uint64_t key;
    const struct tt_dataset *dataset;
    float *logps;      /* one for each token; 0 where it is not supervised */
    float *mismatched; /* one for each sample; NULL: none */
};

/* *found stays false where there is no such file, or, with a line in the log, one that cannot be used. */
TT_MUST_USE tt_status tt_reference_file_read(const struct tt_reference_file *file, bool *found);
TT_MUST_USE tt_status tt_reference_file_write(const struct tt_reference_file *file);

#endif
