#include "engine/rank_config.h"

#include "base/log.h"

/* HYBRID_SHARD splits inside a machine, so every machine must hold the same number of pieces. */
static tt_status resolve_hybrid(const struct tt_rank_layout *layout, struct tt_rank_config *out)
{
    if (layout->machines == 1) {
        tt_info("HYBRID_SHARD shards inside a machine and replicates across machines: on one machine it is "
                "FULL_SHARD");
        out->strategy = TT_FULL_SHARD;
        return TT_OK;
    }
    if (layout->ranks_per_machine == 0) {
        tt_status status = tt_fail(TT_ERR_USAGE,
                                   "HYBRID_SHARD needs the same number of ranks on every machine: %d ranks "
                                   "are on %d machines",
                                   layout->world_size, layout->machines);
        tt_hint("start as many ranks on every machine, or use --sharding_strategy FULL_SHARD");
        return status;
    }
    return TT_OK;
}

/* No setting divides the ranks of a run beside the sharding. */
static const struct tt_axes axes = {NULL, 0};

struct tt_rank_layout tt_rank_layout_of(const struct tt_world *world)
{
    return (struct tt_rank_layout){
        .device = world->ranks[0].device,
        .world_size = world->world_size,
        .machines = world->machine_count,
        .ranks_per_machine = world->ranks_per_machine,
        .across_processes = world->local_count < world->world_size,
        .axes = axes,
    };
}

int tt_world_data_size(const struct tt_world *world)
{
    return tt_axes_data_size(&axes, world->world_size);
}

tt_status tt_rank_config_make(const struct tt_shard_spec *shard, const struct tt_rank_layout *layout,
                              const struct tt_model_facts *model, const struct tt_model_options *options,
                              enum tt_rank_use use, const struct tt_cancel *cancel,
                              struct tt_rank_config *out)
{
    bool trains = use == TT_RANK_TRAINS, splits = shard != NULL;
    *out = (struct tt_rank_config){
        .device = layout->device,
        .strategy = splits ? shard->sharding_strategy : TT_NO_SHARD,
        .model_facts = model,
        .model_options = *options,
        .across_processes = layout->across_processes,
        .axes = layout->axes,
        .train = trains,
        .recompute = trains ? tt_job_recompute(shard) : TT_RECOMPUTE_AUTO,
        .offload_params = splits && shard->offload_params,
        .backward_prefetch = trains   ? shard->backward_prefetch
                             : splits ? TT_PREFETCH_PRE
                                      : TT_PREFETCH_NONE,
        .forward_prefetch = trains ? shard->forward_prefetch : splits,
        .unsharded_blocks = trains ? (int)shard->unsharded_blocks : 0,
        .expert_parallel = trains && splits ? (int)shard->expert_parallel : 1,
        .limits_lead = !trains || shard->limit_all_gathers,
        .reduce_dtype = trains && shard->reduce_dtype == TT_REDUCE_BFLOAT16 ? TT_BF16 : TT_F32,
        .cancel = cancel,
    };
    out->model_options.quant.trains = trains;
    return out->strategy == TT_HYBRID_SHARD ? resolve_hybrid(layout, out) : TT_OK;
}

struct tt_plan_ranks tt_rank_layout_ranks(const struct tt_rank_layout *layout)
{
    return (struct tt_plan_ranks){layout->world_size, layout->machines};
}

struct tt_rank_config tt_rank_config_of(const struct tt_rank_config *shared,
                                        const struct tt_world_rank *place, const struct tt_plan *plan)
{
    struct tt_rank_config config = *shared;
    config.device = place->device;
    config.world = place->comm;
    config.shard_comm = config.replicate_comm = NULL; /* the rank creates them */
    config.pulse = place->pulse;
    config.machine = place->machine;
    config.local_rank = place->local_rank;
    config.workspace_bytes = plan->workspace_bytes;
    config.levels = plan->levels;
    config.split_vocabulary = plan->split_vocabulary;
    config.page_moments = plan->page_moments;
    config.unsharded_blocks = plan->unsharded_blocks;
    config.expert_parallel = plan->expert_parallel;
    return config;
}
