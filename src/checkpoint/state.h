/* The training state of a checkpoint back into a run, whatever number of ranks wrote it and whatever number reads it:
 * values are addressed by parameter and element. One file or one per rank (layout.h), found by their names. */
#ifndef TT_CHECKPOINT_STATE_H
#define TT_CHECKPOINT_STATE_H

#include "base/thread.h"
#include "model/model.h"
#include "optim/adamw.h"
#include "shard/unit.h"

/* An open state; read-only after opening, shared by the ranks of a process. */
struct tt_state;
/* `folder` is a checkpoint. Without state files TT_ERR_DATA: it was saved with save_only_model. */
TT_MUST_USE tt_status tt_state_open(const char *folder, struct tt_state **out);
void tt_state_close(struct tt_state *state); /* takes NULL */
/* Strict both ways, before anything is read: each parameter that trains has its moments, of its shape and without a
 * gap; `masters`: and its master; and there is nothing else. TT_ERR_DATA names the tensor. */
TT_MUST_USE tt_status tt_state_check(const struct tt_state *state, const struct tt_model *model,
                                     bool masters);

struct tt_state_target {
    const struct tt_model *model;
    struct tt_unit *const *units;
    struct tt_adamw_state *adamw; /* [unit_count] */
    struct tt_stream *stream;
    bool moments_in_host; /* offload_params */
    const struct tt_cancel *cancel;
};
/* After tt_load_units: moments, and masters where the state has them. Each rank for itself, no communication; all is
 * in its place when this returns. */
TT_MUST_USE tt_status tt_state_load(const struct tt_state *state, const struct tt_state_target *target);

#endif
