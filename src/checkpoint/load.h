/* Filling the shards: every rank reads just the byte ranges that its slices cover, with threads of its own
 * (checkpoint/reader.h), and makes what no file holds from counters keyed by (seed, parameter name, element): the same
 * numbers on any number of ranks. */
#ifndef TT_CHECKPOINT_LOAD_H
#define TT_CHECKPOINT_LOAD_H

#include "base/thread.h"
#include "io/model_folder.h"
#include "model/model.h"
#include "shard/unit.h"

struct tt_load_source {
    const struct tt_model_folder *folder; /* NULL: base weights are made (training from random weights) */
    const struct tt_safetensors *adapter; /* NULL: adapters get their initial values */
    uint64_t seed;
    /* NULL or lent: any request ends the loading with TT_ERR_CANCELLED. For the start of a run; what is read back at
     * its end is not to be left out */
    const struct tt_cancel *cancel;
};

/* Strict both ways, before anything is read: lists tensors that are missing, unexpected or of another shape, in the
 * model folder and in the adapter (TT_ERR_DATA). Names that Hugging Face writes beside the weights and that carry
 * nothing (rotary_emb.inv_freq; lm_head.weight of a tied model) are passed over. */
TT_MUST_USE tt_status tt_load_check(const struct tt_model *model, const struct tt_load_source *source);

/* Loads all units of one rank; each rank calls it for itself, no communication. On the plan device nothing happens.
 * Everything is in its place when this returns. */
TT_MUST_USE tt_status tt_load_units(const struct tt_model *model, struct tt_unit *const *units,
                                    struct tt_stream *stream, const struct tt_load_source *source);

#endif
