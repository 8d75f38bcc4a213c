#include "data/arrow/schema.h"

#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { DEPTH_MAX = 100, CHILDREN_MAX = 100000 };

/* Members of the union of types. */
enum {
    TYPE_NULL = 1,
    TYPE_INTEGER,
    TYPE_FLOAT,
    TYPE_BINARY,
    TYPE_TEXT,
    TYPE_BOOLEAN,
    TYPE_DECIMAL,
    TYPE_DATE,
    TYPE_TIME,
    TYPE_TIMESTAMP,
    TYPE_LIST = 12,
    TYPE_STRUCT,
    TYPE_FIXED_BINARY = 15,
    TYPE_FIXED_LIST,
    TYPE_MAP,
    TYPE_LARGE_BINARY = 19,
    TYPE_LARGE_TEXT,
    TYPE_LARGE_LIST,
};

/* ---- Schema ---- */

static tt_status fail_column(const char *path, struct tt_span name, tt_status status, const char *why)
{
    int shown = name.bytes < 200 ? (int)name.bytes : 200;
    return tt_fail(status, "'%s', column '%.*s': %s", path, shown, name.data, why);
}

/* Integers, floats, decimals, dates, times: values of a fixed width. */
static bool read_number_type(int type, struct flat t, struct arrow_column *c)
{
    int64_t bits = 0, unit;
    switch (type) {
    case TYPE_INTEGER:
        bits = flat_integer(t, 0, 4, 0);
        c->node.kind = flat_integer(t, 1, 1, 0) ? PARQUET_KIND_SIGNED : PARQUET_KIND_UNSIGNED;
        break;
    case TYPE_FLOAT:
        unit = flat_integer(t, 0, 2, 0);
        bits = unit == 0 ? 16 : unit == 1 ? 32 : 64;
        c->node.kind = PARQUET_KIND_DOUBLE;
        break;
    case TYPE_DECIMAL:
        bits = flat_integer(t, 2, 4, 128);
        c->node.kind = PARQUET_KIND_DECIMAL;
        c->node.scale = (int32_t)flat_integer(t, 1, 4, 0);
        if (c->node.scale < 0 || c->node.scale > 1000 || (bits != 32 && bits != 64 && bits != 128))
            return false;
        break;
    case TYPE_DATE:
        c->days_in_millis = flat_integer(t, 0, 2, 1) == 1;
        bits = c->days_in_millis ? 64 : 32;
        c->node.kind = PARQUET_KIND_DATE;
        break;
    case TYPE_TIME:
    case TYPE_TIMESTAMP:
        unit = flat_integer(t, 0, 2, type == TYPE_TIME ? 1 : 0);
        if (unit < 0 || unit > PARQUET_NANOS) return false;
        bits = type == TYPE_TIME && unit <= PARQUET_MILLIS ? 32 : 64;
        c->node.kind = type == TYPE_TIME ? PARQUET_KIND_TIME : PARQUET_KIND_TIMESTAMP;
        c->node.unit = (int)unit;
        c->node.utc = type == TYPE_TIMESTAMP && flat_text(t, 1).bytes > 0;
        break;
    default:
        return false;
    }
    c->layout = ARROW_FIXED;
    c->width = (size_t)bits / 8;
    return bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128;
}

static bool read_type(int type, struct flat t, struct arrow_column *c)
{
    c->width = type >= TYPE_LARGE_BINARY ? 8 : 4;
    switch (type) {
    case TYPE_NULL:
        c->layout = ARROW_NULL;
        return true;
    case TYPE_BOOLEAN:
        c->layout = ARROW_BITS;
        c->node.kind = PARQUET_KIND_BOOLEAN;
        return true;
    case TYPE_BINARY:
    case TYPE_TEXT:
    case TYPE_LARGE_BINARY:
    case TYPE_LARGE_TEXT:
        c->layout = ARROW_BYTES;
        c->node.kind = type == TYPE_TEXT || type == TYPE_LARGE_TEXT ? PARQUET_KIND_TEXT : PARQUET_KIND_BYTES;
        return true;
    case TYPE_FIXED_BINARY:
        c->layout = ARROW_FIXED;
        c->node.kind = PARQUET_KIND_TEXT;
        c->width = (size_t)flat_integer(t, 0, 4, 0);
        return c->width > 0 && c->width <= INT32_MAX;
    case TYPE_LIST:
    case TYPE_LARGE_LIST:
        c->layout = ARROW_LIST;
        return true;
    case TYPE_FIXED_LIST:
        c->layout = ARROW_FIXED_LIST;
        c->width = (size_t)flat_integer(t, 0, 4, 0);
        return c->width <= INT32_MAX;
    case TYPE_STRUCT:
        c->layout = ARROW_OBJECT;
        return true;
    case TYPE_MAP:
        c->layout = ARROW_MAP;
        return true;
    default:
        return read_number_type(type, t, c);
    }
}

/* Whether the layout allows these children. */
static bool has_children(const struct arrow_schema *schema, size_t index, size_t children)
{
    const struct arrow_column *c = &schema->columns[index];
    switch (c->layout) {
    case ARROW_OBJECT:
        return true;
    case ARROW_LIST:
    case ARROW_FIXED_LIST:
        return children == 1;
    case ARROW_MAP: /* pairs of a text and a value */
        return children == 1 && c[1].layout == ARROW_OBJECT && c->next > index + 3 &&
               c[2].layout == ARROW_BYTES && c[3].next == c->next;
    default:
        return children == 0;
    }
}

static tt_status read_field(const char *path, struct flat field, size_t parent, int depth,
                            struct arrow_schema *schema)
{
    struct arrow_column column = {.parent = parent};
    size_t index = schema->count, at, children = flat_vector(field, 5, 4, &at);
    column.node.name = flat_text(field, 0);
    if (tt_utf8_invalid_at(column.node.name.data, column.node.name.bytes) != column.node.name.bytes)
        return tt_fail(TT_ERR_DATA, "'%s': the name of a column is not UTF-8", path);
    if (depth > DEPTH_MAX || schema->count > CHILDREN_MAX)
        return fail_column(path, column.node.name, TT_ERR_UNSUPPORTED,
                           "too many columns, or nested too deeply");
    if (flat_table(field, 4).at != 0)
        return fail_column(path, column.node.name, TT_ERR_UNSUPPORTED, "dictionaries are not supported");
    if (!read_type((int)flat_integer(field, 2, 1, 0), flat_table(field, 3), &column)) {
        fail_column(path, column.node.name, TT_ERR_UNSUPPORTED, "its type cannot be written as JSON");
        tt_hint("save the data set without this column");
        return TT_ERR_UNSUPPORTED;
    }
    TT_TRY(tt_grow(&schema->columns, schema->count, &schema->capacity));
    schema->columns[schema->count++] = column;
    for (size_t i = 0; i < children; i++)
        TT_TRY(read_field(path, flat_element(field, 5, i), index, depth + 1, schema));
    schema->columns[index].next = schema->count;
    if (has_children(schema, index, children)) return TT_OK;
    return fail_column(path, column.node.name, TT_ERR_UNSUPPORTED, "the parts of its type are not supported");
}

tt_status arrow_schema_read(const char *path, struct flat table, struct arrow_schema *schema)
{
    size_t at, count = flat_vector(table, 1, 4, &at);
    arrow_schema_deinit(schema);
    if (flat_integer(table, 0, 2, 0) != 0) return tt_fail(TT_ERR_UNSUPPORTED, "'%s' is big-endian", path);
    TT_TRY(tt_grow(&schema->columns, 0, &schema->capacity));
    schema->columns[schema->count++] = (struct arrow_column){.layout = ARROW_OBJECT};
    for (size_t i = 0; i < count; i++) TT_TRY(read_field(path, flat_element(table, 1, i), 0, 1, schema));
    schema->columns[0].next = schema->count;
    return TT_OK;
}

void arrow_schema_deinit(struct arrow_schema *schema)
{
    tt_free(schema->columns);
    *schema = (struct arrow_schema){0};
}

/* ---- Batches ---- */

struct batch {
    struct flat table;
    size_t nodes_at, nodes, node, buffers_at, buffers, buffer;
    const uint8_t *body;
    uint64_t body_bytes;
    const char *why;
};

static uint64_t read_long(struct flat table, size_t at)
{
    uint64_t value;
    memcpy(&value, table.data + at, sizeof value);
    return value;
}

/* The next buffer, which must have at least `least` bytes. */
static bool next_buffer(struct batch *b, uint64_t least, const uint8_t **data, uint64_t *bytes)
{
    if (b->buffer == b->buffers) return false;
    size_t at = b->buffers_at + 16 * b->buffer++;
    uint64_t offset = read_long(b->table, at), length = read_long(b->table, at + 8);
    if (offset > b->body_bytes || length > b->body_bytes - offset || length < least) return false;
    *data = b->body + offset;
    *bytes = length;
    return true;
}

static uint64_t bit_bytes(uint64_t bits)
{
    return bits / 8 + (bits % 8 != 0);
}

/* Sets the column's buffers; false: they are missing or too short. */
static bool read_buffers(struct batch *b, struct arrow_column *c)
{
    uint64_t bytes = 0, size = 0, nulls = read_long(b->table, b->nodes_at + 16 * b->node + 8);
    c->length = read_long(b->table, b->nodes_at + 16 * b->node++);
    c->valid = c->offsets = c->data = NULL;
    c->data_bytes = 0;
    if (c->layout == ARROW_NULL) return true;
    if (!next_buffer(b, 0, &c->valid, &bytes)) return false;
    if (nulls == 0)
        c->valid = NULL;
    else if (bytes < bit_bytes(c->length))
        return false;
    switch (c->layout) {
    case ARROW_BITS:
        return next_buffer(b, bit_bytes(c->length), &c->data, &c->data_bytes);
    case ARROW_FIXED:
        return !__builtin_mul_overflow(c->length, c->width, &size) &&
               next_buffer(b, size, &c->data, &c->data_bytes);
    case ARROW_BYTES:
    case ARROW_LIST:
    case ARROW_MAP:
        size = c->layout == ARROW_MAP ? 4 : c->width;
        if (__builtin_add_overflow(c->length, 1, &bytes) || __builtin_mul_overflow(bytes, size, &size))
            return false;
        if (!next_buffer(b, c->length == 0 ? 0 : size, &c->offsets, &bytes)) return false;
        return c->layout != ARROW_BYTES || next_buffer(b, 0, &c->data, &c->data_bytes);
    default:
        return true;
    }
}

/* Children have as many values as their parents need. Lists are checked value by value. */
static bool lengths_agree(const struct arrow_schema *schema)
{
    for (size_t i = 1; i < schema->count; i++) {
        const struct arrow_column *c = &schema->columns[i], *parent = &schema->columns[c->parent];
        uint64_t least = 0;
        if (parent->layout == ARROW_OBJECT) least = parent->length;
        if (parent->layout == ARROW_FIXED_LIST &&
            __builtin_mul_overflow(parent->length, parent->width, &least))
            return false;
        if (c->length < least) return false;
    }
    return true;
}

tt_status arrow_batch_read(const char *path, struct arrow_schema *schema, struct flat table,
                           const uint8_t *body, uint64_t body_bytes)
{
    struct batch b = {.table = table, .body = body, .body_bytes = body_bytes};
    b.nodes = flat_vector(table, 1, 16, &b.nodes_at);
    b.buffers = flat_vector(table, 2, 16, &b.buffers_at);
    if (flat_table(table, 3).at != 0) {
        tt_fail(TT_ERR_UNSUPPORTED, "'%s': compressed buffers are not supported", path);
        tt_hint("save it again with datasets' save_to_disk, or as Parquet");
        return TT_ERR_UNSUPPORTED;
    }
    schema->columns[0].length = (uint64_t)flat_integer(table, 0, 8, 0);
    bool good = b.nodes == schema->count - 1;
    for (size_t i = 1; good && i < schema->count; i++) good = read_buffers(&b, &schema->columns[i]);
    if (good && lengths_agree(schema)) return TT_OK;
    tt_fail(TT_ERR_DATA, "'%s': a batch of rows is damaged: its buffers do not have what its columns need",
            path);
    return TT_ERR_DATA;
}
