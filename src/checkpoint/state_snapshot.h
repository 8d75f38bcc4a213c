/* The values of a save, copied into host memory so that training continues during the save: masters and moments of
 * trainable parameters, and frozen tensors where a whole model is saved. The memory is planned and allocated before the
 * device is frozen.
 *
 *     take (queues the copies after the last step)   ->  wait (before the next update)
 *     the writer's thread:  poll until they are done ->  complete  ->  read
 */
#ifndef TT_CHECKPOINT_STATE_SNAPSHOT_H
#define TT_CHECKPOINT_STATE_SNAPSHOT_H

#include "checkpoint/layout.h"
#include "optim/moments.h"

struct tt_snapshot_config {
    struct tt_device *device; /* lent, as all below */
    const struct tt_model *model;
    struct tt_unit *const *units;
    const struct tt_optimizer *optimizer; /* of `moments` */
    const struct tt_moments *moments;     /* [unit_count]; NULL: a snapshot without optimizer state */
    bool moments_in_host;                 /* offload_params */
};

struct tt_snapshot {
    struct tt_snapshot_config config;
    struct tt_buffer *buffer;         /* owned; of the host */
    struct tt_stream *copies;         /* owned; NULL: the device is the host */
    struct tt_event *stepped, *taken; /* owned */
    /* owned: offset in bytes of a unit's masters; moments and frozen pieces follow them */
    size_t *unit_offsets;
    bool frozen_too; /* no adapter: the weights file holds every parameter */
};

/* A zeroed snapshot is empty; deinit takes it. Without trainable parameters it allocates nothing. */
TT_MUST_USE tt_status tt_snapshot_init(const struct tt_snapshot_config *config, struct tt_snapshot *snapshot);
void tt_snapshot_deinit(struct tt_snapshot *snapshot);
/* Queues the copies after all work queued in `compute`. Values must not change before tt_snapshot_wait and
 * tt_snapshot_complete have returned. */
TT_MUST_USE tt_status tt_snapshot_take(struct tt_snapshot *snapshot, struct tt_stream *compute);
/* Waits for the copies, in the rank's thread; by the next update they are usually done. */
TT_MUST_USE tt_status tt_snapshot_wait(struct tt_snapshot *snapshot);
/* *done: the copies are done. Never waits; any thread may call it, as tt_snapshot_complete. */
TT_MUST_USE tt_status tt_snapshot_poll(struct tt_snapshot *snapshot, bool *done);
/* Copies, after that, the values that reside in host memory (offloaded moments). */
void tt_snapshot_complete(struct tt_snapshot *snapshot);
/* Host memory: the values `slot` of piece `index` of unit `unit`, in piece.dtype, or that of the optimizer's value
 * (tt_slot_value). Valid from complete until the next take. */
const void *tt_snapshot_data(const struct tt_snapshot *snapshot, int unit, size_t index, int slot);

#endif
