/* Internals of the JSON parser, for base/json_{parse,scalar,check}.c only. */
#ifndef TT_BASE_JSON_PARSER_H
#define TT_BASE_JSON_PARSER_H

#include "base/json_value.h"

/* A member, or an element, which has no key. */
struct json_entry {
    struct json_member member;
    const char *source; /* start of its key in the text */
};

/* A key of an object whose members are not stored: a range of the block of strings. */
struct json_key {
    uint32_t at, bytes;
};

struct json_parser {
    const char *start, *at, *end;
    const struct tt_json_source *source;
    struct tt_arena *arena;
    char *block; /* memory of strings, as long as the text */
    char *texts; /* next free byte of it */
    struct json_entry *stack;
    size_t stacked, capacity;
    struct json_key *keys; /* of open objects whose members are not stored */
    size_t key_count, key_capacity;
    int depth;
    bool checking; /* values are checked and not stored */
};

tt_status json_fail_at(const struct json_parser *parser, const char *at, const char *what);
tt_status json_fail_duplicate(const struct json_parser *parser, const struct json_entry *entry);
void json_skip_space(struct json_parser *parser);
/* Requires parser->at at the opening quote. */
TT_MUST_USE tt_status json_read_string(struct json_parser *parser, char **text, uint32_t *bytes);
/* Reads a string, a number or a word at parser->at. */
TT_MUST_USE tt_status json_read_scalar(struct json_parser *parser, struct tt_json_value *value);
/* Parses digits with an optional minus sign; false beyond 64 bits. */
bool json_parse_integer(const char *number, const char *end, int64_t *out);

/* Requires parser->at at the first byte of the value. */
TT_MUST_USE tt_status json_read_value(struct json_parser *parser, struct tt_json_value *value);
/* Reads the key of a member and its colon; then parser->at is at the value. */
TT_MUST_USE tt_status json_read_key(struct json_parser *parser, struct json_entry *entry);
/* Called after an element: *more is true when another one follows, false when `end` closes. */
TT_MUST_USE tt_status json_read_separator(struct json_parser *parser, char end, bool *more);
TT_MUST_USE tt_status json_push(struct json_parser *parser, const struct json_entry *entry);
/* Pops the entries from `first` on from the stack as the members of `value`. */
TT_MUST_USE tt_status json_close_object(struct json_parser *parser, size_t first,
                                        struct tt_json_value *value);

/* Called after the opening bracket: checks the value and sets its type and count. */
TT_MUST_USE tt_status json_check_list(struct json_parser *parser, struct tt_json_value *value);
TT_MUST_USE tt_status json_check_object(struct json_parser *parser, struct tt_json_value *value);
/* Reads the document for tt_json_source.outline. */
TT_MUST_USE tt_status json_read_outline(struct json_parser *parser, struct tt_json_value *root);

#endif
