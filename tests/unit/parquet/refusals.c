/* Pages, row groups and footers that do not keep what their headers say: each is refused by its own message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "support/made_parquet.h"

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* columns without codec, encoding and flags */

static const struct element integers[] = {{"n", PARQUET_INT32, PARQUET_REQUIRED, 0, -1, 0}};
static const struct element maybe[] = {{"n", PARQUET_INT32, PARQUET_OPTIONAL, 0, -1, 0}};
static const struct element flag[] = {{"n", PARQUET_BOOLEAN, PARQUET_REQUIRED, 0, -1, 0}};

/* A page of one value; its body has `packed_bytes` bytes. */
static void page(struct out *o, int type, int bytes, const char *body, int packed_bytes)
{
    bool is_dictionary = type == PARQUET_DICTIONARY_PAGE;
    begin(o);
    small(o, 1, type);
    small(o, 2, bytes);
    small(o, 3, packed_bytes);
    field(o, is_dictionary ? 7 : 5, 12);
    begin(o);
    small(o, 1, 1);
    small(o, 2, PARQUET_PLAIN);
    if (!is_dictionary) small(o, 3, PARQUET_RLE);
    if (!is_dictionary) small(o, 4, PARQUET_RLE);
    end(o);
    end(o);
    assert_int_equal(tt_str_append(&o->text, body, (size_t)packed_bytes), TT_OK);
}

static void page_v2(struct out *o, int bytes, int packed_bytes, bool packed)
{
    begin(o);
    small(o, 1, PARQUET_DATA_PAGE_V2);
    small(o, 2, bytes);
    small(o, 3, packed_bytes);
    field(o, 8, 12);
    begin(o);
    small(o, 1, 1);
    small(o, 2, 0);
    small(o, 3, 1);
    small(o, 4, PARQUET_PLAIN);
    small(o, 5, 0);
    small(o, 6, 0);
    field(o, 7, packed ? 1 : 2);
    end(o);
    end(o);
    assert_int_equal(tt_str_append_fill(&o->text, 0, (size_t)packed_bytes), TT_OK);
}

/* A file of one column and row, whose chunk has these bytes, is refused. */
static void expect_chunk(const struct element *e, struct out *chunk, int stated, const char *message)
{
    const struct column c[] = {{.type = e->type, .values = 1, .stated = stated, .chunk = &chunk->text}};
    expect_error(TT_ERR_DATA, message, make(e, 1, 1, c, 1, 1));
    tt_str_deinit(&chunk->text);
    *chunk = (struct out){0};
}

static void pages(void **state)
{
    (void)state;
    struct out chunk = {0};
    page(&chunk, PARQUET_DICTIONARY_PAGE, 4, "\1\0\0\0", 4);
    page(&chunk, PARQUET_DICTIONARY_PAGE, 4, "\1\0\0\0", 4);
    expect_chunk(integers, &chunk, 1, "of the file: a second dictionary");
    page(&chunk, PARQUET_DICTIONARY_PAGE, 1, "\1", 1);
    expect_chunk(flag, &chunk, 1,
                 "'made.parquet', row 1, column 'n', byte 4 of the file: a dictionary of booleans");
    page(&chunk, PARQUET_DATA_PAGE, 1, "\1", 1);
    expect_chunk(maybe, &chunk, 1, "byte 4 of the file: it ends within its levels");
    page(&chunk, PARQUET_DATA_PAGE, 4, "\xff\0\0\0", 4);
    expect_chunk(maybe, &chunk, 1, "byte 4 of the file: it ends within its levels");
    page_v2(&chunk, 8, 4, false);
    expect_chunk(integers, &chunk, 1, "of the file: it has another length than its header says");
    page_v2(&chunk, 4, 0, true);
    expect_chunk(integers, &chunk, 1, "byte 4 of the file: it has no values");
    page(&chunk, PARQUET_DATA_PAGE, 4, "\1\0\0\0", 4);
    expect_chunk(integers, &chunk, 3, "of the file: its pages end before its values");
    page(&chunk, PARQUET_DATA_PAGE, 4, "\1\0\0\0", 4);
    chunk.text.bytes -= 1;
    expect_chunk(integers, &chunk, 1, "of the file: a page is longer than the column");
    assert_int_equal(tt_str_append(&chunk.text, "\xff\xff\xff", 3), TT_OK);
    expect_chunk(integers, &chunk, 1, "byte 4 of the file: the header of a page is damaged");
}

static void footers(void **state)
{
    (void)state;
    struct out chunk = {0};
    page(&chunk, PARQUET_DATA_PAGE, 4, "\1\0\0\0", 4);
    const struct column c[] = {{.type = PARQUET_INT32, .values = 1, .chunk = &chunk.text}};
    const struct element two[] = {integers[0], {"m", PARQUET_INT32, PARQUET_REQUIRED, 0, -1, 0}};
    expect_error(TT_ERR_DATA, "'made.parquet', row 1: the row group has 1 columns, the schema 2",
                 make(two, 2, 2, c, 1, 1));
    char message[100];
    struct tt_file_map file = make(integers, 1, 1, c, 1, 1);
    uint8_t *bytes = (uint8_t *)(uintptr_t)file.data;
    size_t footer = 4 + chunk.text.bytes; /* where it begins */
    bytes[footer] = 0xff;
    snprintf(message, sizeof message, "'made.parquet': the footer at byte %zu is damaged", footer);
    expect_error(TT_ERR_DATA, message, file);
    file = make(integers, 1, 1, c, 1, 1);
    bytes = (uint8_t *)(uintptr_t)file.data;
    bytes[file.bytes - 5] = 1; /* 16 MiB more */
    snprintf(message, sizeof message, "'made.parquet': the footer of %zu bytes is longer than the file",
             (1u << 24) + file.bytes - 8 - footer);
    expect_error(TT_ERR_DATA, message, file);
    tt_str_deinit(&chunk.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pages), cmocka_unit_test(footers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
