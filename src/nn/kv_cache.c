#include "nn/kv_cache.h"

#include <inttypes.h>
#include <string.h>
#include "backend/ops/elementwise.h"
#include "backend/ops/embedding.h"
#include "base/alloc.h"
#include "nn/kv_saved.h"
#include "nn/kv_states.h"

struct tt_kv_cache {
    struct tt_kv_cache_config config;
    struct tt_kv_heads *heads; /* [layers] */
    struct tt_buffer *rows;    /* [layers][k, v][B * max_length + 1][K * E]: the last row is spare */
    /* Device memory, i32: cu_q, cu_k [2B + 1] each, then the rows of the new tokens, at most [B * max_length]. A pass
     * of single tokens has here: the new row, the first and the number of keys of each row, [3 B] in all. */
    struct tt_buffer *borders;
    int32_t *new_rows; /* [B * max_length], at least [3 B] */
    int64_t new_count;
    int32_t *lengths;     /* [B], tokens held */
    int32_t *new_first;   /* [B + 1], rows of the current pass */
    int32_t *cu_q, *cu_k; /* [2B + 1]: sequence, free rows, sequence, ... */
    int64_t max_new, max_held;
    int64_t single_rows; /* of a pass of single tokens; 0: another pass */
    int64_t reach;
    struct tt_state_pool *pool; /* NULL: no layer has a state */
    struct tt_kv_saved saved;   /* item i has state sequence_count + i of the pool */
};

static int64_t row_count(const struct tt_kv_cache *cache)
{
    return cache->config.sequence_count * cache->config.max_length + 1;
}

/* Columns of the keys of all layers before `layer`. */
static int64_t columns_before(const struct tt_kv_cache *cache, int64_t layer)
{
    int64_t columns = 0;
    for (int64_t i = 0; i < layer; i++) columns += cache->heads[i].count * cache->heads[i].columns;
    return columns;
}

static tt_status copy_heads(struct tt_kv_cache *cache)
{
    const struct tt_kv_cache_config *config = &cache->config;
    cache->heads = tt_calloc((size_t)config->layer_count, sizeof *cache->heads);
    if (cache->heads == NULL) return TT_ERR_MEMORY;
    for (int64_t i = 0; i < config->layer_count; i++)
        cache->heads[i] = config->heads != NULL ? config->heads[i]
                                                : (struct tt_kv_heads){config->kv_heads, config->head_dim};
    return TT_OK;
}

tt_status tt_kv_cache_create(struct tt_device *device, const struct tt_kv_cache_config *config,
                             struct tt_kv_cache **out)
{
    tt_status status = TT_OK;
    size_t sequences = (size_t)config->sequence_count, rows, bytes;
    struct tt_kv_cache *cache = tt_calloc(1, sizeof *cache);
    if (cache == NULL) return TT_ERR_MEMORY;
    cache->config = *config;
    if (config->sequence_count < 1 || config->max_length < 1 ||
        __builtin_mul_overflow(sequences, (size_t)config->max_length, &rows) || rows > INT32_MAX) {
        status = tt_fail(TT_ERR_USAGE,
                         "a key/value cache of %" PRId64 " sequences of %" PRId64 " tokens is out of range",
                         config->sequence_count, config->max_length);
        goto out;
    }
    TT_GO(copy_heads(cache));
    size_t row_bytes = (size_t)columns_before(cache, config->layer_count) * tt_dtype_bytes(config->dtype);
    if (__builtin_mul_overflow(rows + 1, row_bytes * 2, &bytes)) {
        status =
            tt_fail(TT_ERR_MEMORY, "a key/value cache of %zu rows is larger than the address space", rows);
        goto out;
    }
    cache->lengths = tt_calloc(sequences, sizeof *cache->lengths);
    cache->new_first = tt_calloc(sequences + 1, sizeof *cache->new_first);
    cache->cu_q = tt_calloc(2 * sequences + 1, sizeof *cache->cu_q);
    cache->cu_k = tt_calloc(2 * sequences + 1, sizeof *cache->cu_k);
    if (rows < 3 * sequences) rows = 3 * sequences;
    cache->new_rows = tt_calloc(rows, sizeof *cache->new_rows);
    if (!cache->new_rows || !cache->lengths || !cache->new_first || !cache->cu_q || !cache->cu_k) {
        status = TT_ERR_MEMORY;
        goto out;
    }
    TT_GO(tt_buffer_create(device, bytes, TT_PURPOSE_ACTIVATIONS, &cache->rows));
    TT_GO(tt_buffer_create(device, (2 * (2 * sequences + 1) + rows) * sizeof(int32_t), TT_PURPOSE_ACTIVATIONS,
                           &cache->borders));
    if (config->states != NULL) {
        TT_GO(tt_kv_saved_init(&cache->saved, config->saved, config->sequence_count));
        TT_GO(tt_state_pool_create(device, config->states, config->layer_count, config->sequence_count,
                                   config->saved, &cache->pool));
    }
    *out = cache;
    cache = NULL;
out:
    if (status != TT_OK) tt_while("creating a key/value cache for generation");
    tt_kv_cache_destroy(cache);
    return status;
}

void tt_kv_cache_destroy(struct tt_kv_cache *cache)
{
    if (cache == NULL) return;
    tt_state_pool_destroy(cache->pool);
    tt_kv_saved_deinit(&cache->saved);
    tt_buffer_destroy(cache->rows);
    tt_buffer_destroy(cache->borders);
    tt_free(cache->heads);
    tt_free(cache->lengths);
    tt_free(cache->new_first);
    tt_free(cache->cu_q);
    tt_free(cache->cu_k);
    tt_free(cache->new_rows);
    tt_free(cache);
}

void tt_kv_cache_fill(struct tt_kv_cache *cache)
{
    for (int64_t b = 0; b < cache->config.sequence_count; b++)
        cache->lengths[b] = (int32_t)cache->config.max_length - 1;
}

void tt_kv_cache_truncate(struct tt_kv_cache *cache, int64_t sequence, int64_t length)
{
    if (cache->lengths[sequence] <= length) return;
    cache->lengths[sequence] = cache->pool != NULL ? 0 : (int32_t)length;
    tt_kv_saved_drop(&cache->saved, sequence, cache->lengths[sequence]);
}

tt_status tt_kv_cache_save(struct tt_kv_cache *cache, struct tt_stream *stream, int64_t sequence)
{
    int64_t item = tt_kv_saved_take(&cache->saved, sequence, cache->lengths[sequence]);
    if (item < 0) return TT_OK;
    return tt_state_pool_copy(cache->pool, stream, sequence, cache->config.sequence_count + item);
}

int64_t tt_kv_cache_usable(const struct tt_kv_cache *cache, int64_t sequence, int64_t length)
{
    int64_t held = cache->lengths[sequence];
    if (length >= held) return held;
    if (cache->pool == NULL) return length;
    int64_t item = tt_kv_saved_find(&cache->saved, sequence, length);
    return item >= 0 ? cache->saved.items[item].length : 0;
}

bool tt_kv_cache_has_states(const struct tt_kv_cache *cache)
{
    return cache->pool != NULL;
}

/* Keys and values of `layer`: [B * max_length + 1, K * E] each. */
static void rows_of(const struct tt_kv_cache *cache, int64_t layer, tt_tensor all[2])
{
    const struct tt_kv_cache_config *config = &cache->config;
    int64_t cols = cache->heads[layer].count * cache->heads[layer].columns, rows = row_count(cache);
    size_t half_bytes = (size_t)(rows * cols) * tt_dtype_bytes(config->dtype);
    size_t before = (size_t)(2 * rows * columns_before(cache, layer)) * tt_dtype_bytes(config->dtype);
    char *data = (char *)tt_buffer_data(cache->rows) + before;
    all[0] = tt_tensor_2d(data, config->dtype, rows, cols);
    all[1] = tt_tensor_2d(data + half_bytes, config->dtype, rows, cols);
}

/* The state behind `count` tokens of `from`: its own where it holds no more, or a saved one. */
static tt_status copy_state(struct tt_kv_cache *cache, struct tt_stream *stream, int64_t from, int64_t to,
                            int64_t count)
{
    int64_t state = from;
    if (cache->pool == NULL || count == 0) return TT_OK;
    if (count < cache->lengths[from]) {
        int64_t item = tt_kv_saved_find(&cache->saved, from, count);
        tt_kv_saved_use(&cache->saved, item);
        state = cache->config.sequence_count + item;
    }
    return state != to ? tt_state_pool_copy(cache->pool, stream, state, to) : TT_OK;
}

tt_status tt_kv_cache_copy(struct tt_kv_cache *cache, struct tt_stream *stream, int64_t from, int64_t to,
                           int64_t count)
{
    int64_t max_length = cache->config.max_length;
    if (count > 0 && tt_kv_cache_usable(cache, from, count) != count)
        return tt_fail(TT_ERR_INTERNAL, "%" PRId64 " tokens of sequence %" PRId64 " cannot be copied", count,
                       from);
    for (int64_t layer = 0; layer < cache->config.layer_count && count > 0 && from != to; layer++) {
        tt_tensor all[2];
        if (cache->heads[layer].count == 0) continue;
        rows_of(cache, layer, all);
        for (int i = 0; i < 2; i++) {
            struct tt_cast_args cast = {.x = tt_tensor_rows(all[i], from * max_length, count),
                                        .y = tt_tensor_rows(all[i], to * max_length, count)};
            TT_TRY(tt_cast(stream, &cast));
        }
    }
    TT_TRY(copy_state(cache, stream, from, to, count));
    cache->lengths[to] = (int32_t)count;
    tt_kv_saved_drop(&cache->saved, to, from == to ? count : 0);
    tt_kv_saved_share(&cache->saved, from, to, count);
    return TT_OK;
}

int64_t tt_kv_cache_length(const struct tt_kv_cache *cache, int64_t sequence)
{
    return cache->lengths[sequence];
}

tt_status tt_kv_cache_begin(struct tt_kv_cache *cache, struct tt_stream *stream, const int32_t *cu_seqlens)
{
    int64_t sequences = cache->config.sequence_count, max_length = cache->config.max_length;
    cache->max_new = cache->max_held = cache->new_count = cache->single_rows = 0;
    for (int64_t b = 0; b < sequences; b++) {
        int64_t count = (int64_t)cu_seqlens[b + 1] - cu_seqlens[b], held = cache->lengths[b] + count;
        if (count < 0 || held > max_length) {
            return tt_fail(TT_ERR_USAGE,
                           "sequence %" PRId64 " would hold %" PRId64
                           " tokens, the cache has room for %" PRId64,
                           b, held, max_length);
        }
        if (count > cache->max_new) cache->max_new = count;
        if (held > cache->max_held) cache->max_held = held;
        if (max_length - held > cache->max_held) cache->max_held = max_length - held;
        cache->cu_q[2 * b + 1] = cache->cu_q[2 * b + 2] = cu_seqlens[b + 1];
        cache->cu_k[2 * b + 1] = (int32_t)(b * max_length + held);
        cache->cu_k[2 * b + 2] = (int32_t)((b + 1) * max_length);
        for (int64_t t = cache->lengths[b]; t < held; t++)
            cache->new_rows[cache->new_count++] = (int32_t)(b * max_length + t);
    }
    memcpy(cache->new_first, cu_seqlens, (size_t)(sequences + 1) * sizeof *cu_seqlens);
    size_t bytes = (size_t)(2 * sequences + 1) * sizeof(int32_t);
    char *borders = tt_buffer_data(cache->borders);
    TT_TRY(tt_copy_to_device(stream, borders, cache->cu_q, bytes));
    TT_TRY(tt_copy_to_device(stream, borders + bytes, cache->cu_k, bytes));
    if (cache->pool != NULL) TT_TRY(tt_state_pool_begin(cache->pool, stream, cu_seqlens, cache->lengths));
    if (cache->new_count == 0) return TT_OK;
    return tt_copy_to_device(stream, borders + 2 * bytes, cache->new_rows,
                             (size_t)cache->new_count * sizeof(int32_t));
}

/* A few numbers of keys, so that few graphs serve all passes. */
static int64_t round_reach(const struct tt_kv_cache *cache, int64_t held)
{
    int64_t reach = TT_DECODE_PART;
    while (reach < held) reach *= 2;
    return reach < cache->config.max_length ? reach : cache->config.max_length;
}

tt_status tt_kv_cache_begin_single(struct tt_kv_cache *cache, struct tt_stream *stream,
                                   const int32_t *sequences, int64_t count, int64_t rows)
{
    int64_t max_length = cache->config.max_length, most = 1;
    int32_t *new_rows = cache->new_rows, *first = new_rows + rows, *keys = first + rows;
    if (rows < count || rows > cache->config.sequence_count)
        return tt_fail(TT_ERR_INTERNAL, "%" PRId64 " rows for %" PRId64 " of %" PRId64 " sequences", rows,
                       count, cache->config.sequence_count);
    memset(cache->new_first, 0, (size_t)(cache->config.sequence_count + 1) * sizeof *cache->new_first);
    for (int64_t t = 0; t < rows; t++) {
        int64_t b = t < count ? sequences[t] : -1, held = b >= 0 ? cache->lengths[b] + 1 : 1;
        if (held > max_length)
            return tt_fail(TT_ERR_USAGE,
                           "sequence %" PRId64 " would hold %" PRId64
                           " tokens, the cache has room for %" PRId64,
                           b, held, max_length);
        if (held > most) most = held;
        first[t] = (int32_t)(b >= 0 ? b * max_length : row_count(cache) - 1);
        keys[t] = (int32_t)held;
        new_rows[t] = first[t] + keys[t] - 1;
        if (b >= 0) cache->new_first[b + 1] = 1;
    }
    for (int64_t b = 0; b < cache->config.sequence_count; b++) cache->new_first[b + 1] += cache->new_first[b];
    cache->single_rows = rows;
    cache->reach = round_reach(cache, most);
    if (rows == 0) return TT_OK;
    if (cache->pool != NULL)
        TT_TRY(tt_state_pool_begin_single(cache->pool, stream, sequences, count, rows, cache->lengths));
    return tt_copy_to_device(stream, tt_buffer_data(cache->borders), new_rows,
                             (size_t)(3 * rows) * sizeof(int32_t));
}

bool tt_kv_cache_is_single(const struct tt_kv_cache *cache)
{
    return cache->single_rows > 0;
}

int64_t tt_kv_cache_reach(const struct tt_kv_cache *cache)
{
    return cache->reach;
}

void tt_kv_cache_end(struct tt_kv_cache *cache)
{
    for (int64_t b = 0; b < cache->config.sequence_count; b++) {
        cache->lengths[b] += cache->new_first[b + 1] - cache->new_first[b];
    }
}

/* Stores the new rows of `layer`. */
static tt_status store_rows(struct tt_kv_cache *cache, struct tt_stream *stream, int layer, tt_tensor k_TC,
                            tt_tensor v_TC, tt_tensor rows_N)
{
    tt_tensor added[2] = {k_TC, v_TC}, all[2];
    rows_of(cache, layer, all);
    for (int i = 0; i < 2; i++) {
        struct tt_scatter_rows_args scatter = {
            .x_ND = added[i], .rows_N = rows_N, .y_TD = all[i], .keep = true};
        TT_TRY(tt_scatter_rows(stream, &scatter));
    }
    return TT_OK;
}

void tt_kv_cache_read(const struct tt_kv_cache *cache, int layer, struct tt_attention_forward_args *args)
{
    const struct tt_kv_cache_config *config = &cache->config;
    tt_tensor all[2];
    int64_t border_count = 2 * config->sequence_count + 1;
    int32_t *borders = tt_buffer_data(cache->borders);
    rows_of(cache, layer, all);
    args->k_TKE = tt_tensor_heads(all[0], cache->heads[layer].count);
    args->v_TKE = tt_tensor_heads(all[1], cache->heads[layer].count);
    args->cu_q = cache->cu_q;
    args->cu_k = cache->cu_k;
    args->device_cu_q = tt_tensor_1d(borders, TT_I32, border_count);
    args->device_cu_k = tt_tensor_1d(borders + border_count, TT_I32, border_count);
    args->sequence_count = 2 * config->sequence_count;
    args->max_length_q = cache->max_new;
    args->max_length_k = cache->max_held;
}

tt_status tt_kv_cache_append(struct tt_kv_cache *cache, struct tt_stream *stream, int layer, tt_tensor k_TC,
                             tt_tensor v_TC, struct tt_attention_forward_args *args)
{
    int32_t *borders = tt_buffer_data(cache->borders);
    int64_t border_count = 2 * cache->config.sequence_count + 1;
    TT_TRY(store_rows(cache, stream, layer, k_TC, v_TC,
                      tt_tensor_1d(borders + 2 * border_count, TT_I32, cache->new_count)));
    tt_kv_cache_read(cache, layer, args);
    return TT_OK;
}

void tt_kv_cache_read_single(const struct tt_kv_cache *cache, int layer,
                             struct tt_attention_decode_args *args)
{
    int32_t *rows = tt_buffer_data(cache->borders);
    int64_t count = cache->single_rows;
    tt_tensor all[2];
    rows_of(cache, layer, all);
    args->k_RKE = tt_tensor_heads(all[0], cache->heads[layer].count);
    args->v_RKE = tt_tensor_heads(all[1], cache->heads[layer].count);
    args->first_T = tt_tensor_1d(rows + count, TT_I32, count);
    args->count_T = tt_tensor_1d(rows + 2 * count, TT_I32, count);
    args->max_count = cache->reach;
}

void tt_kv_cache_places_single(const struct tt_kv_cache *cache, int layer, tt_tensor *k_RC, tt_tensor *v_RC,
                               tt_tensor *rows_T)
{
    tt_tensor all[2];
    rows_of(cache, layer, all);
    *k_RC = all[0];
    *v_RC = all[1];
    *rows_T = tt_tensor_1d(tt_buffer_data(cache->borders), TT_I32, cache->single_rows);
}

tt_status tt_kv_cache_append_single(struct tt_kv_cache *cache, struct tt_stream *stream, int layer,
                                    tt_tensor k_TC, tt_tensor v_TC, struct tt_attention_decode_args *args)
{
    TT_TRY(store_rows(cache, stream, layer, k_TC, v_TC,
                      tt_tensor_1d(tt_buffer_data(cache->borders), TT_I32, cache->single_rows)));
    tt_kv_cache_read_single(cache, layer, args);
    return TT_OK;
}

void tt_kv_cache_states(const struct tt_kv_cache *cache, int layer, enum tt_state_kind kind,
                        struct tt_sequences *sequences, struct tt_states *states)
{
    tt_state_pool_lend(cache->pool, layer, kind, sequences, states);
}
