/* Keys and values of earlier tokens, for generation: B sequences of at most `max_length` tokens, for every
 * layer; and of layers with a state that state, of a fixed size for each sequence, behind its last token.
 *
 * Life: create; then for each forward pass begin (sets the number of new tokens of each sequence), the pass (each layer
 * appends and reads), end (commits the new tokens). A failed pass can be restarted with begin, but with states only
 * after its sequences are truncated to nothing.
 *
 * Each sequence has room for `max_length` rows. Attention requires contiguous sequences of keys; the free rows between
 * them are passed as sequences without queries, so nothing is ever moved.
 */
#ifndef TT_NN_KV_CACHE_H
#define TT_NN_KV_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/device.h"
#include "backend/ops/attention.h"
#include "backend/ops/sequences.h"
#include "tensor/tensor.h"

struct tt_kv_cache;

/* Heads of keys, and of values, of a layer. */
struct tt_kv_heads {
    int64_t count, columns; /* K, E; 0: the layer has no keys */
};
/* Values that a layer with a state holds of a sequence, in fp32 (backend/ops/conv1d.h, scan.h). */
struct tt_kv_states {
    int64_t conv_rows, conv_columns; /* J - 1, C; 0: no convolution */
    int64_t heads, rows, columns;    /* H, E, W; 0: no scan */
};
struct tt_kv_cache_config {
    int64_t layer_count, sequence_count, max_length, kv_heads, head_dim;
    const struct tt_kv_heads *heads;   /* [layer_count], copied; NULL: kv_heads of head_dim in all layers */
    const struct tt_kv_states *states; /* [layer_count], copied; NULL: no layer has a state */
    int64_t saved; /* beginnings of sequences whose states can be saved; of no use without states */
    tt_dtype dtype;
};

/* Memory is counted as activations. `device` is lent. */
TT_MUST_USE tt_status tt_kv_cache_create(struct tt_device *device, const struct tt_kv_cache_config *config,
                                         struct tt_kv_cache **out);
void tt_kv_cache_destroy(struct tt_kv_cache *cache); /* takes NULL */
void tt_kv_cache_fill(struct tt_kv_cache *cache);    /* for a plan: every sequence has room for one token */
bool tt_kv_cache_has_states(const struct tt_kv_cache *cache);
/* Drops all but the first `length` tokens of a sequence; no effect when it holds fewer. A state cannot go back: with
 * states a sequence that holds more loses all of them. */
void tt_kv_cache_truncate(struct tt_kv_cache *cache, int64_t sequence, int64_t length);
/* Saves the state of the sequence behind the tokens that it holds, in the place of the one used longest ago where
 * all are taken; no effect without states. It is kept as long as a sequence holds these tokens. */
TT_MUST_USE tt_status tt_kv_cache_save(struct tt_kv_cache *cache, struct tt_stream *stream, int64_t sequence);
/* How many of the first `length` tokens of a sequence another one may go on from: all that it holds, with states all or
 * a saved beginning. */
int64_t tt_kv_cache_usable(const struct tt_kv_cache *cache, int64_t sequence, int64_t length);
/* Replaces the tokens of sequence `to` by the first `count` of sequence `from`, a number that tt_kv_cache_usable gives;
 * the two may be one, which then goes back to them. */
TT_MUST_USE tt_status tt_kv_cache_copy(struct tt_kv_cache *cache, struct tt_stream *stream, int64_t from,
                                       int64_t to, int64_t count);
int64_t tt_kv_cache_length(const struct tt_kv_cache *cache, int64_t sequence); /* tokens held */

/* `cu_seqlens` [B + 1], host memory: the new tokens of each sequence; 0 for a finished sequence. More than `max_length`
 * tokens are TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_kv_cache_begin(struct tt_kv_cache *cache, struct tt_stream *stream,
                                        const int32_t *cu_seqlens);
/* Instead of begin, for a pass of single tokens: row t of the pass is the next token of sequences[t], which ascend. The
 * pass may have more rows, `rows` in all: those behind use memory that no sequence reads. Attention is then
 * tt_attention_decode. A graph of such a pass serves every later one with the same rows and tt_kv_cache_reach. */
TT_MUST_USE tt_status tt_kv_cache_begin_single(struct tt_kv_cache *cache, struct tt_stream *stream,
                                               const int32_t *sequences, int64_t count, int64_t rows);
bool tt_kv_cache_is_single(const struct tt_kv_cache *cache);
/* The largest number of keys of a row for which the attention of a pass of single tokens is laid out. */
int64_t tt_kv_cache_reach(const struct tt_kv_cache *cache);
void tt_kv_cache_end(struct tt_kv_cache *cache);

/* Called by the attention layer: stores the new rows of `layer`, and sets keys, values and borders of `args`. */
TT_MUST_USE tt_status tt_kv_cache_append(struct tt_kv_cache *cache, struct tt_stream *stream, int layer,
                                         tt_tensor k_TC, tt_tensor v_TC,
                                         struct tt_attention_forward_args *args);
/* The same in a pass of single tokens. */
TT_MUST_USE tt_status tt_kv_cache_append_single(struct tt_kv_cache *cache, struct tt_stream *stream,
                                                int layer, tt_tensor k_TC, tt_tensor v_TC,
                                                struct tt_attention_decode_args *args);

/* Where that would store them: the caches of keys and of values, and the row of each token. */
void tt_kv_cache_places_single(const struct tt_kv_cache *cache, int layer, tt_tensor *k_RC, tt_tensor *v_RC,
                               tt_tensor *rows_T);

/* Sets keys, values and borders of `args` to those of `layer`, which has stored its rows in this pass: layers behind it
 * may read them (nn/side.h). */
void tt_kv_cache_read(const struct tt_kv_cache *cache, int layer, struct tt_attention_forward_args *args);
void tt_kv_cache_read_single(const struct tt_kv_cache *cache, int layer,
                             struct tt_attention_decode_args *args);

enum tt_state_kind { TT_STATE_CONV, TT_STATE_SCAN, TT_STATE_KINDS };
/* The sequences of the pass, and where each begins and leaves a state of `layer`. */
void tt_kv_cache_states(const struct tt_kv_cache *cache, int layer, enum tt_state_kind kind,
                        struct tt_sequences *sequences, struct tt_states *states);

#endif
