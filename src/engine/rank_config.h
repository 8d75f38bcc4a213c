/* Makes the configuration of a rank from the parts of a job, for training, evaluation, generation, plans and
 * benchmarks. */
#ifndef TT_ENGINE_RANK_CONFIG_H
#define TT_ENGINE_RANK_CONFIG_H

#include "engine/plan.h"
#include "launch/world.h"

/* Where the ranks of a run are. */
struct tt_rank_layout {
    struct tt_device_config device; /* of this process's first rank; a plan reads its chip */
    int world_size, machines;
    int ranks_per_machine; /* 0: not the same number everywhere */
    bool across_processes; /* not all ranks are threads of this process */
    struct tt_axes axes;   /* beside the sharding (engine/mesh.h) */
};
struct tt_rank_layout tt_rank_layout_of(const struct tt_world *world);
int tt_world_data_size(const struct tt_world *world); /* ranks that take different samples */
struct tt_plan_ranks tt_rank_layout_ranks(const struct tt_rank_layout *layout);

enum tt_rank_use { TT_RANK_TRAINS, TT_RANK_EVALUATES, TT_RANK_GENERATES };
/* The members that are equal on all ranks. `shard`: NULL for a rank that holds the whole model. `model` is lent,
 * `cancel` NULL or lent. The caller sets `objective`, `limits`, `saves` and `saves_state`. */
TT_MUST_USE tt_status tt_rank_config_make(const struct tt_shard_spec *shard,
                                          const struct tt_rank_layout *layout,
                                          const struct tt_model_facts *model,
                                          const struct tt_model_options *options, enum tt_rank_use use,
                                          const struct tt_cancel *cancel, struct tt_rank_config *out);
/* Adds the members of one rank: device, communicators, and the plan's results. `plan` is lent. */
struct tt_rank_config tt_rank_config_of(const struct tt_rank_config *shared,
                                        const struct tt_world_rank *place, const struct tt_plan *plan);

#endif
