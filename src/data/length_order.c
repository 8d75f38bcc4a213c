#include "data/length_order.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"

enum {
    RUN_BATCHES = 50,
    RUNS_MIN = 4,
    KEPT = 2, /* epochs: what loads ahead may be in the next one */
};

struct kept_epoch {
    int64_t epoch; /* -1: none */
    struct tt_length_unit *units;
};

struct tt_length_order {
    struct tt_length_order_config config;
    pthread_mutex_t lock;
    struct kept_epoch kept[KEPT];
};

static int compare(const void *a, const void *b)
{
    const struct tt_length_unit *x = a, *y = b;
    if (x->tokens != y->tokens) return x->tokens > y->tokens ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

void tt_length_order_sort(struct tt_length_unit *units, uint64_t count, uint64_t batch_units)
{
    uint64_t batches = count / batch_units / RUNS_MIN, longest = 0;
    if (batches > RUN_BATCHES) batches = RUN_BATCHES;
    if (batches == 0) batches = 1;
    uint64_t run = batches * batch_units;
    for (uint64_t i = 0; i < count; i++) units[i].position = i;
    for (uint64_t first = 0; first < count; first += run) {
        qsort(units + first, count - first < run ? count - first : run, sizeof *units, compare);
        if (units[first].tokens > units[longest].tokens) longest = first;
    }
    if (count == 0) return;
    struct tt_length_unit unit = units[0];
    units[0] = units[longest];
    units[longest] = unit;
}

tt_status tt_length_order_create(const struct tt_length_order_config *config, struct tt_length_order **out)
{
    struct tt_length_order *order = tt_calloc(1, sizeof *order);
    if (order == NULL) return TT_ERR_MEMORY;
    order->config = *config;
    (void)pthread_mutex_init(&order->lock, NULL);
    for (int i = 0; i < KEPT; i++) {
        order->kept[i].epoch = -1;
        order->kept[i].units = tt_calloc(config->unit_count, sizeof *order->kept[i].units);
        if (order->kept[i].units != NULL) continue;
        tt_length_order_destroy(order);
        return TT_ERR_MEMORY;
    }
    *out = order;
    return TT_OK;
}

void tt_length_order_destroy(struct tt_length_order *order)
{
    if (order == NULL) return;
    for (int i = 0; i < KEPT; i++) tt_free(order->kept[i].units);
    (void)pthread_mutex_destroy(&order->lock);
    tt_free(order);
}

static void fill(const struct tt_length_order_config *config, struct kept_epoch *kept, int64_t epoch)
{
    struct tt_rng rng = tt_rng_derive_index(config->rng, (uint64_t)epoch);
    for (uint64_t i = 0; i < config->unit_count; i++) {
        uint64_t unit = tt_rng_permute(rng, i, config->unit_count);
        kept->units[i] =
            (struct tt_length_unit){.unit = unit, .tokens = config->tokens(config->context, unit)};
    }
    tt_length_order_sort(kept->units, config->unit_count, config->batch_units);
    kept->epoch = epoch;
}

uint64_t tt_length_order_unit(struct tt_length_order *order, int64_t epoch, uint64_t position)
{
    struct kept_epoch *kept = &order->kept[epoch % KEPT];
    (void)pthread_mutex_lock(&order->lock);
    if (kept->epoch != epoch) fill(&order->config, kept, epoch);
    uint64_t unit = kept->units[position].unit;
    (void)pthread_mutex_unlock(&order->lock);
    return unit;
}
