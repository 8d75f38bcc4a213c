/* Grammars of answers: which texts a model may write. A source is JSON, one part of a text:
 *
 *     {"text": "..."}               these bytes
 *     {"token": 151657}             this token, whatever its text: special tokens are no text
 *     {"json": schema}              JSON that the schema (JSON Schema 2020-12) has; true: any
 *     {"regex": "..."}              a text that the pattern matches as a whole (grammar/pattern.h)
 *     {"without": "..."}            any text that does not have this one in it
 *     {"sequence": [part, ...]}     one after the other
 *     {"choice": [part, ...]}       one of them
 *     {"repeat": part}              once or more
 *
 * It becomes a stack machine over bytes: automata that call each other, at most 64 deep. Strings, numbers and
 * patterns are deterministic automata; objects and lists are not, so a machine is in several states at a time. A
 * state from which no text can end, for want of depth or of bytes in the vocabulary, is left out: every answer can
 * be completed.
 *
 * JSON is as a schema says, with choices where it leaves some: properties come in the order of `properties`; where
 * it is given and additionalProperties is not, there are no others (a schema without `properties` has any), and
 * prefixItems without items ends the list; additional keys have no escapes; white space is none, one space, or a
 * line end with up to 16 blanks; U+0000 is in no string. Without a `type` values have a type that some keyword
 * speaks of. */
#ifndef TT_GRAMMAR_GRAMMAR_H
#define TT_GRAMMAR_GRAMMAR_H

#include "base/str.h"
#include "grammar/vocabulary.h"

struct tt_grammar;

/* Compiles a source for the tokens of a vocabulary, which is lent for the life of the grammar. TT_ERR_USAGE: a
 * keyword or a pattern that is not supported (by its name), a grammar without any text, or one that takes more than
 * 100 ms or 32 MiB (counted, so that every machine decides the same). The caller owns one reference. */
TT_MUST_USE tt_status tt_grammar_compile(struct tt_span source, const struct tt_vocabulary *vocabulary,
                                         struct tt_grammar **out);
/* References may be counted by any thread; matchers of one grammar belong to one thread at a time. */
struct tt_grammar *tt_grammar_retain(struct tt_grammar *grammar);
void tt_grammar_release(struct tt_grammar *grammar); /* takes NULL */
/* The cost of the compilation: steps of work (6 million are the limit), bytes of tables. */
void tt_grammar_cost(const struct tt_grammar *grammar, size_t *steps, size_t *bytes);

/* Grammars by their sources: the last ones are kept, with their masks. Any thread. */
struct tt_grammar_cache;
TT_MUST_USE tt_status tt_grammar_cache_create(const struct tt_vocabulary *vocabulary,
                                              struct tt_grammar_cache **out);
void tt_grammar_cache_destroy(struct tt_grammar_cache *cache); /* takes NULL */
/* Gives a reference; compiles where it is new. Errors as of tt_grammar_compile. */
TT_MUST_USE tt_status tt_grammar_cache_get(struct tt_grammar_cache *cache, struct tt_span source,
                                           struct tt_grammar **out);

/* ---- One text ---- */

struct tt_grammar_matcher;
/* Retains the grammar. */
TT_MUST_USE tt_status tt_grammar_matcher_create(struct tt_grammar *grammar, struct tt_grammar_matcher **out);
void tt_grammar_matcher_destroy(struct tt_grammar_matcher *matcher); /* takes NULL */
/* The tokens that may come next: a bit for each id, id 0 the lowest of word 0, tt_vocabulary_words of them; lent
 * until the next call with this grammar. Computed once for each state and kept. */
TT_MUST_USE tt_status tt_grammar_matcher_mask(struct tt_grammar_matcher *matcher, const uint32_t **words);
/* The text may end here. */
bool tt_grammar_matcher_may_end(const struct tt_grammar_matcher *matcher);
/* The text may not go on: it may end. */
bool tt_grammar_matcher_is_over(const struct tt_grammar_matcher *matcher);
/* Adds the text of a token. *fits false: it may not come next, and the matcher is as before. */
TT_MUST_USE tt_status tt_grammar_matcher_advance(struct tt_grammar_matcher *matcher, int32_t token,
                                                 bool *fits);
/* The same with bytes, for tests of texts without tokens. */
TT_MUST_USE tt_status tt_grammar_matcher_advance_bytes(struct tt_grammar_matcher *matcher,
                                                       struct tt_span bytes, bool *fits);

#endif
