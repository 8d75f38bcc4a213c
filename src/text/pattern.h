/* Regular expressions of tokenizer.json: Oniguruma's default syntax, run by PCRE2 (docs/dependencies.md has the reasons
 * against Oniguruma).
 *
 * tt_pattern_translate rewrites a pattern so that PCRE2 gives it the same meaning: \s, \w, \h, \v and \p{..} follow
 * Oniguruma's definitions and Unicode 16, classes may nest and intersect, {n,m}+ is a repetition and not possessive,
 * ^ and $ are line anchors. Syntax without a counterpart is TT_ERR_UNSUPPORTED. Sources: Oniguruma's doc/RE and
 * doc/SYNTAX.md, pcre2pattern(3).
 *
 * A tt_pattern is immutable and shared; each thread has its own runner. A runner limits the steps of each match and of
 * all matches together; a pattern that exceeds them is TT_ERR_DATA.
 */
#ifndef TT_TEXT_PATTERN_H
#define TT_TEXT_PATTERN_H

#include "base/str.h"

struct tt_pattern;
struct tt_pattern_runner;

TT_MUST_USE tt_status tt_pattern_translate(const char *pattern, size_t bytes, struct tt_str *out);
TT_MUST_USE tt_status tt_pattern_compile(const char *pattern, size_t bytes, struct tt_pattern **out);
/* Makes a pattern that matches exactly `text`. */
TT_MUST_USE tt_status tt_pattern_compile_literal(const char *text, size_t bytes, struct tt_pattern **out);
void tt_pattern_destroy(struct tt_pattern *regex); /* takes NULL */
/* Whether a match may be empty. */
bool tt_pattern_matches_empty(const struct tt_pattern *regex);
/* Whether it matches exactly the literal `text`. */
bool tt_pattern_is_literal(const struct tt_pattern *regex, const char *text);
/* Whether it is a literal of one character. */
bool tt_pattern_is_character(const struct tt_pattern *regex);

TT_MUST_USE tt_status tt_pattern_runner_create(struct tt_pattern_runner **out);
void tt_pattern_runner_destroy(struct tt_pattern_runner *runner); /* takes NULL */
/* Sets the budget of steps for a text of `bytes` bytes. */
void tt_pattern_runner_reset(struct tt_pattern_runner *runner, size_t bytes);

/* Iterates over all matches in valid UTF-8 text; an empty match directly after a match is skipped. */
struct tt_pattern_iterator {
    const char *text;
    size_t bytes;
    size_t at;
    size_t last_end; /* SIZE_MAX before the first match */
};
struct tt_pattern_iterator tt_pattern_matches(const char *text, size_t bytes);
/* Stores the next match in *start and *end; *found is false when there is none. */
TT_MUST_USE tt_status tt_pattern_next(const struct tt_pattern *regex, struct tt_pattern_runner *runner,
                                      struct tt_pattern_iterator *iterator, size_t *start, size_t *end,
                                      bool *found);

#endif
