/* Numbers quantized by columns: the bits of plain code that transposes and quantizes by rows. */
#include <math.h>
#include <string.h>

#include "backend/ops/gemm_scaled.h"
#include "ops/isa.h"
#include "tensor/e4m3.h"

struct turn_case {
    int64_t rows, cols;
};

static const struct turn_case cases[] = {{16, 16},  {48, 16},    {16, 80},  {144, 112},
                                         {528, 64}, {1040, 208}, {64, 1024}};
static const struct turn_case gpu_cases[] = {{4096, 4096}, {14336, 4096}, {4096, 14336}, {1024, 8192}};

enum { ZEROS = 3, INFINITE = 5, NOT_A_NUMBER = 9 }; /* columns */

/* Columns of sizes from 1e-28 to 1e20, and values halfway between two codes among them. */
static void fill(const struct test_tensor *x)
{
    static const float sizes[] = {0.02f, 1e-5f, 1e20f, 1e-28f, 3};
    enum { KINDS = sizeof sizes / sizeof *sizes };
    int64_t rows = x->view.dims[0], cols = x->view.dims[1];
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            uint32_t mixed = (uint32_t)(r * 2654435761u + c * 40503u) * 2246822519u;
            float value = ((float)(mixed >> 8) / (1 << 23) - 1) * sizes[c % KINDS];
            if (mixed % 5 == 0) value = (float)((int)(mixed >> 8 & 31) - 15) * 0.0625f * sizes[c % KINDS];
            if (c == ZEROS) value = r % 2 == 0 ? 0.0f : -0.0f;
            if (c == INFINITE && r == 7) value = -INFINITY;
            if (c == NOT_A_NUMBER && r == 2) value = NAN;
            if (x->view.dtype == TT_F32)
                ((float *)x->view.data)[r * cols + c] = value;
            else
                ((uint16_t *)x->view.data)[r * cols + c] = tt_f32_to_bf16(value);
        }
    }
}

static float number(const struct test_tensor *x, int64_t at)
{
    return x->view.dtype == TT_F32 ? ((const float *)x->view.data)[at]
                                   : tt_bf16_to_f32(((const uint16_t *)x->view.data)[at]);
}

static void expect(const struct test_tensor *x, const struct test_tensor *codes,
                   const struct test_tensor *scale)
{
    int64_t rows = x->view.dims[0], cols = x->view.dims[1];
    const uint8_t *to = codes->view.data;
    for (int64_t c = 0; c < cols; c++) {
        float largest = 0, made = ((const float *)scale->view.data)[c];
        if (c == NOT_A_NUMBER) {
            assert_true(isnan(made));
            continue;
        }
        for (int64_t r = 0; r < rows; r++) largest = fmaxf(largest, fabsf(number(x, r * cols + c)));
        float expected = tt_e4m3_scale(largest);
        if (memcmp(&expected, &made, sizeof made) != 0)
            fail_msg("the scale of column %lld is %g, not %g", (long long)c, (double)made, (double)expected);
        for (int64_t r = 0; r < rows; r++) {
            float value = number(x, r * cols + c);
            uint8_t code = tt_e4m3_from_f32(value / expected);
            if (isinf(value)) code = (uint8_t)(code & 0x7f), assert_int_equal(code, TT_E4M3_NAN);
            if (to[c * rows + r] != code && !(isinf(value) && (to[c * rows + r] & 0x7f) == code))
                fail_msg("row %lld, column %lld: %g with scale %g is %02x, not %02x", (long long)r,
                         (long long)c, (double)value, (double)expected, to[c * rows + r], code);
        }
    }
}

static void run_type(struct test_device *device, const struct turn_case *row, tt_dtype dtype)
{
    struct test_tensor x = test_tensor_make(dtype, row->rows, row->cols, TEST_UNUSED, 0);
    struct test_tensor codes = test_tensor_make(TT_F8_E4M3, row->cols, row->rows, TEST_UNUSED, 0);
    struct test_tensor scale = test_tensor_make(TT_F32, row->cols, TEST_UNUSED, TEST_UNUSED, 0);
    fill(&x);
    test_tensor_poison(&codes);
    test_tensor_poison(&scale);
    TEST_TO_DEVICE(device, &x, &codes, &scale);
    struct tt_quantize_columns_args args = {.x_MK = x.view, .codes_KM = codes.view, .scale_K = scale.view};
    test_ok(tt_quantize_columns(device->stream, &args));
    TEST_TO_HOST(device, &x, &codes, &scale);
    expect(&x, &codes, &scale);
    test_tensor_check_gaps("codes", &codes);
    test_tensor_check_gaps("scale", &scale);
    test_tensor_free(&x);
    test_tensor_free(&codes);
    test_tensor_free(&scale);
}

static void run(struct test_device *device, int threads, void *context)
{
    (void)threads;
    run_type(device, context, TT_F32);
    run_type(device, context, TT_BF16);
}

static void codes_are_those_of_plain_code(void **state)
{
    (void)state;
    TEST_ISA_CASES("quantize_columns", cases, run);
    if (test_sizes_wanted()) TEST_ISA_CASES("quantize_columns", gpu_cases, run);
}

static void wrong_arguments_are_refused(void **state)
{
    struct test_tensor x = test_tensor_make(TT_F32, 32, 48, TEST_UNUSED, 0),
                       codes = test_tensor_make(TT_F8_E4M3, 48, 32, TEST_UNUSED, 0),
                       scale = test_tensor_make(TT_F32, 48, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_device device;
    (void)state;
    TEST_CPU_ONLY();
    fill(&x);
    test_device_open(&device, "cpu", 1);
    const struct tt_quantize_columns_args good = {x.view, codes.view, scale.view};
    test_ok(tt_quantize_columns(device.stream, &good));
    struct tt_quantize_columns_args args = good;
    args.scale_K = tt_tensor_1d(scale.view.data, TT_F32, 32);
    test_refused(tt_quantize_columns(device.stream, &args), TT_ERR_INTERNAL, "its scale");
    args = good;
    args.codes_KM = tt_tensor_2d(codes.view.data, TT_F8_E4M3, 48, 16);
    test_refused(tt_quantize_columns(device.stream, &args), TT_ERR_INTERNAL, "codes is [48, 16]");
    args = good;
    args.x_MK = tt_tensor_2d(x.view.data, TT_F32, 32, 40);
    test_refused(tt_quantize_columns(device.stream, &args), TT_ERR_INTERNAL, "not multiples of 16");
    args = good;
    args.x_MK = tt_tensor_2d((float *)x.view.data + 1, TT_F32, 16, 48);
    args.codes_KM = tt_tensor_2d(codes.view.data, TT_F8_E4M3, 48, 16);
    test_refused(tt_quantize_columns(device.stream, &args), TT_ERR_INTERNAL,
                 "x does not lie at a multiple of 16 bytes");
    args = good;
    args.codes_KM = tt_tensor_2d(x.view.data, TT_F8_E4M3, 48, 32);
    test_refused(tt_quantize_columns(device.stream, &args), TT_ERR_INTERNAL, "codes");
    test_device_close(&device);
    test_tensor_free(&x);
    test_tensor_free(&codes);
    test_tensor_free(&scale);
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
