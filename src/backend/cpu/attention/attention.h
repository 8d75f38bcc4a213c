/* The division of attention into blocks on the cpu. A block is a run of query rows of one sequence and one
 * key/value head. Row r is token r / group of query head kv_head * group + r % group. All borders depend on the
 * shapes alone. */
#ifndef TT_BACKEND_CPU_ATTENTION_ATTENTION_H
#define TT_BACKEND_CPU_ATTENTION_ATTENTION_H

#include "backend/ops/attention.h"

enum {
    ATTENTION_BLOCK_FLOATS =
        48 * TT_ATTENTION_HEAD_DIM_MAX, /* rows of a block x E: 96 rows up to E = 128, then 48 */
    ATTENTION_KEYS_FLOATS = 64 * 128,   /* keys of a block x E: 64 up to E = 128, 32 up to 256, then 16 */
    ATTENTION_ROWS_MAX = 96,
    ATTENTION_KEYS_MAX = 64,
};

struct attention_block {
    int64_t query_row, key_row; /* first rows of the sequence */
    int64_t length_q, length_k;
    int64_t kv_head, group;
    int64_t window;
    int64_t first_row, row_count; /* in 0 .. length_q * group */
};

struct attention_span {
    int64_t begin, end;
};

static inline int64_t attention_block_rows(int64_t head_dim)
{
    return head_dim <= 128 ? 96 : 48;
}

static inline int64_t attention_block_keys(int64_t head_dim)
{
    return head_dim <= 128 ? 64 : head_dim <= 256 ? 32 : 16;
}

/* The largest head dimension that is divided in the same way as `head_dim`. */
static inline int64_t attention_width_max(int64_t head_dim)
{
    return head_dim <= 128 ? 128 : head_dim <= 256 ? 256 : TT_ATTENTION_HEAD_DIM_MAX;
}

/* The keys that a row sees. The last query is at the position of the last key. */
static inline struct attention_span attention_keys_of_row(const struct attention_block *block, int64_t row)
{
    int64_t end = row / block->group + 1 + block->length_k - block->length_q;
    int64_t begin = block->window > 0 && end > block->window ? end - block->window : 0;
    return (struct attention_span){begin, end};
}

static inline int64_t attention_key_index(const tt_tensor *keys, const struct attention_block *block,
                                          int64_t key)
{
    return (block->key_row + key) * keys->strides[0] + block->kv_head * keys->strides[1];
}

static inline int64_t attention_row_index(const tt_tensor *queries, const struct attention_block *block,
                                          int64_t row)
{
    return (block->query_row + row / block->group) * queries->strides[0] +
           (block->kv_head * block->group + row % block->group) * queries->strides[1];
}

/* The number of slots of a whole call. The slots of sequence b begin at cu_q[b] * group / rows + b, so that no
 * table of blocks is needed. Each sequence has at least as many slots as blocks; sometimes one slot stays empty. */
int64_t tt_attention_slots(const struct tt_attention_forward_args *args);
/* Returns the block of (slot, kv_head); row_count is 0 for an empty slot. */
struct attention_block tt_attention_block_at(const struct tt_attention_forward_args *args, int64_t slot,
                                             int64_t kv_head);

#endif
