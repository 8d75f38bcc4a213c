#include "infer/generation_engine.h"

#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "comm/host_values.h"
#include "infer/adapter_set.h"
#include "infer/end_ids.h"
#include "infer/generation_rank.h"
#include "infer/generation_single.h"
#include "job/inputs.h"

/* Reuse of fewer tokens than REUSE_MIN is not worth a copy; a request waits for a common beginning that another one
 * computes already if it has WAIT_MIN tokens. */
enum { REUSE_MIN = 8, WAIT_MIN = 32 };

struct request {
    int64_t id;
    struct tt_ids ids; /* the prompt, then the answer */
    size_t prompt_count, reused, done;
    int64_t max_new_tokens;
    struct tt_sampling_options sampling;
    struct tt_rng rng;
    struct tt_ids stops;
    bool ignore_end;
    int adapter; /* -1: the base alone */
    bool wants_logprobs;
    int top_logprobs;
    struct tt_logprob_list logprobs; /* of the answer */
    enum tt_generation_state state;
    int32_t end_id;
};

/* A sequence of the cache. The ids that it holds are those of its last request, as far as the cache has them. */
struct slot {
    struct request *request; /* NULL: free */
    int32_t *ids;            /* [length] */
    int adapter;             /* that they were computed with */
    int64_t last_used;       /* number of the pass */
    int64_t added;           /* tokens of the current pass */
};

/* Host arrays of the next pass. */
struct pass_arrays {
    int32_t *ids, *positions, *labels, *borders, *rows;
    int64_t *row_keys;
    int *slot_of_row;
    bool *wanted;                 /* rows with logprobs */
    struct tt_sample_rule *rules; /* of the rows */
};

struct tt_generation_engine {
    const struct tt_inputs *inputs;
    struct tt_generation_limits limits;
    struct tt_generation_rank rank;
    struct tt_adapter_set adapters; /* empty unless there are several */
    bool shared;                    /* with other ranks, which run each pass together */
    struct tt_ids end_ids;
    struct request **requests; /* ascending ids */
    size_t count, capacity;
    int64_t last_id;
    struct slot *slots;
    int32_t *slot_ids; /* of all slots */
    struct pass_arrays arrays;
    double *needed; /* [adapters + 1], passes of a step */
    struct tt_generation_load load;
};

static tt_status check_limits(const struct tt_generation_engine *engine)
{
    const struct tt_generation_limits *limits = &engine->limits;
    int64_t positions = engine->inputs->model_facts.max_position_embeddings;
    if (limits->slots < 1 || limits->length < 2 || limits->pass_tokens < 0 || limits->waiting < 0)
        return tt_fail(TT_ERR_USAGE, "generation needs a slot and a length of at least 2 tokens");
    if (limits->length > positions)
        return tt_fail(TT_ERR_USAGE,
                       "requests of %lld tokens, prompt and answer, are more than the model's %lld positions",
                       (long long)limits->length, (long long)positions);
    return TT_OK;
}

/* At least 1: without a folder of its own it is what the rank trains, or nothing. */
static size_t count_adapters(const struct tt_generation_engine *engine)
{
    return engine->inputs->adapter_count > 1 ? engine->inputs->adapter_count : 1;
}

static tt_status create_arrays(struct tt_generation_engine *engine)
{
    size_t slots = (size_t)engine->limits.slots, tokens = (size_t)engine->limits.pass_tokens;
    size_t length = (size_t)engine->limits.length;
    engine->slots = tt_calloc(slots, sizeof *engine->slots);
    engine->slot_ids = tt_calloc(slots, length * sizeof(int32_t));
    engine->needed = tt_calloc(count_adapters(engine) + 1, sizeof *engine->needed);
    engine->arrays = (struct pass_arrays){
        .ids = tt_calloc(tokens, sizeof(int32_t)),
        .positions = tt_calloc(tokens, sizeof(int32_t)),
        .row_keys = tt_calloc(tokens, sizeof(int64_t)),
        .labels = tt_calloc(slots, sizeof(int32_t)),
        .borders = tt_calloc(slots + 1, sizeof(int32_t)),
        .rows = tt_calloc(slots, sizeof(int32_t)),
        .slot_of_row = tt_calloc(slots, sizeof(int)),
        .wanted = tt_calloc(slots, sizeof(bool)),
        .rules = tt_calloc(slots, sizeof(struct tt_sample_rule)),
    };
    const struct pass_arrays *arrays = &engine->arrays;
    if (engine->slots == NULL || engine->slot_ids == NULL || engine->needed == NULL || arrays->ids == NULL ||
        arrays->positions == NULL || arrays->row_keys == NULL || arrays->labels == NULL ||
        arrays->borders == NULL || arrays->rows == NULL || arrays->slot_of_row == NULL ||
        arrays->wanted == NULL || arrays->rules == NULL)
        return TT_ERR_MEMORY;
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
    if (inputs->adapter_count > 1) {
        TT_GO(tt_adapter_set_init(engine->rank.rank, (int)inputs->adapter_count, &engine->adapters));
        TT_GO(tt_adapter_set_load(&engine->adapters, inputs));
    }
    TT_GO(create_arrays(engine));
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
    tt_logprob_list_deinit(&request->logprobs);
    tt_free(request);
}

void tt_generation_destroy(struct tt_generation_engine *engine)
{
    if (engine == NULL) return;
    for (size_t i = 0; i < engine->count; i++) request_destroy(engine->requests[i]);
    tt_free(engine->requests);
    tt_adapter_set_deinit(&engine->adapters);
    tt_generation_rank_deinit(&engine->rank);
    tt_ids_deinit(&engine->end_ids);
    tt_free(engine->slots);
    tt_free(engine->slot_ids);
    tt_free(engine->needed);
    tt_free(engine->arrays.ids);
    tt_free(engine->arrays.positions);
    tt_free(engine->arrays.row_keys);
    tt_free(engine->arrays.labels);
    tt_free(engine->arrays.borders);
    tt_free(engine->arrays.rows);
    tt_free(engine->arrays.slot_of_row);
    tt_free(engine->arrays.wanted);
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
    return engine->inputs->adapter_count > 0;
}

struct tt_comm *tt_generation_world(const struct tt_generation_engine *engine)
{
    return engine->rank.rank->world;
}

struct tt_device *tt_generation_device(const struct tt_generation_engine *engine)
{
    return engine->rank.rank->device;
}

tt_status tt_generation_check(const struct tt_generation_engine *engine,
                              const struct tt_generation_request *request)
{
    const struct tt_generation_limits *limits = &engine->limits;
    int64_t vocab = engine->inputs->model_facts.vocab_size;
    if (request->prompt_count == 0) return tt_fail(TT_ERR_DATA, "the prompt has no tokens");
    if (request->max_new_tokens < 1)
        return tt_fail(TT_ERR_USAGE, "max_new_tokens is %lld, but must be at least 1",
                       (long long)request->max_new_tokens);
    if (request->prompt_count > (size_t)limits->length ||
        request->max_new_tokens > limits->length - (int64_t)request->prompt_count)
        return tt_fail(TT_ERR_DATA,
                       "the prompt has %zu tokens: with %lld new ones this is more than the limit of %lld",
                       request->prompt_count, (long long)request->max_new_tokens, (long long)limits->length);
    for (size_t t = 0; t < request->prompt_count; t++)
        if (request->prompt[t] < 0 || request->prompt[t] >= vocab)
            return tt_fail(TT_ERR_DATA, "the prompt has the id %d, but the model has %lld embeddings",
                           (int)request->prompt[t], (long long)vocab);
    if (request->adapter < 0 || (size_t)request->adapter >= count_adapters(engine))
        return tt_fail(TT_ERR_USAGE, "adapter %d of %zu", request->adapter, count_adapters(engine));
    if (request->top_logprobs < 0 || request->top_logprobs > TT_TOP_LOGPROBS_MAX)
        return tt_fail(TT_ERR_USAGE, "%d likeliest tokens, at most %d", request->top_logprobs,
                       TT_TOP_LOGPROBS_MAX);
    return tt_sampling_check(&request->sampling);
}

static tt_status copy_ids(const int32_t *ids, size_t count, struct tt_ids *to)
{
    for (size_t i = 0; i < count; i++) TT_TRY(tt_ids_append(to, ids[i]));
    return TT_OK;
}

tt_status tt_generation_submit(struct tt_generation_engine *engine, const struct tt_generation_request *ask,
                               int64_t *id)
{
    tt_status status = TT_OK;
    struct request *request = NULL;
    TT_TRY(tt_generation_check(engine, ask));
    if (engine->limits.waiting > 0 && engine->load.waiting >= (size_t)engine->limits.waiting)
        return tt_fail(TT_ERR_USAGE, "%zu requests wait already, which is the limit", engine->load.waiting);
    if (tt_grow((void **)&engine->requests, engine->count, &engine->capacity, sizeof(struct request *)) != 0)
        return TT_ERR_MEMORY;
    request = tt_calloc(1, sizeof *request);
    if (request == NULL) return TT_ERR_MEMORY;
    *request = (struct request){
        .id = engine->last_id + 1,
        .prompt_count = ask->prompt_count,
        .max_new_tokens = ask->max_new_tokens,
        .sampling = ask->sampling,
        .rng = tt_rng_derive(tt_rng_make(ask->seed), "generate"),
        .ignore_end = ask->ignore_end,
        .adapter = ask->adapter_off && tt_generation_has_adapter(engine) ? -1 : ask->adapter,
        .wants_logprobs = ask->wants_logprobs,
        .top_logprobs = ask->top_logprobs,
        .end_id = -1,
    };
    TT_GO(copy_ids(ask->prompt, ask->prompt_count, &request->ids));
    TT_GO(copy_ids(ask->stop_ids, ask->stop_count, &request->stops));
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
        .end_id = request->end_id,
        .prompt_done = request->done < request->prompt_count ? request->done : request->prompt_count,
        .prompt_reused = request->reused,
    };
    return TT_OK;
}

static void finish(struct tt_generation_engine *engine, struct request *request,
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
        finish(engine, request, TT_GENERATION_CANCELLED);
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
    return load;
}

static int64_t held(const struct tt_generation_engine *engine, int64_t slot)
{
    return tt_kv_cache_length(engine->rank.cache, slot);
}

void tt_generation_forget(struct tt_generation_engine *engine)
{
    for (int64_t s = 0; s < engine->limits.slots; s++) tt_kv_cache_truncate(engine->rank.cache, s, 0);
}

/* How many tokens at the beginning of the request's prompt equal the first `count` of `ids`. The last one is computed
 * in any case: its logits are needed. */
static int64_t common_length(const struct request *request, const int32_t *ids, int64_t count)
{
    int64_t most = (int64_t)request->prompt_count - 1, common = 0;
    if (count > most) count = most;
    while (common < count && request->ids.data[common] == ids[common]) common++;
    return common;
}

/* Where a request goes, and what it continues from. */
struct place {
    int64_t slot;   /* free; -1: none */
    int64_t source; /* slot that holds its first `common` tokens */
    int64_t common;
    bool waits; /* another request is about to compute more of them */
};

static struct place find_place(const struct tt_generation_engine *engine, const struct request *request)
{
    struct place place = {.slot = -1, .source = -1};
    int64_t coming = 0, oldest = -1;
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        const struct slot *slot = &engine->slots[s];
        if (slot->request == NULL && (oldest < 0 || slot->last_used < engine->slots[oldest].last_used))
            oldest = s;
        if (slot->adapter != request->adapter) continue;
        int64_t common = common_length(request, slot->ids, held(engine, s));
        if (common > place.common || (common == place.common && slot->request == NULL)) {
            place.common = common;
            place.source = s;
        }
        const struct request *other = slot->request;
        int64_t later =
            other == NULL ? 0 : common_length(request, other->ids.data, (int64_t)other->prompt_count);
        if (later > coming) coming = later;
    }
    if (place.common < REUSE_MIN) place.common = 0;
    /* A longer conversation stays, if another slot is free. */
    bool in_place = place.common > 0 && engine->slots[place.source].request == NULL &&
                    2 * place.common >= held(engine, place.source);
    place.slot = in_place ? place.source : oldest;
    place.waits = coming >= WAIT_MIN && coming >= place.common + REUSE_MIN;
    return place;
}

static tt_status start(struct tt_generation_engine *engine, struct request *request,
                       const struct place *place)
{
    struct slot *slot = &engine->slots[place->slot];
    struct tt_kv_cache *cache = engine->rank.cache;
    tt_kv_cache_truncate(cache, place->slot, place->slot == place->source ? place->common : 0);
    if (place->common > 0 && place->slot != place->source)
        TT_TRY(tt_kv_cache_copy(cache, engine->rank.rank->stream, place->source, place->slot, place->common));
    if (tt_sampling_has_penalty(&request->sampling))
        TT_TRY(tt_generation_rank_see(&engine->rank, place->slot, request->ids.data, request->prompt_count));
    memcpy(slot->ids, request->ids.data, (size_t)place->common * sizeof *slot->ids);
    slot->request = request;
    slot->adapter = request->adapter;
    request->state = TT_GENERATION_RUNNING;
    request->reused = request->done = (size_t)place->common;
    engine->load.waiting--;
    engine->load.running++;
    engine->load.reused += place->common;
    return TT_OK;
}

/* Gives free slots to waiting requests, the oldest first. */
static tt_status admit(struct tt_generation_engine *engine)
{
    for (size_t i = 0; i < engine->count && engine->load.waiting > 0; i++) {
        if (engine->load.running == (size_t)engine->limits.slots) return TT_OK;
        struct request *request = engine->requests[i];
        if (request->state != TT_GENERATION_WAITING) continue;
        struct place place = find_place(engine, request);
        if (!place.waits) TT_TRY(start(engine, request, &place));
    }
    return TT_OK;
}

static int64_t left(const struct tt_generation_engine *engine, int64_t s)
{
    return (int64_t)engine->slots[s].request->ids.count - held(engine, s);
}

/* The running slot with the oldest request of this kind whose tokens are not in the pass yet; -1: none. */
static int64_t next_prompt(const struct tt_generation_engine *engine, int adapter, bool with_single)
{
    int64_t next = -1;
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        const struct slot *slot = &engine->slots[s];
        if (slot->request == NULL || slot->adapter != adapter || slot->added > 0) continue;
        if (!with_single && left(engine, s) == 1) continue;
        if (next < 0 || slot->request->id < engine->slots[next].request->id) next = s;
    }
    return next;
}

/* What a pass has of the running requests: the next tokens of answers, parts of prompts, or both. */
enum part { NEXT_TOKENS = 1, PROMPTS = 2 };

/* Sets `added` of every slot: one token of each answer, then as much of the prompts as fits. Returns their sum. */
static int64_t choose_tokens(struct tt_generation_engine *engine, int adapter, int parts)
{
    int64_t room = engine->limits.pass_tokens;
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        struct slot *slot = &engine->slots[s];
        bool next = (parts & NEXT_TOKENS) != 0 && slot->request != NULL && slot->adapter == adapter &&
                    left(engine, s) == 1;
        slot->added = next;
        room -= next;
    }
    for (int64_t s;
         (parts & PROMPTS) != 0 && room > 0 && (s = next_prompt(engine, adapter, parts != PROMPTS)) >= 0;) {
        struct slot *slot = &engine->slots[s];
        slot->added = left(engine, s) < room ? left(engine, s) : room;
        room -= slot->added;
    }
    return engine->limits.pass_tokens - room;
}

/* Lays the chosen tokens out as a batch; those that end a prompt or an answer have logits. */
static struct tt_batch make_batch(struct tt_generation_engine *engine)
{
    const struct pass_arrays *arrays = &engine->arrays;
    engine->rank.wanted = arrays->wanted;
    engine->rank.wanted_count = 0;
    struct tt_batch batch = {
        .sequence_count = engine->limits.slots,
        .ids = arrays->ids,
        .positions = arrays->positions,
        .row_keys = arrays->row_keys,
        .cu_seqlens = arrays->borders,
        .rows = arrays->rows,
        .labels = arrays->labels,
    };
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        struct slot *slot = &engine->slots[s];
        int64_t first = held(engine, s);
        for (int64_t t = first; t < first + slot->added; t++) {
            slot->ids[t] = slot->request->ids.data[t];
            arrays->ids[batch.token_count] = slot->ids[t];
            arrays->positions[batch.token_count++] = (int32_t)t;
        }
        arrays->borders[s + 1] = (int32_t)batch.token_count;
        if (slot->added > batch.max_length) batch.max_length = slot->added;
        if (slot->added == 0 || slot->added < left(engine, s)) continue;
        size_t made = slot->request->ids.count - slot->request->prompt_count;
        arrays->rules[batch.row_count] =
            tt_sampling_rule(&slot->request->sampling, tt_rng_uniform(slot->request->rng, made), (int32_t)s);
        arrays->wanted[batch.row_count] = slot->request->wants_logprobs;
        engine->rank.wanted_count += slot->request->wants_logprobs;
        arrays->slot_of_row[batch.row_count] = (int)s;
        arrays->rows[batch.row_count++] = (int32_t)(batch.token_count - 1);
    }
    return batch;
}

/* `logits`: of the row, where they are wanted. */
static tt_status add_token(struct tt_generation_engine *engine, struct request *request, int32_t token,
                           const float *logits)
{
    struct tt_token_logprobs logprobs;
    size_t made = request->ids.count - request->prompt_count;
    bool ends = !request->ignore_end && tt_end_ids_contain(&engine->end_ids, token);
    engine->load.generated++;
    if (ends || tt_end_ids_contain(&request->stops, token)) {
        request->end_id = token;
        finish(engine, request, TT_GENERATION_ENDED);
        return TT_OK;
    }
    TT_TRY(tt_ids_append(&request->ids, token));
    if (request->wants_logprobs) {
        tt_token_logprobs_make(logits, engine->inputs->model_facts.vocab_size, token, request->top_logprobs,
                               &logprobs);
        TT_TRY(tt_logprob_list_append(&request->logprobs, &logprobs));
    }
    if (made + 1 == (size_t)request->max_new_tokens) finish(engine, request, TT_GENERATION_LENGTH);
    return TT_OK;
}

static tt_status run_pass(struct tt_generation_engine *engine, int adapter, int parts)
{
    tt_status status = TT_OK;
    const int32_t *tokens = NULL;
    if (choose_tokens(engine, adapter, parts) == 0 && !engine->shared) return TT_OK;
    struct tt_batch batch = make_batch(engine);
    if (adapter >= 0) TT_GO(tt_adapter_set_choose(&engine->adapters, adapter));
    TT_GO(tt_generation_rank_pass(&engine->rank, &batch, engine->arrays.rules, adapter < 0, &tokens));
    engine->load.passes++;
    engine->load.tokens += batch.token_count;
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        struct slot *slot = &engine->slots[s];
        if (slot->added == 0) continue;
        slot->last_used = engine->load.passes;
        slot->request->done = (size_t)held(engine, s);
    }
    const float *logits = engine->rank.logits;
    for (int64_t n = 0; n < batch.row_count; n++) {
        struct request *request = engine->slots[engine->arrays.slot_of_row[n]].request;
        TT_GO(add_token(engine, request, tokens[n], logits));
        if (engine->arrays.wanted[n]) logits += engine->inputs->model_facts.vocab_size;
    }
out:
    tt_generation_rank_end(&engine->rank);
    return status;
}

static bool has_requests(const struct tt_generation_engine *engine, int adapter)
{
    for (int64_t s = 0; s < engine->limits.slots; s++)
        if (engine->slots[s].request != NULL && engine->slots[s].adapter == adapter) return true;
    return false;
}

/* A pass that one rank needs is run by all: those without requests take part in its transfers. */
tt_status tt_generation_step(struct tt_generation_engine *engine, bool *busy)
{
    TT_TRY(admit(engine));
    bool ran = false, apart = !engine->shared && tt_generation_rank_prefers_single(&engine->rank);
    double *needed = engine->needed; /* of the base alone, then of each adapter */
    size_t kinds = count_adapters(engine) + 1;
    for (size_t k = 0; k < kinds; k++) needed[k] = has_requests(engine, (int)k - 1);
    if (engine->shared) TT_TRY(tt_comm_host_sum(engine->rank.rank->world, needed, kinds));
    for (size_t k = 0; k < kinds; k++) {
        if (needed[k] == 0) continue;
        TT_TRY(run_pass(engine, (int)k - 1, apart ? NEXT_TOKENS : NEXT_TOKENS | PROMPTS));
        if (apart) TT_TRY(run_pass(engine, (int)k - 1, PROMPTS));
        ran = true;
    }
    *busy = engine->load.waiting > 0 || engine->load.running > 0 || (engine->shared && ran);
    return TT_OK;
}
