#include "backend/ops/rmsnorm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/isa.h"

/* heads 0: rank 2. */
struct rmsnorm_case {
    int64_t rows, heads, width, gap;
    tt_dtype dtype, weight_dtype;
    bool residual, dres, dweight;
    double size;
    float offset;
    bool bare; /* without a weight */
};

static const struct rmsnorm_case cases[] = {
    {7, 0, 64, 0, TT_F32, TT_F32, false, false, true, 1, 0, false},
    {7, 0, 64, 0, TT_BF16, TT_BF16, false, false, true, 1, 0, false},
    {40, 0, 896, 0, TT_BF16, TT_F32, true, true, true, 1, 0, false},
    {40, 0, 896, 8, TT_F32, TT_BF16, true, true, true, 1, 0, false},
    {300, 0, 33, 3, TT_F32, TT_F32, true, false, true, 1, 0, false},
    {300, 0, 33, 3, TT_BF16, TT_BF16, false, true, true, 1, 0, false},
    {2000, 0, 20, 0, TT_F32, TT_F32, false, false, true, 1, 0, false},
    {100, 6, 64, 64, TT_BF16, TT_BF16, false, false, true, 1, 0, false},
    {33, 5, 128, 7, TT_F32, TT_F32, false, true, true, 1, 0, false},
    {3, 2, 16, 1, TT_F32, TT_F32, true, true, false, 1, 0, false},
    {50, 0, 1, 0, TT_F32, TT_F32, false, false, false, 1, 0, false},
    {5, 0, 4097, 1, TT_BF16, TT_F32, true, true, false, 1, 0, false},
    {1, 0, 15, 0, TT_F32, TT_F32, false, false, true, 1, 0, false},
    {0, 0, 64, 0, TT_F32, TT_F32, true, true, true, 1, 0, false},
    {40, 0, 333, 3, TT_F32, TT_F32, true, true, true, 1, 1, false},
    {40, 0, 896, 8, TT_BF16, TT_BF16, true, true, true, 1, 1, false},
    {33, 5, 128, 7, TT_BF16, TT_F32, false, true, true, 1, 1, false},
    {4, 0, 256, 0, TT_F32, TT_F32, false, false, true, 1e-4, 0, false}, /* eps counts */
    {4, 0, 256, 0, TT_F32, TT_F32, false, false, true, 1e6, 0, false},
    {40, 0, 333, 3, TT_F32, TT_F32, true, true, false, 1, 1, true},
    {33, 5, 128, 7, TT_BF16, TT_F32, false, true, false, 1, 1, true},
    {7, 0, 64, 0, TT_F32, TT_BF16, false, false, false, 1, 3, true},
};

static const struct rmsnorm_case gpu_cases[] = {
    {500, 0, 4096, 0, TT_BF16, TT_BF16, true, true, true, 1, 0, false},
    {257, 0, 8192, 0, TT_BF16, TT_BF16, true, true, false, 1, 0, false},
    {1500, 0, 1024, 0, TT_BF16, TT_F32, false, true, true, 1, 0, false},
    {300, 0, 5120, 0, TT_BF16, TT_BF16, true, false, false, 1, 0, false},
    {1001, 0, 1537, 1, TT_BF16, TT_BF16, true, true, true, 1, 0, false},
    {130, 32, 128, 0, TT_BF16, TT_BF16, false, false, true, 1, 0, false},
    {515, 8, 128, 5120, TT_BF16, TT_BF16, false, false, true, 1, 0, false}, /* keys of a fused q, k, v */
    {70000, 0, 16, 0, TT_BF16, TT_BF16, true, true, true, 1, 0, false},
    {515, 8, 128, 5120, TT_BF16, TT_F32, false, false, false, 1, 1, true},
};

enum { X, RESIDUAL, WEIGHT, DY, DRES, SUM, Y, RSTD, DX, DWEIGHT, LINES };

static const char *const names[LINES] = {"x",   "residual", "weight", "dy", "dres",
                                         "sum", "y",        "rstd",   "dx", "dweight"};

static const double eps = 1e-5;

/* `real` is the type of the arithmetic, `stored` that of what is stored and read again. */
#define DEFINE_REFERENCE(name, real, real_sqrt, round_stored)                                                \
    static void name(const struct rmsnorm_case *row, int64_t rows, double *const v[LINES])                   \
    {                                                                                                        \
        int64_t D = row->width;                                                                              \
        _Pragma("omp parallel for if (TEST_IS_LARGE(rows * D))") for (int64_t n = 0; n < rows; n++)          \
        {                                                                                                    \
            const double *dy = v[DY] + n * D;                                                                \
            double *x = v[SUM] + n * D;                                                                      \
            real squares = 0, product = 0;                                                                   \
            for (int64_t d = 0; d < D; d++) {                                                                \
                x[d] = v[X][n * D + d];                                                                      \
                if (row->residual) x[d] = round_stored(x[d] + v[RESIDUAL][n * D + d], row->dtype);           \
                squares += (real)x[d] * (real)x[d];                                                          \
            }                                                                                                \
            real rstd = 1 / real_sqrt(squares / (real)D + (real)eps);                                        \
            v[RSTD][n] = (double)rstd;                                                                       \
            for (int64_t d = 0; d < D; d++) {                                                                \
                v[Y][n * D + d] = (double)(((real)row->offset + (real)v[WEIGHT][d]) * ((real)x[d] * rstd));  \
                product += (real)dy[d] * ((real)row->offset + (real)v[WEIGHT][d]) * ((real)x[d] * rstd);     \
            }                                                                                                \
            for (int64_t d = 0; d < D; d++) {                                                                \
                real xhat = (real)x[d] * rstd, g = (real)dy[d] * ((real)row->offset + (real)v[WEIGHT][d]);   \
                real dx = rstd * (g - xhat * (product / (real)D));                                           \
                if (row->dres) dx += (real)v[DRES][n * D + d];                                               \
                v[DX][n * D + d] = (double)dx;                                                               \
            }                                                                                                \
        }                                                                                                    \
        for (int64_t n = 0; n < rows; n++)                                                                   \
            for (int64_t d = 0; d < D; d++) {                                                                \
                real xhat = (real)v[SUM][n * D + d] * (real)v[RSTD][n];                                      \
                v[DWEIGHT][d] = (double)((real)v[DWEIGHT][d] + (real)v[DY][n * D + d] * xhat);               \
            }                                                                                                \
    }

/* x + residual is part of the op's contract: rounded to the type, in the oracle as well. */
static double rounded(double value, tt_dtype dtype)
{
    return (double)test_round((float)value, dtype);
}

static double unrounded(double value, tt_dtype dtype)
{
    (void)dtype;
    return value;
}

DEFINE_REFERENCE(oracle, double, sqrt, rounded)
DEFINE_REFERENCE(plain, float, sqrtf, rounded)
DEFINE_REFERENCE(smooth_oracle, double, sqrt, unrounded)

struct problem {
    const struct rmsnorm_case *row;
    int64_t rows;
    struct test_tensor tensors[LINES], first[LINES];
    double *exact[LINES], *simple[LINES];
};

static void make_problem(struct problem *p, const struct rmsnorm_case *row)
{
    memset(p, 0, sizeof *p);
    p->row = row;
    p->rows = row->rows * (row->heads > 0 ? row->heads : 1);
    for (int i = 0; i < LINES; i++) {
        if (i == WEIGHT || i == DWEIGHT)
            p->tensors[i] = test_tensor_random(i == WEIGHT ? row->weight_dtype : TT_F32, row->width,
                                               TEST_UNUSED, TEST_UNUSED, 0, (uint64_t)i + 1, 1);
        else if (i == RSTD)
            p->tensors[i] = test_tensor_make(TT_F32, p->rows, TEST_UNUSED, TEST_UNUSED, 0);
        else
            p->tensors[i] = row->heads > 0
                                ? test_tensor_random(row->dtype, row->rows, row->heads, row->width, row->gap,
                                                     (uint64_t)i + 1, row->size)
                                : test_tensor_random(row->dtype, row->rows, row->width, TEST_UNUSED, row->gap,
                                                     (uint64_t)i + 1, row->size);
        if (i >= SUM && i != DWEIGHT) test_tensor_poison(&p->tensors[i]);
        if (i == WEIGHT && row->bare)
            memset(p->tensors[i].view.data, 0, (size_t)row->width * tt_dtype_bytes(row->weight_dtype));
    }
    for (int i = 0; i < LINES; i++) {
        p->exact[i] = test_tensor_values(&p->tensors[i]);
        p->simple[i] = test_tensor_values(&p->tensors[i]);
    }
}

static void free_problem(struct problem *p)
{
    test_array_free(p->tensors, LINES);
    test_array_free(p->first, LINES);
    test_free_values(p->exact, LINES);
    test_free_values(p->simple, LINES);
}

static void run_op(struct test_device *device, const struct rmsnorm_case *row, struct test_tensor *const t)
{
    const tt_tensor none = {0};
    test_ok(tt_rmsnorm_forward(device->stream, &(struct tt_rmsnorm_forward_args){
                                                   .x_ND = t[X].view,
                                                   .residual_ND = row->residual ? t[RESIDUAL].view : none,
                                                   .weight_D = row->bare ? none : t[WEIGHT].view,
                                                   .offset = row->offset,
                                                   .eps = eps,
                                                   .sum_ND = row->residual ? t[SUM].view : none,
                                                   .y_ND = t[Y].view,
                                                   .rstd_N = t[RSTD].view}));
    test_ok(tt_rmsnorm_backward(device->stream, &(struct tt_rmsnorm_backward_args){
                                                    .dy_ND = t[DY].view,
                                                    .x_ND = row->residual ? t[SUM].view : t[X].view,
                                                    .weight_D = row->bare ? none : t[WEIGHT].view,
                                                    .offset = row->offset,
                                                    .rstd_N = t[RSTD].view,
                                                    .dres_ND = row->dres ? t[DRES].view : none,
                                                    .dx_ND = t[DX].view,
                                                    .dweight_D = row->dweight ? t[DWEIGHT].view : none}));
}

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor tensors[LINES];
    for (int i = 0; i < LINES; i++) tensors[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, tensors, LINES);
    run_op(device, p->row, tensors);
    test_array_to_host(device, tensors, LINES);
    for (int i = 0; i < LINES; i++) {
        bool touched = i >= SUM && (i != SUM || p->row->residual) && (i != DWEIGHT || p->row->dweight);
        if (touched)
            test_check_result(names[i], tensors[i], threads, p->exact[i], p->simple[i], i >= DX ? 3 : 2,
                              &p->first[i]);
        else
            test_check_untouched(names[i], &tensors[i], &p->tensors[i]);
    }
}

static void check_case(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    oracle(p.row, p.rows, p.exact);
    plain(p.row, p.rows, p.simple);
    for (int i = SUM; i < LINES; i++) {
        int64_t count = tt_tensor_count(p.tensors[i].view);
        for (int64_t j = 0; j < count; j++) p.simple[i][j] = rounded(p.simple[i][j], p.tensors[i].view.dtype);
    }
    test_on_each_isa(check_run, &p);
    free_problem(&p);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("rmsnorm", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("rmsnorm", gpu_cases, check_case);
}

static double weighted_output(void *context)
{
    struct problem *p = context;
    smooth_oracle(p->row, p->rows, p->exact);
    double sum = 0;
    for (int64_t i = 0; i < p->rows * p->row->width; i++)
        sum += p->exact[Y][i] * p->exact[DY][i] + p->exact[SUM][i] * p->exact[DRES][i];
    return sum;
}

static void oracle_agrees_with_finite_differences(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    const struct rmsnorm_case row = {3, 0, 7, 0, TT_F32, TT_F32, true, true, true, 1, 0, false};
    struct problem p;
    make_problem(&p, &row);
    for (int64_t d = 0; d < row.width; d++) p.exact[DWEIGHT][d] = 0;
    weighted_output(&p);
    double dx[21], dweight[7];
    memcpy(dx, p.exact[DX], sizeof dx);
    memcpy(dweight, p.exact[DWEIGHT], sizeof dweight);
    test_gradient("dx", weighted_output, &p, p.exact[X], dx, 21);
    test_gradient("dresidual", weighted_output, &p, p.exact[RESIDUAL], dx, 21);
    test_gradient("dweight", weighted_output, &p, p.exact[WEIGHT], dweight, 7);
    free_problem(&p);
}

/* All the aliases that the header allows give the bits of separate tensors. */
static void in_place(void **state)
{
    (void)state;
    const struct rmsnorm_case row = {9, 0, 37, 2, TT_BF16, TT_F32, true, true, true, 1, 0, false};
    struct problem p;
    struct test_device device;
    make_problem(&p, &row);
    test_device_open(&device, test_device_kind(), 1);
    struct test_tensor apart[LINES], alias[LINES];
    for (int i = 0; i < LINES; i++) {
        apart[i] = test_tensor_copy(&p.tensors[i]);
        alias[i] = test_tensor_copy(&p.tensors[i]);
    }
    test_array_to_device(&device, apart, LINES);
    test_array_to_device(&device, alias, LINES);
    run_op(&device, &row, apart);
    struct test_tensor shared[LINES];
    memcpy(shared, alias, sizeof shared);
    shared[SUM] = shared[X];
    shared[DX] = shared[DY];
    run_op(&device, &row, shared);
    test_array_to_host(&device, apart, LINES);
    test_array_to_host(&device, alias, LINES);
    test_tensor_equal("sum on x", &alias[X], &apart[SUM]);
    test_tensor_equal("y", &alias[Y], &apart[Y]);
    test_tensor_equal("dx on dy", &alias[DY], &apart[DX]);
    test_tensor_equal("dweight", &alias[DWEIGHT], &apart[DWEIGHT]);
    test_device_close(&device);
    for (int i = 0; i < LINES; i++) {
        test_tensor_free(&apart[i]);
        test_tensor_free(&alias[i]);
    }
    free_problem(&p);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_agrees_with_finite_differences),
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
