/* The gated norm that makes the rows of its result in FP8 too: the values are those of the norm alone, codes and scales
 * those of quantizing them, bit for bit. */
#include "backend/ops/gated_norm.h"
#include "ops/coded_rows.h"
#include "ops/isa.h"

struct gated_case {
    int64_t rows, groups, width, gap;
    tt_dtype dtype, weight_dtype;
    enum tt_gate gate;
    bool gate_first, shared, rstd;
};

/* On a GPU one kernel makes values and codes where a thread block holds a row: up to 1024 threads with a vector each,
 * 512 with two, 256 with four. */
static const struct gated_case cases[] = {
    {9, 16, 128, 0, TT_BF16, TT_F32, TT_GATE_SILU, false, true, true},    /* Qwen3.5-0.8B, 256 threads */
    {9, 32, 128, 64, TT_BF16, TT_BF16, TT_GATE_SILU, false, true, false}, /* -9B, 512 */
    {8, 48, 128, 0, TT_BF16, TT_F32, TT_GATE_SILU, false, true, true},    /* -27B, 768 */
    {8, 64, 128, 0, TT_BF16, TT_F32, TT_GATE_SILU, false, true, true},    /* all 1024 */
    {8, 66, 128, 0, TT_BF16, TT_F32, TT_GATE_SILU, false, true, true},    /* more */
    {10, 3, 64, 8, TT_BF16, TT_F32, TT_GATE_SIGMOID, false, false, true}, /* a part of a warp */
    {10, 5, 128, 0, TT_BF16, TT_BF16, TT_GATE_SIGMOID, true, true, true}, /* and of the third one */
    {8, 1, 256, 0, TT_BF16, TT_F32, TT_GATE_SILU, true, false, true},
    {9, 8, 512, 4096, TT_BF16, TT_BF16, TT_GATE_SILU, true, false, true}, /* Nemotron-H: two vectors */
    {8, 18, 512, 0, TT_BF16, TT_BF16, TT_GATE_SILU, true, false, true},   /* too many of them */
    {8, 8, 1024, 0, TT_BF16, TT_F32, TT_GATE_SILU, true, false, true},    /* four */
    {8, 9, 1024, 0, TT_BF16, TT_F32, TT_GATE_SILU, true, false, true},
    {9, 4, 128, 0, TT_F32, TT_F32, TT_GATE_SILU, false, true, true},
    {9, 4, 32, 4, TT_F32, TT_BF16, TT_GATE_SILU, true, false, true},
    {8, 3, 33, 5, TT_BF16, TT_BF16, TT_GATE_SILU, false, true, true}, /* no whole vectors */
    {8, 2, 128, 3, TT_BF16, TT_F32, TT_GATE_SILU, false, true, true},
    {5, 6, 1, 0, TT_F32, TT_F32, TT_GATE_SILU, false, false, false},
    {0, 16, 128, 0, TT_BF16, TT_F32, TT_GATE_SILU, false, true, true},
};

static const struct gated_case gpu_cases[] = {
    {4099, 32, 128, 0, TT_BF16, TT_F32, TT_GATE_SILU, false, true, true},
    {2051, 8, 512, 4096, TT_BF16, TT_BF16, TT_GATE_SILU, true, false, true},
};

enum { X, Z, WEIGHT, Y_APART, RSTD_APART, Y, RSTD, CODES, SCALE, TENSORS };

static struct test_tensor make_tensor(const struct gated_case *row, int i)
{
    int64_t columns = row->groups * row->width;
    if (i == WEIGHT)
        return test_tensor_random(row->weight_dtype, row->shared ? row->width : columns, TEST_UNUSED,
                                  TEST_UNUSED, 0, 1, 1);
    if (i == RSTD || i == RSTD_APART) return test_tensor_make(TT_F32, row->rows, row->groups, TEST_UNUSED, 0);
    if (i == SCALE) return test_tensor_make(TT_F32, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    if (i == CODES) return test_tensor_make(TT_F8_E4M3, row->rows, columns, TEST_UNUSED, 0);
    return test_tensor_random(row->dtype, row->rows, columns, TEST_UNUSED, row->gap, (uint64_t)i + 3, 1);
}

static void make_tensors(const struct gated_case *row, struct test_tensor *t)
{
    for (int i = 0; i < TENSORS; i++) {
        t[i] = make_tensor(row, i);
        if (i == X || i == Z) fill_operand_rows(&t[i]);
        if (i > WEIGHT) test_tensor_poison(&t[i]);
    }
}

static struct tt_gated_norm_forward_args args_of(const struct gated_case *row, const struct test_tensor *t,
                                                 int y)
{
    return (struct tt_gated_norm_forward_args){.x_TN = t[X].view,
                                               .z_TN = t[Z].view,
                                               .weight_N = t[WEIGHT].view,
                                               .groups = row->groups,
                                               .eps = 1e-6,
                                               .gate = row->gate,
                                               .gate_first = row->gate_first,
                                               .y_TN = t[y].view,
                                               .rstd_TG = row->rstd ? t[y + 1].view : (tt_tensor){0}};
}

static void run(struct test_device *device, int threads, void *context)
{
    const struct gated_case *row = context;
    struct test_tensor t[TENSORS];
    (void)threads;
    make_tensors(row, t);
    test_array_to_device(device, t, TENSORS);
    struct tt_gated_norm_forward_args args = args_of(row, t, Y_APART);
    test_ok(tt_gated_norm_forward(device->stream, &args));
    args = args_of(row, t, Y);
    args.codes_TN = t[CODES].view, args.scale_T = t[SCALE].view;
    test_ok(tt_gated_norm_forward(device->stream, &args));
    test_array_to_host(device, t, TENSORS);
    expect_equal("y", &t[Y], &t[Y_APART]);
    if (row->rstd) expect_equal("rstd", &t[RSTD], &t[RSTD_APART]);
    double *y = test_tensor_values(&t[Y]);
    expect_rows("y", y, &t[CODES], &t[SCALE]);
    free(y);
    test_array_check_gaps(NULL, t, TENSORS);
    test_array_free(t, TENSORS);
}

static void rows_are_those_of_quantizing(void **state)
{
    (void)state;
    TEST_ISA_CASES("gated_norm, rows in fp8", cases, run);
    if (test_sizes_wanted()) TEST_ISA_CASES("gated_norm, rows in fp8", gpu_cases, run);
}

/* y in place of x, as passes without a backward one call it, and of the gate. */
static void in_place(void **state)
{
    (void)state;
    for (int other = X; other <= Z; other++) {
        const struct gated_case row = {9, 16, 128, 0, TT_BF16, TT_F32, TT_GATE_SILU, false, true, true};
        struct test_tensor t[TENSORS];
        struct test_device device;
        make_tensors(&row, t);
        test_device_open(&device, test_device_kind(), 1);
        test_array_to_device(&device, t, TENSORS);
        struct tt_gated_norm_forward_args args = args_of(&row, t, Y_APART);
        test_ok(tt_gated_norm_forward(device.stream, &args));
        args.y_TN = t[other].view;
        args.codes_TN = t[CODES].view, args.scale_T = t[SCALE].view;
        test_ok(tt_gated_norm_forward(device.stream, &args));
        test_array_to_host(&device, t, TENSORS);
        expect_equal("y in place", &t[other], &t[Y_APART]);
        double *y = test_tensor_values(&t[Y_APART]);
        expect_rows("y in place", y, &t[CODES], &t[SCALE]);
        free(y);
        test_device_close(&device);
        test_array_free(t, TENSORS);
    }
}

static void rows_on_inputs_are_refused(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    static float memory[4][256];
    struct test_device device;
    test_device_open(&device, "cpu", 1);
    struct tt_gated_norm_forward_args good = {.x_TN = tt_tensor_2d(memory[0], TT_F32, 4, 16),
                                              .z_TN = tt_tensor_2d(memory[1], TT_F32, 4, 16),
                                              .weight_N = tt_tensor_1d(memory[2], TT_F32, 8),
                                              .groups = 2,
                                              .y_TN = tt_tensor_2d(memory[0], TT_F32, 4, 16),
                                              .codes_TN = tt_tensor_2d(memory[3], TT_F8_E4M3, 4, 16),
                                              .scale_T = tt_tensor_1d(&memory[3][64], TT_F32, 4)};
    test_ok(tt_gated_norm_forward(device.stream, &good));
    struct tt_gated_norm_forward_args bad = good;
    bad.codes_TN.data = memory[1];
    test_refused(tt_gated_norm_forward(device.stream, &bad), TT_ERR_INTERNAL, "overlap");
    bad = good;
    bad.scale_T.data = memory[0];
    test_refused(tt_gated_norm_forward(device.stream, &bad), TT_ERR_INTERNAL, "overlap");
    test_device_close(&device);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_quantizing),
        cmocka_unit_test(in_place),
        cmocka_unit_test(rows_on_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
