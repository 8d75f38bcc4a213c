/* Names to slots, when a template is parsed. The rules are those of Jinja2's compiler (idtracking.py, compiler.py):
 *
 * - A frame that reads a name that no frame around it knows takes it from the input.
 * - A frame that assigns to a name has a variable of its own, which begins with the value of the frame around it.
 * - `if` is no frame; what only some of its branches assign keeps its earlier value in the others.
 *
 * Values are loaded when a frame is entered: once for a macro or a block, for each iteration of a loop. */
#include <string.h>

#include "base/alloc.h"
#include "text/jinja/ast.h"

enum { NAMES_MAX = 4096 };

struct resolver {
    struct tt_jinja *jinja;
    /* slots of variables of the frame, in the order of their first assignment; see analyze_if */
    uint32_t *fresh;
    size_t fresh_count, fresh_capacity;
    int depth;
};

typedef tt_status visit_node(void *context, struct jinja_node *node);

static tt_status each_of(const struct jinja_nodes *nodes, visit_node *visit, void *context)
{
    for (uint32_t i = 0; i < nodes->count; i++) TT_TRY(visit(context, nodes->at[i]));
    return TT_OK;
}

static tt_status each_argument(const struct jinja_arguments *arguments, visit_node *visit, void *context)
{
    TT_TRY(each_of(&arguments->positional, visit, context));
    for (uint32_t i = 0; i < arguments->named_count; i++) TT_TRY(visit(context, arguments->named[i].value));
    if (arguments->star != NULL) TT_TRY(visit(context, arguments->star));
    return arguments->star_star != NULL ? visit(context, arguments->star_star) : TT_OK;
}

static tt_status each_parameter(const struct jinja_signature *signature, visit_node *visit, void *context)
{
    for (uint32_t i = 0; i < signature->count; i++) TT_TRY(visit(context, signature->parameters[i]));
    for (uint32_t i = 0; i < signature->default_count; i++) TT_TRY(visit(context, signature->defaults[i]));
    return TT_OK;
}

/* The children of a node, assigned names before values. */
static tt_status each_child(struct jinja_node *node, visit_node *visit, void *context)
{
    if (node->a != NULL) TT_TRY(visit(context, node->a));
    if (node->b != NULL) TT_TRY(visit(context, node->b));
    if (node->kind != JINJA_NODE_FOR && node->c != NULL) TT_TRY(visit(context, node->c));
    TT_TRY(each_of(&node->list, visit, context));
    if (node->kind == JINJA_NODE_CALL || node->kind == JINJA_NODE_FILTER || node->kind == JINJA_NODE_TEST)
        TT_TRY(each_argument(node->arguments, visit, context));
    if (node->kind == JINJA_NODE_MACRO || node->kind == JINJA_NODE_CALL_BLOCK ||
        node->kind == JINJA_NODE_GENERATION)
        TT_TRY(each_parameter(node->signature, visit, context));
    TT_TRY(each_of(&node->body, visit, context));
    TT_TRY(each_of(&node->elifs, visit, context));
    TT_TRY(each_of(&node->otherwise, visit, context));
    return node->kind == JINJA_NODE_FOR && node->c != NULL ? visit(context, node->c) : TT_OK;
}

/* Whether a body reads a name before it assigns to it. */
struct search {
    struct resolver *resolver;
    const char *name;
    bool is_read, is_assigned;
};

static tt_status enter(struct resolver *resolver, const struct jinja_node *node)
{
    if (++resolver->depth <= TT_JINJA_DEPTH_MAX) return TT_OK;
    return jinja_fail_at(resolver->jinja, node->offset,
                         "more than %d expressions and blocks within each other", TT_JINJA_DEPTH_MAX);
}

static tt_status search_name(void *context, struct jinja_node *node)
{
    struct search *search = context;
    TT_TRY(enter(search->resolver, node));
    if (node->kind == JINJA_NODE_NAME && strcmp(node->text->data, search->name) == 0)
        search->is_read = search->is_read || !search->is_assigned;
    if (node->kind == JINJA_NODE_TARGET && strcmp(node->text->data, search->name) == 0)
        search->is_assigned = true;
    TT_TRY(each_child(node, search_name, search));
    search->resolver->depth--;
    return TT_OK;
}

static tt_status reads_name(struct resolver *resolver, const struct jinja_nodes *body, const char *name,
                            bool *reads)
{
    struct search search = {.resolver = resolver, .name = name};
    TT_TRY(each_of(body, search_name, &search));
    *reads = search.is_read;
    return TT_OK;
}

/* ---- Symbols ---- */

static tt_status symbol_of(struct resolver *resolver, struct jinja_node *node)
{
    struct tt_jinja *jinja = resolver->jinja;
    for (uint32_t i = 0; i < jinja->symbol_count; i++) {
        const struct jinja_text *known = jinja->symbols[i];
        if (known->bytes != node->text->bytes || memcmp(known->data, node->text->data, known->bytes) != 0)
            continue;
        node->symbol = i;
        return TT_OK;
    }
    if (jinja->symbol_count >= NAMES_MAX)
        return jinja_fail_at(jinja, node->offset, "more than %d names of variables", NAMES_MAX);
    size_t capacity = jinja->symbol_capacity;
    TT_TRY(tt_grow(&jinja->symbols, jinja->symbol_count, &capacity));
    jinja->symbol_capacity = (uint32_t)capacity;
    node->symbol = jinja->symbol_count;
    jinja->symbols[jinja->symbol_count++] = node->text;
    return TT_OK;
}

static struct jinja_variable *find_here(const struct jinja_frame *frame, uint32_t symbol)
{
    for (uint32_t i = 0; i < frame->count; i++)
        if (frame->variables[i].symbol == symbol) return &frame->variables[i];
    return NULL;
}

/* The variable in this frame or one around it; *hops gets how many frames up. */
static struct jinja_variable *find_variable(const struct jinja_frame *frame, uint32_t symbol, uint32_t *hops)
{
    *hops = 0;
    for (; frame != NULL; frame = frame->parent, ++*hops) {
        struct jinja_variable *variable = find_here(frame, symbol);
        if (variable != NULL) return variable;
    }
    return NULL;
}

static tt_status define(struct resolver *resolver, struct jinja_frame *frame, uint32_t symbol,
                        enum jinja_load load, struct jinja_variable **out)
{
    if (frame->count == frame->capacity) {
        uint32_t capacity = frame->capacity == 0 ? 8 : frame->capacity * 2;
        struct jinja_variable *grown = tt_arena_alloc(&resolver->jinja->arena, capacity * sizeof *grown);
        if (grown == NULL) return TT_ERR_MEMORY;
        if (frame->count > 0) memcpy(grown, frame->variables, frame->count * sizeof *grown);
        frame->variables = grown;
        frame->capacity = capacity;
    }
    struct jinja_variable *variable = &frame->variables[frame->count];
    *variable = (struct jinja_variable){.symbol = symbol, .slot = frame->count++, .load = (uint8_t)load};
    *out = variable;
    return TT_OK;
}

static tt_status declare_parameter(struct resolver *resolver, struct jinja_frame *frame, uint32_t symbol,
                                   int *slot)
{
    struct jinja_variable *variable = find_here(frame, symbol);
    if (variable == NULL) TT_TRY(define(resolver, frame, symbol, JINJA_LOAD_PARAMETER, &variable));
    variable->load = JINJA_LOAD_PARAMETER;
    variable->is_stored = true;
    if (slot != NULL) *slot = (int)variable->slot;
    return TT_OK;
}

/* The load of a variable that is assigned: from the frame around this one, if that knows it. */
static bool load_from_outside(const struct jinja_frame *frame, struct jinja_variable *variable)
{
    uint32_t hops;
    const struct jinja_variable *outer =
        frame->parent != NULL ? find_variable(frame->parent, variable->symbol, &hops) : NULL;
    if (outer == NULL) return false;
    variable->load = JINJA_LOAD_ALIAS;
    variable->hops = hops + 1;
    variable->outer_slot = outer->slot;
    return true;
}

static tt_status store(struct resolver *resolver, struct jinja_frame *frame, uint32_t symbol)
{
    struct jinja_variable *variable = find_here(frame, symbol);
    if (variable == NULL) {
        TT_TRY(define(resolver, frame, symbol, JINJA_LOAD_UNDEFINED, &variable));
        load_from_outside(frame, variable);
    }
    if (variable->is_stored) return TT_OK;
    variable->is_stored = true;
    TT_TRY(tt_grow(&resolver->fresh, resolver->fresh_count, &resolver->fresh_capacity));
    resolver->fresh[resolver->fresh_count++] = variable->slot;
    return TT_OK;
}

/* ---- What a frame loads and assigns ---- */

struct analysis {
    struct resolver *resolver;
    struct jinja_frame *frame;
    bool as_parameters;
};

static tt_status analyze(void *context, struct jinja_node *node);

static tt_status analyze_if(struct analysis *analysis, struct jinja_node *node)
{
    struct resolver *resolver = analysis->resolver;
    TT_TRY(analyze(analysis, node->a));
    size_t mark = resolver->fresh_count;
    TT_TRY(each_of(&node->body, analyze, analysis));
    TT_TRY(each_of(&node->elifs, analyze, analysis));
    TT_TRY(each_of(&node->otherwise, analyze, analysis));
    /* A name that a branch assigned first may be read where that branch was not taken. */
    for (size_t i = mark; i < resolver->fresh_count; i++) {
        struct jinja_variable *variable = &analysis->frame->variables[resolver->fresh[i]];
        if (!load_from_outside(analysis->frame, variable)) variable->load = JINJA_LOAD_RESOLVE;
    }
    return TT_OK;
}

static tt_status analyze_node(struct analysis *analysis, struct jinja_node *node)
{
    struct resolver *resolver = analysis->resolver;
    uint32_t hops;
    struct jinja_variable *variable;
    switch (node->kind) {
    case JINJA_NODE_NAME:
        TT_TRY(symbol_of(resolver, node));
        if (find_variable(analysis->frame, node->symbol, &hops) != NULL) return TT_OK;
        return define(resolver, analysis->frame, node->symbol, JINJA_LOAD_RESOLVE, &variable);
    case JINJA_NODE_TARGET:
        TT_TRY(symbol_of(resolver, node));
        return analysis->as_parameters ? declare_parameter(resolver, analysis->frame, node->symbol, NULL)
                                       : store(resolver, analysis->frame, node->symbol);
    case JINJA_NODE_IF:
        return analyze_if(analysis, node);
    case JINJA_NODE_MACRO:
        return analyze(analysis, node->a);
    case JINJA_NODE_SET:
        TT_TRY(analyze(analysis, node->b));
        return analyze(analysis, node->a);
    case JINJA_NODE_FOR:
        return analyze(analysis, node->b);
    case JINJA_NODE_CALL_BLOCK:
    case JINJA_NODE_SET_BLOCK:
        return analyze(analysis, node->a);
    case JINJA_NODE_FILTER_BLOCK:
        return analyze(analysis, node->b);
    case JINJA_NODE_WITH:
        for (uint32_t i = 1; i < node->list.count; i += 2) TT_TRY(analyze(analysis, node->list.at[i]));
        return TT_OK;
    case JINJA_NODE_GENERATION:
        return TT_OK;
    default:
        return each_child(node, analyze, analysis);
    }
}

static tt_status analyze(void *context, struct jinja_node *node)
{
    struct analysis *analysis = context;
    TT_TRY(enter(analysis->resolver, node));
    TT_TRY(analyze_node(analysis, node));
    analysis->resolver->depth--;
    return TT_OK;
}

static tt_status analyze_body(struct resolver *resolver, struct jinja_frame *frame,
                              const struct jinja_nodes *body)
{
    struct analysis analysis = {.resolver = resolver, .frame = frame};
    size_t mark = resolver->fresh_count;
    TT_TRY(each_of(body, analyze, &analysis));
    resolver->fresh_count = mark;
    return TT_OK;
}

static tt_status analyze_parameters(struct resolver *resolver, struct jinja_frame *frame,
                                    struct jinja_node *target)
{
    struct analysis analysis = {.resolver = resolver, .frame = frame, .as_parameters = true};
    return analyze(&analysis, target);
}

static tt_status analyze_value(struct resolver *resolver, struct jinja_frame *frame, struct jinja_node *node)
{
    struct analysis analysis = {.resolver = resolver, .frame = frame};
    return analyze(&analysis, node);
}

static tt_status new_frame(struct resolver *resolver, struct jinja_frame *parent, struct jinja_frame **out)
{
    struct jinja_frame *frame = tt_arena_alloc(&resolver->jinja->arena, sizeof *frame);
    if (frame == NULL) return TT_ERR_MEMORY;
    frame->parent = parent;
    *out = frame;
    return TT_OK;
}

/* ---- Names to slots ---- */

struct place {
    struct resolver *resolver;
    struct jinja_frame *frame;
    bool is_soft; /* in an `if`: unknown filters and tests are errors when they are used, elsewhere at once */
};

static tt_status resolve(void *context, struct jinja_node *node);

static tt_status resolve_in(struct resolver *resolver, struct jinja_frame *frame, struct jinja_node *node)
{
    struct place place = {.resolver = resolver, .frame = frame};
    return resolve(&place, node);
}

static tt_status resolve_body(struct resolver *resolver, struct jinja_frame *frame,
                              const struct jinja_nodes *body)
{
    struct place place = {.resolver = resolver, .frame = frame};
    return each_of(body, resolve, &place);
}

static tt_status declare_loop(struct resolver *resolver, struct jinja_node *node)
{
    struct search search = {.resolver = resolver, .name = "loop"};
    bool reads;
    TT_TRY(search_name(&search, node));
    if (search.is_assigned)
        return jinja_fail_at(resolver->jinja, node->offset,
                             "the variable 'loop' cannot be assigned to in a loop");
    TT_TRY(reads_name(resolver, &node->body, "loop", &reads));
    if (!reads) return TT_OK;
    struct jinja_node *name = tt_arena_alloc(&resolver->jinja->arena, sizeof *name);
    if (name == NULL) return TT_ERR_MEMORY;
    TT_TRY(jinja_literal(resolver->jinja, "loop", 4, &name->text));
    TT_TRY(symbol_of(resolver, name));
    return declare_parameter(resolver, node->frame, name->symbol, &node->loop_slot);
}

static tt_status resolve_for(struct place *place, struct jinja_node *node)
{
    struct resolver *resolver = place->resolver;
    TT_TRY(resolve(place, node->b));
    TT_TRY(new_frame(resolver, place->frame, &node->frame));
    /* The target comes first, so that it has the same slots in both frames. */
    TT_TRY(analyze_parameters(resolver, node->frame, node->a));
    TT_TRY(declare_loop(resolver, node));
    TT_TRY(analyze_body(resolver, node->frame, &node->body));
    TT_TRY(resolve_in(resolver, node->frame, node->a));
    if (node->c != NULL) {
        TT_TRY(new_frame(resolver, place->frame, &node->test_frame));
        TT_TRY(analyze_parameters(resolver, node->test_frame, node->a));
        TT_TRY(analyze_value(resolver, node->test_frame, node->c));
        TT_TRY(resolve_in(resolver, node->test_frame, node->c));
    }
    TT_TRY(resolve_body(resolver, node->frame, &node->body));
    if (node->otherwise.count == 0) return TT_OK;
    TT_TRY(new_frame(resolver, place->frame, &node->otherwise_frame));
    TT_TRY(analyze_body(resolver, node->otherwise_frame, &node->otherwise));
    return resolve_body(resolver, node->otherwise_frame, &node->otherwise);
}

/* A parameter that the body of a macro has without naming it: -1 where the body does not use it, -2 where it is a named
 * one. */
static tt_status declare_special(struct resolver *resolver, struct jinja_node *node, const char *name,
                                 int *slot)
{
    const struct jinja_signature *signature = node->signature;
    struct jinja_node *parameter = tt_arena_alloc(&resolver->jinja->arena, sizeof *parameter);
    if (parameter == NULL) return TT_ERR_MEMORY;
    bool reads;
    *slot = -1;
    TT_TRY(reads_name(resolver, &node->body, name, &reads));
    if (!reads) return TT_OK;
    for (uint32_t i = 0; i < signature->count; i++) {
        if (strcmp(signature->parameters[i]->text->data, name) != 0) continue;
        *slot = -2;
        if (strcmp(name, "caller") == 0 && i + signature->default_count < signature->count)
            return jinja_fail_at(resolver->jinja, node->offset, "the parameter 'caller' needs a default");
        return TT_OK;
    }
    TT_TRY(jinja_literal(resolver->jinja, name, strlen(name), &parameter->text));
    TT_TRY(symbol_of(resolver, parameter));
    return declare_parameter(resolver, node->frame, parameter->symbol, slot);
}

static tt_status resolve_function(struct place *place, struct jinja_node *node)
{
    struct resolver *resolver = place->resolver;
    struct jinja_signature *signature = node->signature;
    TT_TRY(new_frame(resolver, place->frame, &node->frame));
    for (uint32_t i = 0; i < signature->count; i++)
        TT_TRY(analyze_parameters(resolver, node->frame, signature->parameters[i]));
    TT_TRY(declare_special(resolver, node, "caller", &signature->caller_slot));
    TT_TRY(declare_special(resolver, node, "kwargs", &signature->kwargs_slot));
    TT_TRY(declare_special(resolver, node, "varargs", &signature->varargs_slot));
    for (uint32_t i = 0; i < signature->default_count; i++)
        TT_TRY(analyze_value(resolver, node->frame, signature->defaults[i]));
    TT_TRY(analyze_body(resolver, node->frame, &node->body));
    struct place inside = {.resolver = resolver, .frame = node->frame};
    TT_TRY(each_parameter(signature, resolve, &inside));
    return resolve_body(resolver, node->frame, &node->body);
}

/* A block whose body is a frame, with filters (b) that are evaluated in it. */
static tt_status resolve_block(struct place *place, struct jinja_node *node)
{
    struct resolver *resolver = place->resolver;
    TT_TRY(new_frame(resolver, place->frame, &node->frame));
    for (uint32_t i = 0; node->kind == JINJA_NODE_WITH && i < node->list.count; i += 2)
        TT_TRY(analyze_parameters(resolver, node->frame, node->list.at[i]));
    TT_TRY(analyze_body(resolver, node->frame, &node->body));
    if (node->b != NULL) TT_TRY(analyze_value(resolver, node->frame, node->b));
    for (uint32_t i = 0; i < node->list.count; i++)
        TT_TRY(resolve_in(resolver, i % 2 == 0 ? node->frame : place->frame, node->list.at[i]));
    TT_TRY(resolve_body(resolver, node->frame, &node->body));
    if (node->b != NULL) TT_TRY(resolve_in(resolver, node->frame, node->b));
    return node->a != NULL ? resolve(place, node->a) : TT_OK;
}

static tt_status resolve_soft(struct place *place, struct jinja_node *node)
{
    struct place inside = *place;
    inside.is_soft = true;
    return each_child(node, resolve, &inside);
}

static tt_status resolve_name(struct place *place, struct jinja_node *node)
{
    TT_TRY(symbol_of(place->resolver, node));
    const struct jinja_variable *variable = find_variable(place->frame, node->symbol, &node->hops);
    if (variable == NULL)
        return tt_fail(TT_ERR_INTERNAL, "the name '%s' of a template has no variable", node->text->data);
    node->slot = variable->slot;
    if (strcmp(node->text->data, "self") == 0 && variable->load == JINJA_LOAD_RESOLVE)
        return jinja_fail_at(place->resolver->jinja, node->offset, "the variable 'self' is not supported");
    return TT_OK;
}

static tt_status resolve_node(struct place *place, struct jinja_node *node)
{
    const struct tt_jinja *jinja = place->resolver->jinja;
    switch (node->kind) {
    case JINJA_NODE_NAME:
    case JINJA_NODE_TARGET:
        return resolve_name(place, node);
    case JINJA_NODE_IF:
    case JINJA_NODE_CONDITION:
        return resolve_soft(place, node);
    case JINJA_NODE_FOR:
        return resolve_for(place, node);
    case JINJA_NODE_MACRO:
    case JINJA_NODE_CALL_BLOCK:
        TT_TRY(resolve(place, node->a));
        return resolve_function(place, node);
    case JINJA_NODE_GENERATION:
        return resolve_function(place, node);
    case JINJA_NODE_SET_BLOCK:
    case JINJA_NODE_FILTER_BLOCK:
    case JINJA_NODE_WITH:
        return resolve_block(place, node);
    case JINJA_NODE_FILTER:
    case JINJA_NODE_TEST:
        if (node->id < 0 && !place->is_soft)
            return jinja_fail_at(jinja, node->offset, "there is no %s '%s'",
                                 node->kind == JINJA_NODE_FILTER ? "filter" : "test", node->text->data);
        return each_child(node, resolve, place);
    default:
        return each_child(node, resolve, place);
    }
}

static tt_status resolve(void *context, struct jinja_node *node)
{
    struct place *place = context;
    TT_TRY(enter(place->resolver, node));
    TT_TRY(resolve_node(place, node));
    place->resolver->depth--;
    return TT_OK;
}

tt_status jinja_resolve_names(struct tt_jinja *jinja)
{
    struct resolver resolver = {.jinja = jinja};
    tt_status status = TT_OK;
    TT_GO(new_frame(&resolver, NULL, &jinja->frame));
    TT_GO(analyze_body(&resolver, jinja->frame, &jinja->body));
    TT_GO(resolve_body(&resolver, jinja->frame, &jinja->body));
out:
    tt_free(resolver.fresh);
    return status;
}
