/* For tests: Parquet files made byte by byte. */
#ifndef TT_TESTS_SUPPORT_MADE_PARQUET_H
#define TT_TESTS_SUPPORT_MADE_PARQUET_H

#include <stdint.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "data/parquet/metadata.h"
#include "data/parquet/parquet.h"
#include "data/parquet/values.h"

/* ---- Thrift's compact protocol, for writing ---- */

struct out {
    struct tt_str text;
    int last[8], depth; /* number of the last field, for each open struct */
};

static inline void byte(struct out *o, int value)
{
    assert_int_equal(tt_str_append_char(&o->text, (char)value), TT_OK);
}

static inline void varint(struct out *o, uint64_t value)
{
    for (; value >= 128; value >>= 7) byte(o, (int)(value & 127) | 128);
    byte(o, (int)value);
}

static inline void field(struct out *o, int id, int type)
{
    byte(o, (id - o->last[o->depth]) << 4 | type);
    o->last[o->depth] = id;
}

static inline void number(struct out *o, int id, int64_t value)
{
    field(o, id, 6);
    varint(o, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

/* As a 32-bit integer, which enums are. */
static inline void small(struct out *o, int id, int value)
{
    field(o, id, 5);
    varint(o, (uint64_t)(unsigned)value << 1);
}

static inline void text(struct out *o, int id, const char *value)
{
    field(o, id, 8);
    varint(o, strlen(value));
    assert_int_equal(tt_str_append_text(&o->text, value), TT_OK);
}

static inline void begin(struct out *o)
{
    o->last[++o->depth] = 0;
}

static inline void end(struct out *o)
{
    byte(o, 0);
    o->depth--;
}

static inline void list(struct out *o, int id, size_t count)
{
    field(o, id, 9);
    byte(o, 0xfc);
    varint(o, count);
}

/* ---- A file of one row group, one page for each column ---- */

struct element {
    const char *name;
    int type, repetition, children, converted; /* type 8: a group; converted: -1 none */
    int bytes;
};

struct column {
    int type, values;
    const char *levels; /* "rd rd ...": digits of repetition and definition level of each entry */
    const char *data;
    size_t bytes;
    int codec, encoding, flags;
    int stated;                 /* values by the metadata; 0: those of the page */
    const struct tt_str *chunk; /* NULL, or the bytes of all pages */
};
enum { ENCRYPTED = 1, ELSEWHERE = 2 };

/* Runs of one value each. */
static inline void put_levels(struct tt_str *page, const char *levels, int which)
{
    struct out runs = {0};
    bool used = false;
    for (size_t i = 0; levels[i] != '\0'; i += levels[i + 2] == ' ' ? 3 : 2) {
        varint(&runs, 2);
        byte(&runs, levels[i + (size_t)which] - '0');
        used = used || levels[i + (size_t)which] != '.';
    }
    uint32_t bytes = (uint32_t)runs.text.bytes;
    if (used) {
        assert_int_equal(tt_str_append(page, (char *)&bytes, 4), TT_OK);
        assert_int_equal(tt_str_append(page, runs.text.data, bytes), TT_OK);
    }
    tt_str_deinit(&runs.text);
}

static inline void put_page(struct out *file, const struct column *c)
{
    struct tt_str page = {0};
    if (c->chunk != NULL) {
        assert_int_equal(tt_str_append(&file->text, c->chunk->data, c->chunk->bytes), TT_OK);
        return;
    }
    put_levels(&page, c->levels, 0);
    put_levels(&page, c->levels, 1);
    assert_int_equal(tt_str_append(&page, c->data, c->bytes), TT_OK);
    begin(file);
    small(file, 1, PARQUET_DATA_PAGE);
    small(file, 2, (int)page.bytes);
    small(file, 3, (int)page.bytes);
    field(file, 5, 12);
    begin(file);
    small(file, 1, c->values);
    small(file, 2, c->encoding);
    small(file, 3, PARQUET_RLE);
    small(file, 4, PARQUET_RLE);
    end(file);
    end(file);
    assert_int_equal(tt_str_append(&file->text, page.data, page.bytes), TT_OK);
    tt_str_deinit(&page);
}

static inline void put_chunk(struct out *o, const struct column *c, size_t offset, size_t bytes)
{
    begin(o);
    if (c->flags & ELSEWHERE) text(o, 1, "other.parquet");
    field(o, 3, 12);
    begin(o);
    small(o, 1, c->type);
    small(o, 4, c->codec);
    number(o, 5, c->stated > 0 ? c->stated : c->values);
    number(o, 7, (int64_t)bytes);
    number(o, 9, (int64_t)offset);
    end(o);
    if (c->flags & ENCRYPTED) {
        field(o, 8, 12);
        byte(o, 0);
    }
    end(o);
}

static inline void put_schema(struct out *o, const struct element *e, size_t count, int children)
{
    list(o, 2, count + 1);
    begin(o);
    text(o, 4, "schema");
    small(o, 5, children);
    end(o);
    for (size_t i = 0; i < count; i++) {
        begin(o);
        if (e[i].type != PARQUET_GROUP) small(o, 1, e[i].type);
        if (e[i].bytes > 0) small(o, 2, e[i].bytes);
        small(o, 3, e[i].repetition);
        text(o, 4, e[i].name);
        if (e[i].type == PARQUET_GROUP) small(o, 5, e[i].children);
        if (e[i].converted >= 0) small(o, 6, e[i].converted);
        end(o);
    }
}

static inline struct tt_file_map make(const struct element *e, size_t elements, int children,
                                      const struct column *c, size_t columns, int64_t rows)
{
    struct out file = {0};
    size_t at[9];
    assert_int_equal(tt_str_append_text(&file.text, "PAR1"), TT_OK);
    for (size_t i = 0; i < columns; i++) {
        at[i] = file.text.bytes;
        put_page(&file, &c[i]);
    }
    at[columns] = file.text.bytes;
    size_t start = file.text.bytes;
    put_schema(&file, e, elements, children);
    list(&file, 4, 1);
    begin(&file);
    list(&file, 1, columns);
    for (size_t i = 0; i < columns; i++) put_chunk(&file, &c[i], at[i], at[i + 1] - at[i]);
    number(&file, 3, rows);
    end(&file);
    byte(&file, 0);
    uint32_t footer = (uint32_t)(file.text.bytes - start);
    assert_int_equal(tt_str_append(&file.text, (char *)&footer, 4), TT_OK);
    assert_int_equal(tt_str_append_text(&file.text, "PAR1"), TT_OK);
    return (struct tt_file_map){(const uint8_t *)file.text.data, file.text.bytes};
}

static inline tt_status keep(void *context, const char *data, size_t bytes)
{
    return tt_str_append(context, data, bytes);
}

static inline tt_status read_file(struct tt_file_map file, struct tt_str *rows)
{
    const struct tt_parquet_limits limits = {.total_bytes = 1 << 16};
    struct tt_str owned = {.data = (char *)(uintptr_t)file.data};
    tt_status status = tt_parquet_read("made.parquet", &file, &limits, keep, rows);
    tt_str_deinit(&owned);
    return status;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define CHECK(expected, elements, children, columns, rows)                                                   \
    expect_rows(expected, make(elements, COUNT(elements), children, columns, COUNT(columns), rows))
#define REFUSE(status, part, elements, children, columns, rows)                                              \
    expect_error(status, part, make(elements, COUNT(elements), children, columns, COUNT(columns), rows))

static inline void expect_rows(const char *expected, struct tt_file_map file)
{
    struct tt_str rows = {0};
    if (read_file(file, &rows) != TT_OK) fail_msg("%s", tt_error_last()->message);
    assert_string_equal(tt_str_text(&rows), expected);
    tt_str_deinit(&rows);
}

static inline void expect_error(tt_status status, const char *part, struct tt_file_map file)
{
    struct tt_str rows = {0};
    assert_int_equal(read_file(file, &rows), status);
    const char *message = tt_error_last()->message;
    if (strstr(message, part) == NULL || strstr(message, "made.parquet") == NULL)
        fail_msg("'%s' is not in '%s'", part, message);
    tt_str_deinit(&rows);
}

#endif
