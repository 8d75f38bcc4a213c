/* Packs by best-fit decreasing: longest sample first, each into the pack with the least remaining space. O(n) steps of
 * a 64-ary search tree over spaces; deterministic. */
#ifndef TT_DATA_PACKING_H
#define TT_DATA_PACKING_H

#include "data/store.h"

/* A zeroed struct is empty. */
struct tt_packs {
    size_t count;
    uint32_t *first;   /* [count + 1] into samples */
    uint32_t *samples; /* of pack p: samples[first[p]] .. samples[first[p + 1] - 1], in order of index */
};

/* Every sample must fit into max_length. */
TT_MUST_USE tt_status tt_packs_make(const struct tt_store *store, int64_t max_length, struct tt_packs *packs);
void tt_packs_deinit(struct tt_packs *packs);

#endif
