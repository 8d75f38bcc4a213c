/* Micro batches in host memory, the output of the data layer. A micro batch is a flat list of tokens with sample
 * borders. Labels are already shifted: labels[t] is the token that should follow token t, or -100. The last token of a
 * sample never has a label.
 *
 * Sequences come in groups that an objective compares (an answer that was chosen and one that was rejected); a group is
 * never split. Beside the tokens there may be named columns of values, one for each token, row, sequence or group. */
#ifndef TT_DATA_BATCH_H
#define TT_DATA_BATCH_H

#include <stdint.h>

#include "tensor/column.h"

enum { TT_LABEL_NONE = -100, TT_COLUMNS_MAX = 8, TT_COLUMN_NAME_BYTES = 32 };

/* Sequences whose beginnings are those of others, as a pass computes them (data/fold.h): a token that several sequences
 * have is there once, and each sequence has the keys of all its tokens, M in all. */
struct tt_batch_branches {
    int64_t key_count;         /* M; 0: every token belongs to one sequence */
    const int32_t *cu_keys;    /* [B + 1] */
    const int32_t *key_tokens; /* [M] the token that a key is of */
    int64_t copies;            /* S: the most sequences that a token belongs to */
    const int32_t *token_keys; /* [T, S] the keys of each token, rising, then M */
    const int32_t *own_keys;   /* [T] the first of these, rising */
};

struct tt_batch_column {
    const char *name; /* owned by the data set */
    enum tt_per per;
    const float *values; /* [T], [N], [B] or [G] */
};

struct tt_batch {
    int64_t token_count; /* T; 0: this rank has no samples in this micro batch, but joins its collectives */
    int64_t sequence_count; /* B */
    int64_t max_length;
    const int32_t *ids;       /* [T] */
    const int32_t *positions; /* [T] from 0 in each sequence */
    /* [T] the length that the token's sequence has reached, earlier batches included; NULL: that in this batch */
    const int32_t *reached;
    const int64_t *row_keys;   /* [T] (sample << 24) | position */
    const int32_t *cu_seqlens; /* [B + 1] */
    /* [B] The first prefix[b] tokens of sequence b, with their rows, are those of sequence parent[b] < b, whose own
     * prefix is 0; each of the two has at least one more token. Sequences with one parent follow each other. prefix 0:
     * all tokens are its own. NULL: all are 0. */
    const int32_t *parent, *prefix;
    /* of a folded batch: cu_seqlens are borders of the tokens that are a sequence's own */
    struct tt_batch_branches branches;
    int64_t row_count;         /* N */
    const int32_t *rows;       /* [N] increasing */
    const int32_t *labels;     /* [N] */
    const uint8_t *supervised; /* [N] 0: of a prompt, for an objective that asks for them; NULL: all are 1 */
    /* Sequences g * group_size .. (g + 1) * group_size - 1 are group g. */
    int group_size;
    int64_t group_count; /* G */
    int column_count;
    struct tt_batch_column columns[TT_COLUMNS_MAX];
};

/* The values of a column; NULL: none of that name and kind. */
const float *tt_batch_column(const struct tt_batch *batch, const char *name, enum tt_per per);

#endif
