/* Which ranks share what with a rank: the only place where the world is split. Ranks that train different
 * rows share gradients; ranks of one context share the rows themselves; those of one group of experts have
 * different ones. */
#ifndef TT_ENGINE_MESH_H
#define TT_ENGINE_MESH_H

#include "comm/comm.h"

struct tt_rank_config;

/* How many neighbouring ranks share what; 0 or 1: each rank alone. Both divide the world. */
struct tt_mesh_shape {
    int expert;  /* split the experts of a layer */
    int context; /* split each row */
};

struct tt_mesh {
    struct tt_comm *world;     /* all ranks */
    struct tt_comm *shard;     /* those that split a unit */
    struct tt_comm *replicate; /* those that hold the same piece; NULL unless HYBRID_SHARD */
    struct tt_comm *expert;    /* NULL where each rank has all experts */
    struct tt_comm *context;   /* NULL where each rank has whole rows */
    int data_rank,
        data_size; /* which rows this rank trains on, of so many parts of each micro batch of the world */
    int part, part_count;     /* which slice of a unit it holds; 0 of 1: whole units */
    int copies;               /* ranks that hold the same slices */
    bool first_copy;          /* the one of them that saves them */
    struct tt_comm *owned[5]; /* of the above, in order of their making */
    int owned_count;
};

/* Parts of each micro batch in a world: what a sampler has for its number of ranks. */
int tt_mesh_data_size(const struct tt_mesh_shape *shape, int world_size);
/* Collective, unless the configuration brings all communicators (plans do). On error nothing is left. */
TT_MUST_USE tt_status tt_mesh_init(const struct tt_rank_config *config, struct tt_device *device,
                                   struct tt_mesh *mesh);
void tt_mesh_deinit(struct tt_mesh *mesh); /* before the device closes; a zeroed struct is empty */

#endif
