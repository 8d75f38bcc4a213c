/* The tokens that may come next in a set of configurations. What a token does inside of a lexical automaton does
 * not depend on the stack, so it is computed once for each of their states; what follows their end, and all other
 * states, for each stack. Internal to src/grammar. */
#ifndef TT_GRAMMAR_MASKS_H
#define TT_GRAMMAR_MASKS_H

#include "grammar/machine.h"

struct masks;
TT_MUST_USE tt_status masks_create(const struct tt_grammar *grammar, struct machine *machine,
                                   struct masks **out);
void masks_destroy(struct masks *masks); /* takes NULL */
/* *words is lent until the next call. `begins`: the text is empty yet, where a tokenizer may leave out a first
 * space. */
TT_MUST_USE tt_status masks_find(struct masks *masks, const struct configs *set, bool begins,
                                 const uint32_t **words);

#endif
