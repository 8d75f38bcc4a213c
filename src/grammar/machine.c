#include "grammar/machine.h"

#include <string.h>

#include "base/alloc.h"

/* Limits beyond which a text has too many ways to be read: it ends. */
enum { NODES_MAX = 1 << 20, SET_MAX = 1 << 16, SEEN_FIRST = 1 << 8 };

tt_status machine_create(const struct tt_grammar *grammar, struct machine **out)
{
    struct machine *machine = tt_calloc(1, sizeof *machine);
    if (machine == NULL) return TT_ERR_MEMORY;
    machine->grammar = grammar;
    machine->slot_count = SEEN_FIRST;
    machine->seen_count = SEEN_FIRST;
    machine->slots = tt_calloc(machine->slot_count, sizeof *machine->slots);
    machine->seen = tt_calloc(machine->seen_count, sizeof *machine->seen);
    tt_status status = machine->slots != NULL && machine->seen != NULL ? TT_OK : TT_ERR_MEMORY;
    if (status == TT_OK) status = tt_grow(&machine->nodes, 0, &machine->node_capacity);
    if (status != TT_OK) {
        machine_destroy(machine);
        return status;
    }
    machine->nodes[machine->node_count++] = (struct stack_node){0};
    *out = machine;
    return TT_OK;
}

void machine_destroy(struct machine *machine)
{
    if (machine == NULL) return;
    tt_free(machine->nodes);
    tt_free(machine->slots);
    tt_free(machine->seen);
    tt_free(machine->open.data);
    tt_free(machine);
}

tt_status configs_add(struct configs *set, struct config config)
{
    if (set->count > SET_MAX + 4096)
        return tt_fail(TT_ERR_USAGE, "the grammar can be read in too many ways at a time");
    TT_TRY(tt_grow(&set->data, set->count, &set->capacity));
    set->data[set->count++] = config;
    return TT_OK;
}

static size_t hash_pair(uint32_t a, uint32_t b)
{
    uint64_t hash = ((uint64_t)a << 32 | b) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash >> 24);
}

/* ---- Stacks ---- */

static tt_status widen_slots(struct machine *machine)
{
    size_t wanted = 2 * machine->slot_count;
    uint32_t *slots = tt_calloc(wanted, sizeof *slots);
    if (slots == NULL) return TT_ERR_MEMORY;
    for (size_t n = 1; n < machine->node_count; n++) {
        size_t at = hash_pair(machine->nodes[n].state, machine->nodes[n].below) & (wanted - 1);
        while (slots[at] != 0) at = (at + 1) & (wanted - 1);
        slots[at] = (uint32_t)n;
    }
    tt_free(machine->slots);
    machine->slots = slots;
    machine->slot_count = wanted;
    return TT_OK;
}

static tt_status push(struct machine *machine, uint32_t state, uint32_t below, uint32_t *out)
{
    size_t mask = machine->slot_count - 1, at = hash_pair(state, below) & mask;
    for (; machine->slots[at] != 0; at = (at + 1) & mask) {
        *out = machine->slots[at];
        if (machine->nodes[*out].state == state && machine->nodes[*out].below == below) return TT_OK;
    }
    if (machine->node_count >= NODES_MAX)
        return tt_fail(TT_ERR_USAGE, "the text has more than %d different nestings", NODES_MAX);
    TT_TRY(tt_grow(&machine->nodes, machine->node_count, &machine->node_capacity));
    *out = (uint32_t)machine->node_count;
    machine->nodes[machine->node_count++] =
        (struct stack_node){state, below, machine->nodes[below].depth + 1};
    machine->slots[at] = *out;
    return 2 * machine->node_count > machine->slot_count ? widen_slots(machine) : TT_OK;
}

/* ---- Closing ---- */

static tt_status widen_seen(struct machine *machine)
{
    size_t wanted = 2 * machine->seen_count;
    struct seen *seen = tt_calloc(wanted, sizeof *seen);
    if (seen == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < machine->seen_count; i++) {
        if (machine->seen[i].round != machine->round) continue;
        size_t at = hash_pair(machine->seen[i].state, machine->seen[i].stack) & (wanted - 1);
        while (seen[at].round == machine->round) at = (at + 1) & (wanted - 1);
        seen[at] = machine->seen[i];
    }
    tt_free(machine->seen);
    machine->seen = seen;
    machine->seen_count = wanted;
    return TT_OK;
}

/* Adds a configuration to those of the closing, unless it is there or its end cannot be reached in the depth left. */
static tt_status reach(struct machine *machine, uint32_t state, uint32_t stack)
{
    const struct tt_grammar *grammar = machine->grammar;
    if (grammar->need[state] + machine->nodes[stack].depth > NET_DEPTH_MAX) return TT_OK;
    size_t mask = machine->seen_count - 1, at = hash_pair(state, stack) & mask;
    for (; machine->seen[at].round == machine->round; at = (at + 1) & mask)
        if (machine->seen[at].state == state && machine->seen[at].stack == stack) return TT_OK;
    machine->seen[at] = (struct seen){state, stack, machine->round};
    TT_TRY(configs_add(&machine->open, (struct config){state, stack}));
    return 2 * machine->open.count > machine->seen_count ? widen_seen(machine) : TT_OK;
}

static tt_status call(struct machine *machine, const struct net_edge *edge, uint32_t stack)
{
    const struct tt_grammar *grammar = machine->grammar;
    uint32_t inside, depth = machine->nodes[stack].depth;
    if (edge->is_last) return reach(machine, edge->net, stack);
    if (depth + 1 + grammar->need[edge->net] > NET_DEPTH_MAX ||
        depth + grammar->need[edge->to] > NET_DEPTH_MAX)
        return TT_OK;
    TT_TRY(push(machine, edge->to, stack, &inside));
    return reach(machine, edge->net, inside);
}

static tt_status follow(struct machine *machine, struct config config, bool *may_end)
{
    const struct tt_grammar *grammar = machine->grammar;
    if (grammar->accepts[config.state]) {
        const struct stack_node *top = &machine->nodes[config.stack];
        if (config.stack == 0)
            *may_end = true;
        else
            TT_TRY(reach(machine, top->state, top->below));
    }
    for (uint32_t e = grammar->first[config.state]; e < grammar->first[config.state + 1]; e++) {
        const struct net_edge *edge = &grammar->edges[e];
        if (edge->kind == NFA_EMPTY) TT_TRY(reach(machine, edge->to, config.stack));
        if (edge->kind == NFA_CALL) TT_TRY(call(machine, edge, config.stack));
    }
    return TT_OK;
}

static void begin_round(struct machine *machine)
{
    machine->open.count = 0;
    if (++machine->round != 0) return;
    memset(machine->seen, 0, machine->seen_count * sizeof *machine->seen);
    machine->round = 1;
}

tt_status machine_close(struct machine *machine, struct configs *set, size_t first, bool *may_end)
{
    begin_round(machine);
    *may_end = false;
    for (size_t i = first; i < set->count; i++)
        TT_TRY(reach(machine, set->data[i].state, set->data[i].stack));
    set->count = first;
    for (size_t i = 0; i < machine->open.count; i++) {
        struct config config = machine->open.data[i];
        TT_TRY(follow(machine, config, may_end));
        if (machine->grammar->reads[config.state]) TT_TRY(configs_add(set, config));
    }
    return TT_OK;
}

tt_status machine_step(struct machine *machine, struct configs *set, size_t from, size_t count, uint8_t byte,
                       bool *may_end)
{
    const struct tt_grammar *grammar = machine->grammar;
    size_t first = set->count;
    for (size_t i = from; i < from + count; i++) {
        struct config config = set->data[i];
        const struct net_dfa *own = net_dfa_of(grammar, config.state);
        if (own != NULL) {
            uint32_t to = dfa_step(&own->dfa, config.state - own->base, byte);
            if (to != DFA_DEAD) TT_TRY(configs_add(set, (struct config){own->base + to, config.stack}));
            continue;
        }
        for (uint32_t e = grammar->first[config.state]; e < grammar->first[config.state + 1]; e++) {
            const struct net_edge *edge = &grammar->edges[e];
            if (edge->kind == NFA_BYTES && edge->low <= byte && byte <= edge->high)
                TT_TRY(configs_add(set, (struct config){edge->to, config.stack}));
        }
    }
    *may_end = false;
    if (set->count == first) return TT_OK;
    /* The rest of a string or a number: nothing is reached without a byte. */
    if (set->count == first + 1) {
        uint32_t state = set->data[first].state;
        if (grammar->dfa_of[state] > 0 && !grammar->accepts[state]) return TT_OK;
    }
    return machine_close(machine, set, first, may_end);
}
