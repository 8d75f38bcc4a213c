/* data/unpack.h: gzip and Zstandard files give the rows of the plain file; members and frames in a row, files that are
 * cut or damaged at any byte, files that grow beyond all bounds, and a full disk are errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <zlib.h>
#include <zstd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/rows.h"
#include "data/unpack.h"
#include "support/root.h"

static void append_gzip(struct tt_str *out, const void *data, size_t bytes)
{
    z_stream z = {0};
    uint8_t buffer[4096];
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)bytes;
    int result = Z_OK;
    while (result != Z_STREAM_END) {
        z.next_out = buffer;
        z.avail_out = sizeof buffer;
        result = deflate(&z, Z_FINISH);
        assert_true(result == Z_OK || result == Z_STREAM_END);
        assert_int_equal(tt_str_append(out, (char *)buffer, sizeof buffer - z.avail_out), TT_OK);
    }
    deflateEnd(&z);
}

static void append_zstd(struct tt_str *out, const void *data, size_t bytes)
{
    size_t room = ZSTD_compressBound(bytes);
    char *buffer = tt_alloc_aligned(room);
    assert_non_null(buffer);
    size_t used = ZSTD_compress(buffer, room, data, bytes, 3);
    assert_false(ZSTD_isError(used));
    assert_int_equal(tt_str_append(out, buffer, used), TT_OK);
    tt_free(buffer);
}

typedef void appender(struct tt_str *out, const void *data, size_t bytes);
static const struct {
    const char *name;
    appender *append;
} kinds[] = {{"rows.jsonl.gz", append_gzip}, {"rows.jsonl.zst", append_zstd}};

static const struct tt_unpack_limits no_limits;

static void put(const char *name, const struct tt_str *data)
{
    assert_int_equal(tt_file_write_atomic(test_at(name), data->data, data->bytes), TT_OK);
}

static void expect_rows(const char *name, size_t count, const char *last)
{
    struct tt_rows rows = {0};
    if (tt_rows_open(test_at(name), &no_limits, &rows) != TT_OK) fail_msg("%s", tt_error_last()->message);
    assert_int_equal(rows.count, count);
    assert_int_equal(rows.spans[count - 1].bytes, strlen(last));
    assert_memory_equal(rows.spans[count - 1].data, last, strlen(last));
    tt_rows_close(&rows);
}

static void expect_error(const char *name, tt_status status, const char *part)
{
    struct tt_rows rows = {0};
    assert_int_equal(tt_rows_open(test_at(name), &no_limits, &rows), status);
    if (strstr(tt_error_last()->message, part) == NULL || strstr(tt_error_last()->message, name) == NULL)
        fail_msg("'%s' is not in '%s'", part, tt_error_last()->message);
}

static void rows_are_the_same(void **state)
{
    (void)state;
    struct tt_str plain = {0};
    for (int i = 0; i < 40000; i++)
        assert_int_equal(tt_str_printf(&plain, "{\"text\": \"row %d of many\"}\n", i * 7919 % 40000), TT_OK);
    assert_true(plain.bytes > 1 << 20);
    for (size_t k = 0; k < 2; k++) {
        struct tt_str packed = {0};
        kinds[k].append(&packed, plain.data, plain.bytes);
        put(kinds[k].name, &packed);
        expect_rows(kinds[k].name, 40000, "{\"text\": \"row 32081 of many\"}");
        put("plain-name.jsonl", &packed); /* known by its first bytes */
        expect_rows("plain-name.jsonl", 40000, "{\"text\": \"row 32081 of many\"}");
        kinds[k].append(&packed, "{\"text\": \"more\"}\n", 17);
        kinds[k].append(&packed, "", 0);
        kinds[k].append(&packed, "{\"text\": \"last\"}", 16);
        if (k == 0) assert_int_equal(tt_str_append_fill(&packed, 0, 100), TT_OK);
        put(kinds[k].name, &packed);
        expect_rows(kinds[k].name, 40002, "{\"text\": \"last\"}");
        tt_str_deinit(&packed);
    }
    tt_str_deinit(&plain);
}

static void cut_and_damaged_files(void **state)
{
    (void)state;
    static const char text[] = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
    for (size_t k = 0; k < 2; k++) {
        struct tt_str packed = {0};
        kinds[k].append(&packed, text, sizeof text - 1);
        size_t whole = packed.bytes;
        for (size_t bytes = 4; bytes < whole; bytes++) {
            struct tt_str cut = {.data = packed.data, .bytes = bytes};
            put(kinds[k].name, &cut);
            expect_error(kinds[k].name, TT_ERR_DATA,
                         k == 0 ? "' cannot be unpacked: it ends within compressed data, before byte "
                                : "cannot be unpacked: ");
        }
        struct tt_str almost = {.data = packed.data, .bytes = whole - 1};
        put(kinds[k].name, &almost);
        if (k == 1)
            expect_error(kinds[k].name, TT_ERR_DATA,
                         "' cannot be unpacked: it ends within a frame, before byte ");
        put("rows.parquet.gz", &packed);
        expect_error("rows.parquet.gz", TT_ERR_UNSUPPORTED, "and .parquet");
        packed.data[whole - 6] = (char)(packed.data[whole - 6] ^ 0x55);
        put(kinds[k].name, &packed);
        if (k == 0) expect_error(kinds[k].name, TT_ERR_DATA, "cannot be unpacked"); /* its checksum */
        packed.data[whole - 6] = (char)(packed.data[whole - 6] ^ 0x55);
        assert_int_equal(tt_str_append_text(&packed, "garbage"), TT_OK);
        put(kinds[k].name, &packed);
        expect_error(kinds[k].name, TT_ERR_DATA, "cannot be unpacked");
        tt_str_deinit(&packed);
    }
}

static void open_with(const char *name, uint64_t bytes, tt_status status)
{
    const struct tt_unpack_limits limits = {.bytes = bytes};
    struct tt_rows rows = {0};
    assert_int_equal(tt_rows_open(test_at(name), &limits, &rows), status);
    tt_rows_close(&rows);
}

/* 3 GiB of blank lines in a few hundred KiB are given up at the limit; 100 MiB of rows that are alike, 9,000 times the
 * bytes of the file, are read where there is no limit but the disk. */
static void the_size_is_limited(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    static char lines[MIB];
    struct tt_str mib = {0}, packed = {0};
    memset(lines, '\n', sizeof lines);
    append_zstd(&mib, lines, sizeof lines);
    for (int i = 0; i < 3 << 10; i++) assert_int_equal(tt_str_append(&packed, mib.data, mib.bytes), TT_OK);
    put("bomb.jsonl.zst", &packed);
    open_with("bomb.jsonl.zst", 64 * MIB, TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "bomb.jsonl.zst' unpacks to more than 64.0 MiB"));
    assert_non_null(strstr(tt_error_last()->hint, "max_unpacked_size"));
    tt_str_clear(&packed);
    memset(lines, 'x', sizeof lines);
    memcpy(lines, "{\"text\": \"", 10);
    memcpy(lines + MIB - 3, "\"}\n", 3);
    tt_str_clear(&mib);
    append_zstd(&mib, lines, sizeof lines);
    for (int i = 0; i < 100; i++) assert_int_equal(tt_str_append(&packed, mib.data, mib.bytes), TT_OK);
    assert_true(packed.bytes < (size_t)100 * MIB / 1000);
    put("alike.jsonl.zst", &packed);
    open_with("alike.jsonl.zst", 0, TT_OK);
    open_with("alike.jsonl.zst", 100 * MIB, TT_OK);
    open_with("alike.jsonl.zst", 100 * MIB - 1, TT_ERR_DATA);
    tt_str_deinit(&mib);
    tt_str_deinit(&packed);
}

/* Rows of Parquet that are alike, here 8,000,000 of {"n": null}, take no bytes of the file. */
static void equal_rows_of_parquet(void **state)
{
    (void)state;
    static const uint8_t file[] = {
        0x50, 0x41, 0x52, 0x31, 0x15, 0x00, 0x15, 0x12, 0x15, 0x12, 0x2c, 0x15, 0x80, 0xc8, 0xd0,
        0x07, 0x15, 0x00, 0x15, 0x06, 0x15, 0x06, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x80, 0xc8,
        0xd0, 0x07, 0x00, 0x15, 0x02, 0x19, 0x2c, 0x48, 0x01, 0x73, 0x15, 0x02, 0x00, 0x15, 0x02,
        0x25, 0x02, 0x18, 0x01, 0x6e, 0x00, 0x16, 0x80, 0xc8, 0xd0, 0x07, 0x19, 0x1c, 0x19, 0x1c,
        0x26, 0x08, 0x1c, 0x15, 0x02, 0x19, 0x15, 0x00, 0x19, 0x18, 0x01, 0x6e, 0x15, 0x00, 0x16,
        0x80, 0xc8, 0xd0, 0x07, 0x16, 0x3a, 0x16, 0x3a, 0x26, 0x08, 0x00, 0x00, 0x16, 0x3a, 0x16,
        0x80, 0xc8, 0xd0, 0x07, 0x00, 0x00, 0x3f, 0x00, 0x00, 0x00, 0x50, 0x41, 0x52, 0x31};
    struct tt_file_map map = {0};
    struct tt_unpack_limits limits = {0};
    bool packed;
    assert_int_equal(tt_file_write_atomic(test_at("alike.parquet"), (const char *)file, sizeof file), TT_OK);
    assert_int_equal(tt_unpack_map(test_at("alike.parquet"), &limits, &map, &packed), TT_OK);
    assert_true(packed && map.bytes == (uint64_t)8000000 * strlen("{\"n\": null}\n"));
    tt_file_map_close(&map);
    limits.bytes = 8000000;
    assert_int_equal(tt_unpack_map(test_at("alike.parquet"), &limits, &map, &packed), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "the rows have more than 7.6"));
    assert_non_null(strstr(tt_error_last()->hint, "max_unpacked_size"));
}

static void a_full_disk(void **state)
{
    (void)state;
    struct tt_str packed = {0};
    append_gzip(&packed, "{\"text\": \"one\"}\n", 16);
    put("rows.jsonl.gz", &packed);
    tt_file_fail_at(1, 28 /* ENOSPC */, false);
    struct tt_rows rows = {0};
    assert_int_equal(tt_rows_open(test_at("rows.jsonl.gz"), &no_limits, &rows), TT_ERR_IO);
    assert_non_null(strstr(tt_error_last()->message, "the unpacked file"));
    tt_file_fail_at(0, 0, false);
    setenv("TMPDIR", test_at("missing"), 1);
    assert_int_not_equal(tt_rows_open(test_at("rows.jsonl.gz"), &no_limits, &rows), TT_OK);
    assert_non_null(strstr(tt_error_last()->message, "no temporary file can be made"));
    unsetenv("TMPDIR");
    tt_str_deinit(&packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_same),   cmocka_unit_test(cut_and_damaged_files),
        cmocka_unit_test(the_size_is_limited), cmocka_unit_test(equal_rows_of_parquet),
        cmocka_unit_test(a_full_disk),
    };
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
