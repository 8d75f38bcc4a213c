/* The host's lead over its device: the number of blocks that the host has queued and the device has not finished. It is
 * limited where ranks copy each other's shards, for two reasons that docs/performance.md measures:
 *
 * - A host without a limit queues a whole step ahead, until the driver's launch queue is full. It then seems to wait
 *   inside the driver with the lock of its GPU's context, and a copy from another GPU takes the locks of both contexts:
 *   one rank ran, and the others stood still until it had queued its whole pass.
 * - A copy that waits on its stream for an event delays copies that other GPUs make of this one's memory. When a block
 *   is queued, with a limited lead, the buffer that its unit is gathered into is free already.
 *
 * PyTorch FSDP has a limit too (limit_all_gathers), for the memory of its allocator.
 */
#ifndef TT_ENGINE_LEAD_H
#define TT_ENGINE_LEAD_H

#include "backend/device.h"

enum { TT_LEAD_BLOCKS = 2 }; /* as many as there are buffers for gathered blocks */

struct tt_lead {
    struct tt_event *reached[TT_LEAD_BLOCKS]; /* the ends of the blocks queued last */
    unsigned queued;
};

TT_MUST_USE tt_status tt_lead_init(struct tt_device *device, struct tt_lead *lead);
void tt_lead_deinit(struct tt_lead *lead); /* a zeroed struct is empty */
/* Call before a block is queued on the compute stream. Waits, outside of the driver, until the device has finished all
 * blocks but the TT_LEAD_BLOCKS - 1 queued last; the device's watch ends the wait as every other one
 * (tt_device_set_watch). */
TT_MUST_USE tt_status tt_lead_next(struct tt_lead *lead, struct tt_stream *compute);

#endif
