/* A step of the generation engine: free slots to waiting requests, the tokens of each pass, the chosen tokens back. */
#include <string.h>

#include "base/integer.h"
#include "comm/host_values.h"
#include "infer/end_ids.h"
#include "infer/generation_impl.h"

/* Reuse of fewer tokens than REUSE_MIN is not worth a copy; a request waits for a common beginning that another one
 * computes already if it has WAIT_MIN tokens. */
enum { REUSE_MIN = 8, WAIT_MIN = 32 };

/* States are saved behind whole blocks of a prompt. */
enum { BLOCK = 16 };

static int64_t held(const struct tt_generation_engine *engine, int64_t slot)
{
    return tt_kv_cache_length(engine->rank.cache, slot);
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

/* The part of the tables of rotary angles by which all tokens of the request rotate, as far as it has come. */
static int rope_part_of(const struct tt_generation_engine *engine, const struct request *request)
{
    return tt_rank_rope_part(engine->rank.rank, (int64_t)request->ids.count);
}

/* How many of the `common` tokens need not be computed for the request. Where it wants log p of its prompt, the slot
 * must know those up to the token behind them, since their logits are gone. */
static int64_t usable_length(const struct request *request, const struct slot *slot, int64_t common,
                             bool states)
{
    if (!request->wants_prompt) return common;
    if (states || common == 0 || slot->known_top < request->prompt_top) return 0;
    int64_t known = (int64_t)slot->known.count;
    return known < common - 1 ? known : common - 1;
}

/* The slot of a request, and the cached tokens that it continues from. */
struct place {
    int64_t slot;   /* free; -1: none */
    int64_t source; /* slot that holds its first `common` tokens */
    int64_t common;
    bool waits; /* another request is about to compute more of them */
};

/* The most of the first `length` tokens behind which the request has still to save a state; 0: none. */
static int64_t next_cut(const struct request *request, int64_t length, bool none)
{
    int64_t cut = 0;
    for (int c = 0; c < 2 && !none && request != NULL; c++)
        if (request->cuts[c] <= length && request->cuts[c] > (int64_t)request->done) cut = request->cuts[c];
    return cut;
}

static struct place find_place(const struct tt_generation_engine *engine, const struct request *request)
{
    struct place place = {.slot = -1, .source = -1};
    int64_t coming = 0, oldest = -1;
    int part = rope_part_of(engine, request);
    bool states = tt_kv_cache_has_states(engine->rank.cache);
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        const struct slot *slot = &engine->slots[s];
        if (slot->request == NULL && (oldest < 0 || slot->last_used < engine->slots[oldest].last_used))
            oldest = s;
        if (slot->adapter != request->adapter || slot->rope_part != part) continue;
        int64_t common = common_length(request, slot->ids, held(engine, s));
        common = tt_kv_cache_usable(engine->rank.cache, s, common);
        common = usable_length(request, slot, common, states);
        if (common > place.common || (common == place.common && slot->request == NULL)) {
            place.common = common;
            place.source = s;
        }
        const struct request *other = slot->request;
        bool gives = other != NULL && (!request->wants_prompt ||
                                       (other->wants_prompt && other->prompt_top >= request->prompt_top));
        int64_t later = gives ? common_length(request, other->ids.data, (int64_t)other->prompt_count) : 0;
        if (states) later = next_cut(other, later, request->wants_prompt);
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

/* Gives the slot memory for log p of the whole prompt. */
static void widen(struct slot *slot, struct request *request)
{
    struct tt_logprob_list less = slot->known;
    if (less.capacity >= request->prompt_count) return;
    if (less.count > 0) memcpy(request->spare.data, less.data, less.count * sizeof *less.data);
    request->spare.count = less.count;
    slot->known = request->spare;
    request->spare = less;
}

/* Hands the log p of the tokens that are not computed to the request and to its slot. */
static tt_status inherit(struct tt_generation_engine *engine, struct request *request,
                         const struct place *place)
{
    struct slot *slot = &engine->slots[place->slot];
    size_t common = (size_t)place->common;
    if (!request->wants_prompt) {
        tt_generation_unlearn(slot, common > 0 && place->slot == place->source ? common - 1 : 0);
        return TT_OK;
    }
    const struct slot *source = common > 0 ? &engine->slots[place->source] : NULL;
    slot->known_top =
        source != NULL && source->known_top < request->prompt_top ? source->known_top : request->prompt_top;
    if (source != slot) slot->known.count = 0;
    tt_generation_unlearn(slot, common);
    widen(slot, request);
    for (size_t i = 0; i < common; i++) {
        struct tt_token_logprobs one = source->known.data[i];
        if (source != slot) TT_TRY(tt_logprob_list_append(&slot->known, &one));
        if (one.count > request->prompt_top) one.count = request->prompt_top;
        TT_TRY(tt_logprob_list_append(&request->prompt_logprobs, &one));
    }
    return TT_OK;
}

/* Chooses where the states of the request's prompt are saved: where another prompt goes on otherwise, which may wait or
 * be in a slot, and behind its last whole block. */
static void choose_cuts(const struct tt_generation_engine *engine, struct request *request, int64_t reused)
{
    int64_t branch = 0, last = ((int64_t)request->prompt_count - 1) / BLOCK * BLOCK;
    if (!tt_kv_cache_has_states(engine->rank.cache) || request->wants_prompt) return;
    for (size_t i = 0; i < engine->count; i++) {
        const struct request *other = engine->requests[i];
        if (other == request || other->adapter != request->adapter) continue;
        if (tt_generation_is_finished(other->state)) continue;
        branch = tt_larger(branch, common_length(request, other->ids.data, (int64_t)other->prompt_count));
    }
    for (int64_t s = 0; s < engine->limits.slots; s++)
        if (engine->slots[s].adapter == request->adapter)
            branch = tt_larger(branch, common_length(request, engine->slots[s].ids, held(engine, s)));
    branch = branch / BLOCK * BLOCK;
    request->cuts[0] = branch > reused && branch < last ? branch : 0;
    request->cuts[1] = last > reused ? last : 0;
}

static tt_status start(struct tt_generation_engine *engine, struct request *request,
                       const struct place *place)
{
    struct slot *slot = &engine->slots[place->slot];
    struct tt_kv_cache *cache = engine->rank.cache;
    choose_cuts(engine, request, place->common);
    if (place->common == 0) tt_kv_cache_truncate(cache, place->slot, 0);
    if (place->common > 0)
        TT_TRY(tt_kv_cache_copy(cache, engine->rank.rank->stream, place->source, place->slot, place->common));
    if (tt_sampling_has_penalty(&request->sampling))
        TT_TRY(tt_generation_rank_see(&engine->rank, place->slot, request->ids.data, request->prompt_count));
    memcpy(slot->ids, request->ids.data, (size_t)place->common * sizeof *slot->ids);
    TT_TRY(inherit(engine, request, place));
    slot->request = request;
    slot->adapter = request->adapter;
    slot->rope_part = rope_part_of(engine, request);
    request->state = TT_GENERATION_RUNNING;
    request->reused = request->done = (size_t)place->common;
    engine->load.waiting--;
    engine->load.running++;
    engine->load.reused += place->common;
    return TT_OK;
}

/* A request whose tokens have come to rotate by another part of the tables is computed again from its beginning: it
 * goes on as a prompt of the same tokens would. */
static void restart_rotated(struct tt_generation_engine *engine)
{
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        struct slot *slot = &engine->slots[s];
        int part = slot->request != NULL ? rope_part_of(engine, slot->request) : slot->rope_part;
        if (part == slot->rope_part) continue;
        slot->rope_part = part;
        tt_kv_cache_truncate(engine->rank.cache, s, 0);
        tt_generation_unlearn(slot, 0);
    }
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

/* Requests that a pass may have: all, those of the base alone, or those of the only adapter. */
enum members { ALL_REQUESTS, BASE_REQUESTS, ADAPTER_REQUESTS };

static bool is_member(const struct slot *slot, enum members members)
{
    if (slot->request == NULL) return false;
    return members == ALL_REQUESTS || (slot->adapter < 0) == (members == BASE_REQUESTS);
}

/* The running slot with the oldest request of this kind whose tokens are not in the pass yet; -1: none. */
static int64_t next_prompt(const struct tt_generation_engine *engine, enum members members, bool with_single)
{
    int64_t next = -1;
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        const struct slot *slot = &engine->slots[s];
        if (!is_member(slot, members) || slot->added > 0) continue;
        if (!with_single && left(engine, s) == 1) continue;
        if (next < 0 || slot->request->id < engine->slots[next].request->id) next = s;
    }
    return next;
}

/* The tokens of the running requests in a pass: the next ones of answers, parts of prompts, or both. */
enum part { NEXT_TOKENS = 1, PROMPTS = 2 };

/* A pass ends where the state is to be saved. */
static void stop_at_cut(struct slot *slot, int64_t first)
{
    for (int c = 1; c >= 0; c--) {
        int64_t cut = slot->request->cuts[c];
        if (cut > first && cut < first + slot->added) slot->added = cut - first;
    }
}

/* Saves the state of a prompt that has come to a cut. */
static tt_status save_state(struct tt_generation_engine *engine, int64_t s)
{
    const struct request *request = engine->slots[s].request;
    int64_t length = held(engine, s);
    if (length != request->cuts[0] && length != request->cuts[1]) return TT_OK;
    return tt_kv_cache_save(engine->rank.cache, engine->rank.rank->stream, s);
}

/* Sets `added` of every slot: one token of each answer, then as much of the prompts as fits. Returns their sum. */
static int64_t choose_tokens(struct tt_generation_engine *engine, enum members members, int parts)
{
    int64_t room = engine->limits.pass_tokens, rows = engine->rows;
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        struct slot *slot = &engine->slots[s];
        bool next = (parts & NEXT_TOKENS) != 0 && is_member(slot, members) && left(engine, s) == 1;
        slot->added = next;
        room -= next;
        rows -= next;
    }
    for (int64_t s; (parts & PROMPTS) != 0 && room > 0 && rows > 0 &&
                    (s = next_prompt(engine, members, parts != PROMPTS)) >= 0;) {
        struct slot *slot = &engine->slots[s];
        int64_t most = slot->request->wants_prompt && rows < room ? rows : room;
        slot->added = left(engine, s) < most ? left(engine, s) : most;
        stop_at_cut(slot, held(engine, s));
        room -= slot->added;
        rows -= slot->request->wants_prompt ? slot->added : 1;
    }
    return engine->limits.pass_tokens - room;
}

/* Lists the changes of logits of a row that chooses new token number `made`. */
static void adjust_row(struct tt_generation_engine *engine, const struct request *request, int64_t row,
                       size_t made)
{
    const struct tt_ids *const ends[] = {&request->stops, &engine->end_ids};
    tt_adjust_list_add(&engine->adjust, &request->adjustment, row, made, ends, request->ignore_end ? 1 : 2);
}

/* Ends a request whose grammar cannot go on: the text is what it is, and others are not concerned. */
static void give_up(struct tt_generation_engine *engine, struct slot *slot)
{
    tt_error_clear();
    tt_generation_finish(engine, slot->request, TT_GENERATION_LENGTH);
    slot->added = 0;
}

static void allow_ends(struct tt_generation_engine *engine, const struct tt_ids *ids)
{
    int64_t vocab = engine->inputs->model_facts.vocab_size;
    for (size_t i = 0; i < ids->count; i++)
        if (ids->data[i] >= 0 && ids->data[i] < vocab)
            engine->mask[ids->data[i] / 32] |= UINT32_C(1) << ids->data[i] % 32;
}

static struct tt_token_rules rules_of(const struct request *request)
{
    return (struct tt_token_rules){request->allowed.data, request->allowed.count, request->banned.data,
                                   request->banned.count};
}

/* The tokens that may come are fewer than all. */
static bool has_mask(const struct request *request)
{
    const struct tt_token_rules rules = rules_of(request);
    return request->matcher != NULL || tt_token_rules_any(&rules);
}

/* Makes the mask of a request. False: its grammar cannot go on, or no token is left. */
static bool make_mask(struct tt_generation_engine *engine, const struct request *request)
{
    int64_t vocab = engine->inputs->model_facts.vocab_size;
    size_t count = (size_t)tt_sample_seen_words(vocab);
    const struct tt_token_rules rules = rules_of(request);
    const uint32_t *words;
    if (request->matcher == NULL) {
        memset(engine->mask, 0xff, count * sizeof *engine->mask);
        if (vocab % 32 != 0) engine->mask[vocab / 32] = (UINT32_C(1) << vocab % 32) - 1;
    } else if (tt_grammar_matcher_mask(request->matcher, &words) != TT_OK) {
        return false;
    } else {
        memcpy(engine->mask, words, count * sizeof *engine->mask);
        if (tt_grammar_matcher_may_end(request->matcher)) {
            allow_ends(engine, &request->stops);
            if (!request->ignore_end) allow_ends(engine, &engine->end_ids);
        }
    }
    return tt_token_rules_apply(&rules, request->ids.data + request->prompt_count,
                                request->ids.count - request->prompt_count, engine->mask, count);
}

/* Sends the masks of the rows that choose one of some tokens; they are those of their slots. */
static tt_status send_masks(struct tt_generation_engine *engine)
{
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        struct slot *slot = &engine->slots[s];
        if (slot->added == 0 || !has_mask(slot->request) || slot->added < left(engine, s)) continue;
        if (make_mask(engine, slot->request))
            TT_TRY(tt_generation_rank_mask(&engine->rank, s, engine->mask));
        else
            give_up(engine, slot);
    }
    return TT_OK;
}

/* Adds the row of token `t` of the slot, the next one of the batch. Rows that choose a token have its rules; the
 * others have log p of a prompt. */
static void add_row(struct tt_generation_engine *engine, struct tt_batch *batch, int64_t s, int64_t t)
{
    const struct pass_arrays *arrays = &engine->arrays;
    const struct request *request = engine->slots[s].request;
    bool chooses = t + 1 == (int64_t)request->ids.count, wanted = !chooses || request->wants_logprobs;
    size_t made = request->ids.count - request->prompt_count;
    const struct tt_sampling_options none = {0};
    arrays->rules[batch->row_count] =
        chooses ? tt_sampling_rule(&request->sampling, tt_rng_uniform(request->rng, made), (int32_t)s)
                : tt_sampling_rule(&none, 0, -1);
    if (chooses && request->adjusts) adjust_row(engine, request, batch->row_count, made);
    if (chooses && has_mask(request)) arrays->rules[batch->row_count].mask = (int32_t)s + 1;
    arrays->wanted[batch->row_count] = wanted;
    engine->rank.wanted_count += wanted;
    arrays->slot_of_row[batch->row_count] = (int)s;
    arrays->row_adapters[batch->row_count] = engine->slots[s].adapter;
    arrays->rows[batch->row_count++] = (int32_t)batch->token_count;
}

/* Whether token `t` of the slot has a row: its logits choose a token, or are log p of the next one of a prompt, of
 * which `known` are there. */
static bool has_row(const struct request *request, int64_t t, size_t known)
{
    if (t + 1 == (int64_t)request->ids.count) return request->max_new_tokens > 0;
    return request->wants_prompt && t + 1 < (int64_t)request->prompt_count && t >= (int64_t)known;
}

/* Lays the chosen tokens out as a batch; those that end a prompt or an answer have logits. */
static struct tt_batch make_batch(struct tt_generation_engine *engine)
{
    const struct pass_arrays *arrays = &engine->arrays;
    engine->rank.wanted = arrays->wanted;
    engine->rank.wanted_count = 0;
    engine->adjust.count = 0;
    struct tt_batch batch = {
        .sequence_count = engine->limits.slots,
        .ids = arrays->ids,
        .positions = arrays->positions,
        .reached = arrays->reached,
        .row_keys = arrays->row_keys,
        .cu_seqlens = arrays->borders,
        .rows = arrays->rows,
        .labels = arrays->labels,
    };
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        struct slot *slot = &engine->slots[s];
        int64_t first = held(engine, s);
        size_t known = slot->request != NULL ? slot->request->prompt_logprobs.count : 0;
        for (int64_t t = first; t < first + slot->added; t++) {
            slot->ids[t] = slot->request->ids.data[t];
            arrays->ids[batch.token_count] = slot->ids[t];
            arrays->adapters[batch.token_count] = slot->adapter;
            arrays->reached[batch.token_count] = (int32_t)slot->request->ids.count;
            if (has_row(slot->request, t, known)) add_row(engine, &batch, s, t);
            arrays->positions[batch.token_count++] = (int32_t)t;
        }
        arrays->borders[s + 1] = (int32_t)batch.token_count;
        if (slot->added > batch.max_length) batch.max_length = slot->added;
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
    if (request->wants_logprobs) {
        tt_token_logprobs_make(logits, engine->inputs->model_facts.vocab_size, token, request->top_logprobs,
                               &logprobs);
        TT_TRY(tt_logprob_list_append(&request->logprobs, &logprobs));
    }
    if (ends || tt_end_ids_contain(&request->stops, token)) {
        request->end_id = token;
        tt_generation_finish(engine, request, TT_GENERATION_ENDED);
        return TT_OK;
    }
    bool fits = true;
    if (request->matcher != NULL && tt_grammar_matcher_advance(request->matcher, token, &fits) != TT_OK) {
        tt_error_clear();
        fits = false;
    }
    if (!fits) { /* logits without a number choose no token of the mask */
        tt_generation_finish(engine, request, TT_GENERATION_LENGTH);
        return TT_OK;
    }
    TT_TRY(tt_ids_append(&request->ids, token));
    if (request->adjusts) tt_adjustment_count(&request->adjustment, token);
    if (request->matcher != NULL && tt_grammar_matcher_is_over(request->matcher))
        tt_generation_finish(engine, request, TT_GENERATION_ENDED);
    else if (made + 1 == (size_t)request->max_new_tokens)
        tt_generation_finish(engine, request, TT_GENERATION_LENGTH);
    return TT_OK;
}

/* Log p of the token of a prompt behind the one at `position`. */
static tt_status add_prompt_logprobs(struct tt_generation_engine *engine, struct slot *slot, int32_t position,
                                     const float *logits)
{
    struct request *request = slot->request;
    int64_t vocab = engine->inputs->model_facts.vocab_size;
    struct tt_token_logprobs logprobs;
    int32_t token = request->ids.data[position + 1];
    tt_token_logprobs_make(logits, vocab, token, request->prompt_top, &logprobs);
    logprobs.rank = tt_token_rank(logits, vocab, token);
    TT_TRY(tt_logprob_list_append(&request->prompt_logprobs, &logprobs));
    if (slot->known.count != (size_t)position) return TT_OK;
    return tt_logprob_list_append(&slot->known, &logprobs);
}

/* Ends the requests that want no new tokens once their prompts are there. */
static void finish_prompts(struct tt_generation_engine *engine)
{
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        struct request *request = engine->slots[s].request;
        if (request != NULL && request->max_new_tokens == 0 && left(engine, s) == 0)
            tt_generation_finish(engine, request, TT_GENERATION_LENGTH);
    }
}

/* Takes the chosen tokens and log p of prompts from the rows of a pass. */
static tt_status take_rows(struct tt_generation_engine *engine, const struct tt_batch *batch,
                           const int32_t *tokens)
{
    const struct pass_arrays *arrays = &engine->arrays;
    const float *logits = engine->rank.logits;
    for (int64_t n = 0; n < batch->row_count; n++) {
        struct slot *slot = &engine->slots[arrays->slot_of_row[n]];
        int32_t position = arrays->positions[arrays->rows[n]];
        if (position + 1 < (int32_t)slot->request->prompt_count)
            TT_TRY(add_prompt_logprobs(engine, slot, position, logits));
        else
            TT_TRY(add_token(engine, slot->request, tokens[n], logits));
        if (arrays->wanted[n]) logits += engine->inputs->model_facts.vocab_size;
    }
    return TT_OK;
}

/* The adapters of the batch's rows. */
static struct tt_generation_adapters find_adapters(const struct tt_generation_engine *engine,
                                                   const struct tt_batch *batch)
{
    const struct pass_arrays *arrays = &engine->arrays;
    struct tt_generation_adapters found = {.of_tokens = arrays->adapters, .of_rows = arrays->row_adapters};
    int32_t lowest = INT32_MAX, highest = -1;
    bool any_without = false;
    for (int64_t t = 0; t < batch->token_count; t++) {
        int32_t adapter = arrays->adapters[t];
        any_without |= adapter < 0;
        if (adapter >= 0 && adapter < lowest) lowest = adapter;
        if (adapter > highest) highest = adapter;
    }
    found.off = highest < 0;
    if (found.off) return found;
    found.first = lowest;
    found.count = highest - lowest + 1;
    found.mixed = any_without || found.count > 1;
    return found;
}

static tt_status run_pass(struct tt_generation_engine *engine, enum members members, int parts)
{
    tt_status status = TT_OK;
    const int32_t *tokens = NULL;
    if (choose_tokens(engine, members, parts) == 0 && !engine->shared) return TT_OK;
    TT_TRY(send_masks(engine));
    struct tt_batch batch = make_batch(engine);
    const struct tt_generation_adapters adapters = find_adapters(engine, &batch);
    TT_GO(tt_generation_rank_pass(&engine->rank, &batch, engine->arrays.rules, &adapters, &tokens));
    engine->load.passes++;
    engine->load.tokens += batch.token_count;
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        struct slot *slot = &engine->slots[s];
        if (slot->added == 0) continue;
        slot->last_used = engine->load.passes;
        if ((size_t)held(engine, s) > slot->request->done) slot->request->done = (size_t)held(engine, s);
        TT_GO(save_state(engine, s));
    }
    TT_GO(take_rows(engine, &batch, tokens));
    finish_prompts(engine);
out:
    tt_generation_rank_end(&engine->rank);
    return status;
}

static bool has_requests(const struct tt_generation_engine *engine, enum members members)
{
    for (int64_t s = 0; s < engine->limits.slots; s++)
        if (is_member(&engine->slots[s], members)) return true;
    return false;
}

/* Whether one pass has rows with adapters and rows without one. DoRA scales all rows, and trained rows of tokens are in
 * the place of the table's own for all (nn/token_rows.h). */
static bool runs_together(const struct tt_generation_engine *engine)
{
    const struct tt_lora_config *lora = &engine->inputs->model_options.lora;
    return !lora->enabled || (!lora->use_dora && lora->trainable_token_indices == NULL);
}

/* A pass that one rank needs is run by all: those without requests take part in its transfers. */
tt_status tt_generation_step(struct tt_generation_engine *engine, bool *busy)
{
    restart_rotated(engine);
    TT_TRY(admit(engine));
    bool ran = false, apart = !engine->shared && tt_generation_rank_prefers_single(&engine->rank);
    bool together = runs_together(engine);
    double needed[ADAPTER_REQUESTS + 1] = {0};
    for (enum members m = ALL_REQUESTS; m <= ADAPTER_REQUESTS; m++)
        needed[m] = together == (m == ALL_REQUESTS) && has_requests(engine, m);
    if (engine->shared) TT_TRY(tt_comm_host_sum(engine->rank.rank->world, needed, ADAPTER_REQUESTS + 1));
    for (enum members m = ALL_REQUESTS; m <= ADAPTER_REQUESTS; m++) {
        if (needed[m] == 0) continue;
        TT_TRY(run_pass(engine, m, apart ? NEXT_TOKENS : NEXT_TOKENS | PROMPTS));
        if (apart) TT_TRY(run_pass(engine, m, PROMPTS));
        ran = true;
    }
    *busy = engine->load.waiting > 0 || engine->load.running > 0 || (engine->shared && ran);
    return TT_OK;
}
