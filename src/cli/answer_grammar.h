/* The grammar of the answers of a command, from its settings. */
#ifndef TT_CLI_ANSWER_GRAMMAR_H
#define TT_CLI_ANSWER_GRAMMAR_H

#include "base/str.h"
#include "job/inputs.h"

/* Appends the source (grammar/grammar.h) of answers that follow the JSON Schema in a file, or match a pattern; both
 * NULL: nothing. It is compiled for the model's tokens, so that a mistake is found before the model is loaded. */
TT_MUST_USE tt_status tt_answer_grammar_make(const char *json_schema, const char *regex,
                                             const struct tt_inputs *inputs, struct tt_str *source);

#endif
