/* Log p of tokens as OpenAI's API and vLLM's server have them. */
#ifndef TT_SERVE_API_LOGPROBS_H
#define TT_SERVE_API_LOGPROBS_H

#include "base/json.h"
#include "infer/logprobs.h"
#include "text/tokenizer.h"

/* A run of tokens. */
struct tt_api_tokens {
    const int32_t *ids;
    const struct tt_token_logprobs *logprobs; /* of ids[unknown], ids[unknown + 1] ... */
    size_t unknown;                           /* first ids without log p, which are null */
    size_t first, end;                        /* of those to write */
    int32_t before;                           /* the id before ids[0]; -1: none */
    int top;                                  /* of the likeliest, at most */
};

/* The tokens of all runs, one after the other. *out is owned. Of a chat: {"content": [{token, logprob, bytes,
 * top_logprobs}], "refusal"}, else {tokens, token_logprobs, top_logprobs, text_offset}. The text of a token is what it
 * adds behind the token before it; bytes are null where that is no whole character. *offset: characters before the
 * first token, then behind the last one. */
struct tt_api_logprobs_form {
    bool chat;
    bool ids; /* the text of a token is token_id:5, as vLLM's return_tokens_as_token_ids has it */
};
TT_MUST_USE tt_status tt_api_write_logprobs(const struct tt_tokenizer *tokenizer,
                                            const struct tt_api_tokens *runs, size_t count,
                                            const struct tt_api_logprobs_form *form, int64_t *offset,
                                            struct tt_json_value **out);
/* vLLM's prompt_logprobs: for each token null, or an object of {logprob, rank, decoded_token} by id. */
TT_MUST_USE tt_status tt_api_write_prompt_logprobs(const struct tt_tokenizer *tokenizer,
                                                   const struct tt_api_tokens *run,
                                                   struct tt_json_value **out);

#endif
