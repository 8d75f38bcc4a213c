/* io/zip.h: every refusal of an archive that is damaged in one place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "io/zip.h"
#include "support/root.h"

/* Two stored members of one byte, "a" and "b", with a directory of two entries and its end. */
enum {
    LOCAL = 30 + 1 + 1,
    ENTRY = 46 + 1,
    DIRECTORY = 2 * LOCAL,
    END = DIRECTORY + 2 * ENTRY,
    BYTES = END + 22
};

static void put(uint8_t *at, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static void make_archive(uint8_t file[BYTES])
{
    memset(file, 0, BYTES);
    for (int i = 0; i < 2; i++) {
        uint8_t *local = file + (size_t)i * LOCAL, *entry = file + DIRECTORY + (size_t)i * ENTRY;
        memcpy(local, "PK\3\4", 4);
        put(local + 26, 2, 1);
        local[30] = (uint8_t)('a' + i);
        memcpy(entry, "PK\1\2", 4);
        put(entry + 20, 4, 1);
        put(entry + 24, 4, 1);
        put(entry + 28, 2, 1);
        put(entry + 42, 4, (uint64_t)i * LOCAL);
        entry[46] = (uint8_t)('a' + i);
    }
    memcpy(file + END, "PK\5\6", 4);
    put(file + END + 10, 2, 2);
    put(file + END + 12, 4, 2 * ENTRY);
    put(file + END + 16, 4, DIRECTORY);
}

/* Reads the archive and locates its first member. */
static tt_status read_bytes(const uint8_t *data, size_t bytes)
{
    struct tt_zip zip;
    uint64_t offset = 0;
    const char *path = test_at("x.zip");
    int descriptor = -1;
    uint64_t file_bytes;
    assert_int_equal(tt_file_write_atomic(path, data, bytes), TT_OK);
    assert_int_equal(tt_file_open_read(path, &descriptor, &file_bytes), TT_OK);
    tt_status status = tt_zip_read(descriptor, path, file_bytes, &zip);
    if (status == TT_OK) {
        status = tt_zip_locate(&zip, tt_zip_find(&zip, "a"), &offset);
        if (status == TT_OK) assert_int_equal(offset, 31);
        tt_zip_deinit(&zip);
    }
    tt_file_close(descriptor);
    return status;
}

static int failed;

static void expect(const uint8_t *data, size_t bytes, tt_status expected, const char *message)
{
    tt_status status = read_bytes(data, bytes);
    const char *said = status == TT_OK ? "nothing" : tt_error_last()->message;
    if (status == expected && strstr(said, message) != NULL) return;
    print_error("%s, not %s\n", said, message);
    failed++;
}

static void one_place(void **state)
{
    (void)state;
    static const struct {
        int offset, bytes;
        uint64_t value;
        tt_status status;
        const char *message;
    } rows[] = {
        {END, 1, 'X', TT_ERR_DATA, "x.zip' is a ZIP archive without a directory at its end"},
        {END + 20, 2, 1, TT_ERR_DATA, "is a ZIP archive without a directory at its end"},
        {END + 16, 4, BYTES + 1, TT_ERR_DATA, "is a ZIP archive whose directory is beyond its end"},
        {END + 12, 4, BYTES, TT_ERR_DATA, "is a ZIP archive whose directory is beyond its end"},
        {END + 10, 2, 3, TT_ERR_DATA, "is a ZIP archive with a damaged directory"},
        {END + 12, 4, 2 * ENTRY - 1, TT_ERR_DATA, "is a ZIP archive with a damaged directory"},
        {DIRECTORY, 1, 'X', TT_ERR_DATA, "is a ZIP archive with a damaged directory"},
        {DIRECTORY + ENTRY, 1, 'X', TT_ERR_DATA, "is a ZIP archive with a damaged directory"},
        {DIRECTORY + ENTRY + 28, 2, 2, TT_ERR_DATA, "is a ZIP archive with a damaged directory"},
        {DIRECTORY + ENTRY + 30, 2, 1, TT_ERR_DATA, "is a ZIP archive with a damaged directory"},
        {DIRECTORY + ENTRY + 32, 2, 1, TT_ERR_DATA, "is a ZIP archive with a damaged directory"},
        {DIRECTORY + ENTRY + 46, 1, 0, TT_ERR_DATA, "x.zip': the name of member 1 holds a NUL"},
        {DIRECTORY + ENTRY + 46, 1, 'a', TT_ERR_DATA, "x.zip' has two members 'a'"},
        {DIRECTORY + 8, 2, 1, TT_ERR_UNSUPPORTED, "x.zip': the member 'a' is encrypted"},
        {DIRECTORY + 10, 2, 8, TT_ERR_UNSUPPORTED, "x.zip': the member 'a' is compressed"},
        {DIRECTORY + 20, 4, 2, TT_ERR_UNSUPPORTED, "x.zip': the member 'a' is compressed"},
        {DIRECTORY + 42, 4, DIRECTORY - 29, TT_ERR_DATA, "x.zip': the member 'a' begins beyond the data"},
        {DIRECTORY + 42, 4, DIRECTORY + 1, TT_ERR_DATA, "x.zip': the member 'a' begins beyond the data"},
        {0, 1, 'X', TT_ERR_DATA, "x.zip': the member 'a' of 1 bytes is truncated"},
        {28, 2, 2 * LOCAL, TT_ERR_DATA, "x.zip': the member 'a' of 1 bytes is truncated"},
        {DIRECTORY + 4, 2, 45, TT_OK, "nothing"}, /* a version, which nobody reads */
    };
    uint8_t file[BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_archive(file);
        put(file + rows[i].offset, rows[i].bytes, rows[i].value);
        expect(file, BYTES, rows[i].status, rows[i].message);
    }
    make_archive(file);
    expect(file, 21, TT_ERR_DATA, "x.zip' is a ZIP archive without a directory");
    expect(file, BYTES - 1, TT_ERR_DATA, "x.zip' is a ZIP archive without a directory at its end");
    assert_int_equal(failed, 0);
}

/* The record and the locator of ZIP64 are between the directory and its end. */
static void zip64(void **state)
{
    (void)state;
    enum { RECORD = END, LOCATOR = RECORD + 56, END_OF_64 = LOCATOR + 20, BYTES_OF_64 = END_OF_64 + 22 };
    static const struct {
        int offset, bytes;
        uint64_t value;
        tt_status status;
        const char *message;
    } rows[] = {
        {0, 0, 0, TT_OK, "nothing"},
        {LOCATOR + 8, 8, RECORD + 1, TT_ERR_DATA, "is a ZIP archive whose ZIP64 record is beyond its end"},
        {LOCATOR + 8, 8, UINT64_MAX, TT_ERR_DATA, "is a ZIP archive whose ZIP64 record is beyond its end"},
        {RECORD, 1, 'X', TT_ERR_DATA, "is a ZIP archive whose ZIP64 record is damaged"},
        {RECORD + 48, 8, UINT64_MAX, TT_ERR_DATA, "is a ZIP archive whose directory is beyond its end"},
        {RECORD + 32, 8, UINT64_MAX / 46 + 2, TT_ERR_DATA, "is a ZIP archive with a damaged directory"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t file[BYTES_OF_64] = {0}, plain[BYTES];
        make_archive(plain);
        memcpy(file, plain, END);
        memcpy(file + RECORD, "PK\6\6", 4);
        put(file + RECORD + 32, 8, 2);
        put(file + RECORD + 40, 8, 2 * ENTRY);
        put(file + RECORD + 48, 8, DIRECTORY);
        memcpy(file + LOCATOR, "PK\6\7", 4);
        put(file + LOCATOR + 8, 8, RECORD);
        memcpy(file + END_OF_64, "PK\5\6", 4);
        memset(file + END_OF_64 + 10, 0xff, 10);
        put(file + rows[i].offset, rows[i].bytes, rows[i].value);
        expect(file, BYTES_OF_64, rows[i].status, rows[i].message);
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_place), cmocka_unit_test(zip64)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
