/* Updates of whole matrices (tt_whole_rule of optim/optimizer.h) whose slices several ranks hold. For some units at a
 * time: each rank makes the directions of its slices; all gather them; each matrix is turned by one rank, the same one
 * on all; a sum of what each has turned, with zeros elsewhere, gives every rank its slices. So the result has the same
 * bits on any number of ranks, and the ranks share the work of matrices of several units. Memory is of the workspace,
 * which no pass uses during the update. Replicas of HYBRID_SHARD turn the same matrices. */
#ifndef TT_ENGINE_WHOLE_H
#define TT_ENGINE_WHOLE_H

#include "engine/rank.h"

/* Collective. No effect without such a rule. `step`: the members that are equal for all units. */
TT_MUST_USE tt_status tt_whole_update(struct tt_rank *rank, const struct tt_optim_config *config,
                                      struct tt_moments_step step);

#endif
