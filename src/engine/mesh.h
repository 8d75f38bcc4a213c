/* The groups of ranks that a rank exchanges with: only this file splits the world. Ranks that train on different
 * rows sum their gradients, ranks of one context split each row, and ranks of one expert group split the experts. */
#ifndef TT_ENGINE_MESH_H
#define TT_ENGINE_MESH_H

#include "comm/comm.h"

struct tt_rank_config;

/* Sizes of groups of neighbouring ranks; 0 or 1: no group. Both divide the size of the world. */
struct tt_mesh_shape {
    int expert;  /* split the experts of a layer */
    int context; /* split each row */
};

struct tt_mesh {
    struct tt_comm *world;     /* all ranks */
    struct tt_comm *shard;     /* those that split a unit */
    struct tt_comm *replicate; /* those that hold the same slices; NULL unless HYBRID_SHARD */
    struct tt_comm *expert;    /* NULL: each rank has all experts */
    struct tt_comm *context;   /* NULL: each rank has whole rows */
    /* the rank trains on part data_rank of data_size of each micro batch of the world */
    int data_rank, data_size;
    int part, part_count;     /* it holds slice `part` of `part_count` of a unit; 0 of 1: whole units */
    int copies;               /* number of ranks that hold the same slices */
    bool first_copy;          /* this one of them saves them */
    struct tt_comm *owned[5]; /* of the above, in order of creation */
    int owned_count;
};

/* Number of parts of each micro batch of the world (the sampler's world_size). */
int tt_mesh_data_size(const struct tt_mesh_shape *shape, int world_size);
/* Collective, unless `config` has all communicators, as in plans. On error *mesh is empty. */
TT_MUST_USE tt_status tt_mesh_init(const struct tt_rank_config *config, struct tt_device *device,
                                   struct tt_mesh *mesh);
void tt_mesh_deinit(struct tt_mesh *mesh); /* before the device closes; a zeroed struct is empty */

#endif
