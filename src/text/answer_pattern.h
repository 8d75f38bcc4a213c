/* Regular expressions that take an answer out of a text, as evaluations write them for Python: re.findall, and one of
 * its matches. Run by PCRE2, whose syntax has Python's. */
#ifndef TT_TEXT_ANSWER_PATTERN_H
#define TT_TEXT_ANSWER_PATTERN_H

#include "base/error.h"
#include "base/str.h"

struct tt_answer_pattern;

/* TT_ERR_DATA for a pattern that is none. */
TT_MUST_USE tt_status tt_answer_pattern_compile(struct tt_span pattern, struct tt_answer_pattern **out);
void tt_answer_pattern_destroy(struct tt_answer_pattern *pattern); /* takes NULL */
/* Match number `which` of all, from 0, or from the last one, -1: of a pattern with groups its first group that is not
 * empty, else the whole of it. *any: there is such a match. *found is a part of `text`, which is valid UTF-8. A pattern
 * that takes too many steps is TT_ERR_DATA. */
TT_MUST_USE tt_status tt_answer_pattern_find(const struct tt_answer_pattern *pattern, struct tt_span text,
                                             int64_t which, struct tt_span *found, bool *any);

#endif
