/* Log p and ids of the tokens of an answer, and of its prompt, as the answer says them. The thread of the engine. */
#ifndef TT_SERVE_JOB_TOKENS_H
#define TT_SERVE_JOB_TOKENS_H

#include "serve/api_answer.h"
#include "serve/serve_job.h"

/* Fills in `logprobs` and `more` of a piece: of the tokens that were not told yet, as far as the request wants them. */
TT_MUST_USE tt_status tt_serve_tell_tokens(const struct tt_serve_config *config,
                                           const struct tt_serve_job *job, struct tt_serve_choice *choice,
                                           struct tt_api_choice *piece);
/* Whether tokens were not told that the request wants told. */
bool tt_serve_has_untold(const struct tt_serve_job *job, const struct tt_serve_choice *choice);
/* The members of a conversation's answer about its one prompt. *more is owned; NULL: none. */
TT_MUST_USE tt_status tt_serve_tell_conversation(const struct tt_serve_config *config,
                                                 const struct tt_serve_job *job, struct tt_json_value **more);
/* Sets choice->ready once log p of its prompt is there. */
TT_MUST_USE tt_status tt_serve_await_prompt(const struct tt_serve_config *config,
                                            const struct tt_serve_job *job, struct tt_serve_choice *choice);

#endif
