/* Restores the training state of a checkpoint, for any number of writing and reading ranks: values are addressed by
 * parameter and element. One file or one per rank (layout.h), found by their names. */
#ifndef TT_CHECKPOINT_STATE_H
#define TT_CHECKPOINT_STATE_H

#include "base/thread.h"
#include "model/model.h"
#include "optim/moments.h"
#include "shard/unit.h"

/* An open state; read-only after opening, shared by the ranks of a process. */
struct tt_state;
/* Opens the state of a checkpoint folder. Without state files (save_only_model) TT_ERR_DATA. */
TT_MUST_USE tt_status tt_state_open(const char *folder, struct tt_state **out);
void tt_state_close(struct tt_state *state); /* takes NULL */
/* Checks before any value is read that each trainable parameter has its moments of `optimizer` and, with `masters`, its
 * master, of its shape and without a gap, and that the state has no other tensors. TT_ERR_DATA names the tensor. */
TT_MUST_USE tt_status tt_state_check(const struct tt_state *state, const struct tt_model *model,
                                     const struct tt_optimizer *optimizer, bool masters);

struct tt_state_target {
    const struct tt_model *model;
    struct tt_unit *const *units;
    const struct tt_optimizer *optimizer;
    struct tt_moments *moments; /* [unit_count] */
    struct tt_stream *stream;
    bool moments_in_host; /* offload_params */
    const struct tt_cancel *cancel;
};
/* Called after tt_load_units: loads the moments, and the masters where the state has them. Each rank loads its own,
 * without communication; the values are in place when this returns. */
TT_MUST_USE tt_status tt_state_load(const struct tt_state *state, const struct tt_state_target *target);

#endif
