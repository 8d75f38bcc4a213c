#include "engine/rank_comms.h"

#include "engine/rank.h"

static void keep(struct tt_rank_comms *comms, struct tt_comm *comm)
{
    comms->owned[comms->owned_count++] = comm;
}

/* HYBRID_SHARD: a unit is split over the ranks of a machine; the ranks with one number on their machines hold
 * the same. */
static tt_status split(const struct tt_rank_config *config, struct tt_rank_comms *comms)
{
    TT_TRY(tt_comm_split(comms->world, config->machine, &comms->shard));
    keep(comms, comms->shard);
    TT_TRY(tt_comm_split(comms->world, config->local_rank, &comms->replicate));
    keep(comms, comms->replicate);
    return TT_OK;
}

tt_status tt_rank_comms_init(const struct tt_rank_config *config, struct tt_device *device,
                             struct tt_rank_comms *comms)
{
    tt_status status = TT_OK;
    *comms = (struct tt_rank_comms){.world = config->world, .shard = config->comm};
    if (config->comm != NULL) {
        comms->replicate = config->replicate_comm;
        return TT_OK;
    }
    if (!tt_device_is_host(device) && tt_comm_world_size(config->world) > 1) {
        TT_GO(tt_comm_create_gpu(config->world, device, &comms->world));
        keep(comms, comms->world);
    }
    comms->shard = comms->world;
    if (config->strategy == TT_HYBRID_SHARD) TT_GO(split(config, comms));
out:
    if (status != TT_OK) tt_rank_comms_deinit(comms);
    return status;
}

void tt_rank_comms_deinit(struct tt_rank_comms *comms)
{
    while (comms->owned_count > 0) tt_comm_destroy(comms->owned[--comms->owned_count]);
    *comms = (struct tt_rank_comms){0};
}
