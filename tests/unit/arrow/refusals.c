/* data/arrow/arrow.h: every refusal of an Arrow stream, made here field by field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/str.h"
#include "data/arrow/arrow.h"

/* ---- FlatBuffers, for writing: what refers to an object comes before it ---- */

static uint8_t made[1 << 15];
static size_t used, start; /* of the metadata of the message */

static void put(size_t at, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++) made[at + (size_t)i] = (uint8_t)(value >> (8 * i));
}

/* A table of so many fields, all absent; each has room for eight bytes. */
static size_t table(int fields)
{
    size_t fields_at = used, at = used + 4 + 2 * (size_t)fields;
    memset(made + used, 0, 8 + 10 * (size_t)fields);
    put(fields_at, 2, 4 + 2 * (uint64_t)fields);
    put(fields_at + 2, 2, 4 + 8 * (uint64_t)fields);
    put(at, 4, at - fields_at);
    used = at + 4 + 8 * (size_t)fields;
    return at;
}

static void set(size_t at, int field, int bytes, uint64_t value)
{
    size_t back = made[at] | (size_t)made[at + 1] << 8, slot = 4 + 8 * (size_t)field;
    put(at - back + 4 + 2 * (size_t)field, 2, slot);
    put(at + slot, bytes, value);
}

static void refer(size_t at, int field, size_t target)
{
    set(at, field, 4, target - (at + 4 + 8 * (size_t)field));
}

static size_t vector(size_t count, size_t width)
{
    size_t at = used;
    put(at, 4, count);
    memset(made + at + 4, 0, count * width);
    used += 4 + count * width;
    return at;
}

/* ---- Messages ---- */

enum { SCHEMA = 1, DICTIONARY, BATCH };
enum { INTEGER = 2, BINARY = 4, TEXT = 5, UNION = 14, LIST = 12, STRUCT = 13, MAP = 17 };

struct field {
    const char *name;
    int type, children;
    bool is_dictionary;
};

static size_t begin_message(int kind, uint64_t body_bytes)
{
    put(used, 4, UINT32_MAX);
    used += 8;
    start = used;
    used += 4;
    size_t message = table(4);
    put(start, 4, message - start);
    set(message, 1, 1, (uint64_t)kind);
    set(message, 3, 8, body_bytes);
    return message;
}

static void end_message(void)
{
    put(start - 4, 4, used - start);
}

/* Fields in preorder. Returns the one behind the last. */
static const struct field *put_fields(size_t list, size_t count, const struct field *f)
{
    for (size_t i = 0; i < count; i++) {
        size_t field = table(7), slot = list + 4 + 4 * i;
        put(slot, 4, field - slot);
        size_t name = vector(strlen(f->name), 1);
        memcpy(made + name + 4, f->name, strlen(f->name));
        refer(field, 0, name);
        set(field, 2, 1, (uint64_t)f->type);
        size_t type = table(2);
        refer(field, 3, type);
        if (f->type == INTEGER) set(type, 0, 4, 32);
        if (f->type == INTEGER) set(type, 1, 1, 1);
        if (f->is_dictionary) refer(field, 4, table(1));
        size_t children = vector((size_t)f->children, 4);
        refer(field, 5, children);
        f = put_fields(children, (size_t)f->children, f + 1);
    }
    return f;
}

static void put_schema(const struct field *fields, size_t count, bool is_big_endian)
{
    size_t message = begin_message(SCHEMA, 0), schema = table(2);
    refer(message, 2, schema);
    if (is_big_endian) set(schema, 0, 2, 1);
    size_t list = vector(count, 4);
    refer(schema, 1, list);
    put_fields(list, count, fields);
    end_message();
}

/* A batch of one row. All buffers are of 16 bytes, one behind the other: those of `body`. */
struct batch {
    int nodes, buffers;
    uint64_t nulls; /* bits of the nodes that have them */
    uint32_t body[32];
    bool is_compressed;
};

static void put_batch(const struct batch *b)
{
    uint64_t bytes = 16 * (uint64_t)b->buffers;
    size_t message = begin_message(BATCH, bytes), batch = table(4);
    refer(message, 2, batch);
    set(batch, 0, 8, 1);
    size_t nodes = vector((size_t)b->nodes, 16);
    refer(batch, 1, nodes);
    for (size_t i = 0; i < (size_t)b->nodes; i++) {
        put(nodes + 4 + 16 * i, 8, 1);
        put(nodes + 12 + 16 * i, 8, b->nulls >> i & 1);
    }
    size_t buffers = vector((size_t)b->buffers, 16);
    refer(batch, 2, buffers);
    for (size_t i = 0; i < (size_t)b->buffers; i++) {
        put(buffers + 4 + 16 * i, 8, 16 * i);
        put(buffers + 12 + 16 * i, 8, 16);
    }
    if (b->is_compressed) refer(batch, 3, table(1));
    end_message();
    memcpy(made + used, b->body, bytes);
    used += bytes;
}

/* ---- Tests ---- */

static tt_status take(void *context, const char *data, size_t bytes)
{
    return tt_str_append(context, data, bytes);
}

static tt_status keep_bytes(void *context, const uint8_t *data, size_t bytes, uint64_t *number)
{
    (void)context, (void)data;
    *number = bytes;
    return TT_OK;
}

static void expect_with(tt_status (*keep)(void *, const uint8_t *, size_t, uint64_t *), tt_status expected,
                        const char *message)
{
    const struct tt_parquet_limits limits = {.total_bytes = 1 << 16};
    const struct tt_file_map file = {made, used};
    struct tt_str rows = {0};
    const struct tt_parquet_sink sink = {.put = take, .context = &rows, .keep = keep};
    tt_status status = tt_arrow_read_into("x.arrow", &file, &limits, &sink);
    const char *said = status == TT_OK ? tt_str_text(&rows) : tt_error_last()->message;
    used = 0;
    if (status != expected || strstr(said, message) == NULL)
        fail_msg("%s (%s), not %s", said, tt_status_name(status), message);
    tt_str_deinit(&rows);
}

static void expect(tt_status expected, const char *message)
{
    expect_with(NULL, expected, message);
}

static void schemas(void **state)
{
    (void)state;
    static const struct {
        struct field field;
        tt_status status;
        const char *message;
    } rows[] = {
        {{"a", INTEGER, 0, true},
         TT_ERR_UNSUPPORTED,
         "'x.arrow', column 'a': dictionaries are not supported"},
        {{"a", UNION, 0, false},
         TT_ERR_UNSUPPORTED,
         "'x.arrow', column 'a': its type cannot be written as JSON"},
        {{"a", LIST, 0, false},
         TT_ERR_UNSUPPORTED,
         "'x.arrow', column 'a': the parts of its type are not supported"},
        {{"\xff", TEXT, 0, false}, TT_ERR_DATA, "'x.arrow': the name of a column is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        put_schema(&rows[i].field, 1, false);
        expect(rows[i].status, rows[i].message);
    }
    enum { DEEP = 102 };
    struct field deep[DEEP];
    for (int i = 0; i < DEEP; i++)
        deep[i] = i + 1 < DEEP ? (struct field){"d", LIST, 1, false} : (struct field){"d", TEXT, 0, false};
    put_schema(deep, 1, false);
    expect(TT_ERR_UNSUPPORTED, "'x.arrow', column 'd': too many columns, or nested too deeply");
    put_schema(NULL, 0, true);
    expect(TT_ERR_UNSUPPORTED, "'x.arrow' is big-endian");
}

static void messages(void **state)
{
    (void)state;
    static const struct field number = {"a", INTEGER, 0, false};
    memcpy(made, "\xff\xff\xff\xff\0\0\0\0", 8);
    used = 8;
    expect(TT_ERR_DATA, "'x.arrow' has no schema");
    memcpy(made, "ARROX1\0\0", 8);
    used = 8;
    expect(TT_ERR_DATA, "'x.arrow' is not an Arrow file: it does not begin as one");
    memcpy(made, "ARROW1\0\0", 8);
    used = 9;
    expect(TT_ERR_DATA, "'x.arrow': the message at byte 8 of 9 does not begin as one");
    memcpy(made, "\xff\xff\xff\xff\4\0\0\0\0\0\0\0", 12);
    used = 12;
    expect(TT_ERR_DATA, "'x.arrow': the message at byte 0 of 12 is damaged");
    put_schema(&number, 1, false);
    put(4, 4, used);
    expect(TT_ERR_DATA, "'x.arrow': the message at byte 0 of 211 is longer than the file");
    put_schema(&number, 1, false);
    begin_message(DICTIONARY, 0);
    end_message();
    expect(TT_ERR_UNSUPPORTED, "'x.arrow': dictionaries are not supported");
    begin_message(BATCH, 0);
    end_message();
    expect(TT_ERR_DATA, "'x.arrow': the message at byte 0 of 60 is not one of a data set");
}

static void batches(void **state)
{
    (void)state;
    static const struct field number[] = {{"a", INTEGER, 0, false}}, text[] = {{"t", TEXT, 0, false}};
    static const struct field list[] = {{"l", LIST, 1, false}, {"item", INTEGER, 0, false}};
    static const struct field map[] = {{"m", MAP, 1, false},
                                       {"entries", STRUCT, 2, false},
                                       {"key", TEXT, 0, false},
                                       {"value", INTEGER, 0, false}};
    static const struct field bytes[] = {{"m", MAP, 1, false},
                                         {"entries", STRUCT, 2, false},
                                         {"key", BINARY, 0, false},
                                         {"value", INTEGER, 0, false}};
    static const char damaged[] =
        "'x.arrow': a batch of rows is damaged: its buffers do not have what its columns need";
    /* Buffers of a map: validity and offsets; validity of the pairs; validity, offsets and characters of the keys;
     * validity and numbers of the values. Four words each. */
    static const struct {
        const struct field *fields;
        struct batch batch;
        tt_status status;
        const char *message;
    } rows[] = {
        {number, {1, 2, 0, {[4] = 7}, false}, TT_OK, "{\"a\": 7}"},
        {number, {1, 2, 0, {0}, true}, TT_ERR_UNSUPPORTED, "'x.arrow': compressed buffers are not supported"},
        {number, {1, 1, 0, {0}, false}, TT_ERR_DATA, damaged},
        {number, {0, 2, 0, {0}, false}, TT_ERR_DATA, damaged},
        {number, {2, 2, 0, {0}, false}, TT_ERR_DATA, damaged},
        {text, {1, 3, 0, {[5] = 1, [8] = 'x'}, false}, TT_OK, "{\"t\": \"x\"}"},
        {text,
         {1, 3, 0, {[5] = 17}, false},
         TT_ERR_DATA,
         "row 1, column 't': a text is not within its buffer"},
        {text, {1, 3, 0, {[4] = 1}, false}, TT_ERR_DATA, "column 't': a text is not within its buffer"},
        {text, {1, 3, 0, {[5] = 1, [8] = 0xff}, false}, TT_ERR_DATA, "row 1, column 't': "},
        {list, {2, 4, 0, {[5] = 1, [12] = 5}, false}, TT_OK, "{\"l\": [5]}"},
        {list,
         {2, 4, 0, {[5] = 2}, false},
         TT_ERR_DATA,
         "row 1, column 'l': a list is not within its elements"},
        {list, {2, 4, 0, {[4] = 1}, false}, TT_ERR_DATA, "column 'l': a list is not within its elements"},
        {map, {4, 8, 0, {[5] = 1, [17] = 1, [20] = 'k', [28] = 3}, false}, TT_OK, "{\"m\": {\"k\": 3}}"},
        {map, {4, 8, 4, {[5] = 1}, false}, TT_ERR_DATA, "row 1, column 'key': the key of a map is null"},
        {map,
         {4, 8, 0, {[5] = 2}, false},
         TT_ERR_DATA,
         "row 1, column 'm': a list is not within its elements"},
        {bytes, {4, 8, 0, {[5] = 1, [17] = 1, [20] = 'k'}, false}, TT_OK, "{\"m\": {\"k\": 0}}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        put_schema(rows[i].fields, 1, false);
        put_batch(&rows[i].batch);
        expect(rows[i].status, rows[i].message);
    }
    /* Values that are handed over have a number in their place, which cannot be a key. */
    put_schema(bytes, 1, false);
    put_batch(&(struct batch){4, 8, 0, {[5] = 1, [17] = 1, [20] = 'k'}, false});
    expect_with(keep_bytes, TT_ERR_DATA, "row 1, column 'key': the key of a map is no text");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(schemas), cmocka_unit_test(messages),
                                       cmocka_unit_test(batches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
