/* Changes of single logits before a token is chosen: OpenAI's penalties, biases, and tokens that may not come (yet). As
 * lists for the op add_logits, which are made anew for each token. */
#ifndef TT_INFER_ADJUST_H
#define TT_INFER_ADJUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/ids.h"

enum { TT_LOGIT_BIASES_MAX = 1024 };

struct tt_logit_bias {
    int32_t id;
    float value; /* -infinity: never */
};

/* A zeroed struct changes nothing. */
struct tt_adjust_options {
    /* OpenAI's: c > 0 times in the answer so far: the logit less c * frequency, less presence. */
    double presence, frequency;
    int64_t min_tokens;               /* before this many, no token ends the answer */
    const struct tt_logit_bias *bias; /* lent; no id twice */
    size_t bias_count;                /* at most TT_LOGIT_BIASES_MAX */
};
bool tt_adjust_is_needed(const struct tt_adjust_options *options);
/* TT_ERR_USAGE for values out of range; `vocab`: of the ids. */
TT_MUST_USE tt_status tt_adjust_check(const struct tt_adjust_options *options, int64_t vocab);

/* The state of one request. A zeroed struct is empty. */
struct tt_adjustment {
    double presence, frequency;
    int64_t min_tokens;
    struct tt_logit_bias *bias; /* owned, by ascending id */
    size_t bias_count;
    /* ids of the answer, by ascending id, and how often each is there */
    struct tt_id_count {
        int32_t id, count;
    } * counts;
    size_t count, capacity;
};
/* Copies the options, and takes the memory of an answer of `new_tokens`. */
TT_MUST_USE tt_status tt_adjustment_init(struct tt_adjustment *adjustment,
                                         const struct tt_adjust_options *options, int64_t new_tokens);
void tt_adjustment_deinit(struct tt_adjustment *adjustment);
/* Counts a token of the answer. */
void tt_adjustment_count(struct tt_adjustment *adjustment, int32_t id);

/* The list of a pass. */
struct tt_adjust_list {
    int32_t *rows, *ids;
    float *values;
    size_t count, capacity;
};
/* Entries that one request can have, at most. */
size_t tt_adjust_entries_max(int64_t new_tokens, size_t end_count);
TT_MUST_USE tt_status tt_adjust_list_init(struct tt_adjust_list *list, size_t capacity);
void tt_adjust_list_deinit(struct tt_adjust_list *list);
/* Adds the entries of a request for the logits in `row`, before new token number `made` is chosen. `ends` are the ids
 * that would end the answer. The list has room. */
void tt_adjust_list_add(struct tt_adjust_list *list, const struct tt_adjustment *adjustment, int64_t row,
                        size_t made, const struct tt_ids *const *ends, size_t end_lists);

#endif
