#include "serve/job_tokens.h"

#include "serve/api_logprobs.h"

tt_status tt_serve_await_prompt(const struct tt_serve_config *config, const struct tt_serve_job *job,
                                struct tt_serve_choice *choice)
{
    struct tt_generation_progress progress;
    if (choice->ready) return TT_OK;
    TT_TRY(tt_generation_team_poll(config->talk->team, choice->answer.id, &progress));
    choice->ready = progress.prompt_logprob_count + 1 >= tt_serve_prompt_of(job, choice)->ids.count;
    return TT_OK;
}

/* Tokens of the answer so far, and the one that ended it. */
static size_t count_tokens(const struct tt_serve_choice *choice)
{
    return choice->answer.tokens + (choice->answer.end_id >= 0);
}

bool tt_serve_has_untold(const struct tt_serve_job *job, const struct tt_serve_choice *choice)
{
    bool wanted = job->request.wants_logprobs || job->request.return_token_ids;
    return wanted && choice->told < count_tokens(choice);
}

/* The prompt with its log p, as far as `top` of the likeliest. */
static struct tt_api_tokens run_of_prompt(const struct tt_serve_prompt *prompt,
                                          const struct tt_generation_progress *progress, int64_t top)
{
    return (struct tt_api_tokens){.ids = prompt->ids.data,
                                  .logprobs = progress->prompt_logprobs,
                                  .unknown = 1,
                                  .end = prompt->ids.count,
                                  .before = -1,
                                  .top = (int)top};
}

/* Log p of what was not told: of the prompt where the answer repeats it, of tokens, and of the one behind them. */
static tt_status tell_logprobs(const struct tt_serve_config *config, const struct tt_serve_job *job,
                               struct tt_serve_choice *choice, const struct tt_generation_progress *progress,
                               struct tt_json_value **out)
{
    const struct tt_serve_prompt *prompt = tt_serve_prompt_of(job, choice);
    struct tt_api_tokens runs[3];
    size_t count = 0, tokens = choice->answer.tokens;
    int32_t before = prompt->ids.count > 0 ? prompt->ids.data[prompt->ids.count - 1] : -1;
    int top = (int)job->request.top_logprobs;
    if (job->request.echo && !choice->told_prompt) runs[count++] = run_of_prompt(prompt, progress, top);
    runs[count++] = (struct tt_api_tokens){.ids = progress->tokens,
                                           .logprobs = progress->logprobs,
                                           .first = choice->told < tokens ? choice->told : tokens,
                                           .end = tokens,
                                           .before = before,
                                           .top = top};
    if (choice->answer.end_id >= 0 && choice->told <= tokens)
        runs[count++] = (struct tt_api_tokens){.ids = &choice->answer.end_id,
                                               .logprobs = progress->logprobs + tokens,
                                               .end = 1,
                                               .before = tokens > 0 ? progress->tokens[tokens - 1] : before,
                                               .top = top};
    const struct tt_api_logprobs_form form = {.chat = job->chat, .ids = job->request.ids_as_texts};
    return tt_api_write_logprobs(config->talk->inputs->tokenizer, runs, count, &form, &choice->characters,
                                 out);
}

static struct tt_json_value *list_ids(const int32_t *ids, size_t count)
{
    struct tt_json_value *list = tt_json_new_list();
    for (size_t i = 0; i < count; i++) tt_json_append(list, tt_json_new_integer(ids[i]));
    return list;
}

/* Adds what vLLM's servers say of a prompt to `object`. */
static tt_status tell_prompt(const struct tt_serve_config *config, const struct tt_serve_job *job,
                             const struct tt_serve_choice *choice,
                             const struct tt_generation_progress *progress, struct tt_json_value *object)
{
    const struct tt_serve_prompt *prompt = tt_serve_prompt_of(job, choice);
    struct tt_json_value *logprobs = NULL;
    if (job->request.return_token_ids)
        tt_json_set(object, "prompt_token_ids", list_ids(prompt->ids.data, prompt->ids.count));
    if (job->request.prompt_logprobs < 0) return TT_OK;
    const struct tt_api_tokens run = run_of_prompt(prompt, progress, job->request.prompt_logprobs);
    TT_TRY(tt_api_write_prompt_logprobs(config->talk->inputs->tokenizer, &run, &logprobs));
    tt_json_set(object, "prompt_logprobs", logprobs);
    return TT_OK;
}

static tt_status tell_more(const struct tt_serve_config *config, const struct tt_serve_job *job,
                           const struct tt_serve_choice *choice,
                           const struct tt_generation_progress *progress, struct tt_json_value **out)
{
    const struct tt_api_request *request = &job->request;
    size_t tokens = choice->answer.tokens;
    if (!request->return_token_ids && request->prompt_logprobs < 0) return TT_OK;
    struct tt_json_value *object = tt_json_new_object();
    if (request->return_token_ids) {
        size_t first = choice->told < tokens ? choice->told : tokens;
        struct tt_json_value *ids = list_ids(progress->tokens + first, tokens - first);
        if (choice->answer.end_id >= 0 && choice->told <= tokens)
            tt_json_append(ids, tt_json_new_integer(choice->answer.end_id));
        tt_json_set(object, "token_ids", ids);
    }
    tt_status status = TT_OK;
    if (!job->chat && !choice->told_prompt) status = tell_prompt(config, job, choice, progress, object);
    *out = object;
    return status;
}

tt_status tt_serve_tell_tokens(const struct tt_serve_config *config, const struct tt_serve_job *job,
                               struct tt_serve_choice *choice, struct tt_api_choice *piece)
{
    const struct tt_api_request *request = &job->request;
    struct tt_generation_progress progress;
    if (!request->wants_logprobs && !request->return_token_ids && request->prompt_logprobs < 0) return TT_OK;
    if (request->stream && choice->told_prompt && choice->told == count_tokens(choice)) return TT_OK;
    TT_TRY(tt_generation_team_poll(config->talk->team, choice->answer.id, &progress));
    if (request->wants_logprobs) TT_TRY(tell_logprobs(config, job, choice, &progress, &piece->logprobs));
    TT_TRY(tell_more(config, job, choice, &progress, &piece->more));
    choice->told = count_tokens(choice);
    choice->told_prompt = true;
    return TT_OK;
}

tt_status tt_serve_tell_conversation(const struct tt_serve_config *config, const struct tt_serve_job *job,
                                     struct tt_json_value **more)
{
    struct tt_generation_progress progress;
    if (!job->request.return_token_ids && job->request.prompt_logprobs < 0) return TT_OK;
    TT_TRY(tt_generation_team_poll(config->talk->team, job->choices[0].answer.id, &progress));
    *more = tt_json_new_object();
    return tell_prompt(config, job, &job->choices[0], &progress, *more);
}
