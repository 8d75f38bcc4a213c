#include "text/bpe.h"

#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "text/bpe_impl.h"
#include "text/byte_level.h"
#include "text/unicode.h"

enum {
    CACHE_SETS_FIRST = 1 << 7, /* of two entries each; clearing more would take longer than a short text */
    CACHE_SETS = 1 << 14,      /* at most: 2 MiB, what fits a second-level cache */
    SHORT_WORD = 40,           /* up to here scanning all pairs for each merge beats a heap */
    WINDOW = 1 << 16,          /* bytes of a word that are merged at once where that is possible */
    OVERLAP = 1 << 12,
};

static tt_status grow_merges(struct bpe *bpe)
{
    if (bpe->merge_count * 2 < bpe->merge_slots) return TT_OK;
    struct bpe old = *bpe;
    bpe->merge_slots = old.merge_slots == 0 ? 1024 : old.merge_slots * 2;
    bpe->merges = tt_calloc(bpe->merge_slots, sizeof bpe->merges[0]);
    if (bpe->merges == NULL) {
        *bpe = old;
        return TT_ERR_MEMORY;
    }
    for (size_t i = 0; i < old.merge_slots; i++) {
        if (old.merges[i].key != 0) bpe->merges[merge_slot(bpe, old.merges[i].key)] = old.merges[i];
    }
    tt_free(old.merges);
    return TT_OK;
}

static bool begins_with_space(const char *data, size_t bytes)
{
    return tt_span_starts_with((struct tt_span){data, bytes}, TT_METASPACE);
}

tt_status bpe_add_merge(struct bpe *bpe, const char *left, size_t left_bytes, const char *right,
                        size_t right_bytes, uint32_t rank)
{
    int32_t left_id = vocab_id(&bpe->vocab, left, left_bytes);
    int32_t right_id = vocab_id(&bpe->vocab, right, right_bytes);
    if (left_id < 0 || right_id < 0) {
        return tt_fail(TT_ERR_DATA, "merge %u refers to '%s', which is not in the vocabulary", rank,
                       left_id < 0 ? left : right);
    }
    size_t prefix_bytes = bpe->prefix == NULL ? 0 : strlen(bpe->prefix);
    /* The order of merging relies on every merge making a token longer. */
    if (right_bytes <= prefix_bytes) {
        return tt_fail(TT_ERR_DATA, "merge %u: '%s' is not longer than continuing_subword_prefix", rank,
                       right);
    }
    struct tt_str joined = {0};
    tt_status status = tt_str_append(&joined, left, left_bytes);
    if (status == TT_OK) status = tt_str_append(&joined, right + prefix_bytes, right_bytes - prefix_bytes);
    int32_t id = status == TT_OK ? vocab_id(&bpe->vocab, joined.data, joined.bytes) : -1;
    if (status == TT_OK && id < 0) {
        status =
            tt_fail(TT_ERR_DATA, "merge %u gives '%s', which is not in the vocabulary", rank, joined.data);
    }
    tt_str_deinit(&joined);
    TT_TRY(status);
    if (begins_with_space(right, right_bytes) &&
        !tt_span_ends_with((struct tt_span){left, left_bytes}, TT_METASPACE)) {
        bpe->cuts_at_metaspace = false;
    }
    TT_TRY(grow_merges(bpe));
    uint64_t key = ((uint64_t)left_id << 32 | (uint32_t)right_id) + 1;
    struct bpe_merge *merge = &bpe->merges[merge_slot(bpe, key)];
    bpe->merge_count += merge->key == 0;
    *merge = (struct bpe_merge){key, rank, id}; /* of equal pairs the last one counts, as in the reference */
    return TT_OK;
}

tt_status bpe_finish(struct bpe *bpe)
{
    const struct vocab *vocab = &bpe->vocab;
    bpe->unk_id = bpe->unk_token == NULL ? -1 : vocab_id(vocab, bpe->unk_token, strlen(bpe->unk_token));
    bool plain = bpe->prefix == NULL && bpe->suffix == NULL;
    if (!plain || bpe->byte_level || vocab_id(vocab, TT_METASPACE, strlen(TT_METASPACE)) < 0)
        bpe->cuts_at_metaspace = false;
    if (bpe->unk_token != NULL && tt_ends_with(bpe->unk_token, TT_METASPACE)) {
        bpe->cuts_at_metaspace = false;
    }
    bool all_bytes = bpe->byte_fallback;
    for (int byte = 0; byte < 256; byte++) {
        char encoded[4], name[8];
        size_t length = tt_utf8_encode(byte_level_code((unsigned char)byte), encoded);
        bpe->byte_level_ids[byte] = plain ? vocab_id(vocab, encoded, length) : -1;
        static const char digits[] = "0123456789ABCDEF";
        memcpy(name, "<0x__>", 7);
        name[3] = digits[byte >> 4];
        name[4] = digits[byte & 15];
        bpe->fallback_ids[byte] = vocab_id(vocab, name, 6);
        all_bytes = all_bytes && bpe->fallback_ids[byte] >= 0;
    }
    bpe->parts_are_free = plain && (bpe->byte_level || all_bytes);
    /* Where characters are dropped, the symbols on both sides become neighbours and may merge. */
    if (bpe->unk_token == NULL && !all_bytes) bpe->cuts_at_metaspace = false;
    return TT_OK;
}

void bpe_deinit(struct bpe *bpe)
{
    vocab_deinit(&bpe->vocab);
    tt_free(bpe->merges);
    tt_free(bpe->unk_token);
    tt_free(bpe->prefix);
    tt_free(bpe->suffix);
    *bpe = (struct bpe){0};
}

/* Replaces the cache by an empty one of `sets`. */
static tt_status resize_cache(struct bpe_scratch *s, size_t sets)
{
    size_t bytes = 2 * sets * sizeof s->cache[0];
    struct cache_entry *cache = tt_alloc_aligned(bytes);
    if (cache == NULL) return TT_ERR_MEMORY;
    memset(cache, 0, bytes);
    tt_free(s->cache);
    s->cache = cache;
    s->cache_sets = sets;
    s->cache_stores = 0;
    return TT_OK;
}

tt_status bpe_scratch_create(struct bpe_scratch **out)
{
    struct bpe_scratch *scratch = tt_calloc(1, sizeof *scratch);
    if (scratch == NULL) return TT_ERR_MEMORY;
    tt_status status = resize_cache(scratch, CACHE_SETS_FIRST);
    if (status != TT_OK) {
        tt_free(scratch);
        return status;
    }
    *out = scratch;
    return TT_OK;
}

void bpe_scratch_destroy(struct bpe_scratch *scratch)
{
    if (scratch == NULL) return;
    tt_free(scratch->cache);
    tt_ids_deinit(&scratch->symbols);
    bpe_long_deinit(&scratch->merging);
    tt_str_deinit(&scratch->text);
    tt_str_deinit(&scratch->mapped);
    tt_ranges_deinit(&scratch->symbol_spans);
    tt_free(scratch);
}

/* Merges a short word in place, with a search for the best pair before each merge. Returns the number of remaining
 * symbols. */
static size_t merge_short(const struct bpe *bpe, int32_t *symbols, size_t count)
{
    uint32_t ranks[SHORT_WORD];
    int32_t joined[SHORT_WORD];
    for (size_t i = 0; i + 1 < count; i++) {
        const struct bpe_merge *merge = find_merge(bpe, symbols[i], symbols[i + 1]);
        ranks[i] = merge == NULL ? UINT32_MAX : merge->rank;
        joined[i] = merge == NULL ? -1 : merge->id;
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++) {
            if (ranks[i] < ranks[best]) best = i;
        }
        if (ranks[best] == UINT32_MAX) break;
        symbols[best] = joined[best];
        count--;
        size_t behind = count - best - 1;
        memmove(symbols + best + 1, symbols + best + 2, behind * sizeof symbols[0]);
        memmove(ranks + best, ranks + best + 1, behind * sizeof ranks[0]);
        memmove(joined + best, joined + best + 1, behind * sizeof joined[0]);
        for (size_t i = best == 0 ? 0 : best - 1; i <= best && i + 1 < count; i++) {
            const struct bpe_merge *merge = find_merge(bpe, symbols[i], symbols[i + 1]);
            ranks[i] = merge == NULL ? UINT32_MAX : merge->rank;
            joined[i] = merge == NULL ? -1 : merge->id;
        }
    }
    return count;
}

/* Unknown characters that are not written yet. */
struct pending {
    bool any;
    struct tt_byte_range range;
};

/* Appends a symbol; with `spans`, also the bytes of the word that it stands for. */
static inline tt_status append_symbol(struct bpe_scratch *s, int32_t id, size_t begin, size_t end)
{
    if (s->spans != NULL)
        TT_TRY(tt_ranges_append(s->spans, (struct tt_byte_range){(uint32_t)begin, (uint32_t)end}));
    return tt_ids_append(&s->symbols, id);
}

/* Writes the pending unknown characters as one unk token. */
static tt_status write_pending(const struct bpe *bpe, struct bpe_scratch *s, const struct pending *pending)
{
    return pending->any ? append_symbol(s, bpe->unk_id, pending->range.begin, pending->range.end) : TT_OK;
}

static tt_status add_unknown(const struct bpe *bpe, struct bpe_scratch *s, size_t begin, size_t end,
                             struct pending *pending)
{
    if (bpe->unk_token == NULL) return TT_OK;
    if (bpe->unk_id < 0) {
        return tt_fail(TT_ERR_DATA, "unk_token '%s' is needed and not in the vocabulary", bpe->unk_token);
    }
    if (!bpe->fuse_unk) TT_TRY(write_pending(bpe, s, pending));
    if (!pending->any || !bpe->fuse_unk) pending->range.begin = (uint32_t)begin;
    pending->range.end = (uint32_t)end;
    pending->any = true;
    return TT_OK;
}

/* The symbol of one character (with prefix and suffix), its bytes' symbols, or an unknown one. Bytes do not end a run
 * of unknown characters, which is written after them, as by the reference. */
static tt_status add_symbol(const struct bpe *bpe, struct bpe_scratch *s, struct tt_span character,
                            size_t begin, size_t end, struct pending *pending)
{
    const char *data = character.data;
    size_t bytes = character.bytes;
    int32_t id = vocab_id(&bpe->vocab, data, bytes);
    if (id >= 0) {
        TT_TRY(write_pending(bpe, s, pending));
        pending->any = false;
        return append_symbol(s, id, begin, end);
    }
    bool fallback = bpe->byte_fallback;
    for (size_t i = 0; fallback && i < bytes; i++) fallback = bpe->fallback_ids[(unsigned char)data[i]] >= 0;
    if (!fallback) return add_unknown(bpe, s, begin, end, pending);
    /* Where the bytes are those of the word, each stands for its own. */
    bool own = bytes == end - begin;
    for (size_t i = 0; i < bytes; i++) {
        TT_TRY(append_symbol(s, bpe->fallback_ids[(unsigned char)data[i]], own ? begin + i : begin,
                             own ? begin + i + 1 : end));
    }
    return TT_OK;
}

static tt_status split_characters(const struct bpe *bpe, struct bpe_scratch *s, const char *word,
                                  size_t bytes)
{
    struct pending pending = {0};
    for (size_t at = 0; at < bytes;) {
        size_t length = tt_utf8_length((unsigned char)word[at]);
        bool prefix = bpe->prefix != NULL && at > 0, suffix = bpe->suffix != NULL && at + length == bytes;
        struct tt_span character = bpe_character(bpe, word + at, length);
        if (prefix || suffix) {
            tt_str_clear(&s->text);
            if (prefix) TT_TRY(tt_str_append_text(&s->text, bpe->prefix));
            TT_TRY(tt_str_append(&s->text, character.data, character.bytes));
            if (suffix) TT_TRY(tt_str_append_text(&s->text, bpe->suffix));
            character = (struct tt_span){s->text.data, s->text.bytes};
        }
        TT_TRY(add_symbol(bpe, s, character, at, at + length, &pending));
        at += length;
    }
    return write_pending(bpe, s, &pending);
}

static tt_status map_bytes(struct bpe_scratch *s, const char *word, size_t bytes)
{
    tt_str_clear(&s->mapped);
    for (size_t i = 0; i < bytes; i++) {
        char encoded[4];
        size_t length = tt_utf8_encode(byte_level_code((unsigned char)word[i]), encoded);
        TT_TRY(tt_str_append(&s->mapped, encoded, length));
    }
    return TT_OK;
}

/* Spans in the mapped text, whose characters are the bytes of the word, become spans in the word. */
static void count_mapped(struct bpe_scratch *s)
{
    size_t at = 0, bytes = 0;
    for (size_t i = 0; s->spans != NULL && i < s->spans->count; i++) {
        uint32_t *borders[] = {&s->spans->data[i].begin, &s->spans->data[i].end};
        for (int side = 0; side < 2; side++) {
            if (*borders[side] < at) at = bytes = 0;
            for (; at < *borders[side]; bytes++) at += tt_utf8_length((unsigned char)s->mapped.data[at]);
            *borders[side] = (uint32_t)bytes;
        }
    }
}

tt_status bpe_split_word(const struct bpe *bpe, struct bpe_scratch *s, const char *word, size_t bytes)
{
    s->symbols.count = 0;
    if (!bpe->byte_level) return split_characters(bpe, s, word, bytes);
    for (size_t i = 0; i < bytes; i++) {
        int32_t id = bpe->byte_level_ids[(unsigned char)word[i]];
        if (id < 0) {
            s->symbols.count = 0;
            if (s->spans != NULL) s->spans->count = 0;
            TT_TRY(map_bytes(s, word, bytes));
            TT_TRY(split_characters(bpe, s, s->mapped.data, s->mapped.bytes));
            count_mapped(s);
            return TT_OK;
        }
        TT_TRY(append_symbol(s, id, i, i + 1));
    }
    return TT_OK;
}

int32_t bpe_whole_word_id(const struct bpe *bpe, struct bpe_scratch *s, const char *word, size_t bytes,
                          tt_status *status)
{
    *status = TT_OK;
    /* No token is as long as a window. */
    if (!bpe->ignore_merges || bytes > WINDOW) return -1;
    if (!bpe->byte_level) return vocab_id(&bpe->vocab, word, bytes);
    *status = map_bytes(s, word, bytes);
    return *status == TT_OK ? vocab_id(&bpe->vocab, s->mapped.data, s->mapped.bytes) : -1;
}

/* Computes the ids of one word into s->symbols. `whole`: a token equal to the whole word takes precedence over merging.
 */
static tt_status compute(const struct bpe *bpe, struct bpe_scratch *s, const char *word, size_t bytes,
                         bool whole)
{
    tt_status status = TT_OK;
    int32_t id = whole ? bpe_whole_word_id(bpe, s, word, bytes, &status) : -1;
    TT_TRY(status);
    if (id >= 0) {
        s->symbols.count = 0;
        return tt_ids_append(&s->symbols, id);
    }
    TT_TRY(bpe_split_word(bpe, s, word, bytes));
    if (s->symbols.count < 2) return TT_OK;
    if (s->symbols.count <= SHORT_WORD) {
        s->symbols.count = merge_short(bpe, s->symbols.data, s->symbols.count);
        return TT_OK;
    }
    return bpe_merge_long(bpe, &s->merging, s->symbols.data, &s->symbols.count);
}

static tt_status reserve_ids(struct tt_ids *ids, size_t more)
{
    if (ids->capacity - ids->count >= more) return TT_OK;
    size_t wanted = ids->capacity * 2 > ids->count + more ? ids->capacity * 2 : ids->count + more;
    int32_t *grown = tt_realloc(ids->data, wanted, sizeof *grown);
    if (grown == NULL) return TT_ERR_MEMORY;
    ids->data = grown;
    ids->capacity = wanted;
    return TT_OK;
}

static tt_status append_symbols(const struct bpe_scratch *s, struct tt_ids *ids)
{
    if (s->symbols.count == 0) return TT_OK;
    TT_TRY(reserve_ids(ids, s->symbols.count));
    memcpy(ids->data + ids->count, s->symbols.data, s->symbols.count * sizeof ids->data[0]);
    ids->count += s->symbols.count;
    tt_ids_clip(ids);
    return TT_OK;
}

/* Up to 8 bytes as a number, without reading past them. */
static inline uint64_t load_bytes(const char *data, size_t bytes)
{
    uint64_t word = 0;
    uint32_t low, high;
    uint16_t pair;
    if (bytes >= 8) {
        memcpy(&word, data, 8);
    } else if (bytes >= 4) {
        memcpy(&low, data, 4);
        memcpy(&high, data + bytes - 4, 4);
        word = low | (uint64_t)high << 8 * (bytes - 4);
    } else if (bytes >= 2) {
        memcpy(&pair, data, 2);
        word = pair | (uint64_t)(unsigned char)data[bytes - 1] << 8 * (bytes - 1);
    } else if (bytes == 1) {
        word = (unsigned char)data[0];
    }
    return word;
}

/* One word through the cache. */
static tt_status encode_word(const struct bpe *bpe, struct bpe_scratch *s, const char *word, size_t bytes,
                             bool whole, struct tt_ids *ids)
{
    if (bytes > WINDOW && bpe->parts_are_free) {
        bool done;
        struct bpe_word parts = {bpe,  s,     &s->merging, &s->symbols, bpe_split_word,
                                 word, bytes, WINDOW,      OVERLAP};
        TT_TRY(bpe_encode_windows(&parts, ids, &done));
        if (done) return TT_OK;
    }
    if (bytes > CACHE_WORD_BYTES) {
        TT_TRY(compute(bpe, s, word, bytes, whole));
        return append_symbols(s, ids);
    }
    uint64_t a = load_bytes(word, bytes);
    uint64_t b = bytes > 8 ? load_bytes(word + 8, bytes - 8) : 0;
    uint64_t c = bytes > 16 ? load_bytes(word + 16, bytes - 16) : 0;
    uint64_t hash = (a ^ bytes) * UINT64_C(0x9E3779B97F4A7C15) + b * UINT64_C(0xC2B2AE3D27D4EB4F) +
                    c * UINT64_C(0x165667B19E3779F9);
    hash ^= hash >> 32;
    hash *= UINT64_C(0xFF51AFD7ED558CCD);
    struct cache_entry *set = &s->cache[2 * (hash >> 40 & (s->cache_sets - 1))];
    for (int way = 0; way < 2; way++) {
        const struct cache_entry *entry = &set[way];
        if (entry->word[0] != a || entry->bytes != bytes || entry->word[1] != b || entry->word[2] != c)
            continue;
        TT_TRY(reserve_ids(ids, CACHE_IDS));
        memcpy(ids->data + ids->count, entry->ids, sizeof entry->ids);
        ids->count += entry->count;
        tt_ids_clip(ids);
        return TT_OK;
    }
    TT_TRY(compute(bpe, s, word, bytes, whole));
    TT_TRY(append_symbols(s, ids));
    if (s->symbols.count > CACHE_IDS) return TT_OK;
    /* The newest word becomes the first entry, the older of the two is dropped. */
    set[1] = set[0];
    set[0] = (struct cache_entry){{a, b, c}, (uint8_t)bytes, (uint8_t)s->symbols.count, {0}};
    if (s->symbols.count > 0) memcpy(set[0].ids, s->symbols.data, s->symbols.count * sizeof set[0].ids[0]);
    bool grow = ++s->cache_stores > 2 * s->cache_sets && s->cache_sets < CACHE_SETS;
    return grow ? resize_cache(s, CACHE_SETS) : TT_OK;
}

size_t bpe_metaspace_bytes(const struct bpe *bpe, const char *word, size_t bytes, size_t at)
{
    if (word[at] == ' ') return bpe->blank_is_metaspace;
    bool found = word[at] == TT_METASPACE[0] && begins_with_space(word + at, bytes - at);
    return found ? strlen(TT_METASPACE) : 0;
}

/* A word is a whole text where there is no pre-tokenizer. Where no merge crosses the border between a character and a
 * following U+2581, the parts are independent and can be merged (and cached) one by one. */
static tt_status encode_parts(const struct bpe *bpe, struct bpe_scratch *s, const char *word, size_t bytes,
                              struct tt_ids *ids)
{
    size_t start = 0, at = 0, width;
    while (at < bytes) {
        if (bpe_metaspace_bytes(bpe, word, bytes, at) == 0) {
            at++;
            continue;
        }
        if (at > start) {
            TT_TRY(encode_word(bpe, s, word + start, at - start, false, ids));
            start = at;
        }
        while (at < bytes && (width = bpe_metaspace_bytes(bpe, word, bytes, at)) > 0) at += width;
    }
    return start < bytes ? encode_word(bpe, s, word + start, bytes - start, false, ids) : TT_OK;
}

tt_status bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t bytes,
                     struct tt_ids *ids)
{
    if (!bpe->cuts_at_metaspace) return encode_word(bpe, scratch, word, bytes, true, ids);
    tt_status status = TT_OK;
    int32_t id = bpe_whole_word_id(bpe, scratch, word, bytes, &status);
    TT_TRY(status);
    if (id >= 0) return tt_ids_append(ids, id);
    return encode_parts(bpe, scratch, word, bytes, ids);
}
