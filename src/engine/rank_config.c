#include "engine/rank_config.h"

#include "base/log.h"

/* HYBRID_SHARD splits inside a machine, so every machine must hold the same number of pieces. */
static tt_status resolve_hybrid(const struct tt_world *world, struct tt_rank_config *out)
{
    if (world->machine_count == 1) {
        tt_info(
            "HYBRID_SHARD shards inside a machine and replicates across: on one machine that is FULL_SHARD");
        out->strategy = TT_FULL_SHARD;
        return TT_OK;
    }
    if (world->ranks_per_machine == 0) {
        tt_status status = tt_fail(TT_ERR_USAGE,
                                   "HYBRID_SHARD over %d ranks on %d machines, not the same "
                                   "number on each",
                                   world->world_size, world->machine_count);
        tt_hint("start as many ranks on every machine, or use --sharding_strategy FULL_SHARD");
        return status;
    }
    return TT_OK;
}

tt_status tt_rank_config_make(const struct tt_train_config *config, const struct tt_world *world,
                              const struct tt_model_config *model, const struct tt_model_options *options,
                              bool train, const struct tt_cancel *cancel, struct tt_rank_config *out)
{
    *out = (struct tt_rank_config){
        .device = world->ranks[0].device,
        .strategy = config->sharding_strategy,
        .model_config = model,
        .model_options = *options,
        .across_processes = world->local_count < world->world_size,
        .train = train,
        .recompute = train ? tt_train_config_recompute(config) : TT_RECOMPUTE_AUTO,
        .offload_params = config->offload_params,
        .backward_prefetch = train ? config->backward_prefetch : TT_PREFETCH_PRE,
        .forward_prefetch = !train || config->forward_prefetch,
        .reduce_dtype = train ? tt_dtype_from_torch_name(config->reduce_dtype) : TT_F32,
        .cancel = cancel,
    };
    return out->strategy == TT_HYBRID_SHARD ? resolve_hybrid(world, out) : TT_OK;
}

struct tt_plan_ranks tt_rank_config_ranks(const struct tt_world *world)
{
    return (struct tt_plan_ranks){world->world_size, world->machine_count};
}

struct tt_rank_config tt_rank_config_of(const struct tt_rank_config *shared,
                                        const struct tt_world_rank *place, const struct tt_plan *plan)
{
    struct tt_rank_config config = *shared;
    config.device = place->device;
    config.world = place->comm;
    config.comm = config.replicate_comm = NULL; /* the rank makes them */
    config.pulse = place->pulse;
    config.machine = place->machine;
    config.local_rank = place->local_rank;
    config.workspace_bytes = plan->workspace_bytes;
    config.levels = plan->levels;
    return config;
}
