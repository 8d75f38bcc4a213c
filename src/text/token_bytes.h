/* The bytes that a token adds to a text, whatever tokens stand before it: of decoders that work on each token
 * alone. */
#ifndef TT_TEXT_TOKEN_BYTES_H
#define TT_TEXT_TOKEN_BYTES_H

#include "text/tokenizer.h"

/* TT_ERR_UNSUPPORTED where the decoder joins words (WordPiece, a BPE suffix, none at all), or changes the text of
 * several tokens together. *drops_space: a space at the begin of the whole text is left out. */
TT_MUST_USE tt_status tt_token_bytes_check(const struct tt_tokenizer *tokenizer, bool *drops_space);
/* Appends the bytes, which need not be whole characters. Needs a tokenizer that passes the check, and a known id. */
TT_MUST_USE tt_status tt_token_bytes(const struct tt_tokenizer *tokenizer, int32_t id, struct tt_str *bytes);

#endif
