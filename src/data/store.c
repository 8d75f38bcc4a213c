#include "data/store.h"

#include <string.h>

#include "base/alloc.h"
#include "data/store_file.h"

void tt_store_deinit(struct tt_store *store)
{
    if (store->file != NULL) {
        tt_store_file_close(store->file);
    } else {
        tt_free(store->ids);
        tt_free(store->supervised);
        tt_free(store->samples);
        tt_str_deinit(&store->texts);
    }
    tt_columns_deinit(&store->columns);
    *store = (struct tt_store){0};
}

static tt_status resize_tokens(struct tt_store *store, size_t capacity)
{
    int32_t *ids = tt_realloc(store->ids, capacity, sizeof *ids);
    if (ids == NULL) return TT_ERR_MEMORY;
    store->ids = ids;
    uint8_t *supervised = tt_realloc(store->supervised, capacity, sizeof *supervised);
    if (supervised == NULL) return TT_ERR_MEMORY;
    store->supervised = supervised;
    store->token_capacity = capacity;
    return TT_OK;
}

tt_status tt_store_reserve(struct tt_store *store, size_t tokens, size_t samples)
{
    if (tokens > store->token_capacity) TT_TRY(resize_tokens(store, tokens));
    if (samples > store->sample_capacity) {
        struct tt_store_sample *grown = tt_realloc(store->samples, samples, sizeof *grown);
        if (grown == NULL) return TT_ERR_MEMORY;
        store->samples = grown;
        store->sample_capacity = samples;
    }
    return TT_OK;
}

static tt_status append_text(struct tt_store *store, const char *text, size_t *position)
{
    *position = 0;
    if (text == NULL) return TT_OK;
    size_t at = store->texts.bytes;
    TT_TRY(tt_str_append(&store->texts, text, strlen(text) + 1));
    *position = at + 1;
    return TT_OK;
}

tt_status tt_store_append(struct tt_store *store, const int32_t *ids, const uint8_t *supervised,
                          int32_t count, const char *prompt, const char *completion)
{
    size_t needed = store->token_count + (size_t)count;
    if (needed > store->token_capacity) {
        size_t capacity = store->token_capacity * 2 > 1024 ? store->token_capacity * 2 : 1024;
        TT_TRY(resize_tokens(store, capacity > needed ? capacity : needed));
    }
    if (tt_grow(&store->samples, store->sample_count, &store->sample_capacity) != 0) {
        return TT_ERR_MEMORY;
    }
    struct tt_store_sample sample = {.first = store->token_count, .count = count};
    TT_TRY(append_text(store, prompt, &sample.prompt));
    TT_TRY(append_text(store, completion, &sample.completion));
    memcpy(store->ids + store->token_count, ids, (size_t)count * sizeof *ids);
    memcpy(store->supervised + store->token_count, supervised, (size_t)count);
    for (int32_t i = 1; i < count; i++) sample.supervised_count += supervised[i];
    store->token_count = needed;
    store->samples[store->sample_count++] = sample;
    return TT_OK;
}

tt_status tt_store_append_sample(struct tt_store *store, const struct tt_store *from, size_t index)
{
    const struct tt_store_sample *sample = &from->samples[index];
    TT_TRY(tt_store_check(from, index, 0, sample->count));
    TT_TRY(tt_store_append(store, from->ids + sample->first, from->supervised + sample->first, sample->count,
                           tt_store_text(from, sample->prompt), tt_store_text(from, sample->completion)));
    store->samples[store->sample_count - 1].value = sample->value;
    return TT_OK;
}

size_t tt_store_group_size(const struct tt_store *store)
{
    return store->group_size > 0 ? store->group_size : 1;
}

size_t tt_store_group_count(const struct tt_store *store)
{
    return store->sample_count / tt_store_group_size(store);
}

static struct tt_column_counts counts_of(const struct tt_store *store)
{
    return (struct tt_column_counts){store->token_count, store->sample_count, tt_store_group_count(store)};
}

tt_status tt_store_init_like(struct tt_store *store, const struct tt_store *from)
{
    struct tt_column_counts counts = counts_of(from);
    store->group_size = from->group_size;
    for (int c = 0; c < from->columns.count; c++) {
        const struct tt_column *column = &from->columns.list[c];
        TT_TRY(tt_columns_add(&store->columns, column->name, column->per, &counts, NULL));
    }
    return TT_OK;
}

tt_status tt_store_append_group(struct tt_store *store, const struct tt_store *from, size_t group)
{
    size_t size = tt_store_group_size(from), first = group * size;
    struct tt_column_counts at = counts_of(store), from_at = {from->samples[first].first, first, group},
                            count = {0, size, 1};
    for (size_t i = first; i < first + size; i++) {
        count.tokens += (size_t)from->samples[i].count;
        TT_TRY(tt_store_append_sample(store, from, i));
    }
    tt_columns_copy(&store->columns, &at, &from->columns, &from_at, &count);
    return TT_OK;
}

tt_status tt_store_check(const struct tt_store *store, size_t index, int32_t first, int32_t count)
{
    return store->file != NULL ? tt_store_file_check(store, index, first, count) : TT_OK;
}

struct tt_sample tt_store_sample(const struct tt_store *store, size_t index)
{
    const struct tt_store_sample *sample = &store->samples[index];
    return (struct tt_sample){store->ids + sample->first, store->supervised + sample->first, sample->count,
                              sample->supervised_count, sample->value};
}

const char *tt_store_text(const struct tt_store *store, size_t position)
{
    return position > 0 ? store->texts.data + position - 1 : NULL;
}
