#include "engine/mesh.h"

#include "engine/rank.h"

static void own(struct tt_mesh *mesh, struct tt_comm *comm)
{
    mesh->owned[mesh->owned_count++] = comm;
}

static tt_status split(struct tt_mesh *mesh, int color, struct tt_comm **part)
{
    TT_TRY(tt_comm_split(mesh->world, color, part));
    own(mesh, *part);
    return TT_OK;
}

static tt_status make_groups(const struct tt_rank_config *config, struct tt_device *device,
                             struct tt_mesh *mesh)
{
    if (!tt_device_is_host(device) && tt_comm_world_size(config->world) > 1) {
        TT_TRY(tt_comm_create_gpu(config->world, device, &mesh->world));
        own(mesh, mesh->world);
    }
    mesh->shard = mesh->world;
    /* The ranks of a machine split a unit; ranks with the same number on their machines hold the same slices. */
    if (config->strategy == TT_HYBRID_SHARD) {
        TT_TRY(split(mesh, config->machine, &mesh->shard));
        TT_TRY(split(mesh, config->local_rank, &mesh->replicate));
    }
    return TT_OK;
}

/* Gradients are summed over these groups only. */
static tt_status order_sums(const struct tt_rank_config *config, struct tt_device *device,
                            const struct tt_mesh *mesh)
{
    if (!config->train || !config->device.tuning.deterministic || tt_device_is_host(device)) return TT_OK;
    TT_TRY(tt_comm_order_sums(mesh->shard, device));
    return mesh->replicate != NULL ? tt_comm_order_sums(mesh->replicate, device) : TT_OK;
}

/* The slices that this rank holds, and the rows that it trains on. */
static void assign(const struct tt_rank_config *config, struct tt_mesh *mesh)
{
    int rank = tt_comm_rank(mesh->world), world_size = tt_comm_world_size(mesh->world);
    int shards = tt_comm_world_size(mesh->shard);
    bool sharded = config->strategy != TT_NO_SHARD && shards > 1;
    mesh->data_rank = rank;
    mesh->part = sharded ? tt_comm_rank(mesh->shard) : 0;
    mesh->part_count = sharded ? shards : 1;
    mesh->copies = world_size / mesh->part_count;
    mesh->first_copy =
        sharded && mesh->replicate != NULL ? tt_comm_rank(mesh->replicate) == 0 : sharded || rank == 0;
}

tt_status tt_mesh_init(const struct tt_rank_config *config, struct tt_device *device, struct tt_mesh *mesh)
{
    tt_status status = TT_OK;
    *mesh = (struct tt_mesh){.world = config->world, .shard = config->shard_comm};
    if (config->shard_comm != NULL)
        mesh->replicate = config->replicate_comm;
    else
        status = make_groups(config, device, mesh);
    if (status == TT_OK) status = order_sums(config, device, mesh);
    if (status == TT_OK)
        assign(config, mesh);
    else
        tt_mesh_deinit(mesh);
    return status;
}

/* Communicators that were lent outlive the device. */
void tt_mesh_deinit(struct tt_mesh *mesh)
{
    if (mesh->owned_count == 0 && mesh->shard != NULL) tt_comm_release_sums(mesh->shard);
    if (mesh->owned_count == 0 && mesh->replicate != NULL) tt_comm_release_sums(mesh->replicate);
    while (mesh->owned_count > 0) tt_comm_destroy(mesh->owned[--mesh->owned_count]);
    *mesh = (struct tt_mesh){0};
}
