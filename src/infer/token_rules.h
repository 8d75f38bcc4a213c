/* Which tokens an answer may have, whatever its grammar says: vLLM's allowed_token_ids and bad_words
 * (vllm/sampling_params.py, vllm/v1/sample/ops/bad_words.py). As masks for the op sample. */
#ifndef TT_INFER_TOKEN_RULES_H
#define TT_INFER_TOKEN_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/ids.h"

enum { TT_ALLOWED_IDS_MAX = 1 << 16, TT_BANNED_IDS_MAX = 1 << 14 };

/* All lent. A zeroed struct rules nothing. */
struct tt_token_rules {
    /* ascending; no other token comes, end tokens either; count 0: all tokens may come */
    const int32_t *allowed;
    size_t allowed_count;
    /* Sequences that the answer may not have, one after the other, each behind the number of its ids: the last id may
     * not come where the answer ends with those before it. */
    const int32_t *banned;
    size_t banned_count; /* of all these numbers */
};
bool tt_token_rules_any(const struct tt_token_rules *rules);
/* TT_ERR_USAGE for ids beyond `vocab`, for too many, and for a list of sequences that is none. */
TT_MUST_USE tt_status tt_token_rules_check(const struct tt_token_rules *rules, int64_t vocab);

/* Takes from the mask of `words` words what may not come behind answer[count]. False: nothing is left of it. */
bool tt_token_rules_apply(const struct tt_token_rules *rules, const int32_t *answer, size_t count,
                          uint32_t *mask, size_t words);

#endif
