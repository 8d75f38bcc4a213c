/* Micro batches in host memory, the output of the data layer. A micro batch is a flat list of tokens with sample
 * borders. Labels are already shifted: labels[t] is the token that should follow token t, or -100. The last token of a
 * sample never has a label. */
#ifndef TT_DATA_BATCH_H
#define TT_DATA_BATCH_H

#include <stdint.h>

enum { TT_LABEL_NONE = -100 };

struct tt_batch {
    int64_t token_count; /* T; 0: this rank has no samples in this micro batch, but joins its collectives */
    int64_t sequence_count; /* B */
    int64_t max_length;
    const int32_t *ids;        /* [T] */
    const int32_t *positions;  /* [T] from 0 in each sequence */
    const int64_t *row_keys;   /* [T] (sample << 24) | position */
    const int32_t *cu_seqlens; /* [B + 1] */
    int64_t row_count;         /* N */
    const int32_t *rows;       /* [N] increasing */
    const int32_t *labels;     /* [N] */
};

#endif
