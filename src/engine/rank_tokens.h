/* The memory of a rank's micro batches of tokens. Internal to src/engine. */
#ifndef TT_ENGINE_RANK_TOKENS_H
#define TT_ENGINE_RANK_TOKENS_H

#include "engine/rank.h"

/* A column that travels to the device. */
struct tt_rank_column {
    struct tt_column_name column; /* lent by those who ask */
    const char *block;            /* the first that asks; NULL: the objective alone does */
};

/* Owned by rank_tokens.c. */
struct tt_rank_tokens {
    struct tt_rank_column columns[TT_DEVICE_COLUMNS_MAX];
    int column_count;
    struct tt_buffer *batch_buffer;
    struct tt_buffer *rope_buffer;
    struct tt_rope_table ropes[TT_PASS_ROPES];
    struct tt_rope_parts rope_parts; /* of `ropes` */
    int32_t *rope_rows;              /* [limits.tokens], host memory; NULL: rows are positions */
    struct tt_batch_storage folded;  /* of the micro batch, where its sequences begin alike */
    const int32_t *row_of;           /* of the fold (data/fold.h); NULL: nothing is folded */
    int64_t all_rows;                /* rows of all sequences of the micro batch */
};

#endif
