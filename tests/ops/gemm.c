#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops/gemm.h"
#include "ops/isa.h"

struct gemm_case {
    int64_t m, n, k;
    tt_dtype a, b, c;
    bool trans_a, trans_b;
    float alpha, beta;
    int64_t gap; /* elements behind each row of a, b and c */
};

#define F TT_F32
#define H TT_BF16
#define N_ false
#define T_ true

/* Shapes on both sides of every border: register tiles (6 x 16, 4 x 8, 14 x 32), blocks of 144 rows, 256
 * and 384 k, few rows (8), few columns (32), columns that are packed at a time (1024). */
static const struct gemm_case cases[] = {
    /* tiny, and every combination of transposition and type */
    {1, 1, 1, F, F, F, N_, N_, 1, 0, 0},
    {1, 1, 1, H, H, H, T_, T_, 2, 1, 3},
    {5, 7, 3, F, F, F, N_, N_, 1, 0, 0},
    {5, 7, 3, F, F, F, T_, N_, 1, 1, 1},
    {5, 7, 3, F, F, F, N_, T_, 0.5, 0, 2},
    {5, 7, 3, F, F, F, T_, T_, 1, -2, 3},
    {13, 33, 17, H, H, H, N_, N_, 1, 0, 0},
    {13, 33, 17, H, H, H, T_, N_, 1, 1, 0},
    {13, 33, 17, H, H, H, N_, T_, 1, 0, 5},
    {13, 33, 17, H, H, H, T_, T_, 0.25, 1, 1},
    {37, 65, 41, H, F, F, N_, N_, 1, 0, 1},
    {37, 65, 41, F, H, H, N_, T_, 1, 1, 1},
    {37, 65, 41, H, F, H, T_, N_, 1, 0, 1},
    {37, 65, 41, F, H, F, T_, T_, 1, 1, 1},
    {6, 16, 256, F, F, F, N_, N_, 1, 0, 0},
    {14, 32, 256, F, F, F, N_, T_, 1, 0, 0},
    {12, 48, 257, F, F, F, T_, N_, 1, 0.5, 0},
    {144, 64, 256, F, F, F, N_, T_, 1, 0, 0},
    {145, 65, 255, F, F, F, N_, N_, 1, 1, 0},
    {145, 65, 385, F, F, F, N_, T_, 1, 1, 0},
    {145, 65, 385, H, H, H, N_, N_, 1, 1, 0},
    /* several blocks of k: floats in place, bf16 through the waiting block */
    {150, 70, 600, F, F, F, N_, T_, 1.5, 0.5, 2},
    {150, 70, 600, H, H, H, N_, T_, 1.5, 0.5, 2},
    {150, 70, 600, H, H, H, T_, N_, 1, 0, 0},
    {150, 70, 600, F, F, H, T_, T_, 1, 1, 0},
    {290, 100, 1030, H, H, F, N_, N_, 1, 0, 0},
    {64, 40, 1030, H, H, H, N_, N_, 1, 1, 0},
    {300, 1100, 260, F, F, F, N_, T_, 1, 0, 0},
    {300, 1100, 300, H, H, H, N_, N_, 1, 1, 4},
    {20, 700, 520, H, H, H, N_, T_, 1, 0, 0},
    /* few columns: the narrow side of an adapter, and its gradients */
    {257, 16, 512, H, H, H, N_, T_, 1, 0, 0},
    {257, 16, 512, F, F, F, N_, T_, 2, 1, 0},
    {100, 8, 1000, H, F, H, N_, N_, 1, 0, 1},
    {100, 32, 2100, F, H, F, N_, N_, 1, 0, 1},
    {50, 33, 2100, F, H, F, N_, N_, 1, 0, 1},
    {49, 7, 3000, H, H, F, N_, T_, 1, 1, 0},
    {257, 384, 16, H, H, H, N_, T_, 2, 1, 0},
    {257, 384, 16, H, F, F, N_, N_, 2, 1, 0},
    {16, 384, 512, H, H, F, T_, N_, 1, 1, 0},
    {384, 16, 512, H, F, F, T_, N_, 1, 1, 0},
    {64, 100, 300, F, F, F, T_, N_, 1, 1, 3},
    /* few rows: decoding */
    {1, 300, 1000, F, H, F, N_, T_, 1, 0, 0},
    {1, 300, 1088, H, H, H, N_, T_, 1, 0, 0},
    {2, 97, 2051, H, H, H, N_, T_, 1, 0, 1},
    {3, 97, 4100, F, F, F, N_, T_, 1, 1, 1},
    {4, 97, 5000, F, H, F, N_, T_, 1, 0, 0},
    {5, 100, 129, H, H, H, N_, T_, 1, 1, 0},
    {7, 49, 1025, F, H, F, T_, T_, 1, 0, 0},
    {8, 100, 1100, F, F, F, N_, T_, 1, 0, 0},
    {9, 100, 1100, F, F, F, N_, T_, 1, 0, 0},
    {1, 300, 1000, H, H, H, N_, N_, 1, 0, 0},
    {1, 500, 16, H, H, H, N_, T_, 2, 1, 0},
    {4, 23, 576, H, H, F, N_, T_, 2, 1, 8},
};

/* So many k that the panels of one block of rows do not fit beside each other: the processor's sums wait
 * between runs over k. The oracle knows every 61st row. */
static const struct gemm_case long_cases[] = {
    {150, 128, 33000, H, H, H, N_, N_, 1, 1, 0},
    {150, 128, 33001, H, H, H, N_, T_, 0.5, 0, 3},
    {150, 128, 33000, F, F, F, N_, N_, 1, 1, 0},
    {291, 67, 70000, H, H, F, T_, N_, 1, 1, 1},
};
/* And so many rows that they are cut into slabs. */
static const struct gemm_case slab_cases[] = {{2200, 1030, 4300, H, H, H, N_, T_, 1, 0, 0}};

/* Linears, adapters and heads of models of 1 to 70 billion parameters; the oracle knows every 61st row. */
static const struct gemm_case gpu_cases[] = {
    {2048, 6144, 4096, H, H, H, N_, T_, 1, 0, 0},  {2048, 4096, 6144, H, H, H, N_, N_, 1, 0, 0},
    {1025, 14336, 4096, H, H, H, N_, T_, 1, 0, 0}, {1025, 4096, 14336, H, H, H, N_, T_, 1, 1, 0},
    {999, 1537, 2049, H, H, H, N_, T_, 1, 0, 1},   {130, 128256, 512, H, H, H, N_, T_, 1, 0, 0},
    {2048, 16, 4096, H, H, H, N_, T_, 1, 0, 0},    {2048, 4096, 16, H, H, H, N_, T_, 2, 1, 0},
    {4096, 4096, 64, H, H, H, N_, T_, 2, 1, 0},    {16, 4096, 4096, H, H, F, T_, N_, 1, 1, 0},
    {4096, 8, 4096, H, H, F, T_, N_, 1, 1, 0},     {1024, 1024, 4096, H, H, F, T_, N_, 1, 1, 0},
    {700, 2048, 2048, F, F, F, N_, T_, 1, 0, 0},   {700, 2048, 2048, F, H, F, N_, N_, 1, 0, 0},
    {2048, 6144, 4160, H, H, H, N_, T_, 1, 0, 64},
};
enum { ROW_STEP = 61 }; /* in cases of gpu_cases; a prime, so that every tile is met at other places */

struct operands {
    struct test_tensor a, b, c;
};

static struct operands make_operands(const struct gemm_case *row)
{
    int64_t a0 = row->trans_a ? row->k : row->m, a1 = row->trans_a ? row->m : row->k;
    int64_t b0 = row->trans_b ? row->n : row->k, b1 = row->trans_b ? row->k : row->n;
    return (struct operands){.a = test_tensor_random(row->a, a0, a1, TEST_UNUSED, row->gap, 1, 1.0),
                             .b = test_tensor_random(row->b, b0, b1, TEST_UNUSED, row->gap, 2, 1.0),
                             .c = test_tensor_random(row->c, row->m, row->n, TEST_UNUSED, row->gap, 3, 1.0)};
}

static void free_operands(struct operands *operands)
{
    test_tensor_free(&operands->a);
    test_tensor_free(&operands->b);
    test_tensor_free(&operands->c);
}

static struct tt_gemm_args args_of(const struct gemm_case *row, const struct operands *operands)
{
    return (struct tt_gemm_args){.a = operands->a.view,
                                 .b = operands->b.view,
                                 .c = operands->c.view,
                                 .trans_a = row->trans_a,
                                 .trans_b = row->trans_b,
                                 .alpha = row->alpha,
                                 .beta = row->beta};
}

/* The product in fp64, and as plain code would make it: one float sum per element, rounded to c's type once.
 * Of the rows 0, step, 2 step, ..., one after the other; returns how many. */
static int64_t multiply_plainly(const struct gemm_case *row, const struct operands *operands, int64_t step,
                                double *oracle, double *plain)
{
    double *a = test_tensor_values(&operands->a), *b = test_tensor_values(&operands->b);
    double *c = test_tensor_values(&operands->c);
    double *a_row = test_doubles(row->k), *b_columns = b;
    if (!row->trans_b) { /* columns in a row */
        b_columns = test_doubles(row->n * row->k);
#pragma omp parallel for if (TEST_IS_LARGE(row->n * row->k))
        for (int64_t j = 0; j < row->n; j++)
            for (int64_t p = 0; p < row->k; p++) b_columns[j * row->k + p] = b[p * row->n + j];
    }
    int64_t known = 0;
    for (int64_t i = 0; i < row->m; i += step, known++) {
        for (int64_t p = 0; p < row->k; p++) a_row[p] = row->trans_a ? a[p * row->m + i] : a[i * row->k + p];
#pragma omp parallel for if (TEST_IS_LARGE(row->n * row->k))
        for (int64_t j = 0; j < row->n; j++) {
            double exact = 0;
            float sum = 0;
            for (int64_t p = 0; p < row->k; p++) {
                double x = a_row[p], y = b_columns[j * row->k + p];
                exact += x * y;
                sum += (float)x * (float)y;
            }
            double before = c[i * row->n + j];
            oracle[known * row->n + j] = (double)row->alpha * exact + (double)row->beta * before;
            plain[known * row->n + j] = test_round(row->alpha * sum + row->beta * (float)before, row->c);
        }
    }
    if (b_columns != b) free(b_columns);
    free(a_row);
    free(a);
    free(b);
    free(c);
    return known;
}

/* The variant and instruction set of a run; NULL: the device's own choice. */
struct setting {
    const char *variant, *isa;
};

/* Runs the case on `threads` threads; false when the processor or the variant declines. On a GPU there is
 * only its own choice. */
static bool run_gemm(const struct gemm_case *row, struct operands *operands, struct setting setting,
                     int threads)
{
    if (!test_on_cpu()) {
        struct test_device gpu;
        test_device_open(&gpu, test_device_kind(), threads);
        TEST_TO_DEVICE(&gpu, &operands->a, &operands->b, &operands->c);
        struct tt_gemm_args gpu_args = args_of(row, operands);
        test_ok(tt_gemm(gpu.stream, &gpu_args));
        TEST_TO_HOST(&gpu, &operands->a, &operands->b, &operands->c);
        test_device_close(&gpu);
        return true;
    }
    setenv("TRIMTAB_CPU_GEMM", setting.variant != NULL ? setting.variant : "", 1);
    setenv("TRIMTAB_CPU_ISA", setting.isa != NULL ? setting.isa : "", 1);
    struct test_device device = {0};
    struct tt_device_config config = {.kind = "cpu", .threads = threads, .tuning = test_tuning()};
    tt_status status = tt_device_open(&config, &device.device);
    unsetenv("TRIMTAB_CPU_GEMM");
    unsetenv("TRIMTAB_CPU_ISA");
    if (status == TT_ERR_UNSUPPORTED && setting.isa != NULL) return false;
    test_ok(status);
    test_ok(tt_stream_create(device.device, &device.stream));
    struct tt_gemm_args args = args_of(row, operands);
    status = tt_gemm(device.stream, &args);
    test_device_close(&device);
    if (status == TT_ERR_UNSUPPORTED && setting.variant != NULL) return false;
    test_ok(status);
    return true;
}

/* cuBLASLt rounds a bf16 product before it adds to it: two half units instead of one, so an error that plain
 * code never makes. */
enum { FACTOR = 2, FACTOR_TWICE = 3 };
static bool rounds_twice(const struct gemm_case *row)
{
    return !test_on_cpu() && row->c == TT_BF16 && row->beta != 0;
}

/* Those that a case is run with: the oracle takes longer than all of them. */
enum { SETTINGS_MAX = 16 };
static struct {
    struct setting list[SETTINGS_MAX];
    size_t count, taken[SETTINGS_MAX];
} tried;
static int64_t row_step = 1;

/* Of `list` those that the processor has; on a GPU the first. */
static void try_settings(const struct setting *list, size_t count)
{
    memset(&tried, 0, sizeof tried);
    assert_true(count <= SETTINGS_MAX);
    for (size_t i = 0; i < (test_on_cpu() ? count : 1); i++)
        if (list[i].isa == NULL || test_isa_is_here(list[i].isa)) tried.list[tried.count++] = list[i];
    unsetenv("TRIMTAB_CPU_ISA");
}

/* What one setting makes of the operands, beside `known` rows of oracle and plain code. */
static bool check_setting(const struct gemm_case *test, const struct operands *operands,
                          const struct setting *setting, const double *oracle, const double *plain,
                          int64_t known)
{
    struct operands runs[3];
    static const int threads[3] = {1, 2, 5};
    for (int i = 0; i < 3; i++)
        runs[i] = (struct operands){operands->a, operands->b, test_tensor_copy(&operands->c)};
    if (test->beta == 0) test_tensor_poison(&runs[0].c);
    bool takes = run_gemm(test, &runs[0], *setting, threads[0]);
    if (takes) {
        double *got = test_tensor_values(&runs[0].c);
        for (int64_t i = 0; i < known; i++)
            memmove(got + i * test->n, got + i * row_step * test->n, (size_t)test->n * sizeof *got);
        /* Each of the K additions of a float sum, in whatever order, rounds by 2^-24 of the sum and with any
           sign: by 2^-24 sqrt(K) together. Tensor cores cut instead of rounding, once for 16 products and
           always in the same direction: by half a unit, 2^-24, each time. Plain code that met no large sums
           on its way may be better than that. */
        double k = (double)test->k;
        double relative = !test_on_cpu() && test->c == TT_F32 ? 0x1p-24 * fmax(sqrt(k), k / 16) : 0;
        test_close_allowing(setting->isa != NULL ? setting->isa : "c", got, oracle, plain, known * test->n,
                            test->c, rounds_twice(test) ? FACTOR_TWICE : FACTOR, relative, 0);
        free(got);
        test_tensor_check_gaps("c", &runs[0].c);
        for (int i = 1; i < 3; i++) {
            assert_true(run_gemm(test, &runs[i], *setting, threads[i]));
            test_tensor_equal(i == 1 ? "1 and 2 threads" : "1 and 5 threads", &runs[0].c, &runs[i].c);
        }
    }
    for (int i = 0; i < 3; i++) test_tensor_free(&runs[i].c);
    return takes;
}

static void check_case(const void *row)
{
    const struct gemm_case *test = row;
    struct operands operands = make_operands(test);
    double *oracle = test_doubles(test->m * test->n), *plain = test_doubles(test->m * test->n);
    int64_t known = multiply_plainly(test, &operands, row_step, oracle, plain);
    for (size_t i = 0; i < tried.count; i++)
        tried.taken[i] += check_setting(test, &operands, &tried.list[i], oracle, plain, known);
    free(oracle), free(plain), free_operands(&operands);
}

static void every_case_is_close_and_independent_of_threads(void **state)
{
    (void)state;
    static const struct setting settings[] = {
        {NULL, NULL},           {"panels", "portable"},    {"dot", "portable"},
        {"panels", "avx2"},     {"dot", "avx2"},           {"panels", "avx512"},
        {"dot", "avx512"},      {"panels", "avx512_bf16"}, {"pairs", "avx512_bf16"},
        {"dot", "avx512_bf16"}, {"panels", "amx"},         {"dot", "amx"}};
    try_settings(settings, sizeof settings / sizeof settings[0]);
    TEST_CASES("gemm", cases, check_case);
    for (size_t i = 0; i < tried.count; i++)
        print_message("%s on %s takes %zu of %zu cases\n",
                      tried.list[i].variant != NULL ? tried.list[i].variant : "best",
                      tried.list[i].isa != NULL ? tried.list[i].isa : "best", tried.taken[i],
                      sizeof cases / sizeof cases[0]);
    assert_int_equal(tried.taken[0], sizeof cases / sizeof cases[0]);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    try_settings(&(struct setting){NULL, NULL}, 1);
    row_step = ROW_STEP;
    TEST_CASES("gemm", gpu_cases, check_case);
    row_step = 1;
}

static void sums_wait_between_runs_over_k(void **state)
{
    (void)state;
    static const struct setting settings[] = {
        {NULL, "portable"}, {NULL, "avx2"}, {NULL, "avx512"}, {NULL, "avx512_bf16"}, {NULL, "amx"}};
    if (!test_on_cpu()) skip();
    row_step = ROW_STEP;
    try_settings(settings, sizeof settings / sizeof settings[0]);
    TEST_CASES("gemm", long_cases, check_case);
    try_settings(&(struct setting){NULL, NULL}, 1);
    TEST_CASES("gemm", slab_cases, check_case);
    row_step = 1;
}

/* With beta = 0 whatever lies in c must not come through, NaN and infinity included. */
static void beta_zero_never_reads_c(void **state)
{
    (void)state;
    static const struct gemm_case shapes[] = {
        {13, 33, 17, F, F, F, N_, N_, 1, 0, 0},   {150, 70, 600, H, H, H, N_, T_, 1, 0, 0},
        {150, 70, 600, F, F, F, N_, T_, 1, 0, 0}, {100, 16, 512, H, H, H, N_, T_, 1, 0, 0},
        {2, 97, 300, F, H, F, N_, T_, 1, 0, 0},   {4, 5, 0, H, H, H, N_, N_, 1, 0, 0},
        {4, 5, 3, F, F, F, N_, N_, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct operands operands = make_operands(&shapes[i]);
        int64_t count = shapes[i].m * shapes[i].n;
        double *poison = test_doubles(count);
        for (int64_t j = 0; j < count; j++) poison[j] = j % 2 == 0 ? NAN : INFINITY;
        test_tensor_set(&operands.c, poison);
        assert_true(run_gemm(&shapes[i], &operands, (struct setting){0}, 2));
        double *got = test_tensor_values(&operands.c);
        for (int64_t j = 0; j < count; j++) assert_true(isfinite(got[j]));
        free(poison);
        free(got);
        free_operands(&operands);
    }
}

/* beta times another matrix than c gives what c would have given there: bit for bit, except where c is bf16
 * on a GPU, whose library may round the product before it adds in the one case and not in the other. */
static void another_addend(void **state)
{
    (void)state;
    static const struct gemm_case shapes[] = {
        {13, 33, 17, F, F, F, N_, T_, 1, 0.5f, 0}, {150, 72, 600, H, H, H, N_, T_, 1, 1, 0},
        {96, 64, 16, H, H, H, N_, T_, 2, 1, 0},    {20, 40, 64, F, H, F, N_, N_, 1, 1, 0},
        {7, 9, 0, H, H, H, N_, T_, 1, 1, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct operands operands = make_operands(&shapes[i]);
        int64_t count = shapes[i].m * shapes[i].n;
        double *oracle = test_doubles(count), *plain = test_doubles(count);
        multiply_plainly(&shapes[i], &operands, 1, oracle, plain);
        struct test_tensor other = test_tensor_copy(&operands.c), in_place = test_tensor_copy(&operands.c);
        struct operands same = {.a = operands.a, .b = operands.b, .c = in_place};
        assert_true(run_gemm(&shapes[i], &same, (struct setting){0}, 2));
        struct test_device device;
        test_device_open(&device, test_device_kind(), 2);
        test_tensor_poison(&operands.c);
        TEST_TO_DEVICE(&device, &operands.a, &operands.b, &operands.c, &other);
        struct tt_gemm_args args = args_of(&shapes[i], &operands);
        args.addend = other.view;
        test_ok(tt_gemm(device.stream, &args));
        TEST_TO_HOST(&device, &operands.a, &operands.b, &operands.c, &other);
        test_device_close(&device);
        double *got = test_tensor_values(&operands.c);
        if (rounds_twice(&shapes[i]))
            test_close("addend", got, oracle, plain, count, shapes[i].c, FACTOR_TWICE);
        else
            test_tensor_equal("addend", &same.c, &operands.c);
        free(got), free(plain), free(oracle);
        test_tensor_free(&other);
        test_tensor_free(&same.c);
        free_operands(&operands);
    }
}

static void empty_dimensions(void **state)
{
    (void)state;
    struct test_device device;
    test_device_open(&device, test_device_kind(), 2);
    struct test_tensor c = test_tensor_make(TT_F32, 2, 3, TEST_UNUSED, 0);
    test_tensor_set(&c, (const double[]){1, 2, 3, 4, 5, 6});
    TEST_TO_DEVICE(&device, &c);
    struct tt_gemm_args args = {.a = tt_tensor_2d(NULL, TT_F32, 2, 0),
                                .b = tt_tensor_2d(NULL, TT_F32, 0, 3),
                                .c = c.view,
                                .alpha = 1,
                                .beta = 0.5f};
    test_ok(tt_gemm(device.stream, &args));
    args.a = tt_tensor_2d(NULL, TT_F32, 0, 4);
    args.b = tt_tensor_2d(c.view.data, TT_F32, 4, 1);
    args.c = tt_tensor_2d(NULL, TT_F32, 0, 1);
    test_ok(tt_gemm(device.stream, &args));
    TEST_TO_HOST(&device, &c);
    const float *c_data = c.view.data;
    for (int i = 0; i < 6; i++) assert_true(c_data[i] == (float)(i + 1) * 0.5f);
    test_device_close(&device);
    test_tensor_free(&c);
}

/* Infinities and NaN of the inputs reach c; the zeros that pad panels do not make NaN of them elsewhere. */
static void infinity_stays_in_its_row(void **state)
{
    (void)state;
    struct gemm_case shape = {7, 50, 20, F, F, F, N_, N_, 1, 0, 0};
    for (int trans = 0; trans < 2; trans++) {
        shape.trans_b = trans == 1;
        struct operands operands = make_operands(&shape);
        ((float *)operands.a.view.data)[6 * 20 + 19] = INFINITY;
        assert_true(run_gemm(&shape, &operands, (struct setting){"panels", NULL}, 1));
        double *got = test_tensor_values(&operands.c);
        for (int64_t i = 0; i < 7 * 50; i++) assert_true(isfinite(got[i]) == (i < 6 * 50));
        free(got);
        free_operands(&operands);
    }
}

/* The device's scratch is used again and again: NaN that an earlier product left in it must not reach a later
 * one. */
static void earlier_products_leave_nothing_behind(void **state)
{
    (void)state;
    struct gemm_case poison = {300, 300, 300, F, F, F, N_, T_, 1, 0, 0};
    static const struct gemm_case shapes[] = {
        {4, 100, 37, F, H, F, N_, T_, 1, 0, 0},  {100, 16, 101, F, F, F, N_, T_, 1, 0, 0},
        {100, 40, 37, F, F, F, N_, N_, 1, 0, 0}, {300, 40, 37, H, H, H, N_, T_, 1, 0, 0},
        {50, 300, 41, H, H, H, T_, N_, 1, 0, 0},
    };
    struct test_device device;
    test_device_open(&device, test_device_kind(), 2);
    struct operands nan = make_operands(&poison);
    double *values = test_doubles(300 * 300);
    for (int i = 0; i < 300 * 300; i++) values[i] = NAN;
    test_tensor_set(&nan.a, values);
    test_tensor_set(&nan.b, values);
    free(values);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct operands operands = make_operands(&shapes[i]);
        TEST_TO_DEVICE(&device, &nan.a, &nan.b, &nan.c, &operands.a, &operands.b, &operands.c);
        struct tt_gemm_args args = args_of(&poison, &nan);
        test_ok(tt_gemm(device.stream, &args));
        args = args_of(&shapes[i], &operands);
        test_ok(tt_gemm(device.stream, &args));
        TEST_TO_HOST(&device, &nan.a, &nan.b, &nan.c, &operands.a, &operands.b, &operands.c);
        double *got = test_tensor_values(&operands.c);
        for (int64_t j = 0; j < shapes[i].m * shapes[i].n; j++) assert_true(isfinite(got[j]));
        free(got);
        free_operands(&operands);
    }
    free_operands(&nan);
    test_device_close(&device);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    for (int plan = 0; plan < 2; plan++) {
        struct test_device device;
        test_device_open(&device, plan ? "plan" : test_device_kind(), 1);
        static float data[64];
        /* Refused before anything is queued, so the memory may be the host's, whatever the device. */
        struct tt_gemm_args good = {.a = tt_tensor_2d(data, TT_F32, 2, 3),
                                    .b = tt_tensor_2d(data + 16, TT_F32, 3, 4),
                                    .c = tt_tensor_2d(data + 32, TT_F32, 2, 4),
                                    .alpha = 1};
        if (plan || test_on_cpu()) test_ok(tt_gemm(device.stream, &good));
        struct tt_gemm_args bad = good;
        bad.b = tt_tensor_2d(data + 16, TT_F32, 4, 3);
        test_refused(tt_gemm(device.stream, &bad), TT_ERR_INTERNAL, "a F32[2, 3] and b F32[4, 3] differ");
        bad = good;
        bad.c = tt_tensor_2d(data + 32, TT_F32, 4, 2);
        test_refused(tt_gemm(device.stream, &bad), TT_ERR_INTERNAL,
                     "gemm: c is F32[4, 2], but must be F32[2, 4]");
        bad = good;
        bad.c = tt_tensor_2d(data + 5, TT_F32, 2, 4);
        test_refused(tt_gemm(device.stream, &bad), TT_ERR_INTERNAL, "overlap");
        bad = good;
        bad.a.dtype = TT_F16;
        test_refused(tt_gemm(device.stream, &bad), TT_ERR_UNSUPPORTED, "gemm: a is F16[2, 3]");
        bad = good;
        bad.a.data = NULL;
        test_refused(tt_gemm(device.stream, &bad), TT_ERR_INTERNAL, "without memory");
        bad = good;
        bad.a.strides[1] = 2;
        test_refused(tt_gemm(device.stream, &bad), TT_ERR_INTERNAL, "not contiguous");
        bad = good;
        bad.c.strides[0] = 3;
        test_refused(tt_gemm(device.stream, &bad), TT_ERR_INTERNAL, "rows overlap");
        bad = good;
        bad.b = (tt_tensor){0};
        test_refused(tt_gemm(device.stream, &bad), TT_ERR_INTERNAL, "gemm: b is not given");
        test_device_close(&device);
    }
}

struct bias_case {
    int64_t rows, columns;
    tt_dtype y, bias;
    int64_t gap;
};

static const struct bias_case bias_cases[] = {
    {1, 1, F, F, 0},     {3, 7, F, H, 1}, {3, 8, H, F, 0},     {65, 300, H, H, 3},  {200, 257, F, F, 0},
    {129, 512, H, F, 4}, {0, 5, F, F, 0}, {1000, 33, H, H, 0}, {700, 896, H, H, 0},
};

static void check_bias(const void *row)
{
    const struct bias_case *test = row;
    int64_t count = test->rows * test->columns;
    struct test_tensor y =
        test_tensor_random(test->y, test->rows, test->columns, TEST_UNUSED, test->gap, 1, 1);
    struct test_tensor bias =
        test_tensor_random(test->bias, test->columns, TEST_UNUSED, TEST_UNUSED, 0, 2, 1);
    struct test_tensor dbias = test_tensor_random(TT_F32, test->columns, TEST_UNUSED, TEST_UNUSED, 0, 3, 1);
    struct test_tensor again = test_tensor_copy(&dbias);
    double *y_before = test_tensor_values(&y), *b = test_tensor_values(&bias),
           *d = test_tensor_values(&dbias);
    double *oracle = test_doubles(count), *plain = test_doubles(count);
    double *d_oracle = test_doubles(test->columns), *d_plain = test_doubles(test->columns);
    for (int64_t j = 0; j < test->columns; j++) {
        double exact = 0;
        float sum = (float)d[j];
        for (int64_t i = 0; i < test->rows; i++) {
            double value = y_before[i * test->columns + j];
            oracle[i * test->columns + j] = value + b[j];
            plain[i * test->columns + j] = test_round((float)value + (float)b[j], test->y);
            exact += value;
            sum += (float)value;
        }
        d_oracle[j] = d[j] + exact;
        d_plain[j] = sum;
    }
    struct test_device device;
    test_device_open(&device, test_device_kind(), 1);
    TEST_TO_DEVICE(&device, &y, &dbias);
    test_ok(tt_bias_backward(device.stream,
                             &(struct tt_bias_backward_args){.dy_TN = y.view, .dbias_N = dbias.view}));
    TEST_TO_HOST(&device, &y, &dbias);
    test_device_close(&device);
    test_device_open(&device, test_device_kind(), 3);
    TEST_TO_DEVICE(&device, &y, &bias, &again);
    test_ok(tt_bias_backward(device.stream,
                             &(struct tt_bias_backward_args){.dy_TN = y.view, .dbias_N = again.view}));
    test_ok(
        tt_bias_forward(device.stream, &(struct tt_bias_forward_args){.bias_N = bias.view, .y_TN = y.view}));
    TEST_TO_HOST(&device, &y, &bias, &again);
    test_device_close(&device);
    double *got = test_tensor_values(&y), *d_got = test_tensor_values(&dbias);
    test_close("y", got, oracle, plain, count, test->y, 2);
    test_close("dbias", d_got, d_oracle, d_plain, test->columns, TT_F32, 3);
    test_tensor_equal("1 and 3 threads", &dbias, &again);
    test_tensor_check_gaps("y", &y);
    test_tensor_check_gaps("dbias", &dbias);
    double *all[] = {y_before, b, d, oracle, plain, d_oracle, d_plain, got, d_got};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
    struct test_tensor *tensors[] = {&y, &bias, &dbias, &again};
    for (int i = 0; i < 4; i++) test_tensor_free(tensors[i]);
}

static void bias_forward_and_backward(void **state)
{
    (void)state;
    TEST_CASES("bias", bias_cases, check_bias);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_is_close_and_independent_of_threads),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(sums_wait_between_runs_over_k),
        cmocka_unit_test(beta_zero_never_reads_c),
        cmocka_unit_test(another_addend),
        cmocka_unit_test(empty_dimensions),
        cmocka_unit_test(infinity_stays_in_its_row),
        cmocka_unit_test(earlier_products_leave_nothing_behind),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(bias_forward_and_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
