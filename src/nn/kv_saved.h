/* Private header of the key/value cache: which beginnings of sequences have a saved state. A beginning may be held by
 * several sequences, whose first tokens are then the same; one that no sequence holds is free. The states themselves
 * are those of nn/kv_states.h behind the ones of the sequences. */
#ifndef TT_NN_KV_SAVED_H
#define TT_NN_KV_SAVED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct tt_kv_beginning {
    int64_t length;    /* tokens */
    int64_t last_used; /* 0: free */
};
struct tt_kv_saved { /* zeroed: empty */
    struct tt_kv_beginning *items;
    bool *holders; /* [count][sequences] */
    int64_t count, sequences, uses;
};

TT_MUST_USE tt_status tt_kv_saved_init(struct tt_kv_saved *saved, int64_t count, int64_t sequences);
void tt_kv_saved_deinit(struct tt_kv_saved *saved);
/* The longest saved beginning of `sequence` of at most `length` tokens; -1: none. */
int64_t tt_kv_saved_find(const struct tt_kv_saved *saved, int64_t sequence, int64_t length);
/* A place for the beginning of `length` tokens of `sequence`: its own, a free one, or that used longest ago, which is
 * then lost. -1: there are no places. */
int64_t tt_kv_saved_take(struct tt_kv_saved *saved, int64_t sequence, int64_t length);
void tt_kv_saved_use(struct tt_kv_saved *saved, int64_t item);
/* `sequence` has lost its tokens from `length` on. */
void tt_kv_saved_drop(struct tt_kv_saved *saved, int64_t sequence, int64_t length);
/* The first `length` tokens of `to` have become those of `from`. */
void tt_kv_saved_share(struct tt_kv_saved *saved, int64_t from, int64_t to, int64_t length);

#endif
