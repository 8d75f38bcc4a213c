#include "data/row_shuffle.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"

/* A row or a copy of one. */
struct item {
    struct tt_flow_row row;
    int64_t number, first; /* in the epoch; of its row's first copy */
};

struct tt_row_shuffle {
    struct tt_row_shuffle_config config;
    struct tt_row_flow *flow;
    struct tt_rng order, weights;
    struct item *items;
    size_t count, capacity;
    int64_t epoch, taken, next; /* next: the number of the next item of the files */
    bool full, over;            /* the buffer was filled; the files have no more rows */
    struct tt_flow_row row;     /* of which copies are left */
    int64_t copies, first;
};

tt_status tt_row_shuffle_create(const struct tt_row_shuffle_config *config, struct tt_row_shuffle **out)
{
    struct tt_row_shuffle *shuffle = tt_calloc(1, sizeof *shuffle);
    if (shuffle == NULL) return TT_ERR_MEMORY;
    shuffle->config = *config;
    if (shuffle->config.buffer_size == 0) shuffle->config.buffer_size = 1;
    shuffle->order = tt_rng_derive(tt_rng_make(config->seed), "shuffle buffer");
    shuffle->weights = tt_rng_derive(tt_rng_make(config->seed), "data mixture");
    tt_status status = tt_row_flow_create(config->sources, config->config, config->max_rows, &shuffle->flow);
    if (status == TT_OK)
        *out = shuffle;
    else
        tt_row_shuffle_destroy(shuffle);
    return status;
}

static void drop_items(struct tt_row_shuffle *shuffle)
{
    for (size_t i = 0; i < shuffle->count; i++) tt_free(shuffle->items[i].row.data);
    tt_free(shuffle->row.data);
    shuffle->row = (struct tt_flow_row){0};
    shuffle->count = 0;
    shuffle->copies = 0;
}

void tt_row_shuffle_destroy(struct tt_row_shuffle *shuffle)
{
    if (shuffle == NULL) return;
    drop_items(shuffle);
    tt_row_flow_destroy(shuffle->flow);
    tt_free(shuffle->items);
    tt_free(shuffle);
}

/* ---- Rows of the files ---- */

static int64_t copies_of(const struct tt_row_shuffle *shuffle, const struct tt_flow_place *place)
{
    const struct tt_sources *sources = shuffle->config.sources;
    double weight = sources->sources[sources->files[place->file].source].weight;
    int64_t whole = (int64_t)weight;
    double share = weight - (double)whole;
    return whole + (share > 0 && tt_rng_uniform(shuffle->weights, (uint64_t)place->rows) < share);
}

/* The next item of the files; *end: there is none. */
static tt_status read_item(struct tt_row_shuffle *shuffle, struct item *item, bool *end)
{
    *end = false;
    while (shuffle->copies == 0) {
        TT_TRY(tt_row_flow_next(shuffle->flow, &shuffle->row, end));
        if (*end) return TT_OK;
        shuffle->copies = copies_of(shuffle, &shuffle->row.place);
        shuffle->first = shuffle->next;
        if (shuffle->copies > 0) break;
        tt_free(shuffle->row.data);
        shuffle->row.data = NULL;
    }
    *item = (struct item){.row = shuffle->row, .number = shuffle->next++, .first = shuffle->first};
    if (--shuffle->copies == 0) {
        shuffle->row = (struct tt_flow_row){0};
        return TT_OK;
    }
    item->row.data = tt_calloc(item->row.bytes + 1, 1);
    if (item->row.data == NULL) return TT_ERR_MEMORY;
    memcpy(item->row.data, shuffle->row.data, item->row.bytes);
    return TT_OK;
}

static tt_status fill(struct tt_row_shuffle *shuffle)
{
    while (!shuffle->over && shuffle->count < shuffle->config.buffer_size) {
        TT_TRY(tt_grow(&shuffle->items, shuffle->count, &shuffle->capacity));
        TT_TRY(read_item(shuffle, &shuffle->items[shuffle->count], &shuffle->over));
        shuffle->count += !shuffle->over;
    }
    shuffle->full = true;
    return TT_OK;
}

/* ---- Order ---- */

static uint64_t slot_of(const struct tt_row_shuffle *shuffle, int64_t taken, size_t count)
{
    if (shuffle->config.buffer_size == 1) return 0;
    struct tt_rng rng = tt_rng_derive_index(shuffle->order, (uint64_t)shuffle->epoch);
    return tt_rng_below(rng, (uint64_t)taken, count);
}

static tt_status begin_epoch(struct tt_row_shuffle *shuffle, int64_t epoch)
{
    drop_items(shuffle);
    shuffle->epoch = epoch;
    shuffle->taken = shuffle->next = 0;
    shuffle->full = shuffle->over = false;
    return tt_row_flow_seek(shuffle->flow, NULL);
}

tt_status tt_row_shuffle_next(struct tt_row_shuffle *shuffle, struct tt_flow_row *row, bool *end)
{
    if (!shuffle->full) TT_TRY(fill(shuffle));
    *end = shuffle->count == 0;
    if (*end) return begin_epoch(shuffle, shuffle->epoch + 1);
    size_t slot = slot_of(shuffle, shuffle->taken, shuffle->count);
    struct item next = {0};
    if (!shuffle->over) TT_TRY(read_item(shuffle, &next, &shuffle->over));
    *row = shuffle->items[slot].row;
    shuffle->items[slot] = shuffle->over ? shuffle->items[--shuffle->count] : next;
    shuffle->taken++;
    return TT_OK;
}

struct tt_shuffle_place tt_row_shuffle_place(const struct tt_row_shuffle *shuffle)
{
    struct tt_shuffle_place place = {.epoch = shuffle->epoch, .taken = shuffle->taken, .from.line = 1};
    const struct item *oldest = NULL;
    for (size_t i = 0; i < shuffle->count; i++)
        if (oldest == NULL || shuffle->items[i].number < oldest->number) oldest = &shuffle->items[i];
    if (shuffle->taken == 0) return place;
    if (shuffle->over) place.count = shuffle->next;
    if (oldest == NULL) return (struct tt_shuffle_place){.epoch = shuffle->epoch + 1, .from.line = 1};
    place.oldest = oldest->first;
    place.from = oldest->row.place;
    return place;
}

/* ---- Going on ---- */

struct wanted {
    int64_t number;
    size_t slot;
};

static int compare_wanted(const void *a, const void *b)
{
    const struct wanted *left = a, *right = b;
    return (left->number > right->number) - (left->number < right->number);
}

/* The numbers of the items that are in the buffer at a place, by the draws before it; *count of them. */
static tt_status draw_again(const struct tt_row_shuffle *shuffle, const struct tt_shuffle_place *place,
                            struct wanted *wanted, size_t *count)
{
    int64_t all = place->count > 0 ? place->count : INT64_MAX, next = 0;
    size_t size = shuffle->config.buffer_size;
    *count = all < (int64_t)size ? (size_t)all : size;
    for (; (size_t)next < *count; next++) wanted[next].number = next;
    for (int64_t taken = 0; taken < place->taken; taken++) {
        if (*count == 0)
            return tt_fail(TT_ERR_DATA, "the place in the data is row %lld of an epoch of %lld",
                           (long long)place->taken, (long long)all);
        uint64_t slot = slot_of(shuffle, taken, *count);
        wanted[slot].number = next < all ? next++ : wanted[--*count].number;
    }
    for (size_t i = 0; i < *count; i++) wanted[i].slot = i;
    return TT_OK;
}

static tt_status fail_changed(void)
{
    tt_fail(TT_ERR_DATA, "the data end before the rows that were read from them");
    tt_hint("data of a run must not change: restore the files that the run began with");
    return TT_ERR_DATA;
}

/* Reads from the oldest item on, and keeps those that are wanted, in the order of their numbers. */
static tt_status read_again(struct tt_row_shuffle *shuffle, const struct wanted *wanted, size_t count)
{
    for (size_t found = 0; found < count;) {
        struct item item;
        bool end;
        TT_TRY(read_item(shuffle, &item, &end));
        if (end) return fail_changed();
        if (item.number == wanted[found].number)
            shuffle->items[wanted[found++].slot] = item;
        else
            tt_free(item.row.data);
    }
    return TT_OK;
}

static tt_status read_on(struct tt_row_shuffle *shuffle, int64_t next)
{
    while (shuffle->next < next) {
        struct item item;
        bool end;
        TT_TRY(read_item(shuffle, &item, &end));
        if (end) return fail_changed();
        tt_free(item.row.data);
    }
    return TT_OK;
}

tt_status tt_row_shuffle_seek(struct tt_row_shuffle *shuffle, const struct tt_shuffle_place *place)
{
    tt_status status = TT_OK;
    size_t size = shuffle->config.buffer_size, count = 0;
    TT_TRY(begin_epoch(shuffle, place->epoch));
    if (place->taken == 0) return TT_OK;
    if (place->count > 0 && (int64_t)size > place->count) size = (size_t)place->count;
    struct wanted *wanted = tt_calloc(size, sizeof *wanted);
    if (wanted == NULL) return TT_ERR_MEMORY;
    TT_GO(draw_again(shuffle, place, wanted, &count));
    TT_GO(tt_reserve(&shuffle->items, count, &shuffle->capacity));
    memset(shuffle->items, 0, count * sizeof *shuffle->items);
    shuffle->count = count;
    if (count > 0) qsort(wanted, count, sizeof *wanted, compare_wanted);
    TT_GO(tt_row_flow_seek(shuffle->flow, &place->from));
    shuffle->next = place->oldest;
    TT_GO(read_again(shuffle, wanted, count));
    TT_GO(read_on(shuffle,
                  place->count > 0 ? place->count : (int64_t)shuffle->config.buffer_size + place->taken));
    shuffle->taken = place->taken;
    shuffle->full = true;
    shuffle->over = place->count > 0;
out:
    tt_free(wanted);
    return status;
}
