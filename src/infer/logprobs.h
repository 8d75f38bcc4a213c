/* Log p of generated tokens, and of the likeliest ones beside them, by the model's own distribution: softmax of its
 * logits, before temperature, penalties and the rules of a draw. */
#ifndef TT_INFER_LOGPROBS_H
#define TT_INFER_LOGPROBS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { TT_TOP_LOGPROBS_MAX = 20 };

/* Log probabilities of one token. */
struct tt_token_logprobs {
    float logprob;
    int32_t rank;  /* of tokens of a prompt: 1 for the likeliest; 0: not counted */
    int32_t count; /* of the likeliest tokens, by descending logprob, of equal ones the lower id first */
    int32_t ids[TT_TOP_LOGPROBS_MAX];
    float logprobs[TT_TOP_LOGPROBS_MAX];
};

/* `logits`: [vocab]; `top` of the likeliest are listed, at most TT_TOP_LOGPROBS_MAX. */
void tt_token_logprobs_make(const float *logits, int64_t vocab, int32_t token, int top,
                            struct tt_token_logprobs *out);
/* The place of `token` in the order of descending logits, from 1; of equal ones it is the first. */
int32_t tt_token_rank(const float *logits, int64_t vocab, int32_t token);

/* A zeroed struct is empty. */
struct tt_logprob_list {
    struct tt_token_logprobs *data;
    size_t count, capacity;
};
TT_MUST_USE tt_status tt_logprob_list_append(struct tt_logprob_list *list,
                                             const struct tt_token_logprobs *value);
TT_MUST_USE tt_status tt_logprob_list_reserve(struct tt_logprob_list *list, size_t count);
void tt_logprob_list_deinit(struct tt_logprob_list *list);

#endif
