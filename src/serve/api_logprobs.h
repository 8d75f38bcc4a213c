/* Log p of the tokens of an answer as OpenAI's API has them. */
#ifndef TT_SERVE_API_LOGPROBS_H
#define TT_SERVE_API_LOGPROBS_H

#include "base/json.h"
#include "infer/logprobs.h"
#include "text/tokenizer.h"

struct tt_api_tokens {
    const struct tt_tokenizer *tokenizer;
    const int32_t *ids;
    const struct tt_token_logprobs *logprobs;
    size_t first, end; /* of those to write */
    int32_t before;    /* the last id of the prompt, before ids[0] */
};

/* *out is owned. `chat`: {"content": [{token, logprob, bytes, top_logprobs}], "refusal"}, else {tokens, token_logprobs,
 * top_logprobs, text_offset}. The text of a token is what it adds behind the token before it; bytes are null where that
 * is no whole character. *offset: characters before the first token, then behind the last one. */
TT_MUST_USE tt_status tt_api_write_logprobs(const struct tt_api_tokens *tokens, bool chat, int64_t *offset,
                                            struct tt_json_value **out);

#endif
