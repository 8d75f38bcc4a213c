/* Private header of the key/value cache: the states of layers that have one, for each of its sequences. Sequence b has
 * state b of every pool; a sequence without tokens begins from zeros. */
#ifndef TT_NN_KV_STATES_H
#define TT_NN_KV_STATES_H

#include "nn/kv_cache.h"

struct tt_state_pool;

/* Memory is counted as activations. `device` is lent, `layers` [layer_count] is copied. States from sequence_count on,
 * `more_count` of them, are those that no pass changes. */
TT_MUST_USE tt_status tt_state_pool_create(struct tt_device *device, const struct tt_kv_states *layers,
                                           int64_t layer_count, int64_t sequence_count, int64_t more_count,
                                           struct tt_state_pool **out);
void tt_state_pool_destroy(struct tt_state_pool *pool); /* takes NULL */
/* A pass of `cu_seqlens` [B + 1] new tokens of the sequences that hold `lengths` [B]. */
TT_MUST_USE tt_status tt_state_pool_begin(struct tt_state_pool *pool, struct tt_stream *stream,
                                          const int32_t *cu_seqlens, const int32_t *lengths);
/* A pass of one token of each of `count` sequences, and of rows up to `rows` that no sequence has. */
TT_MUST_USE tt_status tt_state_pool_begin_single(struct tt_state_pool *pool, struct tt_stream *stream,
                                                 const int32_t *sequences, int64_t count, int64_t rows,
                                                 const int32_t *lengths);
/* State `to` of every layer becomes that of `from`. */
TT_MUST_USE tt_status tt_state_pool_copy(const struct tt_state_pool *pool, struct tt_stream *stream,
                                         int64_t from, int64_t to);
void tt_state_pool_lend(const struct tt_state_pool *pool, int layer, enum tt_state_kind kind,
                        struct tt_sequences *sequences, struct tt_states *states);

#endif
