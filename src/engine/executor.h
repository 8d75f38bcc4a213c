/* The executor: the only place where compute meets communication. It runs the blocks of a model forward and backward,
 * gathers each block's unit one block ahead, recomputes by the blocks' levels, and reduces gradients after each block.
 *
 * One micro batch with gradients:  begin -> forward -> (the caller reads the results) -> backward -> end.
 * Without gradients:               begin -> forward -> (loss_N or logits_NV) -> end.
 * A rank whose micro batch is empty (T = 0) makes the same calls: it joins every collective and computes nothing. A
 * block that asks other ranks, or whose unit is gathered in parts, runs there too, with empty tensors (nn/pass.h).
 *
 * Side values (nn/side.h) lie below all blocks' memory: they live from begin to end.
 *
 * Each block has a level (enum tt_level). Inputs of blocks at TT_RECOMPUTE_OFFLOAD alternate between two places of the
 * workspace: while block i computes, its input is copied to page-locked host memory on a separate stream; in backward
 * it is copied back while the block above computes. The last two inputs are still in place when backward starts, so
 * they stay on the device. The host waits for none of these copies.
 */
#ifndef TT_ENGINE_EXECUTOR_H
#define TT_ENGINE_EXECUTOR_H

#include "engine/mesh.h"
#include "engine/phases.h"
#include "job/parts.h"
#include "launch/pulse.h"
#include "model/model.h"
#include "shard/unit.h"

struct tt_executor;

struct tt_executor_config {
    struct tt_model *model;               /* lent, as all below */
    struct tt_unit *const *units;         /* [model->unit_count] */
    const struct tt_shard_context *shard; /* theirs */
    struct tt_workspace *workspace;
    struct tt_device *device;
    /* [model->block_count], copied. Ignored for embedding and head. NULL: TT_KEEP_CHEAP. */
    const enum tt_level *levels;
    const struct tt_mesh *mesh; /* lent: the groups that blocks may ask */
    int64_t rows_max;           /* with a label, of any micro batch of any rank */
    int64_t tokens_max; /* of a micro batch with gradients: the size of TT_RECOMPUTE_OFFLOAD's host buffers */
    enum tt_prefetch backward_prefetch;
    bool forward_prefetch;
    bool limits_lead; /* where ranks copy each other's shards the host waits for the device (engine/lead.h) */
    /* with at least so many in a micro batch, a prefetch starts with the running block's attention; 0: never */
    int64_t late_gather_tokens;
    struct tt_pulse *pulse;         /* NULL, or a heartbeat is sent for each block */
    const struct tt_cancel *cancel; /* NULL, or polled between blocks: two requests end the pass */
};
TT_MUST_USE tt_status tt_executor_create(const struct tt_executor_config *config, struct tt_executor **out);
void tt_executor_destroy(struct tt_executor *executor); /* takes NULL */

/* Calls around each forward and backward of a block; the recomputation is part of its backward. */
struct tt_block_watch {
    void (*begin)(void *context);
    void (*end)(void *context, int block, bool backward);
    void *context;
};
/* `watch` is called from now on; lent. NULL: none is. */
void tt_executor_watch(struct tt_executor *executor, const struct tt_block_watch *watch);
/* The passes add their times, until the next tt_executor_end, to `phases` (lent; NULL: none). */
void tt_executor_time(struct tt_executor *executor, struct tt_phases *phases);
TT_MUST_USE tt_status tt_executor_forward(struct tt_executor *executor, const struct tt_pass *pass);
/* `last_micro`: of this optimizer step. */
TT_MUST_USE tt_status tt_executor_backward(struct tt_executor *executor, const struct tt_pass *pass,
                                           bool last_micro);
/* Pops everything of this pass off the workspace; also after an error. */
void tt_executor_end(struct tt_executor *executor);

/* Called after a non-finite loss: runs forward again and stores the name of the first block with a non-finite output,
 * such as "model.layers.3", or "the loss", in `where`. Collective. */
TT_MUST_USE tt_status tt_executor_find_nonfinite(struct tt_executor *executor, const struct tt_pass *pass,
                                                 char *where, size_t where_bytes);

#endif
