/* The executor: the only place where compute meets communication. It walks the blocks of a model forward and
 * backward, gathers each block's unit one block ahead, recomputes where told, and reduces gradients as soon
 * as a block is done.
 *
 * One micro batch with gradients:  begin -> forward -> (the caller reads pass->out->loss_N) -> backward -> end.
 * Without gradients:               begin -> forward -> (loss_N or logits_NV) -> end.
 * A rank whose micro batch is empty (T = 0) makes the same calls: it takes part in every collective and
 * computes nothing.
 *
 * What a block keeps is said per block (enum tt_level). Inputs of blocks at TT_RECOMPUTE_OFFLOAD take turns
 * in two places of the workspace: while block i computes, its input is copied out to page-locked host memory
 * on a stream of its own; in backward it is fetched while the block above computes. The last two of them are
 * still there when backward comes, so they never leave the device. The host waits for none of it.
 */
#ifndef TT_ENGINE_EXECUTOR_H
#define TT_ENGINE_EXECUTOR_H

#include "job/spec.h"
#include "launch/pulse.h"
#include "model/model.h"
#include "shard/unit.h"

struct tt_executor;

struct tt_executor_config {
    struct tt_model *model;       /* lent, as all below */
    struct tt_unit *const *units; /* [model->unit_count] */
    struct tt_workspace *workspace;
    struct tt_device *device;
    /* [model->block_count], copied: what each block keeps. Embedding and head know one way and are not looked
     * at. NULL: TT_KEEP_CHEAP. */
    const enum tt_level *levels;
    int64_t tokens_max; /* of a micro batch with gradients: sizes the host memory of TT_RECOMPUTE_OFFLOAD */
    enum tt_prefetch backward_prefetch;
    bool forward_prefetch;
    /* with so many in a micro batch, gathers ahead begin with attention; 0: never */
    int64_t late_gather_tokens;
    struct tt_pulse *pulse;         /* NULL, or beaten once a block */
    const struct tt_cancel *cancel; /* NULL, or looked at between blocks: two requests end the pass */
};
TT_MUST_USE tt_status tt_executor_create(const struct tt_executor_config *config, struct tt_executor **out);
void tt_executor_destroy(struct tt_executor *executor); /* takes NULL */

TT_MUST_USE tt_status tt_executor_forward(struct tt_executor *executor, const struct tt_pass *pass);
/* `last_micro`: of this optimizer step. */
TT_MUST_USE tt_status tt_executor_backward(struct tt_executor *executor, const struct tt_pass *pass,
                                           bool last_micro);
/* Pops everything of this pass off the workspace; also after an error. */
void tt_executor_end(struct tt_executor *executor);

/* After a loss that is not finite: runs forward again and names the first block whose output is not finite,
 * or "the loss" when all are. All ranks call it together. `where` gets a name such as "model.layers.3". */
TT_MUST_USE tt_status tt_executor_find_nonfinite(struct tt_executor *executor, const struct tt_pass *pass,
                                                 char *where, size_t where_bytes);

#endif
