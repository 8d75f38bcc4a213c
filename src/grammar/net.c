/* Linking: edges in the order of their states, and how deep the way to an end is. */
#include "grammar/net.h"

#include <string.h>

#include "base/alloc.h"

struct linking {
    struct grammar_work *work;
    const struct net_parts *parts;
    struct tt_grammar *grammar;
    /* Edges by the states that they wait for: of a call both the state behind it and the begin of its net. */
    uint32_t *first, *waiting, *from;
    uint32_t *queues[NET_DEPTH_MAX + 1];
    size_t counts[NET_DEPTH_MAX + 1], capacities[NET_DEPTH_MAX + 1];
};

static bool takes_bytes(const struct grammar_work *work, const struct nfa_edge *edge)
{
    return edge->kind != NFA_BYTES || edge->low < edge->high || work->alphabet[edge->low];
}

static bool make_arrays(struct linking *l)
{
    struct tt_grammar *grammar = l->grammar;
    const struct nfa *nfa = l->parts->nfa;
    size_t states = nfa->states, edges = nfa->count;
    if (!grammar_spend(l->work, states / 4 + edges, states * 12 + edges * sizeof(struct net_edge)))
        return false;
    grammar->state_count = nfa->states;
    grammar->first = tt_calloc(states + 2, sizeof *grammar->first);
    grammar->edges = tt_calloc(edges + 1, sizeof *grammar->edges);
    grammar->need = tt_calloc(states + 1, sizeof *grammar->need);
    grammar->accepts = tt_calloc(states + 1, sizeof *grammar->accepts);
    grammar->reads = tt_calloc(states + 1, sizeof *grammar->reads);
    grammar->dfa_of = tt_calloc(states + 1, sizeof *grammar->dfa_of);
    l->first = tt_calloc(states + 2, sizeof *l->first);
    l->waiting = tt_calloc(2 * edges + 1, sizeof *l->waiting);
    l->from = tt_calloc(edges + 1, sizeof *l->from);
    if (grammar->first != NULL && grammar->edges != NULL && grammar->need != NULL &&
        grammar->accepts != NULL && grammar->reads != NULL && grammar->dfa_of != NULL && l->first != NULL &&
        l->waiting != NULL && l->from != NULL)
        return true;
    grammar_fail(l->work, TT_ERR_MEMORY);
    return false;
}

static void sort_edges(struct linking *l)
{
    struct tt_grammar *grammar = l->grammar;
    const struct nfa *nfa = l->parts->nfa;
    uint32_t *first = grammar->first;
    for (size_t i = 0; i < nfa->count; i++)
        if (takes_bytes(l->work, &nfa->edges[i])) first[nfa->edges[i].from + 2]++;
    for (uint32_t s = 0; s < nfa->states; s++) first[s + 1] += first[s];
    for (size_t i = 0; i < nfa->count; i++) {
        const struct nfa_edge *edge = &nfa->edges[i];
        if (!takes_bytes(l->work, edge)) continue;
        uint32_t at = first[edge->from + 1]++;
        l->from[at] = edge->from;
        grammar->edges[at] = (struct net_edge){
            .to = edge->to,
            .net = edge->kind == NFA_CALL ? l->parts->nets[edge->net] : 0,
            .kind = edge->kind,
            .low = edge->low,
            .high = edge->high,
        };
        if (edge->kind == NFA_BYTES) grammar->reads[edge->from] = true;
    }
}

static void mark_states(struct linking *l)
{
    struct tt_grammar *grammar = l->grammar;
    memcpy(grammar->accepts, l->parts->ends, grammar->state_count * sizeof *grammar->accepts);
    memset(grammar->need, NET_DEAD, grammar->state_count);
    for (uint32_t d = 0; d < l->parts->dfa_count; d++) {
        const struct net_dfa *own = &l->parts->dfas[d];
        for (uint32_t s = 0; s < own->dfa.states; s++) {
            grammar->dfa_of[own->base + s] = d + 1;
            grammar->accepts[own->base + s] = own->dfa.accepts[s];
            for (uint32_t c = 0; c < own->dfa.classes; c++)
                if (own->dfa.next[(size_t)s * own->dfa.classes + c] != DFA_DEAD)
                    grammar->reads[own->base + s] = true;
        }
    }
    for (uint32_t e = 0; e < grammar->first[grammar->state_count]; e++) {
        struct net_edge *edge = &grammar->edges[e];
        bool ends = grammar->accepts[edge->to] && grammar->first[edge->to] == grammar->first[edge->to + 1] &&
                    grammar->dfa_of[edge->to] == 0;
        edge->is_last = edge->kind == NFA_CALL && ends;
    }
}

static void sort_waiting(struct linking *l)
{
    const struct tt_grammar *grammar = l->grammar;
    uint32_t edges = grammar->first[grammar->state_count];
    for (uint32_t e = 0; e < edges; e++) {
        l->first[grammar->edges[e].to + 2]++;
        if (grammar->edges[e].kind == NFA_CALL) l->first[grammar->edges[e].net + 2]++;
    }
    for (uint32_t s = 0; s < grammar->state_count; s++) l->first[s + 1] += l->first[s];
    for (uint32_t e = 0; e < edges; e++) {
        l->waiting[l->first[grammar->edges[e].to + 1]++] = e;
        if (grammar->edges[e].kind == NFA_CALL) l->waiting[l->first[grammar->edges[e].net + 1]++] = e;
    }
}

static void push(struct linking *l, unsigned level, uint32_t state)
{
    tt_status status = tt_grow(&l->queues[level], l->counts[level], &l->capacities[level]);
    if (status != TT_OK)
        grammar_fail(l->work, status);
    else
        l->queues[level][l->counts[level]++] = state;
}

/* The depth that a state needs by this edge; NET_DEAD: it leads nowhere yet. */
static unsigned need_by(const struct tt_grammar *grammar, const struct net_edge *edge)
{
    unsigned need = grammar->need[edge->to];
    if (edge->kind != NFA_CALL || need == NET_DEAD) return need;
    unsigned inside = grammar->need[edge->net];
    if (inside == NET_DEAD) return NET_DEAD;
    inside += !edge->is_last;
    return inside > need ? inside : need;
}

/* Knuth's generalisation of Dijkstra's algorithm (1977): states in ascending order of their need. */
static void find_needs(struct linking *l)
{
    struct tt_grammar *grammar = l->grammar;
    for (uint32_t s = 0; s < grammar->state_count; s++)
        if (grammar->accepts[s] || grammar->dfa_of[s] > 0) push(l, 0, s);
    for (unsigned level = 0; level <= NET_DEPTH_MAX && grammar_is_well(l->work); level++)
        for (size_t i = 0; i < l->counts[level] && grammar_is_well(l->work); i++) {
            uint32_t state = l->queues[level][i];
            if (grammar->need[state] <= level) continue;
            grammar->need[state] = (uint8_t)level;
            for (uint32_t w = l->first[state]; w < l->first[state + 1]; w++) {
                uint32_t edge = l->waiting[w];
                unsigned need = need_by(grammar, &grammar->edges[edge]);
                if (need <= NET_DEPTH_MAX && grammar->need[l->from[edge]] == NET_DEAD)
                    push(l, need, l->from[edge]);
            }
        }
}

void net_link(const struct net_parts *parts, struct tt_grammar *grammar)
{
    struct linking l = {.work = parts->nfa->work, .parts = parts, .grammar = grammar};
    grammar->start = parts->start;
    if (grammar_is_well(l.work) && make_arrays(&l)) {
        sort_edges(&l);
        mark_states(&l);
        sort_waiting(&l);
        find_needs(&l);
        grammar_spend(l.work, 2 * (size_t)grammar->first[grammar->state_count], 0);
    }
    tt_free(l.first);
    tt_free(l.waiting);
    tt_free(l.from);
    for (int i = 0; i <= NET_DEPTH_MAX; i++) tt_free(l.queues[i]);
    if (grammar_is_well(l.work) && grammar->need[grammar->start] > NET_DEPTH_MAX)
        grammar_refuse(l.work,
                       "no answer fits the grammar: its parts exclude each other, need more "
                       "than %d levels, or bytes that no token has",
                       NET_DEPTH_MAX);
}
