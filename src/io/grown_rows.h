/* Tables with a row for each token that have more rows than the files of their folder: those of tokens that were added
 * to a model. A folder shows them with all of their rows (tt_model_folder_grow), so that nothing above knows.
 *
 * The values of a new row are those of a copy of the whole table, such as an adapter has, or follow from the table as
 * in resize_token_embeddings of transformers 5.24 (_init_added_embeddings_weights_with_mean): a sample of the normal
 * distribution that has the mean of the table's rows and 1e-9 of their covariance. The sample is the mean and a scaled
 * sum of WITH differences of random rows from it, which has just this mean and covariance. It depends on the table's
 * name and the number of the row alone: every process of a run, and every command, has the same numbers. */
#ifndef TT_IO_GROWN_ROWS_H
#define TT_IO_GROWN_ROWS_H

#include "io/safetensors.h"

enum { TT_GROWN_TABLES = 2, TT_GROWN_WITH = 64 };

struct tt_grown_table {
    const char *name; /* that the folder shows; NULL ends the list */
    /* A copy of the table with the new rows, lent for the call; NULL: they follow from the table. */
    const struct tt_safetensors *copy;
    const struct tt_safetensors_entry *entry;
};

struct tt_growth {
    int64_t rows; /* of each table from now on: no fewer than it has */
    struct tt_grown_table tables[TT_GROWN_TABLES + 1];
};

/* ---- For model_folder.c ---- */

struct tt_stored_tensor_place;
/* Makes a file of the tables, which reads from the others, and puts it in the places of theirs; NULL in *out where
 * none is there. */
TT_MUST_USE tt_status tt_grow_rows(const char *origin, const struct tt_growth *growth,
                                   struct tt_stored_tensor_place *tensors, size_t count,
                                   struct tt_safetensors **out);

#endif
