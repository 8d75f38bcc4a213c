#include "train/rank.h"

#include <string.h>

#include "backend/ops/optim.h"
#include "base/alloc.h"

/* Places in the batch buffer, each aligned so that vector loads are fine. */
enum { BATCH_ALIGNMENT = 256 };

static size_t align_up(size_t bytes)
{
    return (bytes + BATCH_ALIGNMENT - 1) / BATCH_ALIGNMENT * BATCH_ALIGNMENT;
}

static tt_status create_units(const struct tt_rank_config *config, struct tt_rank *rank)
{
    struct tt_model *model = rank->model;
    struct tt_shard_config shard = {
        .strategy = config->strategy,
        .device = rank->device,
        .compute = rank->stream,
        .shard_comm = config->comm,
        .replicate_comm = config->replicate_comm,
        .compute_dtype = config->model_options.compute_dtype,
        .reduce_dtype = config->reduce_dtype,
        .train = config->train,
    };
    TT_TRY(tt_shard_context_create(&shard, &rank->shard));
    rank->units = tt_calloc((size_t)model->unit_count, sizeof *rank->units);
    rank->adamw = tt_calloc((size_t)model->unit_count, sizeof *rank->adamw);
    tt_param **params = tt_calloc(model->param_count + 1, sizeof *params);
    tt_status status = rank->units != NULL && rank->adamw != NULL && params != NULL ? TT_OK : TT_ERR_MEMORY;
    for (int u = 0; u < model->unit_count && status == TT_OK; u++) {
        size_t count = 0;
        int users = 0;
        const char *name = NULL;
        for (int b = 0; b < model->block_count; b++) {
            const struct tt_block *block = &model->blocks[b];
            if (model->unit_of_block[b] != u) continue;
            if (name == NULL) name = block->name;
            users++;
            for (size_t p = 0; p < block->param_count; p++) {
                bool seen = false; /* a tied tensor belongs to two blocks and lies in memory once */
                for (size_t q = 0; q < count; q++) seen |= params[q] == block->params[p];
                if (!seen) params[count++] = block->params[p];
            }
        }
        status = tt_unit_create(rank->shard, name, params, count, users, &rank->units[u]);
    }
    tt_free(params);
    if (status != TT_OK) return status;
    bool ahead = config->forward_prefetch || config->backward_prefetch != TT_PREFETCH_NONE;
    return tt_shard_context_seal(rank->shard, ahead ? 2 : 1);
}

static tt_status create_optimizer(struct tt_rank *rank)
{
    for (int u = 0; u < rank->model->unit_count; u++)
        TT_TRY(tt_adamw_state_init(rank->device, tt_unit_slices(rank->units[u]).count, &rank->adamw[u]));
    return TT_OK;
}

static tt_status create_batch_buffers(const struct tt_rank_config *config, struct tt_rank *rank)
{
    const struct tt_batch_limits *limits = &config->limits;
    size_t tokens = (size_t)limits->tokens, rows = (size_t)limits->rows;
    size_t bytes = 2 * align_up(tokens * sizeof(int32_t)) + align_up(tokens * sizeof(int64_t)) +
                   align_up(((size_t)limits->sequences + 1) * sizeof(int32_t)) +
                   2 * align_up(rows * sizeof(int32_t));
    TT_TRY(tt_buffer_create(rank->device, bytes, TT_PURPOSE_BATCH, &rank->batch_buffer));
    TT_TRY(tt_buffer_create(rank->device, sizeof(double), TT_PURPOSE_BATCH, &rank->scalar_buffer));

    int64_t half = config->model_config->head_dim / 2;
    size_t table = (size_t)(limits->length * half);
    TT_TRY(tt_buffer_create(rank->device, 2 * table * sizeof(float), TT_PURPOSE_BATCH, &rank->rope_buffer));
    float *device_table = tt_buffer_data(rank->rope_buffer);
    rank->rope_cos_PE = tt_tensor_2d(device_table, TT_F32, limits->length, half);
    rank->rope_sin_PE = tt_tensor_2d(device_table + table, TT_F32, limits->length, half);
    if (tt_device_is_plan(rank->device)) return TT_OK;
    float *host = tt_alloc_aligned(2 * table * sizeof(float));
    if (host == NULL) return TT_ERR_MEMORY;
    tt_model_fill_rope(config->model_config, limits->length, host, host + table);
    tt_status status = tt_copy_to_device(rank->stream, device_table, host, 2 * table * sizeof(float));
    if (status == TT_OK) status = tt_stream_synchronize(rank->stream);
    tt_free(host);
    return status;
}

tt_status tt_rank_init(const struct tt_rank_config *config, struct tt_rank *rank)
{
    tt_status status = TT_OK;
    *rank = (struct tt_rank){.world = config->world, .comm = config->comm, .limits = config->limits};
    rank->sharded = config->strategy != TT_NO_SHARD && tt_comm_world_size(config->comm) > 1;
    TT_GO(tt_device_open(&config->device, &rank->device));
    TT_GO(tt_stream_create(rank->device, &rank->stream));
    TT_GO(tt_model_create(config->model_config, &config->model_options, &rank->model));
    TT_GO(create_units(config, rank));
    if (config->train) TT_GO(create_optimizer(rank));
    TT_GO(create_batch_buffers(config, rank));
    TT_GO(tt_workspace_create(rank->device, config->workspace_bytes, &rank->workspace));
    struct tt_executor_config executor = {
        .model = rank->model,
        .units = rank->units,
        .workspace = rank->workspace,
        .recompute = config->recompute,
        .backward_prefetch = config->backward_prefetch,
        .forward_prefetch = config->forward_prefetch,
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
    tt_buffer_destroy(rank->scalar_buffer);
    tt_buffer_destroy(rank->rope_buffer);
    tt_buffer_destroy(rank->batch_buffer);
    for (int u = 0; rank->model != NULL && u < rank->model->unit_count; u++) {
        if (rank->adamw != NULL) tt_adamw_state_deinit(&rank->adamw[u]);
        if (rank->units != NULL) tt_unit_destroy(rank->units[u]);
    }
    tt_free(rank->adamw);
    tt_free(rank->units);
    tt_shard_context_destroy(rank->shard);
    tt_model_destroy(rank->model);
    tt_stream_destroy(rank->stream);
    tt_device_close(rank->device);
    *rank = (struct tt_rank){0};
}

/* Takes the next piece of the batch buffer and copies `bytes` from the host into it. */
static tt_status upload(struct tt_rank *rank, char **next, const void *host, size_t bytes, void **device)
{
    *device = *next;
    *next += align_up(bytes);
    if (bytes == 0 || tt_device_is_plan(rank->device)) return TT_OK; /* a plan has sizes, not tokens */
    return tt_copy_to_device(rank->stream, *device, host, bytes);
}

tt_status tt_rank_upload(struct tt_rank *rank, const struct tt_batch *batch, struct tt_step *step)
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
    *step = (struct tt_step){
        .stream = rank->stream,
        .workspace = rank->workspace,
        .batch = &rank->batch,
        .compute_dtype = rank->model->options.compute_dtype,
        .rope_cos_PE = rank->rope_cos_PE,
        .rope_sin_PE = rank->rope_sin_PE,
    };
    return TT_OK;
}

void tt_rank_abandon(struct tt_rank *rank)
{
    tt_comm_abort(rank->world);
    if (rank->comm != rank->world) tt_comm_abort(rank->comm);
}

tt_status tt_rank_read_loss(struct tt_rank *rank, const struct tt_step *step, struct tt_loss_sums *sums)
{
    *sums = (struct tt_loss_sums){0};
    int64_t rows = step->batch->row_count;
    if (step->batch->token_count == 0 || rows == 0 || tt_device_is_plan(rank->device)) return TT_OK;
    float *loss = tt_calloc((size_t)rows, sizeof *loss);
    int32_t *correct = tt_calloc((size_t)rows, sizeof *correct);
    tt_status status = loss != NULL && correct != NULL ? TT_OK : TT_ERR_MEMORY;
    if (status == TT_OK)
        status = tt_copy_to_host(rank->stream, loss, step->loss_N.data, (size_t)rows * sizeof *loss);
    if (status == TT_OK && !tt_tensor_is_empty(step->correct_N))
        status = tt_copy_to_host(rank->stream, correct, step->correct_N.data, (size_t)rows * sizeof *correct);
    if (status == TT_OK) status = tt_stream_synchronize(rank->stream);
    for (int64_t n = 0; n < rows && status == TT_OK; n++) {
        sums->loss += (double)loss[n];
        sums->correct += correct[n];
    }
    tt_free(loss);
    tt_free(correct);
    return status;
}

tt_status tt_rank_sum_squares(struct tt_rank *rank, const float *values, int64_t count, double *sum)
{
    *sum = 0.0;
    if (count == 0) return TT_OK;
    void *scalar = tt_buffer_data(rank->scalar_buffer);
    TT_TRY(tt_fill_zero(rank->stream, scalar, sizeof(double)));
    struct tt_sum_squares_args args = {
        .x = tt_tensor_1d((float *)values, TT_F32, count),
        .out = tt_tensor_1d(scalar, TT_F64, 1),
    };
    TT_TRY(tt_sum_squares(rank->stream, &args));
    if (tt_device_is_plan(rank->device)) return TT_OK;
    TT_TRY(tt_copy_to_host(rank->stream, sum, scalar, sizeof(double)));
    return tt_stream_synchronize(rank->stream);
}
