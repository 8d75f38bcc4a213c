/* Codes of a transposed matrix: the bits of plain code that decodes, transposes and quantizes by rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops/gemm_scaled.h"
#include "ops/isa.h"
#include "tensor/e4m3.h"

struct turn_case {
    int64_t rows, cols, matrices; /* rows of one matrix; 0 matrices: one */
};

static const struct turn_case cases[] = {{16, 16, 0},   {48, 16, 0},  {16, 80, 0},
                                         {144, 112, 0}, {528, 64, 0}, {1040, 208, 0},
                                         {64, 1024, 0}, {16, 48, 3},  {80, 64, 5}};
static const struct turn_case gpu_cases[] = {
    {4096, 4096, 0}, {14336, 4096, 0}, {4096, 14336, 0}, {1024, 8192, 0}, {1536, 2048, 7}};

/* Codes of all values but NaN, rows of zeros, scales from 1e-30 to 1e4. */
static void fill(const struct test_tensor *codes, const struct test_tensor *scale)
{
    static const float sizes[] = {0.01f, 1e-4f, 3, 1e-30f, 1e4f, 0.02f, 0.03f};
    enum { KINDS = sizeof sizes / sizeof *sizes };
    int64_t rows = codes->view.dims[0], cols = codes->view.dims[1];
    uint8_t *code = codes->view.data;
    for (int64_t r = 0; r < rows; r++) {
        ((float *)scale->view.data)[r] = sizes[r % KINDS] * (1 + (float)(r % 13) / 13);
        for (int64_t c = 0; c < cols; c++) {
            uint32_t mixed = (uint32_t)(r * 2654435761u + c * 40503u) >> 5;
            code[r * cols + c] = (uint8_t)(r % 11 == 5 || c == 3 ? 0 : (mixed % 127) | (mixed & 0x80));
        }
    }
}

static void expect(const struct test_tensor *codes, const struct test_tensor *scale,
                   const struct test_tensor *transposed, const struct test_tensor *transposed_scale,
                   int64_t rows, int64_t matrix)
{
    int64_t cols = codes->view.dims[1];
    const uint8_t *from = (const uint8_t *)codes->view.data + matrix * rows * cols,
                  *to = (const uint8_t *)transposed->view.data + matrix * rows * cols;
    const float *row_scale = (const float *)scale->view.data + matrix * rows,
                *col_scale = (const float *)transposed_scale->view.data + matrix * cols;
    for (int64_t c = 0; c < cols; c++) {
        float largest = 0;
        for (int64_t r = 0; r < rows; r++)
            largest = fmaxf(largest, fabsf(tt_e4m3_to_f32(from[r * cols + c]) * row_scale[r]));
        float expected = tt_e4m3_scale(largest);
        if (memcmp(&expected, &col_scale[c], sizeof expected) != 0)
            fail_msg("the scale of column %lld is %g, not %g", (long long)c, (double)col_scale[c],
                     (double)expected);
        for (int64_t r = 0; r < rows; r++) {
            float value = tt_e4m3_to_f32(from[r * cols + c]) * row_scale[r];
            uint8_t code = tt_e4m3_from_f32(value / expected);
            if (to[c * rows + r] != code)
                fail_msg("row %lld, column %lld: %g with scale %g is %02x, not %02x", (long long)r,
                         (long long)c, (double)value, (double)expected, to[c * rows + r], code);
        }
    }
}

static void run(struct test_device *device, int threads, void *context)
{
    const struct turn_case *row = context;
    int64_t count = row->matrices > 0 ? row->matrices : 1;
    struct test_tensor codes = test_tensor_make(TT_F8_E4M3, count * row->rows, row->cols, TEST_UNUSED, 0);
    struct test_tensor scale = test_tensor_make(TT_F32, count * row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_tensor transposed =
        test_tensor_make(TT_F8_E4M3, count * row->cols, row->rows, TEST_UNUSED, 0);
    struct test_tensor transposed_scale =
        test_tensor_make(TT_F32, count * row->cols, TEST_UNUSED, TEST_UNUSED, 0);
    (void)threads;
    fill(&codes, &scale);
    test_tensor_poison(&transposed);
    test_tensor_poison(&transposed_scale);
    TEST_TO_DEVICE(device, &codes, &scale, &transposed, &transposed_scale);
    struct tt_transpose_codes_args args = {.codes_NK = codes.view,
                                           .scale_N = scale.view,
                                           .transposed_KN = transposed.view,
                                           .transposed_scale_K = transposed_scale.view,
                                           .matrices = row->matrices};
    test_ok(tt_transpose_codes(device->stream, &args));
    TEST_TO_HOST(device, &codes, &scale, &transposed, &transposed_scale);
    for (int64_t i = 0; i < count; i++) expect(&codes, &scale, &transposed, &transposed_scale, row->rows, i);
    test_tensor_check_gaps("transposed", &transposed);
    test_tensor_check_gaps("scale", &transposed_scale);
    test_tensor_free(&codes);
    test_tensor_free(&scale);
    test_tensor_free(&transposed);
    test_tensor_free(&transposed_scale);
}

static void codes_are_those_of_plain_code(void **state)
{
    (void)state;
    TEST_ISA_CASES("transpose_codes", cases, run);
    if (test_sizes_wanted()) TEST_ISA_CASES("transpose_codes", gpu_cases, run);
}

static void wrong_arguments_are_refused(void **state)
{
    struct test_tensor codes = test_tensor_make(TT_F8_E4M3, 32, 48, TEST_UNUSED, 0),
                       transposed = test_tensor_make(TT_F8_E4M3, 48, 32, TEST_UNUSED, 0),
                       scale = test_tensor_make(TT_F32, 48, TEST_UNUSED, TEST_UNUSED, 0),
                       other = test_tensor_make(TT_F32, 48, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_device device;
    (void)state;
    TEST_CPU_ONLY();
    test_device_open(&device, "cpu", 1);
    tt_tensor narrow = tt_tensor_1d(other.view.data, TT_F32, 32);
    const struct tt_transpose_codes_args good = {codes.view, narrow, transposed.view, scale.view, 1};
    test_ok(tt_transpose_codes(device.stream, &good));
    struct tt_transpose_codes_args args = good;
    args.scale_N = scale.view;
    test_refused(tt_transpose_codes(device.stream, &args), TT_ERR_INTERNAL, "its scale");
    args = good;
    args.transposed_KN = tt_tensor_2d(transposed.view.data, TT_F8_E4M3, 48, 16);
    test_refused(tt_transpose_codes(device.stream, &args), TT_ERR_INTERNAL, "transposed is [48, 16]");
    args = good;
    args.codes_NK = tt_tensor_2d(codes.view.data, TT_F8_E4M3, 32, 40);
    test_refused(tt_transpose_codes(device.stream, &args), TT_ERR_INTERNAL, "not multiples of 16");
    args = good;
    args.matrices = 5;
    test_refused(tt_transpose_codes(device.stream, &args), TT_ERR_INTERNAL,
                 "rows do not divide into 5 matrices");
    args = good;
    args.transposed_KN = tt_tensor_2d(codes.view.data, TT_F8_E4M3, 48, 32);
    test_refused(tt_transpose_codes(device.stream, &args), TT_ERR_INTERNAL, "transposed");
    test_device_close(&device);
    test_tensor_free(&codes);
    test_tensor_free(&transposed);
    test_tensor_free(&scale);
    test_tensor_free(&other);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_those_of_plain_code),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
