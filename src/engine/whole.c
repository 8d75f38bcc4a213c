#include "engine/whole.h"

#include "base/alloc.h"

/* Directions of so many bytes are gathered at a time, and of one unit at least. */
static const size_t group_bytes = (size_t)1 << 30;

struct matrix {
    tt_tensor x; /* whole, among the gathered directions of its unit */
    double cost;
    int owner;
};

/* The units that are updated together. */
struct group {
    struct tt_rank *rank;
    const struct tt_optim_config *config;
    struct tt_moments_step step;
    tt_dtype dtype;
    int first, end;      /* units */
    tt_tensor *wholes;   /* [unit_count]: the directions of a whole unit; empty: it has no such matrix */
    struct matrix *list; /* in the order of units */
    size_t count;
    double *loads; /* [ranks] */
};

static int ranks_of(const struct tt_rank *rank)
{
    return rank->mesh.axes[TT_AXIS_SHARD].size;
}

static bool is_sharded(const struct tt_rank *rank)
{
    return rank->mesh.part_count > 1;
}

static bool has_matrix(const struct tt_rank *rank, int u)
{
    for (size_t i = 0; i < tt_unit_piece_count(rank->units[u]); i++)
        if (tt_unit_whole_offset(rank->units[u], i) >= 0 &&
            tt_optimizer_takes_whole(rank->optimizer, tt_unit_piece(rank->units[u], i).param))
            return true;
    return false;
}

static int64_t whole_count(const struct tt_rank *rank, int u)
{
    return tt_unit_slices(rank->units[u]).count * rank->mesh.part_count;
}

static tt_tensor part(tt_tensor vector, int64_t first, int64_t count)
{
    char *data = (char *)vector.data + (size_t)first * tt_dtype_bytes(vector.dtype);
    return tt_tensor_1d(data, vector.dtype, count);
}

/* This rank's part of a unit's directions. */
static tt_tensor slice_of(const struct group *group, int u)
{
    int64_t count = tt_unit_slices(group->rank->units[u]).count;
    return part(group->wholes[u], group->rank->mesh.part * count, count);
}

static struct tt_moments_step step_of(const struct group *group, int u)
{
    struct tt_moments_step step = group->step;
    struct tt_slices slices = tt_unit_slices(group->rank->units[u]);
    step.master = slices.master;
    step.grad = slices.grad;
    return step;
}

/* The products of an iteration, up to a factor: 2 m^2 n + m^3 for sides m <= n. */
static double cost_of(const tt_param *param)
{
    double a = (double)param->dims[0], b = (double)param->dims[1], m = a < b ? a : b, n = a < b ? b : a;
    return m * m * (2 * n + m);
}

static void list_matrices(struct group *group, int u)
{
    const struct tt_rank *rank = group->rank;
    for (size_t i = 0; i < tt_unit_piece_count(rank->units[u]); i++) {
        const tt_param *param = tt_unit_piece(rank->units[u], i).param;
        int64_t offset = tt_unit_whole_offset(rank->units[u], i);
        if (offset < 0 || !tt_optimizer_takes_whole(rank->optimizer, param)) continue;
        tt_tensor flat = part(group->wholes[u], offset, tt_param_count(param));
        group->list[group->count++] = (struct matrix){
            .x = tt_tensor_2d(flat.data, flat.dtype, param->dims[0], param->dims[1]),
            .cost = cost_of(param),
            .owner = -1,
        };
    }
}

static tt_status make_directions(struct group *group, int u)
{
    struct tt_rank *rank = group->rank;
    const struct tt_moments_step step = step_of(group, u);
    TT_TRY(tt_workspace_1d(rank->workspace, "directions of whole matrices", group->dtype,
                           whole_count(rank, u), &group->wholes[u]));
    tt_tensor whole = group->wholes[u], slice = slice_of(group, u);
    TT_TRY(tt_fill_zero(rank->stream, slice.data, tt_tensor_bytes(slice)));
    TT_TRY(tt_moments_direct(rank->stream, rank->optimizer, group->config, &rank->moments[u], &step, slice));
    if (is_sharded(rank))
        TT_TRY(tt_comm_all_gather(rank->mesh.axes[TT_AXIS_SHARD].comm, rank->stream, slice.data, whole.data,
                                  tt_tensor_bytes(slice)));
    list_matrices(group, u);
    return TT_OK;
}

/* The largest matrix that nobody has goes to the rank with the least work: the same on all ranks. */
static void assign(struct group *group)
{
    int ranks = ranks_of(group->rank);
    for (int r = 0; r < ranks; r++) group->loads[r] = 0;
    for (size_t given = 0; given < group->count; given++) {
        struct matrix *largest = NULL;
        int least = 0;
        for (size_t i = 0; i < group->count; i++) {
            struct matrix *matrix = &group->list[i];
            if (matrix->owner < 0 && (largest == NULL || matrix->cost > largest->cost)) largest = matrix;
        }
        for (int r = 1; r < ranks; r++)
            if (group->loads[r] < group->loads[least]) least = r;
        largest->owner = least;
        group->loads[least] += largest->cost;
    }
}

static tt_status turn(const struct group *group)
{
    struct tt_rank *rank = group->rank;
    int self = rank->mesh.axes[TT_AXIS_SHARD].rank;
    for (size_t i = 0; i < group->count; i++)
        if (group->list[i].owner == self)
            TT_TRY(rank->optimizer->rule->whole->turn(rank->stream, group->config, rank->workspace,
                                                      group->list[i].x));
    return TT_OK;
}

/* Zero in all elements of a unit but those of this rank's matrices. */
static tt_status keep_own(const struct group *group, int u)
{
    const tt_tensor whole = group->wholes[u];
    int self = group->rank->mesh.axes[TT_AXIS_SHARD].rank;
    char *at = whole.data, *end = at + tt_tensor_bytes(whole);
    for (size_t i = 0; i <= group->count; i++) {
        const struct matrix *matrix = i < group->count ? &group->list[i] : NULL;
        char *next = matrix != NULL ? matrix->x.data : end;
        bool is_here = next >= at && next < end && matrix != NULL && matrix->owner == self;
        if (matrix != NULL && !is_here) continue;
        if (next > at) TT_TRY(tt_fill_zero(group->rank->stream, at, (size_t)(next - at)));
        if (matrix != NULL) at = next + tt_tensor_bytes(matrix->x);
    }
    return TT_OK;
}

static tt_status share(const struct group *group, int u)
{
    struct tt_rank *rank = group->rank;
    const tt_tensor whole = group->wholes[u], slice = slice_of(group, u);
    if (ranks_of(rank) == 1) return TT_OK;
    TT_TRY(keep_own(group, u));
    if (!is_sharded(rank))
        return tt_comm_all_reduce(rank->mesh.axes[TT_AXIS_SHARD].comm, rank->stream, whole.data,
                                  (size_t)whole.dims[0], group->dtype, TT_REDUCE_SUM);
    return tt_comm_reduce_scatter(rank->mesh.axes[TT_AXIS_SHARD].comm, rank->stream, whole.data, slice.data,
                                  (size_t)slice.dims[0], group->dtype);
}

static tt_status update_group(struct group *group)
{
    struct tt_rank *rank = group->rank;
    size_t mark = tt_workspace_mark(rank->workspace);
    tt_status status = TT_OK;
    group->count = 0;
    for (int u = group->first; u < group->end; u++)
        if (has_matrix(rank, u)) TT_GO(make_directions(group, u));
    assign(group);
    TT_GO(turn(group));
    for (int u = group->first; u < group->end; u++) {
        const struct tt_moments_step step = step_of(group, u);
        if (!has_matrix(rank, u)) continue;
        TT_GO(share(group, u));
        TT_GO(tt_moments_apply(rank->stream, rank->optimizer, group->config, &rank->moments[u], &step,
                               slice_of(group, u)));
    }
out:
    tt_workspace_release(rank->workspace, mark);
    return status;
}

/* Sets the units of the next group. */
static void advance(struct group *group)
{
    const struct tt_rank *rank = group->rank;
    size_t bytes = 0, element = tt_dtype_bytes(group->dtype);
    group->first = group->end;
    while (group->end < rank->model->unit_count) {
        size_t next = has_matrix(rank, group->end) ? (size_t)whole_count(rank, group->end) * element : 0;
        if (group->end > group->first && bytes + next > group_bytes) return;
        bytes += next;
        group->end++;
    }
}

tt_status tt_whole_update(struct tt_rank *rank, const struct tt_optim_config *config,
                          struct tt_moments_step step)
{
    tt_status status = TT_OK;
    if (rank->optimizer->rule->whole == NULL) return TT_OK;
    struct group group = {
        .rank = rank, .config = config, .step = step, .dtype = rank->optimizer->rule->whole->dtype(config)};
    group.wholes = tt_calloc((size_t)rank->model->unit_count, sizeof *group.wholes);
    group.list = tt_calloc(rank->model->param_count + 1, sizeof *group.list);
    group.loads = tt_calloc((size_t)ranks_of(rank), sizeof *group.loads);
    if (group.wholes == NULL || group.list == NULL || group.loads == NULL) TT_GO(TT_ERR_MEMORY);
    tt_stream_mark(rank->stream, "the update of whole matrices");
    for (advance(&group); group.first < rank->model->unit_count; advance(&group)) TT_GO(update_group(&group));
out:
    tt_free(group.wholes);
    tt_free(group.list);
    tt_free(group.loads);
    return status;
}
