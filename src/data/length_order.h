/* An order of the units of an epoch in which neighbours have about the same length: transformers' LengthGroupedSampler
 * (trainer_pt_utils.get_length_grouped_indices, 5.24), whose batch is here the global batch. */
#ifndef TT_DATA_LENGTH_ORDER_H
#define TT_DATA_LENGTH_ORDER_H

#include "base/error.h"
#include "base/rng.h"

struct tt_length_unit {
    uint64_t unit;
    uint64_t position; /* before: equal lengths keep this order */
    int64_t tokens;
};

/* Cuts the units, which are in the order of a permutation, into runs of 50 batches, or of as many as make four runs,
 * and sorts each run by length, the longest first. Then the first unit of all and the first of the run with the longest
 * unit change places: a batch that needs too much memory comes at once. Writes `position` too. */
void tt_length_order_sort(struct tt_length_unit *units, uint64_t count, uint64_t batch_units);

struct tt_length_order_config {
    uint64_t unit_count, batch_units;                      /* both at least 1 */
    int64_t (*tokens)(const void *context, uint64_t unit); /* of a unit; lent */
    const void *context;
    struct tt_rng rng; /* epochs derive their own */
};

/* The orders of epochs; those of two are kept. Any thread may ask. */
struct tt_length_order;
TT_MUST_USE tt_status tt_length_order_create(const struct tt_length_order_config *config,
                                             struct tt_length_order **out);
void tt_length_order_destroy(struct tt_length_order *order); /* takes NULL */
/* The unit at `position` < unit_count of an epoch. */
uint64_t tt_length_order_unit(struct tt_length_order *order, int64_t epoch, uint64_t position);

#endif
