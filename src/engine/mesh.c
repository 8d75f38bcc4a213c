#include "engine/mesh.h"

int tt_axes_data_size(const struct tt_axes *axes, int world_size)
{
    for (int i = 0; i < axes->count; i++)
        if (axes->specs[i].same_samples) world_size /= axes->specs[i].size;
    return world_size;
}

static tt_status check_axes(const struct tt_axes *axes, int world_size)
{
    for (int i = 0, groups = world_size; i < axes->count; i++) {
        int size = axes->specs[i].size;
        if (size < 1 || groups % size != 0)
            return tt_fail(TT_ERR_USAGE, "%d ranks cannot be divided into groups of %d along the axis '%s'%s",
                           world_size, size, tt_axis_name(axes->specs[i].axis),
                           i > 0 ? " and those before it" : "");
        groups /= size;
    }
    return TT_OK;
}

/* The lowest rank that differs from `rank` along this axis alone. */
static int first_of_group(const struct tt_axes *axes, int index, int rank)
{
    int stride = 1;
    for (int i = 0; i < index; i++) stride *= axes->specs[i].size;
    return rank - rank / stride % axes->specs[index].size * stride;
}

/* The place of a rank among those that take the same samples. */
static int place_in_samples(const struct tt_axes *axes, int rank)
{
    int place = 0;
    for (int i = 0; i < axes->count; i++)
        if (axes->specs[i].same_samples) place += rank - first_of_group(axes, i, rank);
    return place;
}

static void set(struct tt_mesh *mesh, enum tt_axis axis, struct tt_comm *comm)
{
    mesh->axes[axis] = (struct tt_mesh_axis){.comm = comm, .size = 1};
    if (comm == NULL) return;
    mesh->axes[axis].rank = tt_comm_rank(comm);
    mesh->axes[axis].size = tt_comm_world_size(comm);
}

static void own(struct tt_mesh *mesh, struct tt_comm *comm)
{
    mesh->owned[mesh->owned_count++] = comm;
}

static tt_status split(struct tt_mesh *mesh, struct tt_comm *from, int color, enum tt_axis axis)
{
    struct tt_comm *part = NULL;
    TT_TRY(tt_comm_split(from, color, &part));
    own(mesh, part);
    set(mesh, axis, part);
    return TT_OK;
}

/* The ranks of a machine split a unit; ranks with the same number on their machines hold the same slices. */
static tt_status split_by_machines(const struct tt_mesh_config *config, struct tt_mesh *mesh)
{
    struct tt_comm *data = mesh->axes[TT_AXIS_DATA].comm;
    TT_TRY(split(mesh, data, config->machine, TT_AXIS_SHARD));
    TT_TRY(split(mesh, data, config->local_rank, TT_AXIS_REPLICATE));
    int split_by = mesh->axes[TT_AXIS_SHARD].size, copies = mesh->axes[TT_AXIS_REPLICATE].size;
    if (split_by * copies == mesh->axes[TT_AXIS_DATA].size) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "HYBRID_SHARD: %d ranks take different samples, and the axes beside the sharding divide "
                   "them unequally between the machines: %d here, of which %d machines have the same",
                   mesh->axes[TT_AXIS_DATA].size, split_by, copies);
}

/* Neighbours of the ranks that split a unit share its experts, and those with the same place have the same. */
static tt_status check_experts(const struct tt_mesh_config *config, int split_by)
{
    if (config->experts <= 1 || split_by % config->experts == 0) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE,
                               "expert_parallel %d: the %d ranks that split a unit cannot be divided into "
                               "groups of %d that share its experts",
                               config->experts, split_by, config->experts);
    tt_hint("expert_parallel takes a number that divides these ranks");
    return status;
}

static tt_status split_by_experts(const struct tt_mesh_config *config, struct tt_mesh *mesh)
{
    struct tt_mesh_axis shard = mesh->axes[TT_AXIS_SHARD];
    TT_TRY(check_experts(config, shard.size));
    if (config->experts <= 1) return TT_OK;
    TT_TRY(split(mesh, shard.comm, shard.rank / config->experts, TT_AXIS_EXPERT));
    if (shard.size == config->experts) return TT_OK;
    return split(mesh, shard.comm, shard.rank % config->experts, TT_AXIS_HOLDER);
}

static tt_status make_groups(const struct tt_mesh_config *config, struct tt_device *device,
                             struct tt_mesh *mesh)
{
    const struct tt_axes *axes = &config->axes;
    if (!tt_device_is_host(device) && tt_comm_world_size(config->world) > 1) {
        TT_TRY(tt_comm_create_gpu(config->world, device, &mesh->world));
        own(mesh, mesh->world);
    }
    int rank = tt_comm_rank(mesh->world), world_size = tt_comm_world_size(mesh->world);
    TT_TRY(check_axes(axes, world_size));
    set(mesh, TT_AXIS_DATA, mesh->world);
    if (tt_axes_data_size(axes, world_size) < world_size)
        TT_TRY(split(mesh, mesh->world, place_in_samples(axes, rank), TT_AXIS_DATA));
    for (int i = 0; i < axes->count; i++)
        TT_TRY(split(mesh, mesh->world, first_of_group(axes, i, rank), axes->specs[i].axis));
    set(mesh, TT_AXIS_SHARD, mesh->axes[TT_AXIS_DATA].comm);
    if (config->strategy == TT_HYBRID_SHARD) TT_TRY(split_by_machines(config, mesh));
    return split_by_experts(config, mesh);
}

/* One rank of groups that do not exist. */
static tt_status plan_group(struct tt_mesh *mesh, int size, enum tt_axis axis)
{
    struct tt_comm *group = NULL;
    int local = tt_comm_local_size(mesh->world);
    TT_TRY(tt_comm_create_planned(size, size < local ? size : local, &group));
    own(mesh, group);
    set(mesh, axis, group);
    return TT_OK;
}

/* Sharding over the communicators of the caller; further axes in plans only. */
static tt_status lend_groups(const struct tt_mesh_config *config, const struct tt_device *device,
                             struct tt_mesh *mesh)
{
    const struct tt_axes *axes = &config->axes;
    int world_size = tt_comm_world_size(mesh->world), data_size = tt_axes_data_size(axes, world_size);
    if ((axes->count > 0 || config->experts > 1) && !tt_device_is_plan(device))
        return tt_fail(TT_ERR_INTERNAL, "lent communicators have no further axes");
    TT_TRY(check_axes(axes, world_size));
    set(mesh, TT_AXIS_DATA, mesh->world);
    if (data_size < world_size) TT_TRY(plan_group(mesh, data_size, TT_AXIS_DATA));
    for (int i = 0; i < axes->count; i++) TT_TRY(plan_group(mesh, axes->specs[i].size, axes->specs[i].axis));
    set(mesh, TT_AXIS_SHARD, config->shard_comm);
    set(mesh, TT_AXIS_REPLICATE, config->replicate_comm);
    int split_by = mesh->axes[TT_AXIS_SHARD].size;
    TT_TRY(check_experts(config, split_by));
    if (config->experts <= 1) return TT_OK;
    TT_TRY(plan_group(mesh, config->experts, TT_AXIS_EXPERT));
    if (split_by == config->experts) return TT_OK;
    return plan_group(mesh, split_by / config->experts, TT_AXIS_HOLDER);
}

/* Gradients are summed over these groups only. */
static tt_status order_sums(const struct tt_mesh_config *config, struct tt_device *device,
                            const struct tt_mesh *mesh)
{
    struct tt_comm *replicate = mesh->axes[TT_AXIS_REPLICATE].comm;
    if (!config->orders_sums || tt_device_is_host(device)) return TT_OK;
    TT_TRY(tt_comm_order_sums(mesh->axes[TT_AXIS_SHARD].comm, device));
    return replicate != NULL ? tt_comm_order_sums(replicate, device) : TT_OK;
}

/* The slices that this rank holds. */
static void assign(const struct tt_mesh_config *config, struct tt_mesh *mesh)
{
    const struct tt_mesh_axis *data = &mesh->axes[TT_AXIS_DATA], *shard = &mesh->axes[TT_AXIS_SHARD],
                              *replicate = &mesh->axes[TT_AXIS_REPLICATE];
    bool sharded = config->strategy != TT_NO_SHARD && shard->size > 1;
    bool first = sharded ? replicate->rank == 0 : data->rank == 0;
    mesh->part = sharded ? shard->rank : 0;
    mesh->part_count = sharded ? shard->size : 1;
    mesh->copies = data->size / mesh->part_count;
    mesh->first_copy = first && place_in_samples(&config->axes, tt_comm_rank(mesh->world)) == 0;
}

tt_status tt_mesh_init(const struct tt_mesh_config *config, struct tt_device *device, struct tt_mesh *mesh)
{
    tt_status status = TT_OK;
    *mesh = (struct tt_mesh){.world = config->world};
    for (int axis = 0; axis < TT_AXES_MAX; axis++) set(mesh, (enum tt_axis)axis, NULL);
    TT_GO(config->shard_comm != NULL ? lend_groups(config, device, mesh) : make_groups(config, device, mesh));
    TT_GO(order_sums(config, device, mesh));
    assign(config, mesh);
out:
    if (status != TT_OK) tt_mesh_deinit(mesh);
    return status;
}

static bool owns(const struct tt_mesh *mesh, const struct tt_comm *comm)
{
    for (int i = 0; i < mesh->owned_count; i++)
        if (mesh->owned[i] == comm) return true;
    return false;
}

/* Communicators that were lent outlive the device. */
void tt_mesh_deinit(struct tt_mesh *mesh)
{
    for (int axis = 0; axis < TT_AXES_MAX; axis++) {
        struct tt_comm *comm = mesh->axes[axis].comm;
        if (comm != NULL && !owns(mesh, comm)) tt_comm_release_sums(comm);
    }
    while (mesh->owned_count > 0) tt_comm_destroy(mesh->owned[--mesh->owned_count]);
    *mesh = (struct tt_mesh){0};
}
