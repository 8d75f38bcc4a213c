/* Long words: merging with a heap, and window by window.
 *
 * Why windows give the same ids: call the ids of a text its encoding. Two neighbouring tokens of an encoding
 * are the encoding of their own text, since merges are done by rank and then from the left, and those of
 * other tokens do not touch these two. Conversely a list of tokens each pair of which is the encoding of its
 * own text is the encoding of the whole: the first merge across a border between two of them would also have
 * been done in the text of those two alone. So where the encodings of two windows that overlap have one token
 * in common, at one place, the tokens of the first before it, the token, and the tokens of the second after
 * it are the encoding of both windows together. */
#include "base/alloc.h"
#include "text/bpe_impl.h"
#include "text/unicode.h"

void bpe_long_deinit(struct bpe_long *s)
{
    tt_free(s->links);
    tt_free(s->heap);
    tt_ids_deinit(&s->tokens);
    tt_ids_deinit(&s->begins);
}

static void sift_down(uint64_t *heap, size_t count, size_t at)
{
    uint64_t value = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count) break;
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= value) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = value;
}

static void heap_push(struct bpe_long *s, uint64_t value)
{
    size_t at = s->heap_count++;
    while (at > 0 && s->heap[(at - 1) / 2] > value) {
        s->heap[at] = s->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->heap[at] = value;
}

static uint64_t heap_pop(struct bpe_long *s)
{
    uint64_t top = s->heap[0];
    s->heap[0] = s->heap[--s->heap_count];
    if (s->heap_count > 0) sift_down(s->heap, s->heap_count, 0);
    return top;
}

static tt_status reserve_long(struct bpe_long *s, size_t count)
{
    if (count <= s->link_capacity) return TT_OK;
    uint32_t *links = tt_realloc(s->links, count, 2 * sizeof *links);
    if (links == NULL) return TT_ERR_MEMORY;
    s->links = links;
    /* A merge takes one entry away and adds at most two, and there are fewer than `count` merges. */
    uint64_t *heap = tt_realloc(s->heap, count, 2 * sizeof *heap);
    if (heap == NULL) return TT_ERR_MEMORY;
    s->heap = heap;
    s->link_capacity = count;
    return TT_OK;
}

static void push_pair(const struct bpe *bpe, struct bpe_long *s, const int32_t *symbols, uint32_t left,
                      uint32_t right)
{
    const struct bpe_merge *merge = find_merge(bpe, symbols[left], symbols[right]);
    if (merge != NULL) heap_push(s, (uint64_t)merge->rank << 32 | left);
}

/* Merges a word of any length in place with a heap of pairs; stale entries are dropped at the top of the heap. */
tt_status bpe_merge_long(const struct bpe *bpe, struct bpe_long *s, int32_t *symbols, size_t *count_inout)
{
    size_t count = *count_inout;
    TT_TRY(reserve_long(s, count));
    uint32_t *previous = s->links, *next = s->links + count;
    s->heap_count = 0;
    for (size_t i = 0; i < count; i++) {
        previous[i] = i == 0 ? UINT32_MAX : (uint32_t)i - 1;
        next[i] = i + 1 == count ? UINT32_MAX : (uint32_t)i + 1;
        const struct bpe_merge *merge = i + 1 == count ? NULL : find_merge(bpe, symbols[i], symbols[i + 1]);
        if (merge != NULL) s->heap[s->heap_count++] = (uint64_t)merge->rank << 32 | i;
    }
    for (size_t i = s->heap_count / 2; i-- > 0;) sift_down(s->heap, s->heap_count, i);
    while (s->heap_count > 0) {
        uint64_t top = heap_pop(s);
        uint32_t left = (uint32_t)top, right = next[left];
        if (symbols[left] < 0 || right == UINT32_MAX) continue;
        const struct bpe_merge *merge = find_merge(bpe, symbols[left], symbols[right]);
        if (merge == NULL || merge->rank != top >> 32) continue;
        symbols[left] = merge->id;
        symbols[right] = -1;
        next[left] = next[right];
        if (next[left] != UINT32_MAX) {
            previous[next[left]] = left;
            push_pair(bpe, s, symbols, left, next[left]);
        }
        if (previous[left] != UINT32_MAX) push_pair(bpe, s, symbols, previous[left], left);
    }
    /* The links are no longer used: they receive the start of each symbol. */
    s->starts = s->links;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (symbols[i] < 0) continue;
        s->starts[kept] = (uint32_t)i;
        symbols[kept++] = symbols[i];
    }
    *count_inout = kept;
    return TT_OK;
}

/* ---- Windows ---- */

/* Unknown bytes are dropped, or become one token together. */
static bool has_unknown(const struct bpe *bpe, const char *data, size_t bytes)
{
    bool unknown = false;
    for (size_t i = 0; i < bytes && bpe->byte_level; i++)
        unknown = unknown || bpe->byte_level_ids[(unsigned char)data[i]] < 0;
    return unknown;
}

/* Symbols of one character. */
static size_t symbols_of(const struct bpe *bpe, const char *data, size_t bytes)
{
    struct tt_span character = bpe_character(bpe, data, bytes);
    return bpe->byte_level || vocab_id(&bpe->vocab, character.data, character.bytes) >= 0 ? 1
                                                                                          : character.bytes;
}

/* Bytes of a window at `at`: whole characters. */
static size_t window_bytes(const struct bpe_word *word, size_t at)
{
    size_t left = word->bytes - at, bytes = word->window;
    if (left <= bytes) return left;
    while (bytes > 0 && ((unsigned char)word->data[at + bytes] & 0xC0) == 0x80) bytes--;
    return bytes;
}

/* The ids of a window, and their first symbols in merging->starts. */
static tt_status encode_window(const struct bpe_word *word, size_t at, size_t bytes)
{
    TT_TRY(word->split(word->bpe, word->scratch, word->data + at, bytes));
    return bpe_merge_long(word->bpe, word->merging, word->symbols->data, &word->symbols->count);
}

static tt_status keep_window(const struct bpe_word *word)
{
    struct bpe_long *s = word->merging;
    s->tokens.count = s->begins.count = 0;
    for (size_t i = 0; i < word->symbols->count; i++) {
        TT_TRY(tt_ids_append(&s->tokens, word->symbols->data[i]));
        TT_TRY(tt_ids_append(&s->begins, (int32_t)s->starts[i]));
    }
    return TT_OK;
}

/* The last border between two tokens of the previous window that is also a border between characters and leaves the
 * overlap behind it: its byte and its symbol. False: none in the second half. */
static bool find_border(const struct bpe_word *word, size_t at, size_t bytes, size_t *byte, size_t *symbol)
{
    const struct bpe_long *s = word->merging;
    size_t token = 0, symbols = 0, length;
    bool found = false;
    for (size_t i = 0; i + word->overlap < bytes; i += length) {
        while (token < s->begins.count && (size_t)s->begins.data[token] < symbols) token++;
        if (i > bytes / 2 && token < s->begins.count && (size_t)s->begins.data[token] == symbols) {
            found = true;
            *byte = i;
            *symbol = symbols;
        }
        length = word->bpe->byte_level ? 1 : tt_utf8_length((unsigned char)word->data[at + i]);
        symbols += symbols_of(word->bpe, word->data + at + i, length);
    }
    return found;
}

/* A token common to both windows: its index in each. The second begins at symbol `offset` of the first. */
static bool find_common(const struct bpe_word *word, size_t offset, size_t *first, size_t *second)
{
    const struct bpe_long *s = word->merging;
    size_t i = 0, j = 0;
    while (i + 1 < s->tokens.count && j + 1 < word->symbols->count) {
        size_t a = (size_t)s->begins.data[i], b = s->starts[j] + offset;
        if (a == b && s->tokens.data[i] == word->symbols->data[j] &&
            (size_t)s->begins.data[i + 1] == s->starts[j + 1] + offset) {
            *first = i;
            *second = j;
            return true;
        }
        if (a <= b) i++;
        if (b <= a) j++;
    }
    return false;
}

static tt_status append_tokens(struct tt_ids *ids, const int32_t *tokens, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) TT_TRY(tt_ids_append(ids, tokens[i]));
    return TT_OK;
}

tt_status bpe_encode_windows(const struct bpe_word *word, struct tt_ids *ids, bool *done)
{
    const struct tt_ids before = *ids;
    const struct bpe_long *s = word->merging;
    size_t at = 0, bytes = window_bytes(word, 0), from = 0, byte = 0, offset = 0, first = 0, second = 0;
    *done = !has_unknown(word->bpe, word->data, word->bytes);
    if (!*done) return TT_OK;
    TT_TRY(encode_window(word, at, bytes));
    while (at + bytes < word->bytes) {
        TT_TRY(keep_window(word));
        bool joined = find_border(word, at, bytes, &byte, &offset);
        if (joined) {
            at += byte;
            bytes = window_bytes(word, at);
            TT_TRY(encode_window(word, at, bytes));
            joined = find_common(word, offset, &first, &second) && first >= from;
        }
        if (!joined) {
            ids->count = before.count;
            ids->beyond = before.beyond;
            *done = false;
            return TT_OK;
        }
        TT_TRY(append_tokens(ids, s->tokens.data, from, first));
        from = second;
    }
    return append_tokens(ids, word->symbols->data, from, word->symbols->count);
}
