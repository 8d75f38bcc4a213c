/* Statements to nodes, by jinja2/parser.py, and the public entry to parsing. */
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/utf8.h"
#include "text/jinja/ast.h"

tt_status jinja_fail_at(const struct tt_jinja *jinja, size_t offset, const char *format, ...)
{
    char message[400];
    va_list arguments;
    va_start(arguments, format);
    tt_vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    size_t line = 1, column = 1;
    for (size_t i = 0; i < offset && i < jinja->bytes; i++) {
        column++;
        if (jinja->text[i] == '\n') {
            line++;
            column = 1;
        }
    }
    return tt_fail(TT_ERR_DATA, "%s line %zu, column %zu: %s", jinja->name, line, column, message);
}

/* ---- Tokens and nodes ---- */

const struct jinja_token *jinja_token(const struct jinja_parser *parser)
{
    return &parser->jinja->tokens[parser->at];
}

const struct jinja_token *jinja_token_after(const struct jinja_parser *parser)
{
    size_t at = parser->at + 1 < parser->jinja->token_count ? parser->at + 1 : parser->at;
    return &parser->jinja->tokens[at];
}

bool jinja_at_sign(const struct jinja_parser *parser, int sign)
{
    const struct jinja_token *token = jinja_token(parser);
    return token->type == JINJA_TOKEN_SIGN && token->sign == sign;
}

bool jinja_at_name(const struct jinja_parser *parser, const char *name)
{
    const struct jinja_token *token = jinja_token(parser);
    return token->type == JINJA_TOKEN_NAME && tt_span_equals(token->text, name);
}

bool jinja_skip_sign(struct jinja_parser *parser, int sign)
{
    bool is_there = jinja_at_sign(parser, sign);
    if (is_there) parser->at++;
    return is_there;
}

bool jinja_skip_name(struct jinja_parser *parser, const char *name)
{
    bool is_there = jinja_at_name(parser, name);
    if (is_there) parser->at++;
    return is_there;
}

tt_status jinja_unexpected(const struct jinja_parser *parser, const char *expected)
{
    const struct jinja_token *token = jinja_token(parser);
    if (token->type == JINJA_TOKEN_BLOCK_END || token->type == JINJA_TOKEN_VARIABLE_END)
        return jinja_fail_at(parser->jinja, token->offset, "the tag ends here, expected %s", expected);
    int bytes = token->text.bytes < 40 ? (int)token->text.bytes : 40;
    return jinja_fail_at(parser->jinja, token->offset, "unexpected '%.*s', expected %s", bytes,
                         token->text.data, expected);
}

tt_status jinja_expect_sign(struct jinja_parser *parser, int sign)
{
    if (jinja_skip_sign(parser, sign)) return TT_OK;
    char expected[] = {'\'', (char)sign, '\'', '\0'};
    return jinja_unexpected(parser, expected);
}

static tt_status expect_type(struct jinja_parser *parser, enum jinja_token_type type, const char *expected)
{
    if (jinja_token(parser)->type != type) return jinja_unexpected(parser, expected);
    parser->at++;
    return TT_OK;
}

tt_status jinja_new_node(struct jinja_parser *parser, enum jinja_node_kind kind, size_t offset,
                         struct jinja_node **out)
{
    struct jinja_node *node = tt_arena_alloc(&parser->jinja->arena, sizeof *node);
    if (node == NULL) return TT_ERR_MEMORY;
    node->kind = (uint8_t)kind;
    node->offset = (uint32_t)offset;
    node->id = -1;
    node->loop_slot = -1;
    *out = node;
    return TT_OK;
}

tt_status jinja_add_node(struct jinja_parser *parser, struct jinja_nodes *nodes, struct jinja_node *node)
{
    /* The capacity is the next power of two of the count. */
    if ((nodes->count & (nodes->count - 1)) == 0) {
        size_t capacity = nodes->count == 0 ? 1 : (size_t)nodes->count * 2;
        struct jinja_node **grown = tt_arena_alloc(&parser->jinja->arena, capacity * sizeof *grown);
        if (grown == NULL) return TT_ERR_MEMORY;
        if (nodes->count > 0) memcpy(grown, nodes->at, nodes->count * sizeof *grown);
        nodes->at = grown;
    }
    nodes->at[nodes->count++] = node;
    return TT_OK;
}

tt_status jinja_enter(struct jinja_parser *parser)
{
    if (++parser->depth <= TT_JINJA_NESTING_MAX) return TT_OK;
    return jinja_fail_at(parser->jinja, jinja_token(parser)->offset,
                         "more than %d blocks and expressions within each other", TT_JINJA_NESTING_MAX);
}

void jinja_leave(struct jinja_parser *parser)
{
    parser->depth--;
}

/* ---- Statements ---- */

typedef tt_status parse_tag(struct jinja_parser *parser, struct jinja_node *node);

static tt_status parse_body(struct jinja_parser *parser, const char *const *ends, struct jinja_nodes *body);

/* The rest of a tag, its body, and the name of the tag that ends it, which is skipped if `skip`. */
static tt_status parse_block(struct jinja_parser *parser, const char *const *ends, bool skip,
                             struct jinja_nodes *body)
{
    jinja_skip_sign(parser, ':');
    TT_TRY(expect_type(parser, JINJA_TOKEN_BLOCK_END, "'%}'"));
    TT_TRY(jinja_enter(parser));
    TT_TRY(parse_body(parser, ends, body));
    jinja_leave(parser);
    if (skip) parser->at++;
    return TT_OK;
}

static tt_status parse_for(struct jinja_parser *parser, struct jinja_node *node)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};
    TT_TRY(jinja_parse_target(parser, false, &node->a));
    if (!jinja_skip_name(parser, "in")) return jinja_unexpected(parser, "'in'");
    TT_TRY(jinja_parse_tuple(parser, false, "recursive", &node->b));
    if (jinja_skip_name(parser, "if")) TT_TRY(jinja_parse_expression(parser, true, &node->c));
    if (jinja_at_name(parser, "recursive"))
        return jinja_fail_at(parser->jinja, jinja_token(parser)->offset, "recursive loops are not supported");
    bool was_in_loop = parser->in_loop;
    parser->in_loop = true;
    TT_TRY(parse_block(parser, ends, false, &node->body));
    parser->in_loop = was_in_loop;
    bool has_else = jinja_at_name(parser, "else");
    parser->at++;
    return has_else ? parse_block(parser, end, true, &node->otherwise) : TT_OK;
}

static tt_status parse_if(struct jinja_parser *parser, struct jinja_node *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {"endif", NULL};
    for (struct jinja_node *branch = node;;) {
        TT_TRY(jinja_parse_tuple(parser, false, NULL, &branch->a));
        TT_TRY(parse_block(parser, ends, false, &branch->body));
        size_t offset = jinja_token(parser)->offset;
        if (!jinja_skip_name(parser, "elif")) break;
        TT_TRY(jinja_new_node(parser, JINJA_NODE_IF, offset, &branch));
        TT_TRY(jinja_add_node(parser, &node->elifs, branch));
    }
    if (jinja_skip_name(parser, "else")) return parse_block(parser, end, true, &node->otherwise);
    parser->at++;
    return TT_OK;
}

static tt_status parse_set(struct jinja_parser *parser, struct jinja_node *node)
{
    static const char *const end[] = {"endset", NULL};
    TT_TRY(jinja_parse_target(parser, true, &node->a));
    if (jinja_skip_sign(parser, '=')) return jinja_parse_tuple(parser, true, NULL, &node->b);
    node->kind = JINJA_NODE_SET_BLOCK;
    TT_TRY(jinja_new_node(parser, JINJA_NODE_CAPTURED, node->offset, &node->b));
    TT_TRY(jinja_parse_filters(parser, node->b, false, &node->b));
    return parse_block(parser, end, true, &node->body);
}

static tt_status add_parameter(struct jinja_parser *parser, struct jinja_signature *signature)
{
    struct jinja_node *name, **grown;
    TT_TRY(jinja_parse_name(parser, &name));
    for (uint32_t i = 0; i < signature->count; i++)
        if (strcmp(signature->parameters[i]->text->data, name->text->data) == 0)
            return jinja_fail_at(parser->jinja, name->offset, "the parameter '%s' is there twice",
                                 name->text->data);
    if (signature->count >= TT_JINJA_NESTING_MAX)
        return jinja_fail_at(parser->jinja, name->offset, "more than %d parameters", TT_JINJA_NESTING_MAX);
    grown = tt_arena_alloc(&parser->jinja->arena, 2 * (signature->count + 1) * sizeof *grown);
    if (grown == NULL) return TT_ERR_MEMORY;
    struct jinja_node **defaults = grown + signature->count + 1;
    for (uint32_t i = 0; i < signature->count; i++) grown[i] = signature->parameters[i];
    for (uint32_t i = 0; i < signature->default_count; i++) defaults[i] = signature->defaults[i];
    grown[signature->count++] = name;
    signature->parameters = grown;
    signature->defaults = defaults;
    if (jinja_skip_sign(parser, '='))
        return jinja_parse_expression(parser, true, &defaults[signature->default_count++]);
    if (signature->default_count > 0)
        return jinja_fail_at(parser->jinja, name->offset,
                             "a parameter without a default behind one with a default");
    return TT_OK;
}

static tt_status parse_signature(struct jinja_parser *parser, struct jinja_node *node, bool is_needed)
{
    node->signature = tt_arena_alloc(&parser->jinja->arena, sizeof *node->signature);
    if (node->signature == NULL) return TT_ERR_MEMORY;
    if (!is_needed && !jinja_at_sign(parser, '(')) return TT_OK;
    TT_TRY(jinja_expect_sign(parser, '('));
    while (!jinja_at_sign(parser, ')')) {
        if (node->signature->count > 0) TT_TRY(jinja_expect_sign(parser, ','));
        TT_TRY(add_parameter(parser, node->signature));
    }
    return jinja_expect_sign(parser, ')');
}

/* A body that is a function of its own. */
static tt_status parse_function(struct jinja_parser *parser, const char *const *end, struct jinja_node *node)
{
    bool was_in_loop = parser->in_loop;
    parser->in_loop = false;
    TT_TRY(parse_block(parser, end, true, &node->body));
    parser->in_loop = was_in_loop;
    return TT_OK;
}

static tt_status parse_macro(struct jinja_parser *parser, struct jinja_node *node)
{
    static const char *const end[] = {"endmacro", NULL};
    TT_TRY(jinja_parse_name(parser, &node->a));
    TT_TRY(parse_signature(parser, node, true));
    node->signature->name = node->a->text;
    return parse_function(parser, end, node);
}

static tt_status parse_call_block(struct jinja_parser *parser, struct jinja_node *node)
{
    static const char *const end[] = {"endcall", NULL};
    TT_TRY(parse_signature(parser, node, false));
    TT_TRY(jinja_parse_expression(parser, true, &node->a));
    if (node->a->kind != JINJA_NODE_CALL)
        return jinja_fail_at(parser->jinja, node->a->offset, "expected a call");
    return parse_function(parser, end, node);
}

static tt_status parse_filter_block(struct jinja_parser *parser, struct jinja_node *node)
{
    static const char *const end[] = {"endfilter", NULL};
    TT_TRY(jinja_new_node(parser, JINJA_NODE_CAPTURED, node->offset, &node->b));
    TT_TRY(jinja_parse_filters(parser, node->b, true, &node->b));
    return parse_block(parser, end, true, &node->body);
}

static tt_status parse_with(struct jinja_parser *parser, struct jinja_node *node)
{
    static const char *const end[] = {"endwith", NULL};
    while (jinja_token(parser)->type != JINJA_TOKEN_BLOCK_END) {
        struct jinja_node *target, *value;
        if (node->list.count > 0) TT_TRY(jinja_expect_sign(parser, ','));
        TT_TRY(jinja_parse_target(parser, false, &target));
        TT_TRY(jinja_expect_sign(parser, '='));
        TT_TRY(jinja_parse_expression(parser, true, &value));
        TT_TRY(jinja_add_node(parser, &node->list, target));
        TT_TRY(jinja_add_node(parser, &node->list, value));
    }
    return parse_block(parser, end, true, &node->body);
}

static tt_status parse_generation(struct jinja_parser *parser, struct jinja_node *node)
{
    static const char *const end[] = {"endgeneration", NULL};
    parser->jinja->has_generation = true;
    node->signature = tt_arena_alloc(&parser->jinja->arena, sizeof *node->signature);
    if (node->signature == NULL) return TT_ERR_MEMORY;
    return parse_function(parser, end, node);
}

static tt_status parse_jump(struct jinja_parser *parser, struct jinja_node *node)
{
    if (parser->in_loop) return TT_OK;
    return jinja_fail_at(parser->jinja, node->offset, "'%s' outside of a loop",
                         node->kind == JINJA_NODE_BREAK ? "break" : "continue");
}

static tt_status parse_statement(struct jinja_parser *parser, struct jinja_node **out)
{
    static const struct {
        const char *name;
        enum jinja_node_kind kind;
        parse_tag *parse; /* NULL: Jinja2 has it, and we do not */
    } tags[] = {{"for", JINJA_NODE_FOR, parse_for},
                {"if", JINJA_NODE_IF, parse_if},
                {"set", JINJA_NODE_SET, parse_set},
                {"macro", JINJA_NODE_MACRO, parse_macro},
                {"call", JINJA_NODE_CALL_BLOCK, parse_call_block},
                {"filter", JINJA_NODE_FILTER_BLOCK, parse_filter_block},
                {"with", JINJA_NODE_WITH, parse_with},
                {"generation", JINJA_NODE_GENERATION, parse_generation},
                {"break", JINJA_NODE_BREAK, parse_jump},
                {"continue", JINJA_NODE_CONTINUE, parse_jump},
                {"include", 0, NULL},
                {"import", 0, NULL},
                {"from", 0, NULL},
                {"extends", 0, NULL},
                {"block", 0, NULL},
                {"raw", 0, NULL},
                {"autoescape", 0, NULL},
                {"print", 0, NULL}};
    const struct jinja_token *token = jinja_token(parser);
    if (token->type != JINJA_TOKEN_NAME) return jinja_unexpected(parser, "the name of a tag");
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (!tt_span_equals(token->text, tags[i].name)) continue;
        if (tags[i].parse == NULL)
            return jinja_fail_at(parser->jinja, token->offset, "the tag '%s' is not supported", tags[i].name);
        parser->at++;
        TT_TRY(jinja_new_node(parser, tags[i].kind, token->offset, out));
        return tags[i].parse(parser, *out);
    }
    int bytes = token->text.bytes < 40 ? (int)token->text.bytes : 40;
    return jinja_fail_at(parser->jinja, token->offset, "unknown tag '%.*s'", bytes, token->text.data);
}

static bool at_end(const struct jinja_parser *parser, const char *const *ends)
{
    for (size_t i = 0; ends != NULL && ends[i] != NULL; i++)
        if (jinja_at_name(parser, ends[i])) return true;
    return false;
}

/* Nodes up to a tag of `ends`, whose name is then the current token, or up to the end of the template. */
static tt_status parse_body(struct jinja_parser *parser, const char *const *ends, struct jinja_nodes *body)
{
    for (;;) {
        const struct jinja_token *token = jinja_token(parser);
        struct jinja_node *node;
        if (token->type == JINJA_TOKEN_END) {
            if (ends == NULL) return TT_OK;
            return jinja_fail_at(parser->jinja, token->offset,
                                 "the template ends within a block, expected '%s'", ends[0]);
        }
        parser->at++;
        if (token->type == JINJA_TOKEN_DATA) {
            TT_TRY(jinja_new_node(parser, JINJA_NODE_DATA, token->offset, &node));
            TT_TRY(jinja_literal(parser->jinja, token->text.data, token->text.bytes, &node->text));
        } else if (token->type == JINJA_TOKEN_VARIABLE_BEGIN) {
            TT_TRY(jinja_new_node(parser, JINJA_NODE_OUTPUT, token->offset, &node));
            TT_TRY(jinja_parse_tuple(parser, true, NULL, &node->a));
            TT_TRY(expect_type(parser, JINJA_TOKEN_VARIABLE_END, "'}}'"));
        } else {
            if (at_end(parser, ends)) return TT_OK;
            TT_TRY(jinja_enter(parser));
            TT_TRY(parse_statement(parser, &node));
            jinja_leave(parser);
            TT_TRY(expect_type(parser, JINJA_TOKEN_BLOCK_END, "'%}'"));
        }
        TT_TRY(jinja_add_node(parser, body, node));
    }
}

/* ---- The public face ---- */

/* A copy with newlines as \n and without the last one. */
static tt_status copy_source(struct tt_jinja *jinja, const struct tt_jinja_source *source)
{
    jinja->name = tt_arena_strdup(&jinja->arena, source->name);
    jinja->text = tt_arena_alloc(&jinja->arena, source->bytes + 1);
    if (jinja->name == NULL || jinja->text == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < source->bytes; i++) {
        char c = source->text[i];
        if (c == '\r' && i + 1 < source->bytes && source->text[i + 1] == '\n') i++;
        jinja->text[jinja->bytes++] = c == '\r' ? '\n' : c;
    }
    if (jinja->bytes > 0 && jinja->text[jinja->bytes - 1] == '\n') jinja->bytes--;
    jinja->text[jinja->bytes] = '\0';
    return TT_OK;
}

static tt_status parse_template(struct tt_jinja *jinja)
{
    struct jinja_parser parser = {.jinja = jinja};
    TT_TRY(jinja_tokenize(jinja));
    TT_TRY(parse_body(&parser, NULL, &jinja->body));
    return jinja_resolve_names(jinja);
}

tt_status tt_jinja_parse(const struct tt_jinja_source *source, struct tt_jinja **out)
{
    tt_status status = TT_OK;
    struct tt_jinja *jinja = tt_calloc(1, sizeof *jinja);
    if (jinja == NULL) return TT_ERR_MEMORY;
    if (source->bytes > TT_JINJA_SOURCE_MAX)
        TT_GO(tt_fail(TT_ERR_DATA, "%s has %zu bytes, a template at most %d", source->name, source->bytes,
                      TT_JINJA_SOURCE_MAX));
    size_t invalid = tt_utf8_invalid_at(source->text, source->bytes);
    if (invalid < source->bytes)
        TT_GO(tt_fail(TT_ERR_DATA, "%s is not UTF-8 at byte %zu", source->name, invalid));
    TT_GO(copy_source(jinja, source));
    TT_GO(parse_template(jinja));
    tt_free(jinja->tokens);
    jinja->tokens = NULL;
    *out = jinja;
    return TT_OK;
out:
    tt_jinja_destroy(jinja);
    return status;
}

void tt_jinja_destroy(struct tt_jinja *jinja)
{
    if (jinja == NULL) return;
    tt_free(jinja->tokens);
    tt_free(jinja->symbols);
    tt_arena_deinit(&jinja->arena);
    tt_free(jinja);
}

bool tt_jinja_has_generation(const struct tt_jinja *jinja)
{
    return jinja->has_generation;
}
