/* The prompt of an answer, and the requests that only ask for its ids or its text: /tokenize and /detokenize. All of it
 * belongs to the thread of the engine. */
#ifndef TT_SERVE_SERVE_PROMPT_H
#define TT_SERVE_SERVE_PROMPT_H

#include "serve/api_request.h"
#include "serve/talk.h"

/* A zeroed struct is empty. */
struct tt_serve_prompt {
    struct tt_ids ids;
    struct tt_str text; /* where the answer repeats it */
};

/* Prompt number `index` of the request. `new_tokens`: of the answer, for which a truncated prompt leaves room. */
TT_MUST_USE tt_status tt_serve_prompt_make(struct tt_talk *talk, const struct tt_api_request *request,
                                           size_t index, int64_t new_tokens, struct tt_serve_prompt *prompt);
void tt_serve_prompt_deinit(struct tt_serve_prompt *prompt);

/* The tokens of bad_words (NULL: none) as sequences that an answer may not have (infer/token_rules.h). As vLLM's
 * SamplingParams.update_from_tokenizer makes them: of a word as it is, and behind a blank where that is another first
 * token of as many. */
TT_MUST_USE tt_status tt_serve_bad_words(struct tt_talk *talk, const struct tt_json_value *words,
                                         struct tt_ids *banned);

/* The answers to /tokenize and /detokenize in vLLM's form: {count, max_model_len, tokens, token_strs} and {prompt}. */
TT_MUST_USE tt_status tt_serve_tokenize(struct tt_talk *talk, const struct tt_api_request *request,
                                        struct tt_str *out);
TT_MUST_USE tt_status tt_serve_detokenize(struct tt_talk *talk, const struct tt_api_request *request,
                                          struct tt_str *out);
/* That to /tokenizer_info: the special tokens and the chat template, under tokenizer_config.json's names. Any
 * thread. */
TT_MUST_USE tt_status tt_serve_describe_tokenizer(const struct tt_talk *talk, struct tt_str *out);

#endif
