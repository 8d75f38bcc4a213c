/* The compilation of a source: nets are named, and built when their turn comes, so that schemas may lead to
 * themselves. Internal to src/grammar. */
#ifndef TT_GRAMMAR_COMPILE_H
#define TT_GRAMMAR_COMPILE_H

#include "grammar/net.h"
#include "grammar/schema.h"

/* A net: of schemas that hold together, built later; or of an automaton. */
struct net {
    struct schema *schema; /* NULL: of an automaton */
    struct schema_list list;
    uint64_t hash; /* of its name */
    struct tt_span name;
};

struct compiler {
    struct grammar_work *work;
    struct nfa all;
    struct net *nets;
    size_t count, capacity;
    uint32_t *starts; /* [count] of nets, while `all` grows */
    size_t starts_capacity;
    struct net_dfa *dfas;
    size_t dfa_count, dfa_capacity;
    uint32_t *ends; /* states that end a net */
    size_t end_count, end_capacity;
    struct tt_arena arena; /* of names */
    struct tt_str name;    /* the next one */
};

/* The number of the net of that name, c->name; a new one is added by the second call. *found false: it is new. */
uint32_t compiler_find(struct compiler *c, bool *found);
uint32_t compiler_add(struct compiler *c, const struct net *net);
/* The net of an automaton, which it takes, by the name c->name. */
uint32_t compiler_add_dfa(struct compiler *c, struct dfa *dfa);
/* The net of schemas that hold together; none: any JSON. */
uint32_t compiler_schemas(struct compiler *c, struct schema *schema, const struct schema_list *list);
/* A state that ends a net. */
uint32_t compiler_end(struct compiler *c);
/* Sets c->name. */
void compiler_name(struct compiler *c, const char *format, ...) TT_PRINTF(2, 3);
void compiler_name_more(struct compiler *c, struct tt_span text);

/* Objects and lists, from `from` to `to` (grammar/containers.c). */
void compile_object(struct compiler *c, struct schema *schema, const struct schema_flat *flat, uint32_t from,
                    uint32_t to);
void compile_list(struct compiler *c, struct schema *schema, const struct schema_flat *flat, uint32_t from,
                  uint32_t to);

#endif
