/* Deterministic automata over bytes: the lexical parts of grammars. State 0 is the begin; from every state the end
 * can be reached (dfa_trim). Internal to src/grammar. */
#ifndef TT_GRAMMAR_DFA_H
#define TT_GRAMMAR_DFA_H

#include "grammar/nfa.h"

#define DFA_DEAD UINT32_MAX

/* A zeroed struct is the empty language. */
struct dfa {
    uint32_t states, classes;
    uint8_t class_of[256]; /* bytes of one class lead to the same states */
    uint32_t *next;        /* [states, classes] */
    bool *accepts;         /* [states] */
    size_t capacity, accepts_capacity;
};
void dfa_deinit(struct dfa *dfa);

/* All make *out, which the caller owns, from what they borrow, and leave it empty after an error of `work`. None
 * keeps bytes that the alphabet of `work` lacks. */
/* Subset construction, of an automaton without calls and assertions. */
void dfa_of_nfa(const struct nfa *nfa, uint32_t start, uint32_t end, struct dfa *out);
/* The texts of `a` that `b` has too, or has not. */
void dfa_combine(struct grammar_work *work, const struct dfa *a, const struct dfa *b, bool subtract,
                 struct dfa *out);
/* `unit` min .. max times, max < 0: without a limit. No text of the unit is the beginning of another one or empty. */
void dfa_repeat(struct grammar_work *work, const struct dfa *unit, int64_t min, int64_t max, struct dfa *out);
/* "quote" body "quote". */
void dfa_quote(struct grammar_work *work, const struct dfa *body, struct dfa *out);
/* Removes states from which the end cannot be reached. */
void dfa_trim(struct grammar_work *work, struct dfa *dfa);

static inline uint32_t dfa_step(const struct dfa *dfa, uint32_t state, uint8_t byte)
{
    return dfa->next[(size_t)state * dfa->classes + dfa->class_of[byte]];
}

#endif
