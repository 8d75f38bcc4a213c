/* Automata over bytes while they are built: states with edges that take a byte of a range, take none, or call another
 * automaton (a net) and go on behind its end. Internal to src/grammar. */
#ifndef TT_GRAMMAR_NFA_H
#define TT_GRAMMAR_NFA_H

#include "base/str.h"
#include "grammar/work.h"

enum nfa_kind {
    NFA_BYTES, /* low .. high */
    NFA_EMPTY,
    NFA_CALL,  /* net number `net` */
    NFA_BEGIN, /* takes nothing, and holds at the begin of the text only (grammar/pattern.c) */
    NFA_END,
};

struct nfa_edge {
    uint32_t from, to, net;
    uint8_t kind, low, high;
};

/* A zeroed struct with `work`, which is lent, is empty. */
struct nfa {
    struct nfa_edge *edges;
    size_t count, capacity;
    uint32_t states;
    struct grammar_work *work;
};
void nfa_deinit(struct nfa *nfa);

/* All others do nothing after an error of `work`. */
uint32_t nfa_state(struct nfa *nfa);
void nfa_bytes(struct nfa *nfa, uint32_t from, uint8_t low, uint8_t high, uint32_t to);
void nfa_empty(struct nfa *nfa, uint32_t from, uint32_t to);
void nfa_call(struct nfa *nfa, uint32_t from, uint32_t net, uint32_t to);
void nfa_assert(struct nfa *nfa, uint32_t from, enum nfa_kind kind, uint32_t to);
/* The bytes one after the other; returns the state behind them. */
uint32_t nfa_text(struct nfa *nfa, uint32_t from, struct tt_span text);
uint32_t nfa_word(struct nfa *nfa, uint32_t from, const char *word);
void nfa_word_to(struct nfa *nfa, uint32_t from, const char *word, uint32_t to);

/* One character of low .. high, without surrogates, in UTF-8 (RFC 3629). */
void nfa_points(struct nfa *nfa, uint32_t from, uint32_t low, uint32_t high, uint32_t to);
/* The same as it stands in a JSON string (RFC 8259, section 7), each in one spelling: quotes, backslashes and control
 * characters escaped, all others as they are. U+0000 is left out: C's texts end there. */
void nfa_json_points(struct nfa *nfa, uint32_t from, uint32_t low, uint32_t high, uint32_t to);
/* Any character of a JSON string; `codes`: also as \uXXXX, pairs of surrogates among them. */
void nfa_json_any(struct nfa *nfa, uint32_t from, bool codes, uint32_t to);
/* The JSON string of a text, with its quotes. */
uint32_t nfa_json_text(struct nfa *nfa, uint32_t from, struct tt_span text);
/* White space between the parts of JSON: none, a space, or a new line with up to 16 blanks. */
void nfa_space(struct nfa *nfa, uint32_t from, uint32_t to);

#endif
