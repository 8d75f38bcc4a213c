/* Sets of characters in the pattern translator; see pattern.h. Internal to pattern_*.c. */
#ifndef TT_TEXT_PATTERN_CLASS_H
#define TT_TEXT_PATTERN_CLASS_H

#include <stdint.h>
#include "base/str.h"

struct pattern_reader {
    const char *text; /* valid UTF-8 */
    size_t at, bytes;
    bool fold; /* (?i) is active: case is ignored */
};

/* Which other cases of its characters a set contains. */
enum pattern_fold {
    PATTERN_FOLD_CHANGES, /* not all of them */
    PATTERN_FOLD_CLOSED,  /* all, and no character folds to several */
    PATTERN_FOLD_LETTERS, /* \p{L}: all except U+0345 */
};

/* A set: the characters of `items` that are not in `without`; both are contents of PCRE2's brackets. */
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
/* Adds the named set; the name is in lower case, without spaces, hyphens and underscores. */
TT_MUST_USE tt_status pattern_append_named_set(const struct pattern_reader *reader, const char *name,
                                               struct pattern_set *set);

/* Reads an escape of one character after its backslash; *code is -1, and nothing is read, when it is not one. */
TT_MUST_USE tt_status pattern_take_code_escape(struct pattern_reader *reader, int32_t *code);
/* Reads d D s S w W h H p P after a backslash; *found is false, and nothing is read, when it is none of them. */
TT_MUST_USE tt_status pattern_take_set_escape(struct pattern_reader *reader, struct pattern_set *set,
                                              bool *found);
/* Reads a bracket expression after its '[' and appends an expression that matches one character. */
TT_MUST_USE tt_status pattern_take_class(struct pattern_reader *reader, struct tt_str *out);
/* Appends the expression of a set: "[items]" or "[^items]". */
TT_MUST_USE tt_status pattern_append_set(struct tt_str *out, const struct pattern_set *set);
/* The same for a set outside of brackets, where \w contains more characters. */
TT_MUST_USE tt_status pattern_append_lone_set(struct tt_str *out, struct pattern_set *set);
/* The items of \w outside of brackets. */
TT_MUST_USE tt_status pattern_word_items(struct tt_str *items);

#endif
