/* The communicators that a rank makes for itself: NCCL for GPUs, parts for HYBRID_SHARD. */
#ifndef TT_ENGINE_RANK_COMMS_H
#define TT_ENGINE_RANK_COMMS_H

#include "comm/comm.h"

struct tt_rank_config;

struct tt_rank_comms {
    struct tt_comm *world;     /* all ranks */
    struct tt_comm *shard;     /* those that split a unit */
    struct tt_comm *replicate; /* those that hold the same piece; NULL unless HYBRID_SHARD */
    struct tt_comm *owned[3];  /* of the above, in order of their making */
    int owned_count;
};

/* Collective, unless the configuration brings all communicators (plans do). On error nothing is left. */
TT_MUST_USE tt_status tt_rank_comms_init(const struct tt_rank_config *config, struct tt_device *device,
                                         struct tt_rank_comms *comms);
void tt_rank_comms_deinit(
    struct tt_rank_comms *comms); /* before the device closes; a zeroed struct is empty */

#endif
