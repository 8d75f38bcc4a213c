/* Inputs of blocks that reside in page-locked host memory between forward and backward. The executor decides when they
 * move; this file queues the copies and their dependencies.
 *
 * Offloaded block k (counted among the offloaded blocks) has place k % 2 of two places in the workspace; only blocks
 * with a successor at the same place are copied out.
 *
 *   forward, block i:    take (before its input is written: wait until the place was copied out)
 *                        -> the block below writes it -> put (copy out, beside the compute of block i)
 *   backward, block i:   get (compute waits for the input) -> recompute and backward -> done (the place is free)
 *                        -> fetch the next one of this place, beside the block in between
 */
#ifndef TT_ENGINE_EXECUTOR_OFFLOAD_H
#define TT_ENGINE_EXECUTOR_OFFLOAD_H

#include "model/model.h"

struct tt_offload;

/* *out stays NULL when no level is TT_RECOMPUTE_OFFLOAD; all functions accept NULL and have no effect then. */
TT_MUST_USE tt_status tt_offload_create(struct tt_device *device, const struct tt_model *model,
                                        const enum tt_level *levels, int64_t tokens_max,
                                        struct tt_offload **out);
void tt_offload_destroy(struct tt_offload *offload);

/* Pushes the places for this pass. */
TT_MUST_USE tt_status tt_offload_begin(struct tt_offload *offload, const struct tt_pass *pass);
/* The place of the input of `block`; empty when it is not offloaded. */
TT_MUST_USE tt_status tt_offload_take(struct tt_offload *offload, const struct tt_pass *pass, int block,
                                      tt_tensor *x_TD);
/* The work queued on the compute stream has written the input of `block`. */
TT_MUST_USE tt_status tt_offload_put(struct tt_offload *offload, const struct tt_pass *pass, int block);
/* Makes the compute stream wait until the input of `block` is in place. */
TT_MUST_USE tt_status tt_offload_get(struct tt_offload *offload, const struct tt_pass *pass, int block);
/* All readers of the input of `block` are queued: its place may be filled again. */
TT_MUST_USE tt_status tt_offload_done(struct tt_offload *offload, const struct tt_pass *pass, int block);

#endif
