/* Tokens that are added to a tokenizer, as add_tokens of transformers 5.24 does it: a text that no token has gets the
 * id behind the largest; one that the vocabulary has keeps its id, and is found in texts as a whole from now on. */
#ifndef TT_TEXT_NEW_TOKENS_H
#define TT_TEXT_NEW_TOKENS_H

#include "text/tokenizer.h"

struct tt_new_token {
    const char *text;
    bool special;
};

/* The tokenizer of `folder` with these tokens, its tokenizer.json as it is saved from now on (appended to *json), and
 * the ids of the texts that no token had, in the order of the list (appended to *ids). That file also has the tokens
 * that only the files beside the folder's one name, because the new ones follow them. A text that is empty, or twice
 * in the list, is TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_new_tokens_add(const char *folder, const struct tt_new_token *tokens, size_t count,
                                        struct tt_tokenizer **out, struct tt_str *json, struct tt_ids *ids);
/* Whether the folder has a tokenizer.json. */
TT_MUST_USE tt_status tt_new_tokens_has_tokenizer(const char *folder, bool *has);
/* The tokenizer of `folder`, such as an adapter's, in the place of that of `base`, a model's: where it has tokens that
 * the other lacks or has by other ids. NULL in *out: it has none, or both have none. */
TT_MUST_USE tt_status tt_new_tokens_of_folder(const char *folder, const char *base,
                                              struct tt_tokenizer **out);

#endif
