#include "infer/generation_engine.h"

#include <string.h>

#include "base/alloc.h"
#include "infer/adapter_set.h"
#include "infer/end_ids.h"
#include "infer/generation_impl.h"
#include "infer/generation_single.h"

static tt_status check_limits(const struct tt_generation_engine *engine)
{
    const struct tt_generation_limits *limits = &engine->limits;
    int64_t positions = engine->inputs->model_facts.max_position_embeddings;
    if (limits->slots < 1 || limits->length < 2 || limits->pass_tokens < 0 || limits->waiting < 0)
        return tt_fail(
            TT_ERR_USAGE,
            "generation of %lld requests at a time with %lld tokens each: at least 1 request and 2 tokens",
            (long long)limits->slots, (long long)limits->length);
    if (limits->length > positions)
        return tt_fail(TT_ERR_USAGE,
                       "requests of %lld tokens, prompt and answer, are more than the model's %lld positions",
                       (long long)limits->length, (long long)positions);
    return TT_OK;
}

size_t tt_generation_count_adapters(const struct tt_generation_engine *engine)
{
    int64_t places = engine->inputs->model_options.adapter_places;
    return places > 1 ? (size_t)places : 1;
}

static tt_status create_arrays(struct tt_generation_engine *engine)
{
    size_t slots = (size_t)engine->limits.slots, tokens = (size_t)engine->limits.pass_tokens;
    size_t length = (size_t)engine->limits.length, rows = (size_t)engine->rows;
    engine->slots = tt_calloc(slots, sizeof *engine->slots);
    engine->slot_ids = tt_calloc(slots, length * sizeof(int32_t));
    engine->mask =
        tt_calloc((size_t)tt_sample_seen_words(engine->inputs->model_facts.vocab_size), sizeof *engine->mask);
    engine->arrays = (struct pass_arrays){
        .ids = tt_calloc(tokens, sizeof(int32_t)),
        .positions = tt_calloc(tokens, sizeof(int32_t)),
        .reached = tt_calloc(tokens, sizeof(int32_t)),
        .row_keys = tt_calloc(tokens, sizeof(int64_t)),
        .labels = tt_calloc(rows, sizeof(int32_t)),
        .borders = tt_calloc(slots + 1, sizeof(int32_t)),
        .rows = tt_calloc(rows, sizeof(int32_t)),
        .slot_of_row = tt_calloc(rows, sizeof(int)),
        .wanted = tt_calloc(rows, sizeof(bool)),
        .adapters = tt_calloc(tokens, sizeof(int32_t)),
        .row_adapters = tt_calloc(rows, sizeof(int32_t)),
        .rules = tt_calloc(rows, sizeof(struct tt_sample_rule)),
    };
    const struct pass_arrays *arrays = &engine->arrays;
    if (engine->slots == NULL || engine->slot_ids == NULL || engine->mask == NULL || arrays->ids == NULL ||
        arrays->positions == NULL || arrays->reached == NULL || arrays->row_keys == NULL ||
        arrays->labels == NULL || arrays->borders == NULL || arrays->rows == NULL ||
        arrays->slot_of_row == NULL || arrays->wanted == NULL || arrays->adapters == NULL ||
        arrays->row_adapters == NULL || arrays->rules == NULL)
        return TT_ERR_MEMORY;
    size_t entries = (size_t)tt_generation_adjust_entries(&engine->limits);
    if (entries > 0) TT_TRY(tt_adjust_list_init(&engine->adjust, entries));
    engine->rank.adjust = &engine->adjust;
    for (size_t s = 0; s < slots; s++) engine->slots[s].ids = engine->slot_ids + s * length;
    return TT_OK;
}

/* `borrowed` or `device`: the other one is NULL. */
static tt_status create(struct tt_rank *borrowed, const struct tt_device_spec *device,
                        const struct tt_inputs *inputs, const struct tt_generation_limits *limits,
                        struct tt_generation_engine **out)
{
    tt_status status = TT_OK;
    struct tt_generation_engine *engine = tt_calloc(1, sizeof *engine);
    if (engine == NULL) return TT_ERR_MEMORY;
    engine->inputs = inputs;
    engine->limits = *limits;
    TT_GO(check_limits(engine));
    TT_GO(tt_end_ids_find(inputs, &engine->end_ids));
    if (borrowed != NULL)
        TT_GO(tt_generation_rank_attach(borrowed, limits, &engine->rank));
    else
        TT_GO(tt_generation_rank_init(device, inputs, &engine->limits, &engine->rank));
    engine->shared = tt_comm_world_size(engine->rank.rank->world) > 1;
    if (inputs->model_options.adapter_places > 0) {
        TT_GO(tt_adapter_set_load(engine->rank.rank, inputs));
        if (engine->shared) TT_GO(tt_comm_barrier(engine->rank.rank->world));
    }
    engine->rows = tt_generation_rows(&engine->limits);
    TT_GO(create_arrays(engine));
    TT_GO(tt_constraints_create(inputs, &engine->constraints));
    *out = engine;
    engine = NULL;
out:
    tt_generation_destroy(engine);
    return status;
}

tt_status tt_generation_open(const struct tt_device_spec *device, const struct tt_inputs *inputs,
                             const struct tt_generation_limits *limits, struct tt_generation_engine **out)
{
    return create(NULL, device, inputs, limits, out);
}

tt_status tt_generation_attach(struct tt_rank *rank, const struct tt_inputs *inputs,
                               const struct tt_generation_limits *limits, struct tt_generation_engine **out)
{
    return create(rank, NULL, inputs, limits, out);
}

static void request_destroy(struct request *request)
{
    if (request == NULL) return;
    tt_ids_deinit(&request->ids);
    tt_ids_deinit(&request->stops);
    tt_ids_deinit(&request->allowed);
    tt_ids_deinit(&request->banned);
    tt_adjustment_deinit(&request->adjustment);
    tt_logprob_list_deinit(&request->logprobs);
    tt_logprob_list_deinit(&request->prompt_logprobs);
    tt_logprob_list_deinit(&request->spare);
    tt_grammar_matcher_destroy(request->matcher);
    tt_free(request);
}

void tt_generation_destroy(struct tt_generation_engine *engine)
{
    if (engine == NULL) return;
    for (size_t i = 0; i < engine->count; i++) request_destroy(engine->requests[i]);
    tt_free(engine->requests);
    tt_constraints_destroy(engine->constraints);
    tt_generation_rank_deinit(&engine->rank);
    tt_ids_deinit(&engine->end_ids);
    for (int64_t s = 0; engine->slots != NULL && s < engine->limits.slots; s++)
        tt_logprob_list_deinit(&engine->slots[s].known);
    tt_free(engine->slots);
    tt_free(engine->slot_ids);
    tt_adjust_list_deinit(&engine->adjust);
    tt_free(engine->mask);
    tt_free(engine->arrays.ids);
    tt_free(engine->arrays.positions);
    tt_free(engine->arrays.reached);
    tt_free(engine->arrays.row_keys);
    tt_free(engine->arrays.labels);
    tt_free(engine->arrays.borders);
    tt_free(engine->arrays.rows);
    tt_free(engine->arrays.slot_of_row);
    tt_free(engine->arrays.wanted);
    tt_free(engine->arrays.adapters);
    tt_free(engine->arrays.row_adapters);
    tt_free(engine->arrays.rules);
    tt_free(engine);
}

uint64_t tt_generation_seed(uint64_t seed, uint64_t index)
{
    return index == 0 ? seed : tt_rng_u64(tt_rng_derive(tt_rng_make(seed), "requests"), index);
}

const struct tt_generation_limits *tt_generation_limits_of(const struct tt_generation_engine *engine)
{
    return &engine->limits;
}

bool tt_generation_has_adapter(const struct tt_generation_engine *engine)
{
    return engine->inputs->adapter_count > 0 || engine->inputs->model_options.adapter_places > 0;
}

struct tt_comm *tt_generation_world(const struct tt_generation_engine *engine)
{
    return engine->rank.rank->world;
}

struct tt_device *tt_generation_device(const struct tt_generation_engine *engine)
{
    return engine->rank.rank->device;
}

static tt_status check_top(int count)
{
    if (count >= 0 && count <= TT_TOP_LOGPROBS_MAX) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "%d likeliest tokens, at most %d", count, TT_TOP_LOGPROBS_MAX);
}

static tt_status check_adjust(const struct tt_generation_engine *engine,
                              const struct tt_generation_request *request)
{
    if (request->stop_count > TT_STOP_IDS_MAX)
        return tt_fail(TT_ERR_USAGE, "%zu stop ids, at most %d", request->stop_count, TT_STOP_IDS_MAX);
    if (!tt_adjust_is_needed(&request->adjust)) return TT_OK;
    if (!engine->limits.adjusts)
        return tt_fail(TT_ERR_UNSUPPORTED, "this generation has no memory for changes of logits");
    return tt_adjust_check(&request->adjust, engine->inputs->model_facts.vocab_size);
}

tt_status tt_generation_check(const struct tt_generation_engine *engine,
                              const struct tt_generation_request *request)
{
    const struct tt_generation_limits *limits = &engine->limits;
    int64_t vocab = engine->inputs->model_facts.vocab_size;
    if (request->prompt_count == 0) return tt_fail(TT_ERR_DATA, "the prompt has no tokens");
    if (request->max_new_tokens < 0)
        return tt_fail(TT_ERR_USAGE, "max_new_tokens is %lld, but must not be negative",
                       (long long)request->max_new_tokens);
    if (request->prompt_count > (size_t)limits->length ||
        request->max_new_tokens > limits->length - (int64_t)request->prompt_count)
        return tt_fail(TT_ERR_DATA,
                       "the prompt has %zu tokens: with %lld new ones this is more than the limit of %lld",
                       request->prompt_count, (long long)request->max_new_tokens, (long long)limits->length);
    for (size_t t = 0; t < request->prompt_count; t++)
        if (request->prompt[t] < 0 || request->prompt[t] >= vocab) {
            tt_fail(TT_ERR_DATA, "the prompt has the id %d, but the model has %lld embeddings",
                    (int)request->prompt[t], (long long)vocab);
            tt_hint("a token that was added needs a row: in Python, "
                    "model.resize_token_embeddings(len(tokenizer)), then save both");
            return TT_ERR_DATA;
        }
    if (request->adapter < 0 || (size_t)request->adapter >= tt_generation_count_adapters(engine))
        return tt_fail(TT_ERR_USAGE, "adapter %d of %zu", request->adapter,
                       tt_generation_count_adapters(engine));
    TT_TRY(check_adjust(engine, request));
    TT_TRY(tt_token_rules_check(&request->rules, vocab));
    TT_TRY(check_top(request->top_logprobs));
    TT_TRY(check_top(request->prompt_top_logprobs));
    return tt_sampling_check(&request->sampling);
}

tt_status tt_generation_check_grammar(const struct tt_generation_engine *engine, struct tt_span source)
{
    struct tt_grammar *grammar = NULL;
    TT_TRY(tt_constraints_get(engine->constraints, source, &grammar));
    tt_grammar_release(grammar);
    return TT_OK;
}

static tt_status begin_grammar(const struct tt_generation_engine *engine, struct tt_span source,
                               struct request *request)
{
    struct tt_grammar *grammar = NULL;
    TT_TRY(tt_constraints_get(engine->constraints, source, &grammar));
    tt_status status = tt_grammar_matcher_create(grammar, &request->matcher);
    tt_grammar_release(grammar);
    return status;
}

static tt_status copy_ids(const int32_t *ids, size_t count, struct tt_ids *to)
{
    for (size_t i = 0; i < count; i++) TT_TRY(tt_ids_append(to, ids[i]));
    return TT_OK;
}

static tt_status reserve_prompt(struct request *request)
{
    TT_TRY(tt_logprob_list_reserve(&request->prompt_logprobs, request->prompt_count));
    return tt_logprob_list_reserve(&request->spare, request->prompt_count);
}

tt_status tt_generation_submit(struct tt_generation_engine *engine, const struct tt_generation_request *ask,
                               int64_t *id)
{
    tt_status status = TT_OK;
    struct request *request = NULL;
    TT_TRY(tt_generation_check(engine, ask));
    if (engine->limits.waiting > 0 && engine->load.waiting >= (size_t)engine->limits.waiting)
        return tt_fail(TT_ERR_USAGE, "%zu requests wait already, which is the limit", engine->load.waiting);
    TT_TRY(tt_grow(&engine->requests, engine->count, &engine->capacity));
    request = tt_calloc(1, sizeof *request);
    if (request == NULL) return TT_ERR_MEMORY;
    *request = (struct request){
        .id = engine->last_id + 1,
        .prompt_count = ask->prompt_count,
        .max_new_tokens = ask->max_new_tokens,
        .sampling = ask->sampling,
        .rng = tt_rng_derive(tt_rng_make(ask->seed), "generate"),
        .adjusts = tt_adjust_is_needed(&ask->adjust),
        .ignore_end = ask->ignore_end,
        .adapter = ask->adapter_off && tt_generation_has_adapter(engine) ? -1 : ask->adapter,
        .wants_logprobs = ask->wants_logprobs,
        .top_logprobs = ask->top_logprobs,
        .wants_prompt = ask->wants_prompt_logprobs,
        .prompt_top = ask->prompt_top_logprobs,
        .end_id = -1,
    };
    TT_GO(tt_ids_reserve(&request->ids, ask->prompt_count + (size_t)ask->max_new_tokens));
    if (ask->wants_logprobs) TT_GO(tt_logprob_list_reserve(&request->logprobs, (size_t)ask->max_new_tokens));
    if (ask->wants_prompt_logprobs) TT_GO(reserve_prompt(request));
    if (request->adjusts) TT_GO(tt_adjustment_init(&request->adjustment, &ask->adjust, ask->max_new_tokens));
    if (ask->grammar.bytes > 0) TT_GO(begin_grammar(engine, ask->grammar, request));
    TT_GO(copy_ids(ask->prompt, ask->prompt_count, &request->ids));
    TT_GO(copy_ids(ask->stop_ids, ask->stop_count, &request->stops));
    TT_GO(copy_ids(ask->rules.allowed, ask->rules.allowed_count, &request->allowed));
    TT_GO(copy_ids(ask->rules.banned, ask->rules.banned_count, &request->banned));
    *id = engine->last_id = request->id;
    engine->requests[engine->count++] = request;
    engine->load.waiting++;
    request = NULL;
out:
    request_destroy(request);
    return status;
}

/* Index of the first request whose id is not below `id`. */
static size_t find_index(const struct tt_generation_engine *engine, int64_t id)
{
    size_t low = 0, high = engine->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (engine->requests[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct request *find(const struct tt_generation_engine *engine, int64_t id)
{
    size_t index = find_index(engine, id);
    return index < engine->count && engine->requests[index]->id == id ? engine->requests[index] : NULL;
}

tt_status tt_generation_poll(const struct tt_generation_engine *engine, int64_t id,
                             struct tt_generation_progress *progress)
{
    const struct request *request = find(engine, id);
    if (request == NULL) return tt_fail(TT_ERR_USAGE, "there is no request %lld", (long long)id);
    *progress = (struct tt_generation_progress){
        .state = request->state,
        .tokens = request->ids.data + request->prompt_count,
        .count = request->ids.count - request->prompt_count,
        .logprobs = request->logprobs.data,
        .logprob_count = request->logprobs.count,
        .prompt_logprobs = request->prompt_logprobs.data,
        .prompt_logprob_count = request->prompt_logprobs.count,
        .end_id = request->end_id,
        .prompt_done = request->done < request->prompt_count ? request->done : request->prompt_count,
        .prompt_reused = request->reused,
    };
    return TT_OK;
}

void tt_generation_unlearn(struct slot *slot, size_t count)
{
    if (slot->known.count > count) slot->known.count = count;
}

void tt_generation_finish(struct tt_generation_engine *engine, struct request *request,
                          enum tt_generation_state state)
{
    engine->load.waiting -= request->state == TT_GENERATION_WAITING;
    engine->load.running -= request->state == TT_GENERATION_RUNNING;
    engine->load.finished++;
    request->state = state;
    for (int64_t s = 0; s < engine->limits.slots; s++)
        if (engine->slots[s].request == request) engine->slots[s].request = NULL;
}

void tt_generation_cancel(struct tt_generation_engine *engine, int64_t id)
{
    struct request *request = find(engine, id);
    if (request != NULL && !tt_generation_is_finished(request->state))
        tt_generation_finish(engine, request, TT_GENERATION_CANCELLED);
}

void tt_generation_release(struct tt_generation_engine *engine, int64_t id)
{
    struct request *request = find(engine, id);
    if (request == NULL) return;
    tt_generation_cancel(engine, id);
    size_t index = find_index(engine, id);
    engine->count--;
    memmove(engine->requests + index, engine->requests + index + 1,
            (engine->count - index) * sizeof *engine->requests);
    engine->load.finished--;
    request_destroy(request);
}

struct tt_generation_load tt_generation_load_of(const struct tt_generation_engine *engine)
{
    struct tt_generation_load load = engine->load;
    load.recorded = tt_generation_single_launches(engine->rank.single);
    for (int64_t s = 0; s < engine->limits.slots; s++)
        load.cached += tt_kv_cache_length(engine->rank.cache, s);
    return load;
}

void tt_generation_forget(struct tt_generation_engine *engine)
{
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        tt_kv_cache_truncate(engine->rank.cache, s, 0);
        tt_generation_unlearn(&engine->slots[s], 0);
    }
}
