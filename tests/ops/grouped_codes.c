/* Products of experts in FP8 (backend/ops/grouped_gemm.h): those of the coded numbers in fp64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops/gemm_scaled.h"
#include "backend/ops/grouped_gemm.h"
#include "ops/isa.h"
#include "tensor/e4m3.h"

enum { EXPERTS_MAX = 8 };

/* The error of all results together, relative to their size: rounding to bf16 alone makes 1.7e-3. */
static const double error_most = 2.5e-3;

struct codes_case {
    int64_t n, k, r;
    tt_dtype dtype;
    bool transposed, bias;
    int64_t counts[EXPERTS_MAX]; /* rows of each expert, ended by -1 */
};

static const struct codes_case cases[] = {
    {32, 48, 0, TT_F32, false, false, {5, 0, 17, 1, -1}},
    {64, 32, 4, TT_BF16, false, true, {0, 9, 0, 33, 2, 0, -1}},
    {160, 144, 8, TT_BF16, true, false, {12, 0, 1, 50, -1}},
    {16, 16, 2, TT_F32, true, false, {0, 21, 4, -1}},
};

static const struct codes_case gpu_cases[] = {
    {1536, 2048, 16, TT_BF16, false, false, {300, 3, 0, 128, 129, 257, -1}},
    {768, 2048, 16, TT_BF16, true, false, {64, 256, 0, 31, 1, -1}},
    {2048, 768, 0, TT_BF16, false, true, {513, 0, 64, 65, 1, -1}},
    {528, 208, 24, TT_BF16, true, false, {257, 385, 0, 2, -1}},
    {256, 14336, 8, TT_BF16, false, false, {130, 0, 250, -1}}, /* more than a chain of sums */
    {4096, 14336, 0, TT_BF16, true, false, {1, 0, 0, 7, -1}},
    {16, 16, 0, TT_BF16, false, true, {0, 40, 300, -1}},
};

struct problem {
    const struct codes_case *row;
    int64_t experts, rows;
    struct test_tensor border, x, x_scale, w, w_scale, h, b, bias, y, first;
    double *exact;
};

/* Codes of normal numbers, and scales of several sizes. */
static void fill_codes(const struct test_tensor *codes, const struct test_tensor *scale, uint64_t seed)
{
    int64_t count = tt_tensor_count(codes->view), rows = tt_tensor_count(scale->view);
    struct test_tensor numbers = test_tensor_random(TT_F32, count, TEST_UNUSED, TEST_UNUSED, 0, seed, 60);
    for (int64_t i = 0; i < count; i++)
        ((uint8_t *)codes->view.data)[i] = tt_e4m3_from_f32(((const float *)numbers.view.data)[i]);
    for (int64_t i = 0; i < rows; i++)
        ((float *)scale->view.data)[i] =
            1e-3f * (1 + (float)((uint64_t)i * 7 % 13) / 13) / (float)sqrt((double)60);
    test_tensor_free(&numbers);
}

static void make_problem(struct problem *p, const struct codes_case *row)
{
    double ends[EXPERTS_MAX + 1] = {0};
    int64_t none = TEST_UNUSED, n = row->n, k = row->k, r = row->r > 0 ? row->r : 1;
    memset(p, 0, sizeof *p);
    p->row = row;
    for (; row->counts[p->experts] >= 0; p->experts++)
        ends[p->experts + 1] = (double)(p->rows += row->counts[p->experts]);
    p->border = test_tensor_make(TT_I32, p->experts + 1, none, none, 0);
    test_tensor_set(&p->border, ends);
    p->x = test_tensor_make(TT_F8_E4M3, p->rows, k, none, 0);
    p->x_scale = test_tensor_make(TT_F32, p->rows, none, none, 0);
    p->w = test_tensor_make(TT_F8_E4M3, p->experts, n, k, 0);
    p->w_scale = test_tensor_make(TT_F32, p->experts, n, none, 0);
    fill_codes(&p->x, &p->x_scale, 1);
    fill_codes(&p->w, &p->w_scale, 2);
    p->h = test_tensor_random(row->dtype, p->rows, r, none, 0, 3, 0.1);
    p->b = test_tensor_random(row->dtype, p->experts, row->transposed ? r : n, row->transposed ? n : r, 0, 4,
                              0.1);
    p->bias = test_tensor_random(row->dtype, p->experts, n, none, 0, 5, 0.1);
    p->y = test_tensor_make(row->dtype, p->rows, n, none, 0);
    test_tensor_poison(&p->y);
    p->exact = test_doubles(p->rows * n);
}

static void free_problem(struct problem *p)
{
    struct test_tensor *all[] = {&p->border, &p->x, &p->x_scale, &p->w, &p->w_scale,
                                 &p->h,      &p->b, &p->bias,    &p->y, &p->first};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) test_tensor_free(all[i]);
    free(p->exact);
}

static double dot_codes(const uint8_t *a, const uint8_t *b, int64_t count, const float *values)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)values[a[i]] * (double)values[b[i]];
    return sum;
}

static void oracle(struct problem *p)
{
    const struct codes_case *row = p->row;
    int64_t N = row->n, K = row->k, R = row->r, r_all = R > 0 ? R : 1, m = 0;
    double *h = test_tensor_values(&p->h), *b = test_tensor_values(&p->b),
           *bias = test_tensor_values(&p->bias);
    const uint8_t *x = p->x.view.data, *w = p->w.view.data;
    const float *x_scale = p->x_scale.view.data, *w_scale = p->w_scale.view.data;
    float values[256];
    for (int i = 0; i < 256; i++) values[i] = tt_e4m3_to_f32((uint8_t)i);
    for (int64_t e = 0; e < p->experts; e++)
        for (int64_t end = m + row->counts[e]; m < end; m++)
            for (int64_t n = 0; n < N; n++) {
                double sum = dot_codes(x + m * K, w + (e * N + n) * K, K, values) * (double)x_scale[m] *
                             (double)w_scale[e * N + n];
                for (int64_t r = 0; r < R; r++)
                    sum += h[m * r_all + r] * b[row->transposed ? (e * R + r) * N + n : (e * N + n) * R + r];
                p->exact[m * N + n] = sum + (row->bias ? bias[e * N + n] : 0);
            }
    free(h), free(b), free(bias);
}

static void check_error(const struct problem *p, const struct test_tensor *y)
{
    double *got = test_tensor_values(y), error = 0, size = 0;
    for (int64_t i = 0; i < p->rows * p->row->n; i++) {
        error += (got[i] - p->exact[i]) * (got[i] - p->exact[i]);
        size += p->exact[i] * p->exact[i];
    }
    free(got);
    if (!(sqrt(error / size) <= error_most))
        fail_msg("n %lld, k %lld, r %lld: the error is %.3g of the size", (long long)p->row->n,
                 (long long)p->row->k, (long long)p->row->r, sqrt(error / size));
}

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    const struct codes_case *row = p->row;
    const tt_tensor none = {0};
    struct test_tensor border = test_tensor_copy(&p->border), x = test_tensor_copy(&p->x),
                       x_scale = test_tensor_copy(&p->x_scale), w = test_tensor_copy(&p->w),
                       w_scale = test_tensor_copy(&p->w_scale), h = test_tensor_copy(&p->h),
                       b = test_tensor_copy(&p->b), bias = test_tensor_copy(&p->bias),
                       y = test_tensor_copy(&p->y);
    size_t bytes = tt_gemm_scaled_scratch(device->device, p->rows, row->n, row->k);
    struct tt_buffer *scratch = NULL;
    (void)threads;
    test_ok(tt_buffer_create(device->device, bytes > 0 ? bytes : 64, TT_PURPOSE_WEIGHTS, &scratch));
    TEST_TO_DEVICE(device, &border, &x, &x_scale, &w, &w_scale, &h, &b, &bias, &y);
    struct tt_grouped_gemm_args args = {
        .border_X1 = border.view,
        .x_MK = tt_tensor_2d(NULL, row->dtype, p->rows, row->k),
        .codes = {x.view, x_scale.view, w.view, w_scale.view},
        .scratch = tt_tensor_1d(tt_buffer_data(scratch), TT_U8, (int64_t)(bytes > 0 ? bytes : 64)),
        .transposed = row->transposed,
        .h_MR = row->r > 0 ? h.view : none,
        .b_XNR = row->r > 0 ? b.view : none,
        .bias_XN = row->bias ? bias.view : none,
        .y_MN = y.view};
    test_ok(tt_grouped_gemm(device->stream, &args));
    TEST_TO_HOST(device, &border, &x, &x_scale, &w, &w_scale, &h, &b, &bias, &y);
    check_error(p, &y);
    test_tensor_check_gaps("y", &y);
    test_check_untouched("x", &x, &p->x);
    test_check_untouched("w", &w, &p->w);
    if (p->first.view.data == NULL)
        p->first = test_tensor_copy(&y);
    else
        test_tensor_equal("y", &y, &p->first);
    tt_buffer_destroy(scratch);
    struct test_tensor *rest[] = {&border, &x_scale, &w_scale, &h, &b, &bias, &y};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) test_tensor_free(rest[i]);
}

/* The bits may differ between instruction sets, and not between runs and numbers of threads. */
static void run_twice(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    check_run(device, threads, p);
    check_run(device, threads, p);
    test_tensor_free(&p->first);
    p->first = (struct test_tensor){0};
}

static void check_case(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    oracle(&p);
    test_on_each_isa(run_twice, &p);
    free_problem(&p);
}

static void products_of_codes(void **state)
{
    (void)state;
    TEST_CASES("grouped gemm of rows in fp8", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("grouped gemm of rows in fp8", gpu_cases, check_case);
}

#define REFUSE(change, message)                                                                              \
    do {                                                                                                     \
        struct tt_grouped_gemm_args args = good;                                                             \
        change;                                                                                              \
        test_refused(tt_grouped_gemm(device.stream, &args), TT_ERR_INTERNAL, message);                       \
    } while (0)

static void hostile_arguments(void **state)
{
    static _Alignas(64) float memory[6][2048];
    static _Alignas(64) uint8_t scratch[1 << 16];
    static int32_t border[3] = {0, 1, 3};
    struct test_device device;
    (void)state;
    TEST_CPU_ONLY();
    test_device_open(&device, "cpu", 1);
    const struct tt_grouped_gemm_args good = {
        .border_X1 = tt_tensor_1d(border, TT_I32, 3),
        .x_MK = tt_tensor_2d(NULL, TT_F32, 3, 32),
        .codes = {tt_tensor_2d(memory[0], TT_F8_E4M3, 3, 32), tt_tensor_1d(memory[1], TT_F32, 3),
                  tt_tensor_3d(memory[2], TT_F8_E4M3, 2, 16, 32), tt_tensor_2d(memory[3], TT_F32, 2, 16)},
        .scratch = tt_tensor_1d(scratch, TT_U8, sizeof scratch),
        .y_MN = tt_tensor_2d(memory[4], TT_F32, 3, 16)};
    assert_true(tt_gemm_scaled_scratch(device.device, 3, 16, 32) <= sizeof scratch);
    test_ok(tt_grouped_gemm(device.stream, &good));
    REFUSE(args.w_XNK = tt_tensor_3d(memory[5], TT_F32, 2, 16, 32), "codes of x beside another w");
    REFUSE(args.alpha = 2, "alpha beside scales");
    REFUSE(args.codes.x_scale_M.dims[0] = 2, "scale");
    REFUSE(args.codes.w_XNK.dims[0] = 3, "codes of w");
    REFUSE(args.codes.w_scale_XN.dims[1] = 8, "scales of w");
    REFUSE(args.scratch.dims[0] = 8, "scratch");
    REFUSE(args.y_MN = tt_tensor_2d(memory[0], TT_F32, 3, 16), "overlap in memory");
    REFUSE((args.y_MN = tt_tensor_2d(memory[4], TT_F32, 3, 15)), "not multiples of 16");
    test_device_close(&device);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_codes),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(hostile_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
