#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { TOKENS_MAX = UINT32_MAX / 4 };

void vocab_deinit(struct vocab *vocab)
{
    tt_arena_deinit(&vocab->strings);
    tt_free(vocab->tokens);
    tt_free(vocab->slots);
    *vocab = (struct vocab){0};
}

/* FNV-1a, eight bytes at a time, with the finalizer of MurmurHash3 so that the low bits depend on all. */
static uint64_t hash(const char *data, size_t bytes)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325) ^ bytes;
    for (; bytes >= 8; data += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    uint64_t rest = 0;
    memcpy(&rest, data, bytes);
    hash = (hash ^ rest) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 33;
    hash *= UINT64_C(0xFF51AFD7ED558CCD);
    return hash ^ hash >> 33;
}

/* The slot of the token, or the free slot for it. */
static size_t find_slot(const struct vocab *vocab, const char *data, size_t bytes)
{
    size_t mask = vocab->slot_count - 1;
    size_t slot = (size_t)hash(data, bytes) & mask;
    while (vocab->slots[slot] != 0) {
        const struct vocab_token *token = &vocab->tokens[vocab->slots[slot] - 1];
        if (token->bytes == bytes && memcmp(token->data, data, bytes) == 0) break;
        slot = (slot + 1) & mask;
    }
    return slot;
}

static tt_status rehash(struct vocab *vocab, size_t slot_count)
{
    uint32_t *slots = tt_calloc(slot_count, sizeof *slots);
    if (slots == NULL) return TT_ERR_MEMORY;
    tt_free(vocab->slots);
    vocab->slots = slots;
    vocab->slot_count = slot_count;
    for (size_t i = 0; i < vocab->count; i++) {
        slots[find_slot(vocab, vocab->tokens[i].data, vocab->tokens[i].bytes)] = (uint32_t)i + 1;
    }
    return TT_OK;
}

tt_status vocab_add(struct vocab *vocab, const char *data, size_t bytes, int32_t id)
{
    if (vocab->count >= TOKENS_MAX)
        return tt_fail(TT_ERR_DATA, "the vocabulary has more than %u tokens", (unsigned)TOKENS_MAX);
    if (bytes >= UINT32_MAX) return tt_fail(TT_ERR_DATA, "a token of the vocabulary has %zu bytes", bytes);
    if ((vocab->count + 1) * 2 > vocab->slot_count) {
        TT_TRY(rehash(vocab, vocab->slot_count == 0 ? 1024 : vocab->slot_count * 2));
    }
    size_t slot = find_slot(vocab, data, bytes);
    if (vocab->slots[slot] != 0) return tt_fail(TT_ERR_DATA, "token '%s' is listed twice", data);
    if (tt_grow(&vocab->tokens, vocab->count, &vocab->capacity) != 0) {
        return TT_ERR_MEMORY;
    }
    char *copy = tt_arena_alloc(&vocab->strings, bytes + 1);
    if (copy == NULL) return TT_ERR_MEMORY;
    memcpy(copy, data, bytes);
    vocab->tokens[vocab->count++] = (struct vocab_token){copy, (uint32_t)bytes, id};
    vocab->slots[slot] = (uint32_t)vocab->count;
    return TT_OK;
}

static int compare_ids(const void *a, const void *b)
{
    const struct vocab_token *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

tt_status vocab_finish(struct vocab *vocab)
{
    if (vocab->count == 0) return TT_OK;
    qsort(vocab->tokens, vocab->count, sizeof vocab->tokens[0], compare_ids);
    for (size_t i = 1; i < vocab->count; i++) {
        const struct vocab_token *a = &vocab->tokens[i - 1], *b = &vocab->tokens[i];
        if (a->id == b->id)
            return tt_fail(TT_ERR_DATA, "tokens '%s' and '%s' share id %d", a->data, b->data, a->id);
    }
    return rehash(vocab, vocab->slot_count);
}

int32_t vocab_id(const struct vocab *vocab, const char *data, size_t bytes)
{
    if (vocab->count == 0) return -1;
    uint32_t index = vocab->slots[find_slot(vocab, data, bytes)];
    return index == 0 ? -1 : vocab->tokens[index - 1].id;
}

const struct vocab_token *vocab_find(const struct vocab *vocab, int32_t id)
{
    if (id < 0 || vocab->count == 0) return NULL;
    /* Most vocabularies are dense and have holes only near the end: the token with that index has this id or a larger
     * one. */
    size_t low = 0, high = (size_t)id < vocab->count ? (size_t)id + 1 : vocab->count;
    if (high == (size_t)id + 1 && vocab->tokens[id].id == id) return &vocab->tokens[id];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (vocab->tokens[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < vocab->count && vocab->tokens[low].id == id ? &vocab->tokens[low] : NULL;
}
