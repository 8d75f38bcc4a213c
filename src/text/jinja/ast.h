/* A parsed template: tokens, nodes, and frames, all in the template's arena.
 *
 * A frame is a scope of the language: the template, the body of a loop, of a macro, of a block that captures. Names are
 * resolved when the template is parsed, by the rules of Jinja2's compiler (jinja2/idtracking.py): a node of a name
 * holds how many frames to go up and the slot there. */
#ifndef TT_TEXT_JINJA_AST_H
#define TT_TEXT_JINJA_AST_H

#include "base/arena.h"
#include "text/jinja/jinja.h"
#include "text/jinja/value.h"

enum jinja_token_type {
    JINJA_TOKEN_END,
    JINJA_TOKEN_DATA,
    JINJA_TOKEN_VARIABLE_BEGIN,
    JINJA_TOKEN_VARIABLE_END,
    JINJA_TOKEN_BLOCK_BEGIN,
    JINJA_TOKEN_BLOCK_END,
    JINJA_TOKEN_NAME,
    JINJA_TOKEN_STRING,
    JINJA_TOKEN_INTEGER,
    JINJA_TOKEN_FLOAT,
    JINJA_TOKEN_SIGN, /* `sign` */
};

/* Signs of two characters. */
enum {
    JINJA_SIGN_FLOORDIV = 256,
    JINJA_SIGN_POW,
    JINJA_SIGN_EQ,
    JINJA_SIGN_NE,
    JINJA_SIGN_GE,
    JINJA_SIGN_LE,
};

struct jinja_token {
    uint8_t type;
    uint16_t sign; /* the character, or one of the above */
    uint32_t offset;
    struct tt_span text; /* of the source; of a string without its quotes */
};

enum jinja_node_kind {
    /* expressions */
    JINJA_NODE_CONST,
    JINJA_NODE_NAME,
    JINJA_NODE_LIST,
    JINJA_NODE_TUPLE,
    JINJA_NODE_DICT, /* list: key, value, key, value */
    JINJA_NODE_ATTRIBUTE,
    JINJA_NODE_ITEM,
    JINJA_NODE_SLICE,
    JINJA_NODE_CALL,
    JINJA_NODE_FILTER,
    JINJA_NODE_TEST,
    JINJA_NODE_NOT,
    JINJA_NODE_NEGATIVE,
    JINJA_NODE_POSITIVE,
    JINJA_NODE_BINARY, /* `op`: the sign */
    JINJA_NODE_AND,
    JINJA_NODE_OR,
    JINJA_NODE_COMPARE, /* a, and a list of JINJA_NODE_OPERAND */
    JINJA_NODE_OPERAND, /* `op`: a sign, 'i' for in, 'n' for not in; a */
    JINJA_NODE_CONCAT,
    JINJA_NODE_CONDITION, /* a if b else c; c may be NULL */
    /* targets */
    JINJA_NODE_TARGET,
    JINJA_NODE_MEMBER_TARGET, /* ns.name: a is the name `ns` */
    /* statements */
    JINJA_NODE_DATA,
    JINJA_NODE_OUTPUT,
    JINJA_NODE_IF,        /* a, body, elifs, otherwise */
    JINJA_NODE_FOR,       /* target a, source b, test c, body, otherwise */
    JINJA_NODE_SET,       /* target a, value b */
    JINJA_NODE_SET_BLOCK, /* target a, filters b over JINJA_NODE_CAPTURED, body */
    JINJA_NODE_MACRO,
    JINJA_NODE_CALL_BLOCK,   /* call a */
    JINJA_NODE_FILTER_BLOCK, /* filters b */
    JINJA_NODE_WITH,         /* list: target, value, target, value */
    JINJA_NODE_GENERATION,
    JINJA_NODE_BREAK,
    JINJA_NODE_CONTINUE,
    JINJA_NODE_CAPTURED, /* the captured text of a block, for the filters behind it */
};

struct jinja_nodes {
    struct jinja_node **at;
    uint32_t count;
};

struct jinja_named {
    const struct jinja_text *name;
    struct jinja_node *value;
};

struct jinja_arguments {
    struct jinja_nodes positional;
    struct jinja_named *named;
    uint32_t named_count;
    struct jinja_node *star, *star_star;
};

/* Parameters of a macro or a call block. */
struct jinja_signature {
    struct jinja_node **parameters; /* JINJA_NODE_TARGET */
    struct jinja_node **defaults;   /* of the last `default_count` parameters */
    uint32_t count, default_count;
    const struct jinja_text *name;              /* NULL: a call block */
    int caller_slot, kwargs_slot, varargs_slot; /* -1: the body does not use them; -2: it is a parameter */
};

struct jinja_node {
    uint8_t kind; /* enum jinja_node_kind */
    uint16_t op;
    uint32_t offset;     /* in the source */
    uint32_t hops, slot; /* of a name */
    int id;              /* of a filter, test or method; -1: not known */
    uint32_t symbol;
    const struct jinja_text *text; /* a name, the data */
    struct jinja_node *a, *b, *c;
    struct jinja_nodes list, body, elifs, otherwise;
    union {
        struct jinja_value constant;
        struct jinja_arguments *arguments;
        struct jinja_signature *signature;
    };
    struct jinja_frame *frame, *test_frame, *otherwise_frame;
    int loop_slot; /* JINJA_NODE_FOR: -1 where the body does not use `loop` */
};

enum jinja_load {
    JINJA_LOAD_NONE,
    JINJA_LOAD_PARAMETER,
    JINJA_LOAD_RESOLVE,
    JINJA_LOAD_ALIAS,
    JINJA_LOAD_UNDEFINED
};

struct jinja_variable {
    uint32_t symbol, slot;
    uint32_t hops, outer_slot; /* JINJA_LOAD_ALIAS: frames up from this one */
    uint8_t load;              /* enum jinja_load */
    bool is_stored;
};

struct jinja_frame {
    struct jinja_frame *parent;
    struct jinja_variable *variables;
    uint32_t count, capacity, slot_count;
};

struct tt_jinja {
    struct tt_arena arena;
    char *name;
    char *text; /* with newlines as \n and without the last one */
    size_t bytes;
    struct jinja_token *tokens;
    size_t token_count;
    const struct jinja_text **symbols; /* names of variables */
    uint32_t symbol_count, symbol_capacity;
    struct jinja_nodes body;
    struct jinja_frame *frame;
    bool has_generation;
};

/* "chat_template.jinja line 3, column 7: ..." */
tt_status jinja_fail_at(const struct tt_jinja *jinja, size_t offset, const char *format, ...) TT_PRINTF(3, 4);

/* lexer.c */
tt_status jinja_tokenize(struct tt_jinja *jinja);
tt_status jinja_unescape(struct tt_jinja *jinja, const struct jinja_token *token, struct tt_str *out);

/* parser.c, parse_expression.c, parse_postfix.c */
struct jinja_parser {
    struct tt_jinja *jinja;
    size_t at;
    int depth;
    bool in_loop; /* of this function: where break and continue may stand */
};
tt_status jinja_parse_expression(struct jinja_parser *parser, bool with_condition, struct jinja_node **out);
/* An expression or a tuple without parentheses, which ends before the name `end` ("in"), too. */
tt_status jinja_parse_tuple(struct jinja_parser *parser, bool with_condition, const char *end,
                            struct jinja_node **out);
/* A target of an assignment: a name, a tuple, with `members` ns.name. */
tt_status jinja_parse_target(struct jinja_parser *parser, bool members, struct jinja_node **out);
tt_status jinja_parse_primary(struct jinja_parser *parser, struct jinja_node **out);
/* A primary with its signs and postfix operators. */
tt_status jinja_parse_unary(struct jinja_parser *parser, bool with_filters, struct jinja_node **out);
tt_status jinja_new_binary(struct jinja_parser *parser, enum jinja_node_kind kind, int op, size_t offset,
                           struct jinja_node *a, struct jinja_node *b, struct jinja_node **out);
/* Filters behind `node`; with `inline_first` the first one without its sign. */
tt_status jinja_parse_filters(struct jinja_parser *parser, struct jinja_node *node, bool inline_first,
                              struct jinja_node **out);
tt_status jinja_parse_name(struct jinja_parser *parser, struct jinja_node **out); /* a name as a target */

const struct jinja_token *jinja_token(const struct jinja_parser *parser);
const struct jinja_token *jinja_token_after(const struct jinja_parser *parser);
bool jinja_at_sign(const struct jinja_parser *parser, int sign);
bool jinja_at_name(const struct jinja_parser *parser, const char *name);
bool jinja_skip_sign(struct jinja_parser *parser, int sign);
bool jinja_skip_name(struct jinja_parser *parser, const char *name);
tt_status jinja_expect_sign(struct jinja_parser *parser, int sign);
tt_status jinja_unexpected(const struct jinja_parser *parser, const char *expected);
tt_status jinja_new_node(struct jinja_parser *parser, enum jinja_node_kind kind, size_t offset,
                         struct jinja_node **out);
tt_status jinja_add_node(struct jinja_parser *parser, struct jinja_nodes *nodes, struct jinja_node *node);
tt_status jinja_enter(struct jinja_parser *parser); /* one level deeper; with jinja_leave */
void jinja_leave(struct jinja_parser *parser);
tt_status jinja_literal(struct tt_jinja *jinja, const char *data, size_t bytes,
                        const struct jinja_text **out);

/* scope.c */
tt_status jinja_resolve_names(struct tt_jinja *jinja);

/* filters.c, tests.c, methods.c: ids by name; -1: none */
int jinja_filter_id(struct tt_span name);
int jinja_test_id(struct tt_span name);
int jinja_method_id(struct tt_span name);
/* A filter that Jinja2 has and we do not. */
bool jinja_filter_is_refused(struct tt_span name);

#endif
