/* for, and the variable `loop`. The elements that pass the condition are found one by one, while the loop runs. */
#include "text/jinja/render.h"

/* The next element that passes the condition; *more is false at the end. */
static tt_status next_passing(struct jinja_loop *loop, struct jinja_value *out, bool *more)
{
    struct jinja_render *render = loop->render;
    const struct jinja_node *node = loop->node;
    for (*more = false; !loop->is_ended;) {
        struct jinja_value test;
        bool there;
        TT_TRY(jinja_next(render, &loop->source, out, &there));
        loop->is_ended = !there;
        if (!there) break;
        if (node->c == NULL || loop->passed) {
            *more = true;
            break;
        }
        TT_TRY(jinja_assign(render, &loop->test, node->a, out));
        jinja_load_frame(render, node->test_frame, &loop->test);
        TT_TRY(jinja_eval(render, &loop->test, node->c, &test));
        *more = jinja_truth(&test);
        if (*more) break;
    }
    return TT_OK;
}

static tt_status peek(struct jinja_loop *loop, bool *more)
{
    *more = loop->has_after;
    if (*more) return TT_OK;
    TT_TRY(next_passing(loop, &loop->after, more));
    loop->has_after = *more;
    return TT_OK;
}

tt_status jinja_loop_length(struct jinja_loop *loop, int64_t *length)
{
    struct jinja_render *render = loop->render;
    if (loop->length < 0 && (loop->node->c != NULL || !jinja_length(&loop->source.source, &loop->length))) {
        /* A source without a length is read to its end, and iterated over from the read values. */
        struct jinja_value rest, element;
        size_t capacity = 0;
        bool more = true;
        TT_TRY(jinja_new_list(render, 0, false, &rest));
        for (;;) {
            TT_TRY(next_passing(loop, &element, &more));
            if (!more) break;
            TT_TRY(jinja_list_append(render, rest.list, &capacity, element));
        }
        loop->length = (int64_t)rest.list->count + loop->index0 + 1 + loop->has_after;
        loop->source = (struct jinja_iterator){.source = rest};
        loop->is_ended = false;
        loop->passed = true;
    }
    *length = loop->length;
    return TT_OK;
}

enum loop_member {
    INDEX,
    INDEX0,
    FIRST,
    LAST,
    LENGTH,
    REVINDEX,
    REVINDEX0,
    PREVITEM,
    NEXTITEM,
    DEPTH,
    DEPTH0,
    CYCLE,
    CHANGED,
    MEMBER_COUNT
};

static tt_status neighbour(struct jinja_loop *loop, enum loop_member member, struct jinja_value *out)
{
    bool more = loop->index0 > 0;
    if (member == NEXTITEM) TT_TRY(peek(loop, &more));
    if (!more)
        *out = jinja_undefined(NULL, NULL);
    else
        *out = member == NEXTITEM ? loop->after : loop->before;
    return TT_OK;
}

static tt_status loop_member(struct jinja_loop *loop, enum loop_member member, struct jinja_value *out)
{
    int64_t length;
    bool more;
    switch (member) {
    case INDEX:
        *out = jinja_integer(loop->index0 + 1);
        return TT_OK;
    case INDEX0:
        *out = jinja_integer(loop->index0);
        return TT_OK;
    case FIRST:
        *out = jinja_bool(loop->index0 == 0);
        return TT_OK;
    case LAST:
        TT_TRY(peek(loop, &more));
        *out = jinja_bool(!more);
        return TT_OK;
    case LENGTH:
    case REVINDEX:
    case REVINDEX0:
        TT_TRY(jinja_loop_length(loop, &length));
        *out = jinja_integer(member == LENGTH ? length : length - loop->index0 - (member == REVINDEX0));
        return TT_OK;
    case PREVITEM:
    case NEXTITEM:
        return neighbour(loop, member, out);
    case DEPTH:
        *out = jinja_integer(1);
        return TT_OK;
    default:
        *out = jinja_integer(0);
        return TT_OK;
    }
}

tt_status jinja_loop_attribute(struct jinja_render *render, struct jinja_loop *loop,
                               const struct jinja_text *name, struct jinja_value *out)
{
    static const char *const names[MEMBER_COUNT] = {"index",    "index0",    "first",    "last",     "length",
                                                    "revindex", "revindex0", "previtem", "nextitem", "depth",
                                                    "depth0",   "cycle",     "changed"};
    *out = (struct jinja_value){.type = JINJA_MISSING};
    for (int i = 0; i < MEMBER_COUNT; i++) {
        if (!tt_span_equals((struct tt_span){name->data, name->bytes}, names[i])) continue;
        if (i != CYCLE && i != CHANGED) return loop_member(loop, (enum loop_member)i, out);
        struct jinja_method *method = jinja_alloc(render, sizeof *method);
        if (method == NULL) return TT_ERR_MEMORY;
        method->self = (struct jinja_value){.type = JINJA_LOOP, .loop = loop};
        method->id = i == CYCLE ? JINJA_METHOD_CYCLE : JINJA_METHOD_CHANGED;
        *out = (struct jinja_value){.type = JINJA_METHOD, .method = method};
        return TT_OK;
    }
    return TT_OK;
}

tt_status jinja_loop_call(struct jinja_render *render, struct jinja_loop *loop, bool cycle,
                          struct jinja_call *call, struct jinja_value *out)
{
    if (call->named.count > 0) return jinja_fail(render, "this call takes no named arguments");
    if (cycle) {
        if (call->count == 0) return jinja_fail(render, "no items for cycling given");
        *out = call->positional[(size_t)loop->index0 % call->count];
        return TT_OK;
    }
    struct jinja_value given;
    bool equal = false;
    TT_TRY(jinja_new_list(render, call->count, true, &given));
    for (size_t i = 0; i < call->count; i++) given.list->elements[i] = call->positional[i];
    if (loop->has_changed_value) TT_TRY(jinja_equal(render, &loop->changed_value, &given, &equal));
    loop->has_changed_value = true;
    loop->changed_value = given;
    *out = jinja_bool(!equal);
    return TT_OK;
}

/* One element; *more is false at the end. */
static tt_status advance(struct jinja_loop *loop, bool *more)
{
    struct jinja_value element;
    if (loop->has_after) {
        element = loop->after;
        loop->has_after = false;
        *more = true;
    } else {
        TT_TRY(next_passing(loop, &element, more));
    }
    if (!*more) return TT_OK;
    loop->index0++;
    loop->before = loop->current;
    loop->current = element;
    return TT_OK;
}

static tt_status begin_loop(struct jinja_render *render, struct jinja_scope *scope,
                            const struct jinja_node *node, struct jinja_loop *loop)
{
    struct jinja_value source;
    TT_TRY(jinja_eval(render, scope, node->b, &source));
    render->at = node->b;
    *loop = (struct jinja_loop){.render = render, .node = node, .index0 = -1, .length = -1};
    TT_TRY(jinja_iterate(render, &source, &loop->source));
    return node->c != NULL ? jinja_enter_frame(render, node->test_frame, scope, &loop->test) : TT_OK;
}

tt_status jinja_exec_for(struct jinja_render *render, struct jinja_scope *scope,
                         const struct jinja_node *node, enum jinja_flow *flow)
{
    struct jinja_loop *loop = jinja_alloc(render, sizeof *loop);
    struct jinja_scope *inner = jinja_alloc(render, 2 * sizeof *inner);
    bool runs_else = true, more;
    if (loop == NULL || inner == NULL) return TT_ERR_MEMORY;
    TT_TRY(begin_loop(render, scope, node, loop));
    TT_TRY(jinja_enter_frame(render, node->frame, scope, inner));
    for (;;) {
        TT_TRY(advance(loop, &more));
        if (!more) break;
        if (node->loop_slot >= 0)
            inner->slots[node->loop_slot] = (struct jinja_value){.type = JINJA_LOOP, .loop = loop};
        TT_TRY(jinja_assign(render, inner, node->a, &loop->current));
        jinja_load_frame(render, node->frame, inner);
        TT_TRY(jinja_exec(render, inner, &node->body, flow));
        if (*flow == JINJA_FLOW_BREAK) break;
        /* The reference compiles it so: only an iteration that reaches its end keeps `else` from running. */
        if (*flow == JINJA_FLOW_NEXT) runs_else = false;
    }
    *flow = JINJA_FLOW_NEXT;
    if (!runs_else || node->otherwise.count == 0) return TT_OK;
    TT_TRY(jinja_enter_frame(render, node->otherwise_frame, scope, inner + 1));
    return jinja_exec(render, inner + 1, &node->otherwise, flow);
}
