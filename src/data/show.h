/* A sample as text, in pieces of tokens that are all supervised or all not. Of a long sample the first 2,048 tokens. */
#ifndef TT_DATA_SHOW_H
#define TT_DATA_SHOW_H

#include "data/dataset.h"

struct tt_show_part {
    struct tt_span text; /* lent until the visit returns */
    bool supervised;
    int32_t left; /* tokens of the sample behind the last piece, when it is this one and they are not shown */
};

typedef tt_status tt_show_piece(void *context, const struct tt_show_part *part);
/* `tokenizer` NULL: ids as numbers. */
TT_MUST_USE tt_status tt_dataset_pieces(const struct tt_dataset *dataset, size_t index,
                                        const struct tt_tokenizer *tokenizer, tt_show_piece *visit,
                                        void *context);

#endif
