/* The groups of ranks that a rank exchanges with: only this file splits the world. Every rank trains on rows of its
 * own; their gradients are summed. */
#ifndef TT_ENGINE_MESH_H
#define TT_ENGINE_MESH_H

#include "comm/comm.h"

struct tt_rank_config;

struct tt_mesh {
    struct tt_comm *world;     /* all ranks */
    struct tt_comm *shard;     /* those that split a unit */
    struct tt_comm *replicate; /* those that hold the same slices; NULL unless HYBRID_SHARD */
    int data_rank; /* the rank trains on this part of each micro batch of the world, which has one for each rank */
    int part, part_count;     /* it holds slice `part` of `part_count` of a unit; 0 of 1: whole units */
    int copies;               /* number of ranks that hold the same slices */
    bool first_copy;          /* this one of them saves them */
    struct tt_comm *owned[3]; /* of the above, in order of creation */
    int owned_count;
};

/* Collective, unless `config` has all communicators, as in plans. On error *mesh is empty. */
TT_MUST_USE tt_status tt_mesh_init(const struct tt_rank_config *config, struct tt_device *device,
                                   struct tt_mesh *mesh);
void tt_mesh_deinit(struct tt_mesh *mesh); /* before the device closes; a zeroed struct is empty */

#endif
