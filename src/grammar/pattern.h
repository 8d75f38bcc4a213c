/* Regular expressions of JSON Schema, which are ECMA-262's, as automata. Supported: literals, escapes of characters
 * and code points, `.`, classes with \d \w \s and their opposites, groups, alternatives, all quantifiers, ^ and $
 * anywhere. Assertions of other kinds, back references, properties and flags are TT_ERR_USAGE: they are never
 * passed over. `.` takes no line end, \d and \w are those of ASCII. Internal to src/grammar. */
#ifndef TT_GRAMMAR_PATTERN_H
#define TT_GRAMMAR_PATTERN_H

#include "grammar/dfa.h"

struct pattern_options {
    bool json;   /* over the body of a JSON string instead of a text */
    bool search; /* a match anywhere in it, as the keyword `pattern` has it, instead of the whole */
};

/* *out is empty where nothing matches. */
void pattern_compile(struct grammar_work *work, struct tt_span pattern, const struct pattern_options *options,
                     struct dfa *out);

#endif
