/* Keys and values of earlier tokens, for generation: B sequences of at most `max_length` tokens, for every
 * layer.
 *
 * Life: create; then for each forward pass begin (says how many new tokens each sequence brings), the pass
 * itself (each layer appends and reads), end (the new tokens count as held). A pass that fails may simply be
 * begun again.
 *
 * Each sequence has room for `max_length` rows. Attention wants the keys of one sequence right after those of
 * the one before; the free rows between them are handed to it as sequences without queries, so nothing is
 * ever moved.
 */
#ifndef TT_NN_KV_CACHE_H
#define TT_NN_KV_CACHE_H

#include <stdint.h>
#include "backend/device.h"
#include "backend/ops/attention.h"
#include "tensor/tensor.h"

struct tt_kv_cache;

struct tt_kv_cache_config {
    int64_t layer_count, sequence_count, max_length, kv_heads, head_dim;
    tt_dtype dtype;
};

/* Memory is counted as activations. `device` is lent. */
TT_MUST_USE tt_status tt_kv_cache_create(struct tt_device *device, const struct tt_kv_cache_config *config,
                                         struct tt_kv_cache **out);
void tt_kv_cache_destroy(struct tt_kv_cache *cache); /* takes NULL */
void tt_kv_cache_reset(struct tt_kv_cache *cache);   /* every sequence holds nothing */
int64_t tt_kv_cache_length(const struct tt_kv_cache *cache, int64_t sequence); /* tokens held */

/* `cu_seqlens` [B + 1], host memory: the new tokens of each sequence, 0 is fine (a sequence that is done).
 * Too many for `max_length` is TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_kv_cache_begin(struct tt_kv_cache *cache, struct tt_stream *stream,
                                        const int32_t *cu_seqlens);
void tt_kv_cache_end(struct tt_kv_cache *cache);

/* For the attention layer: stores the new rows of `layer`, and sets keys, values and borders of `args`. */
TT_MUST_USE tt_status tt_kv_cache_append(struct tt_kv_cache *cache, struct tt_stream *stream, int layer,
                                         tt_tensor k_TC, tt_tensor v_TC,
                                         struct tt_attention_forward_args *args);

#endif
