/* The parts of the pattern translator that deal with sets of characters; see pattern.h. Internal to
 * pattern_*.c. */
#ifndef TT_TEXT_PATTERN_CLASS_H
#define TT_TEXT_PATTERN_CLASS_H

#include <stdint.h>
#include "base/str.h"

struct pattern_reader {
    const char *text; /* valid UTF-8 */
    size_t at, bytes;
    bool fold; /* case is ignored here: (?i) */
};

/* What a set holds of the other cases of its characters. */
enum pattern_fold {
    PATTERN_FOLD_CHANGES, /* not all */
    PATTERN_FOLD_CLOSED,  /* all, and no character that folds to several */
    PATTERN_FOLD_LETTERS, /* \p{L}: all but U+0345 */
};

/* A set: the characters of `items` but not of `without`; both stand inside PCRE2's brackets. */
struct pattern_set {
    struct tt_str items, without;
    bool negated;
    bool is_word; /* \w, \W or \p{Word} */
    enum pattern_fold fold;
};
void pattern_set_deinit(struct pattern_set *set);

TT_MUST_USE tt_status pattern_unsupported(const struct pattern_reader *reader, const char *what);
int32_t pattern_peek(const struct pattern_reader *reader); /* -1 at the end */
int32_t pattern_take(struct pattern_reader *reader);       /* -1 at the end */
bool pattern_accept(struct pattern_reader *reader, const char *text);

/* Appends "\x{first}-\x{last}". */
TT_MUST_USE tt_status pattern_append_range(struct tt_str *items, int32_t first, int32_t last);
/* Adds the set of that name, in lower case and without spaces, hyphens and underscores. */
TT_MUST_USE tt_status pattern_append_named_set(const struct pattern_reader *reader, const char *name,
                                               struct pattern_set *set);

/* Reads what follows a backslash and names one character; *code is -1 when it is no such escape (nothing is
 * read). */
TT_MUST_USE tt_status pattern_take_code_escape(struct pattern_reader *reader, int32_t *code);
/* Reads d D s S w W h H p P after a backslash; *found is false when it is none of them (nothing is read). */
TT_MUST_USE tt_status pattern_take_set_escape(struct pattern_reader *reader, struct pattern_set *set,
                                              bool *found);
/* Reads a bracket expression whose '[' has been read and appends an expression that matches one character. */
TT_MUST_USE tt_status pattern_take_class(struct pattern_reader *reader, struct tt_str *out);
/* Appends the expression of a set: "[items]" or "[^items]". */
TT_MUST_USE tt_status pattern_append_set(struct tt_str *out, const struct pattern_set *set);
/* The same for a set outside of brackets, where \w holds more. */
TT_MUST_USE tt_status pattern_append_lone_set(struct tt_str *out, struct pattern_set *set);
/* The items of \w outside of brackets. */
TT_MUST_USE tt_status pattern_word_items(struct tt_str *items);

#endif
