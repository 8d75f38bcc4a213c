/* Several adapters over one frozen base. A rank has the memory of one adapter, as large as the largest rank of each
 * module; the set keeps this rank's parts of every adapter, and copies those of the adapter that a pass needs.
 *
 * A module that an adapter leaves out, and ranks beyond its own, are zeros, which add nothing. An adapter whose scale
 * alpha / r differs from the rank's gets B times the quotient: exact where that is a power of two. */
#ifndef TT_INFER_ADAPTER_SET_H
#define TT_INFER_ADAPTER_SET_H

#include "engine/rank.h"
#include "job/inputs.h"

/* A zeroed struct is empty. */
struct tt_adapter_set {
    struct tt_rank *rank; /* lent */
    /* [count * unit_count], device memory: this rank's parts; NULL: of a unit without any */
    struct tt_buffer **parts;
    int count, unit_count;
    int current; /* -1: none yet */
};

/* The adapters fit the model: names and shapes of all tensors. */
TT_MUST_USE tt_status tt_adapter_set_check(const struct tt_inputs *inputs);
/* Allocates the memory for `count` adapters, before the device is frozen. */
TT_MUST_USE tt_status tt_adapter_set_init(struct tt_rank *rank, int count, struct tt_adapter_set *set);
void tt_adapter_set_deinit(struct tt_adapter_set *set);
/* Reads this rank's parts of all adapters. */
TT_MUST_USE tt_status tt_adapter_set_load(struct tt_adapter_set *set, const struct tt_inputs *inputs);
/* Makes `adapter` that of the following passes; no pass runs. Collective: all ranks choose the same. */
TT_MUST_USE tt_status tt_adapter_set_choose(struct tt_adapter_set *set, int adapter);

#endif
