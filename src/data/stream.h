/* One stream of tokens (packing_strategy: wrapped): the store has whole rows, which the sampler cuts every max_length
 * tokens. A cut takes the label of the token behind it, which has no prediction. */
#ifndef TT_DATA_STREAM_H
#define TT_DATA_STREAM_H

#include "data/dataset.h"

/* Lowers the numbers of supervised tokens in the reports by those at the cuts, every `length` tokens of the samples in
 * their order now. Once, after shuffling and splitting. */
void tt_stream_count(struct tt_dataset *dataset, int64_t length);
/* Handles samples of a data set that was loaded as a stream, and is not used as one, by max_length and over_length, as
 * rows are that are loaded alone. `what` names the data set in the error of over_length: error. */
TT_MUST_USE tt_status tt_stream_part(struct tt_dataset *dataset, const struct tt_data_config *config,
                                     const char *what);

#endif
