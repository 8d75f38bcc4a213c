/* The stack machine: sets of configurations, each a state and a stack of the states behind open calls. Stacks are
 * shared: equal ones have one number, 0 is the empty one. Internal to src/grammar. */
#ifndef TT_GRAMMAR_MACHINE_H
#define TT_GRAMMAR_MACHINE_H

#include "grammar/net.h"

struct config {
    uint32_t state, stack;
};

/* A growing list. A zeroed struct is empty. */
struct configs {
    struct config *data;
    size_t count, capacity;
};

struct stack_node {
    uint32_t state, below; /* the state behind the call; the rest of the stack */
    uint32_t depth;
};

struct machine {
    const struct tt_grammar *grammar;
    struct stack_node *nodes;
    size_t node_count, node_capacity;
    uint32_t *slots; /* of nodes: open addressing, node or 0 */
    size_t slot_count;
    /* configurations that a closing has seen */
    struct seen {
        uint32_t state, stack, round;
    } * seen;
    size_t seen_count;
    uint32_t round;
    struct configs open; /* of a closing */
};

TT_MUST_USE tt_status machine_create(const struct tt_grammar *grammar, struct machine **out);
void machine_destroy(struct machine *machine); /* takes NULL */

/* Completes set->data[first ..] by what takes no byte, and keeps those of it that take one. *may_end: the empty
 * stack's net has ended. */
TT_MUST_USE tt_status machine_close(struct machine *machine, struct configs *set, size_t first,
                                    bool *may_end);
/* Appends to `out` what `count` configurations become by a byte, completed; `from` may be in out's memory, by its
 * index. */
TT_MUST_USE tt_status machine_step(struct machine *machine, struct configs *set, size_t from, size_t count,
                                   uint8_t byte, bool *may_end);
TT_MUST_USE tt_status configs_add(struct configs *set, struct config config);

#endif
