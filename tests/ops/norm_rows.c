/* RMSNorm and the rotation that make the rows of their result in FP8 too: the values are those of the operation alone,
 * codes and scales those of quantizing them, bit for bit; a norm that stores no values makes the same codes. */
#include "backend/ops/attention.h"
#include "backend/ops/gemm_scaled.h"
#include "backend/ops/rmsnorm.h"
#include "ops/coded_rows.h"
#include "ops/isa.h"

struct norm_case {
    int64_t rows, width, gap;
    tt_dtype dtype, weight_dtype;
    bool residual, dres, dweight;
    float offset;
};

static const struct norm_case norm_cases[] = {
    {9, 64, 0, TT_BF16, TT_BF16, false, false, false, 0},
    {9, 8, 0, TT_BF16, TT_F32, true, true, false, 1},
    {9, 64, 4, TT_F32, TT_F32, true, true, false, 0},
    {17, 256, 0, TT_BF16, TT_BF16, true, true, false, 0},
    {9, 256, 8, TT_F32, TT_BF16, false, true, false, 0},
    {9, 264, 0, TT_BF16, TT_BF16, true, true, false, 0},
    {10, 576, 0, TT_BF16, TT_F32, true, false, true, 0},
    {11, 1032, 8, TT_BF16, TT_BF16, true, true, false, 0},
    {9, 4096, 0, TT_BF16, TT_BF16, true, true, false, 0},
    {9, 4104, 0, TT_BF16, TT_BF16, false, true, true, 1},
    {8, 333, 5, TT_BF16, TT_BF16, true, true, false, 0},
    {8, 333, 0, TT_F32, TT_F32, false, false, true, 0},
    {8, 72, 3, TT_BF16, TT_F32, true, true, false, 0},
    {5, 1, 0, TT_BF16, TT_BF16, false, true, false, 0},
    {9, 16384, 0, TT_BF16, TT_BF16, true, true, false, 0},
    {9, 16392, 0, TT_BF16, TT_BF16, true, true, false, 0},
    {9, 8200, 0, TT_F32, TT_F32, true, true, false, 0},
    {0, 64, 0, TT_BF16, TT_BF16, true, true, false, 0},
    {40, 896, 8, TT_F32, TT_F32, true, true, true, 1},
    {1, 4096, 4096, TT_BF16, TT_BF16, true, true, false, 0},
};

static const struct norm_case norm_gpu_cases[] = {
    {515, 4096, 0, TT_BF16, TT_BF16, true, true, false, 0},
    {257, 8192, 0, TT_BF16, TT_BF16, true, true, false, 0},
    {300, 5120, 0, TT_BF16, TT_BF16, false, true, true, 0},
    {1001, 1536, 8, TT_BF16, TT_BF16, true, true, false, 0},
    {70000, 64, 0, TT_BF16, TT_BF16, true, true, false, 0},
    {4099, 2560, 0, TT_BF16, TT_BF16, true, true, false, 1},
};

enum {
    X,
    RESIDUAL,
    WEIGHT,
    DY,
    DRES, /* inputs */
    SUM_APART,
    Y_APART,
    RSTD_APART,
    DX_APART,
    DWEIGHT_APART,
    SUM,
    Y,
    RSTD,
    DX,
    DWEIGHT,
    CODES,
    SCALE,
    LONE_CODES,
    LONE_SCALE,
    DX_CODES,
    DX_SCALE,
    TENSORS
};

static struct test_tensor make_norm_tensor(const struct norm_case *row, int i)
{
    bool vector = i == WEIGHT || i == DWEIGHT || i == DWEIGHT_APART;
    bool scale = i == SCALE || i == LONE_SCALE || i == DX_SCALE || i == RSTD || i == RSTD_APART;
    bool codes = i == CODES || i == LONE_CODES || i == DX_CODES;
    if (vector)
        return test_tensor_random(i == WEIGHT ? row->weight_dtype : TT_F32, row->width, TEST_UNUSED,
                                  TEST_UNUSED, 0, i == WEIGHT ? 1 : 2, 1);
    if (scale) return test_tensor_make(TT_F32, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    if (codes) return test_tensor_make(TT_F8_E4M3, row->rows, row->width, TEST_UNUSED, 0);
    return test_tensor_random(row->dtype, row->rows, row->width, TEST_UNUSED, row->gap, (uint64_t)i + 3, 1);
}

static void make_norm_tensors(const struct norm_case *row, struct test_tensor *t)
{
    for (int i = 0; i < TENSORS; i++) {
        t[i] = make_norm_tensor(row, i);
        if (i == X || i == DY) fill_operand_rows(&t[i]);
        if (i > DRES && i != DWEIGHT && i != DWEIGHT_APART) test_tensor_poison(&t[i]);
    }
}

static struct tt_rmsnorm_forward_args forward_args(const struct norm_case *row, const struct test_tensor *t,
                                                   int sum)
{
    const tt_tensor none = {0};
    return (struct tt_rmsnorm_forward_args){.x_ND = t[X].view,
                                            .residual_ND = row->residual ? t[RESIDUAL].view : none,
                                            .weight_D = t[WEIGHT].view,
                                            .offset = row->offset,
                                            .eps = 1e-5,
                                            .sum_ND = row->residual ? t[sum].view : none,
                                            .y_ND = t[sum + 1].view,
                                            .rstd_N = t[sum + 2].view};
}

static void run_forward(struct test_device *device, const struct norm_case *row, const struct test_tensor *t)
{
    struct tt_rmsnorm_forward_args args = forward_args(row, t, SUM_APART);
    test_ok(tt_rmsnorm_forward(device->stream, &args));
    args = forward_args(row, t, SUM);
    args.codes_ND = t[LONE_CODES].view, args.scale_N = t[LONE_SCALE].view;
    args.y_ND = (tt_tensor){0};
    if (tt_rmsnorm_may_store_rows_alone(device->device))
        test_ok(tt_rmsnorm_forward(device->stream, &args));
    else
        test_refused(tt_rmsnorm_forward(device->stream, &args), TT_ERR_INTERNAL, "y");
    args = forward_args(row, t, SUM);
    args.codes_ND = t[CODES].view, args.scale_N = t[SCALE].view;
    test_ok(tt_rmsnorm_forward(device->stream, &args));
}

static void run_backward(struct test_device *device, const struct norm_case *row, const struct test_tensor *t)
{
    const tt_tensor none = {0};
    for (int coded = 0; coded < 2; coded++) {
        int rstd = coded ? RSTD : RSTD_APART;
        struct tt_rmsnorm_backward_args args = {.dy_ND = t[DY].view,
                                                .x_ND = row->residual ? t[SUM_APART].view : t[X].view,
                                                .weight_D = t[WEIGHT].view,
                                                .offset = row->offset,
                                                .rstd_N = t[rstd].view,
                                                .dres_ND = row->dres ? t[DRES].view : none,
                                                .dx_ND = t[rstd + 1].view,
                                                .dweight_D = row->dweight ? t[rstd + 2].view : none};
        if (coded) args.codes_ND = t[DX_CODES].view, args.scale_N = t[DX_SCALE].view;
        test_ok(tt_rmsnorm_backward(device->stream, &args));
    }
}

static void run_norm(struct test_device *device, int threads, void *context)
{
    const struct norm_case *row = context;
    struct test_tensor t[TENSORS];
    (void)threads;
    make_norm_tensors(row, t);
    test_array_to_device(device, t, TENSORS);
    run_forward(device, row, t);
    run_backward(device, row, t);
    test_array_to_host(device, t, TENSORS);
    if (row->residual) expect_equal("sum", &t[SUM], &t[SUM_APART]);
    expect_equal("y", &t[Y], &t[Y_APART]);
    expect_equal("rstd", &t[RSTD], &t[RSTD_APART]);
    expect_equal("dx", &t[DX], &t[DX_APART]);
    expect_equal("dweight", &t[DWEIGHT], &t[DWEIGHT_APART]);
    double *y = test_tensor_values(&t[Y]), *dx = test_tensor_values(&t[DX]);
    expect_rows("y", y, &t[CODES], &t[SCALE]);
    if (tt_rmsnorm_may_store_rows_alone(device->device))
        expect_rows("y not stored", y, &t[LONE_CODES], &t[LONE_SCALE]);
    expect_rows("dx", dx, &t[DX_CODES], &t[DX_SCALE]);
    free(y), free(dx);
    test_array_check_gaps(NULL, t, TENSORS);
    test_array_free(t, TENSORS);
}

static void norms_make_the_rows_of_quantizing(void **state)
{
    (void)state;
    TEST_ISA_CASES("rmsnorm, rows in fp8", norm_cases, run_norm);
    if (test_sizes_wanted()) TEST_ISA_CASES("rmsnorm, rows in fp8", norm_gpu_cases, run_norm);
}

/* y in place of x, dx in place of dy, as passes call them. */
static void norms_in_place(void **state)
{
    (void)state;
    static const int64_t widths[] = {64, 333, 4096};
    for (int w = 0; w < 3; w++) {
        const struct norm_case row = {9, widths[w], 0, TT_BF16, TT_BF16, false, true, false, 0};
        struct test_tensor t[TENSORS];
        struct test_device device;
        make_norm_tensors(&row, t);
        test_device_open(&device, test_device_kind(), 1);
        test_array_to_device(&device, t, TENSORS);
        run_forward(&device, &row, t);
        run_backward(&device, &row, t);
        struct tt_rmsnorm_backward_args back = {.dy_ND = t[DY].view,
                                                .x_ND = t[X].view,
                                                .weight_D = t[WEIGHT].view,
                                                .rstd_N = t[RSTD].view,
                                                .dres_ND = t[DRES].view,
                                                .dx_ND = t[DY].view,
                                                .codes_ND = t[DX_CODES].view,
                                                .scale_N = t[DX_SCALE].view};
        test_ok(tt_rmsnorm_backward(device.stream, &back));
        struct tt_rmsnorm_forward_args args = forward_args(&row, t, SUM);
        args.y_ND = t[X].view, args.codes_ND = t[CODES].view, args.scale_N = t[SCALE].view;
        test_ok(tt_rmsnorm_forward(device.stream, &args));
        test_array_to_host(&device, t, TENSORS);
        expect_equal("y on x", &t[X], &t[Y_APART]);
        expect_equal("dx on dy", &t[DY], &t[DX_APART]);
        double *y = test_tensor_values(&t[X]), *dx = test_tensor_values(&t[DY]);
        expect_rows("y on x", y, &t[CODES], &t[SCALE]);
        expect_rows("dx on dy", dx, &t[DX_CODES], &t[DX_SCALE]);
        free(y), free(dx);
        test_device_close(&device);
        test_array_free(t, TENSORS);
    }
}

struct rope_case {
    int64_t tokens, heads, head_dim, extra, gap; /* extra: columns behind the heads */
    tt_dtype dtype;
    bool inverse;
};

static const struct rope_case rope_cases[] = {
    {9, 2, 64, 64, 0, TT_BF16, true},   {9, 2, 64, 64, 0, TT_F32, true},
    {9, 3, 16, 16, 16, TT_BF16, true},  {17, 5, 80, 160, 0, TT_BF16, true},
    {9, 2, 64, 0, 8, TT_BF16, false},   {9, 2, 24, 24, 0, TT_BF16, true},
    {9, 3, 6, 5, 1, TT_BF16, true},     {9, 1, 128, 7, 1, TT_BF16, false},
    {9, 2, 64, 8, 0, TT_BF16, true},    {1, 6, 128, 256, 3, TT_BF16, true},
    {0, 2, 64, 64, 0, TT_BF16, true},   {8, 2, 256, 256, 0, TT_BF16, true},
    {8, 64, 128, 64, 0, TT_BF16, true}, {8, 72, 128, 1024, 0, TT_BF16, true},
};

static const struct rope_case rope_gpu_cases[] = {
    {2049, 40, 128, 1024, 0, TT_BF16, true}, {515, 72, 128, 1024, 0, TT_BF16, true},
    {40, 160, 128, 2048, 0, TT_BF16, true},  {20, 240, 128, 2048, 0, TT_BF16, true},
    {20, 241, 128, 2048, 0, TT_BF16, true},  {1025, 12, 64, 192, 0, TT_BF16, true},
    {70001, 2, 16, 16, 0, TT_BF16, true},    {300, 40, 128, 1024, 6144, TT_BF16, true},
};

enum { POSITIONS = 50 };

static void run_rope(struct test_device *device, int threads, void *context)
{
    const struct rope_case *row = context;
    enum { ROWS, APART, ROPE_CODES, ROPE_SCALE, CODES_APART, SCALE_APART, POSITION, COS, SIN, ROPE_TENSORS };
    int64_t rotated = row->heads * row->head_dim, cols = rotated + row->extra;
    struct test_tensor t[ROPE_TENSORS];
    (void)threads;
    t[ROWS] = test_tensor_random(row->dtype, row->tokens, cols, TEST_UNUSED, row->gap, 1, 1);
    fill_operand_rows(&t[ROWS]);
    t[APART] = test_tensor_copy(&t[ROWS]);
    for (int i = ROPE_CODES; i <= SCALE_APART; i++) {
        bool codes = i == ROPE_CODES || i == CODES_APART;
        t[i] = codes ? test_tensor_make(TT_F8_E4M3, row->tokens, cols, TEST_UNUSED, 0)
                     : test_tensor_make(TT_F32, row->tokens, TEST_UNUSED, TEST_UNUSED, 0);
        test_tensor_poison(&t[i]);
    }
    t[POSITION] = test_tensor_make(TT_I32, row->tokens, TEST_UNUSED, TEST_UNUSED, 0);
    test_tensor_random_index(&t[POSITION], 2, POSITIONS);
    t[COS] = test_tensor_random(TT_F32, POSITIONS, row->head_dim / 2, TEST_UNUSED, 4, 3, 1);
    t[SIN] = test_tensor_random(TT_F32, POSITIONS, row->head_dim / 2, TEST_UNUSED, 4, 4, 1);
    test_array_to_device(device, t, ROPE_TENSORS);
    struct tt_rope_args args = {.x_THE =
                                    tt_tensor_heads(tt_tensor_cols(t[APART].view, 0, rotated), row->heads),
                                .positions_T = t[POSITION].view,
                                .cos_PE = t[COS].view,
                                .sin_PE = t[SIN].view,
                                .inverse = row->inverse};
    struct tt_quantize_rows_args quantize = {t[APART].view, t[CODES_APART].view, t[SCALE_APART].view};
    test_ok(tt_rope(device->stream, &args));
    test_ok(tt_quantize_rows(device->stream, &quantize));
    args.x_THE = tt_tensor_heads(tt_tensor_cols(t[ROWS].view, 0, rotated), row->heads);
    args.rows_TC = t[ROWS].view, args.codes_TC = t[ROPE_CODES].view, args.scale_T = t[ROPE_SCALE].view;
    test_ok(tt_rope(device->stream, &args));
    test_array_to_host(device, t, ROPE_TENSORS);
    expect_equal("rows", &t[ROWS], &t[APART]);
    expect_equal("scales", &t[ROPE_SCALE], &t[SCALE_APART]);
    double *values = test_tensor_values(&t[ROWS]);
    expect_rows("rows", values, &t[ROPE_CODES], &t[ROPE_SCALE]);
    expect_rows("rows, quantized apart", values, &t[CODES_APART], &t[SCALE_APART]);
    free(values);
    test_array_check_gaps(NULL, t, ROPE_TENSORS);
    test_array_free(t, ROPE_TENSORS);
}

static void rotations_make_the_rows_of_quantizing(void **state)
{
    (void)state;
    TEST_ISA_CASES("rope, rows in fp8", rope_cases, run_rope);
    if (test_sizes_wanted()) TEST_ISA_CASES("rope, rows in fp8", rope_gpu_cases, run_rope);
}

static void rows_that_do_not_begin_with_x_are_refused(void **state)
{
    enum { T = 3, HEADS = 2, E = 16, COLS = 48 };
    (void)state;
    struct test_device device;
    test_device_open(&device, test_device_kind(), 1);
    struct test_tensor x = test_tensor_random(TT_BF16, T, COLS, TEST_UNUSED, 0, 1, 1);
    struct test_tensor codes = test_tensor_make(TT_F8_E4M3, T, COLS, TEST_UNUSED, 0);
    struct test_tensor scale = test_tensor_make(TT_F32, T, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_tensor positions = test_tensor_make(TT_I32, T, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_tensor table = test_tensor_random(TT_F32, POSITIONS, E / 2, TEST_UNUSED, 0, 3, 1);
    test_tensor_random_index(&positions, 2, POSITIONS);
    TEST_TO_DEVICE(&device, &x, &codes, &scale, &positions, &table);
    struct tt_rope_args args = {.x_THE = tt_tensor_heads(tt_tensor_cols(x.view, E, HEADS * E), HEADS),
                                .positions_T = positions.view,
                                .cos_PE = table.view,
                                .sin_PE = table.view,
                                .rows_TC = x.view,
                                .codes_TC = codes.view,
                                .scale_T = scale.view};
    test_refused(tt_rope(device.stream, &args), TT_ERR_INTERNAL, "the rows do not begin with x");
    args.x_THE = tt_tensor_heads(tt_tensor_cols(x.view, 0, HEADS * E), HEADS);
    args.codes_TC.dims[1] = HEADS * E;
    test_refused(tt_rope(device.stream, &args), TT_ERR_INTERNAL, "codes");
    TEST_TO_HOST(&device, &x, &codes, &scale, &positions, &table);
    test_device_close(&device);
    test_tensor_free(&x), test_tensor_free(&codes), test_tensor_free(&scale);
    test_tensor_free(&positions), test_tensor_free(&table);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_make_the_rows_of_quantizing),
        cmocka_unit_test(norms_in_place),
        cmocka_unit_test(rotations_make_the_rows_of_quantizing),
        cmocka_unit_test(rows_that_do_not_begin_with_x_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
