/* Statements. */
#include "text/jinja/render.h"

void jinja_load_frame(struct jinja_render *render, const struct jinja_frame *frame, struct jinja_scope *scope)
{
    for (uint32_t i = 0; i < frame->count; i++) {
        const struct jinja_variable *variable = &frame->variables[i];
        struct jinja_value *slot = &scope->slots[variable->slot];
        switch (variable->load) {
        case JINJA_LOAD_PARAMETER:
            break;
        case JINJA_LOAD_RESOLVE:
            *slot = render->context[variable->symbol];
            break;
        case JINJA_LOAD_ALIAS: {
            const struct jinja_scope *outer = scope;
            for (uint32_t hops = 0; hops < variable->hops; hops++) outer = outer->parent;
            *slot = outer->slots[variable->outer_slot];
            break;
        }
        default:
            *slot = (struct jinja_value){.type = JINJA_MISSING};
        }
    }
}

tt_status jinja_enter_frame(struct jinja_render *render, const struct jinja_frame *frame,
                            struct jinja_scope *parent, struct jinja_scope *scope)
{
    scope->parent = parent;
    scope->slots = jinja_alloc(render, frame->count * sizeof *scope->slots);
    if (scope->slots == NULL) return TT_ERR_MEMORY;
    jinja_load_frame(render, frame, scope);
    return TT_OK;
}

/* A scope that macros may keep: in the memory of the rendering. */
static struct jinja_scope *new_scope(struct jinja_render *render, const struct jinja_frame *frame,
                                     struct jinja_scope *parent)
{
    struct jinja_scope *scope = jinja_alloc(render, sizeof *scope);
    if (scope == NULL || jinja_enter_frame(render, frame, parent, scope) != TT_OK) return NULL;
    return scope;
}

/* ---- Assignments ---- */

static tt_status assign_tuple(struct jinja_render *render, struct jinja_scope *scope,
                              const struct jinja_node *target, const struct jinja_value *value)
{
    struct jinja_iterator iterator;
    if (!jinja_is_iterable(value))
        return jinja_fail(render, "cannot unpack non-iterable %s object", jinja_type_name(value));
    TT_TRY(jinja_iterate(render, value, &iterator));
    for (uint32_t i = 0;; i++) {
        struct jinja_value element;
        bool more;
        TT_TRY(jinja_next(render, &iterator, &element, &more));
        if (!more && i == target->list.count) return TT_OK;
        if (!more)
            return jinja_fail(render, "not enough values to unpack (expected %u, got %u)", target->list.count,
                              i);
        if (i == target->list.count)
            return jinja_fail(render, "too many values to unpack (expected %u)", target->list.count);
        TT_TRY(jinja_assign(render, scope, target->list.at[i], &element));
    }
}

tt_status jinja_assign(struct jinja_render *render, struct jinja_scope *scope,
                       const struct jinja_node *target, const struct jinja_value *value)
{
    render->at = target;
    if (target->kind == JINJA_NODE_TUPLE) return assign_tuple(render, scope, target, value);
    if (target->kind == JINJA_NODE_TARGET) {
        for (uint32_t i = 0; i < target->hops; i++) scope = scope->parent;
        scope->slots[target->slot] = *value;
        return TT_OK;
    }
    struct jinja_value of, key = {.type = JINJA_TEXT, .text = target->text};
    TT_TRY(jinja_eval(render, scope, target->a, &of));
    render->at = target;
    if (of.type != JINJA_NAMESPACE)
        return jinja_fail(render, "cannot assign attribute on non-namespace object");
    return jinja_dict_set(render, of.dict, key, *value);
}

static tt_status exec_set(struct jinja_render *render, struct jinja_scope *scope,
                          const struct jinja_node *node)
{
    struct jinja_value value;
    if (node->a->kind == JINJA_NODE_MEMBER_TARGET) {
        TT_TRY(jinja_eval(render, scope, node->a->a, &value));
        render->at = node->a;
        if (value.type != JINJA_NAMESPACE)
            return jinja_fail(render, "cannot assign attribute on non-namespace object");
    }
    TT_TRY(jinja_eval(render, scope, node->b, &value));
    return jinja_assign(render, scope, node->a, &value);
}

/* ---- Blocks that capture ---- */

/* Runs a body whose output goes to `writer`. */
static tt_status capture(struct jinja_render *render, struct jinja_scope *scope,
                         const struct jinja_nodes *body, struct jinja_writer *writer, enum jinja_flow *flow)
{
    struct jinja_writer *outer = render->out;
    *writer = jinja_writer_new(render);
    render->out = writer;
    TT_TRY(jinja_exec(render, scope, body, flow));
    render->out = outer;
    return TT_OK;
}

/* {% set x %} and {% filter %}: a text, and filters over it. */
static tt_status exec_captured(struct jinja_render *render, struct jinja_scope *scope,
                               const struct jinja_node *node, enum jinja_flow *flow)
{
    struct jinja_writer writer;
    struct jinja_value value, before = render->captured;
    struct jinja_scope *inner = new_scope(render, node->frame, scope);
    if (inner == NULL) return TT_ERR_MEMORY;
    TT_TRY(capture(render, inner, &node->body, &writer, flow));
    if (*flow != JINJA_FLOW_NEXT) return TT_OK; /* a jump drops the captured text */
    TT_TRY(jinja_writer_value(&writer, &render->captured));
    TT_TRY(jinja_eval(render, inner, node->b, &value));
    render->captured = before;
    if (node->kind == JINJA_NODE_SET_BLOCK) return jinja_assign(render, scope, node->a, &value);
    render->at = node;
    if (!jinja_is_text(&value)) return jinja_fail(render, "the filters of a block must give a text");
    return jinja_write_value(render->out, &value);
}

static tt_status exec_generation(struct jinja_render *render, struct jinja_scope *scope,
                                 const struct jinja_node *node)
{
    struct jinja_macro macro = {.node = node, .scope = scope};
    struct jinja_call call = {0};
    struct jinja_value value;
    render->at = node;
    TT_TRY(jinja_call_macro(render, &macro, &call, &value));
    size_t from = render->out->bytes;
    TT_TRY(jinja_write_value(render->out, &value));
    return jinja_write_mark(render->out, from);
}

/* ---- Macros ---- */

static tt_status new_macro(struct jinja_render *render, struct jinja_scope *scope,
                           const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_macro *macro = jinja_alloc(render, sizeof *macro);
    if (macro == NULL) return TT_ERR_MEMORY;
    *macro = (struct jinja_macro){.node = node, .scope = scope};
    *out = (struct jinja_value){.type = JINJA_MACRO, .macro = macro};
    return TT_OK;
}

static tt_status exec_call_block(struct jinja_render *render, struct jinja_scope *scope,
                                 const struct jinja_node *node)
{
    static const struct jinja_text name = {.data = "caller", .bytes = 6, .points = 6};
    struct jinja_value caller, callee, value, key = {.type = JINJA_TEXT, .text = &name};
    struct jinja_call call = {0};
    TT_TRY(new_macro(render, scope, node, &caller));
    TT_TRY(jinja_eval(render, scope, node->a->a, &callee));
    TT_TRY(jinja_eval_arguments(render, scope, node->a->arguments, &call));
    render->at = node;
    if (jinja_dict_get(&call.named, "caller", 6) != NULL)
        return jinja_fail(render, "got multiple values for keyword argument 'caller'");
    TT_TRY(jinja_dict_set(render, &call.named, key, caller));
    TT_TRY(jinja_call(render, &callee, &call, &value));
    if (!jinja_is_text(&value)) return jinja_fail(render, "the call of a block must give a text");
    return jinja_write_value(render->out, &value);
}

/* ---- The rest ---- */

static tt_status exec_if(struct jinja_render *render, struct jinja_scope *scope,
                         const struct jinja_node *node, enum jinja_flow *flow)
{
    struct jinja_value test;
    TT_TRY(jinja_eval(render, scope, node->a, &test));
    if (jinja_truth(&test)) return jinja_exec(render, scope, &node->body, flow);
    for (uint32_t i = 0; i < node->elifs.count; i++) {
        TT_TRY(jinja_eval(render, scope, node->elifs.at[i]->a, &test));
        if (jinja_truth(&test)) return jinja_exec(render, scope, &node->elifs.at[i]->body, flow);
    }
    return jinja_exec(render, scope, &node->otherwise, flow);
}

static tt_status exec_with(struct jinja_render *render, struct jinja_scope *scope,
                           const struct jinja_node *node, enum jinja_flow *flow)
{
    struct jinja_scope *inner = new_scope(render, node->frame, scope);
    if (inner == NULL) return TT_ERR_MEMORY;
    for (uint32_t i = 0; i < node->list.count; i += 2) {
        struct jinja_value value;
        TT_TRY(jinja_eval(render, scope, node->list.at[i + 1], &value));
        TT_TRY(jinja_assign(render, inner, node->list.at[i], &value));
    }
    return jinja_exec(render, inner, &node->body, flow);
}

static tt_status exec_output(struct jinja_render *render, struct jinja_scope *scope,
                             const struct jinja_node *node)
{
    struct jinja_value value;
    TT_TRY(jinja_eval(render, scope, node->a, &value));
    render->at = node;
    return jinja_write_value(render->out, &value);
}

static tt_status exec_node(struct jinja_render *render, struct jinja_scope *scope,
                           const struct jinja_node *node, enum jinja_flow *flow)
{
    struct jinja_value macro;
    switch (node->kind) {
    case JINJA_NODE_DATA:
        return jinja_write(render->out, node->text->data, node->text->bytes, 0);
    case JINJA_NODE_OUTPUT:
        return exec_output(render, scope, node);
    case JINJA_NODE_IF:
        return exec_if(render, scope, node, flow);
    case JINJA_NODE_FOR:
        return jinja_exec_for(render, scope, node, flow);
    case JINJA_NODE_SET:
        return exec_set(render, scope, node);
    case JINJA_NODE_SET_BLOCK:
    case JINJA_NODE_FILTER_BLOCK:
        return exec_captured(render, scope, node, flow);
    case JINJA_NODE_MACRO:
        TT_TRY(new_macro(render, scope, node, &macro));
        return jinja_assign(render, scope, node->a, &macro);
    case JINJA_NODE_CALL_BLOCK:
        return exec_call_block(render, scope, node);
    case JINJA_NODE_WITH:
        return exec_with(render, scope, node, flow);
    case JINJA_NODE_GENERATION:
        return exec_generation(render, scope, node);
    case JINJA_NODE_BREAK:
        *flow = JINJA_FLOW_BREAK;
        return TT_OK;
    case JINJA_NODE_CONTINUE:
        *flow = JINJA_FLOW_CONTINUE;
        return TT_OK;
    default:
        return tt_fail(TT_ERR_INTERNAL, "a node of kind %d is no statement", node->kind);
    }
}

tt_status jinja_exec(struct jinja_render *render, struct jinja_scope *scope, const struct jinja_nodes *body,
                     enum jinja_flow *flow)
{
    *flow = JINJA_FLOW_NEXT;
    if (body->count == 0) return TT_OK;
    if (render->depth >= TT_JINJA_DEPTH_MAX) {
        render->at = body->at[0];
        return jinja_fail(render, "more than %d evaluations within each other", TT_JINJA_DEPTH_MAX);
    }
    render->depth++;
    for (uint32_t i = 0; i < body->count && *flow == JINJA_FLOW_NEXT; i++) {
        render->at = body->at[i];
        TT_TRY(jinja_charge(render, 1));
        TT_TRY(exec_node(render, scope, body->at[i], flow));
    }
    render->depth--;
    return TT_OK;
}
