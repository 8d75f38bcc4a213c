#include "data/parquet/schema.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { DEPTH_MAX = 100, DECIMAL_BYTES_MAX = 16 };

struct builder {
    const char *path;
    const struct parquet_metadata *metadata;
    struct parquet_schema *schema;
};

const char *parquet_node_path(const struct parquet_schema *schema, size_t node, char *text, size_t text_bytes)
{
    size_t above[DEPTH_MAX + 1], depth = 0, length = 0;
    for (; node != 0 && depth <= DEPTH_MAX; node = schema->nodes[node].parent) above[depth++] = node;
    text[0] = '\0';
    while (depth > 0 && length + 1 < text_bytes) {
        struct tt_span name = schema->nodes[above[--depth]].name;
        int shown = name.bytes < 200 ? (int)name.bytes : 200;
        int written =
            snprintf(text + length, text_bytes - length, "%s%.*s", length > 0 ? "." : "", shown, name.data);
        length += written > 0 ? (size_t)written : 0;
    }
    return text;
}

static tt_status fail_node(const struct builder *b, size_t node, tt_status status, const char *why)
{
    char column[300];
    return tt_fail(status, "'%s', column '%s': %s", b->path,
                   parquet_node_path(b->schema, node, column, sizeof column), why);
}

/* ---- Leaves ---- */

/* The type of old annotations, written by programs that did not know the new ones. */
static int logical_type(const struct parquet_element *e, int *unit, bool *is_signed)
{
    *unit = e->unit;
    *is_signed = e->is_signed;
    if (e->logical != 0) return e->logical;
    switch (e->converted) {
    case PARQUET_OLD_UTF8:
        return PARQUET_STRING;
    case PARQUET_OLD_MAP:
    case PARQUET_OLD_MAP_KEY_VALUE:
        return PARQUET_MAP;
    case PARQUET_OLD_LIST:
        return PARQUET_LIST;
    case PARQUET_OLD_ENUM:
        return PARQUET_ENUM;
    case PARQUET_OLD_DECIMAL:
        return PARQUET_DECIMAL;
    case PARQUET_OLD_DATE:
        return PARQUET_DATE;
    case PARQUET_OLD_TIME_MILLIS:
    case PARQUET_OLD_TIME_MICROS:
        *unit = e->converted == PARQUET_OLD_TIME_MILLIS ? PARQUET_MILLIS : PARQUET_MICROS;
        return PARQUET_TIME;
    case PARQUET_OLD_TIMESTAMP_MILLIS:
    case PARQUET_OLD_TIMESTAMP_MICROS:
        *unit = e->converted == PARQUET_OLD_TIMESTAMP_MILLIS ? PARQUET_MILLIS : PARQUET_MICROS;
        return PARQUET_TIMESTAMP;
    case PARQUET_OLD_JSON:
        return PARQUET_JSON;
    case PARQUET_OLD_BSON:
        return PARQUET_BSON;
    }
    *is_signed = e->converted < PARQUET_OLD_UINT_8 || e->converted > PARQUET_OLD_UINT_64;
    return e->converted >= PARQUET_OLD_UINT_8 && e->converted <= PARQUET_OLD_INT_64 ? PARQUET_INTEGER : 0;
}

/* The meaning of bytes. An unknown annotation does not matter as long as they are text. */
static bool bytes_kind(const struct parquet_element *e, int logical, enum parquet_kind *kind)
{
    bool fixed = e->type == PARQUET_FIXED_BYTES;
    *kind = PARQUET_KIND_BYTES;
    if (logical == PARQUET_STRING || logical == PARQUET_ENUM || logical == PARQUET_JSON)
        *kind = PARQUET_KIND_TEXT;
    if (logical == PARQUET_DECIMAL) {
        *kind = PARQUET_KIND_DECIMAL;
        return !fixed || e->bytes <= DECIMAL_BYTES_MAX;
    }
    if (logical == PARQUET_UUID) {
        *kind = PARQUET_KIND_UUID;
        return fixed && e->bytes == 16;
    }
    if (logical == PARQUET_FLOAT16) {
        *kind = PARQUET_KIND_FLOAT16;
        return fixed && e->bytes == 2;
    }
    return e->converted != PARQUET_OLD_INTERVAL;
}

static bool integer_kind(const struct parquet_element *e, int logical, int unit, bool is_signed,
                         enum parquet_kind *kind)
{
    bool wide = e->type == PARQUET_INT64;
    bool unit_known = unit >= PARQUET_MILLIS && unit <= PARQUET_NANOS;
    *kind = is_signed ? PARQUET_KIND_SIGNED : PARQUET_KIND_UNSIGNED;
    switch (logical) {
    case PARQUET_DECIMAL:
        *kind = PARQUET_KIND_DECIMAL;
        return true;
    case PARQUET_DATE:
        *kind = PARQUET_KIND_DATE;
        return !wide;
    case PARQUET_TIME:
        *kind = PARQUET_KIND_TIME;
        return unit_known && wide == (unit != PARQUET_MILLIS);
    case PARQUET_TIMESTAMP:
        *kind = PARQUET_KIND_TIMESTAMP;
        return unit_known && wide;
    case 0:
    case PARQUET_INTEGER:
    case PARQUET_UNKNOWN: /* of nulls only */
        return true;
    default:
        return false;
    }
}

static tt_status make_leaf(const struct builder *b, const struct parquet_element *e, size_t index)
{
    struct parquet_node *node = &b->schema->nodes[index];
    bool is_signed, known = true;
    int logical = logical_type(e, &node->unit, &is_signed);
    node->bytes = e->bytes;
    switch (e->type) {
    case PARQUET_BOOLEAN:
        node->kind = PARQUET_KIND_BOOLEAN;
        break;
    case PARQUET_INT32:
    case PARQUET_INT64:
        known = integer_kind(e, logical, node->unit, is_signed, &node->kind);
        break;
    case PARQUET_INT96:
        node->kind = PARQUET_KIND_INT96;
        break;
    case PARQUET_FLOAT:
        node->kind = PARQUET_KIND_FLOAT;
        break;
    case PARQUET_DOUBLE:
        node->kind = PARQUET_KIND_DOUBLE;
        break;
    default:
        if (e->type == PARQUET_FIXED_BYTES && e->bytes < 1)
            return fail_node(b, index, TT_ERR_DATA, "its values have a fixed length of 0 bytes");
        known = bytes_kind(e, logical, &node->kind);
    }
    node->leaves = 1;
    b->schema->leaves[b->schema->leaf_count++] = index;
    if (known) return TT_OK;
    fail_node(b, index, TT_ERR_UNSUPPORTED, "its type cannot be written as JSON");
    tt_hint("write the file without this column");
    return TT_ERR_UNSUPPORTED;
}

/* ---- Groups ---- */

static size_t count_children(const struct parquet_schema *schema, size_t index)
{
    size_t count = 0;
    for (size_t i = index + 1; i < schema->nodes[index].next; i = schema->nodes[i].next) count++;
    return count;
}

/* A list has one repeated child. In the shape of today that is a group with one child, the element; older programs
 * wrote the element itself there (LogicalTypes.md, backward compatibility). An element that is a list has a repeated
 * child, and a repeated group that is marked as a map is a pair, so no marks are asked. */
static tt_status make_list(const struct builder *b, size_t index)
{
    struct parquet_node *nodes = b->schema->nodes;
    size_t repeated = index + 1;
    char tuple[300];
    if (count_children(b->schema, index) != 1 || nodes[repeated].repetition != PARQUET_REPEATED)
        return fail_node(b, index, TT_ERR_DATA, "a list that has not one repeated field");
    struct tt_span name = nodes[index].name;
    snprintf(tuple, sizeof tuple, "%.*s_tuple", name.bytes < 200 ? (int)name.bytes : 200, name.data);
    bool is_element = nodes[repeated].type != PARQUET_GROUP || count_children(b->schema, repeated) != 1 ||
                      nodes[repeated + 1].repetition == PARQUET_REPEATED ||
                      tt_span_equals(nodes[repeated].name, "array") ||
                      tt_span_equals(nodes[repeated].name, tuple);
    nodes[index].element = is_element ? repeated : repeated + 1;
    return TT_OK;
}

static tt_status make_map(const struct builder *b, size_t index)
{
    const struct parquet_node *nodes = b->schema->nodes;
    size_t pair = index + 1, key = index + 2;
    if (count_children(b->schema, index) != 1 || nodes[pair].repetition != PARQUET_REPEATED ||
        nodes[pair].type != PARQUET_GROUP || count_children(b->schema, pair) != 2)
        return fail_node(b, index, TT_ERR_DATA, "a map that has not one repeated pair of key and value");
    if (nodes[key].repetition == PARQUET_REQUIRED && nodes[key].kind <= PARQUET_KIND_BYTES) return TT_OK;
    fail_node(b, index, TT_ERR_UNSUPPORTED, "a map whose keys are not texts, which JSON has not");
    tt_hint("write the file without this column");
    return TT_ERR_UNSUPPORTED;
}

/* ---- The tree ---- */

/* Makes the node of element `index` and all below it. */
static tt_status make_node(const struct builder *b, size_t index, size_t parent, int depth)
{
    const struct parquet_element *e = &b->metadata->elements[index];
    struct parquet_node *nodes = b->schema->nodes, *node = &nodes[index];
    int unit;
    bool is_signed;
    *node = (struct parquet_node){.name = e->name,
                                  .kind = PARQUET_KIND_OBJECT,
                                  .type = e->type,
                                  .utc = e->utc,
                                  .repetition = index == 0 ? PARQUET_REQUIRED : e->repetition,
                                  .scale = e->scale,
                                  .parent = parent,
                                  .next = index + 1,
                                  .first_leaf = b->schema->leaf_count};
    node->def = nodes[parent].def + (node->repetition != PARQUET_REQUIRED);
    node->rep = nodes[parent].rep + (node->repetition == PARQUET_REPEATED);
    if (index != 0 && tt_utf8_invalid_at(e->name.data, e->name.bytes) != e->name.bytes)
        return fail_node(b, index, TT_ERR_DATA, "its name is not UTF-8");
    if (e->type != PARQUET_GROUP && index != 0) return make_leaf(b, e, index);
    if (depth == DEPTH_MAX) return fail_node(b, index, TT_ERR_UNSUPPORTED, "it is nested too deeply");
    for (size_t i = 0; i < e->children; i++) {
        size_t child = node->next;
        if (child >= b->metadata->element_count)
            return tt_fail(TT_ERR_DATA, "'%s': the schema in the footer ends early", b->path);
        TT_TRY(make_node(b, child, index, depth + 1));
        node->next = nodes[child].next;
    }
    node->type = PARQUET_GROUP;
    node->leaves = b->schema->leaf_count - node->first_leaf;
    if (index == 0) return TT_OK;
    if (node->leaves == 0) return fail_node(b, index, TT_ERR_UNSUPPORTED, "a group without fields");
    int logical = logical_type(e, &unit, &is_signed);
    /* Old programs mark the pair in a map, too. */
    bool pair = node->repetition == PARQUET_REPEATED && logical == PARQUET_MAP;
    if (logical == PARQUET_LIST) {
        node->kind = PARQUET_KIND_LIST;
        return make_list(b, index);
    }
    if (logical == PARQUET_MAP && !pair) {
        node->kind = PARQUET_KIND_MAP;
        return make_map(b, index);
    }
    return TT_OK;
}

tt_status parquet_schema_make(const char *path, const struct parquet_metadata *metadata,
                              struct parquet_schema *schema)
{
    struct parquet_schema made = {.count = metadata->element_count};
    const struct builder builder = {path, metadata, &made};
    tt_status status = TT_OK;
    made.nodes = tt_calloc(made.count, sizeof *made.nodes);
    made.leaves = tt_calloc(made.count, sizeof *made.leaves);
    if (made.nodes == NULL || made.leaves == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(make_node(&builder, 0, 0, 0));
    if (made.nodes[0].next != made.count)
        TT_GO(tt_fail(TT_ERR_DATA, "'%s': the schema in the footer has fields without a parent", path));
    *schema = made;
    return TT_OK;
out:
    parquet_schema_deinit(&made);
    return status;
}

void parquet_schema_deinit(struct parquet_schema *schema)
{
    tt_free(schema->nodes);
    tt_free(schema->leaves);
    *schema = (struct parquet_schema){0};
}
