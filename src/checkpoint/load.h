/* Loading of shards: every rank reads only the byte ranges of its slices, with threads of its own
 * (checkpoint/reader.h). Initial values come from counters keyed by (seed, parameter name, element): the same numbers
 * on any number of ranks. */
#ifndef TT_CHECKPOINT_LOAD_H
#define TT_CHECKPOINT_LOAD_H

#include "base/thread.h"
#include "io/model_folder.h"
#include "model/model.h"
#include "shard/unit.h"

/* Ranks [first, first + count) of `all` compare their slices of two tensors; zeroed: everything is compared. */
struct tt_compare_share {
    int first, count, all;
};

/* The first values of a new adapter (checkpoint/first_values.h), or none. */
struct tt_first_adapter {
    const struct tt_safetensors *file;
    bool changes_base; /* the base's weights are loaded without them (checkpoint/residual.h) */
    bool negated;      /* the file has those of B with the other sign, as plain adapters do */
};

struct tt_load_source {
    /* NULL: base weights get initial values (training from random weights) */
    const struct tt_model_folder *folder;
    /* NULL: adapters get their initial values: of `first`, else numbers */
    const struct tt_safetensors *adapter;
    struct tt_first_adapter first;
    bool adapter_only; /* the base is in place: only the adapter's values are loaded */
    uint64_t seed;
    /* NULL or lent: any request ends the loading with TT_ERR_CANCELLED. For the start of a run only: the reading back
     * at its end must not be cancelled */
    const struct tt_cancel *cancel;
    struct tt_compare_share share; /* of the tensors that only repeat others */
    /* Empty, or u8 [bytes]: device memory, lent during the loading, in which the device quantizes to FP8 */
    tt_tensor scratch;
};

/* Checks names, shapes and types before any value is loaded: TT_ERR_DATA lists tensors that are missing, unexpected or
 * of another shape, in the model folder and in the adapter. Tensors that repeat others are compared with them, and not
 * loaded (checkpoint/unread.h). */
TT_MUST_USE tt_status tt_load_check(const struct tt_model *model, const struct tt_load_source *source);

/* Loads all units of one rank and waits until the values are in place; without communication. Values that follow
 * from weights (TT_INIT_DERIVED) are 0 where no adapter has them. On the plan device it has
 * no effect. */
TT_MUST_USE tt_status tt_load_units(const struct tt_model *model, struct tt_unit *const *units,
                                    struct tt_stream *stream, const struct tt_load_source *source);

#endif
