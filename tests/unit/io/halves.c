/* The halves of an adapter of twice the rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "io/halves.h"
#include "support/must.h"
#include "support/words.h"

enum { R = 2, IN = 5, OUT = 3000 };
static float a[2 * R * IN], b[OUT * 2 * R], norm[IN];

/* A file with A of 2 R rows, B with `columns` of its own, and another tensor. */
static void write(const char *path, int64_t columns)
{
    struct tt_safetensors_entry entries[] = {
        {.name = "x.lora_A.weight", .dtype = TT_F32, .rank = 2, .dims = {2 * R, IN}},
        {.name = "x.lora_B.weight", .dtype = TT_F32, .rank = 2, .dims = {OUT, columns}},
        {.name = "x.norm.weight", .dtype = TT_F32, .rank = 1, .dims = {IN}},
    };
    struct tt_str header = {0};
    uint64_t bytes;
    int file;
    test_must(tt_safetensors_layout(entries, 3, &header, &bytes));
    test_must(tt_file_create(path, bytes, &file));
    test_must(tt_file_pwrite(file, path, header.data, header.bytes, 0));
    for (int e = 0; e < 3; e++) {
        bool is_a = strstr(entries[e].name, "_A") != NULL, is_b = strstr(entries[e].name, "_B") != NULL;
        test_must(tt_file_pwrite(file, path,
                                 is_a   ? a
                                 : is_b ? b
                                        : norm,
                                 entries[e].bytes, entries[e].offset));
    }
    test_must(tt_file_sync_close(file, path));
    tt_str_deinit(&header);
}

static void read_half(struct tt_safetensors *file, int half)
{
    static float got[OUT * R];
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, "x.lora_A.weight");
    assert_true(entry->dims[0] == R && entry->dims[1] == IN);
    test_must(tt_safetensors_read(file, entry, 0, R * IN, got, TT_F32));
    for (int i = 0; i < R * IN; i++) assert_true(got[i] == a[half * R * IN + i]);
    entry = tt_safetensors_find(file, "x.lora_B.weight");
    assert_true(entry->dims[0] == OUT && entry->dims[1] == R);
    static const int64_t ranges[][2] = {{0, OUT * R}, {1, 1}, {3, 4}, {R * 2047 + 1, 500}, {OUT * R - 1, 1}};
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
        int64_t first = ranges[k][0], count = ranges[k][1];
        test_must(tt_safetensors_read(file, entry, first, count, got, TT_F32));
        for (int64_t i = 0; i < count; i++)
            assert_true(got[i] == b[(first + i) / R * 2 * R + half * R + (first + i) % R]);
    }
}

static void halves_have_their_rows_and_columns(void **state)
{
    char path[512];
    char *folder = test_folder_create();
    (void)state;
    for (int i = 0; i < 2 * R * IN; i++) a[i] = (float)i;
    for (int i = 0; i < OUT * 2 * R; i++) b[i] = (float)(1000 + i);
    (void)snprintf(path, sizeof path, "%s/adapter.safetensors", folder);
    write(path, 2 * R);
    for (int half = 0; half < 2; half++) {
        struct tt_safetensors *file = NULL;
        test_must(tt_safetensors_open(path, &file));
        test_must(tt_halves_show(half, &file));
        assert_int_equal(tt_safetensors_count(file), half == TT_HALF_TRAINED ? 3 : 2);
        assert_true((tt_safetensors_find(file, "x.norm.weight") != NULL) == (half == TT_HALF_TRAINED));
        read_half(file, half);
        tt_safetensors_close(file);
    }
    test_folder_remove(folder);
}

static void an_odd_rank_is_refused(void **state)
{
    char path[512];
    char *folder = test_folder_create();
    struct tt_safetensors *file = NULL;
    (void)state;
    (void)snprintf(path, sizeof path, "%s/adapter.safetensors", folder);
    write(path, 3);
    test_must(tt_safetensors_open(path, &file));
    assert_int_equal(tt_halves_show(TT_HALF_FIRST, &file), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "'x.lora_B.weight' is no matrix of twice the rank"));
    tt_safetensors_close(file);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_have_their_rows_and_columns),
        cmocka_unit_test(an_odd_rank_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
