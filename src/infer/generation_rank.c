#include "infer/generation_rank.h"

#include <string.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "engine/rank_config.h"
#include "job/inputs.h"
#include "launch/world.h"

/* Tokens of a pass: enough for products of many rows, few enough that other answers do not wait long for a prompt. */
enum { PASS_TOKENS_HOST = 256, PASS_TOKENS_DEVICE = 2048, PROMPT_TOKENS_MIN = 16 };

static tt_status create_cache(const struct tt_rank *rank, const struct tt_batch_limits *limits,
                              struct tt_generation_rank *out)
{
    const struct tt_model_facts *model = &rank->model->facts;
    const struct tt_layer_facts *first = &model->layers[0];
    for (int64_t i = 1; i < model->num_hidden_layers; i++) {
        const struct tt_layer_facts *layer = &model->layers[i];
        if (layer->kv_heads == first->kv_heads && layer->head_dim == first->head_dim) continue;
        return tt_fail(TT_ERR_UNSUPPORTED, "generation needs layers with the same number of key/value heads");
    }
    const struct tt_kv_cache_config config = {
        .layer_count = model->num_hidden_layers,
        .sequence_count = limits->sequences,
        .max_length = limits->length,
        .kv_heads = first->kv_heads,
        .head_dim = first->head_dim,
        .dtype = rank->model->options.compute_dtype,
    };
    return tt_kv_cache_create(rank->device, &config, &out->cache);
}

/* Lays `tokens` out as the new tokens of the first sequences that have room for them. */
static void fill_borders(const struct tt_batch_limits *limits, int32_t *borders)
{
    for (int64_t b = 0; b < limits->sequences; b++) {
        int64_t next = borders[b] + limits->length;
        borders[b + 1] = (int32_t)(next < limits->tokens ? next : limits->tokens);
    }
}

/* The memory of a generation. */
struct need {
    size_t workspace, cache, batch;
};

/* Runs the largest pass on the plan device: all tokens of `limits`, and logits of every sequence. */
static tt_status run_planned(const struct tt_rank_config *config, const struct tt_batch_limits *limits,
                             const int32_t *borders, struct need *need)
{
    tt_status status = TT_OK;
    struct tt_generation_rank planned = {.rank = &planned.own};
    struct tt_memory_use before, after;
    float *logits;
    TT_GO(tt_rank_init(config, &planned.own));
    tt_device_memory(planned.own.device, &before);
    TT_GO(create_cache(&planned.own, limits, &planned));
    tt_device_memory(planned.own.device, &after);
    struct tt_batch batch = {
        .token_count = limits->tokens,
        .sequence_count = limits->sequences,
        .max_length = limits->length < limits->tokens ? limits->length : limits->tokens,
        .cu_seqlens = borders,
        .row_count = limits->rows,
    };
    status = tt_generation_rank_pass(&planned, &batch, false, &logits);
    tt_generation_rank_end(&planned);
    *need = (struct need){.workspace = tt_workspace_peak(planned.own.workspace),
                          .cache = after.total_current - before.total_current,
                          .batch = before.peak[TT_PURPOSE_BATCH]};
out:
    tt_generation_rank_deinit(&planned);
    return status;
}

/* `config`: of a rank whose batches may be larger than those of the generation. */
static tt_status plan_pass(const struct tt_rank_config *config, int ranks,
                           const struct tt_generation_limits *limits, struct need *need)
{
    const struct tt_batch_limits batches = tt_generation_batch_limits(limits);
    struct tt_rank_config plan = *config;
    struct tt_comm *comm = NULL;
    plan.device = (struct tt_device_config){.kind = "plan", .threads = 1};
    if (plan.strategy == TT_HYBRID_SHARD) plan.strategy = TT_FULL_SHARD;
    TT_TRY(tt_comm_create_planned(ranks, ranks, &comm));
    plan.world = plan.comm = comm;
    plan.replicate_comm = NULL;
    int32_t *borders = tt_calloc((size_t)limits->slots + 1, sizeof *borders);
    tt_status status = borders != NULL ? TT_OK : TT_ERR_MEMORY;
    if (status == TT_OK) fill_borders(&batches, borders);
    if (status == TT_OK) status = run_planned(&plan, &batches, borders, need);
    if (status != TT_OK) tt_while("planning the memory of generation");
    tt_free(borders);
    tt_comm_destroy(comm);
    return status;
}

tt_status tt_generation_cache_bytes(const struct tt_rank_config *config, int ranks,
                                    const struct tt_generation_limits *limits, size_t *bytes)
{
    struct need need;
    TT_TRY(plan_pass(config, ranks, limits, &need));
    *bytes = need.cache;
    return TT_OK;
}

tt_status tt_generation_plan(const struct tt_rank_config *config, const struct tt_generation_limits *limits,
                             struct tt_plan *plan)
{
    struct tt_rank_config split = *config;
    struct need need;
    size_t *peak = plan->memory.peak;
    split.split_vocabulary = plan->split_vocabulary;
    TT_TRY(plan_pass(&split, plan->ranks.count, limits, &need));
    plan->memory.total_peak -= peak[TT_PURPOSE_ACTIVATIONS] + peak[TT_PURPOSE_BATCH];
    if (plan->workspace_bytes < need.workspace) plan->workspace_bytes = need.workspace;
    peak[TT_PURPOSE_ACTIVATIONS] = plan->workspace_bytes + need.cache;
    peak[TT_PURPOSE_BATCH] = need.batch;
    plan->memory.total_peak += peak[TT_PURPOSE_ACTIVATIONS] + peak[TT_PURPOSE_BATCH];
    plan->fits = plan->limit_bytes == 0 || plan->memory.total_peak <= plan->limit_bytes;
    return TT_OK;
}

void tt_generation_limits_fill(const struct tt_device_config *device, struct tt_generation_limits *limits)
{
    int64_t most = limits->slots * limits->length, least = limits->slots + PROMPT_TOKENS_MIN;
    if (limits->pass_tokens == 0)
        limits->pass_tokens = strcmp(device->kind, "cpu") == 0 ? PASS_TOKENS_HOST : PASS_TOKENS_DEVICE;
    if (limits->pass_tokens < least) limits->pass_tokens = least;
    if (limits->pass_tokens > most) limits->pass_tokens = most;
}

struct tt_batch_limits tt_generation_batch_limits(const struct tt_generation_limits *limits)
{
    return (struct tt_batch_limits){limits->pass_tokens, limits->slots, limits->slots, limits->length};
}

static tt_status create_logits(const struct tt_generation_limits *limits, struct tt_generation_rank *rank)
{
    if (tt_device_is_host(rank->rank->device)) return TT_OK;
    size_t count = (size_t)(limits->slots * rank->rank->model->facts.vocab_size);
    rank->logits = tt_alloc_aligned(count * sizeof(float));
    return rank->logits != NULL ? TT_OK : TT_ERR_MEMORY;
}

static tt_status build(const struct tt_device_spec *device, const struct tt_inputs *inputs,
                       struct tt_generation_limits *limits, struct tt_generation_rank *rank)
{
    struct tt_rank_layout layout = {.world_size = 1, .machines = 1, .ranks_per_machine = 1};
    struct tt_rank_config config;
    struct need need;
    int devices = 0;
    TT_TRY(tt_comm_create_self(&rank->comm));
    TT_TRY(tt_world_choose_device(device->choice, &layout.device.kind, &devices));
    layout.device.threads = device->threads > 0 ? (int)device->threads : tt_cpu_count();
    layout.device.memory_limit = device->device_memory;
    layout.device.tuning = device->tuning;
    TT_TRY(tt_rank_config_make(NULL, &layout, &inputs->model_facts, &inputs->model_options, TT_RANK_GENERATES,
                               NULL, &config));
    tt_generation_limits_fill(&layout.device, limits);
    config.world = config.comm = rank->comm;
    config.limits = tt_generation_batch_limits(limits);
    TT_TRY(plan_pass(&config, 1, limits, &need));
    config.workspace_bytes = need.workspace;
    TT_TRY(tt_rank_init(&config, &rank->own));
    TT_TRY(create_cache(&rank->own, &config.limits, rank));
    TT_TRY(tt_load_check(rank->own.model, &inputs->source));
    TT_TRY(tt_quantization_report(rank->own.model));
    TT_TRY(tt_rank_load(&rank->own, &inputs->source));
    return create_logits(limits, rank);
}

tt_status tt_generation_rank_init(const struct tt_device_spec *device, const struct tt_inputs *inputs,
                                  struct tt_generation_limits *limits, struct tt_generation_rank *rank)
{
    *rank = (struct tt_generation_rank){.rank = &rank->own};
    tt_status status = build(device, inputs, limits, rank);
    if (status != TT_OK) tt_generation_rank_deinit(rank);
    return status;
}

tt_status tt_generation_rank_attach(struct tt_rank *borrowed, const struct tt_generation_limits *limits,
                                    struct tt_generation_rank *rank)
{
    *rank = (struct tt_generation_rank){.rank = borrowed};
    const struct tt_batch_limits batches = tt_generation_batch_limits(limits);
    tt_status status = create_cache(borrowed, &batches, rank);
    if (status == TT_OK) status = create_logits(limits, rank);
    if (status != TT_OK) tt_generation_rank_deinit(rank);
    return status;
}

void tt_generation_rank_deinit(struct tt_generation_rank *rank)
{
    tt_kv_cache_destroy(rank->cache);
    tt_rank_deinit(&rank->own);
    tt_comm_destroy(rank->comm);
    tt_free(rank->logits);
    *rank = (struct tt_generation_rank){0};
}

tt_status tt_generation_rank_pass(struct tt_generation_rank *rank, const struct tt_batch *batch,
                                  bool adapter_off, float **logits)
{
    struct tt_stream *stream = rank->rank->stream;
    struct tt_pass pass;
    TT_TRY(tt_rank_upload(rank->rank, batch, &pass));
    pass.lent.cache = rank->cache;
    pass.in.want_logits = true;
    pass.in.adapters_off = adapter_off;
    TT_TRY(tt_kv_cache_begin(rank->cache, stream, batch->cu_seqlens));
    TT_TRY(tt_executor_forward(rank->rank->executor, &pass));
    tt_kv_cache_end(rank->cache);
    if (tt_device_is_plan(rank->rank->device)) return TT_OK;
    tt_tensor logits_NV = rank->rank->results.logits_NV;
    *logits = rank->logits != NULL ? rank->logits : logits_NV.data;
    if (rank->logits != NULL && batch->row_count > 0)
        TT_TRY(tt_copy_to_host(stream, rank->logits, logits_NV.data, tt_tensor_bytes(logits_NV)));
    return tt_stream_synchronize(stream);
}

void tt_generation_rank_end(struct tt_generation_rank *rank)
{
    if (rank->rank != NULL && rank->rank->executor != NULL) tt_executor_end(rank->rank->executor);
}
