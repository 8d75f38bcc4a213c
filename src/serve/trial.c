#include "serve/trial.h"

enum { TRIED_TOKENS = 64, TRIED_NEW = 3 };

/* A request of a model, of all kinds of work: a prompt in parts and single tokens, drawn with penalties, with their
 * log p. What it computes no later request is the first to try. */
static tt_status try_model(struct tt_talk *talk, size_t index, int32_t *ids)
{
    struct tt_generation_team *team = talk->team;
    struct tt_talk_answer answer;
    int64_t room = tt_talk_length(talk) - TRIED_NEW, count = room < TRIED_TOKENS ? room : TRIED_TOKENS;
    struct tt_generation_request request = {
        .prompt = ids,
        .prompt_count = count > 0 ? (size_t)count : 1,
        .max_new_tokens = count > 0 ? TRIED_NEW : 1,
        .sampling = {.sample = true, .temperature = 1, .top_k = 2, .top_p = 0.9, .repetition_penalty = 1.1},
        .ignore_end = true,
        .adapter_off = index == 0,
        .adapter = index > 0 ? (int)index - 1 : 0,
        .wants_logprobs = true,
        .top_logprobs = TT_TOP_LOGPROBS_MAX,
    };
    TT_TRY(tt_talk_ask(talk, &request, &answer));
    tt_status status = TT_OK;
    for (bool busy = true; busy && status == TT_OK;) status = tt_generation_team_step(team, &busy);
    tt_talk_answer_deinit(talk, &answer);
    if (status != TT_OK)
        tt_while("trying a request of %zu tokens before the first client's", request.prompt_count);
    return status;
}

tt_status tt_serve_try(struct tt_talk *talk, size_t adapter_count)
{
    int32_t ids[TRIED_TOKENS];
    int64_t vocab = talk->inputs->model_facts.vocab_size;
    for (int64_t i = 0; i < TRIED_TOKENS; i++) ids[i] = (int32_t)(i % vocab);
    for (size_t index = 0; index <= adapter_count; index++) TT_TRY(try_model(talk, index, ids));
    return TT_OK;
}
