/* From settings to what a rank is made from: one place for training, evaluation and benchmarks. */
#ifndef TT_ENGINE_RANK_CONFIG_H
#define TT_ENGINE_RANK_CONFIG_H

#include "engine/plan.h"
#include "launch/world.h"

/* What all ranks share. `model` is lent, `cancel` NULL or lent; `train`: false for evaluation. The caller
 * sets `limits` after. The device is that of this process's first rank, so that a plan knows what it stands
 * for. */
TT_MUST_USE tt_status tt_rank_config_make(const struct tt_train_config *config, const struct tt_world *world,
                                          const struct tt_model_config *model,
                                          const struct tt_model_options *options, bool train,
                                          const struct tt_cancel *cancel, struct tt_rank_config *out);
/* What a plan has to know of the other ranks. */
struct tt_plan_ranks tt_rank_config_ranks(const struct tt_world *world);
/* What is one rank's own: device, communicators, what was planned. `plan` is lent. */
struct tt_rank_config tt_rank_config_of(const struct tt_rank_config *shared,
                                        const struct tt_world_rank *place, const struct tt_plan *plan);

#endif
