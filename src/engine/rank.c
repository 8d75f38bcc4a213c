#include "backend/chips.h"
#include "engine/rank_impl.h"

#include <string.h>
#include "base/alloc.h"
#include "checkpoint/load.h"
#include "optim/groups.h"

static tt_status create_moments(struct tt_rank *rank, int u)
{
    const struct tt_unit *unit = rank->units[u];
    size_t count = tt_unit_run_count(unit);
    struct tt_moments_run *runs = tt_calloc(count + 1, sizeof *runs);
    if (runs == NULL) return TT_ERR_MEMORY;
    for (size_t r = 0; r < count; r++) {
        struct tt_slice_run run = tt_unit_run(unit, r);
        runs[r] = (struct tt_moments_run){.param = run.param, .offset = run.offset, .count = run.count};
    }
    tt_status status = tt_moments_init(rank->device, rank->optimizer, runs, count, tt_unit_slices(unit).count,
                                       rank->moments_in_host, &rank->moments[u]);
    tt_free(runs);
    return status;
}

static tt_status create_optimizer(struct tt_rank *rank)
{
    for (int u = 0; u < rank->model->unit_count; u++) TT_TRY(create_moments(rank, u));
    return TT_OK;
}

static tt_status create_snapshot(const struct tt_rank_config *config, struct tt_rank *rank)
{
    struct tt_snapshot_config snapshot = {
        .device = rank->device,
        .model = rank->model,
        .units = rank->units,
        .optimizer = rank->optimizer,
        .moments = config->saves_state ? rank->moments : NULL,
        .moments_in_host = rank->moments_in_host,
    };
    return config->saves ? tt_snapshot_init(&snapshot, &rank->snapshot) : TT_OK;
}

/* A gather slows matrix products down: it uses power and memory bandwidth, and the copy of the rank's own shard even
 * multiprocessors. It slows attention less, so if there is time the gather starts with attention: this saves 0.1 to
 * 0.4 % of a step of 11 billion parameters on two H200s with 16384 tokens. There is time if a quarter of a block's pass
 * (attention and the rest of the block) takes longer than a gather: per parameter, in bf16, 2 bytes over the link
 * against at least 2 FLOP a token. The rate of a network is unknown. */
static int64_t late_gather_tokens(const struct tt_rank_config *config, const struct tt_rank *rank)
{
    const struct tt_chip *chip = tt_device_chip(rank->device);
    const struct tt_comm *shard = rank->mesh.axes[TT_AXIS_SHARD].comm;
    bool over_network = tt_comm_local_size(shard) < tt_comm_world_size(shard);
    if (chip == NULL || tt_device_is_host(rank->device) || over_network) return 0;
    double rate = config->offload_params ? chip->host_bytes_per_second : chip->link_bytes_per_second;
    return (int64_t)(4.0 * chip->gemm_flops / rate);
}

static tt_status check_fp8(const struct tt_rank *rank)
{
    const struct tt_base_quant *quant = &rank->model->options.quant;
    bool fp8 = tt_quant_multiplies(quant->type) && quant->products != TT_FP8_NONE && !quant->blocks;
    if (!fp8 && !quant->recodes) return TT_OK;
    if (tt_device_multiplies_fp8(rank->device)) return TT_OK;
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "%s has no products in FP8 with a scale a row",
                               tt_device_is_plan(rank->device) ? tt_device_chip(rank->device)->name
                                                               : tt_device_name(rank->device));
    tt_hint("compute capability 9.0 or 10.0 has them; --fp8_products none decodes the weights for products "
            "in the compute type, with as many bits a weight in memory");
    return status;
}

/* Running statistics do not train, so they can change only where every rank holds whole blocks. */
static tt_status check_batch_norm(const struct tt_rank_config *config, const struct tt_model *model)
{
    for (int i = 0; i < model->block_count && config->train && config->strategy != TT_NO_SHARD; i++) {
        const struct tt_block *block = &model->blocks[i];
        if (tt_block_exchange_of(block) != TT_EXCHANGE_STATISTICS) continue;
        tt_status status = tt_fail(TT_ERR_USAGE, "norm is batch, and sharding_strategy is not NO_SHARD");
        tt_hint("running statistics are kept whole on every rank");
        return status;
    }
    return TT_OK;
}

/* Ranks that share units call collectives below: one that has failed must not leave the others there. */
static tt_status agree(const struct tt_rank_config *config, tt_status status)
{
    bool alone = config->shard_comm != NULL || strcmp(config->device.kind, "plan") == 0;
    return alone ? status : tt_comm_agree(config->world, status);
}

static tt_status create_model(const struct tt_rank_config *config, struct tt_rank *rank)
{
    if (config->objective != NULL)
        rank->objective = *config->objective;
    else
        TT_TRY(tt_objective_init("sft", &rank->objective));
    TT_TRY(tt_device_open(&config->device, &rank->device));
    TT_TRY(tt_stream_create(rank->device, &rank->stream));
    TT_TRY(tt_model_create(config->model_facts, &config->model_options, &rank->model));
    if (config->train && config->optim != NULL)
        TT_TRY(tt_param_groups_apply(config->optim, rank->model->params, rank->model->param_count));
    TT_TRY(check_fp8(rank));
    return check_batch_norm(config, rank->model);
}

static tt_status create_mesh(const struct tt_rank_config *config, struct tt_rank *rank)
{
    const struct tt_mesh_config mesh = {.world = config->world,
                                        .shard_comm = config->shard_comm,
                                        .replicate_comm = config->replicate_comm,
                                        .machine = config->machine,
                                        .local_rank = config->local_rank,
                                        .strategy = config->strategy,
                                        .axes = config->axes,
                                        .experts = config->expert_parallel,
                                        .orders_sums = config->train && config->device.tuning.deterministic};
    return tt_mesh_init(&mesh, rank->device, &rank->mesh);
}

tt_status tt_rank_init(const struct tt_rank_config *config, struct tt_rank *rank)
{
    tt_status status = TT_OK;
    *rank = (struct tt_rank){.limits = config->limits, .optimizer = config->optimizer};
    rank->moments_in_host = config->offload_params || config->page_moments;
    if (rank->optimizer == NULL) rank->optimizer = tt_optimizer_of(NULL);
    TT_GO(agree(config, create_model(config, rank)));
    TT_GO(tt_rank_check_experts(config, rank));
    TT_GO(agree(config, create_mesh(config, rank)));
    rank->world = rank->mesh.world;
    TT_GO(tt_rank_create_units(config, rank));
    if (config->train) TT_GO(create_optimizer(rank));
    TT_GO(create_snapshot(config, rank));
    TT_GO(tt_rank_reference_init(config, rank));
    TT_GO(tt_rank_rows_init(config, rank));
    TT_GO(tt_rank_tokens_init(config, rank));
    TT_GO(tt_rank_sums_init(config, rank));
    TT_GO(tt_rank_balance_init(config, rank));
    TT_GO(tt_rank_attached_init(config, rank));
    TT_GO(tt_workspace_create(rank->device, config->workspace_bytes, &rank->workspace));
    struct tt_executor_config executor = {
        .model = rank->model,
        .units = rank->units,
        .shard = rank->shard,
        .workspace = rank->workspace,
        .device = rank->device,
        .levels = config->levels,
        .mesh = &rank->mesh,
        .rows_max = config->limits.rows,
        .tokens_max = config->limits.tokens,
        .backward_prefetch = config->backward_prefetch,
        .forward_prefetch = config->forward_prefetch,
        .limits_lead = config->limits_lead,
        .late_gather_tokens = late_gather_tokens(config, rank),
        /* A block on the CPU has no time limit. */
        .pulse = tt_device_is_host(rank->device) ? NULL : config->pulse,
        .cancel = config->cancel,
    };
    TT_GO(tt_executor_create(&executor, &rank->executor));
out:
    if (status != TT_OK) tt_rank_deinit(rank);
    return status;
}

void tt_rank_deinit(struct tt_rank *rank)
{
    tt_executor_destroy(rank->executor);
    tt_workspace_destroy(rank->workspace);
    tt_buffer_destroy(rank->param_squares_buffer);
    tt_buffer_destroy(rank->sums_buffer);
    tt_buffer_destroy(rank->balance_buffer);
    tt_rank_tokens_deinit(rank);
    tt_rank_attached_deinit(rank);
    tt_free(rank->rows.block);
    tt_free(rank->rows.tallies);
    tt_step_lists_deinit(&rank->rows.lists);
    tt_snapshot_deinit(&rank->snapshot);
    tt_rank_reference_deinit(rank);
    for (int u = 0; rank->model != NULL && u < rank->model->unit_count; u++) {
        if (rank->moments != NULL) tt_moments_deinit(&rank->moments[u]);
        if (rank->units != NULL) tt_unit_destroy(rank->units[u]);
    }
    tt_free(rank->moments);
    tt_free(rank->units);
    tt_shard_context_destroy(rank->shard);
    tt_model_destroy(rank->model);
    tt_stream_destroy(rank->stream);
    tt_mesh_deinit(&rank->mesh);
    tt_device_close(rank->device);
    *rank = (struct tt_rank){0};
}

static tt_status load_units(struct tt_rank *rank, struct tt_load_source source)
{
    source.scratch = tt_workspace_rest(rank->workspace);
    TT_TRY(tt_load_units(rank->model, rank->units, rank->stream, &source));
    return tt_stream_synchronize(rank->stream);
}

/* Nobody reads the values at the begin where the reference is no copy. */
static tt_status load_begin(struct tt_rank *rank, const struct tt_load_source *begin)
{
    if (!tt_rank_copies_reference(rank)) return TT_OK;
    TT_TRY(load_units(rank, *begin));
    return tt_rank_keep_reference(rank);
}

/* The base under an adapter is in place. */
static tt_status load_own(struct tt_rank *rank, struct tt_load_source source)
{
    source.adapter_only = source.adapter != NULL && tt_rank_copies_reference(rank);
    return load_units(rank, source);
}

tt_status tt_rank_load_again(struct tt_rank *rank, const struct tt_load_source *begin,
                             const struct tt_load_source *source)
{
    TT_TRY(tt_rank_check_split(rank));
    tt_status status = load_begin(rank, begin);
    TT_TRY(tt_comm_agree(rank->world, status == TT_OK ? load_own(rank, *source) : status));
    return tt_shard_context_share(rank->shard);
}

tt_status tt_rank_load_values(struct tt_rank *rank, const struct tt_load_source *source)
{
    struct tt_load_source own = *source;
    own.adapter_only = own.adapter != NULL;
    return tt_comm_agree(rank->world, load_units(rank, own));
}

tt_status tt_rank_load(struct tt_rank *rank, const struct tt_load_source *source)
{
    TT_TRY(tt_rank_check_split(rank));
    tt_status status = load_units(rank, *source);
    if (status == TT_OK) status = tt_rank_keep_reference(rank);
    TT_TRY(tt_comm_agree(rank->world, status));
    TT_TRY(tt_shard_context_share(rank->shard));
    return tt_rank_derive(rank, source);
}

void tt_rank_abandon(struct tt_rank *rank)
{
    tt_comm_abort(rank->world);
    for (int axis = 0; axis < TT_AXES_MAX; axis++) {
        struct tt_comm *comm = rank->mesh.axes[axis].comm;
        if (comm != rank->world) tt_comm_abort(comm);
    }
}
