/* Token strings and their ids, in both directions. Strings are bytes (zero bytes included), owned by the
 * vocabulary. */
#ifndef TT_TEXT_VOCAB_H
#define TT_TEXT_VOCAB_H

#include <stdint.h>
#include "base/arena.h"
#include "base/str.h"

struct vocab_token {
    const char *data; /* terminated */
    uint32_t bytes;
    int32_t id;
};

struct vocab {
    struct tt_arena strings;
    struct vocab_token *tokens; /* in order of insertion until vocab_finish, by id after it */
    size_t count, capacity;
    uint32_t *slots; /* open addressing: index + 1 into tokens, 0 = free */
    size_t slot_count;
};

void vocab_deinit(struct vocab *vocab);
/* The token must be new: TT_ERR_DATA otherwise. */
TT_MUST_USE tt_status vocab_add(struct vocab *vocab, const char *data, size_t bytes, int32_t id);
/* Sorts by id; TT_ERR_DATA when two tokens share one. */
TT_MUST_USE tt_status vocab_finish(struct vocab *vocab);
int32_t vocab_id(const struct vocab *vocab, const char *data, size_t bytes); /* -1: none */
/* NULL: none; after vocab_finish */
const struct vocab_token *vocab_find(const struct vocab *vocab, int32_t id);

#endif
