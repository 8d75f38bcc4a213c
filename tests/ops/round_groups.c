/* Rows rounded to E4M3 and back in groups of columns: the bits of plain code, for any width, place and stride. */
#include "backend/ops/round_groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/isa.h"
#include "tensor/e4m3.h"
#include "tensor/quant.h"

struct round_case {
    tt_dtype dtype;
    int64_t rows, cols, gap;
    bool by_powers, in_place;
};

static const struct round_case cases[] = {
    {TT_BF16, 5, 128, 0, false, false}, {TT_BF16, 5, 256, 0, true, false},  {TT_F32, 5, 256, 0, false, false},
    {TT_F32, 3, 384, 4, true, true},    {TT_BF16, 7, 144, 0, false, false}, {TT_BF16, 7, 144, 8, true, true},
    {TT_F32, 4, 132, 0, false, false},  {TT_BF16, 4, 131, 0, false, false}, {TT_F32, 4, 257, 3, true, false},
    {TT_BF16, 33, 48, 0, false, false}, {TT_BF16, 2, 1, 0, false, true},    {TT_F32, 1, 127, 1, false, false},
    {TT_BF16, 17, 1032, 3, false, true}};
static const struct round_case gpu_cases[] = {{TT_BF16, 4096, 4096, 0, false, false},
                                              {TT_BF16, 1000, 14336, 64, true, false},
                                              {TT_F32, 777, 5120, 0, false, true},
                                              {TT_BF16, 999, 4099, 0, false, false}};

static float round_to(float value, tt_dtype dtype)
{
    return dtype == TT_BF16 ? tt_bf16_to_f32(tt_f32_to_bf16(value)) : value;
}

/* Groups of all sizes, some of them zeros, some with numbers on the border of two codes. */
static void fill(const struct test_tensor *x)
{
    static const float sizes[] = {1, 3e-4f, 700, 1e-38f, 0, 1e30f, 0.02f};
    enum { KINDS = sizeof sizes / sizeof *sizes };
    int64_t rows = x->view.dims[0], cols = x->view.dims[1];
    double *values = test_tensor_values(x);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double *value = &values[r * cols + c];
            double size = sizes[(r + c / TT_FP8_BLOCK) % KINDS];
            *value *= size;
            if (c % TT_FP8_BLOCK == 0 && r % 3 == 0) *value = 448 * size;
            if (c % 5 == 1 && r % 3 == 0) *value = (17 + 2 * (c % 7)) * size / 16;
        }
    test_tensor_set(x, values);
    free(values);
}

/* The same, written from the definition. */
static void expect(const double *x, int64_t rows, int64_t cols, tt_dtype dtype, bool by_powers, double *y)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t first = 0; first < cols; first += 128) {
            const double *from = x + r * cols + first;
            int64_t count = cols - first < 128 ? cols - first : 128;
            float largest = 0x1p-100f;
            for (int64_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf((float)from[i]));
            float scale = largest / 448.0f;
            if (by_powers) {
                int exponent;
                float fraction = frexpf(scale, &exponent);
                scale = ldexpf(1, fraction == 0.5f ? exponent - 1 : exponent);
            }
            for (int64_t i = 0; i < count; i++) {
                float rounded = tt_e4m3_to_f32(tt_e4m3_from_f32((float)from[i] / scale)) * scale;
                y[r * cols + first + i] = round_to(rounded, dtype);
            }
        }
}

static void run(struct test_device *device, int threads, void *context)
{
    const struct round_case *row = context;
    struct test_tensor x = test_tensor_random(row->dtype, row->rows, row->cols, TEST_UNUSED, row->gap, 11, 1);
    struct test_tensor y = test_tensor_make(row->dtype, row->rows, row->cols, TEST_UNUSED, row->gap);
    double *wanted = test_doubles(row->rows * row->cols);
    (void)threads;
    fill(&x);
    double *values = test_tensor_values(&x);
    expect(values, row->rows, row->cols, row->dtype, row->by_powers, wanted);
    test_tensor_poison(&y);
    TEST_TO_DEVICE(device, &x, &y);
    struct tt_round_groups_args args = {
        .x_MK = x.view, .by_powers = row->by_powers, .y_MK = row->in_place ? x.view : y.view};
    test_ok(tt_round_groups(device->stream, &args));
    TEST_TO_HOST(device, &x, &y);
    const struct test_tensor *result = row->in_place ? &x : &y;
    double *got = test_tensor_values(result);
    for (int64_t i = 0; i < row->rows * row->cols; i++)
        if (got[i] != wanted[i])
            fail_msg("[%lld, %lld]: %a of %a, not %a", (long long)(i / row->cols), (long long)(i % row->cols),
                     got[i], values[i], wanted[i]);
    test_tensor_check_gaps("result", result);
    free(got);
    free(wanted);
    free(values);
    test_tensor_free(&x);
    test_tensor_free(&y);
}

static void the_bits_of_plain_code(void **state)
{
    (void)state;
    TEST_ISA_CASES("round_groups", cases, run);
    if (test_sizes_wanted()) TEST_ISA_CASES("round_groups", gpu_cases, run);
}

/* One infinity or NaN makes its group NaN, and no other. */
static void run_not_finite(struct test_device *device, int threads, void *context)
{
    const struct round_case *row = context;
    struct test_tensor x = test_tensor_random(row->dtype, 3, 300, TEST_UNUSED, 0, 3, 1);
    struct test_tensor y = test_tensor_make(row->dtype, 3, 300, TEST_UNUSED, 0);
    (void)threads;
    double *values = test_tensor_values(&x);
    values[130] = INFINITY;
    values[300 + 299] = NAN;
    test_tensor_set(&x, values);
    TEST_TO_DEVICE(device, &x, &y);
    struct tt_round_groups_args args = {.x_MK = x.view, .by_powers = row->by_powers, .y_MK = y.view};
    test_ok(tt_round_groups(device->stream, &args));
    TEST_TO_HOST(device, &x, &y);
    double *got = test_tensor_values(&y);
    for (int i = 0; i < 900; i++) {
        bool bad = (i >= 128 && i < 256) || (i >= 300 + 256 && i < 600);
        if (isnan(got[i]) != bad) fail_msg("%d is %g", i, got[i]);
    }
    free(got);
    free(values);
    test_tensor_free(&x);
    test_tensor_free(&y);
}

static void what_is_not_finite_spoils_its_group(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct round_case row = {.dtype = i % 2 == 0 ? TT_BF16 : TT_F32, .by_powers = i >= 2};
        test_on_each_isa(run_not_finite, &row);
    }
}

static void wrong_arguments_are_refused(void **state)
{
    struct test_tensor x = test_tensor_make(TT_F32, 4, 64, TEST_UNUSED, 0),
                       y = test_tensor_make(TT_F32, 4, 64, TEST_UNUSED, 0);
    struct test_device device;
    (void)state;
    TEST_CPU_ONLY();
    memset(x.view.data, 0, 4 * 64 * sizeof(float));
    test_device_open(&device, "cpu", 1);
    const struct tt_round_groups_args good = {.x_MK = x.view, .y_MK = y.view};
    test_ok(tt_round_groups(device.stream, &good));
    struct tt_round_groups_args args = good;
    args.y_MK = tt_tensor_2d(y.view.data, TT_F32, 4, 63);
    test_refused(tt_round_groups(device.stream, &args), TT_ERR_INTERNAL, "y");
    args.y_MK = tt_tensor_2d(y.view.data, TT_BF16, 4, 64);
    test_refused(tt_round_groups(device.stream, &args), TT_ERR_INTERNAL, "y");
    args.y_MK = tt_tensor_2d((float *)x.view.data + 64, TT_F32, 3, 64);
    args.x_MK = tt_tensor_2d(x.view.data, TT_F32, 3, 64);
    test_refused(tt_round_groups(device.stream, &args), TT_ERR_INTERNAL, "y");
    args = good;
    args.x_MK.dtype = args.y_MK.dtype = TT_F16;
    test_refused(tt_round_groups(device.stream, &args), TT_ERR_UNSUPPORTED, "x");
    test_device_close(&device);
    test_tensor_free(&x);
    test_tensor_free(&y);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_of_plain_code),
        cmocka_unit_test(what_is_not_finite_spoils_its_group),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
