/* Parquet and Arrow files that are cut, or have any byte changed, end in an error or in rows, never beyond memory;
 * sizes are bounded; failed allocations lose nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/arrow/arrow.h"
#include "data/arrow/flat.h"
#include "data/parquet/parquet.h"

static const struct tt_parquet_limits small = {
    .row_bytes = 1 << 16, .total_bytes = 1 << 20, .page_bytes = 1 << 20};
static const char *const files[] = {"chat-snappy",        "chat-zstd-v2",       "chat-gzip-pages",
                                    "chat-lz4-plain",     "chat-deltas",        "types-split",
                                    "types-snappy",       "types-plain-v2",     "numbers-int96",
                                    "chat-batches.arrow", "kinds-stream.arrow", "kinds-file.arrow"};
enum { FILES = sizeof files / sizeof *files };

static tt_status keep(void *context, const char *data, size_t bytes)
{
    return context != NULL ? tt_str_append(context, data, bytes) : TT_OK;
}

static tt_status fail_put(void *context, const char *data, size_t bytes)
{
    (void)context, (void)data, (void)bytes;
    return tt_fail(TT_ERR_IO, "no room");
}

/* A copy that ends where its memory ends, so that a sanitizer sees reads beyond it. */
static struct tt_file_map load(const char *name)
{
    char path[300];
    struct tt_file_map file, copy;
    snprintf(path, sizeof path, "%s/golden/parquet/%s%s", TT_TEST_ROOT, name,
             strchr(name, '.') == NULL ? ".parquet" : "");
    assert_int_equal(tt_file_map_open(path, &file), TT_OK);
    copy.bytes = file.bytes;
    copy.data = memcpy(malloc(file.bytes), file.data, file.bytes);
    tt_file_map_close(&file);
    return copy;
}

typedef tt_status reader(const char *path, const struct tt_file_map *file,
                         const struct tt_parquet_limits *limits,
                         tt_status (*put)(void *context, const char *data, size_t bytes), void *context);

static reader *reader_of(const char *name)
{
    return strchr(name, '.') != NULL ? tt_arrow_read : tt_parquet_read;
}

static void cut_files(void **state)
{
    (void)state;
    size_t whole_streams = 0;
    for (size_t i = 0; i < FILES; i++) {
        struct tt_file_map whole = load(files[i]);
        for (uint64_t bytes = 0; bytes < whole.bytes;
             bytes += bytes < 64 || whole.bytes - bytes < 100 ? 1 : 211) {
            struct tt_file_map cut = {memcpy(malloc(bytes + (bytes == 0)), whole.data, bytes), bytes};
            tt_status status = reader_of(files[i])("cut.parquet", &cut, &small, keep, NULL);
            bool parquet = reader_of(files[i]) == tt_parquet_read;
            /* A stream may end behind any message, with or without the mark of its end. */
            if (!parquet && status == TT_OK) {
                whole_streams++;
                free((void *)(uintptr_t)cut.data);
                continue;
            }
            assert_int_equal(status, TT_ERR_DATA);
            assert_non_null(strstr(tt_error_last()->message, "cut.parquet"));
            if (bytes >= 4 && parquet) assert_non_null(strstr(tt_error_last()->message, "is cut"));
            free((void *)(uintptr_t)cut.data);
        }
        free((void *)(uintptr_t)whole.data);
    }
    assert_true(whole_streams < 400);
}

static void changed_bytes(void **state)
{
    (void)state;
    size_t refused = 0, tried = 0;
    for (size_t i = 0; i < FILES; i++) {
        struct tt_file_map file = load(files[i]);
        uint8_t *data = (uint8_t *)(uintptr_t)file.data;
        for (uint64_t at = 0; at < file.bytes; at += 17 + at % 3) {
            uint8_t old = data[at], change[] = {0xff, 0x01, 0x80};
            data[at] = old ^ change[at % 3];
            tt_status status = reader_of(files[i])("changed.parquet", &file, &small, keep, NULL);
            data[at] = old;
            tried++;
            if (status == TT_OK) continue;
            refused++;
            assert_true(status == TT_ERR_DATA || status == TT_ERR_UNSUPPORTED);
            assert_non_null(strstr(tt_error_last()->message, "changed.parquet"));
        }
        free((void *)(uintptr_t)file.data);
    }
    assert_true(refused > tried / 10);
}

/* The pages of this file have checksums: no byte of them can change unseen. */
/* The batch of a stream whose first message is its schema: where vector `field` of it begins in the file. */
static size_t find_in_batch(struct tt_file_map file, int field, size_t *count)
{
    int32_t bytes;
    memcpy(&bytes, file.data + 4, sizeof bytes);
    size_t at = 8 + (size_t)bytes, begin;
    memcpy(&bytes, file.data + at + 4, sizeof bytes);
    struct flat message = flat_root(file.data + at + 8, (size_t)bytes);
    assert_int_equal(flat_integer(message, 1, 1, 0), 3);
    *count = flat_vector(flat_table(message, 2), field, 16, &begin);
    assert_true(*count > 20);
    return at + 8 + begin;
}

/* Lengths of columns and of their buffers that do not fit each other. */
static void lengths_of_batches(void **state)
{
    (void)state;
    enum { NODES = 1, BUFFERS };
    struct tt_file_map file = load("kinds-stream.arrow");
    uint8_t *data = (uint8_t *)(uintptr_t)file.data;
    size_t count, start = find_in_batch(file, BUFFERS, &count), accepted = 0;
    for (size_t i = 0; i < count; i++) {
        uint8_t *length = data + start + 16 * i + 8;
        uint64_t old, none = 0;
        memcpy(&old, length, 8);
        memcpy(length, &none, 8);
        tt_status status = tt_arrow_read("x", &file, &small, keep, NULL);
        memcpy(length, &old, 8);
        if ((status == TT_OK) != (old == 0)) fail_msg("buffer %zu of %llu bytes", i, (unsigned long long)old);
        uint64_t beyond = file.bytes;
        memcpy(length, &beyond, 8);
        assert_int_equal(tt_arrow_read("x", &file, &small, keep, NULL), TT_ERR_DATA);
        memcpy(length, &old, 8);
    }
    start = find_in_batch(file, NODES, &count);
    for (size_t i = 0; i < count; i++) {
        uint64_t old, more, less = 0;
        memcpy(&old, data + start + 16 * i, 8);
        more = old + 1000;
        memcpy(data + start + 16 * i, &more, 8);
        accepted += tt_arrow_read("x", &file, &small, keep, NULL) == TT_OK;
        memcpy(data + start + 16 * i, &less, 8);
        if (tt_arrow_read("x", &file, &small, keep, NULL) == TT_OK) fail_msg("column %zu without values", i);
        memcpy(data + start + 16 * i, &old, 8);
    }
    assert_int_equal(accepted, 1); /* the column of nulls has no buffers */
    free(data);
}

static void checksums(void **state)
{
    (void)state;
    struct tt_file_map file = load("chat-none-v2-pages");
    uint8_t *data = (uint8_t *)(uintptr_t)file.data;
    struct tt_str rows = {0}, changed = {0};
    assert_int_equal(tt_parquet_read("x", &file, &small, keep, &rows), TT_OK);
    size_t sums = 0;
    for (uint64_t at = 4; at < file.bytes / 2; at += 67) {
        data[at] ^= 0x02;
        tt_str_clear(&changed);
        tt_status status = tt_parquet_read("x", &file, &small, keep, &changed);
        if (status == TT_OK) assert_string_equal(rows.data, changed.data);
        sums += status != TT_OK && strstr(tt_error_last()->message, "the checksum of a page differs") != NULL;
        data[at] ^= 0x02;
    }
    assert_true(sums > 15);
    tt_str_deinit(&rows);
    tt_str_deinit(&changed);
    free((void *)(uintptr_t)file.data);
}

static void expect_limit(struct tt_parquet_limits limits, const char *part)
{
    struct tt_file_map file = load("chat-zstd-v2");
    assert_int_equal(tt_parquet_read("x.parquet", &file, &limits, keep, NULL), TT_ERR_DATA);
    if (strstr(tt_error_last()->message, part) == NULL) fail_msg("%s", tt_error_last()->message);
    free((void *)(uintptr_t)file.data);
}

static void limits(void **state)
{
    (void)state;
    struct tt_parquet_limits l = small;
    l.row_bytes = 500;
    expect_limit(l, "'x.parquet', row 4 is longer than max_row_size (500)");
    l = small;
    l.total_bytes = 1000;
    expect_limit(l, "the rows have more than 1000");
    l = small;
    l.page_bytes = 100;
    expect_limit(l, "a page is larger than the limit");
    struct tt_file_map file = load("chat-snappy");
    assert_int_equal(tt_parquet_read("x", &file, &small, fail_put, NULL), TT_ERR_IO);
    free((void *)(uintptr_t)file.data);
}

static void allocations(void **state)
{
    (void)state;
    for (size_t i = 0; i < FILES; i++) {
        struct tt_file_map file = load(files[i]);
        uint64_t live = tt_alloc_live(), start = tt_alloc_count();
        assert_int_equal(reader_of(files[i])("x", &file, &small, keep, NULL), TT_OK);
        uint64_t count = tt_alloc_count() - start;
        assert_int_equal(tt_alloc_live(), live);
        for (uint64_t nth = 1; nth <= count; nth += 1 + nth / 4) {
            tt_alloc_fail_at(nth);
            assert_int_equal(reader_of(files[i])("x", &file, &small, keep, NULL), TT_ERR_MEMORY);
            assert_int_equal(tt_alloc_live(), live);
        }
        tt_alloc_fail_at(0);
        free((void *)(uintptr_t)file.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_files), cmocka_unit_test(changed_bytes), cmocka_unit_test(lengths_of_batches),
        cmocka_unit_test(checksums), cmocka_unit_test(limits),        cmocka_unit_test(allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
