/* The units of a rank: one for each block, and one for tied embedding and head together.
 *
 * With split_vocabulary a frozen matrix that one block alone reads - an embedding or head that are not tied, a table of
 * rows for each layer - at least SPLIT_RATIO times as large as the largest other unit, is gathered in parts of whole
 * rows no larger than that unit. The pool of gather buffers then has the size of layers. */
#include "base/alloc.h"
#include "base/integer.h"
#include "engine/rank_impl.h"

enum { SPLIT_RATIO = 2, PART_ROWS = 16 /* parts begin at aligned columns of the logits */ };

/* Bytes of a parameter when it is gathered. */
static int64_t gathered_bytes(const struct tt_rank_config *config, const tt_param *param)
{
    tt_dtype dtype = param->trainable ? config->model_options.compute_dtype : param->stored_dtype;
    return tt_param_stored_count(param) * (int64_t)tt_dtype_bytes(dtype);
}

static bool has_param(const struct tt_block *block, const tt_param *param)
{
    for (size_t p = 0; p < block->param_count; p++)
        if (block->params[p] == param) return true;
    return false;
}

/* The matrix that the unit of `block` could be gathered in parts of, which no other block reads; NULL: none. */
static const tt_param *find_matrix(const struct tt_model *model, int block)
{
    const struct tt_block *found = &model->blocks[block];
    const tt_param *matrix = found->ops->split != NULL ? found->ops->split(found) : NULL;
    for (int b = 0; b < model->block_count; b++)
        if (b != block && has_param(&model->blocks[b], matrix)) return NULL;
    return matrix;
}

bool tt_rank_has_table_beside(const struct tt_model *model)
{
    for (int a = 0; a < model->block_count; a++)
        for (int b = 0; b < model->block_count && find_matrix(model, a) != NULL; b++)
            if (b != a && model->unit_of_block[b] == model->unit_of_block[a]) return true;
    return false;
}

static int64_t block_bytes(const struct tt_rank_config *config, const struct tt_block *block)
{
    int64_t bytes = 0;
    for (size_t p = 0; p < block->param_count; p++) bytes += gathered_bytes(config, block->params[p]);
    return bytes;
}

/* Writes *split unless the matrix of `block` stays whole. */
static void choose_split(const struct tt_rank_config *config, const struct tt_model *model, int block,
                         struct tt_unit_split *split)
{
    const tt_param *matrix = config->split_vocabulary ? find_matrix(model, block) : NULL;
    if (matrix == NULL) return;
    int64_t largest = 0, bytes = gathered_bytes(config, matrix), total = matrix->dims[0];
    for (int b = 0; b < model->block_count; b++) {
        int64_t other = block_bytes(config, &model->blocks[b]);
        if (model->unit_of_block[b] == model->unit_of_block[block]) continue;
        if (find_matrix(model, b) == NULL && other > largest) largest = other;
    }
    int64_t most = largest / (bytes / total) / PART_ROWS * PART_ROWS;
    if (bytes < SPLIT_RATIO * largest || most == 0) return;
    int64_t parts = (total + most - 1) / most, even = (total + parts - 1) / parts;
    split->param = matrix;
    split->rows = (int64_t)tt_align_up((size_t)even, PART_ROWS);
}

/* Gathers are collective, so that all ranks keep as many units whole as the rank that can keep the fewest. */
static tt_status agree_on_unsharded(const struct tt_rank_config *config, const struct tt_rank *rank,
                                    int *count)
{
    struct tt_comm *comm = rank->mesh.axes[TT_AXIS_SHARD].comm;
    int world_size = tt_comm_world_size(comm);
    bool sharded = config->strategy == TT_FULL_SHARD || config->strategy == TT_HYBRID_SHARD;
    *count = sharded && config->unsharded_blocks > 0 ? config->unsharded_blocks : 0;
    if (!config->train || !sharded || world_size == 1 || tt_device_is_plan(rank->device)) return TT_OK;
    int64_t fewest = *count;
    TT_TRY(tt_comm_host_min(comm, &fewest));
    *count = (int)fewest;
    return TT_OK;
}

static tt_status create_unit(const struct tt_rank_config *config, struct tt_rank *rank, int u,
                             tt_param **params)
{
    const struct tt_model *model = rank->model;
    struct tt_unit_split split = {0};
    size_t count = 0;
    int users = 0;
    const char *name = NULL;
    for (int b = 0; b < model->block_count; b++) {
        const struct tt_block *block = &model->blocks[b];
        if (model->unit_of_block[b] != u) continue;
        if (name == NULL) name = block->name;
        users++;
        choose_split(config, model, b, &split);
        for (size_t p = 0; p < block->param_count; p++) {
            bool seen = false; /* a tied tensor belongs to two blocks and is stored once */
            for (size_t q = 0; q < count; q++) seen |= params[q] == block->params[p];
            if (!seen) params[count++] = block->params[p];
        }
    }
    if (split.param != NULL)
        return tt_unit_create_split(rank->shard, name, params, count, users, &split, &rank->units[u]);
    return tt_unit_create(rank->shard, name, params, count, users, &rank->units[u]);
}

/* The context knows the matrices of experts that ranks share. */
static tt_status create_context(const struct tt_model *model, struct tt_shard_config *shard,
                                struct tt_rank *rank)
{
    const tt_param **experts = tt_calloc(model->param_count + 1, sizeof *experts);
    if (experts == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    if (shard->expert_comm != NULL) status = tt_rank_find_experts(model, experts, &shard->expert_count);
    shard->experts = experts;
    if (status == TT_OK) status = tt_shard_context_create(shard, &rank->shard);
    tt_free(experts);
    return status;
}

tt_status tt_rank_create_units(const struct tt_rank_config *config, struct tt_rank *rank)
{
    struct tt_model *model = rank->model;
    int unsharded;
    TT_TRY(agree_on_unsharded(config, rank, &unsharded));
    struct tt_shard_config shard = {
        .strategy = config->strategy,
        .unsharded_units = unsharded,
        .device = rank->device,
        .compute = rank->stream,
        .shard_comm = rank->mesh.axes[TT_AXIS_SHARD].comm,
        .replicate_comm = rank->mesh.axes[TT_AXIS_REPLICATE].comm,
        .expert_comm = rank->mesh.axes[TT_AXIS_EXPERT].comm,
        .holder_comm = rank->mesh.axes[TT_AXIS_HOLDER].comm,
        .compute_dtype = config->model_options.compute_dtype,
        .reduce_dtype = config->reduce_dtype,
        .train = config->train,
        .trainable_alignment = tt_optimizer_alignment(rank->optimizer),
        .offload_params = config->offload_params,
    };
    rank->split_vocabulary = config->split_vocabulary;
    TT_TRY(create_context(model, &shard, rank));
    rank->units = tt_calloc((size_t)model->unit_count, sizeof *rank->units);
    rank->moments = tt_calloc((size_t)model->unit_count, sizeof *rank->moments);
    tt_param **params = tt_calloc(model->param_count + 1, sizeof *params);
    tt_status status = rank->units != NULL && rank->moments != NULL && params != NULL ? TT_OK : TT_ERR_MEMORY;
    for (int u = 0; u < model->unit_count && status == TT_OK; u++)
        status = create_unit(config, rank, u, params);
    tt_free(params);
    if (status != TT_OK) return status;
    bool beside = config->forward_prefetch || config->backward_prefetch == TT_PREFETCH_PRE;
    return tt_shard_context_seal(rank->shard, beside ? 2 : 1); /* 2: the running block's and the next one's */
}

tt_status tt_rank_check_split(struct tt_rank *rank)
{
    int own = rank->split_vocabulary, count = tt_comm_world_size(rank->world), splitting = 0;
    int *all = tt_calloc((size_t)count, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_comm_host_all_gather(rank->world, &own, all, sizeof own);
    for (int i = 0; i < count; i++) splitting += all[i];
    tt_free(all);
    if (status != TT_OK || splitting == 0 || splitting == count) return status;
    status = tt_fail(TT_ERR_USAGE,
                     "%d of %d ranks must gather embedding and head in parts to fit, the others need not",
                     splitting, count);
    tt_hint("give all ranks the same limit with --device_memory, that of the smallest device");
    return status;
}

bool tt_rank_is_at_hand(const struct tt_rank *rank)
{
    return tt_comm_world_size(rank->world) == 1 && tt_shard_context_at_hand(rank->shard);
}

tt_status tt_rank_refresh(struct tt_rank *rank)
{
    for (int u = 0; u < rank->model->unit_count; u++) {
        TT_TRY(tt_unit_gather(rank->units[u]));
        TT_TRY(tt_unit_wait(rank->units[u]));
        TT_TRY(tt_unit_release(rank->units[u], false));
    }
    return TT_OK;
}
