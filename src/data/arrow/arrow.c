#include "data/arrow/arrow.h"

#include <string.h>

#include "data/arrow/schema.h"
#include "data/parquet/json_text.h"
#include "data/parquet/lines.h"

enum { MARK_BYTES = 4, FILE_MAGIC_BYTES = 8, HEADER_SCHEMA = 1, HEADER_DICTIONARY, HEADER_BATCH };

static const uint8_t stream_mark[MARK_BYTES] = {0xff, 0xff, 0xff, 0xff};

struct reader {
    const struct tt_file_map *file;
    struct arrow_schema schema;
    struct parquet_lines lines;
};

bool tt_arrow_is(const struct tt_file_map *file)
{
    return file->bytes >= 6 &&
           (memcmp(file->data, stream_mark, MARK_BYTES) == 0 || memcmp(file->data, "ARROW1", 6) == 0);
}

/* ---- Values ---- */

static tt_status fail_value(const struct reader *r, const struct arrow_column *c, const char *why)
{
    int shown = c->node.name.bytes < 200 ? (int)c->node.name.bytes : 200;
    return tt_fail(TT_ERR_DATA, "'%s', row %llu, column '%.*s': %s", r->lines.path,
                   (unsigned long long)r->lines.row, shown, c->node.name.data, why);
}

static bool bit(const uint8_t *bits, uint64_t index)
{
    return bits[index / 8] >> index % 8 & 1;
}

/* The range of value `index`, in bytes or elements; false: not within `limit`. */
static bool read_span(const struct arrow_column *c, uint64_t index, uint64_t limit, uint64_t *from,
                      uint64_t *to)
{
    if (c->width == 8) {
        memcpy(from, c->offsets + 8 * index, 8);
        memcpy(to, c->offsets + 8 * index + 8, 8);
    } else {
        uint32_t narrow[2];
        memcpy(narrow, c->offsets + 4 * index, sizeof narrow);
        *from = narrow[0];
        *to = narrow[1];
    }
    return *from <= *to && *to <= limit;
}

/* The value as json_text.h has it: integers of 8 bytes, decimals with the highest byte first. */
static struct parquet_value fixed_value(const struct arrow_column *c, uint64_t index, uint8_t buffer[16])
{
    const uint8_t *at = c->data + index * c->width;
    struct parquet_value value = {at, c->width};
    int64_t number = 0;
    if (c->node.kind == PARQUET_KIND_DECIMAL) {
        for (size_t i = 0; i < c->width; i++) buffer[i] = at[c->width - 1 - i];
        return (struct parquet_value){buffer, c->width};
    }
    if (c->node.kind == PARQUET_KIND_TEXT || c->node.kind == PARQUET_KIND_DOUBLE) return value;
    memcpy(&number, at, c->width < 8 ? c->width : 8);
    int unused = c->width < 8 ? 64 - 8 * (int)c->width : 0;
    if (c->node.kind != PARQUET_KIND_UNSIGNED) number = (int64_t)((uint64_t)number << unused) >> unused;
    if (c->days_in_millis) number = number / 86400000 - (number % 86400000 < 0);
    memcpy(buffer, &number, sizeof number);
    return (struct parquet_value){buffer, sizeof number};
}

static tt_status write_leaf(struct reader *r, const struct arrow_column *c, uint64_t index)
{
    struct parquet_value value;
    uint8_t buffer[16];
    uint64_t from, to;
    const char *why = NULL;
    tt_status status = TT_OK;
    if (c->layout == ARROW_BITS) {
        buffer[0] = bit(c->data, index);
        value = (struct parquet_value){buffer, 1};
    } else if (c->layout == ARROW_BYTES) {
        if (!read_span(c, index, c->data_bytes, &from, &to))
            return fail_value(r, c, "a text is not within its buffer");
        value = (struct parquet_value){c->data + from, to - from};
    } else {
        value = fixed_value(c, index, buffer);
    }
    if (c->node.kind == PARQUET_KIND_BYTES && r->lines.sink.keep != NULL)
        return parquet_lines_keep(&r->lines, value.data, value.bytes);
    if (parquet_json_value(&c->node, &value, &r->lines.text, &why, &status)) return TT_OK;
    if (status != TT_OK) return status;
    fail_value(r, c, why);
    tt_hint("save the data set without this column if the training does not need it");
    return TT_ERR_DATA;
}

static tt_status write_value(struct reader *r, size_t column, uint64_t index);

static tt_status write_name(struct reader *r, const struct arrow_column *c, bool first)
{
    if (!first) TT_TRY(tt_str_append_text(&r->lines.text, ", "));
    TT_TRY(parquet_json_string(c->node.name.data, c->node.name.bytes, &r->lines.text));
    return tt_str_append_text(&r->lines.text, ": ");
}

static tt_status write_object(struct reader *r, size_t column, uint64_t index)
{
    const struct arrow_column *columns = r->schema.columns;
    TT_TRY(tt_str_append_char(&r->lines.text, '{'));
    for (size_t i = column + 1; i < columns[column].next; i = columns[i].next) {
        TT_TRY(write_name(r, &columns[i], i == column + 1));
        TT_TRY(write_value(r, i, index));
    }
    return tt_str_append_char(&r->lines.text, '}');
}

static tt_status write_pair(struct reader *r, size_t map, uint64_t index)
{
    const struct arrow_column *key = &r->schema.columns[map + 2];
    if (key->valid != NULL && !bit(key->valid, index)) return fail_value(r, key, "the key of a map is null");
    if (key->node.kind == PARQUET_KIND_BYTES && r->lines.sink.keep != NULL)
        return fail_value(r, key, "the key of a map is no text");
    TT_TRY(write_leaf(r, key, index));
    TT_TRY(tt_str_append_text(&r->lines.text, ": "));
    return write_value(r, map + 3, index);
}

static tt_status write_list(struct reader *r, size_t column, uint64_t index)
{
    const struct arrow_column *c = &r->schema.columns[column];
    uint64_t from = index * c->width, to = from + c->width;
    bool map = c->layout == ARROW_MAP;
    if (c->layout != ARROW_FIXED_LIST && !read_span(c, index, c[1].length, &from, &to))
        return fail_value(r, c, "a list is not within its elements");
    TT_TRY(tt_str_append_char(&r->lines.text, map ? '{' : '['));
    for (uint64_t i = from; i < to; i++) {
        TT_TRY(parquet_lines_check(&r->lines));
        if (i > from) TT_TRY(tt_str_append_text(&r->lines.text, ", "));
        TT_TRY(map ? write_pair(r, column, i) : write_value(r, column + 1, i));
    }
    return tt_str_append_char(&r->lines.text, map ? '}' : ']');
}

static tt_status write_value(struct reader *r, size_t column, uint64_t index)
{
    const struct arrow_column *c = &r->schema.columns[column];
    if (c->layout == ARROW_NULL || (c->valid != NULL && !bit(c->valid, index)))
        return tt_str_append_text(&r->lines.text, "null");
    if (c->layout == ARROW_OBJECT) return write_object(r, column, index);
    if (c->layout == ARROW_LIST || c->layout == ARROW_FIXED_LIST || c->layout == ARROW_MAP)
        return write_list(r, column, index);
    return write_leaf(r, c, index);
}

/* ---- Messages ---- */

struct message {
    struct flat table;
    const uint8_t *body;
    uint64_t body_bytes;
};

static tt_status fail_message(const struct reader *r, uint64_t at, const char *why)
{
    tt_fail(TT_ERR_DATA, "'%s': the message at byte %llu of %llu %s", r->lines.path, (unsigned long long)at,
            (unsigned long long)r->file->bytes, why);
    tt_hint("the file is damaged or was not copied to its end");
    return TT_ERR_DATA;
}

/* Reads the message at *at and moves *at behind it; *end: the stream has ended. */
static tt_status next_message(const struct reader *r, uint64_t *at, struct message *message, bool *end)
{
    uint64_t left = r->file->bytes - *at;
    const uint8_t *data = r->file->data + *at;
    int32_t bytes;
    *end = left == 0;
    if (*end) return TT_OK;
    if (left < 8 || memcmp(data, stream_mark, MARK_BYTES) != 0)
        return fail_message(r, *at, "does not begin as one");
    memcpy(&bytes, data + 4, sizeof bytes);
    *end = bytes == 0;
    if (*end) return TT_OK;
    if (bytes < 0 || (uint64_t)bytes > left - 8) return fail_message(r, *at, "is longer than the file");
    message->table = flat_root(data + 8, (size_t)bytes);
    message->body = data + 8 + bytes;
    message->body_bytes = (uint64_t)flat_integer(message->table, 3, 8, 0);
    if (message->table.at == 0) return fail_message(r, *at, "is damaged");
    if (message->body_bytes > left - 8 - (uint64_t)bytes)
        return fail_message(r, *at, "is longer than the file");
    *at += 8 + (uint64_t)bytes + message->body_bytes;
    return TT_OK;
}

static tt_status write_batch(struct reader *r, const struct message *message)
{
    const char *path = r->lines.path;
    TT_TRY(arrow_batch_read(path, &r->schema, flat_table(message->table, 2), message->body,
                            message->body_bytes));
    for (uint64_t i = 0; i < r->schema.columns[0].length && !parquet_lines_full(&r->lines); i++) {
        parquet_lines_begin(&r->lines);
        TT_TRY(write_object(r, 0, i));
        TT_TRY(parquet_lines_end(&r->lines));
    }
    tt_file_map_release(message->body, message->body_bytes);
    return TT_OK;
}

static tt_status read_messages(struct reader *r)
{
    bool is_file = memcmp(r->file->data, "ARROW1", 6) == 0, end = false;
    struct message message;
    for (uint64_t at = is_file ? FILE_MAGIC_BYTES : 0; !parquet_lines_full(&r->lines);) {
        uint64_t start = at;
        if (at > r->file->bytes) return fail_message(r, 0, "is longer than the file");
        TT_TRY(next_message(r, &at, &message, &end));
        if (end) break;
        int64_t kind = flat_integer(message.table, 1, 1, 0);
        if (kind == HEADER_SCHEMA && r->schema.count == 0) {
            TT_TRY(arrow_schema_read(r->lines.path, flat_table(message.table, 2), &r->schema));
        } else if (kind == HEADER_BATCH && r->schema.count > 0) {
            TT_TRY(write_batch(r, &message));
        } else if (kind == HEADER_DICTIONARY) {
            return tt_fail(TT_ERR_UNSUPPORTED, "'%s': dictionaries are not supported", r->lines.path);
        } else {
            return fail_message(r, start, "is not one of a data set");
        }
    }
    if (r->schema.count == 0) return tt_fail(TT_ERR_DATA, "'%s' has no schema", r->lines.path);
    return TT_OK;
}

static tt_status check_magic(const char *path, const struct tt_file_map *file)
{
    if (tt_arrow_is(file)) return TT_OK;
    return tt_fail(TT_ERR_DATA, "'%s' is not an Arrow file: it does not begin as one", path);
}

tt_status tt_arrow_read_into(const char *path, const struct tt_file_map *file,
                             const struct tt_parquet_limits *limits, const struct tt_parquet_sink *sink)
{
    struct reader r = {.file = file, .lines = {path, limits, *sink, {0}, 0, 0, 0}};
    tt_status status = TT_OK;
    TT_TRY(check_magic(path, file));
    TT_GO(read_messages(&r));
    status = parquet_lines_flush(&r.lines);
out:
    tt_str_deinit(&r.lines.text);
    arrow_schema_deinit(&r.schema);
    return status;
}

tt_status tt_arrow_read(const char *path, const struct tt_file_map *file,
                        const struct tt_parquet_limits *limits,
                        tt_status (*put)(void *context, const char *data, size_t bytes), void *context)
{
    const struct tt_parquet_sink sink = {.put = put, .context = context};
    return tt_arrow_read_into(path, file, limits, &sink);
}

tt_status tt_arrow_note(const char *path, const struct tt_file_map *file, const char *key,
                        struct tt_span *value)
{
    const struct reader r = {.file = file, .lines = {.path = path}};
    uint64_t start = 0;
    struct message message;
    bool end = false;
    size_t place;
    *value = (struct tt_span){0};
    TT_TRY(check_magic(path, file));
    if (memcmp(file->data, "ARROW1", 6) == 0) start = FILE_MAGIC_BYTES;
    if (start > file->bytes) return fail_message(&r, 0, "is longer than the file");
    TT_TRY(next_message(&r, &start, &message, &end));
    if (end || flat_integer(message.table, 1, 1, 0) != HEADER_SCHEMA)
        return tt_fail(TT_ERR_DATA, "'%s' has no schema", path);
    struct flat schema = flat_table(message.table, 2);
    size_t count = flat_vector(schema, 2, 4, &place);
    for (size_t i = 0; i < count && value->data == NULL; i++) {
        struct flat pair = flat_element(schema, 2, i);
        if (tt_span_equals(flat_text(pair, 0), key)) *value = flat_text(pair, 1);
    }
    return TT_OK;
}
