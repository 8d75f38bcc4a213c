/* Grammars of answers (grammar/grammar.h) for the tokens of a model. The tree of its tokens is made with the first
 * grammar. */
#ifndef TT_INFER_CONSTRAINT_H
#define TT_INFER_CONSTRAINT_H

#include "grammar/grammar.h"
#include "job/inputs.h"

struct tt_constraints;

/* Borrows the inputs. */
TT_MUST_USE tt_status tt_constraints_create(const struct tt_inputs *inputs, struct tt_constraints **out);
void tt_constraints_destroy(struct tt_constraints *constraints); /* takes NULL */
/* Gives a reference to the grammar of a source, compiled or kept. Any thread. TT_ERR_USAGE for a source that is
 * refused, TT_ERR_UNSUPPORTED for a tokenizer whose tokens are no bytes. */
TT_MUST_USE tt_status tt_constraints_get(struct tt_constraints *constraints, struct tt_span source,
                                         struct tt_grammar **out);

#endif
