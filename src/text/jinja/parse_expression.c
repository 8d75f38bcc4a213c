/* Expressions to nodes, by the grammar of jinja2/parser.py: one function per level of precedence. */
#include <string.h>

#include "base/number.h"
#include "text/jinja/ast.h"

static tt_status parse_condition(struct jinja_parser *parser, struct jinja_node **out);
static tt_status parse_or(struct jinja_parser *parser, struct jinja_node **out);
static tt_status parse_not(struct jinja_parser *parser, struct jinja_node **out);

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

tt_status jinja_new_binary(struct jinja_parser *parser, enum jinja_node_kind kind, int op, size_t offset,
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
        TT_TRY(jinja_new_binary(parser, JINJA_NODE_CONDITION, 0, offset, left, test, &node));
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
        TT_TRY(jinja_new_binary(parser, JINJA_NODE_AND, 0, offset, left, right, &left));
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
        TT_TRY(jinja_new_binary(parser, JINJA_NODE_OR, 0, offset, left, right, &left));
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
    if (level == LEVEL_COUNT) return jinja_parse_unary(parser, true, out);
    size_t offset = here(parser);
    struct jinja_node *left, *right, *joined = NULL;
    TT_TRY(parse_binary(parser, level + 1, &left));
    for (;;) {
        size_t sign = here(parser);
        int op = skip_operator(parser, level);
        if (op == 0) break;
        TT_TRY(parse_binary(parser, level + 1, &right));
        if (op != '~') {
            TT_TRY(jinja_new_binary(parser, JINJA_NODE_BINARY, op, sign, left, right, &left));
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
        TT_TRY(jinja_new_binary(parser, JINJA_NODE_OPERAND, op, offset, right, NULL, &operand));
        if (node == NULL) TT_TRY(jinja_new_binary(parser, JINJA_NODE_COMPARE, 0, offset, left, NULL, &node));
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
    return jinja_new_binary(parser, JINJA_NODE_NOT, 0, offset, inner, NULL, out);
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

tt_status jinja_parse_primary(struct jinja_parser *parser, struct jinja_node **out)
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
        TT_TRY(simple ? jinja_parse_primary(parser, &item)
                      : jinja_parse_expression(parser, with_condition, &item));
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
        TT_TRY(jinja_new_binary(parser, JINJA_NODE_MEMBER_TARGET, 0, offset, name, NULL, out));
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
