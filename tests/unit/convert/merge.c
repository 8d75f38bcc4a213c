/* Merging: the numbers against a plain product, whatever rank and shape; what is refused, and what is left
 * then. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "convert/merge.h"
#include "support/must.h"
#include "support/workplace.h"

#define GOLDEN TT_TEST_ROOT "/golden/"

static void write_tensors(const char *path, struct tt_safetensors_entry *entries, size_t count,
                          float *const *values)
{
    struct tt_str header = {0};
    uint64_t bytes;
    int descriptor;
    const char *names[8];
    for (size_t i = 0; i < count; i++) names[i] = entries[i].name;
    test_must(tt_safetensors_layout(entries, count, &header, &bytes));
    test_must(tt_file_create(path, bytes, &descriptor));
    test_must(tt_file_pwrite(descriptor, path, header.data, header.bytes, 0));
    for (size_t e = 0; e < count; e++)
        for (size_t i = 0; i < count; i++)
            if (names[i] == entries[e].name)
                test_must(tt_file_pwrite(descriptor, path, values[i], entries[e].bytes, entries[e].offset));
    test_must(tt_file_sync_close(descriptor, path));
    tt_str_deinit(&header);
}

/* Numbers between -1 and 1 that depend on the place alone. */
static float *make_values(int64_t count, uint32_t seed)
{
    float *values = calloc((size_t)count, sizeof *values);
    uint32_t state = seed;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)((double)(state >> 8) / 8388608.0 - 1.0);
    }
    return values;
}

/* tt_merge_run on a tensor of its own: shapes and ranks that no small model has, more rows than one chunk
 * holds, an A that is read in several pieces. */
static void check_product(struct test_workplace *place, int64_t rows, int64_t columns, int64_t r,
                          int64_t head_rows)
{
    char base_path[TEST_PATH_BYTES], adapter_path[TEST_PATH_BYTES], out_path[TEST_PATH_BYTES];
    float *values[] = {make_values(r * columns, 1), make_values(rows * r, 2)};
    float *w = make_values(rows * columns, 3), *out = calloc((size_t)(rows * columns), sizeof *out);
    struct tt_safetensors_entry ab[] = {{.name = "a", .dtype = TT_F32, .rank = 2, .dims = {r, columns}},
                                        {.name = "b", .dtype = TT_F32, .rank = 2, .dims = {rows, r}}};
    struct tt_safetensors_entry base[] = {{.name = "w", .dtype = TT_F32, .rank = 2, .dims = {rows, columns}}};
    struct tt_merge merge = {0};
    test_join(place->model, "model.safetensors", base_path);
    test_workplace_path(place, "adapter.safetensors", adapter_path);
    test_workplace_path(place, "out", out_path);
    write_tensors(base_path, base, 1, &w);
    write_tensors(adapter_path, ab, 2, values);
    test_must(tt_model_folder_open(place->model, true, &merge.folder));
    test_must(tt_safetensors_open(adapter_path, &merge.adapter));
    struct tt_merge_tensor tensor = {.name = "w",
                                     .base = tt_model_folder_find(merge.folder, "w"),
                                     .lora_A = tt_safetensors_find(merge.adapter, "a"),
                                     .lora_B = tt_safetensors_find(merge.adapter, "b"),
                                     .scaling = 0.5f,
                                     .r = r,
                                     .rows = rows,
                                     .columns = columns,
                                     .rank = 2};
    struct tt_merge_output output = {
        .tensor = &tensor, .dtype = TT_F32, .path = out_path, .head_rows = head_rows};
    test_must(tt_file_create(out_path, (uint64_t)(rows * columns) * sizeof *out, &output.descriptor));
    test_must(tt_merge_run(&merge, &output, 1, &(struct tt_merge_work){.threads = 3}));
    test_must(tt_file_sync_close(output.descriptor, out_path));
    int descriptor;
    uint64_t bytes;
    test_must(tt_file_open_read(out_path, &descriptor, &bytes));
    test_must(tt_file_pread(descriptor, out_path, out, (size_t)bytes, 0));
    tt_file_close(descriptor);
    double worst = 0, squares = 0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t half = head_rows / 2, at = head_rows > 0 ? i % head_rows : 0;
        int64_t to = head_rows > 0 ? i - at + 2 * (at % half) + at / half : i;
        for (int64_t j = 0; j<columns; j += columns> 100 ? 37 : 1) {
            double exact = 0;
            for (int64_t k = 0; k < r; k++)
                exact += (double)values[1][i * r + k] * values[0][k * columns + j];
            exact = w[i * columns + j] + 0.5 * exact;
            worst = fmax(worst, fabs(out[to * columns + j] - exact));
        }
        for (int64_t j = 0; j < columns; j++)
            squares += pow((double)out[to * columns + j] - w[i * columns + j], 2);
    }
    assert_true(worst <= 1e-6 * (double)r + 1e-6);
    assert_int_equal(output.change.count, rows * columns);
    assert_true(fabs(output.change.squares - squares) <= 1e-9 * squares);
    tt_safetensors_close(merge.adapter);
    tt_model_folder_close(merge.folder);
    free(values[0]);
    free(values[1]);
    free(w);
    free(out);
}

static void products(void **state)
{
    struct test_workplace place;
    (void)state;
    test_workplace_create("qwen2", &place);
    check_product(&place, 1, 1, 1, 0);
    check_product(&place, 7, 13, 3, 0);
    check_product(&place, 96, 33, 5, 32);
    check_product(&place, 2500, 1001, 2, 100); /* two chunks */
    check_product(&place, 40, 300000, 11, 0);  /* A in pieces of 6 rows */
    test_workplace_remove(&place);
}

static tt_status try_merge(const char *base, const char *adapter, const char *out, tt_dtype dtype,
                           struct tt_cancel *cancel)
{
    struct tt_merge merge;
    struct tt_merge_report report;
    struct tt_merge_options options = {
        .output_dir = out, .dtype = dtype, .work = {.threads = 2, .cancel = cancel}};
    TT_TRY(tt_merge_open(base, adapter, &merge));
    tt_status status = tt_merge_write(&merge, &options, &report);
    if (status == TT_OK) tt_merge_report_deinit(&report);
    tt_merge_close(&merge);
    return status;
}

static void any_allocation_may_fail(void **state)
{
    struct test_workplace place;
    char out[TEST_PATH_BYTES];
    tt_status status = TT_ERR_MEMORY;
    (void)state;
    test_workplace_create("qwen2", &place);
    test_workplace_path(&place, "merged", out);
    for (uint64_t nth = 1; status != TT_OK; nth += 1 + nth / 40) {
        uint64_t live = tt_alloc_live();
        tt_alloc_fail_at(nth);
        status = try_merge(place.model, GOLDEN "qwen2/variety", out, TT_DTYPE_NONE, NULL);
        tt_alloc_fail_at(0);
        assert_int_equal(tt_alloc_live(), live);
        if (status == TT_OK) break;
        if (status != TT_ERR_MEMORY) fail_msg("allocation %d: %s", (int)nth, tt_error_last()->message);
        assert_int_equal(test_count_entries(place.folder, "merged"), 0);
    }
    assert_int_equal(test_count_entries(place.folder, "merged"), 1);
    test_workplace_remove(&place);
}

static void a_stop_leaves_nothing(void **state)
{
    struct test_workplace place;
    struct tt_cancel cancel = {.requests = 1};
    char out[TEST_PATH_BYTES];
    (void)state;
    test_workplace_create("qwen2", &place);
    test_workplace_path(&place, "merged", out);
    assert_int_equal(try_merge(place.model, GOLDEN "qwen2/adapter_random", out, TT_F32, &cancel),
                     TT_ERR_CANCELLED);
    assert_int_equal(test_count_entries(place.folder, "merged"), 0);
    test_workplace_remove(&place);
}

/* What a crash has left is cleared away; the old folder is there until the new one is. */
static void after_a_crash(void **state)
{
    struct test_workplace place;
    char out[TEST_PATH_BYTES], left[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    (void)state;
    test_workplace_create("qwen2", &place);
    test_workplace_path(&place, "merged", out);
    test_workplace_path(&place, "merged.merging", left);
    test_must(tt_dir_create(left));
    test_workplace_write(&place, "merged.merging/model.safetensors", "half of it", path);
    test_must(try_merge(place.model, GOLDEN "qwen2/adapter_random", out, TT_F32, NULL));
    assert_int_equal(test_count_entries(place.folder, "merged"), 1);
    assert_int_equal(try_merge(place.model, GOLDEN "qwen2/adapter_random", out, TT_F32, NULL), TT_ERR_USAGE);
    test_workplace_remove(&place);
}

/* 70000 is a float and no float16: in a tensor that the adapter leaves alone, and in one that it changes. */
static void too_large_for_float16(void **state)
{
    static const char *const names[] = {"model.norm.weight", "model.layers.0.self_attn.q_proj.weight"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct test_workplace place;
        struct tt_model_folder *folder;
        char out[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
        const float large = 70000.0f;
        int descriptor;
        test_workplace_create("qwen2", &place);
        test_workplace_path(&place, "merged", out);
        test_must(tt_model_folder_open(place.model, true, &folder));
        uint64_t offset = tt_model_folder_find(folder, names[i])->offset;
        tt_model_folder_close(folder);
        test_join(place.model, "model.safetensors", path);
        test_must(tt_file_open_write(path, &descriptor));
        test_must(tt_file_pwrite(descriptor, path, &large, sizeof large, offset));
        test_must(tt_file_sync_close(descriptor, path));
        assert_int_equal(try_merge(place.model, GOLDEN "qwen2/adapter_random", out, TT_F16, NULL),
                         TT_ERR_DATA);
        assert_non_null(strstr(tt_error_last()->message, names[i]));
        assert_int_equal(test_count_entries(place.folder, "merged"), 0);
        test_workplace_remove(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(a_stop_leaves_nothing),
        cmocka_unit_test(after_a_crash),
        cmocka_unit_test(too_large_for_float16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
