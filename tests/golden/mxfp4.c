/* Folders with tensors in MXFP4 (io/mxfp4.h): the numbers are those of transformers bit for bit, from any place on;
 * what does not fit together is refused. References: mxfp4/make_mxfp4.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/model_folder.h"
#include "support/allocations.h"
#include "support/must.h"
#include "support/root.h"

#define GOLDEN TT_TEST_ROOT "/golden/mxfp4/"
#define NAME "model.layers.0.mlp.experts.gate_up_proj"
enum { EXPERTS = 2, ROWS = 26, COLUMNS = 160, COUNT = EXPERTS * ROWS * COLUMNS };

static void numbers_are_those_of_transformers(void **state)
{
    static uint16_t wanted[COUNT], got[COUNT];
    static float single[COUNT];
    struct tt_model_folder *folder;
    struct tt_safetensors *reference;
    (void)state;
    test_must(tt_model_folder_open(GOLDEN "model", true, &folder));
    test_must(tt_safetensors_open(GOLDEN "reference.safetensors", &reference));
    test_must(
        tt_safetensors_read(reference, tt_safetensors_find(reference, NAME), 0, COUNT, wanted, TT_BF16));
    assert_int_equal(tt_model_folder_tensor_count(folder), 1);
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, NAME "_blocks");
    assert_non_null(entry);
    assert_int_equal(entry->dtype, TT_BF16);
    assert_string_equal(entry->dtype_name, "BF16");
    assert_int_equal(entry->rank, 3);
    assert_int_equal(entry->dims[0], EXPERTS);
    assert_int_equal(entry->dims[1], ROWS);
    assert_int_equal(entry->dims[2], COLUMNS);
    assert_int_equal(entry->bytes, 2 * COUNT);
    assert_null(tt_model_folder_find(folder, NAME "_scales"));
    test_must(tt_model_folder_read(folder, entry, 0, COUNT, got, TT_BF16));
    for (int i = 0; i < COUNT; i++)
        if (got[i] != wanted[i]) fail_msg("number %d is %04x, wanted %04x", i, got[i], wanted[i]);
    static const int places[][2] = {{0, 1}, {1, 1}, {31, 2}, {33, 31}, {5, 300}, {COUNT - 1, 1}, {COUNT, 0}};
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
        int first = places[p][0], count = places[p][1];
        memset(got, 0xee, sizeof got);
        test_must(tt_model_folder_read(folder, entry, first, count, got, TT_BF16));
        assert_memory_equal(got, wanted + first, (size_t)count * 2);
        assert_int_equal(got[count], 0xeeee);
    }
    test_must(tt_model_folder_read(folder, entry, 0, COUNT, single, TT_F32));
    for (int i = 0; i < COUNT; i++) {
        uint32_t bits;
        memcpy(&bits, &single[i], sizeof bits);
        if (bits != (uint32_t)wanted[i] << 16) fail_msg("number %d is %08x", i, bits);
    }
    tt_safetensors_close(reference);
    tt_model_folder_close(folder);
}

/* More numbers than are read at once. */
static void long_tensors(void **state)
{
    enum { GROUPS = 5000, NUMBERS = 32 * GROUPS };
    static uint16_t whole[NUMBERS], part[NUMBERS];
    struct tt_safetensors_entry entries[] = {
        {.name = "a_blocks", .dtype = TT_U8, .rank = 2, .dims = {GROUPS, 16}},
        {.name = "a_scales", .dtype = TT_U8, .rank = 1, .dims = {GROUPS}},
    };
    struct tt_str file = {0};
    struct tt_model_folder *folder;
    uint64_t bytes;
    (void)state;
    test_must(tt_safetensors_layout(entries, 2, &file, &bytes));
    for (int i = 0; i < 17 * GROUPS; i++) test_must(tt_str_append_char(&file, (char)(i * 37 % 251)));
    test_must(tt_file_write_atomic(test_at("model.safetensors"), file.data, file.bytes));
    test_must(tt_file_write_atomic(test_at("config.json"), "{}", 2));
    tt_str_deinit(&file);
    test_must(tt_model_folder_open(test_root(), true, &folder));
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, "a_blocks");
    test_must(tt_model_folder_read(folder, entry, 0, NUMBERS, whole, TT_BF16));
    for (int first = 7, count; first < NUMBERS; first += count) {
        count = first + 70001 < NUMBERS ? 70001 : NUMBERS - first;
        test_must(tt_model_folder_read(folder, entry, first, count, part, TT_BF16));
        assert_memory_equal(part, whole + first, (size_t)count * 2);
    }
    tt_model_folder_close(folder);
}

static tt_status count_pieces(void *context, const struct tt_source_piece *piece)
{
    (void)piece;
    ++*(int *)context;
    return TT_OK;
}

/* Rows in turn, as gpt-oss has those of gate and up; nothing is written in MXFP4. */
static void joined_from_decoded_rows(void **state)
{
    static uint16_t wanted[COUNT], got[COUNT];
    static const char blocks[] = "layers.#.mlp.experts.gate_up_proj_blocks";
    const struct tt_param_sources sources = {
        .path = "model",
        .rows = {{.param = "layers.#.mlp.experts.gate_up_proj",
                  .parts = {{.tensor = blocks, .units = 2, .unit = 0, .unit_rows = 1},
                            {.tensor = blocks, .units = 2, .unit = 1, .unit_rows = 1}}}}};
    struct tt_model_folder *folder;
    struct tt_safetensors *reference;
    int pieces = 0;
    bool joined;
    (void)state;
    test_must(tt_model_folder_open(GOLDEN "model", true, &folder));
    test_must(tt_model_folder_join(folder, &sources));
    test_must(tt_safetensors_open(GOLDEN "reference.safetensors", &reference));
    test_must(
        tt_safetensors_read(reference, tt_safetensors_find(reference, NAME), 0, COUNT, wanted, TT_BF16));
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, NAME);
    assert_non_null(entry);
    test_must(tt_model_folder_read(folder, entry, 0, COUNT, got, TT_BF16));
    for (int row = 0; row < EXPERTS * ROWS; row++) {
        int expert = row / ROWS, place = (int)tt_interleaved_row(row % ROWS, ROWS, 2);
        assert_memory_equal(got + row * COLUMNS, wanted + (expert * ROWS + place) * COLUMNS, COLUMNS * 2);
    }
    assert_int_equal(tt_model_folder_pieces(folder, NAME, count_pieces, &pieces, &joined),
                     TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_error_last()->message, "is in MXFP4, which is read and not written"));
    assert_int_equal(pieces, 0);
    tt_safetensors_close(reference);
    tt_model_folder_close(folder);
}

static void refuse(const char *codes, const char *scales, int rank, int64_t rows, const char *message)
{
    struct tt_safetensors_entry entries[] = {
        {.name = codes, .dtype = TT_U8, .rank = 3, .dims = {2, 3, 16}},
        {.name = scales, .dtype = TT_U8, .rank = rank, .dims = {rows, rank > 1 ? 3 : 0}},
    };
    struct tt_str file = {0};
    struct tt_model_folder *folder = NULL;
    uint64_t bytes, live = tt_alloc_live();
    test_must(tt_safetensors_layout(entries, 2, &file, &bytes));
    while (file.bytes < bytes) test_must(tt_str_append_char(&file, 1));
    test_must(tt_file_write_atomic(test_at("model.safetensors"), file.data, file.bytes));
    test_must(tt_file_write_atomic(test_at("config.json"), "{}", 2));
    tt_str_deinit(&file);
    assert_int_equal(tt_model_folder_open(test_root(), true, &folder), TT_ERR_DATA);
    if (strstr(tt_error_last()->message, message) == NULL) fail_msg("%s", tt_error_last()->message);
    assert_int_equal(tt_alloc_live(), live);
}

static void what_does_not_fit_is_refused(void **state)
{
    char codes[300];
    (void)state;
    memset(codes, 'a', sizeof codes);
    memcpy(codes + sizeof codes - 8, "_blocks", 8);
    refuse(codes, "z_scales", 2, 2, "_blocks' is longer than 256 bytes");
    refuse("a_blocks", "b_scales", 2, 2, "has 'a_blocks' and lacks 'a_scales'");
    refuse("a_blocks", "a_scales", 2, 4,
           "'a_scales' has another type or shape than the scales of 'a_blocks'");
    refuse("a_blocks", "a_scales", 1, 6,
           "'a_scales' has another type or shape than the scales of 'a_blocks'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_transformers),
        cmocka_unit_test(joined_from_decoded_rows),
        cmocka_unit_test_setup_teardown(long_tensors, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused, test_root_create, test_root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
