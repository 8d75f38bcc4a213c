/* The inside of the JSON parser, for base/json_{parse,scalar,check}.c only. */
#ifndef TT_BASE_JSON_PARSER_H
#define TT_BASE_JSON_PARSER_H

#include "base/json_value.h"

/* A member, or an element, which has no key. */
struct json_entry {
    struct json_member member;
    const char *source; /* where its key begins */
};

/* A key of an object whose members are not kept: bytes of the block of strings. */
struct json_key {
    uint32_t at, bytes;
};

struct json_parser {
    const char *start, *at, *end;
    const struct tt_json_source *source;
    struct tt_arena *arena;
    char *block; /* of strings: as long as the text */
    char *texts; /* its next free byte */
    struct json_entry *stack;
    size_t stacked, capacity;
    struct json_key *keys; /* of the objects that are open and not kept */
    size_t key_count, key_capacity;
    int depth;
    bool checking; /* what is read is not kept */
};

tt_status json_fail_at(const struct json_parser *parser, const char *at, const char *what);
tt_status json_fail_duplicate(const struct json_parser *parser, const struct json_entry *entry);
void json_skip_space(struct json_parser *parser);
/* parser->at stands on the opening quote. */
TT_MUST_USE tt_status json_read_string(struct json_parser *parser, char **text, uint32_t *bytes);
/* A string, a number or a word, at parser->at. */
TT_MUST_USE tt_status json_read_scalar(struct json_parser *parser, struct tt_json_value *value);
/* Digits with or without a minus sign. False: beyond 64 bits. */
bool json_parse_integer(const char *number, const char *end, int64_t *out);

/* parser->at stands on the first byte of the value. */
TT_MUST_USE tt_status json_read_value(struct json_parser *parser, struct tt_json_value *value);
/* The key of a member and its colon; parser->at stands on the value then. */
TT_MUST_USE tt_status json_read_key(struct json_parser *parser, struct json_entry *entry);
/* Behind an element: true when another one follows, false when `end` closes. */
TT_MUST_USE tt_status json_read_separator(struct json_parser *parser, char end, bool *more);
TT_MUST_USE tt_status json_push(struct json_parser *parser, const struct json_entry *entry);
/* Takes the entries from `first` on off the stack as members. */
TT_MUST_USE tt_status json_close_object(struct json_parser *parser, size_t first,
                                        struct tt_json_value *value);

/* Behind the bracket: the value gets its type and count. */
TT_MUST_USE tt_status json_check_list(struct json_parser *parser, struct tt_json_value *value);
TT_MUST_USE tt_status json_check_object(struct json_parser *parser, struct tt_json_value *value);
/* The document as tt_json_source.outline has it. */
TT_MUST_USE tt_status json_read_outline(struct json_parser *parser, struct tt_json_value *root);

#endif
