/* Added tokens: found in the text before the model sees it, leftmost first and the longest of those that
 * begin at one place. Matching is linear in the text: an Aho-Corasick automaton of the reversed tokens runs
 * over the text from its end, so that at each place it knows the longest token that begins there ("Efficient
 * string matching: an aid to bibliographic search", Aho and Corasick, 1975).
 */
#ifndef TT_TEXT_ADDED_H
#define TT_TEXT_ADDED_H

#include <stdint.h>
#include "base/str.h"

struct added_pattern {
    const char *data; /* borrowed until added_finder_build returns */
    size_t bytes;
    int32_t id;
};

struct added_match {
    uint32_t start, bytes;
    int32_t id;
};

/* A growing list of matches; a zeroed struct is empty. */
struct added_matches {
    struct added_match *data;
    size_t count, capacity;
};

struct added_finder {
    struct added_edge *edges; /* hash table of (state, byte) -> state */
    size_t edge_slots;
    struct added_state *states; /* [0] is the root */
    size_t state_count, state_capacity;
    bool first[256]; /* bytes that lead away from the root */
};

/* Empty patterns must not be given. Of two equal patterns the first counts. */
TT_MUST_USE tt_status added_finder_build(struct added_finder *finder, const struct added_pattern *patterns,
                                         size_t count);
void added_finder_deinit(struct added_finder *finder);
/* Replaces `matches` by those in the text, in order, none overlapping. */
TT_MUST_USE tt_status added_finder_find(const struct added_finder *finder, const char *text, size_t bytes,
                                        struct added_matches *matches);

#endif
