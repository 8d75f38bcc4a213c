#include "infer/generation_team.h"

#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/str.h"
#include "comm/host_values.h"

/* Bytes of requests that one step sends to all ranks: further ones wait for the next step. */
enum { ROUND_BYTES_MAX = 1 << 20 };

/* The state at the begin of a step, from the leader to all ranks. */
struct round {
    int64_t bytes;  /* of the messages that follow, or of the folder's name with its end */
    int64_t ending; /* enum ending */
    int64_t place;  /* with LOADS: of the adapter */
};
enum ending { GOES_ON, ENDED, WAS_CANCELLED, LOADS };

/* A message to one rank: a new request with its ids, stop ids, rules of tokens, biases and grammar behind it, or the
 * end of one. */
struct message {
    int64_t id, rank;
    bool cancels;
    struct tt_generation_request request; /* without its pointers */
};

/* The progress of a request in a step. */
struct event {
    int64_t id;                             /* 0: none */
    struct tt_generation_progress progress; /* without its pointers */
    int32_t token;                          /* the new one; -1: none */
    bool has_logprobs;                      /* of the new one, or of the id that ended the answer */
    int64_t prompt_logprobs;                /* further ones of the prompt */
};

/* The leader's view of a request. */
struct entry {
    int64_t id;
    int64_t rank;          /* that has it; -1: none yet */
    struct tt_str message; /* until it is sent */
    struct tt_ids tokens;
    struct tt_logprob_list logprobs, prompt_logprobs;
    struct tt_generation_progress progress; /* but for the lists */
};

/* A request that the engine of this rank runs. */
struct running {
    int64_t id, engine_id;
    /* what the leader knows: tokens, and log p */
    size_t reported, reported_logprobs, reported_prompt;
};

struct tt_generation_team {
    struct tt_generation_engine *engine;
    struct tt_comm *world;
    int ranks;
    int64_t slots; /* of each rank */
    int64_t rows;  /* of a pass of a rank */
    /* with several ranks */
    struct running *running; /* [slots] */
    struct event *own;       /* [slots] */
    int64_t running_count;
    struct event *all; /* [ranks * slots] */
    /* of the events, gathered where one has them */
    struct tt_token_logprobs *own_logprobs, *all_logprobs;
    /* [rows], [ranks * rows]: in the order of the events */
    struct tt_token_logprobs *own_prompt, *all_prompt;
    struct round *rounds; /* [ranks] */
    /* the leader's */
    int64_t *load;         /* [ranks], requests that a rank has */
    struct entry *entries; /* ascending ids */
    size_t count, capacity;
    int64_t last_id;
    struct tt_str messages; /* of the next step */
};

tt_status tt_generation_team_create(struct tt_generation_engine *engine, struct tt_generation_team **out)
{
    struct tt_generation_team *team = tt_calloc(1, sizeof *team);
    if (team == NULL) {
        tt_generation_destroy(engine);
        return TT_ERR_MEMORY;
    }
    team->engine = engine;
    team->world = tt_generation_world(engine);
    team->ranks = tt_comm_world_size(team->world);
    team->slots = tt_generation_limits_of(engine)->slots;
    team->rows = tt_generation_rows(tt_generation_limits_of(engine));
    *out = team;
    if (team->ranks == 1) return TT_OK;
    team->running = tt_calloc((size_t)team->slots, sizeof *team->running);
    team->own = tt_calloc((size_t)team->slots, sizeof *team->own);
    team->all = tt_calloc((size_t)(team->ranks * team->slots), sizeof *team->all);
    team->own_logprobs = tt_calloc((size_t)team->slots, sizeof *team->own_logprobs);
    team->all_logprobs = tt_calloc((size_t)(team->ranks * team->slots), sizeof *team->all_logprobs);
    team->own_prompt = tt_calloc((size_t)team->rows, sizeof *team->own_prompt);
    team->all_prompt = tt_calloc((size_t)(team->ranks * team->rows), sizeof *team->all_prompt);
    team->load = tt_calloc((size_t)team->ranks, sizeof *team->load);
    team->rounds = tt_calloc((size_t)team->ranks, sizeof *team->rounds);
    if (team->running != NULL && team->own != NULL && team->all != NULL && team->load != NULL &&
        team->rounds != NULL && team->own_logprobs != NULL && team->all_logprobs != NULL &&
        team->own_prompt != NULL && team->all_prompt != NULL)
        return TT_OK;
    tt_generation_team_destroy(team);
    *out = NULL;
    return TT_ERR_MEMORY;
}

tt_status tt_generation_team_attach(struct tt_rank *rank, const struct tt_inputs *inputs,
                                    const struct tt_generation_limits *limits,
                                    struct tt_generation_team **out)
{
    struct tt_generation_engine *engine = NULL;
    TT_TRY(tt_generation_attach(rank, inputs, limits, &engine));
    return tt_generation_team_create(engine, out);
}

static void entry_deinit(struct entry *entry)
{
    tt_str_deinit(&entry->message);
    tt_ids_deinit(&entry->tokens);
    tt_logprob_list_deinit(&entry->logprobs);
    tt_logprob_list_deinit(&entry->prompt_logprobs);
}

void tt_generation_team_destroy(struct tt_generation_team *team)
{
    if (team == NULL) return;
    for (size_t i = 0; i < team->count; i++) entry_deinit(&team->entries[i]);
    tt_free(team->entries);
    tt_str_deinit(&team->messages);
    tt_free(team->running);
    tt_free(team->own);
    tt_free(team->all);
    tt_free(team->own_logprobs);
    tt_free(team->all_logprobs);
    tt_free(team->own_prompt);
    tt_free(team->all_prompt);
    tt_free(team->load);
    tt_free(team->rounds);
    tt_generation_destroy(team->engine);
    tt_free(team);
}

const struct tt_generation_engine *tt_generation_team_engine(const struct tt_generation_team *team)
{
    return team->engine;
}

int64_t tt_generation_team_slots(const struct tt_generation_team *team)
{
    return team->slots * team->ranks;
}

static bool leads(const struct tt_generation_team *team)
{
    return tt_comm_rank(team->world) == 0;
}

/* ---- The leader's list ---- */

static struct entry *find(const struct tt_generation_team *team, int64_t id)
{
    size_t low = 0, high = team->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (team->entries[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < team->count && team->entries[low].id == id ? &team->entries[low] : NULL;
}

/* Bytes of the grammar in a message: the next one begins with aligned ids. */
static size_t grammar_room(const struct tt_generation_request *request)
{
    return tt_align_up(request->grammar.bytes, sizeof(int32_t));
}

static tt_status append_ids(struct tt_str *out, const int32_t *ids, size_t count)
{
    return count > 0 ? tt_str_append(out, (const char *)ids, count * sizeof *ids) : TT_OK;
}

static tt_status write_message(int64_t id, const struct tt_generation_request *request, struct tt_str *out)
{
    struct message message = {.id = id, .request = *request};
    message.request.prompt = message.request.stop_ids = NULL;
    message.request.adjust.bias = NULL;
    message.request.rules.allowed = message.request.rules.banned = NULL;
    message.request.grammar.data = NULL;
    TT_TRY(tt_str_append(out, (const char *)&message, sizeof message));
    const struct tt_adjust_options *adjust = &request->adjust;
    TT_TRY(append_ids(out, request->prompt, request->prompt_count));
    TT_TRY(append_ids(out, request->stop_ids, request->stop_count));
    TT_TRY(append_ids(out, request->rules.allowed, request->rules.allowed_count));
    TT_TRY(append_ids(out, request->rules.banned, request->rules.banned_count));
    if (adjust->bias_count > 0)
        TT_TRY(tt_str_append(out, (const char *)adjust->bias, adjust->bias_count * sizeof *adjust->bias));
    if (request->grammar.bytes == 0) return TT_OK;
    TT_TRY(tt_str_append(out, request->grammar.data, request->grammar.bytes));
    return tt_str_append_fill(out, 0, grammar_room(request) - request->grammar.bytes);
}

tt_status tt_generation_team_submit(struct tt_generation_team *team,
                                    const struct tt_generation_request *request, int64_t *id)
{
    if (team->ranks == 1) return tt_generation_submit(team->engine, request, id);
    int64_t waiting = tt_generation_limits_of(team->engine)->waiting;
    size_t most = (size_t)(waiting + team->slots * team->ranks);
    TT_TRY(tt_generation_check(team->engine, request));
    if (waiting > 0 && team->count >= most)
        return tt_fail(TT_ERR_USAGE, "%zu requests wait or run already, which is the limit", team->count);
    TT_TRY(tt_grow(&team->entries, team->count, &team->capacity));
    struct entry entry = {
        .id = team->last_id + 1, .rank = -1, .progress = {.state = TT_GENERATION_WAITING, .end_id = -1}};
    tt_status status = write_message(entry.id, request, &entry.message);
    if (status == TT_OK) status = tt_ids_reserve(&entry.tokens, (size_t)request->max_new_tokens);
    if (status == TT_OK && request->wants_logprobs)
        status = tt_logprob_list_reserve(&entry.logprobs, (size_t)request->max_new_tokens);
    if (status == TT_OK && request->wants_prompt_logprobs)
        status = tt_logprob_list_reserve(&entry.prompt_logprobs, request->prompt_count);
    if (status != TT_OK) {
        entry_deinit(&entry);
        return status;
    }
    *id = team->last_id = entry.id;
    team->entries[team->count++] = entry;
    return TT_OK;
}

tt_status tt_generation_team_poll(const struct tt_generation_team *team, int64_t id,
                                  struct tt_generation_progress *progress)
{
    if (team->ranks == 1) return tt_generation_poll(team->engine, id, progress);
    const struct entry *entry = find(team, id);
    if (entry == NULL) return tt_fail(TT_ERR_USAGE, "there is no request %lld", (long long)id);
    *progress = entry->progress;
    progress->tokens = entry->tokens.data;
    progress->logprobs = entry->logprobs.data;
    progress->logprob_count = entry->logprobs.count;
    progress->prompt_logprobs = entry->prompt_logprobs.data;
    progress->prompt_logprob_count = entry->prompt_logprobs.count;
    progress->count = entry->tokens.count;
    return TT_OK;
}

/* Where memory lacks for the message, the rank computes an answer for nobody, and its slot stays taken. */
void tt_generation_team_cancel(struct tt_generation_team *team, int64_t id)
{
    if (team->ranks == 1) {
        tt_generation_cancel(team->engine, id);
        return;
    }
    struct entry *entry = find(team, id);
    if (entry == NULL || tt_generation_is_finished(entry->progress.state)) return;
    entry->progress.state = TT_GENERATION_CANCELLED;
    const struct message message = {.id = id, .rank = entry->rank, .cancels = true};
    if (entry->rank < 0) return;
    if (tt_str_append(&team->messages, (const char *)&message, sizeof message) == TT_OK)
        team->load[entry->rank]--;
    else
        tt_error_clear();
}

void tt_generation_team_release(struct tt_generation_team *team, int64_t id)
{
    if (team->ranks == 1) {
        tt_generation_release(team->engine, id);
        return;
    }
    struct entry *entry = find(team, id);
    if (entry == NULL) return;
    tt_generation_team_cancel(team, id);
    entry_deinit(entry);
    team->count--;
    memmove(entry, entry + 1, (size_t)(team->entries + team->count - entry) * sizeof *entry);
}

/* ---- A step ---- */

/* The rank with the fewest requests; -1: none has a free slot. */
static int64_t choose_rank(const struct tt_generation_team *team)
{
    int64_t chosen = 0;
    for (int64_t r = 1; r < team->ranks; r++)
        if (team->load[r] < team->load[chosen]) chosen = r;
    return team->load[chosen] < team->slots ? chosen : -1;
}

/* Gives waiting requests to ranks, the oldest first. */
static tt_status hand_out(struct tt_generation_team *team)
{
    for (size_t i = 0; i < team->count && team->messages.bytes < ROUND_BYTES_MAX; i++) {
        struct entry *entry = &team->entries[i];
        if (entry->rank >= 0 || entry->progress.state != TT_GENERATION_WAITING) continue;
        int64_t rank = choose_rank(team);
        if (rank < 0) return TT_OK;
        memcpy(entry->message.data + offsetof(struct message, rank), &rank, sizeof rank);
        TT_TRY(tt_str_append(&team->messages, entry->message.data, entry->message.bytes));
        tt_str_deinit(&entry->message);
        entry->message = (struct tt_str){0};
        entry->rank = rank;
        team->load[rank]++;
    }
    return TT_OK;
}

static tt_status begin(struct tt_generation_team *team, const struct message *message, const int32_t *ids)
{
    struct tt_generation_request request = message->request;
    struct running *running = &team->running[team->running_count];
    request.prompt = ids;
    request.stop_ids = ids + request.prompt_count;
    request.rules.allowed = request.stop_ids + request.stop_count;
    request.rules.banned = request.rules.allowed + request.rules.allowed_count;
    request.adjust.bias =
        (const struct tt_logit_bias *)(const void *)(request.rules.banned + request.rules.banned_count);
    if (request.grammar.bytes > 0)
        request.grammar.data = (const char *)(request.adjust.bias + request.adjust.bias_count);
    *running = (struct running){.id = message->id};
    TT_TRY(tt_generation_submit(team->engine, &request, &running->engine_id));
    team->running_count++;
    return TT_OK;
}

static void forget(struct tt_generation_team *team, int64_t index)
{
    tt_generation_release(team->engine, team->running[index].engine_id);
    team->running_count--;
    memmove(team->running + index, team->running + index + 1,
            (size_t)(team->running_count - index) * sizeof *team->running);
}

/* Obeys the messages to this rank. */
static tt_status obey(struct tt_generation_team *team, const struct tt_str *messages)
{
    struct message message;
    for (size_t at = 0; at < messages->bytes;) {
        memcpy(&message, messages->data + at, sizeof message);
        at += sizeof message;
        const struct tt_generation_request *request = &message.request;
        size_t rules = request->rules.allowed_count + request->rules.banned_count;
        size_t ids = message.cancels ? 0 : request->prompt_count + request->stop_count + rules;
        size_t biases = message.cancels ? 0 : request->adjust.bias_count;
        bool mine = message.rank == tt_comm_rank(team->world);
        if (mine && !message.cancels)
            TT_TRY(begin(team, &message, (const int32_t *)(const void *)(messages->data + at)));
        for (int64_t i = 0; mine && message.cancels && i < team->running_count; i++)
            if (team->running[i].id == message.id) forget(team, i--);
        at += ids * sizeof(int32_t) + biases * sizeof *request->adjust.bias;
        if (!message.cancels) at += grammar_room(request);
    }
    return TT_OK;
}

/* Tells what is new of a request: some of the prompt's log p, at most `room`, then a token with its log p, or the
 * end. */
static void report(struct tt_generation_team *team, struct running *running, int64_t index, int64_t room)
{
    struct event *event = &team->own[index];
    struct tt_generation_progress *progress = &event->progress;
    size_t more = progress->prompt_logprob_count - running->reported_prompt;
    event->id = running->id;
    event->token = -1;
    event->prompt_logprobs = more < (size_t)room ? (int64_t)more : room;
    if (event->prompt_logprobs > 0)
        memcpy(team->own_prompt + team->rows - room, progress->prompt_logprobs + running->reported_prompt,
               (size_t)event->prompt_logprobs * sizeof *team->own_prompt);
    running->reported_prompt += (size_t)event->prompt_logprobs;
    bool whole = running->reported_prompt == progress->prompt_logprob_count;
    event->has_logprobs = whole && progress->logprob_count > running->reported_logprobs;
    if (event->has_logprobs) team->own_logprobs[index] = progress->logprobs[running->reported_logprobs++];
    if (whole && progress->count > running->reported) event->token = progress->tokens[running->reported++];
    whole = whole && running->reported == progress->count &&
            running->reported_logprobs == progress->logprob_count;
    if (!whole && tt_generation_is_finished(progress->state)) progress->state = TT_GENERATION_RUNNING;
    progress->tokens = NULL;
    progress->logprobs = progress->prompt_logprobs = NULL;
}

/* Lists the progress of this rank's requests in the step. */
static tt_status list_events(struct tt_generation_team *team)
{
    memset(team->own, 0, (size_t)team->slots * sizeof *team->own);
    int64_t count = 0, room = team->rows;
    for (int64_t i = 0; i < team->running_count; i++) {
        struct event *event = &team->own[count];
        TT_TRY(tt_generation_poll(team->engine, team->running[i].engine_id, &event->progress));
        report(team, &team->running[i], count++, room);
        room -= event->prompt_logprobs;
        if (tt_generation_is_finished(event->progress.state)) forget(team, i--);
    }
    return TT_OK;
}

static tt_status take_events(struct tt_generation_team *team)
{
    int64_t at = 0;
    for (int64_t i = 0; i < team->ranks * team->slots; i++) {
        const struct event *event = &team->all[i];
        struct entry *entry = event->id != 0 ? find(team, event->id) : NULL;
        if (i % team->slots == 0) at = i / team->slots * team->rows;
        const struct tt_token_logprobs *prompt = team->all_prompt + at;
        at += event->prompt_logprobs;
        if (entry == NULL || tt_generation_is_finished(entry->progress.state)) continue;
        entry->progress = event->progress;
        if (event->token >= 0) TT_TRY(tt_ids_append(&entry->tokens, event->token));
        if (event->has_logprobs) TT_TRY(tt_logprob_list_append(&entry->logprobs, &team->all_logprobs[i]));
        for (int64_t k = 0; k < event->prompt_logprobs; k++)
            TT_TRY(tt_logprob_list_append(&entry->prompt_logprobs, &prompt[k]));
        if (tt_generation_is_finished(event->progress.state)) team->load[entry->rank]--;
    }
    return TT_OK;
}

/* Shares the leader's bytes, which replace those of other ranks. */
static tt_status share(struct tt_generation_team *team, struct tt_str *bytes, int64_t count)
{
    tt_status status = TT_OK;
    if (!leads(team)) {
        tt_str_clear(bytes);
        status = tt_str_append_fill(bytes, 0, (size_t)count);
    }
    TT_TRY(tt_comm_agree(team->world, status));
    return tt_comm_host_share(team->world, bytes->data, (size_t)count);
}

/* Every rank's part of loading an adapter. What the leader's client did wrong is no error of the others. */
static tt_status run_load(struct tt_generation_team *team, struct tt_str *folder, const struct round *round,
                          tt_status *verdict)
{
    TT_TRY(share(team, folder, round->bytes));
    TT_TRY(tt_generation_load_adapter(team->engine, tt_str_text(folder), (int)round->place, verdict));
    if (!leads(team)) tt_error_clear();
    return TT_OK;
}

/* Every rank's part of a step; `messages` are the leader's, and replaced by it on the others. */
static tt_status run_round(struct tt_generation_team *team, struct tt_str *messages, struct round *round)
{
    bool busy;
    TT_TRY(tt_comm_host_all_gather(team->world, round, team->rounds, sizeof *round));
    *round = team->rounds[0];
    if (round->ending == LOADS) {
        tt_status verdict;
        return run_load(team, messages, round, &verdict);
    }
    if (round->ending != GOES_ON) return TT_OK;
    if (round->bytes > 0) {
        TT_TRY(share(team, messages, round->bytes));
        TT_TRY(obey(team, messages));
    }
    TT_TRY(tt_generation_step(team->engine, &busy));
    TT_TRY(list_events(team));
    TT_TRY(
        tt_comm_host_all_gather(team->world, team->own, team->all, (size_t)team->slots * sizeof *team->own));
    bool any = false, of_prompts = false;
    for (int64_t i = 0; i < team->ranks * team->slots; i++) {
        any = any || team->all[i].has_logprobs;
        of_prompts = of_prompts || team->all[i].prompt_logprobs > 0;
    }
    if (any)
        TT_TRY(tt_comm_host_all_gather(team->world, team->own_logprobs, team->all_logprobs,
                                       (size_t)team->slots * sizeof *team->own_logprobs));
    if (!of_prompts) return TT_OK;
    return tt_comm_host_all_gather(team->world, team->own_prompt, team->all_prompt,
                                   (size_t)team->rows * sizeof *team->own_prompt);
}

static bool is_busy(const struct tt_generation_team *team)
{
    for (size_t i = 0; i < team->count; i++)
        if (!tt_generation_is_finished(team->entries[i].progress.state)) return true;
    return false;
}

tt_status tt_generation_team_step(struct tt_generation_team *team, bool *busy)
{
    if (team->ranks == 1) return tt_generation_step(team->engine, busy);
    TT_TRY(hand_out(team));
    struct round round = {.bytes = (int64_t)team->messages.bytes};
    TT_TRY(run_round(team, &team->messages, &round));
    tt_str_clear(&team->messages);
    TT_TRY(take_events(team));
    *busy = is_busy(team);
    return TT_OK;
}

tt_status tt_generation_team_load_adapter(struct tt_generation_team *team, const char *folder, int place,
                                          tt_status *verdict)
{
    struct tt_str text = {0};
    struct round round = {.bytes = (int64_t)strlen(folder) + 1, .ending = LOADS, .place = place};
    tt_status status = TT_OK;
    if (team->ranks == 1) return tt_generation_load_adapter(team->engine, folder, place, verdict);
    TT_GO(tt_str_append(&text, folder, (size_t)round.bytes));
    TT_GO(tt_comm_host_all_gather(team->world, &round, team->rounds, sizeof round));
    status = run_load(team, &text, &round, verdict);
out:
    tt_str_deinit(&text);
    return status;
}

static tt_status follow(struct tt_generation_team *team)
{
    tt_status status = TT_OK;
    struct tt_str messages = {0};
    struct round round = {0};
    while (round.ending == GOES_ON || round.ending == LOADS) {
        round = (struct round){0};
        TT_GO(run_round(team, &messages, &round));
    }
    if (round.ending == WAS_CANCELLED) status = tt_fail(TT_ERR_CANCELLED, "stopped on request");
out:
    tt_str_deinit(&messages);
    return status;
}

tt_status tt_generation_team_run(struct tt_generation_team *team, tt_generation_lead *lead, void *context)
{
    tt_generation_forget(team->engine);
    if (!leads(team)) return follow(team);
    tt_status status = lead(context, team);
    if (team->ranks == 1 || (status != TT_OK && status != TT_ERR_CANCELLED)) return status;
    struct round round = {.ending = status == TT_OK ? ENDED : WAS_CANCELLED};
    tt_str_clear(&team->messages);
    TT_TRY(run_round(team, &team->messages, &round));
    return status;
}
