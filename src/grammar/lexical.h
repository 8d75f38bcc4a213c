/* The parts of JSON that are no lists and no objects, as automata: strings, keys, numbers and given values. Each
 * has the values that keywords leave, at least in one spelling (RFC 8259). *out is the caller's; it is empty where
 * no value is left, and after an error of `work`. Internal to src/grammar. */
#ifndef TT_GRAMMAR_LEXICAL_H
#define TT_GRAMMAR_LEXICAL_H

#include "base/json.h"
#include "grammar/dfa.h"

/* Strings of min .. max characters (max -1: any number) that all patterns match. */
struct lexical_string {
    int64_t min, max;
    const struct tt_span *patterns;
    size_t pattern_count;
};
void lexical_string(struct grammar_work *work, const struct lexical_string *spec, struct dfa *out);

/* Keys that are none of `names`, without escapes. modulus > 0: of `rest` characters, modulo it: keys of other rests
 * are other keys. */
struct lexical_key {
    const struct tt_span *names;
    size_t name_count;
    uint32_t modulus, rest;
};
void lexical_key(struct grammar_work *work, const struct lexical_key *spec, struct dfa *out);

/* Numbers between bounds, with at most 18 digits before the point. Those with bounds have no exponent, and of their
 * fraction as many digits as a double tells apart; bounds of more digits are drawn inwards. multiple > 0: whole
 * multiples of it. */
struct lexical_number {
    bool whole, has_min, has_max, above_min, below_max; /* above_min: not min itself */
    double min, max;
    int64_t multiple;
};
void lexical_number(struct grammar_work *work, const struct lexical_number *spec, struct dfa *out);

/* One of the values, as json.dumps writes them but with characters as they are. */
void lexical_values(struct grammar_work *work, const struct tt_json_value *const *values, size_t count,
                    struct dfa *out);

#endif
