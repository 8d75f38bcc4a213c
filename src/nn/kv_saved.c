#include "nn/kv_saved.h"

#include "base/alloc.h"

tt_status tt_kv_saved_init(struct tt_kv_saved *saved, int64_t count, int64_t sequences)
{
    *saved = (struct tt_kv_saved){.count = count, .sequences = sequences};
    saved->items = tt_calloc((size_t)count + 1, sizeof *saved->items);
    saved->holders = tt_calloc((size_t)(count * sequences) + 1, sizeof *saved->holders);
    return saved->items == NULL || saved->holders == NULL ? TT_ERR_MEMORY : TT_OK;
}

void tt_kv_saved_deinit(struct tt_kv_saved *saved)
{
    tt_free(saved->items);
    tt_free(saved->holders);
    *saved = (struct tt_kv_saved){0};
}

static bool *holders_of(const struct tt_kv_saved *saved, int64_t item)
{
    return saved->holders + item * saved->sequences;
}

int64_t tt_kv_saved_find(const struct tt_kv_saved *saved, int64_t sequence, int64_t length)
{
    int64_t found = -1;
    for (int64_t i = 0; i < saved->count; i++) {
        const struct tt_kv_beginning *item = &saved->items[i];
        if (item->last_used == 0 || item->length > length || !holders_of(saved, i)[sequence]) continue;
        if (found < 0 || item->length > saved->items[found].length) found = i;
    }
    return found;
}

void tt_kv_saved_use(struct tt_kv_saved *saved, int64_t item)
{
    saved->items[item].last_used = ++saved->uses;
}

int64_t tt_kv_saved_take(struct tt_kv_saved *saved, int64_t sequence, int64_t length)
{
    int64_t item = tt_kv_saved_find(saved, sequence, length);
    if (saved->count == 0) return -1;
    if (item < 0 || saved->items[item].length != length) {
        item = 0;
        for (int64_t i = 1; i < saved->count; i++)
            if (saved->items[i].last_used < saved->items[item].last_used) item = i;
        for (int64_t b = 0; b < saved->sequences; b++) holders_of(saved, item)[b] = b == sequence;
        saved->items[item].length = length;
    }
    tt_kv_saved_use(saved, item);
    return item;
}

void tt_kv_saved_drop(struct tt_kv_saved *saved, int64_t sequence, int64_t length)
{
    for (int64_t i = 0; i < saved->count; i++) {
        bool *holders = holders_of(saved, i), any = false;
        if (saved->items[i].length > length) holders[sequence] = false;
        for (int64_t b = 0; b < saved->sequences; b++) any |= holders[b];
        if (!any) saved->items[i].last_used = 0;
    }
}

void tt_kv_saved_share(struct tt_kv_saved *saved, int64_t from, int64_t to, int64_t length)
{
    for (int64_t i = 0; i < saved->count; i++)
        if (saved->items[i].length <= length && holders_of(saved, i)[from]) holders_of(saved, i)[to] = true;
}
