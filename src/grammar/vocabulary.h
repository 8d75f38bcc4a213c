/* The tokens of a tokenizer by their bytes, as a tree of common beginnings. Tokens that are no text, special ones
 * among them, are 7 bytes that UTF-8 has not: 0xF8 and three bits of the id in each, so that a grammar can name
 * them too. */
#ifndef TT_GRAMMAR_VOCABULARY_H
#define TT_GRAMMAR_VOCABULARY_H

#include "base/str.h"
#include "text/tokenizer.h"

struct tt_vocabulary;

/* Tokens 0 .. count - 1, where count is the number of logits. TT_ERR_UNSUPPORTED: a tokenizer whose tokens are no
 * bytes, because its decoder joins words. Immutable, and independent of the tokenizer after the call. */
TT_MUST_USE tt_status tt_vocabulary_create(const struct tt_tokenizer *tokenizer, int64_t count,
                                           struct tt_vocabulary **out);
/* A vocabulary of given texts, for tests; an empty text is a token without any. A first space stays. */
TT_MUST_USE tt_status tt_vocabulary_of_texts(const struct tt_span *texts, size_t count,
                                             struct tt_vocabulary **out);
void tt_vocabulary_destroy(struct tt_vocabulary *vocabulary); /* takes NULL */
/* Words of a mask. */
size_t tt_vocabulary_words(const struct tt_vocabulary *vocabulary);

#endif
