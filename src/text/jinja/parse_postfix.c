/* Postfix operators: members, elements, calls, filters, tests; by the grammar of jinja2/parser.py. */
#include <string.h>

#include "text/jinja/ast.h"

static size_t here(const struct jinja_parser *parser)
{
    return jinja_token(parser)->offset;
}

static bool at_end_of_item(const struct jinja_parser *parser)
{
    return jinja_at_sign(parser, ']') || jinja_at_sign(parser, ',');
}

static tt_status parse_subscribed(struct jinja_parser *parser, struct jinja_node **out)
{
    size_t offset = here(parser);
    struct jinja_node *from = NULL, *node;
    if (!jinja_at_sign(parser, ':')) {
        TT_TRY(jinja_parse_expression(parser, true, &from));
        if (!jinja_at_sign(parser, ':')) {
            *out = from;
            return TT_OK;
        }
    }
    parser->at++;
    TT_TRY(jinja_new_binary(parser, JINJA_NODE_SLICE, 0, offset, from, NULL, &node));
    if (!jinja_at_sign(parser, ':') && !at_end_of_item(parser))
        TT_TRY(jinja_parse_expression(parser, true, &node->b));
    if (jinja_skip_sign(parser, ':') && !at_end_of_item(parser))
        TT_TRY(jinja_parse_expression(parser, true, &node->c));
    *out = node;
    return TT_OK;
}

static tt_status parse_brackets(struct jinja_parser *parser, struct jinja_node *of, size_t offset,
                                struct jinja_node **out)
{
    struct jinja_nodes items = {0};
    struct jinja_node *item;
    while (!jinja_at_sign(parser, ']')) {
        if (items.count > 0) TT_TRY(jinja_expect_sign(parser, ','));
        TT_TRY(parse_subscribed(parser, &item));
        TT_TRY(jinja_add_node(parser, &items, item));
    }
    parser->at++;
    if (items.count != 1) {
        for (uint32_t i = 0; i < items.count; i++)
            if (items.at[i]->kind == JINJA_NODE_SLICE)
                return jinja_fail_at(parser->jinja, offset, "slices of several dimensions are not supported");
        TT_TRY(jinja_new_node(parser, JINJA_NODE_TUPLE, offset, &item));
        item->list = items;
    } else {
        item = items.at[0];
    }
    return jinja_new_binary(parser, JINJA_NODE_ITEM, 0, offset, of, item, out);
}

static tt_status parse_dot(struct jinja_parser *parser, struct jinja_node *of, size_t offset,
                           struct jinja_node **out)
{
    const struct jinja_token *token = jinja_token(parser);
    if (token->type == JINJA_TOKEN_INTEGER) {
        struct jinja_node *index;
        TT_TRY(jinja_parse_primary(parser, &index));
        return jinja_new_binary(parser, JINJA_NODE_ITEM, 0, offset, of, index, out);
    }
    if (token->type != JINJA_TOKEN_NAME) return jinja_unexpected(parser, "a name or a number");
    parser->at++;
    TT_TRY(jinja_new_binary(parser, JINJA_NODE_ATTRIBUTE, 0, token->offset, of, NULL, out));
    (*out)->id = jinja_method_id(token->text);
    return jinja_literal(parser->jinja, token->text.data, token->text.bytes, &(*out)->text);
}

static tt_status add_named(struct jinja_parser *parser, struct jinja_arguments *arguments)
{
    struct jinja_named *grown =
        tt_arena_alloc(&parser->jinja->arena, (arguments->named_count + 1) * sizeof *arguments->named);
    if (grown == NULL) return TT_ERR_MEMORY;
    if (arguments->named_count > 0) memcpy(grown, arguments->named, arguments->named_count * sizeof *grown);
    arguments->named = grown;
    const struct jinja_token *token = jinja_token(parser);
    struct jinja_named *named = &grown[arguments->named_count];
    TT_TRY(jinja_literal(parser->jinja, token->text.data, token->text.bytes, &named->name));
    for (uint32_t i = 0; i < arguments->named_count; i++)
        if (grown[i].name->bytes == named->name->bytes &&
            memcmp(grown[i].name->data, named->name->data, named->name->bytes) == 0)
            return jinja_fail_at(parser->jinja, token->offset, "the argument '%s' is given twice",
                                 named->name->data);
    if (arguments->named_count >= TT_JINJA_NESTING_MAX)
        return jinja_fail_at(parser->jinja, token->offset, "more than %d named arguments",
                             TT_JINJA_NESTING_MAX);
    parser->at += 2;
    arguments->named_count++;
    return jinja_parse_expression(parser, true, &named->value);
}

static tt_status parse_argument(struct jinja_parser *parser, struct jinja_arguments *arguments)
{
    const struct jinja_token *token = jinja_token(parser), *after = jinja_token_after(parser);
    bool is_valid;
    struct jinja_node *value;
    if (jinja_skip_sign(parser, '*')) {
        is_valid = arguments->star == NULL && arguments->star_star == NULL;
        TT_TRY(jinja_parse_expression(parser, true, &arguments->star));
    } else if (jinja_skip_sign(parser, JINJA_SIGN_POW)) {
        is_valid = arguments->star_star == NULL;
        TT_TRY(jinja_parse_expression(parser, true, &arguments->star_star));
    } else if (token->type == JINJA_TOKEN_NAME && after->type == JINJA_TOKEN_SIGN && after->sign == '=') {
        is_valid = arguments->star_star == NULL;
        if (is_valid) TT_TRY(add_named(parser, arguments));
    } else {
        is_valid = arguments->star == NULL && arguments->star_star == NULL && arguments->named_count == 0;
        TT_TRY(jinja_parse_expression(parser, true, &value));
        TT_TRY(jinja_add_node(parser, &arguments->positional, value));
    }
    if (!is_valid)
        return jinja_fail_at(parser->jinja, token->offset, "this argument may not stand behind the others");
    return TT_OK;
}

/* Reads the arguments that follow an opening parenthesis. */
static tt_status parse_arguments(struct jinja_parser *parser, struct jinja_arguments *arguments)
{
    for (bool is_first = true; !jinja_at_sign(parser, ')'); is_first = false) {
        if (!is_first) TT_TRY(jinja_expect_sign(parser, ','));
        if (jinja_at_sign(parser, ')')) break;
        TT_TRY(parse_argument(parser, arguments));
    }
    return jinja_expect_sign(parser, ')');
}

static tt_status new_call(struct jinja_parser *parser, enum jinja_node_kind kind, struct jinja_node *of,
                          size_t offset, struct jinja_node **out)
{
    TT_TRY(jinja_new_binary(parser, kind, 0, offset, of, NULL, out));
    (*out)->arguments = tt_arena_alloc(&parser->jinja->arena, sizeof *(*out)->arguments);
    return (*out)->arguments != NULL ? TT_OK : TT_ERR_MEMORY;
}

static tt_status parse_call(struct jinja_parser *parser, struct jinja_node *of, size_t offset,
                            struct jinja_node **out)
{
    TT_TRY(new_call(parser, JINJA_NODE_CALL, of, offset, out));
    return parse_arguments(parser, (*out)->arguments);
}

/* "name" or "name.name" of a filter or a test. */
static tt_status parse_dotted(struct jinja_parser *parser, struct jinja_node *node)
{
    const struct jinja_token *first = jinja_token(parser), *last = first;
    if (first->type != JINJA_TOKEN_NAME) return jinja_unexpected(parser, "a name");
    for (parser->at++; jinja_skip_sign(parser, '.'); parser->at++) {
        last = jinja_token(parser);
        if (last->type != JINJA_TOKEN_NAME) return jinja_unexpected(parser, "a name");
    }
    return jinja_literal(parser->jinja, first->text.data,
                         (size_t)(last->text.data + last->text.bytes - first->text.data), &node->text);
}

tt_status jinja_parse_filters(struct jinja_parser *parser, struct jinja_node *node, bool inline_first,
                              struct jinja_node **out)
{
    while (inline_first || jinja_skip_sign(parser, '|')) {
        inline_first = false;
        TT_TRY(new_call(parser, JINJA_NODE_FILTER, node, here(parser), &node));
        TT_TRY(parse_dotted(parser, node));
        struct tt_span name = {node->text->data, node->text->bytes};
        node->id = jinja_filter_id(name);
        if (node->id < 0 && jinja_filter_is_refused(name))
            return jinja_fail_at(parser->jinja, node->offset, "the filter '%s' is not supported",
                                 node->text->data);
        if (jinja_skip_sign(parser, '(')) TT_TRY(parse_arguments(parser, node->arguments));
    }
    *out = node;
    return TT_OK;
}

static tt_status parse_postfix(struct jinja_parser *parser, struct jinja_node *node, struct jinja_node **out)
{
    for (;;) {
        size_t offset = here(parser);
        if (jinja_skip_sign(parser, '.'))
            TT_TRY(parse_dot(parser, node, offset, &node));
        else if (jinja_skip_sign(parser, '['))
            TT_TRY(parse_brackets(parser, node, offset, &node));
        else if (jinja_skip_sign(parser, '('))
            TT_TRY(parse_call(parser, node, offset, &node));
        else
            break;
    }
    *out = node;
    return TT_OK;
}

static bool at_test_argument(const struct jinja_parser *parser)
{
    switch (jinja_token(parser)->type) {
    case JINJA_TOKEN_NAME:
        return !jinja_at_name(parser, "else") && !jinja_at_name(parser, "or") &&
               !jinja_at_name(parser, "and");
    case JINJA_TOKEN_STRING:
    case JINJA_TOKEN_INTEGER:
    case JINJA_TOKEN_FLOAT:
        return true;
    default:
        return jinja_at_sign(parser, '[') || jinja_at_sign(parser, '{');
    }
}

static tt_status parse_test(struct jinja_parser *parser, struct jinja_node *of, size_t offset,
                            struct jinja_node **out)
{
    struct jinja_node *node, *argument;
    bool is_negated = jinja_skip_name(parser, "not");
    TT_TRY(new_call(parser, JINJA_NODE_TEST, of, offset, &node));
    TT_TRY(parse_dotted(parser, node));
    node->id = jinja_test_id((struct tt_span){node->text->data, node->text->bytes});
    if (jinja_skip_sign(parser, '(')) {
        TT_TRY(parse_arguments(parser, node->arguments));
    } else if (at_test_argument(parser)) {
        if (jinja_at_name(parser, "is"))
            return jinja_fail_at(parser->jinja, here(parser), "tests with 'is' cannot be chained");
        TT_TRY(jinja_parse_primary(parser, &argument));
        TT_TRY(parse_postfix(parser, argument, &argument));
        TT_TRY(jinja_add_node(parser, &node->arguments->positional, argument));
    }
    *out = node;
    return is_negated ? jinja_new_binary(parser, JINJA_NODE_NOT, 0, offset, node, NULL, out) : TT_OK;
}

static tt_status parse_filters_and_tests(struct jinja_parser *parser, struct jinja_node *node,
                                         struct jinja_node **out)
{
    for (;;) {
        size_t offset = here(parser);
        if (jinja_at_sign(parser, '|'))
            TT_TRY(jinja_parse_filters(parser, node, false, &node));
        else if (jinja_skip_name(parser, "is"))
            TT_TRY(parse_test(parser, node, offset, &node));
        else if (jinja_skip_sign(parser, '('))
            TT_TRY(parse_call(parser, node, offset, &node));
        else
            break;
    }
    *out = node;
    return TT_OK;
}

tt_status jinja_parse_unary(struct jinja_parser *parser, bool with_filters, struct jinja_node **out)
{
    size_t offset = here(parser);
    bool is_negative = jinja_skip_sign(parser, '-');
    struct jinja_node *node;
    TT_TRY(jinja_enter(parser));
    if (is_negative || jinja_skip_sign(parser, '+')) {
        TT_TRY(jinja_parse_unary(parser, false, &node));
        TT_TRY(jinja_new_binary(parser, is_negative ? JINJA_NODE_NEGATIVE : JINJA_NODE_POSITIVE, 0, offset,
                                node, NULL, &node));
    } else {
        TT_TRY(jinja_parse_primary(parser, &node));
    }
    TT_TRY(parse_postfix(parser, node, &node));
    if (with_filters) TT_TRY(parse_filters_and_tests(parser, node, &node));
    jinja_leave(parser);
    *out = node;
    return TT_OK;
}
