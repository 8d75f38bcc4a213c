#include "infer/generation_rank.h"

#include <string.h>

#include "backend/ops/add_logits.h"
#include "base/alloc.h"
#include "base/cgroup.h"
#include "base/integer.h"
#include "base/thread.h"
#include "engine/rank_config.h"
#include "engine/rank_pass.h"
#include "infer/generation_single.h"
#include "infer/packed_weights.h"
#include "job/inputs.h"
#include "launch/world.h"

/* Tokens of a pass: enough for products of many rows, few enough that other answers do not wait long for a prompt. */
enum { PASS_TOKENS_HOST = 256, PASS_TOKENS_DEVICE = 2048, PROMPT_TOKENS_MIN = 16 };
/* Beginnings of prompts whose states are kept: as many as sequences, within these. */
enum { SAVED_LEAST = 2, SAVED_MOST = 8 };
/* Share of the machine's memory for packed weights of a rank whose plan is not checked against it. */
static const double panels_share = 0.25;

static tt_status create_cache(const struct tt_rank *rank, const struct tt_batch_limits *limits,
                              struct tt_generation_rank *out)
{
    const struct tt_model_facts *model = &rank->model->facts;
    struct tt_kv_heads heads[TT_MODEL_LAYERS_MAX];
    struct tt_kv_states states[TT_MODEL_LAYERS_MAX];
    bool any = tt_model_cache_shape(model, heads, states);
    const struct tt_kv_cache_config config = {
        .layer_count = tt_model_cache_layers(model),
        .sequence_count = limits->sequences,
        .max_length = limits->length,
        .heads = heads,
        .states = any ? states : NULL,
        .saved = tt_smaller(tt_larger(limits->sequences, SAVED_LEAST), SAVED_MOST),
        .dtype = rank->model->options.compute_dtype,
    };
    return tt_kv_cache_create(rank->device, &config, &out->cache);
}

/* The parts of the memory for choices: rules, ids, seen bits, masks; adapters of tokens and of rows. */
struct choice_layout {
    size_t ids, seen, masks, token_adapters, row_adapters, total; /* offsets */
    int64_t words;
};

static struct choice_layout lay_choice(const struct tt_generation_rank *rank)
{
    struct choice_layout layout = {.words = tt_sample_seen_words(rank->rank->model->facts.vocab_size)};
    size_t rows = (size_t)rank->rows, bits = (size_t)(rank->slots * layout.words) * sizeof(int32_t);
    layout.ids = tt_align_up(rows * sizeof(struct tt_sample_rule), 256);
    layout.seen = layout.ids + tt_align_up(rows * sizeof(int32_t), 256);
    layout.masks = layout.seen + tt_align_up(bits, 256);
    layout.token_adapters = layout.masks + tt_align_up(bits, 256);
    layout.row_adapters =
        layout.token_adapters + tt_align_up((size_t)rank->pass_tokens * sizeof(int32_t), 256);
    layout.total = layout.row_adapters + rows * sizeof(int32_t);
    return layout;
}

/* The cache, and the memory of choices. */
static tt_status create_memory(const struct tt_rank *rank, const struct tt_batch_limits *limits,
                               struct tt_generation_rank *out)
{
    int64_t slots = limits->sequences, rows = limits->rows;
    out->slots = slots;
    out->rows = rows;
    out->pass_tokens = limits->tokens;
    struct choice_layout layout = lay_choice(out);
    TT_TRY(create_cache(rank, limits, out));
    TT_TRY(tt_buffer_create(rank->device, layout.total, TT_PURPOSE_ACTIVATIONS, &out->choice));
    TT_TRY(tt_host_buffer_create(rank->device, (size_t)rows * sizeof(int32_t), TT_PURPOSE_STAGING,
                                 &out->tokens));
    if (out->adjust_entries > 0)
        TT_TRY(tt_buffer_create(rank->device, (size_t)out->adjust_entries * 3 * sizeof(float),
                                TT_PURPOSE_ACTIVATIONS, &out->adjust_buffer));
    out->seen = tt_calloc((size_t)layout.words, sizeof *out->seen);
    if (out->seen == NULL) return TT_ERR_MEMORY;
    return tt_device_is_host(rank->device) ? TT_OK : tt_generation_single_create(rank, slots, &out->single);
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
    size_t workspace, cache, batch, panels;
};

/* A pass of single tokens at the end of all sequences. */
static tt_status run_planned_single(struct tt_generation_rank *planned, const struct tt_batch_limits *limits,
                                    const struct tt_generation_adapters *adapters)
{
    const int32_t *tokens;
    struct tt_batch batch = {
        .token_count = limits->sequences,
        .sequence_count = limits->sequences,
        .max_length = 1,
        .row_count = limits->sequences,
    };
    if (planned->single == NULL) return TT_OK;
    tt_kv_cache_fill(planned->cache);
    tt_status status = tt_generation_rank_pass(planned, &batch, NULL, adapters, &tokens);
    tt_generation_rank_end(planned);
    return status;
}

/* Runs the largest pass on the plan device: all tokens of `limits`, and logits of every sequence. */
static tt_status run_planned(const struct tt_rank_config *config, const struct tt_batch_limits *limits,
                             int64_t adjust_entries, const int32_t *borders, struct need *need)
{
    tt_status status = TT_OK;
    struct tt_generation_rank planned = {.rank = &planned.own, .adjust_entries = adjust_entries};
    struct tt_memory_use before, after;
    int64_t places = config->model_options.adapter_places;
    const struct tt_generation_adapters adapters = {.mixed = places > 1, .count = places > 1 ? places : 1};
    const int32_t *tokens;
    TT_GO(tt_rank_init(config, &planned.own));
    tt_device_memory(planned.own.device, &before);
    TT_GO(create_memory(&planned.own, limits, &planned));
    tt_device_memory(planned.own.device, &after);
    struct tt_batch batch = {
        .token_count = limits->tokens,
        .sequence_count = limits->sequences,
        .max_length = limits->length < limits->tokens ? limits->length : limits->tokens,
        .cu_seqlens = borders,
        .row_count = limits->rows,
    };
    status = tt_generation_rank_pass(&planned, &batch, NULL, &adapters, &tokens);
    tt_generation_rank_end(&planned);
    if (status == TT_OK) status = run_planned_single(&planned, limits, &adapters);
    *need =
        (struct need){.workspace = tt_workspace_peak(planned.own.workspace),
                      .cache = after.total_current - before.total_current,
                      .batch = before.peak[TT_PURPOSE_BATCH],
                      .panels = tt_packed_weights_bytes(&planned.own, &config->device, limits->sequences)};
out:
    tt_generation_rank_deinit(&planned);
    return status;
}

/* Sizes are those of any GPU, or of a host. */
static const char *planned_chip(const struct tt_rank_config *config)
{
    return strcmp(config->device.kind, "cuda") == 0 ? "h200" : config->device.stands_for;
}

/* `config`: of a rank whose batches may be larger than those of the generation. */
static tt_status plan_pass(const struct tt_rank_config *config, int ranks,
                           const struct tt_generation_limits *limits, struct need *need)
{
    const struct tt_batch_limits batches = tt_generation_batch_limits(limits);
    struct tt_rank_config plan = *config;
    struct tt_comm *comm = NULL;
    plan.device = (struct tt_device_config){.kind = "plan", .threads = 1, .stands_for = planned_chip(config)};
    if (plan.strategy == TT_HYBRID_SHARD) plan.strategy = TT_FULL_SHARD;
    TT_TRY(tt_comm_create_planned(ranks, ranks, &comm));
    plan.world = plan.shard_comm = comm;
    plan.replicate_comm = NULL;
    plan.device.tuning = config->device.tuning;
    int32_t *borders = tt_calloc((size_t)limits->slots + 1, sizeof *borders);
    tt_status status = borders != NULL ? TT_OK : TT_ERR_MEMORY;
    if (status == TT_OK) fill_borders(&batches, borders);
    if (status == TT_OK)
        status = run_planned(&plan, &batches, tt_generation_adjust_entries(limits), borders, need);
    if (!limits->packs) need->panels = 0;
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
    split.expert_parallel = plan->expert_parallel;
    TT_TRY(plan_pass(&split, plan->ranks.count, limits, &need));
    plan->memory.total_peak -= peak[TT_PURPOSE_ACTIVATIONS] + peak[TT_PURPOSE_BATCH];
    if (plan->workspace_bytes < need.workspace) plan->workspace_bytes = need.workspace;
    peak[TT_PURPOSE_ACTIVATIONS] = plan->workspace_bytes + need.cache;
    peak[TT_PURPOSE_BATCH] = need.batch;
    peak[TT_PURPOSE_PANELS] = need.panels;
    plan->memory.total_peak += peak[TT_PURPOSE_ACTIVATIONS] + peak[TT_PURPOSE_BATCH] + need.panels;
    plan->fits = plan->limit_bytes == 0 || tt_plan_need(plan) <= plan->limit_bytes;
    return TT_OK;
}

tt_status tt_generation_plan_alone(const struct tt_shard_spec *shard, const struct tt_rank_layout *layout,
                                   const struct tt_model_facts *model, const struct tt_model_options *options,
                                   const struct tt_generation_choice *choice, struct tt_rank_config *rank,
                                   struct tt_plan *plan)
{
    const struct tt_batch_limits none = {0};
    struct tt_shard_spec chosen = *shard;
    chosen.sharding_strategy = choice->strategy;
    TT_TRY(tt_rank_config_make(&chosen, layout, model, options, TT_RANK_GENERATES, NULL, rank));
    rank->limits = tt_generation_batch_limits(&choice->limits);
    rank->split_vocabulary = choice->split_vocabulary;
    TT_TRY(tt_plan_try(rank, tt_rank_layout_ranks(layout), 1, &none, &none, plan));
    return tt_generation_plan(rank, &choice->limits, plan);
}

static void set_slots(const struct tt_device_config *device, int64_t slots,
                      struct tt_generation_limits *limits)
{
    limits->slots = slots;
    limits->pass_tokens = 0;
    tt_generation_limits_fill(device, limits);
}

void tt_generation_limits_open(const struct tt_device_config *device, int64_t share, int64_t least,
                               struct tt_generation_limits *limits)
{
    int64_t most = strcmp(device->kind, "cpu") == 0 ? least : TT_GENERATION_SLOTS_OPEN;
    if (share < 1) share = 1;
    limits->slots_least = share < least ? share : least;
    set_slots(device, share < most ? share : most, limits);
}

bool tt_generation_limits_less(const struct tt_device_config *device, struct tt_generation_limits *limits)
{
    if (limits->slots_least == 0 || limits->slots <= limits->slots_least) return false;
    int64_t half = limits->slots / 2;
    set_slots(device, half > limits->slots_least ? half : limits->slots_least, limits);
    return true;
}

bool tt_generation_limits_are_tight(const struct tt_generation_limits *limits, const struct tt_plan *plan,
                                    uint64_t unused)
{
    if (limits->slots_least == 0 || limits->slots <= limits->slots_least || plan->limit_bytes == 0)
        return false;
    double have = unused < plan->limit_bytes ? (double)unused : (double)plan->limit_bytes;
    return (double)tt_plan_need(plan) > 0.9 * have;
}

bool tt_generation_choose_less(const struct tt_rank_layout *layout, struct tt_generation_choice *choice)
{
    if (tt_generation_limits_less(&layout->device, &choice->limits)) return true;
    if (choice->limits.packs) {
        choice->limits.packs = false;
        return true;
    }
    if (choice->open && choice->strategy == TT_NO_SHARD && layout->world_size > 1) {
        choice->strategy = TT_FULL_SHARD;
        if (choice->limits.slots < choice->slots) set_slots(&layout->device, choice->slots, &choice->limits);
        return true;
    }
    if (choice->strategy == TT_NO_SHARD || choice->split_vocabulary) return false;
    choice->split_vocabulary = true;
    return true;
}

void tt_generation_limits_fill(const struct tt_device_config *device, struct tt_generation_limits *limits)
{
    int64_t most = limits->slots * limits->length, least = limits->slots + PROMPT_TOKENS_MIN;
    if (limits->pass_tokens == 0)
        limits->pass_tokens = strcmp(device->kind, "cpu") == 0 ? PASS_TOKENS_HOST : PASS_TOKENS_DEVICE;
    if (limits->pass_tokens < least) limits->pass_tokens = least;
    if (limits->pass_tokens > most) limits->pass_tokens = most;
}

int64_t tt_generation_rows(const struct tt_generation_limits *limits)
{
    int64_t rows = limits->rows < limits->pass_tokens ? limits->rows : limits->pass_tokens;
    return rows < limits->slots ? limits->slots : rows;
}

struct tt_batch_limits tt_generation_batch_limits(const struct tt_generation_limits *limits)
{
    return (struct tt_batch_limits){.tokens = limits->pass_tokens,
                                    .sequences = limits->slots,
                                    .rows = tt_generation_rows(limits),
                                    .length = limits->length};
}

int64_t tt_generation_adjust_entries(const struct tt_generation_limits *limits)
{
    size_t each = tt_adjust_entries_max(limits->length, 2 * TT_STOP_IDS_MAX);
    return limits->adjusts ? limits->slots * (int64_t)each : 0;
}

static tt_status keep_panels(const struct tt_device_config *device, const struct tt_generation_limits *limits,
                             struct tt_generation_rank *rank)
{
    return tt_packed_weights_begin(rank->rank, device, limits->slots, &rank->panels);
}

static tt_status build(const struct tt_device_spec *device, const struct tt_inputs *inputs,
                       struct tt_generation_limits *limits, struct tt_generation_rank *rank)
{
    struct tt_rank_layout layout = {.world_size = 1, .machines = 1, .ranks_per_machine = 1};
    struct tt_rank_config config;
    struct need need;
    int devices = 0;
    bool grouped;
    limits->packs = device->tuning.cpu_panels == TT_TUNING_PANELS_AUTO;
    TT_TRY(tt_comm_create_self(&rank->comm));
    TT_TRY(tt_world_choose_device(device->choice, &layout.device.kind, &devices));
    layout.device.threads = device->threads > 0 ? (int)device->threads : tt_cpu_count();
    layout.device.memory_limit = device->device_memory;
    layout.device.tuning = device->tuning;
    TT_TRY(tt_rank_config_make(NULL, &layout, &inputs->model_facts, &inputs->model_options, TT_RANK_GENERATES,
                               NULL, &config));
    tt_generation_limits_fill(&layout.device, limits);
    config.world = config.shard_comm = rank->comm;
    config.limits = tt_generation_batch_limits(limits);
    TT_TRY(plan_pass(&config, 1, limits, &need));
    config.workspace_bytes = need.workspace;
    TT_TRY(tt_rank_init(&config, &rank->own));
    TT_TRY(create_memory(&rank->own, &config.limits, rank));
    bool packs = limits->packs && (double)need.panels <= (double)tt_memory_bytes(&grouped) * panels_share;
    if (packs) TT_TRY(keep_panels(&config.device, limits, rank));
    TT_TRY(tt_load_check(rank->own.model, &inputs->source));
    TT_TRY(tt_quantization_report(rank->own.model));
    return tt_rank_load(&rank->own, &inputs->source);
}

tt_status tt_generation_rank_init(const struct tt_device_spec *device, const struct tt_inputs *inputs,
                                  struct tt_generation_limits *limits, struct tt_generation_rank *rank)
{
    *rank = (struct tt_generation_rank){.rank = &rank->own,
                                        .adjust_entries = tt_generation_adjust_entries(limits)};
    tt_status status = build(device, inputs, limits, rank);
    if (status != TT_OK) tt_generation_rank_deinit(rank);
    return status;
}

tt_status tt_generation_rank_attach(struct tt_rank *borrowed, const struct tt_generation_limits *limits,
                                    struct tt_generation_rank *rank)
{
    *rank =
        (struct tt_generation_rank){.rank = borrowed, .adjust_entries = tt_generation_adjust_entries(limits)};
    const struct tt_batch_limits batches = tt_generation_batch_limits(limits);
    const struct tt_device_config device = {.kind = tt_device_kind(borrowed->device),
                                            .tuning = *tt_device_tuning_of(borrowed->device)};
    tt_status status = create_memory(borrowed, &batches, rank);
    if (status == TT_OK && limits->packs) status = keep_panels(&device, limits, rank);
    if (status != TT_OK) tt_generation_rank_deinit(rank);
    return status;
}

void tt_generation_rank_deinit(struct tt_generation_rank *rank)
{
    tt_generation_single_destroy(rank->single);
    if (rank->rank != NULL) tt_packed_weights_end(rank->rank, rank->panels);
    tt_kv_cache_destroy(rank->cache);
    tt_buffer_destroy(rank->choice);
    tt_buffer_destroy(rank->tokens);
    tt_buffer_destroy(rank->adjust_buffer);
    tt_free(rank->seen);
    tt_free(rank->logits);
    tt_rank_deinit(&rank->own);
    tt_comm_destroy(rank->comm);
    *rank = (struct tt_generation_rank){0};
}

tt_status tt_generation_rank_see(struct tt_generation_rank *rank, int64_t slot, const int32_t *ids,
                                 size_t count)
{
    struct choice_layout layout = lay_choice(rank);
    size_t bytes = (size_t)layout.words * sizeof *rank->seen;
    memset(rank->seen, 0, bytes);
    for (size_t i = 0; i < count; i++) rank->seen[ids[i] / 32] |= UINT32_C(1) << ids[i] % 32;
    return tt_copy_to_device(rank->rank->stream,
                             (char *)tt_buffer_data(rank->choice) + layout.seen + (size_t)slot * bytes,
                             rank->seen, bytes);
}

tt_status tt_generation_rank_mask(struct tt_generation_rank *rank, int64_t slot, const uint32_t *words)
{
    struct choice_layout layout = lay_choice(rank);
    size_t bytes = (size_t)layout.words * sizeof *words;
    return tt_copy_to_device(rank->rank->stream,
                             (char *)tt_buffer_data(rank->choice) + layout.masks + (size_t)slot * bytes,
                             words, bytes);
}

/* Log probabilities come before the choice, which changes logits with a penalty. */
static tt_status copy_logits(struct tt_generation_rank *rank)
{
    tt_tensor logits = tt_pass_result(&rank->rank->results, TT_RESULT_LOGITS, 0);
    size_t vocab = (size_t)rank->rank->model->facts.vocab_size;
    if (rank->wanted_count == 0 || tt_device_is_plan(rank->rank->device)) return TT_OK;
    if (rank->logits_rows < rank->wanted_count) {
        float *grown = tt_realloc(rank->logits, (size_t)rank->wanted_count, vocab * sizeof *grown);
        if (grown == NULL) return TT_ERR_MEMORY;
        rank->logits = grown;
        rank->logits_rows = rank->wanted_count;
    }
    for (int64_t n = 0, copied = 0; copied < rank->wanted_count; n++) {
        if (!rank->wanted[n]) continue;
        TT_TRY(tt_copy_to_host(rank->rank->stream, rank->logits + (size_t)copied++ * vocab,
                               (const char *)logits.data + (size_t)n * vocab * sizeof(float),
                               vocab * sizeof(float)));
    }
    return TT_OK;
}

/* Changes single logits, which log probabilities are not asked to see. */
static tt_status adjust_logits(struct tt_generation_rank *rank)
{
    struct tt_stream *stream = rank->rank->stream;
    if (rank->adjust == NULL || rank->adjust->count == 0) return TT_OK;
    size_t part = (size_t)rank->adjust_entries * sizeof(float), bytes = rank->adjust->count * sizeof(float);
    char *rows = tt_buffer_data(rank->adjust_buffer), *ids = rows + part, *values = ids + part;
    int64_t count = (int64_t)rank->adjust->count;
    TT_TRY(tt_copy_to_device(stream, rows, rank->adjust->rows, bytes));
    TT_TRY(tt_copy_to_device(stream, ids, rank->adjust->ids, bytes));
    TT_TRY(tt_copy_to_device(stream, values, rank->adjust->values, bytes));
    const struct tt_add_logits_args args = {
        .logits_NV = tt_pass_result(&rank->rank->results, TT_RESULT_LOGITS, 0),
        .rows_E = tt_tensor_1d(rows, TT_I32, count),
        .ids_E = tt_tensor_1d(ids, TT_I32, count),
        .values_E = tt_tensor_1d(values, TT_F32, count),
    };
    return tt_add_logits(stream, &args);
}

/* Chooses the tokens of all rows on the device; only their ids come to the host, and the logits that are wanted. */
static tt_status choose(struct tt_generation_rank *rank)
{
    struct tt_stream *stream = rank->rank->stream;
    struct choice_layout layout = lay_choice(rank);
    char *choice = tt_buffer_data(rank->choice);
    int64_t rows = rank->rank->batch.row_count;
    if (rows == 0) return TT_OK;
    struct tt_sample_args args = {
        .logits_NV = tt_pass_result(&rank->rank->results, TT_RESULT_LOGITS, 0),
        .rules_N = tt_tensor_1d(choice, TT_U8, rows * (int64_t)sizeof(struct tt_sample_rule)),
        .seen_SW = tt_tensor_2d(choice + layout.seen, TT_I32, rank->slots, layout.words),
        .masks_SW = tt_tensor_2d(choice + layout.masks, TT_I32, rank->slots, layout.words),
        .ids_N = tt_tensor_1d(choice + layout.ids, TT_I32, rows),
    };
    TT_TRY(copy_logits(rank));
    TT_TRY(adjust_logits(rank));
    TT_TRY(tt_sample(stream, &args));
    if (tt_device_is_plan(rank->rank->device)) return TT_OK;
    return tt_copy_to_host(stream, tt_buffer_data(rank->tokens), args.ids_N.data,
                           (size_t)rows * sizeof(int32_t));
}

/* Sends the adapters of the tokens, and of the rows. A row of a pass of single tokens is its token. */
static tt_status send_adapters(struct tt_generation_rank *rank, const struct tt_generation_adapters *adapters,
                               const struct tt_batch *batch, struct tt_pass *pass)
{
    struct tt_stream *stream = rank->rank->stream;
    struct choice_layout layout = lay_choice(rank);
    char *of_tokens = (char *)tt_buffer_data(rank->choice) + layout.token_adapters,
         *of_rows = (char *)tt_buffer_data(rank->choice) + layout.row_adapters;
    bool same = adapters->of_rows == adapters->of_tokens;
    size_t tokens = (size_t)batch->token_count * sizeof(int32_t),
           rows = (size_t)batch->row_count * sizeof(int32_t);
    pass->in.adapters_off = adapters->off;
    if (adapters->off) return TT_OK;
    pass->in.adapters =
        (struct tt_pass_adapters){.first = adapters->first,
                                  .count = adapters->count,
                                  .mixed = adapters->mixed,
                                  .of_T = tt_tensor_1d(of_tokens, TT_I32, batch->token_count),
                                  .of_N = tt_tensor_1d(same ? of_tokens : of_rows, TT_I32, batch->row_count)};
    if (adapters->of_tokens == NULL || tokens == 0) return TT_OK;
    TT_TRY(tt_copy_to_device(stream, of_tokens, adapters->of_tokens, tokens));
    return same || rows == 0 ? TT_OK : tt_copy_to_device(stream, of_rows, adapters->of_rows, rows);
}

tt_status tt_generation_rank_lend(struct tt_generation_rank *rank,
                                  const struct tt_generation_adapters *adapters, const struct tt_batch *batch,
                                  const struct tt_sample_rule *rules, struct tt_pass *pass)
{
    size_t bytes = (size_t)batch->row_count * sizeof *rules;
    TT_TRY(tt_rank_upload(rank->rank, batch, pass));
    TT_TRY(send_adapters(rank, adapters, batch, pass));
    pass->lent.cache = rank->cache;
    pass->in.want_logits = true;
    if (bytes == 0 || tt_device_is_plan(rank->rank->device)) return TT_OK;
    return tt_copy_to_device(rank->rank->stream, tt_buffer_data(rank->choice), rules, bytes);
}

tt_status tt_generation_rank_queue(struct tt_generation_rank *rank, const struct tt_pass *pass)
{
    TT_TRY(tt_executor_forward(rank->rank->executor, pass));
    return choose(rank);
}

bool tt_generation_rank_prefers_single(const struct tt_generation_rank *rank)
{
    return tt_generation_single_records(rank->single);
}

static tt_status queue_chunks(struct tt_generation_rank *rank, const struct tt_batch *batch,
                              const struct tt_sample_rule *rules,
                              const struct tt_generation_adapters *adapters)
{
    struct tt_pass pass;
    TT_TRY(tt_generation_rank_lend(rank, adapters, batch, rules, &pass));
    TT_TRY(tt_kv_cache_begin(rank->cache, rank->rank->stream, batch->cu_seqlens));
    return tt_generation_rank_queue(rank, &pass);
}

tt_status tt_generation_rank_pass(struct tt_generation_rank *rank, const struct tt_batch *batch,
                                  const struct tt_sample_rule *rules,
                                  const struct tt_generation_adapters *adapters, const int32_t **tokens)
{
    bool single = rank->single != NULL && tt_generation_is_single(batch);
    TT_TRY(single ? tt_generation_single_pass(rank, batch, rules, adapters)
                  : queue_chunks(rank, batch, rules, adapters));
    tt_kv_cache_end(rank->cache);
    *tokens = tt_buffer_data(rank->tokens);
    return tt_stream_synchronize(rank->rank->stream);
}

void tt_generation_rank_end(struct tt_generation_rank *rank)
{
    if (rank->rank != NULL && rank->rank->executor != NULL) tt_executor_end(rank->rank->executor);
}
