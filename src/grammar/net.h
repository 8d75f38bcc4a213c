/* A compiled grammar: states of all nets in one numbering. Internal to src/grammar. */
#ifndef TT_GRAMMAR_NET_H
#define TT_GRAMMAR_NET_H

#include <stdatomic.h>

#include "grammar/dfa.h"
#include "grammar/vocabulary_impl.h"

enum { NET_DEPTH_MAX = 64, NET_DEAD = 255 };

struct net_edge {
    uint32_t to;  /* of a call: the state behind it */
    uint32_t net; /* of a call: its first state */
    uint8_t kind, low, high;
    bool is_last; /* of a call: nothing follows it, so that it takes the place of its caller */
};

/* A lexical automaton: its state s is state base + s of the grammar. */
struct net_dfa {
    struct dfa dfa;
    uint32_t base;
};

struct masks;
struct machine;

struct tt_grammar {
    atomic_int references;
    char *source;
    size_t source_bytes;
    const struct tt_vocabulary *vocabulary;
    uint32_t state_count, start;
    uint32_t *first; /* [state_count + 1] */
    struct net_edge *edges;
    uint8_t *need; /* [state_count], least depth of calls on the way to the end; NET_DEAD: there is none */
    bool *accepts; /* [state_count], the end of its net */
    bool *reads;   /* [state_count], has an edge that takes a byte */
    struct net_dfa *dfas;
    uint32_t dfa_count;
    uint32_t *dfa_of; /* [state_count], number + 1 of its automaton, or 0 */
    size_t steps, bytes;
    struct machine *machine; /* of its matchers, as the masks */
    struct masks *masks;
};

static inline const struct net_dfa *net_dfa_of(const struct tt_grammar *grammar, uint32_t state)
{
    return grammar->dfa_of[state] > 0 ? &grammar->dfas[grammar->dfa_of[state] - 1] : NULL;
}

/* Makes the tables of `grammar` from the automata. `ends`: [nfa->states], the states that end a net; nets: their
 * first states. (grammar/net.c) */
struct net_parts {
    const struct nfa *nfa;
    const bool *ends;
    const uint32_t *nets;
    struct net_dfa *dfas;
    uint32_t dfa_count, start;
};
void net_link(const struct net_parts *parts, struct tt_grammar *grammar);

/* Compiles the source into the zeroed grammar, with its vocabulary. (grammar/compile.c) */
void grammar_build(struct grammar_work *work, struct tt_grammar *grammar);

#endif
