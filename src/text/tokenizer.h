/* Tokenizers from Hugging Face's tokenizer.json (BPE), token for token like the reference library: added tokens,
 * normalizers, pre-tokenizers, BPE with byte fallback, post-processors, decoders. Encoding takes O(n log n) time in
 * the bytes of any text. The names of special tokens come from tokenizer_config.json beside it.
 *
 * A tokenizer is immutable after loading and may be used by many threads; each thread passes its own scratch.
 */
#ifndef TT_TEXT_TOKENIZER_H
#define TT_TEXT_TOKENIZER_H

#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "text/ids.h"

struct tt_tokenizer;
struct tt_tokenizer_scratch; /* memory and word cache of one thread */

/* Bytes begin .. end - 1 of a text. */
struct tt_byte_range {
    uint32_t begin, end;
};
/* A growing list of ranges. A zeroed struct is valid and empty. */
struct tt_ranges {
    struct tt_byte_range *data;
    size_t count, capacity;
};
void tt_ranges_deinit(struct tt_ranges *ranges);
TT_MUST_USE tt_status tt_ranges_append(struct tt_ranges *ranges, struct tt_byte_range range);

/* `folder` contains tokenizer.json and, optionally, tokenizer_config.json, special_tokens_map.json, added_tokens.json
 * and chat_template.jinja. Tokens that only these name are added (text/beside.h). */
TT_MUST_USE tt_status tt_tokenizer_load(const char *folder, struct tt_tokenizer **out);
/* The same with another text in the place of the folder's tokenizer.json. */
TT_MUST_USE tt_status tt_tokenizer_load_text(const char *folder, const char *text, size_t bytes,
                                             struct tt_tokenizer **out);
/* A tokenizer of another folder takes the place of the model's: chat templates and end tokens of turns that its folder
 * lacks are those of `model_folder`. */
TT_MUST_USE tt_status tt_tokenizer_stand_in(struct tt_tokenizer *tokenizer, const char *model_folder);
const char *tt_tokenizer_model_folder(const struct tt_tokenizer *tokenizer); /* NULL: it is the model's own */
/* One tokenizer.json as text; no special-token names. */
TT_MUST_USE tt_status tt_tokenizer_parse(const char *text, size_t bytes, const char *origin,
                                         struct tt_tokenizer **out);
void tt_tokenizer_destroy(struct tt_tokenizer *tokenizer); /* takes NULL */

/* One more than the largest id, added tokens included. */
int32_t tt_tokenizer_vocab_size(const struct tt_tokenizer *tokenizer);
int32_t tt_tokenizer_token_id(const struct tt_tokenizer *tokenizer, const char *token); /* -1: none */
const char *tt_tokenizer_token(const struct tt_tokenizer *tokenizer, int32_t id);       /* NULL: none */
bool tt_tokenizer_is_special(const struct tt_tokenizer *tokenizer, int32_t id);
bool tt_tokenizer_is_added(const struct tt_tokenizer *tokenizer, int32_t id);
/* Named by tokenizer_config.json or special_tokens_map.json; -1 when not named. */
int32_t tt_tokenizer_bos_id(const struct tt_tokenizer *tokenizer);
int32_t tt_tokenizer_eos_id(const struct tt_tokenizer *tokenizer);
int32_t tt_tokenizer_pad_id(const struct tt_tokenizer *tokenizer);
const char *tt_tokenizer_chat_template(const struct tt_tokenizer *tokenizer); /* Jinja text or NULL */
const char *tt_tokenizer_folder(const struct tt_tokenizer *tokenizer); /* NULL: it was parsed from text */

TT_MUST_USE tt_status tt_tokenizer_scratch_create(const struct tt_tokenizer *tokenizer,
                                                  struct tt_tokenizer_scratch **out);
void tt_tokenizer_scratch_destroy(struct tt_tokenizer_scratch *scratch);

/* Appends the ids of `text` to `ids`. Invalid UTF-8 is TT_ERR_DATA and names the byte. `add_special`: run the
 * post-processor that adds BOS/EOS, as the reference's add_special_tokens does. */
TT_MUST_USE tt_status tt_tokenizer_encode(const struct tt_tokenizer *tokenizer,
                                          struct tt_tokenizer_scratch *scratch, const char *text,
                                          size_t bytes, bool add_special, struct tt_ids *ids);
/* The same ids, and for each the bytes of `text` that it stands for: exactly those of a token that is a piece of the
 * text, also where it splits a character; the characters that a normalizer or a special token's lstrip and rstrip
 * replaced or took in. Ids that stand for nothing (added by the post-processor, a prefix alone) have an empty range.
 * Begins and ends never decrease; bytes that a normalizer or pre-tokenizer removed are in no range. */
struct tt_encode_options {
    bool add_special; /* as above */
    /* Parts of the text, in order, in which special tokens are ordinary text: a token that has a byte there is not
     * recognised. */
    const struct tt_byte_range *plain;
    size_t plain_count;
};
/* Appends to both lists, which have the same length. */
TT_MUST_USE tt_status tt_tokenizer_encode_ranges(const struct tt_tokenizer *tokenizer,
                                                 struct tt_tokenizer_scratch *scratch, struct tt_span text,
                                                 const struct tt_encode_options *options, struct tt_ids *ids,
                                                 struct tt_ranges *ranges);
/* Replaces `text`. Ids without a token (models pad their vocabulary, and may generate padding ids) add nothing, as in
 * the reference. Invalid UTF-8 becomes U+FFFD. */
TT_MUST_USE tt_status tt_tokenizer_decode(const struct tt_tokenizer *tokenizer, const int32_t *ids,
                                          size_t count, bool skip_special, struct tt_str *text);

/* Decodes ids one by one into whole characters, for generation. A zeroed struct, with skip_special set, is an empty
 * stream. */
struct tt_tokenizer_stream {
    bool skip_special;
    struct tt_ids ids; /* the context of the text to come */
    size_t shown;      /* number of them whose text was appended already */
    struct tt_str before, after;
};
/* Appends to `text` the characters that `id` completes; bytes of an incomplete character wait for the next ids. */
TT_MUST_USE tt_status tt_tokenizer_stream_push(const struct tt_tokenizer *tokenizer,
                                               struct tt_tokenizer_stream *stream, int32_t id,
                                               struct tt_str *text);
/* Appends the waiting bytes, broken characters as U+FFFD. */
TT_MUST_USE tt_status tt_tokenizer_stream_finish(const struct tt_tokenizer *tokenizer,
                                                 struct tt_tokenizer_stream *stream, struct tt_str *text);
void tt_tokenizer_stream_deinit(struct tt_tokenizer_stream *stream);

#endif
