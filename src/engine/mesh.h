/* The groups of ranks that a rank exchanges with: only this file splits the world. An axis is one way to group the
 * ranks (nn/axis.h); ranks that differ along the data axis train on rows of their own, and their gradients are summed.
 */
#ifndef TT_ENGINE_MESH_H
#define TT_ENGINE_MESH_H

#include "comm/comm.h"
#include "nn/axis.h"
#include "shard/unit.h"

/* An axis that divides the ranks beside the sharding: groups of `size`. */
struct tt_axis_spec {
    enum tt_axis axis;
    int size;
    bool same_samples; /* the ranks of a group take the same samples: the data axis has one of them */
};

/* Neighbours in the world form the groups of the first axis; each further one strides over the groups of those before
 * it. An empty list: every rank is alone on them. */
struct tt_axes {
    const struct tt_axis_spec *specs; /* lent */
    int count;
};
/* Ranks that take different samples, of `world_size`. */
int tt_axes_data_size(const struct tt_axes *axes, int world_size);

/* The arguments of a rank's mesh. The communicators are lent. */
struct tt_mesh_config {
    struct tt_comm *world;
    /* those that split a unit, and with HYBRID_SHARD those that hold the same slices; NULL: they are made */
    struct tt_comm *shard_comm, *replicate_comm;
    int machine, local_rank; /* launch/world.h; HYBRID_SHARD splits the ranks by them */
    enum tt_shard_strategy strategy;
    struct tt_axes axes; /* beside the sharding; the same on all ranks */
    int experts;         /* groups of so many ranks that split a unit share its experts; up to 1: none do */
    bool orders_sums;    /* sums of gradients have the bits of sums in order of rank */
};

/* This rank's group along an axis. */
struct tt_mesh_axis {
    struct tt_comm *comm; /* NULL: this rank is alone */
    int rank, size;       /* its place in the group: 0 of 1 when alone */
};

struct tt_mesh {
    struct tt_comm *world; /* all ranks */
    /* DATA and SHARD always have a communicator, REPLICATE with HYBRID_SHARD, EXPERT where ranks share experts, HOLDER
     * where several of these have the same, the others where the rank's configuration has them. A micro batch of the
     * run has one part for each rank of the data axis. */
    struct tt_mesh_axis axes[TT_AXES_MAX];
    int part, part_count; /* it holds slice `part` of `part_count` of a unit; 0 of 1: whole units */
    int copies;           /* number of ranks of the data axis that hold the same slices */
    bool first_copy;      /* this one of all that hold them saves them */
    struct tt_comm *owned[TT_AXES_MAX + 1]; /* of the above, in order of creation */
    int owned_count;
};

/* Collective, unless `config` has all communicators, as in plans. On error *mesh is empty. */
TT_MUST_USE tt_status tt_mesh_init(const struct tt_mesh_config *config, struct tt_device *device,
                                   struct tt_mesh *mesh);
void tt_mesh_deinit(struct tt_mesh *mesh); /* before the device closes; a zeroed struct is empty */

#endif
