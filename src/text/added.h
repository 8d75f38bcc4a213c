/* Added tokens: matched in the text before the model's tokens, leftmost first, and of those that begin at the
 * same position the longest. Matching is linear in the text: an Aho-Corasick automaton of the reversed tokens
 * runs over the text from its end and yields at each position the longest token that begins there ("Efficient
 * string matching: an aid to bibliographic search", Aho and Corasick, 1975). */
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

/* A search in one text; a zeroed struct is a search that has not begun. Matches of one block of the text at a
 * time are stored, because a text may consist of added tokens alone. */
struct added_matches {
    /* owned: matches of the block that are still to be returned, the first one last */
    struct added_match *data;
    size_t count, capacity;
    size_t block; /* start of the next block */
    size_t taken; /* end of the last match returned */
};

struct added_finder {
    struct added_edge *edges; /* hash table of (state, byte) -> state */
    size_t edge_slots;
    struct added_state *states; /* [0] is the root */
    size_t state_count, state_capacity;
    size_t longest;          /* pattern, in bytes */
    bool first[256];         /* bytes that lead away from the root */
    bool blank_is_metaspace; /* a blank of the text matches U+2581 */
};

/* Patterns must not be empty. Of two equal patterns the first counts. */
TT_MUST_USE tt_status added_finder_build(struct added_finder *finder, const struct added_pattern *patterns,
                                         size_t count);
void added_finder_deinit(struct added_finder *finder);
/* A blank of the text matches U+2581 from now on; patterns must not contain blanks. */
void added_finder_take_blanks(struct added_finder *finder);
void added_matches_restart(struct added_matches *matches);
/* Returns the matches in the text, in order and without overlap; match->bytes is 0 after the last one. */
TT_MUST_USE tt_status added_finder_next(const struct added_finder *finder, const char *text, size_t bytes,
                                        struct added_matches *matches, struct added_match *match);

#endif
