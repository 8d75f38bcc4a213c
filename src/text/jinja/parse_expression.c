/* Expressions to nodes, by the grammar of jinja2/parser.py: one function per level of precedence. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "text/jinja/ast.h"

typedef tt_status parse_level(struct jinja_parser *parser, struct jinja_node **out);

static parse_level parse_condition, parse_or, parse_not;
static tt_status parse_unary(struct jinja_parser *parser, bool with_filters, struct jinja_node **out);

tt_status jinja_literal(struct tt_jinja *jinja, const char *data, size_t bytes, const struct jinja_text **out)
{
    struct jinja_text *text = tt_arena_alloc(&jinja->arena, sizeof *text);
    char *copy = tt_arena_alloc(&jinja->arena, bytes + 1);
    if (text == NULL || copy == NULL) return TT_ERR_MEMORY;
    memcpy(copy, data, bytes);
    *text = (struct jinja_text){.data = copy, .bytes = (uint32_t)bytes};
    for (size_t i = 0; i < bytes; i++) text->points += ((unsigned char)data[i] & 0xc0) != 0x80;
    *out = text;
    return TT_OK;
}

static size_t here(const struct jinja_parser *parser)
{
    return jinja_token(parser)->offset;
}

static tt_status new_binary(struct jinja_parser *parser, enum jinja_node_kind kind, int op, size_t offset,
                            struct jinja_node *a, struct jinja_node *b, struct jinja_node **out)
{
    TT_TRY(jinja_new_node(parser, kind, offset, out));
    (*out)->op = (uint16_t)op;
    (*out)->a = a;
    (*out)->b = b;
    return TT_OK;
}

tt_status jinja_parse_expression(struct jinja_parser *parser, bool with_condition, struct jinja_node **out)
{
    TT_TRY(jinja_enter(parser));
    TT_TRY(with_condition ? parse_condition(parser, out) : parse_or(parser, out));
    jinja_leave(parser);
    return TT_OK;
}

static tt_status parse_condition(struct jinja_parser *parser, struct jinja_node **out)
{
    size_t offset = here(parser);
    struct jinja_node *left;
    TT_TRY(parse_or(parser, &left));
    while (jinja_skip_name(parser, "if")) {
        struct jinja_node *test, *otherwise = NULL, *node;
        TT_TRY(parse_or(parser, &test));
        if (jinja_skip_name(parser, "else")) TT_TRY(jinja_parse_expression(parser, true, &otherwise));
        TT_TRY(new_binary(parser, JINJA_NODE_CONDITION, 0, offset, left, test, &node));
        node->c = otherwise;
        left = node;
    }
    *out = left;
    return TT_OK;
}

static tt_status parse_and(struct jinja_parser *parser, struct jinja_node **out)
{
    size_t offset = here(parser);
    struct jinja_node *left, *right;
    TT_TRY(parse_not(parser, &left));
    while (jinja_skip_name(parser, "and")) {
        TT_TRY(parse_not(parser, &right));
        TT_TRY(new_binary(parser, JINJA_NODE_AND, 0, offset, left, right, &left));
    }
    *out = left;
    return TT_OK;
}

static tt_status parse_or(struct jinja_parser *parser, struct jinja_node **out)
{
    size_t offset = here(parser);
    struct jinja_node *left, *right;
    TT_TRY(parse_and(parser, &left));
    while (jinja_skip_name(parser, "or")) {
        TT_TRY(parse_and(parser, &right));
        TT_TRY(new_binary(parser, JINJA_NODE_OR, 0, offset, left, right, &left));
    }
    *out = left;
    return TT_OK;
}

/* The operator of a comparison here, skipped; 0: none. */
static int skip_comparison(struct jinja_parser *parser)
{
    static const int signs[] = {JINJA_SIGN_EQ, JINJA_SIGN_NE, JINJA_SIGN_GE, JINJA_SIGN_LE, '>', '<'};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (jinja_skip_sign(parser, signs[i])) return signs[i];
    if (jinja_skip_name(parser, "in")) return 'i';
    const struct jinja_token *after = jinja_token_after(parser);
    if (jinja_at_name(parser, "not") && after->type == JINJA_TOKEN_NAME &&
        tt_span_equals(after->text, "in")) {
        parser->at += 2;
        return 'n';
    }
    return 0;
}

/* Levels of binary operators from weak to strong; each operand is of the next level. */
enum { LEVEL_SUM, LEVEL_CONCAT, LEVEL_PRODUCT, LEVEL_POWER, LEVEL_COUNT };

static int skip_operator(struct jinja_parser *parser, int level)
{
    static const int signs[LEVEL_COUNT][4] = {
        {'+', '-'}, {'~'}, {'*', '/', JINJA_SIGN_FLOORDIV, '%'}, {JINJA_SIGN_POW}};
    for (int i = 0; i < 4 && signs[level][i] != 0; i++)
        if (jinja_skip_sign(parser, signs[level][i])) return signs[level][i];
    return 0;
}

static tt_status parse_binary(struct jinja_parser *parser, int level, struct jinja_node **out)
{
    if (level == LEVEL_COUNT) return parse_unary(parser, true, out);
    size_t offset = here(parser);
    struct jinja_node *left, *right, *joined = NULL;
    TT_TRY(parse_binary(parser, level + 1, &left));
    for (;;) {
        size_t sign = here(parser);
        int op = skip_operator(parser, level);
        if (op == 0) break;
        TT_TRY(parse_binary(parser, level + 1, &right));
        if (op != '~') {
            TT_TRY(new_binary(parser, JINJA_NODE_BINARY, op, sign, left, right, &left));
            continue;
        }
        if (joined == NULL) {
            TT_TRY(jinja_new_node(parser, JINJA_NODE_CONCAT, offset, &joined));
            TT_TRY(jinja_add_node(parser, &joined->list, left));
            left = joined;
        }
        TT_TRY(jinja_add_node(parser, &joined->list, right));
    }
    *out = left;
    return TT_OK;
}

static tt_status parse_comparison(struct jinja_parser *parser, struct jinja_node **out)
{
    struct jinja_node *left, *node = NULL;
    TT_TRY(parse_binary(parser, LEVEL_SUM, &left));
    for (;;) {
        size_t offset = here(parser);
        int op = skip_comparison(parser);
        if (op == 0) break;
        struct jinja_node *right, *operand;
        TT_TRY(parse_binary(parser, LEVEL_SUM, &right));
        TT_TRY(new_binary(parser, JINJA_NODE_OPERAND, op, offset, right, NULL, &operand));
        if (node == NULL) TT_TRY(new_binary(parser, JINJA_NODE_COMPARE, 0, offset, left, NULL, &node));
        TT_TRY(jinja_add_node(parser, &node->list, operand));
    }
    *out = node != NULL ? node : left;
    return TT_OK;
}

static tt_status parse_not(struct jinja_parser *parser, struct jinja_node **out)
{
    size_t offset = here(parser);
    if (!jinja_skip_name(parser, "not")) return parse_comparison(parser, out);
    struct jinja_node *inner;
    TT_TRY(jinja_enter(parser));
    TT_TRY(parse_not(parser, &inner));
    jinja_leave(parser);
    return new_binary(parser, JINJA_NODE_NOT, 0, offset, inner, NULL, out);
}

/* ---- Primaries ---- */

static tt_status parse_strings(struct jinja_parser *parser, struct jinja_node *node)
{
    struct tt_str joined = {0};
    tt_status status = TT_OK;
    const struct jinja_text *text;
    for (; jinja_token(parser)->type == JINJA_TOKEN_STRING; parser->at++)
        TT_GO(jinja_unescape(parser->jinja, jinja_token(parser), &joined));
    TT_GO(jinja_literal(parser->jinja, tt_str_text(&joined), joined.bytes, &text));
    node->constant = (struct jinja_value){.type = JINJA_TEXT, .text = text};
out:
    tt_str_deinit(&joined);
    return status;
}

static tt_status parse_number(struct jinja_parser *parser, struct jinja_node *node)
{
    const struct jinja_token *token = jinja_token(parser);
    char digits[400];
    size_t count = 0;
    for (size_t i = 0; i < token->text.bytes && count + 1 < sizeof digits; i++)
        if (token->text.data[i] != '_') digits[count++] = token->text.data[i];
    digits[count] = '\0';
    if (count + 1 == sizeof digits)
        return jinja_fail_at(parser->jinja, token->offset, "a number of too many digits");
    parser->at++;
    if (token->type == JINJA_TOKEN_FLOAT) {
        double value;
        tt_parse_double_prefix(digits, &value);
        node->constant = jinja_float(value);
        return TT_OK;
    }
    int base = 10;
    if (digits[0] == '0' && count > 1) {
        char letter = (char)(digits[1] | 0x20);
        base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    }
    int64_t value = 0;
    for (size_t i = base == 10 ? 0 : 2; i < count; i++) {
        int digit = digits[i] <= '9' ? digits[i] - '0' : (digits[i] | 0x20) - 'a' + 10;
        if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value))
            return jinja_fail_at(parser->jinja, token->offset, "integers beyond 64 bits are not supported");
    }
    node->constant = jinja_integer(value);
    return TT_OK;
}

/* Items between brackets up to `end`, each by `parse`; a comma may follow the last one. */
static tt_status parse_items(struct jinja_parser *parser, int end, bool pairs, struct jinja_nodes *list)
{
    while (!jinja_at_sign(parser, end)) {
        struct jinja_node *item;
        if (list->count > 0) TT_TRY(jinja_expect_sign(parser, ','));
        if (jinja_at_sign(parser, end)) break;
        TT_TRY(jinja_parse_expression(parser, true, &item));
        TT_TRY(jinja_add_node(parser, list, item));
        if (!pairs) continue;
        TT_TRY(jinja_expect_sign(parser, ':'));
        TT_TRY(jinja_parse_expression(parser, true, &item));
        TT_TRY(jinja_add_node(parser, list, item));
    }
    return jinja_expect_sign(parser, end);
}

static tt_status parse_name(struct jinja_parser *parser, struct jinja_node **out)
{
    static const struct {
        const char *name;
        enum jinja_type type;
        bool value;
    } constants[] = {{"true", JINJA_BOOL, true},   {"True", JINJA_BOOL, true},  {"false", JINJA_BOOL, false},
                     {"False", JINJA_BOOL, false}, {"none", JINJA_NONE, false}, {"None", JINJA_NONE, false}};
    const struct jinja_token *token = jinja_token(parser);
    parser->at++;
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        if (!tt_span_equals(token->text, constants[i].name)) continue;
        TT_TRY(jinja_new_node(parser, JINJA_NODE_CONST, token->offset, out));
        (*out)->constant =
            (struct jinja_value){.type = (uint8_t)constants[i].type, .boolean = constants[i].value};
        return TT_OK;
    }
    TT_TRY(jinja_new_node(parser, JINJA_NODE_NAME, token->offset, out));
    return jinja_literal(parser->jinja, token->text.data, token->text.bytes, &(*out)->text);
}

static tt_status parse_primary(struct jinja_parser *parser, struct jinja_node **out)
{
    const struct jinja_token *token = jinja_token(parser);
    switch (token->type) {
    case JINJA_TOKEN_NAME:
        return parse_name(parser, out);
    case JINJA_TOKEN_STRING:
        TT_TRY(jinja_new_node(parser, JINJA_NODE_CONST, token->offset, out));
        return parse_strings(parser, *out);
    case JINJA_TOKEN_INTEGER:
    case JINJA_TOKEN_FLOAT:
        TT_TRY(jinja_new_node(parser, JINJA_NODE_CONST, token->offset, out));
        return parse_number(parser, *out);
    default:
        break;
    }
    if (jinja_skip_sign(parser, '(')) {
        TT_TRY(jinja_parse_tuple(parser, true, "(", out));
        return jinja_expect_sign(parser, ')');
    }
    bool is_list = jinja_skip_sign(parser, '[');
    if (is_list || jinja_skip_sign(parser, '{')) {
        TT_TRY(jinja_new_node(parser, is_list ? JINJA_NODE_LIST : JINJA_NODE_DICT, token->offset, out));
        return parse_items(parser, is_list ? ']' : '}', !is_list, &(*out)->list);
    }
    return jinja_unexpected(parser, "an expression");
}

/* `end`: the name that ends the tuple; "(": it stands in parentheses and may be empty; NULL. */
static tt_status parse_tuple_of(struct jinja_parser *parser, bool simple, bool with_condition,
                                const char *end, struct jinja_node **out)
{
    size_t offset = here(parser);
    struct jinja_nodes items = {0};
    bool is_tuple = false, in_parentheses = end != NULL && end[0] == '(';
    for (;;) {
        if (items.count > 0) TT_TRY(jinja_expect_sign(parser, ','));
        enum jinja_token_type type = jinja_token(parser)->type;
        if (type == JINJA_TOKEN_VARIABLE_END || type == JINJA_TOKEN_BLOCK_END || jinja_at_sign(parser, ')') ||
            (end != NULL && jinja_at_name(parser, end)))
            break;
        struct jinja_node *item;
        TT_TRY(simple ? parse_primary(parser, &item) : jinja_parse_expression(parser, with_condition, &item));
        TT_TRY(jinja_add_node(parser, &items, item));
        if (!jinja_at_sign(parser, ',')) break;
        is_tuple = true;
    }
    if (!is_tuple && items.count > 0) {
        *out = items.at[0];
        return TT_OK;
    }
    if (!is_tuple && !in_parentheses) return jinja_unexpected(parser, "an expression");
    TT_TRY(jinja_new_node(parser, JINJA_NODE_TUPLE, offset, out));
    (*out)->list = items;
    return TT_OK;
}

tt_status jinja_parse_tuple(struct jinja_parser *parser, bool with_condition, const char *end,
                            struct jinja_node **out)
{
    TT_TRY(jinja_enter(parser));
    TT_TRY(parse_tuple_of(parser, false, with_condition, end, out));
    jinja_leave(parser);
    return TT_OK;
}

/* ---- Targets ---- */

static tt_status make_target(struct jinja_parser *parser, struct jinja_node *node)
{
    TT_TRY(jinja_enter(parser));
    if (node->kind == JINJA_NODE_NAME) {
        node->kind = JINJA_NODE_TARGET;
    } else if (node->kind == JINJA_NODE_TUPLE) {
        for (uint32_t i = 0; i < node->list.count; i++) TT_TRY(make_target(parser, node->list.at[i]));
    } else if (node->kind != JINJA_NODE_MEMBER_TARGET) {
        return jinja_fail_at(parser->jinja, node->offset, "this cannot be assigned to");
    }
    jinja_leave(parser);
    return TT_OK;
}

tt_status jinja_parse_target(struct jinja_parser *parser, bool members, struct jinja_node **out)
{
    size_t offset = here(parser);
    TT_TRY(parse_tuple_of(parser, true, false, "in", out));
    if (members && (*out)->kind == JINJA_NODE_NAME && jinja_skip_sign(parser, '.')) {
        struct jinja_node *name = *out;
        const struct jinja_token *token = jinja_token(parser);
        if (token->type != JINJA_TOKEN_NAME) return jinja_unexpected(parser, "a name");
        parser->at++;
        TT_TRY(new_binary(parser, JINJA_NODE_MEMBER_TARGET, 0, offset, name, NULL, out));
        TT_TRY(jinja_literal(parser->jinja, token->text.data, token->text.bytes, &(*out)->text));
        if (jinja_at_sign(parser, ','))
            return jinja_fail_at(parser->jinja, offset,
                                 "several members of namespaces at once are not supported");
    }
    return make_target(parser, *out);
}

tt_status jinja_parse_name(struct jinja_parser *parser, struct jinja_node **out)
{
    const struct jinja_token *token = jinja_token(parser);
    if (token->type != JINJA_TOKEN_NAME) return jinja_unexpected(parser, "a name");
    TT_TRY(parse_name(parser, out));
    return make_target(parser, *out);
}

/* ---- What follows a primary ---- */

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
    TT_TRY(new_binary(parser, JINJA_NODE_SLICE, 0, offset, from, NULL, &node));
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
    return new_binary(parser, JINJA_NODE_ITEM, 0, offset, of, item, out);
}

static tt_status parse_dot(struct jinja_parser *parser, struct jinja_node *of, size_t offset,
                           struct jinja_node **out)
{
    const struct jinja_token *token = jinja_token(parser);
    if (token->type == JINJA_TOKEN_INTEGER) {
        struct jinja_node *index;
        TT_TRY(parse_primary(parser, &index));
        return new_binary(parser, JINJA_NODE_ITEM, 0, offset, of, index, out);
    }
    if (token->type != JINJA_TOKEN_NAME) return jinja_unexpected(parser, "a name or a number");
    parser->at++;
    TT_TRY(new_binary(parser, JINJA_NODE_ATTRIBUTE, 0, token->offset, of, NULL, out));
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

/* Behind the parenthesis. */
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
    TT_TRY(new_binary(parser, kind, 0, offset, of, NULL, out));
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
        TT_TRY(parse_primary(parser, &argument));
        TT_TRY(parse_postfix(parser, argument, &argument));
        TT_TRY(jinja_add_node(parser, &node->arguments->positional, argument));
    }
    *out = node;
    return is_negated ? new_binary(parser, JINJA_NODE_NOT, 0, offset, node, NULL, out) : TT_OK;
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

static tt_status parse_unary(struct jinja_parser *parser, bool with_filters, struct jinja_node **out)
{
    size_t offset = here(parser);
    bool is_negative = jinja_skip_sign(parser, '-');
    struct jinja_node *node;
    TT_TRY(jinja_enter(parser));
    if (is_negative || jinja_skip_sign(parser, '+')) {
        TT_TRY(parse_unary(parser, false, &node));
        TT_TRY(new_binary(parser, is_negative ? JINJA_NODE_NEGATIVE : JINJA_NODE_POSITIVE, 0, offset, node,
                          NULL, &node));
    } else {
        TT_TRY(parse_primary(parser, &node));
    }
    TT_TRY(parse_postfix(parser, node, &node));
    if (with_filters) TT_TRY(parse_filters_and_tests(parser, node, &node));
    jinja_leave(parser);
    *out = node;
    return TT_OK;
}
