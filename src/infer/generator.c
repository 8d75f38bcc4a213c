#include "infer/generator.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/thread.h"
#include "engine/rank_config.h"
#include "infer/sampling.h"
#include "job/inputs.h"
#include "launch/world.h"
#include "nn/kv_cache.h"

enum { END_TOKENS_MAX = 16 };

struct tt_generator {
    struct tt_generate_options options;
    const struct tt_inputs *inputs;
    struct tt_comm *comm;
    struct tt_rank rank;
    struct tt_kv_cache *cache;
    int64_t batch_size, max_prompt_tokens;
    int32_t end_tokens[END_TOKENS_MAX];
    int end_token_count;
    uint64_t runs;  /* number of runs: each draws other random numbers */
    float *logits;  /* host [batch_size, V] */
    int32_t *order; /* host [V] */
};

static void add_end_token(struct tt_generator *generator, int64_t id)
{
    if (id < 0 || generator->end_token_count == END_TOKENS_MAX) return;
    for (int i = 0; i < generator->end_token_count; i++)
        if (generator->end_tokens[i] == (int32_t)id) return;
    generator->end_tokens[generator->end_token_count++] = (int32_t)id;
}

/* End tokens: eos of config.json, of generation_config.json (a number or a list) and of the tokenizer. */
static tt_status find_end_tokens(struct tt_generator *generator)
{
    const struct tt_model_facts *model = &generator->inputs->model_facts;
    for (int i = 0; i < model->eos_token_count; i++) add_end_token(generator, model->eos_token_ids[i]);
    if (generator->inputs->tokenizer != NULL)
        add_end_token(generator, tt_tokenizer_eos_id(generator->inputs->tokenizer));
    struct tt_json json = {0};
    tt_status status = TT_OK;
    struct tt_path path;
    TT_TRY(tt_path_set(&path, tt_model_folder_path(generator->inputs->folder), "generation_config.json"));
    if (tt_path_exists(path.text)) {
        TT_GO(tt_json_read(path.text, 1 << 20, &json));
        const struct tt_json_value *eos = tt_json_get(json.root, "eos_token_id");
        if (tt_json_is_integer(eos)) add_end_token(generator, tt_json_integer(eos));
        for (size_t i = 0; i < tt_json_count(eos); i++)
            add_end_token(generator, tt_json_integer(tt_json_at(eos, i)));
    }
out:
    tt_json_deinit(&json);
    return status;
}

static tt_status cache_config(const struct tt_generator *generator, struct tt_kv_cache_config *config)
{
    const struct tt_model_facts *model = &generator->inputs->model_facts;
    const struct tt_layer_facts *first = &model->layers[0];
    for (int64_t i = 1; i < model->num_hidden_layers; i++) {
        const struct tt_layer_facts *layer = &model->layers[i];
        if (layer->kv_heads == first->kv_heads && layer->head_dim == first->head_dim) continue;
        return tt_fail(TT_ERR_UNSUPPORTED, "generation needs layers with the same number of key/value heads");
    }
    *config = (struct tt_kv_cache_config){
        .layer_count = model->num_hidden_layers,
        .sequence_count = generator->batch_size,
        .max_length = generator->max_prompt_tokens + generator->options.max_new_tokens,
        .kv_heads = first->kv_heads,
        .head_dim = first->head_dim,
        .dtype = generator->inputs->model_options.compute_dtype,
    };
    return TT_OK;
}

/* Runs one pass over the new tokens of the sequences. Stores fp32 logits of each sequence's last new token in host
 * memory, in the order of the sequences that have one. */
static tt_status run_pass(struct tt_rank *rank, struct tt_kv_cache *cache, const struct tt_batch *batch,
                          float *logits)
{
    tt_status status = TT_OK;
    struct tt_pass pass;
    TT_GO(tt_rank_upload(rank, batch, &pass));
    pass.lent.cache = cache;
    pass.in.want_logits = true;
    TT_GO(tt_kv_cache_begin(cache, rank->stream, batch->cu_seqlens));
    TT_GO(tt_executor_forward(rank->executor, &pass));
    tt_kv_cache_end(cache);
    if (tt_device_is_plan(rank->device)) goto out;
    tt_tensor logits_NV = rank->results.logits_NV;
    TT_GO(tt_copy_to_host(rank->stream, logits, logits_NV.data, tt_tensor_bytes(logits_NV)));
    TT_GO(tt_stream_synchronize(rank->stream));
out:
    tt_executor_end(rank->executor);
    return status;
}

static tt_status init_rank(struct tt_generator *generator, struct tt_rank_config *config,
                           struct tt_rank *rank, struct tt_kv_cache **cache)
{
    struct tt_kv_cache_config sizes;
    TT_TRY(cache_config(generator, &sizes));
    TT_TRY(tt_rank_init(config, rank));
    return tt_kv_cache_create(rank->device, &sizes, cache);
}

/* Plans the workspace of the largest pass, all prompts at full length, on the plan device. */
static tt_status plan_workspace(struct tt_generator *generator, const struct tt_rank_config *config,
                                size_t *bytes)
{
    tt_status status = TT_OK;
    struct tt_rank rank = {0};
    struct tt_kv_cache *cache = NULL;
    struct tt_rank_config planned = *config;
    int64_t count = generator->batch_size;
    int32_t *borders = tt_calloc((size_t)count + 1, sizeof *borders);
    if (borders == NULL) return TT_ERR_MEMORY;
    for (int64_t b = 0; b <= count; b++) borders[b] = (int32_t)(b * generator->max_prompt_tokens);
    planned.device = (struct tt_device_config){.kind = "plan", .threads = 1};
    TT_GO(init_rank(generator, &planned, &rank, &cache));
    struct tt_batch batch = {
        .token_count = count * generator->max_prompt_tokens,
        .sequence_count = count,
        .max_length = generator->max_prompt_tokens,
        .cu_seqlens = borders,
        .row_count = count,
    };
    TT_GO(run_pass(&rank, cache, &batch, NULL));
    *bytes = tt_workspace_peak(rank.workspace);
out:
    tt_kv_cache_destroy(cache);
    tt_rank_deinit(&rank);
    tt_free(borders);
    return status;
}

static tt_status build(struct tt_generator *generator, const struct tt_device_spec *device)
{
    const struct tt_inputs *inputs = generator->inputs;
    int64_t positions = generator->max_prompt_tokens + generator->options.max_new_tokens;
    if (positions > inputs->model_facts.max_position_embeddings)
        return tt_fail(TT_ERR_USAGE,
                       "%lld prompt tokens and %lld new ones are more than the model's %lld positions",
                       (long long)generator->max_prompt_tokens, (long long)generator->options.max_new_tokens,
                       (long long)inputs->model_facts.max_position_embeddings);
    TT_TRY(find_end_tokens(generator));
    TT_TRY(tt_comm_create_self(&generator->comm));
    struct tt_rank_layout layout = {.world_size = 1, .machines = 1, .ranks_per_machine = 1};
    struct tt_rank_config rank;
    int devices = 0;
    TT_TRY(tt_world_choose_device(device->choice, &layout.device.kind, &devices));
    layout.device.threads = device->threads > 0 ? (int)device->threads : tt_cpu_count();
    layout.device.memory_limit = device->device_memory;
    layout.device.tuning = device->tuning;
    TT_TRY(tt_rank_config_make(NULL, &layout, &inputs->model_facts, &inputs->model_options, TT_RANK_GENERATES,
                               NULL, &rank));
    rank.world = rank.comm = generator->comm;
    rank.limits = (struct tt_batch_limits){generator->batch_size * generator->max_prompt_tokens,
                                           generator->batch_size, generator->batch_size, positions};
    TT_TRY(plan_workspace(generator, &rank, &rank.workspace_bytes));
    TT_TRY(init_rank(generator, &rank, &generator->rank, &generator->cache));
    TT_TRY(tt_load_check(generator->rank.model, &inputs->source));
    TT_TRY(tt_quantization_report(generator->rank.model));
    TT_TRY(tt_rank_load(&generator->rank, &inputs->source));
    size_t vocab = (size_t)inputs->model_facts.vocab_size;
    generator->logits = tt_calloc((size_t)generator->batch_size * vocab, sizeof *generator->logits);
    generator->order = tt_calloc(vocab, sizeof *generator->order);
    return generator->logits != NULL && generator->order != NULL ? TT_OK : TT_ERR_MEMORY;
}

tt_status tt_generator_create(const struct tt_device_spec *device, const struct tt_inputs *inputs,
                              int64_t batch_size, int64_t max_prompt_tokens,
                              const struct tt_generate_options *options, struct tt_generator **out)
{
    struct tt_generator *generator = tt_calloc(1, sizeof *generator);
    if (generator == NULL) return TT_ERR_MEMORY;
    generator->options = *options;
    generator->inputs = inputs;
    generator->batch_size = batch_size;
    generator->max_prompt_tokens = max_prompt_tokens > 0 ? max_prompt_tokens : 1;
    tt_status status = build(generator, device);
    if (status == TT_OK)
        *out = generator;
    else
        tt_generator_destroy(generator);
    return status;
}

void tt_generator_destroy(struct tt_generator *generator)
{
    if (generator == NULL) return;
    tt_kv_cache_destroy(generator->cache);
    tt_rank_deinit(&generator->rank);
    tt_comm_destroy(generator->comm);
    tt_free(generator->logits);
    tt_free(generator->order);
    tt_free(generator);
}

/* The sequences of one run, and the host arrays of the next pass. */
struct generation {
    int count;
    int32_t *ids, *positions, *borders, *rows, *labels, *next; /* borders [batch_size + 1] */
    int64_t *row_keys;
    bool *done;
    int *sequence_of_row;
};

static tt_status generation_init(const struct tt_generator *generator, int count,
                                 struct generation *generation)
{
    size_t sequences = (size_t)generator->batch_size;
    size_t tokens = sequences * (size_t)generator->max_prompt_tokens;
    *generation = (struct generation){
        .count = count,
        .ids = tt_calloc(tokens, sizeof(int32_t)),
        .positions = tt_calloc(tokens, sizeof(int32_t)),
        .row_keys = tt_calloc(tokens, sizeof(int64_t)),
        .borders = tt_calloc(sequences + 1, sizeof(int32_t)),
        .rows = tt_calloc(sequences, sizeof(int32_t)),
        .labels = tt_calloc(sequences, sizeof(int32_t)),
        .next = tt_calloc(sequences, sizeof(int32_t)),
        .done = tt_calloc(sequences, sizeof(bool)),
        .sequence_of_row = tt_calloc(sequences, sizeof(int)),
    };
    bool complete = generation->ids && generation->positions && generation->row_keys && generation->borders &&
                    generation->rows && generation->labels && generation->next && generation->done &&
                    generation->sequence_of_row;
    return complete ? TT_OK : TT_ERR_MEMORY;
}

static void generation_deinit(struct generation *generation)
{
    tt_free(generation->ids);
    tt_free(generation->positions);
    tt_free(generation->row_keys);
    tt_free(generation->borders);
    tt_free(generation->rows);
    tt_free(generation->labels);
    tt_free(generation->next);
    tt_free(generation->done);
    tt_free(generation->sequence_of_row);
}

/* Appends the new tokens of sequence `index`, which holds `held` already, to the batch. */
static void add_tokens(struct generation *generation, int index, const int32_t *ids, int64_t count,
                       int64_t held, struct tt_batch *batch)
{
    for (int64_t t = 0; t < count; t++) {
        generation->ids[batch->token_count] = ids[t];
        generation->positions[batch->token_count] = (int32_t)(held + t);
        batch->token_count++;
    }
    if (count > batch->max_length) batch->max_length = count;
    generation->borders[index + 1] = (int32_t)batch->token_count;
    if (count == 0) return;
    generation->sequence_of_row[batch->row_count] = index;
    generation->rows[batch->row_count++] = (int32_t)(batch->token_count - 1);
}

static struct tt_batch begin_batch(const struct tt_generator *generator, struct generation *generation)
{
    return (struct tt_batch){
        .sequence_count = generator->batch_size,
        .ids = generation->ids,
        .positions = generation->positions,
        .row_keys = generation->row_keys,
        .cu_seqlens = generation->borders,
        .rows = generation->rows,
        .labels = generation->labels,
    };
}

static bool is_end(const struct tt_generator *generator, int32_t token)
{
    for (int i = 0; i < generator->end_token_count && !generator->options.ignore_eos; i++)
        if (generator->end_tokens[i] == token) return true;
    return false;
}

static tt_status choose_tokens(struct tt_generator *generator, struct generation *generation,
                               const struct tt_batch *batch, struct tt_ids *outputs,
                               tt_generate_visitor *visitor, void *context)
{
    int64_t vocab = generator->inputs->model_facts.vocab_size;
    struct tt_rng rng =
        tt_rng_derive_index(tt_rng_derive(tt_rng_make(generator->options.seed), "generate"), generator->runs);
    for (int64_t n = 0; n < batch->row_count; n++) {
        int index = generation->sequence_of_row[n];
        uint64_t counter = ((uint64_t)index << 32) | outputs[index].count;
        int32_t token = tt_sample_token(generator->logits + n * vocab, vocab, &generator->options, rng,
                                        counter, generator->order);
        generation->next[index] = token;
        generation->done[index] = is_end(generator, token);
        if (generation->done[index]) continue;
        TT_TRY(tt_ids_append(&outputs[index], token));
        if (visitor != NULL && !visitor(context, index, token)) generation->done[index] = true;
    }
    return TT_OK;
}

static tt_status check_prompts(const struct tt_generator *generator, const struct tt_ids *prompts, int count)
{
    if (count > generator->batch_size)
        return tt_fail(TT_ERR_INTERNAL, "%d prompts in a batch, but the generator was created for %lld",
                       count, (long long)generator->batch_size);
    for (int i = 0; i < count; i++) {
        if (prompts[i].count == 0) return tt_fail(TT_ERR_DATA, "prompt %d has no tokens", i + 1);
        if (prompts[i].count > (size_t)generator->max_prompt_tokens)
            return tt_fail(TT_ERR_DATA,
                           "prompt %d has %zu tokens, but the generator was created for at most %lld", i + 1,
                           prompts[i].count, (long long)generator->max_prompt_tokens);
        for (size_t t = 0; t < prompts[i].count; t++)
            if (prompts[i].data[t] < 0 || prompts[i].data[t] >= generator->inputs->model_facts.vocab_size)
                return tt_fail(TT_ERR_DATA, "prompt %d has the id %d, but the model has %lld embeddings",
                               i + 1, (int)prompts[i].data[t],
                               (long long)generator->inputs->model_facts.vocab_size);
    }
    return TT_OK;
}

tt_status tt_generator_run(struct tt_generator *generator, const struct tt_ids *prompts, int count,
                           struct tt_ids *outputs, tt_generate_visitor *visitor, void *context)
{
    tt_status status = TT_OK;
    struct generation generation = {0};
    TT_TRY(check_prompts(generator, prompts, count));
    TT_GO(generation_init(generator, count, &generation));
    tt_kv_cache_reset(generator->cache);
    struct tt_batch batch = begin_batch(generator, &generation);
    for (int i = 0; i < generator->batch_size; i++)
        add_tokens(&generation, i, i < count ? prompts[i].data : NULL,
                   i < count ? (int64_t)prompts[i].count : 0, 0, &batch);
    for (int64_t made = 0; made < generator->options.max_new_tokens && batch.row_count > 0; made++) {
        TT_GO(run_pass(&generator->rank, generator->cache, &batch, generator->logits));
        TT_GO(choose_tokens(generator, &generation, &batch, outputs, visitor, context));
        batch = begin_batch(generator, &generation);
        for (int i = 0; i < generator->batch_size; i++)
            add_tokens(&generation, i, &generation.next[i], i < count && !generation.done[i],
                       tt_kv_cache_length(generator->cache, i), &batch);
    }
    generator->runs++;
out:
    generation_deinit(&generation);
    return status;
}
