#include "backend/chips.h"
#include "engine/rank_impl.h"

#include <string.h>

#include "backend/ops/cross_entropy.h"
#include "backend/ops/optim.h"
#include "base/alloc.h"
#include "base/integer.h"
#include "checkpoint/load.h"
#include "engine/rehearsal.h"

/* Alignment of the arrays in the batch buffer, for vector loads. */
enum { BATCH_ALIGNMENT = 256 };

/* Indices in the buffer of sums: the sums of the op loss_sums come first. */
enum { LOSS_SUMS = 3, SQUARES = LOSS_SUMS, DEVICE_SUMS };

static size_t aligned(size_t bytes)
{
    return tt_align_up(bytes, BATCH_ALIGNMENT);
}

static tt_status create_optimizer(struct tt_rank *rank, bool offload)
{
    for (int u = 0; u < rank->model->unit_count; u++)
        TT_TRY(tt_moments_init(rank->device, rank->optimizer, tt_unit_slices(rank->units[u]).count, offload,
                               &rank->moments[u]));
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
        .moments_in_host = config->offload_params,
    };
    return config->saves ? tt_snapshot_init(&snapshot, &rank->snapshot) : TT_OK;
}

/* The tables of all rotations, one after another in one buffer. */
static tt_status create_ropes(const struct tt_rank_config *config, struct tt_rank *rank)
{
    const struct tt_model_facts *facts = config->model_facts;
    int64_t positions = config->limits.length;
    size_t floats = 0;
    for (int i = 0; i < facts->rope_count; i++) floats += (size_t)(positions * facts->ropes[i].columns);
    TT_TRY(tt_buffer_create(rank->device, floats * sizeof(float), TT_PURPOSE_BATCH, &rank->rope_buffer));
    float *device_table = tt_buffer_data(rank->rope_buffer), *host = NULL;
    if (!tt_device_is_plan(rank->device)) {
        host = tt_alloc_aligned(floats * sizeof(float));
        if (host == NULL) return TT_ERR_MEMORY;
    }
    size_t at = 0;
    for (int i = 0; i < facts->rope_count; i++) {
        int64_t half = facts->ropes[i].columns / 2;
        size_t table = (size_t)(positions * half);
        rank->ropes[i].cos_PE = tt_tensor_2d(device_table + at, TT_F32, positions, half);
        rank->ropes[i].sin_PE = tt_tensor_2d(device_table + at + table, TT_F32, positions, half);
        if (host != NULL) tt_model_fill_rope(&facts->ropes[i], positions, host + at, host + at + table);
        at += 2 * table;
    }
    if (host == NULL) return TT_OK;
    tt_status status = tt_copy_to_device(rank->stream, device_table, host, floats * sizeof(float));
    if (status == TT_OK) status = tt_stream_synchronize(rank->stream);
    tt_free(host);
    return status;
}

static tt_status create_batch_buffers(const struct tt_rank_config *config, struct tt_rank *rank)
{
    const struct tt_batch_limits *limits = &config->limits;
    size_t tokens = (size_t)limits->tokens, rows = (size_t)limits->rows;
    size_t bytes = 2 * aligned(tokens * sizeof(int32_t)) + aligned(tokens * sizeof(int64_t)) +
                   aligned(((size_t)limits->sequences + 1) * sizeof(int32_t)) +
                   2 * aligned(rows * sizeof(int32_t)) +
                   (rank->objective.ops->rows != NULL ? aligned(rows * sizeof(float)) : 0);
    TT_TRY(tt_buffer_create(rank->device, bytes, TT_PURPOSE_BATCH, &rank->batch_buffer));
    TT_TRY(
        tt_buffer_create(rank->device, DEVICE_SUMS * sizeof(double), TT_PURPOSE_BATCH, &rank->sums_buffer));
    if (config->train)
        TT_TRY(tt_buffer_create(rank->device, (rank->model->param_count + 1) * sizeof(double),
                                TT_PURPOSE_BATCH, &rank->param_squares_buffer));

    TT_TRY(tt_rank_images_init(config, rank));
    return create_ropes(config, rank);
}

/* A gather slows matrix products down: it uses power and memory bandwidth, and the copy of the rank's own shard even
 * multiprocessors. It slows attention less, so if there is time the gather starts with attention: this saves 0.1 to
 * 0.4 % of a step of 11 billion parameters on two H200s with 16384 tokens. There is time if a quarter of a block's pass
 * (attention and the rest of the block) takes longer than a gather: per parameter, in bf16, 2 bytes over the link
 * against at least 2 FLOP a token. The rate of a network is unknown. */
static int64_t late_gather_tokens(const struct tt_rank_config *config, const struct tt_rank *rank)
{
    const struct tt_chip *chip = tt_device_chip(rank->device);
    bool over_network = tt_comm_local_size(rank->comm) < tt_comm_world_size(rank->comm);
    if (chip == NULL || tt_device_is_host(rank->device) || over_network) return 0;
    double rate = config->offload_params ? chip->host_bytes_per_second : chip->link_bytes_per_second;
    return (int64_t)(4.0 * chip->gemm_flops / rate);
}

static tt_status check_fp8(const struct tt_rank *rank)
{
    const struct tt_base_quant *quant = &rank->model->options.quant;
    bool fp8 = quant->type == TT_QUANT_FP8 && quant->products != TT_FP8_NONE && !quant->blocks;
    if (!fp8 && !quant->recodes) return TT_OK;
    if (tt_device_multiplies_fp8(rank->device)) return TT_OK;
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "%s has no products in FP8 with a scale a row",
                               tt_device_is_plan(rank->device) ? tt_device_chip(rank->device)->name
                                                               : tt_device_name(rank->device));
    tt_hint("compute capability 9.0 or 10.0 has them; --fp8_products none decodes the weights for products "
            "in the compute type, with as many bits a weight in memory");
    return status;
}

/* Only whole blocks can change what does not train. */
static tt_status check_batch_norm(const struct tt_rank_config *config, const struct tt_model *model)
{
    for (int i = 0; i < model->block_count && config->train && config->strategy != TT_NO_SHARD; i++) {
        const struct tt_block *block = &model->blocks[i];
        if (block->ops->exchanges == NULL || !block->ops->exchanges(block)) continue;
        tt_status status = tt_fail(TT_ERR_USAGE, "norm is batch, and sharding_strategy is not NO_SHARD");
        tt_hint("running statistics are kept whole on every rank");
        return status;
    }
    return TT_OK;
}

tt_status tt_rank_init(const struct tt_rank_config *config, struct tt_rank *rank)
{
    tt_status status = TT_OK;
    *rank = (struct tt_rank){.limits = config->limits, .optimizer = config->optimizer};
    if (rank->optimizer == NULL) rank->optimizer = tt_optimizer_of(NULL);
    if (config->objective != NULL)
        rank->objective = *config->objective;
    else
        TT_GO(tt_objective_init("sft", &rank->objective));
    TT_GO(tt_device_open(&config->device, &rank->device));
    TT_GO(tt_mesh_init(config, rank->device, &rank->mesh));
    rank->world = rank->mesh.world;
    rank->comm = rank->mesh.shard;
    rank->sharded = rank->mesh.part_count > 1;
    TT_GO(tt_stream_create(rank->device, &rank->stream));
    TT_GO(tt_model_create(config->model_facts, &config->model_options, &rank->model));
    TT_GO(check_fp8(rank));
    TT_GO(check_batch_norm(config, rank->model));
    TT_GO(tt_rank_create_units(config, rank));
    if (config->train) TT_GO(create_optimizer(rank, config->offload_params));
    TT_GO(create_snapshot(config, rank));
    TT_GO(tt_rank_rows_init(config, rank));
    TT_GO(create_batch_buffers(config, rank));
    TT_GO(tt_workspace_create(rank->device, config->workspace_bytes, &rank->workspace));
    struct tt_executor_config executor = {
        .model = rank->model,
        .units = rank->units,
        .workspace = rank->workspace,
        .device = rank->device,
        .levels = config->levels,
        .comm = rank->world,
        .rows_max = config->limits.rows,
        .tokens_max = config->limits.tokens,
        .backward_prefetch = config->backward_prefetch,
        .forward_prefetch = config->forward_prefetch,
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
    tt_buffer_destroy(rank->rope_buffer);
    tt_buffer_destroy(rank->batch_buffer);
    tt_rank_images_deinit(rank);
    tt_rehearsals_deinit(&rank->rehearsals);
    tt_free(rank->rows.block);
    tt_snapshot_deinit(&rank->snapshot);
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

tt_status tt_rank_load(struct tt_rank *rank, const struct tt_load_source *source)
{
    TT_TRY(tt_rank_check_split(rank));
    tt_status status = tt_load_units(rank->model, rank->units, rank->stream, source);
    if (status == TT_OK) status = tt_stream_synchronize(rank->stream);
    TT_TRY(tt_comm_agree(rank->world, status));
    return tt_shard_context_share(rank->shard);
}

/* Takes the next piece of the batch buffer and copies `bytes` from the host into it. */
static tt_status upload(struct tt_rank *rank, char **next, const void *host, size_t bytes, void **device)
{
    *device = *next;
    *next += aligned(bytes);
    if (bytes == 0 || tt_device_is_plan(rank->device)) return TT_OK; /* a plan has sizes, not tokens */
    return tt_copy_to_device(rank->stream, *device, host, bytes);
}

tt_status tt_rank_upload(struct tt_rank *rank, const struct tt_batch *batch, struct tt_pass *pass)
{
    const struct tt_batch_limits *limits = &rank->limits;
    if (batch->token_count > limits->tokens || batch->row_count > limits->rows ||
        batch->sequence_count > limits->sequences)
        return tt_fail(TT_ERR_INTERNAL, "a micro batch of %lld tokens is larger than the %lld planned for",
                       (long long)batch->token_count, (long long)limits->tokens);
    int64_t tokens = batch->token_count, rows = batch->row_count;
    char *next = tt_buffer_data(rank->batch_buffer);
    void *ids, *positions, *keys, *borders, *row_list, *labels;
    size_t borders_bytes = tokens > 0 ? (size_t)(batch->sequence_count + 1) * sizeof(int32_t) : 0;
    TT_TRY(upload(rank, &next, batch->ids, (size_t)tokens * sizeof(int32_t), &ids));
    TT_TRY(upload(rank, &next, batch->positions, (size_t)tokens * sizeof(int32_t), &positions));
    TT_TRY(upload(rank, &next, batch->row_keys, (size_t)tokens * sizeof(int64_t), &keys));
    TT_TRY(upload(rank, &next, batch->cu_seqlens, borders_bytes, &borders));
    TT_TRY(upload(rank, &next, batch->rows, (size_t)rows * sizeof(int32_t), &row_list));
    TT_TRY(upload(rank, &next, batch->labels, (size_t)rows * sizeof(int32_t), &labels));
    rank->batch = (struct tt_device_batch){
        .token_count = tokens,
        .sequence_count = batch->sequence_count,
        .max_length = batch->max_length,
        .ids_T = tt_tensor_1d(ids, TT_I32, tokens),
        .positions_T = tt_tensor_1d(positions, TT_I32, tokens),
        .row_keys_T = tt_tensor_1d(keys, TT_I64, tokens),
        .cu_seqlens = tt_tensor_1d(borders, TT_I32, batch->sequence_count + 1),
        .host_cu_seqlens = batch->cu_seqlens,
        .row_count = rows,
        .rows_N = tt_tensor_1d(row_list, TT_I32, rows),
        .labels_N = tt_tensor_1d(labels, TT_I32, rows),
    };
    rank->results = (struct tt_pass_results){0};
    *pass = (struct tt_pass){
        .lent = {.stream = rank->stream, .workspace = rank->workspace},
        .in = {.batch = &rank->batch, .compute_dtype = rank->model->options.compute_dtype},
        .out = &rank->results,
    };
    memcpy(pass->lent.ropes, rank->ropes, sizeof rank->ropes);
    if (rank->objective.ops->rows != NULL) {
        pass->in.scale_N = tt_tensor_1d(next, TT_F32, rows);
        pass->in.scales_follow = true;
    }
    return TT_OK;
}

void tt_rank_abandon(struct tt_rank *rank)
{
    tt_comm_abort(rank->world);
    if (rank->comm != rank->world) tt_comm_abort(rank->comm);
}

tt_status tt_rank_clear_sums(struct tt_rank *rank)
{
    memset(rank->rows.sums, 0, sizeof rank->rows.sums);
    return tt_fill_zero(rank->stream, tt_buffer_data(rank->sums_buffer), DEVICE_SUMS * sizeof(double));
}

tt_status tt_rank_add_loss(struct tt_rank *rank, const struct tt_batch *batch,
                           const struct tt_objective_counts *counts, const struct tt_pass *pass)
{
    if (pass->in.batch->token_count == 0 || pass->in.batch->row_count == 0) return TT_OK;
    if (rank->objective.ops->rows != NULL) return tt_rank_run_objective(rank, batch, counts, pass);
    double *sums = tt_buffer_data(rank->sums_buffer);
    struct tt_loss_sums_args args = {
        .loss_N = pass->out->loss_N,
        .correct_N = pass->out->correct_N,
        .entropy_N = pass->out->entropy_N,
        .sums = tt_tensor_1d(sums, TT_F64, LOSS_SUMS),
    };
    return tt_loss_sums(rank->stream, &args);
}

static tt_status add_squares(struct tt_rank *rank, double *to, const float *values, int64_t count)
{
    if (count == 0) return TT_OK;
    struct tt_sum_squares_args args = {
        .x = tt_tensor_1d((float *)values, TT_F32, count),
        .out = tt_tensor_1d(to, TT_F64, 1),
    };
    return tt_sum_squares(rank->stream, &args);
}

tt_status tt_rank_add_squares(struct tt_rank *rank, const float *values, int64_t count)
{
    double *sums = tt_buffer_data(rank->sums_buffer);
    return add_squares(rank, sums + SQUARES, values, count);
}

tt_status tt_rank_read_sums(struct tt_rank *rank, double sums[TT_SUM_COUNT])
{
    double device[DEVICE_SUMS];
    memset(sums, 0, TT_SUM_COUNT * sizeof *sums);
    if (tt_device_is_plan(rank->device)) return TT_OK;
    TT_TRY(tt_copy_to_host(rank->stream, device, tt_buffer_data(rank->sums_buffer), sizeof device));
    TT_TRY(tt_stream_synchronize(rank->stream));
    if (rank->objective.ops->rows != NULL)
        memcpy(sums, rank->rows.sums, sizeof rank->rows.sums);
    else
        memcpy(sums, device, LOSS_SUMS * sizeof *sums);
    /* The heads of a detector add two losses; the third sum is both. */
    if (rank->limits.images > 0) sums[2] = sums[0] + sums[1];
    sums[TT_SUM_SQUARES] = device[SQUARES];
    return TT_OK;
}

tt_status tt_rank_add_param_squares(struct tt_rank *rank, size_t index, const float *values, int64_t count)
{
    double *squares = tt_buffer_data(rank->param_squares_buffer);
    return add_squares(rank, squares + index, values, count);
}

tt_status tt_rank_read_param_squares(struct tt_rank *rank, double *squares)
{
    void *device = tt_buffer_data(rank->param_squares_buffer);
    size_t bytes = rank->model->param_count * sizeof *squares;
    if (tt_device_is_plan(rank->device)) return TT_OK;
    TT_TRY(tt_copy_to_host(rank->stream, squares, device, bytes));
    TT_TRY(tt_stream_synchronize(rank->stream));
    return tt_fill_zero(rank->stream, device, bytes);
}
