#include "backend/ops/gated_norm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops/gemm_scaled.h"
#include "ops/isa.h"

struct gated_case {
    int64_t rows, groups, width, gap;
    tt_dtype dtype, weight_dtype;
    enum tt_gate gate;
    bool gate_first, shared, dweight;
};

static const struct gated_case cases[] = {
    {7, 1, 64, 0, TT_F32, TT_F32, TT_GATE_SILU, false, false, true},
    {40, 4, 32, 3, TT_F32, TT_F32, TT_GATE_SILU, false, true, true},
    {40, 4, 33, 5, TT_F32, TT_F32, TT_GATE_SILU, true, false, true},
    {40, 4, 33, 5, TT_F32, TT_BF16, TT_GATE_SIGMOID, false, true, true},
    {33, 2, 20, 0, TT_F32, TT_F32, TT_GATE_SIGMOID, true, true, false},
    {300, 16, 128, 64, TT_BF16, TT_F32, TT_GATE_SILU, false, true, true},
    {65, 8, 96, 0, TT_BF16, TT_BF16, TT_GATE_SILU, true, false, true},
    {600, 3, 5, 0, TT_F32, TT_F32, TT_GATE_SILU, false, false, true}, /* more rows than lines of sums */
    {50, 6, 1, 0, TT_F32, TT_F32, TT_GATE_SILU, false, false, true},
    {0, 2, 8, 0, TT_F32, TT_F32, TT_GATE_SILU, true, false, true},
};

/* The rows of Qwen3.5-9B and of a Nemotron-H with 8 groups. */
static const struct gated_case gpu_cases[] = {
    {700, 32, 128, 0, TT_BF16, TT_F32, TT_GATE_SILU, false, true, true},
    {500, 8, 512, 4096, TT_BF16, TT_BF16, TT_GATE_SILU, true, false, true},
};

enum { X, Z, WEIGHT, DY, Y, RSTD, DX, DZ, DWEIGHT, LINES };
static const char *const names[LINES] = {"x", "z", "weight", "dy", "y", "rstd", "dx", "dz", "dweight"};
static const double eps = 1e-5;

struct problem {
    const struct gated_case *row;
    struct test_tensor tensors[LINES], first[LINES];
    double *exact[LINES], *simple[LINES];
};

#define DEFINE_REFERENCE(name, real, real_sqrt)                                                              \
    static void name(const struct problem *p, double *const v[LINES])                                        \
    {                                                                                                        \
        const struct gated_case *row = p->row;                                                               \
        int64_t G = row->groups, D = row->width;                                                             \
        for (int64_t n = 0; n < row->rows * G; n++) {                                                        \
            const double *x = v[X] + n * D, *z = v[Z] + n * D, *dy = v[DY] + n * D;                          \
            int64_t first = row->shared ? 0 : n % G * D;                                                     \
            real squares = 0, product = 0;                                                                   \
            for (int64_t d = 0; d < D; d++) {                                                                \
                real share = 1 / (1 + (real)exp(-z[d]));                                                     \
                real act = row->gate == TT_GATE_SILU ? (real)z[d] * share : share;                           \
                real u = row->gate_first ? (real)x[d] * act : (real)x[d];                                    \
                squares += u * u;                                                                            \
            }                                                                                                \
            real rstd = 1 / real_sqrt(squares / (real)D + (real)eps);                                        \
            v[RSTD][n] = (double)rstd;                                                                       \
            for (int pass = 0; pass < 2; pass++)                                                             \
                for (int64_t d = 0; d < D; d++) {                                                            \
                    real share = 1 / (1 + (real)exp(-z[d])), w = (real)v[WEIGHT][first + d];                 \
                    bool silu = row->gate == TT_GATE_SILU;                                                   \
                    real act = silu ? (real)z[d] * share : share;                                            \
                    real slope = silu ? share * (1 + (real)z[d] * (1 - share)) : share * (1 - share);        \
                    real hat = (row->gate_first ? (real)x[d] * act : (real)x[d]) * rstd;                     \
                    real after = row->gate_first ? 1 : act, g = (real)dy[d] * w * after;                     \
                    if (pass == 0) {                                                                         \
                        product += g * hat;                                                                  \
                        v[Y][n * D + d] = (double)(w * hat * after);                                         \
                        v[DWEIGHT][first + d] =                                                              \
                            (double)((real)v[DWEIGHT][first + d] + (real)dy[d] * hat * after);               \
                        continue;                                                                            \
                    }                                                                                        \
                    real du = (g - hat * product / (real)D) * rstd;                                          \
                    v[DX][n * D + d] = (double)(row->gate_first ? du * act : du);                            \
                    v[DZ][n * D + d] =                                                                       \
                        (double)(row->gate_first ? du * (real)x[d] * slope : (real)dy[d] * w * hat * slope); \
                }                                                                                            \
        }                                                                                                    \
    }

DEFINE_REFERENCE(oracle, double, sqrt)
DEFINE_REFERENCE(plain, float, sqrtf)

static void make_problem(struct problem *p, const struct gated_case *row)
{
    memset(p, 0, sizeof *p);
    p->row = row;
    for (int i = 0; i < LINES; i++) {
        bool weight = i == WEIGHT || i == DWEIGHT;
        tt_dtype dtype = i == WEIGHT ? row->weight_dtype : i == DWEIGHT || i == RSTD ? TT_F32 : row->dtype;
        int64_t columns = row->groups * row->width;
        if (weight)
            p->tensors[i] = test_tensor_random(dtype, row->shared ? row->width : columns, TEST_UNUSED,
                                               TEST_UNUSED, 0, (uint64_t)i + 1, 1);
        else
            p->tensors[i] = test_tensor_random(dtype, row->rows, i == RSTD ? row->groups : columns,
                                               TEST_UNUSED, i == RSTD ? 0 : row->gap, (uint64_t)i + 1, 1.5);
        if (i >= Y && i != DWEIGHT) test_tensor_poison(&p->tensors[i]);
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

static void run_op(struct test_device *device, const struct gated_case *row, const struct test_tensor *t)
{
    test_ok(tt_gated_norm_forward(device->stream,
                                  &(struct tt_gated_norm_forward_args){.x_TN = t[X].view,
                                                                       .z_TN = t[Z].view,
                                                                       .weight_N = t[WEIGHT].view,
                                                                       .groups = row->groups,
                                                                       .eps = eps,
                                                                       .gate = row->gate,
                                                                       .gate_first = row->gate_first,
                                                                       .y_TN = t[Y].view,
                                                                       .rstd_TG = t[RSTD].view}));
    test_ok(tt_gated_norm_backward(
        device->stream,
        &(struct tt_gated_norm_backward_args){.dy_TN = t[DY].view,
                                              .x_TN = t[X].view,
                                              .z_TN = t[Z].view,
                                              .weight_N = t[WEIGHT].view,
                                              .groups = row->groups,
                                              .gate = row->gate,
                                              .gate_first = row->gate_first,
                                              .rstd_TG = t[RSTD].view,
                                              .dx_TN = t[DX].view,
                                              .dz_TN = t[DZ].view,
                                              .dweight_N = row->dweight ? t[DWEIGHT].view : (tt_tensor){0}}));
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
        if (i >= Y && (i != DWEIGHT || p->row->dweight))
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
    oracle(&p, p.exact);
    plain(&p, p.simple);
    for (int i = Y; i < LINES; i++) {
        int64_t count = tt_tensor_count(p.tensors[i].view);
        for (int64_t j = 0; j < count; j++)
            p.simple[i][j] = (double)test_round((float)p.simple[i][j], p.tensors[i].view.dtype);
    }
    test_on_each_isa(check_run, &p);
    free_problem(&p);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("gated_norm", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("gated_norm", gpu_cases, check_case);
}

static double weighted_output(void *context)
{
    struct problem *p = context;
    oracle(p, p->exact);
    double sum = 0;
    for (int64_t i = 0; i < p->row->rows * p->row->groups * p->row->width; i++)
        sum += p->exact[Y][i] * p->exact[DY][i];
    return sum;
}

static void oracle_agrees_with_finite_differences(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    static const struct gated_case rows[] = {
        {3, 2, 4, 0, TT_F32, TT_F32, TT_GATE_SILU, false, true, true},
        {3, 2, 4, 0, TT_F32, TT_F32, TT_GATE_SILU, true, false, true},
        {3, 2, 4, 0, TT_F32, TT_F32, TT_GATE_SIGMOID, true, false, true},
        {3, 2, 4, 0, TT_F32, TT_F32, TT_GATE_SIGMOID, false, false, true},
    };
    static const int pairs[][2] = {{DX, X}, {DZ, Z}, {DWEIGHT, WEIGHT}};
    for (int r = 0; r < 4; r++) {
        struct problem p;
        make_problem(&p, &rows[r]);
        for (int i = 0; i < 3; i++) {
            int64_t count = tt_tensor_count(p.tensors[pairs[i][1]].view);
            double gradient[24];
            memset(p.exact[DWEIGHT], 0, (size_t)tt_tensor_count(p.tensors[DWEIGHT].view) * sizeof(double));
            weighted_output(&p);
            memcpy(gradient, p.exact[pairs[i][0]], (size_t)count * sizeof *gradient);
            test_gradient(names[pairs[i][0]], weighted_output, &p, p.exact[pairs[i][1]], gradient, count);
        }
        free_problem(&p);
    }
}

/* All the aliases that the header allows give the bits of separate tensors, and rows in FP8 are those of y. */
static void in_place_and_coded(void **state)
{
    (void)state;
    const struct gated_case row = {9, 2, 32, 2, TT_BF16, TT_F32, TT_GATE_SILU, false, true, true};
    struct problem p;
    struct test_device device;
    make_problem(&p, &row);
    test_device_open(&device, test_device_kind(), 1);
    struct test_tensor apart[LINES], alias[LINES];
    for (int i = 0; i < LINES; i++) {
        apart[i] = test_tensor_copy(&p.tensors[i]);
        alias[i] = test_tensor_copy(&p.tensors[i]);
    }
    struct test_tensor codes = test_tensor_make(TT_U8, 9, 64, TEST_UNUSED, 0),
                       others = test_tensor_copy(&codes);
    struct test_tensor scale = test_tensor_make(TT_F32, 9, TEST_UNUSED, TEST_UNUSED, 0),
                       other = test_tensor_copy(&scale);
    test_array_to_device(&device, apart, LINES);
    test_array_to_device(&device, alias, LINES);
    TEST_TO_DEVICE(&device, &codes, &others, &scale, &other);
    run_op(&device, &row, apart);
    tt_tensor of_codes = codes.view, of_others = others.view;
    of_codes.dtype = of_others.dtype = TT_F8_E4M3;
    test_ok(tt_quantize_rows(device.stream,
                             &(struct tt_quantize_rows_args){apart[Y].view, of_others, other.view}));
    struct test_tensor shared[LINES];
    memcpy(shared, alias, sizeof shared);
    shared[DX] = shared[DY];
    shared[DZ] = shared[Z];
    run_op(&device, &row, shared);
    test_ok(tt_gated_norm_forward(device.stream,
                                  &(struct tt_gated_norm_forward_args){.x_TN = apart[X].view,
                                                                       .z_TN = apart[Z].view,
                                                                       .weight_N = apart[WEIGHT].view,
                                                                       .groups = row.groups,
                                                                       .eps = eps,
                                                                       .y_TN = apart[Z].view,
                                                                       .codes_TN = of_codes,
                                                                       .scale_T = scale.view}));
    test_array_to_host(&device, apart, LINES);
    test_array_to_host(&device, alias, LINES);
    TEST_TO_HOST(&device, &codes, &others, &scale, &other);
    test_tensor_equal("y on z", &apart[Z], &apart[Y]);
    test_tensor_equal("y", &alias[Y], &apart[Y]);
    test_tensor_equal("dx on dy", &alias[DY], &apart[DX]);
    test_tensor_equal("dz on z", &alias[Z], &apart[DZ]);
    test_tensor_equal("dweight", &alias[DWEIGHT], &apart[DWEIGHT]);
    test_tensor_equal("codes", &codes, &others);
    test_tensor_equal("scale", &scale, &other);
    test_device_close(&device);
    test_array_free(apart, LINES);
    test_array_free(alias, LINES);
    test_tensor_free(&codes);
    test_tensor_free(&others);
    test_tensor_free(&scale);
    test_tensor_free(&other);
    free_problem(&p);
}

#define REFUSE(op, good, change, message)                                                                    \
    do {                                                                                                     \
        __typeof__(good) args = good;                                                                        \
        change;                                                                                              \
        test_refused(op(device.stream, &args), TT_ERR_INTERNAL, message);                                    \
    } while (0)

static void hostile_arguments(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    struct test_device device;
    static float memory[8][256];
    test_device_open(&device, "cpu", 1);
    struct tt_gated_norm_forward_args good = {.x_TN = tt_tensor_2d(memory[0], TT_F32, 4, 16),
                                              .z_TN = tt_tensor_2d(memory[1], TT_F32, 4, 16),
                                              .weight_N = tt_tensor_1d(memory[2], TT_F32, 8),
                                              .groups = 2,
                                              .y_TN = tt_tensor_2d(memory[3], TT_F32, 4, 16)};
    test_ok(tt_gated_norm_forward(device.stream, &good));
    REFUSE(tt_gated_norm_forward, good, args.groups = 3, "16 columns have no 3 equal groups");
    REFUSE(tt_gated_norm_forward, good, args.weight_N.dims[0] = 4,
           "a weight of 4 is neither for 16 columns nor for one of 2 groups");
    REFUSE(tt_gated_norm_forward, good, args.eps = -1, "gated_norm_forward: eps -1 is negative");
    REFUSE(tt_gated_norm_forward, good, args.rstd_TG = tt_tensor_2d(memory[4], TT_F32, 4, 3),
           "gated_norm_forward: rstd");
    struct tt_gated_norm_backward_args backward = {.dy_TN = good.y_TN,
                                                   .x_TN = good.x_TN,
                                                   .z_TN = good.z_TN,
                                                   .weight_N = good.weight_N,
                                                   .groups = 2,
                                                   .rstd_TG = tt_tensor_2d(memory[4], TT_F32, 4, 2),
                                                   .dx_TN = tt_tensor_2d(memory[5], TT_F32, 4, 16),
                                                   .dz_TN = tt_tensor_2d(memory[6], TT_F32, 4, 16)};
    test_ok(tt_gated_norm_backward(device.stream, &backward));
    REFUSE(tt_gated_norm_backward, backward, args.dz_TN = args.x_TN, "overlap in memory");
    REFUSE(tt_gated_norm_backward, backward, args.dweight_N = tt_tensor_1d(memory[7], TT_F32, 16),
           "gated_norm_backward: dweight");
    test_device_close(&device);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_agrees_with_finite_differences),
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(in_place_and_coded),
        cmocka_unit_test(hostile_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
