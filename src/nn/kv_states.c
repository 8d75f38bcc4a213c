#include "nn/kv_states.h"

#include <string.h>

#include "base/alloc.h"

struct tt_state_pool {
    struct tt_kv_states *layers;
    int64_t layer_count, sequence_count;
    int64_t each;             /* states of a layer and kind */
    struct tt_buffer *states; /* f32: of each layer, those of the convolution, then those of the scan */
    /* i32 [3 B + 1], host and device memory: the borders of the pass, then where a sequence's state comes from and
     * goes to */
    int32_t *places;
    struct tt_buffer *device_places;
    int64_t count; /* sequences of the pass */
};

/* Elements of one state. */
static int64_t state_count(const struct tt_kv_states *layer, enum tt_state_kind kind)
{
    if (kind == TT_STATE_CONV) return layer->conv_rows * layer->conv_columns;
    return layer->heads * layer->rows * layer->columns;
}

/* Elements of all states before those of `kind` of a layer. */
static int64_t first_of(const struct tt_state_pool *pool, int64_t layer, enum tt_state_kind kind)
{
    int64_t count = 0;
    for (int64_t i = 0; i < layer; i++)
        for (int k = 0; k < TT_STATE_KINDS; k++)
            count += state_count(&pool->layers[i], (enum tt_state_kind)k) * pool->each;
    if (kind == TT_STATE_SCAN) count += state_count(&pool->layers[layer], TT_STATE_CONV) * pool->each;
    return count;
}

tt_status tt_state_pool_create(struct tt_device *device, const struct tt_kv_states *layers,
                               int64_t layer_count, int64_t sequence_count, int64_t more_count,
                               struct tt_state_pool **out)
{
    tt_status status = TT_OK;
    struct tt_state_pool *pool = tt_calloc(1, sizeof *pool);
    if (pool == NULL) return TT_ERR_MEMORY;
    size_t places = (size_t)(3 * sequence_count + 1);
    pool->layer_count = layer_count;
    pool->sequence_count = sequence_count;
    pool->each = sequence_count + more_count;
    pool->layers = tt_calloc((size_t)layer_count, sizeof *pool->layers);
    pool->places = tt_calloc(places, sizeof *pool->places);
    if (pool->layers == NULL || pool->places == NULL) {
        status = TT_ERR_MEMORY;
        goto out;
    }
    memcpy(pool->layers, layers, (size_t)layer_count * sizeof *layers);
    TT_GO(tt_buffer_create(device, (size_t)first_of(pool, layer_count, TT_STATE_CONV) * sizeof(float),
                           TT_PURPOSE_ACTIVATIONS, &pool->states));
    TT_GO(tt_buffer_create(device, places * sizeof *pool->places, TT_PURPOSE_ACTIVATIONS,
                           &pool->device_places));
    *out = pool;
    pool = NULL;
out:
    tt_state_pool_destroy(pool);
    return status;
}

void tt_state_pool_destroy(struct tt_state_pool *pool)
{
    if (pool == NULL) return;
    tt_buffer_destroy(pool->states);
    tt_buffer_destroy(pool->device_places);
    tt_free(pool->layers);
    tt_free(pool->places);
    tt_free(pool);
}

static tt_status send_places(const struct tt_state_pool *pool, struct tt_stream *stream)
{
    return tt_copy_to_device(stream, tt_buffer_data(pool->device_places), pool->places,
                             (size_t)(3 * pool->count + 1) * sizeof *pool->places);
}

tt_status tt_state_pool_begin(struct tt_state_pool *pool, struct tt_stream *stream, const int32_t *cu_seqlens,
                              const int32_t *lengths)
{
    int64_t count = pool->count = pool->sequence_count;
    int32_t *from = pool->places + count + 1, *to = from + count;
    memcpy(pool->places, cu_seqlens, (size_t)(count + 1) * sizeof *cu_seqlens);
    for (int64_t b = 0; b < count; b++) {
        bool grows = cu_seqlens[b + 1] > cu_seqlens[b];
        from[b] = grows && lengths[b] > 0 ? (int32_t)b : -1;
        to[b] = grows ? (int32_t)b : -1;
    }
    return send_places(pool, stream);
}

tt_status tt_state_pool_begin_single(struct tt_state_pool *pool, struct tt_stream *stream,
                                     const int32_t *sequences, int64_t count, int64_t rows,
                                     const int32_t *lengths)
{
    int32_t *from = pool->places + rows + 1, *to = from + rows;
    pool->count = rows;
    for (int64_t t = 0; t < rows; t++) {
        pool->places[t + 1] = (int32_t)t + 1;
        to[t] = t < count ? sequences[t] : -1;
        from[t] = t < count && lengths[sequences[t]] > 0 ? sequences[t] : -1;
    }
    pool->places[0] = 0;
    return send_places(pool, stream);
}

tt_status tt_state_pool_copy(const struct tt_state_pool *pool, struct tt_stream *stream, int64_t from,
                             int64_t to)
{
    for (int64_t layer = 0; layer < pool->layer_count; layer++) {
        for (int k = 0; k < TT_STATE_KINDS; k++) {
            enum tt_state_kind kind = (enum tt_state_kind)k;
            int64_t count = state_count(&pool->layers[layer], kind);
            float *states = (float *)tt_buffer_data(pool->states) + first_of(pool, layer, kind);
            if (count == 0) continue;
            TT_TRY(tt_copy_on_device(stream, states + to * count, states + from * count,
                                     (size_t)count * sizeof *states));
        }
    }
    return TT_OK;
}

/* [B, ..] */
static tt_tensor states_of(const struct tt_state_pool *pool, int layer, enum tt_state_kind kind)
{
    const struct tt_kv_states *own = &pool->layers[layer];
    float *data = (float *)tt_buffer_data(pool->states) + first_of(pool, layer, kind);
    if (kind == TT_STATE_SCAN)
        return tt_tensor_4d(data, TT_F32, pool->each, own->heads, own->rows, own->columns);
    return tt_tensor_3d(data, TT_F32, pool->each, own->conv_rows, own->conv_columns);
}

void tt_state_pool_lend(const struct tt_state_pool *pool, int layer, enum tt_state_kind kind,
                        struct tt_sequences *sequences, struct tt_states *states)
{
    int32_t *places = tt_buffer_data(pool->device_places);
    int64_t count = pool->count;
    *sequences = (struct tt_sequences){pool->places, tt_tensor_1d(places, TT_I32, count + 1), count};
    *states =
        (struct tt_states){states_of(pool, layer, kind), tt_tensor_1d(places + count + 1, TT_I32, count),
                           tt_tensor_1d(places + 2 * count + 1, TT_I32, count)};
}
