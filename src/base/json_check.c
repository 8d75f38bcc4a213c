/* The values that the parser of base/json.h checks and does not store.
 *
 * They take little memory for any text: nothing for an element of a list, 8 bytes and the decoded key for a
 * member of an open object, and 6 bytes more for each member while the keys are compared. */
#include <string.h>

#include "base/alloc.h"
#include "base/json_parser.h"

/* ---- Keys ---- */

static tt_status push_key(struct json_parser *parser, const struct json_member *member)
{
    TT_TRY(tt_grow(&parser->keys, parser->key_count, &parser->key_capacity));
    parser->keys[parser->key_count++] =
        (struct json_key){(uint32_t)(member->key - parser->block), member->key_bytes};
    return TT_OK;
}

static bool same_key(const struct json_parser *parser, struct json_key a, struct json_key b)
{
    return a.bytes == b.bytes && memcmp(parser->block + a.at, parser->block + b.at, a.bytes) == 0;
}

/* Finds the first key that equals an earlier one; `count`: none does. Uses a hash table, at most two thirds
 * full, with linear probing. */
static tt_status find_repeated(const struct json_parser *parser, const struct json_key *keys, size_t count,
                               size_t *repeated)
{
    uint64_t seed[2];
    size_t slots = count + count / 2 + 1, i = 0;
    uint32_t *table = tt_calloc(slots, sizeof *table);
    if (table == NULL) return TT_ERR_MEMORY;
    json_make_seed(seed, table);
    for (bool found = false; i < count && !found; i += !found) {
        uint64_t hash = json_hash_key(seed, parser->block + keys[i].at, keys[i].bytes);
        size_t slot = (size_t)((hash >> 32) * slots >> 32);
        for (; table[slot] != 0 && !found; slot = slot + 1 < slots ? slot + 1 : 0)
            found = same_key(parser, keys[table[slot] - 1], keys[i]);
        if (!found) table[slot] = (uint32_t)i + 1;
    }
    tt_free(table);
    *repeated = i;
    return TT_OK;
}

/* Reads an object again, up to the repeated key, for the message. */
static tt_status fail_repeated(struct json_parser *parser, const char *object, size_t repeated)
{
    struct json_entry entry = {0};
    bool more;
    parser->at = object;
    parser->texts = parser->block;
    parser->key_count = 0;
    parser->checking = true;
    for (size_t i = 0;; i++) {
        parser->texts = parser->block;
        TT_TRY(json_read_key(parser, &entry));
        if (i == repeated) return json_fail_duplicate(parser, &entry);
        TT_TRY(json_read_value(parser, &entry.member.value));
        TT_TRY(json_read_separator(parser, '}', &more));
    }
}

/* Compares the keys from `first` on, which are those of the object that begins at `object`. */
static tt_status close_keys(struct json_parser *parser, size_t first, const char *object)
{
    size_t count = parser->key_count - first, repeated = count;
    const struct json_key *keys = count > 0 ? parser->keys + first : NULL;
    if (count > JSON_UNINDEXED_MAX) TT_TRY(find_repeated(parser, keys, count, &repeated));
    for (size_t i = 1; count <= JSON_UNINDEXED_MAX && i < count && repeated == count; i++)
        for (size_t j = 0; j < i; j++)
            if (same_key(parser, keys[i], keys[j])) repeated = i;
    if (repeated < count) return fail_repeated(parser, object, repeated);
    parser->key_count = first;
    return TT_OK;
}

/* ---- Values ---- */

tt_status json_check_list(struct json_parser *parser, struct tt_json_value *value)
{
    char *texts = parser->texts;
    bool more = parser->at == parser->end || *parser->at != ']';
    value->type = TT_JSON_LIST;
    if (!more) parser->at++;
    while (more) {
        struct tt_json_value element = {0};
        TT_TRY(json_read_value(parser, &element));
        TT_TRY(json_read_separator(parser, ']', &more));
        parser->texts = texts;
        value->count++;
    }
    return TT_OK;
}

tt_status json_check_object(struct json_parser *parser, struct tt_json_value *value)
{
    const char *object = parser->at;
    char *texts = parser->texts;
    size_t first = parser->key_count;
    bool more = parser->at == parser->end || *parser->at != '}';
    value->type = TT_JSON_OBJECT;
    if (!more) parser->at++;
    while (more) {
        struct json_entry entry = {0};
        TT_TRY(json_read_key(parser, &entry));
        TT_TRY(push_key(parser, &entry.member));
        char *behind = parser->texts;
        TT_TRY(json_read_value(parser, &entry.member.value));
        TT_TRY(json_read_separator(parser, '}', &more));
        parser->texts = behind;
        value->count++;
    }
    TT_TRY(close_keys(parser, first, object));
    parser->texts = texts;
    return TT_OK;
}

/* ---- Outlines ---- */

static bool is_wanted(const struct tt_json_source *source, const struct json_member *member)
{
    if (source->members == NULL) return true;
    for (size_t i = 0; i < source->member_count; i++) {
        struct tt_span name = source->members[i];
        if (name.bytes == member->key_bytes && memcmp(name.data, member->key, name.bytes) == 0) return true;
    }
    return false;
}

/* Reads a value to store: of a list or an object only its position in the text. */
static tt_status read_kept(struct json_parser *parser, struct tt_json_value *value)
{
    const char *text = parser->at;
    parser->checking = text < parser->end && (*text == '[' || *text == '{');
    TT_TRY(json_read_value(parser, value));
    if (!parser->checking) return TT_OK;
    struct json_outlined *outlined = tt_arena_alloc(parser->arena, sizeof *outlined);
    if (outlined == NULL) return TT_ERR_MEMORY;
    *outlined = (struct json_outlined){text, value->count};
    value->is_outlined = true;
    value->count = 0; /* no elements are stored */
    value->outlined = outlined;
    return TT_OK;
}

static tt_status read_member(struct json_parser *parser)
{
    struct json_entry entry = {0};
    TT_TRY(json_read_key(parser, &entry));
    TT_TRY(push_key(parser, &entry.member));
    if (is_wanted(parser->source, &entry.member)) {
        TT_TRY(read_kept(parser, &entry.member.value));
        return json_push(parser, &entry);
    }
    char *behind = parser->texts;
    parser->checking = true;
    TT_TRY(json_read_value(parser, &entry.member.value));
    parser->texts = behind;
    return TT_OK;
}

tt_status json_read_outline(struct json_parser *parser, struct tt_json_value *root)
{
    if (parser->at == parser->end || *parser->at != '{') return read_kept(parser, root);
    root->in_arena = true;
    parser->depth++;
    parser->at++;
    json_skip_space(parser);
    const char *object = parser->at;
    bool more = parser->at == parser->end || *parser->at != '}';
    if (!more) parser->at++;
    while (more) {
        TT_TRY(read_member(parser));
        TT_TRY(json_read_separator(parser, '}', &more));
    }
    TT_TRY(close_keys(parser, 0, object));
    return json_close_object(parser, 0, root);
}

/* ---- Elements of an outlined list ---- */

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') at++;
    return at;
}

struct tt_json_walk tt_json_walk(const struct tt_json_value *list)
{
    if (list == NULL || list->type != TT_JSON_LIST || !list->is_outlined)
        return (struct tt_json_walk){NULL, 0};
    return (struct tt_json_walk){list->outlined->text + 1, list->outlined->count};
}

bool tt_json_walk_next(struct tt_json_walk *walk, enum tt_json_type *type, int64_t *integer)
{
    if (walk->left == 0) return false;
    const char *start = skip_blanks(walk->at), *at = start;
    bool minus = *at == '-';
    at += minus;
    walk->left--;
    *integer = 0;
    if (*at >= '0' && *at <= '9') {
        while (*at >= '0' && *at <= '9') at++;
        bool real = *at == '.' || *at == 'e' || *at == 'E';
        *type = real ? TT_JSON_REAL : json_parse_integer(start, at, integer) ? TT_JSON_INTEGER : TT_JSON_HUGE;
    } else {
        *type = *at == 't'                 ? TT_JSON_TRUE
                : *at == 'f'               ? TT_JSON_FALSE
                : *at == 'n'               ? TT_JSON_NULL
                : *at == 'N' || *at == 'I' ? TT_JSON_REAL
                : *at == '"'               ? TT_JSON_STRING
                : *at == '['               ? TT_JSON_LIST
                                           : TT_JSON_OBJECT;
    }
    if (*type == TT_JSON_STRING || *type == TT_JSON_LIST || *type == TT_JSON_OBJECT) walk->left = 0;
    if (walk->left == 0) return true;
    while (*at != ',') at++;
    walk->at = at + 1;
    return true;
}
