#include "config/yaml.h"

#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "config/value.h"

/* A node that has a name: &name. */
struct anchor {
    const char *name;
    const struct tt_yaml_node *node;
    struct anchor *next; /* the one before */
};

struct reader {
    yaml_parser_t parser;
    struct tt_yaml *yaml;
    size_t node_count;      /* copies that aliases make count too */
    struct anchor *anchors; /* newest first */
};

static tt_status parser_failed(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    if (parser->error == YAML_MEMORY_ERROR)
        return tt_fail(TT_ERR_MEMORY, "out of memory while parsing '%s'", reader->yaml->origin);
    if (parser->error == YAML_READER_ERROR)
        return tt_fail(TT_ERR_USAGE, "%s: not valid YAML at byte %zu: %s", reader->yaml->origin,
                       parser->problem_offset, parser->problem != NULL ? parser->problem : "unreadable");
    tt_status status =
        tt_fail(TT_ERR_USAGE, "%s line %zu column %zu: not valid YAML: %s", reader->yaml->origin,
                parser->problem_mark.line + 1, parser->problem_mark.column + 1,
                parser->problem != NULL ? parser->problem : "unreadable");
    const char *context = parser->context;
    if (context == NULL) return status;
    if (strncmp(context, "while ", 6) == 0) context += 6; /* tt_while says that */
    tt_while("%s from line %zu on", context, parser->context_mark.line + 1);
    return status;
}

static tt_status next_event(struct reader *reader, yaml_event_t *event)
{
    if (yaml_parser_parse(&reader->parser, event)) return TT_OK;
    return parser_failed(reader);
}

static tt_status refuse(const struct reader *reader, const yaml_event_t *event, const char *what)
{
    return tt_fail(TT_ERR_USAGE, "%s line %zu: %s", reader->yaml->origin, event->start_mark.line + 1, what);
}

static struct tt_yaml_node *new_node(struct reader *reader, const yaml_event_t *event, enum tt_yaml_kind kind)
{
    struct tt_yaml_node *node = tt_arena_alloc(&reader->yaml->arena, sizeof *node);
    if (node == NULL) return NULL;
    node->kind = kind;
    node->line = event->start_mark.line + 1;
    reader->node_count++;
    return node;
}

static tt_status read_node(struct reader *reader, yaml_event_t *event, int depth, struct tt_yaml_node **out);

/* ---- Anchors, aliases, merge keys ---- */

static tt_status add_anchor(struct reader *reader, const char *name, const struct tt_yaml_node *node)
{
    if (name == NULL) return TT_OK;
    struct anchor *anchor = tt_arena_alloc(&reader->yaml->arena, sizeof *anchor);
    if (anchor == NULL) return TT_ERR_MEMORY;
    *anchor = (struct anchor){tt_arena_strdup(&reader->yaml->arena, name), node, reader->anchors};
    if (anchor->name == NULL) return TT_ERR_MEMORY;
    reader->anchors = anchor;
    return TT_OK;
}

/* A copy counts as if written out, so that aliases of aliases cannot grow without bound. Texts are shared. */
static tt_status copy_node(struct reader *reader, const yaml_event_t *event, const struct tt_yaml_node *from,
                           int depth, struct tt_yaml_node **out)
{
    if (depth > TT_YAML_DEPTH_MAX) return refuse(reader, event, "nested too deeply");
    if (reader->node_count >= TT_YAML_NODES_MAX)
        return refuse(reader, event, "too many values for a configuration, once aliases are written out");
    struct tt_yaml_node *copy = new_node(reader, event, from->kind);
    if (copy == NULL) return TT_ERR_MEMORY;
    *copy = *from;
    copy->first = copy->next = NULL;
    struct tt_yaml_node **end = &copy->first;
    for (const struct tt_yaml_node *child = from->first; child != NULL; child = child->next) {
        TT_TRY(copy_node(reader, event, child, depth + 1, end));
        end = &(*end)->next;
    }
    *out = copy;
    return TT_OK;
}

static tt_status read_alias(struct reader *reader, const yaml_event_t *event, int depth,
                            struct tt_yaml_node **out)
{
    const char *name = (const char *)event->data.alias.anchor;
    const struct anchor *anchor = reader->anchors;
    while (anchor != NULL && strcmp(anchor->name, name) != 0) anchor = anchor->next;
    if (anchor == NULL)
        return tt_fail(TT_ERR_USAGE, "%s line %zu: there is no anchor &%.100s before the alias",
                       reader->yaml->origin, event->start_mark.line + 1, name);
    TT_TRY(copy_node(reader, event, anchor->node, depth, out));
    (*out)->key = NULL;
    return TT_OK;
}

/* Adds the members of `from` that `map` does not have. */
static tt_status merge_map(struct reader *reader, const yaml_event_t *event, const struct tt_yaml_node *from,
                           int depth, struct tt_yaml_node *map)
{
    if (from->kind != TT_YAML_MAP) return refuse(reader, event, "'<<' takes a mapping or a list of mappings");
    struct tt_yaml_node **end = &map->first;
    while (*end != NULL) end = &(*end)->next;
    for (const struct tt_yaml_node *child = from->first; child != NULL; child = child->next) {
        if (tt_yaml_find(map, child->key) != NULL) continue;
        TT_TRY(copy_node(reader, event, child, depth + 1, end));
        end = &(*end)->next;
    }
    return TT_OK;
}

/* The map's own keys override merged keys, and the first mapping of a list overrides the others. */
static tt_status merge(struct reader *reader, const yaml_event_t *event, const struct tt_yaml_node *from,
                       int depth, struct tt_yaml_node *map)
{
    if (from == NULL) return TT_OK;
    if (from->kind != TT_YAML_LIST) return merge_map(reader, event, from, depth, map);
    for (const struct tt_yaml_node *item = from->first; item != NULL; item = item->next)
        TT_TRY(merge_map(reader, event, item, depth, map));
    return TT_OK;
}

/* ---- Nodes ---- */

/* [+-] 0 and more digits: 8 times as much or as little for YAML 1.1 as for 1.2. */
static bool is_octal(const char *text)
{
    text += *text == '+' || *text == '-';
    return text[0] == '0' && text[1] != '\0' && text[strspn(text, "0123456789_")] == '\0';
}

static tt_status read_scalar(struct reader *reader, const yaml_event_t *event, struct tt_yaml_node **out)
{
    const char *value = (const char *)event->data.scalar.value;
    const char *tag = (const char *)event->data.scalar.tag;
    bool tagged_text = tag != NULL && strcmp(tag, YAML_STR_TAG) == 0;
    if (tag != NULL && !tagged_text && strcmp(tag, "!") != 0)
        return refuse(reader, event, "tags other than !!str are not supported");
    if (strlen(value) != event->data.scalar.length) return refuse(reader, event, "a value holds a 0 byte");
    struct tt_yaml_node *node = new_node(reader, event, TT_YAML_SCALAR);
    if (node == NULL) return TT_ERR_MEMORY;
    node->quoted = tag != NULL || event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->text = tt_arena_strdup(&reader->yaml->arena, value);
    if (node->text == NULL) return TT_ERR_MEMORY;
    if (!node->quoted && is_octal(value)) {
        tt_fail(TT_ERR_USAGE,
                "%s line %zu: '%.40s' begins with 0: some YAML readers parse it as an octal number",
                reader->yaml->origin, node->line, value);
        tt_hint("write the number without the 0, or the text in quotes");
        return TT_ERR_USAGE;
    }
    *out = node;
    return add_anchor(reader, (const char *)event->data.scalar.anchor, node);
}

static tt_status read_list(struct reader *reader, const yaml_event_t *start, int depth,
                           struct tt_yaml_node **out)
{
    struct tt_yaml_node *list = new_node(reader, start, TT_YAML_LIST);
    if (list == NULL) return TT_ERR_MEMORY;
    struct tt_yaml_node **end = &list->first;
    for (;;) {
        yaml_event_t event;
        TT_TRY(next_event(reader, &event));
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            *out = list;
            return add_anchor(reader, (const char *)start->data.sequence_start.anchor, list);
        }
        TT_TRY(read_node(reader, &event, depth + 1, end));
        end = &(*end)->next;
    }
}

static tt_status check_new_key(const struct reader *reader, const struct tt_yaml_node *map,
                               const yaml_event_t *event)
{
    const char *key = (const char *)event->data.scalar.value;
    if (strlen(key) != event->data.scalar.length) return refuse(reader, event, "a key holds a 0 byte");
    const struct tt_yaml_node *same = tt_yaml_find(map, key);
    if (same == NULL) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "%s line %zu: key '%.100s' was given before, at line %zu",
                   reader->yaml->origin, event->start_mark.line + 1, key, same->line);
}

static bool is_merge_key(const yaml_event_t *event)
{
    return event->type == YAML_SCALAR_EVENT && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           strcmp((const char *)event->data.scalar.value, "<<") == 0;
}

/* Takes the event of the key. */
static tt_status read_merge(struct reader *reader, yaml_event_t *key_event, int depth,
                            struct tt_yaml_node **merged)
{
    yaml_event_t event;
    tt_status status = *merged == NULL ? TT_OK : refuse(reader, key_event, "a second '<<' in one mapping");
    yaml_event_delete(key_event);
    if (status == TT_OK) status = next_event(reader, &event);
    return status == TT_OK ? read_node(reader, &event, depth + 1, merged) : status;
}

static tt_status read_entry(struct reader *reader, yaml_event_t *key_event, int depth,
                            struct tt_yaml_node *map, struct tt_yaml_node **slot)
{
    tt_status status = TT_OK;
    yaml_event_t event;
    size_t line = key_event->start_mark.line + 1;
    char *key = NULL;
    if (key_event->type != YAML_SCALAR_EVENT) {
        status = refuse(reader, key_event, "a key must be a word");
    } else {
        status = check_new_key(reader, map, key_event);
        if (status == TT_OK) {
            key = tt_arena_strdup(&reader->yaml->arena, (const char *)key_event->data.scalar.value);
            if (key == NULL) status = TT_ERR_MEMORY;
        }
    }
    yaml_event_delete(key_event);
    if (status != TT_OK) return status;
    TT_TRY(next_event(reader, &event));
    TT_TRY(read_node(reader, &event, depth + 1, slot));
    (*slot)->key = key;
    (*slot)->line = line;
    return TT_OK;
}

static tt_status read_map(struct reader *reader, const yaml_event_t *start, int depth,
                          struct tt_yaml_node **out)
{
    struct tt_yaml_node *map = new_node(reader, start, TT_YAML_MAP);
    if (map == NULL) return TT_ERR_MEMORY;
    struct tt_yaml_node **end = &map->first, *merged = NULL;
    for (;;) {
        yaml_event_t event;
        TT_TRY(next_event(reader, &event));
        if (event.type == YAML_MAPPING_END_EVENT) {
            tt_status status = merge(reader, &event, merged, depth, map);
            yaml_event_delete(&event);
            if (status == TT_OK)
                status = add_anchor(reader, (const char *)start->data.mapping_start.anchor, map);
            *out = map;
            return status;
        }
        if (is_merge_key(&event)) {
            TT_TRY(read_merge(reader, &event, depth, &merged));
            continue;
        }
        TT_TRY(read_entry(reader, &event, depth, map, end));
        end = &(*end)->next;
    }
}

/* Takes `event`. */
static tt_status read_node(struct reader *reader, yaml_event_t *event, int depth, struct tt_yaml_node **out)
{
    tt_status status;
    if (depth > TT_YAML_DEPTH_MAX)
        status = refuse(reader, event, "nested too deeply");
    else if (reader->node_count >= TT_YAML_NODES_MAX)
        status = refuse(reader, event, "too many values for a configuration");
    else if (event->type == YAML_SCALAR_EVENT)
        status = read_scalar(reader, event, out);
    else if (event->type == YAML_SEQUENCE_START_EVENT)
        status = read_list(reader, event, depth, out);
    else if (event->type == YAML_MAPPING_START_EVENT)
        status = read_map(reader, event, depth, out);
    else
        status = read_alias(reader, event, depth, out);
    yaml_event_delete(event);
    return status;
}

/* The event that opens the one document, or the end of the file. */
static tt_status read_document(struct reader *reader)
{
    yaml_event_t event;
    for (;;) {
        TT_TRY(next_event(reader, &event));
        yaml_event_type_t type = event.type;
        if (type == YAML_STREAM_START_EVENT || type == YAML_DOCUMENT_END_EVENT) {
            yaml_event_delete(&event);
        } else if (type == YAML_STREAM_END_EVENT) {
            yaml_event_delete(&event);
            return TT_OK;
        } else if (type == YAML_DOCUMENT_START_EVENT) {
            tt_status status =
                reader->yaml->root != NULL ? refuse(reader, &event, "a second document begins") : TT_OK;
            yaml_event_delete(&event);
            if (status != TT_OK) return status;
            TT_TRY(next_event(reader, &event));
            TT_TRY(read_node(reader, &event, 0, &reader->yaml->root));
        } else {
            tt_status status = refuse(reader, &event, "not valid YAML");
            yaml_event_delete(&event);
            return status;
        }
    }
}

tt_status tt_yaml_parse(const char *text, size_t bytes, const char *origin, struct tt_yaml *yaml)
{
    struct reader reader = {.yaml = yaml};
    *yaml = (struct tt_yaml){0};
    yaml->origin = tt_arena_strdup(&yaml->arena, origin);
    if (yaml->origin == NULL) return TT_ERR_MEMORY;
    tt_status status;
    if (bytes > TT_YAML_BYTES_MAX) {
        status = tt_fail(TT_ERR_USAGE, "%s: %zu bytes are too many for a configuration", origin, bytes);
    } else if (!yaml_parser_initialize(&reader.parser)) {
        status = tt_fail(TT_ERR_MEMORY, "out of memory while parsing '%s'", origin);
    } else {
        yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, bytes);
        status = read_document(&reader);
        yaml_parser_delete(&reader.parser);
    }
    if (status != TT_OK) tt_yaml_deinit(yaml);
    return status;
}

tt_status tt_yaml_read(const char *path, struct tt_yaml *yaml)
{
    struct tt_str text = {0};
    *yaml = (struct tt_yaml){0};
    tt_status status = tt_file_read(path, TT_YAML_BYTES_MAX, &text);
    if (status == TT_OK) status = tt_yaml_parse(tt_str_text(&text), text.bytes, path, yaml);
    tt_str_deinit(&text);
    return status;
}

void tt_yaml_deinit(struct tt_yaml *yaml)
{
    tt_arena_deinit(&yaml->arena);
    *yaml = (struct tt_yaml){0};
}

const struct tt_yaml_node *tt_yaml_find(const struct tt_yaml_node *map, const char *key)
{
    if (map == NULL || map->kind != TT_YAML_MAP) return NULL;
    for (const struct tt_yaml_node *node = map->first; node != NULL; node = node->next)
        if (node->key != NULL && strcmp(node->key, key) == 0) return node;
    return NULL;
}

bool tt_yaml_is_null(const struct tt_yaml_node *node)
{
    return node->kind == TT_YAML_SCALAR && !node->quoted && tt_value_is_null(node->text);
}

static struct tt_json_value *scalar_to_json(const struct tt_yaml_node *node)
{
    int64_t whole;
    double number;
    bool truth;
    if (node->quoted) return tt_json_new_string(node->text);
    if (tt_value_is_null(node->text)) return tt_json_new_null();
    if (tt_value_parse_int(node->text, &whole)) return tt_json_new_integer(whole);
    if (tt_value_parse_double(node->text, &number)) return tt_json_new_real(number);
    /* `yes` and `on` stay words: in a list of names they are not truth values. */
    if ((node->text[0] | 0x20) != 'y' && (node->text[0] | 0x20) != 'n' && (node->text[0] | 0x20) != 'o' &&
        tt_value_parse_bool(node->text, &truth))
        return tt_json_new_bool(truth);
    return tt_json_new_string(node->text);
}

struct tt_json_value *tt_yaml_to_json(const struct tt_yaml_node *node)
{
    struct tt_json_value *value = node->kind == TT_YAML_MAP    ? tt_json_new_object()
                                  : node->kind == TT_YAML_LIST ? tt_json_new_list()
                                                               : scalar_to_json(node);
    if (value == NULL) {
        (void)tt_fail(TT_ERR_MEMORY, "out of memory while converting a configuration value");
        return NULL;
    }
    for (const struct tt_yaml_node *child = node->first; child != NULL; child = child->next) {
        struct tt_json_value *item = tt_yaml_to_json(child);
        int failed = item == NULL || (node->kind == TT_YAML_MAP ? tt_json_set(value, child->key, item)
                                                                : tt_json_append(value, item));
        if (failed) {
            if (item != NULL)
                (void)tt_fail(TT_ERR_MEMORY, "out of memory while converting a configuration value");
            tt_json_release(value);
            return NULL;
        }
    }
    return value;
}
