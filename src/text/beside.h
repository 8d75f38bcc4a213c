/* The files beside tokenizer.json that name special and added tokens: tokenizer_config.json, special_tokens_map.json,
 * added_tokens.json. Source: tokenization_utils_base.py (_from_pretrained) and tokenization_utils_tokenizers.py of
 * transformers 5.24. With "added_tokens_decoder" in tokenizer_config.json the other two files do not count; without it
 * the keys of special_tokens_map.json replace those of tokenizer_config.json. */
#ifndef TT_TEXT_BESIDE_H
#define TT_TEXT_BESIDE_H

#include "base/json.h"

/* A zeroed struct is empty. */
struct tt_beside {
    struct tt_json config, map, added; /* empty where there is no such file, or where it does not count */
};

/* Each of the files is optional; one that is no JSON object is TT_ERR_DATA. */
TT_MUST_USE tt_status tt_beside_open(const char *folder, struct tt_beside *beside);
void tt_beside_close(struct tt_beside *beside);
/* The value of a key such as "bos_token" and, if `file` is not NULL, the file that has it; NULL: none. */
const struct tt_json_value *tt_beside_get(const struct tt_beside *beside, const char *key,
                                          const struct tt_json **file);

/* A token as these files have it. */
struct tt_beside_token {
    const char *content;
    int64_t id; /* -1: not given */
    bool single_word, lstrip, rstrip, normalized, special;
    bool named; /* a token with an id has a name too: it becomes special if it changes anything */
};

/* Calls `visit` for each of their tokens, in the order in which the library adds them: those with ids in the order of
 * these, then those with names (bos_token, ...), then the list extra_special_tokens. `is_added` tells which tokens
 * there are already: those without an id are not visited then. */
struct tt_beside_visitor {
    tt_status (*visit)(void *context, const char *origin, const struct tt_beside_token *token);
    bool (*is_added)(void *context, const char *content);
    void *context;
};
TT_MUST_USE tt_status tt_beside_list(const struct tt_beside *beside, const struct tt_beside_visitor *visitor);

#endif
