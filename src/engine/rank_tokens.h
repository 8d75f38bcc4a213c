/* The memory of a rank's micro batches of tokens. Internal to src/engine. */
#ifndef TT_ENGINE_RANK_TOKENS_H
#define TT_ENGINE_RANK_TOKENS_H

#include "engine/rank.h"

/* Owned by rank_tokens.c. */
struct tt_rank_tokens {
    struct tt_buffer *batch_buffer;
    struct tt_buffer *rope_buffer;
    struct tt_rope_table ropes[TT_PASS_ROPES];
    struct tt_rope_parts rope_parts; /* of `ropes` */
    int32_t *rope_rows;              /* [limits.tokens], host memory; NULL: rows are positions */
};

#endif
