/* Regular expressions (PCRE2) that must match a whole text, as Python's re.fullmatch. The work of one match is bounded:
 * runaway backtracking is an error, not a hang. */
#ifndef TT_BASE_REGEX_H
#define TT_BASE_REGEX_H

#include <stdbool.h>
#include "base/error.h"

struct tt_regex;

/* TT_ERR_USAGE names the expression and the position of the mistake. */
TT_MUST_USE tt_status tt_regex_compile(const char *expression, struct tt_regex **out);
void tt_regex_destroy(struct tt_regex *regex); /* takes NULL */
TT_MUST_USE tt_status tt_regex_fullmatch(const struct tt_regex *regex, const char *text, bool *matched);

#endif
