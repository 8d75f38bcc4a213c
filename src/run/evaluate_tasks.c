#include "run/evaluate_tasks.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "run/task_items.h"
#include "run/task_scores.h"

/* Requests that run at the same time, at least where there are as many; rows of a pass with log p of prompts. */
enum { SLOTS_LEAST = 16, ROWS = 256 };

/* A prompt that the engine has. */
struct asked {
    int64_t id; /* 0: none */
    size_t item, prompt, tokens;
    struct tt_tokenizer_stream stream;
    struct tt_str text;
};

struct evaluation {
    const struct tt_tasks_config *config;
    const struct tt_cancel *cancel;
    const struct tt_inputs *inputs;
    struct tt_task_items items;
    struct tt_item_score *scores; /* [items] */
    int64_t length;
    struct asked *asked; /* [asked_count] */
    size_t asked_count;
    struct tt_json_value *list;
};

static tt_status prepare(void *context, const struct tt_inputs *inputs, int ranks,
                         struct tt_generation_limits *limits)
{
    struct evaluation *e = context;
    TT_TRY(tt_task_items_read(inputs, e->config->path, &e->items));
    int64_t positions = inputs->model_facts.max_position_embeddings, longest = (int64_t)e->items.longest;
    e->length = longest < 2 ? 2 : longest < positions ? longest : positions;
    *limits = (struct tt_generation_limits){.slots = ((int64_t)e->items.prompts + ranks - 1) / ranks,
                                            .length = e->length,
                                            .rows = ROWS,
                                            .slots_least = SLOTS_LEAST};
    return TT_OK;
}

/* ---- One prompt ---- */

/* A prompt that is too long loses its beginning. */
static size_t lost_of(const struct evaluation *e, const struct tt_task_item *item,
                      const struct tt_item_prompt *prompt)
{
    int64_t most = e->length - item->max_tokens;
    if (most < 1) most = 1;
    return prompt->ids.count > (size_t)most ? prompt->ids.count - (size_t)most : 0;
}

static tt_status ask(struct evaluation *e, struct tt_generation_team *team, size_t item_index, size_t index,
                     struct asked *asked)
{
    const struct tt_task_item *item = &e->items.data[item_index];
    const struct tt_item_prompt *prompt = &item->prompts[index];
    size_t lost = lost_of(e, item, prompt);
    bool likelihood = item->kind != TT_ITEM_TEXT;
    int64_t room = e->length - (int64_t)(prompt->ids.count - lost);
    const struct tt_generation_request request = {
        .prompt = prompt->ids.data + lost,
        .prompt_count = prompt->ids.count - lost,
        .max_new_tokens = item->max_tokens < room ? item->max_tokens : room,
        .wants_prompt_logprobs = likelihood,
        .prompt_top_logprobs = likelihood ? 1 : 0,
    };
    if (likelihood && lost + 1 > prompt->context)
        return tt_fail(TT_ERR_DATA, "line %zu: the end alone is longer than the model's %lld positions",
                       item->line, (long long)e->length);
    *asked = (struct asked){.item = item_index, .prompt = index, .stream = {.skip_special = true}};
    return tt_generation_team_submit(team, &request, &asked->id);
}

/* The likelihood of what stands behind the context, and whether each of its tokens is the likeliest. */
static tt_status score_likelihood(struct evaluation *e, const struct asked *asked,
                                  const struct tt_generation_progress *progress)
{
    const struct tt_task_item *item = &e->items.data[asked->item];
    const struct tt_item_prompt *prompt = &item->prompts[asked->prompt];
    size_t lost = lost_of(e, item, prompt);
    double sum = 0;
    bool greedy = true;
    for (size_t t = prompt->context - lost; t < prompt->ids.count - lost; t++) {
        const struct tt_token_logprobs *one = &progress->prompt_logprobs[t - 1];
        sum += (double)one->logprob;
        greedy = greedy && one->ids[0] == prompt->ids.data[lost + t];
    }
    return tt_item_score_choice(&e->scores[asked->item], item, asked->prompt, sum, greedy);
}

/* Cuts the text at the first of the texts that end it. */
static bool cut_text(const struct tt_task_item *item, struct tt_str *text)
{
    size_t end = text->bytes;
    for (size_t i = 0; i < item->until_count && text->bytes > 0; i++) {
        const char *found = memmem(text->data, end, item->until[i].data, item->until[i].bytes);
        if (found != NULL) end = (size_t)(found - text->data);
    }
    bool cut = end < text->bytes;
    if (cut) {
        text->bytes = end;
        text->data[end] = 0;
    }
    return cut;
}

/* Brings an answer up to the engine's state. *over: it has ended. */
static tt_status follow(struct evaluation *e, struct tt_generation_team *team, struct asked *asked,
                        bool *over)
{
    const struct tt_task_item *item = &e->items.data[asked->item];
    const struct tt_tokenizer *tokenizer = e->inputs->tokenizer;
    struct tt_generation_progress progress;
    TT_TRY(tt_generation_team_poll(team, asked->id, &progress));
    *over = tt_generation_is_finished(progress.state);
    if (item->kind != TT_ITEM_TEXT) {
        return *over ? score_likelihood(e, asked, &progress) : TT_OK;
    }
    while (asked->tokens < progress.count)
        TT_TRY(tt_tokenizer_stream_push(tokenizer, &asked->stream, progress.tokens[asked->tokens++],
                                        &asked->text));
    if (*over) TT_TRY(tt_tokenizer_stream_finish(tokenizer, &asked->stream, &asked->text));
    *over = cut_text(item, &asked->text) || *over;
    if (!*over) return TT_OK;
    return tt_item_score_text(&e->scores[asked->item], item, &asked->text);
}

static void leave(struct tt_generation_team *team, struct asked *asked)
{
    if (asked->id != 0) tt_generation_team_release(team, asked->id);
    tt_tokenizer_stream_deinit(&asked->stream);
    tt_str_deinit(&asked->text);
    *asked = (struct asked){0};
}

/* ---- All of them ---- */

static tt_status write_results(const struct evaluation *e)
{
    struct tt_str text = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; i < e->items.count && status == TT_OK; i++)
        status = tt_item_score_write(&e->items.data[i], &e->scores[i], &text);
    if (status == TT_OK)
        status = tt_file_write_atomic(e->config->results_path, tt_str_text(&text), text.bytes);
    tt_str_deinit(&text);
    return status;
}

/* The next prompt in the order of the file: choices of one item beside each other share its context. */
struct place {
    size_t item, prompt;
};

static tt_status fill(struct evaluation *e, struct tt_generation_team *team, struct place *next,
                      size_t *running)
{
    for (size_t i = 0; i < e->asked_count && next->item < e->items.count; i++) {
        if (e->asked[i].id != 0) continue;
        TT_TRY(ask(e, team, next->item, next->prompt, &e->asked[i]));
        ++*running;
        if (++next->prompt < e->items.data[next->item].prompt_count) continue;
        next->prompt = 0;
        next->item++;
    }
    return TT_OK;
}

static tt_status run_all(struct evaluation *e, struct tt_generation_team *team)
{
    struct place next = {0};
    size_t running = 0;
    bool busy;
    do {
        if (e->cancel != NULL && atomic_load(&e->cancel->requests) > 0)
            return tt_fail(TT_ERR_CANCELLED, "stopped on request");
        TT_TRY(fill(e, team, &next, &running));
        TT_TRY(tt_generation_team_step(team, &busy));
        for (size_t i = 0; i < e->asked_count; i++) {
            bool over = false;
            if (e->asked[i].id == 0) continue;
            TT_TRY(follow(e, team, &e->asked[i], &over));
            if (!over) continue;
            leave(team, &e->asked[i]);
            running--;
        }
    } while (running > 0 || next.item < e->items.count);
    return TT_OK;
}

static tt_status lead(void *context, const struct tt_inputs *inputs, struct tt_generation_team *team)
{
    struct evaluation *e = context;
    tt_status status = TT_OK;
    e->inputs = inputs;
    e->asked_count = 2 * (size_t)tt_generation_team_slots(team);
    e->asked = tt_calloc(e->asked_count, sizeof *e->asked);
    e->scores = tt_calloc(e->items.count, sizeof *e->scores);
    if (e->asked == NULL || e->scores == NULL) return TT_ERR_MEMORY;
    status = run_all(e, team);
    for (size_t i = 0; i < e->asked_count; i++) leave(team, &e->asked[i]);
    if (status == TT_OK && e->config->results_path != NULL) status = write_results(e);
    if (status == TT_OK) status = tt_task_scores_list(&e->items, e->scores, &e->list);
    return status;
}

static void evaluation_deinit(struct evaluation *e)
{
    for (size_t i = 0; e->scores != NULL && i < e->items.count; i++) tt_item_score_deinit(&e->scores[i]);
    tt_free(e->scores);
    tt_free(e->asked);
    tt_task_items_deinit(&e->items);
}

tt_status tt_evaluate_tasks(const struct tt_eval_spec *spec, const struct tt_tasks_config *config,
                            const struct tt_cancel *cancel, struct tt_json_value **scores)
{
    struct evaluation e = {.config = config, .cancel = cancel};
    const struct tt_generate_call call = {
        .kind = TT_JOB_EVALUATE, .spec = spec, .chooses_sharding = config->chooses_sharding};
    const struct tt_generate_hooks hooks = {.prepare = prepare, .lead = lead, .context = &e};
    tt_status status = tt_generate_run_call(&call, cancel, &hooks);
    evaluation_deinit(&e);
    if (status == TT_OK)
        *scores = e.list;
    else
        tt_json_release(e.list);
    return status;
}
