/* The parser of base/json.h: one pass over the text, values in an arena.
 *
 * Members and elements are collected on a stack and copied into the arena when their object or list ends. Lists of
 * numbers are counted first. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_parser.h"

/* ---- Objects and lists ---- */

tt_status json_push(struct json_parser *parser, const struct json_entry *entry)
{
    TT_TRY(tt_grow(&parser->stack, parser->stacked, &parser->capacity));
    parser->stack[parser->stacked++] = *entry;
    return TT_OK;
}

tt_status json_fail_duplicate(const struct json_parser *parser, const struct json_entry *entry)
{
    char what[160];
    snprintf(what, sizeof what, "duplicate key \"%.100s\"", entry->member.key);
    return json_fail_at(parser, entry->source, what);
}

static tt_status check_unique(const struct json_parser *parser, const struct json_entry *entries,
                              struct json_members *members, uint32_t count)
{
    uint32_t repeated = count;
    if (count > JSON_UNINDEXED_MAX) {
        members->slots = json_index_slots(count);
        members->index = tt_arena_alloc(parser->arena, members->slots * sizeof *members->index);
        if (members->index == NULL) return TT_ERR_MEMORY;
        repeated = json_index_fill(members, count);
    }
    for (uint32_t i = 1; count <= JSON_UNINDEXED_MAX && i < count && repeated == count; i++) {
        const struct json_member *a = &members->list[i];
        for (uint32_t j = 0; j < i; j++) {
            const struct json_member *b = &members->list[j];
            if (a->key_bytes == b->key_bytes && memcmp(a->key, b->key, a->key_bytes) == 0) repeated = i;
        }
    }
    return repeated == count ? TT_OK : json_fail_duplicate(parser, &entries[repeated]);
}

tt_status json_close_object(struct json_parser *parser, size_t first, struct tt_json_value *value)
{
    const struct json_entry *entries = parser->stacked > first ? parser->stack + first : NULL;
    uint32_t count = (uint32_t)(parser->stacked - first);
    value->type = TT_JSON_OBJECT;
    value->count = count;
    parser->stacked = first;
    if (count == 0) return TT_OK;
    struct json_members *members = tt_arena_alloc(parser->arena, sizeof *members);
    if (members == NULL) return TT_ERR_MEMORY;
    members->list = tt_arena_alloc(parser->arena, count * sizeof *members->list);
    if (members->list == NULL) return TT_ERR_MEMORY;
    for (uint32_t i = 0; i < count; i++) members->list[i] = entries[i].member;
    value->members = members;
    return check_unique(parser, entries, members, count);
}

static tt_status close_list(struct json_parser *parser, size_t first, struct tt_json_value *value)
{
    const struct json_entry *entries = parser->stacked > first ? parser->stack + first : NULL;
    uint32_t count = (uint32_t)(parser->stacked - first);
    value->type = TT_JSON_LIST;
    value->count = count;
    parser->stacked = first;
    if (count == 0) return TT_OK;
    value->elements = tt_arena_alloc(parser->arena, count * sizeof *value->elements);
    if (value->elements == NULL) return TT_ERR_MEMORY;
    for (uint32_t i = 0; i < count; i++) value->elements[i] = entries[i].member.value;
    return TT_OK;
}

tt_status json_read_separator(struct json_parser *parser, char end, bool *more)
{
    json_skip_space(parser);
    char c = parser->at < parser->end ? *parser->at : '\0';
    if (parser->at == parser->end)
        return json_fail_at(parser, parser->at, "the text ends inside an object or a list");
    if (c != ',' && c != end)
        return json_fail_at(parser, parser->at,
                            end == '}' ? "',' or '}' is expected" : "',' or ']' is expected");
    *more = c == ',';
    parser->at++;
    json_skip_space(parser);
    return TT_OK;
}

/* Counts the elements of a list of numbers; 0 if it has other elements or no end. */
static size_t count_numbers(const struct json_parser *parser)
{
    size_t count = 1;
    for (const char *c = parser->at; c < parser->end; c++) {
        if (*c == ']') return c > parser->at ? count : 0;
        if (*c == ',') count++;
        if (*c == '\0' || strchr("0123456789,-+.eE \n\r\t", *c) == NULL) return 0;
    }
    return 0;
}

/* Reads a list of numbers without the stack: rows of ids are long, and take the memory of their values only. */
static tt_status read_numbers(struct json_parser *parser, size_t count, struct tt_json_value *value)
{
    bool more = true;
    value->type = TT_JSON_LIST;
    value->count = (uint32_t)count;
    value->elements = tt_arena_alloc(parser->arena, count * sizeof *value->elements);
    if (value->elements == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; more; i++) {
        value->elements[i] = (struct tt_json_value){0};
        TT_TRY(json_read_value(parser, &value->elements[i]));
        TT_TRY(json_read_separator(parser, ']', &more));
    }
    return TT_OK;
}

static tt_status read_list(struct json_parser *parser, struct tt_json_value *value)
{
    size_t first = parser->stacked, numbers = count_numbers(parser);
    if (numbers > 0) return read_numbers(parser, numbers, value);
    bool more = parser->at == parser->end || *parser->at != ']';
    if (!more) parser->at++;
    while (more) {
        struct json_entry entry = {.source = parser->at};
        TT_TRY(json_read_value(parser, &entry.member.value));
        TT_TRY(json_push(parser, &entry));
        TT_TRY(json_read_separator(parser, ']', &more));
    }
    return close_list(parser, first, value);
}

tt_status json_read_key(struct json_parser *parser, struct json_entry *entry)
{
    entry->source = parser->at;
    if (parser->at == parser->end || *parser->at != '"')
        return json_fail_at(parser, parser->at, "a key in quotes is expected");
    TT_TRY(json_read_string(parser, &entry->member.key, &entry->member.key_bytes));
    json_skip_space(parser);
    if (parser->at == parser->end || *parser->at != ':')
        return json_fail_at(parser, parser->at, "':' is expected");
    parser->at++;
    json_skip_space(parser);
    return TT_OK;
}

static tt_status read_object(struct json_parser *parser, struct tt_json_value *value)
{
    size_t first = parser->stacked;
    bool more = parser->at == parser->end || *parser->at != '}';
    if (!more) parser->at++;
    while (more) {
        struct json_entry entry = {0};
        TT_TRY(json_read_key(parser, &entry));
        TT_TRY(json_read_value(parser, &entry.member.value));
        TT_TRY(json_push(parser, &entry));
        TT_TRY(json_read_separator(parser, '}', &more));
    }
    return json_close_object(parser, first, value);
}

tt_status json_read_value(struct json_parser *parser, struct tt_json_value *value)
{
    value->in_arena = true;
    char c = parser->at < parser->end ? *parser->at : '\0';
    if (c != '{' && c != '[') return json_read_scalar(parser, value);
    if (++parser->depth > TT_JSON_DEPTH_MAX) return json_fail_at(parser, parser->at, "nested too deeply");
    parser->at++;
    json_skip_space(parser);
    if (parser->checking)
        TT_TRY(c == '{' ? json_check_object(parser, value) : json_check_list(parser, value));
    else
        TT_TRY(c == '{' ? read_object(parser, value) : read_list(parser, value));
    parser->depth--;
    return TT_OK;
}

static tt_status read_document(struct json_parser *parser, struct tt_json_value *root)
{
    json_skip_space(parser);
    TT_TRY(parser->source->outline ? json_read_outline(parser, root) : json_read_value(parser, root));
    json_skip_space(parser);
    return parser->at == parser->end ? TT_OK : json_fail_at(parser, parser->at, "more text behind the value");
}

tt_status tt_json_parse_source(const struct tt_json_source *source, struct tt_json *json)
{
    struct tt_json made = {0};
    struct json_parser parser = {
        .start = source->text, .at = source->text, .source = source, .arena = &made.arena};
    tt_status status = TT_OK;
    if (source->bytes >= UINT32_MAX)
        return tt_fail(TT_ERR_DATA, "%s: %zu bytes of JSON; 4 GiB are the limit", source->origin,
                       source->bytes);
    parser.end = source->text + source->bytes;
    made.origin = tt_arena_strdup(&made.arena, source->origin);
    made.root = tt_arena_alloc(&made.arena, sizeof *made.root);
    parser.block = parser.texts = tt_arena_alloc(&made.arena, source->bytes + 1);
    if (made.origin == NULL || made.root == NULL || parser.texts == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(read_document(&parser, made.root));
    *json = made;
out:
    tt_free(parser.stack);
    tt_free(parser.keys);
    if (status != TT_OK) tt_arena_deinit(&made.arena);
    return status;
}
