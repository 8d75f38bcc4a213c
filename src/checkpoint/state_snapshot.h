/* What a save writes, copied into host memory so that training goes on while it is written: masters and moments of
 * what trains, and frozen tensors where a whole model is saved. The memory is taken before the device is frozen, and
 * planned.
 *
 *     take (queues the copies behind the step that ends)  ->  wait (before the next update)
 *     the writer's thread:  poll until they are there     ->  complete  ->  read
 */
#ifndef TT_CHECKPOINT_STATE_SNAPSHOT_H
#define TT_CHECKPOINT_STATE_SNAPSHOT_H

#include "checkpoint/layout.h"
#include "optim/adamw.h"

struct tt_snapshot_config {
    struct tt_device *device; /* lent, as all below */
    const struct tt_model *model;
    struct tt_unit *const *units;
    const struct tt_adamw_state *adamw; /* [unit_count]; NULL: no moments, and the snapshot has none */
    bool moments_in_host;               /* offload_params */
};

struct tt_snapshot {
    struct tt_snapshot_config config;
    struct tt_buffer *buffer;         /* owned; of the host */
    struct tt_stream *copies;         /* owned; NULL: the device is the host */
    struct tt_event *stepped, *taken; /* owned */
    /* owned: bytes at which a unit's masters begin, then exp_avg, exp_avg_sq, frozen pieces */
    size_t *unit_offsets;
    bool frozen_too; /* no adapter: the weights file holds every parameter */
};

/* A zeroed snapshot is empty; deinit takes it. Nothing trains and nothing is saved: no memory is taken. */
TT_MUST_USE tt_status tt_snapshot_init(const struct tt_snapshot_config *config, struct tt_snapshot *snapshot);
void tt_snapshot_deinit(struct tt_snapshot *snapshot);
/* Queues the copies behind all that `compute` was given. Values may not change before tt_snapshot_wait and
 * tt_snapshot_complete have returned. */
TT_MUST_USE tt_status tt_snapshot_take(struct tt_snapshot *snapshot, struct tt_stream *compute);
/* The rank's thread waits for the copies; by the next update they are long done. */
TT_MUST_USE tt_status tt_snapshot_wait(struct tt_snapshot *snapshot);
/* Whether the copies are done. Never waits; from any thread, as tt_snapshot_complete. */
TT_MUST_USE tt_status tt_snapshot_poll(struct tt_snapshot *snapshot, bool *done);
/* When they are: copies what resides in host memory (offloaded moments). */
void tt_snapshot_complete(struct tt_snapshot *snapshot);
/* Host memory: the values `slot` of piece `index` of unit `unit`, in piece.dtype (slots of the optimizer: fp32). Valid
 * from complete until the next take. */
const void *tt_snapshot_data(const struct tt_snapshot *snapshot, int unit, size_t index, enum tt_slot slot);

#endif
