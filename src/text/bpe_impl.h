/* Merging inside BPE, for text/bpe*.c only. */
#ifndef TT_TEXT_BPE_IMPL_H
#define TT_TEXT_BPE_IMPL_H

#include "text/bpe.h"
#include "text/unicode.h"

struct bpe_merge {
    uint64_t key; /* left << 32 | right, plus 1; 0 = free */
    uint32_t rank;
    int32_t id;
};

static inline size_t merge_slot(const struct bpe *bpe, uint64_t key)
{
    size_t mask = bpe->merge_slots - 1;
    uint64_t hash = key * UINT64_C(0x9E3779B97F4A7C15);
    size_t slot = (size_t)(hash ^ hash >> 32) & mask;
    while (bpe->merges[slot].key != key && bpe->merges[slot].key != 0) slot = (slot + 1) & mask;
    return slot;
}

/* NULL when the pair does not merge. */
static inline const struct bpe_merge *find_merge(const struct bpe *bpe, int32_t left, int32_t right)
{
    if (bpe->merge_count == 0) return NULL;
    const struct bpe_merge *merge =
        &bpe->merges[merge_slot(bpe, ((uint64_t)left << 32 | (uint32_t)right) + 1)];
    return merge->key == 0 ? NULL : merge;
}

/* A character of a word as the vocabulary has it. */
static inline struct tt_span bpe_character(const struct bpe *bpe, const char *data, size_t bytes)
{
    bool metaspace = bpe->blank_is_metaspace && *data == ' ';
    return metaspace ? (struct tt_span){TT_METASPACE, sizeof TT_METASPACE - 1}
                     : (struct tt_span){data, bytes};
}

/* Working memory of long words. */
struct bpe_long {
    uint32_t *links;  /* previous and next of each symbol */
    uint32_t *starts; /* after bpe_merge_long: the former index of each remaining symbol */
    uint64_t *heap;   /* rank << 32 | position */
    size_t heap_count, link_capacity;
    struct tt_ids tokens, begins; /* of the previous window, and their first symbols */
};

void bpe_long_deinit(struct bpe_long *s);
/* Merges the symbols of a word of any length in place: 28 bytes of working memory for each. */
TT_MUST_USE tt_status bpe_merge_long(const struct bpe *bpe, struct bpe_long *s, int32_t *symbols,
                                     size_t *count);

enum { CACHE_WORD_BYTES = 24, CACHE_IDS = 9 };

/* One cache line. */
struct cache_entry {
    uint64_t word[CACHE_WORD_BYTES / 8]; /* padded with zero bytes */
    uint8_t bytes;                       /* 0 = free */
    uint8_t count;
    int32_t ids[CACHE_IDS];
};

struct bpe_scratch {
    struct cache_entry *cache;
    size_t cache_sets, cache_stores; /* stores since the cache has this size */
    struct tt_ids symbols;
    struct bpe_long merging;
    struct tt_str text, mapped;
    struct tt_ranges *spans; /* of the symbols of a word, in the word that was split; NULL: not noted */
    struct tt_ranges symbol_spans;
};

/* Fills s->symbols with the initial symbols of the word. */
TT_MUST_USE tt_status bpe_split_word(const struct bpe *bpe, struct bpe_scratch *s, const char *word,
                                     size_t bytes);
/* The id of a word that is a token as a whole, where that takes precedence over merging; -1: it is merged. */
int32_t bpe_whole_word_id(const struct bpe *bpe, struct bpe_scratch *s, const char *word, size_t bytes,
                          tt_status *status);
/* Bytes of a U+2581 at `at` < bytes; 0: there is none. */
size_t bpe_metaspace_bytes(const struct bpe *bpe, const char *word, size_t bytes, size_t at);

/* Fills `symbols` with the initial symbols of the bytes. */
typedef tt_status bpe_split(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word,
                            size_t bytes);
/* Arguments of bpe_encode_windows. */
struct bpe_word {
    const struct bpe *bpe;
    struct bpe_scratch *scratch;
    struct bpe_long *merging;
    struct tt_ids *symbols; /* filled by `split` */
    bpe_split *split;
    const char *data;
    size_t bytes;
    size_t window, overlap; /* symbols */
};
/* Appends the ids of a very long word whose parts have independent symbols (bpe->parts_are_free): merges window by
 * window, in memory that does not grow with the word, with the same result. *done is false, and `ids` unchanged, where
 * two windows do not meet or a byte has no symbol: the word must then be merged as a whole. */
TT_MUST_USE tt_status bpe_encode_windows(const struct bpe_word *word, struct tt_ids *ids, bool *done);

#endif
