/* Byte pair encoding of one word. Merges are applied lowest rank first, leftmost first among equals
 * (Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword units", 2016,
 * section 3.2): O(n log n) for n symbols.
 *
 * Recurring words are cached, in a cache of bounded size per thread.
 */
#ifndef TT_TEXT_BPE_H
#define TT_TEXT_BPE_H

#include "text/tokenizer.h"
#include "text/vocab.h"

struct bpe {
    struct vocab vocab;
    struct bpe_merge *merges; /* hash table */
    size_t merge_slots, merge_count;
    char *unk_token;       /* NULL: characters without a token are dropped */
    int32_t unk_id;        /* -1: unk_token is not in the vocabulary, an error when it is needed */
    char *prefix, *suffix; /* of symbols that do not begin a word, of symbols that end one; NULL when empty */
    bool fuse_unk, byte_fallback, ignore_merges;
    bool byte_level;         /* words come as raw bytes; tokens are written in ByteLevel's alphabet */
    bool cuts_at_metaspace;  /* no merge joins something to a following U+2581: words may be cut before it */
    bool blank_is_metaspace; /* words come with blanks in the place of U+2581, or with both */
    /* the symbols of a part of a word do not depend on the rest, if no byte is unknown */
    bool parts_are_free;
    int32_t byte_level_ids[256]; /* the symbol of a raw byte, -1: none */
    int32_t fallback_ids[256];   /* "<0x00>" .. "<0xFF>", -1: none */
};

struct bpe_scratch; /* cache and working memory of one thread */

TT_MUST_USE tt_status bpe_add_merge(struct bpe *bpe, const char *left, size_t left_bytes, const char *right,
                                    size_t right_bytes, uint32_t rank);
/* Call after vocabulary, merges and options are set. */
TT_MUST_USE tt_status bpe_finish(struct bpe *bpe);
void bpe_deinit(struct bpe *bpe);

TT_MUST_USE tt_status bpe_scratch_create(struct bpe_scratch **out);
void bpe_scratch_destroy(struct bpe_scratch *scratch);
/* Appends the ids of one word, which is not empty. */
TT_MUST_USE tt_status bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word,
                                 size_t bytes, struct tt_ids *ids);

/* Ranges of bytes of the word, one for each id of bpe_encode of this word. Characters without a token that are dropped
 * are in no range. */
TT_MUST_USE tt_status bpe_spans(const struct bpe *bpe, struct bpe_scratch *scratch, struct tt_span word,
                                const struct tt_ids *ids, struct tt_ranges *spans);

#endif
