/* Expressions. */
#include "text/jinja/render.h"

static tt_status eval_name(const struct jinja_scope *scope, const struct jinja_node *node,
                           struct jinja_value *out)
{
    for (uint32_t i = 0; i < node->hops; i++) scope = scope->parent;
    *out = scope->slots[node->slot];
    if (out->type == JINJA_MISSING) *out = jinja_undefined(NULL, node->text);
    return TT_OK;
}

static tt_status eval_list(struct jinja_render *render, struct jinja_scope *scope,
                           const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value made;
    TT_TRY(jinja_new_list(render, node->list.count, node->kind == JINJA_NODE_TUPLE, &made));
    for (uint32_t i = 0; i < node->list.count; i++)
        TT_TRY(jinja_eval(render, scope, node->list.at[i], &made.list->elements[i]));
    *out = made;
    return TT_OK;
}

static tt_status eval_dict(struct jinja_render *render, struct jinja_scope *scope,
                           const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value made, key, value;
    TT_TRY(jinja_new_dict(render, &made));
    for (uint32_t i = 0; i < node->list.count; i += 2) {
        TT_TRY(jinja_eval(render, scope, node->list.at[i], &key));
        TT_TRY(jinja_eval(render, scope, node->list.at[i + 1], &value));
        render->at = node->list.at[i];
        TT_TRY(jinja_dict_set(render, made.dict, key, value));
    }
    *out = made;
    return TT_OK;
}

static tt_status eval_item(struct jinja_render *render, struct jinja_scope *scope,
                           const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value of, key, bounds[3];
    const struct jinja_value *given[3] = {NULL};
    TT_TRY(jinja_eval(render, scope, node->a, &of));
    if (node->b->kind != JINJA_NODE_SLICE) {
        TT_TRY(jinja_eval(render, scope, node->b, &key));
        render->at = node;
        return jinja_item(render, &of, &key, out);
    }
    const struct jinja_node *parts[3] = {node->b->a, node->b->b, node->b->c};
    for (int i = 0; i < 3; i++) {
        if (parts[i] == NULL) continue;
        TT_TRY(jinja_eval(render, scope, parts[i], &bounds[i]));
        given[i] = &bounds[i];
    }
    render->at = node;
    return jinja_slice(render, &of, given[0], given[1], given[2], out);
}

static tt_status eval_call(struct jinja_render *render, struct jinja_scope *scope,
                           const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_call call = {0};
    struct jinja_value callee;
    const struct jinja_node *of = node->a;
    /* A method that is called at once needs no value of its own. */
    if (of->kind == JINJA_NODE_ATTRIBUTE && of->id >= 0) {
        struct jinja_value self;
        TT_TRY(jinja_eval(render, scope, of->a, &self));
        if (jinja_has_method(&self, of->id)) {
            TT_TRY(jinja_eval_arguments(render, scope, node->arguments, &call));
            render->at = of;
            return jinja_call_method(render, of->id, &self, &call, out);
        }
        render->at = of;
        TT_TRY(jinja_attribute(render, &self, of->text, of->id, &callee));
    } else {
        TT_TRY(jinja_eval(render, scope, of, &callee));
    }
    TT_TRY(jinja_eval_arguments(render, scope, node->arguments, &call));
    render->at = node;
    return jinja_call(render, &callee, &call, out);
}

static tt_status eval_filter(struct jinja_render *render, struct jinja_scope *scope,
                             const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value value;
    struct jinja_call call = {0};
    TT_TRY(jinja_eval(render, scope, node->a, &value));
    TT_TRY(jinja_eval_arguments(render, scope, node->arguments, &call));
    render->at = node;
    if (node->id < 0) return jinja_fail(render, "there is no filter '%s'", node->text->data);
    return jinja_apply_filter(render, node->id, &value, &call, out);
}

static tt_status eval_test(struct jinja_render *render, struct jinja_scope *scope,
                           const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value value;
    struct jinja_call call = {0};
    bool result;
    TT_TRY(jinja_eval(render, scope, node->a, &value));
    TT_TRY(jinja_eval_arguments(render, scope, node->arguments, &call));
    render->at = node;
    if (node->id < 0) return jinja_fail(render, "there is no test '%s'", node->text->data);
    TT_TRY(jinja_apply_test(render, node->id, &value, &call, &result));
    *out = jinja_bool(result);
    return TT_OK;
}

static tt_status compare(struct jinja_render *render, int op, const struct jinja_value *a,
                         const struct jinja_value *b, bool *result)
{
    int order;
    switch (op) {
    case JINJA_SIGN_EQ:
        return jinja_equal(render, a, b, result);
    case JINJA_SIGN_NE:
        TT_TRY(jinja_equal(render, a, b, result));
        *result = !*result;
        return TT_OK;
    case 'i':
        return jinja_contains(render, a, b, result);
    case 'n':
        TT_TRY(jinja_contains(render, a, b, result));
        *result = !*result;
        return TT_OK;
    default:
        break;
    }
    const char *sign = op == '<' ? "<" : op == '>' ? ">" : op == JINJA_SIGN_LE ? "<=" : ">=";
    TT_TRY(jinja_order(render, a, b, sign, &order));
    *result = order != 2 && (op == '<'             ? order < 0
                             : op == '>'           ? order > 0
                             : op == JINJA_SIGN_LE ? order <= 0
                                                   : order >= 0);
    return TT_OK;
}

static tt_status eval_compare(struct jinja_render *render, struct jinja_scope *scope,
                              const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value left, right;
    bool result = true;
    TT_TRY(jinja_eval(render, scope, node->a, &left));
    for (uint32_t i = 0; result && i < node->list.count; i++) {
        const struct jinja_node *operand = node->list.at[i];
        TT_TRY(jinja_eval(render, scope, operand->a, &right));
        render->at = operand;
        TT_TRY(compare(render, operand->op, &left, &right, &result));
        left = right;
    }
    *out = jinja_bool(result);
    return TT_OK;
}

static tt_status eval_concat(struct jinja_render *render, struct jinja_scope *scope,
                             const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_writer writer = jinja_writer_new(render);
    struct jinja_value value;
    for (uint32_t i = 0; i < node->list.count; i++) {
        TT_TRY(jinja_eval(render, scope, node->list.at[i], &value));
        render->at = node;
        TT_TRY(jinja_write_value(&writer, &value));
    }
    return jinja_writer_value(&writer, out);
}

static tt_status eval_condition(struct jinja_render *render, struct jinja_scope *scope,
                                const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value test;
    TT_TRY(jinja_eval(render, scope, node->b, &test));
    if (jinja_truth(&test)) return jinja_eval(render, scope, node->a, out);
    if (node->c != NULL) return jinja_eval(render, scope, node->c, out);
    *out = jinja_undefined(NULL, NULL);
    return TT_OK;
}

static tt_status eval_unary(struct jinja_render *render, struct jinja_scope *scope,
                            const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value value;
    TT_TRY(jinja_eval(render, scope, node->a, &value));
    render->at = node;
    if (node->kind != JINJA_NODE_NOT)
        return jinja_negate(render, &value, node->kind == JINJA_NODE_NEGATIVE, out);
    *out = jinja_bool(!jinja_truth(&value));
    return TT_OK;
}

static tt_status eval_binary(struct jinja_render *render, struct jinja_scope *scope,
                             const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value a, b;
    TT_TRY(jinja_eval(render, scope, node->a, &a));
    if (node->kind == JINJA_NODE_AND || node->kind == JINJA_NODE_OR) {
        if (jinja_truth(&a) == (node->kind == JINJA_NODE_AND)) return jinja_eval(render, scope, node->b, out);
        *out = a;
        return TT_OK;
    }
    TT_TRY(jinja_eval(render, scope, node->b, &b));
    render->at = node;
    return jinja_binary(render, node->op, &a, &b, out);
}

static tt_status eval_node(struct jinja_render *render, struct jinja_scope *scope,
                           const struct jinja_node *node, struct jinja_value *out)
{
    struct jinja_value of;
    switch (node->kind) {
    case JINJA_NODE_CONST:
        *out = node->constant;
        return TT_OK;
    case JINJA_NODE_NAME:
        return eval_name(scope, node, out);
    case JINJA_NODE_LIST:
    case JINJA_NODE_TUPLE:
        return eval_list(render, scope, node, out);
    case JINJA_NODE_DICT:
        return eval_dict(render, scope, node, out);
    case JINJA_NODE_ATTRIBUTE:
        TT_TRY(jinja_eval(render, scope, node->a, &of));
        render->at = node;
        return jinja_attribute(render, &of, node->text, node->id, out);
    case JINJA_NODE_ITEM:
        return eval_item(render, scope, node, out);
    case JINJA_NODE_CALL:
        return eval_call(render, scope, node, out);
    case JINJA_NODE_FILTER:
        return eval_filter(render, scope, node, out);
    case JINJA_NODE_TEST:
        return eval_test(render, scope, node, out);
    case JINJA_NODE_NOT:
    case JINJA_NODE_NEGATIVE:
    case JINJA_NODE_POSITIVE:
        return eval_unary(render, scope, node, out);
    case JINJA_NODE_BINARY:
    case JINJA_NODE_AND:
    case JINJA_NODE_OR:
        return eval_binary(render, scope, node, out);
    case JINJA_NODE_COMPARE:
        return eval_compare(render, scope, node, out);
    case JINJA_NODE_CONCAT:
        return eval_concat(render, scope, node, out);
    case JINJA_NODE_CONDITION:
        return eval_condition(render, scope, node, out);
    case JINJA_NODE_CAPTURED:
        *out = render->captured;
        return TT_OK;
    default:
        return tt_fail(TT_ERR_INTERNAL, "a node of kind %d is no expression", node->kind);
    }
}

tt_status jinja_eval(struct jinja_render *render, struct jinja_scope *scope, const struct jinja_node *node,
                     struct jinja_value *out)
{
    if (node->kind == JINJA_NODE_CONST) {
        *out = node->constant;
        return TT_OK;
    }
    render->at = node;
    if (render->depth >= TT_JINJA_DEPTH_MAX)
        return jinja_fail(render, "more than %d evaluations within each other", TT_JINJA_DEPTH_MAX);
    TT_TRY(jinja_charge(render, 1));
    render->depth++;
    tt_status status = eval_node(render, scope, node, out);
    render->depth--;
    return status;
}
