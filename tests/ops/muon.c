#include "backend/ops/muon.h"

#include <math.h>
#include <stdlib.h>

#include "ops/isa.h"

struct muon_case {
    int64_t count;
    tt_dtype dtype;
    double momentum, grad_scale, size;
    bool nesterov;
};

static const struct muon_case cases[] = {
    {1000, TT_F32, 0.95, 1, 1, true},    {1000, TT_BF16, 0.95, 1, 1, true},
    {40001, TT_F32, 0.9, 0.3, 1, false}, {40001, TT_BF16, 0.3, 0.3, 1, true},
    {7, TT_BF16, 0.95, 1, 1e-3, true},   {16384, TT_BF16, 0.5, 1, 1, true},
    {300, TT_F32, 0, 1, 1, true},        {0, TT_F32, 0.9, 1, 1, true},
    {33, TT_F32, 0.95, 1, 1e4, false},
};

static const struct muon_case gpu_cases[] = {
    {3000001, TT_BF16, 0.95, 0.5, 1, true},
    {3000000, TT_F32, 0.95, 0.5, 1, true},
};

enum { GRAD, M, Y, LINES };

static const char *const names[LINES] = {"grad", "m", "y"};

/* The header's formula as it stands there. */
#define DEFINE_DIRECTION(name, real, round)                                                                  \
    static void name(const struct muon_case *c, double *const v[LINES])                                      \
    {                                                                                                        \
        real momentum = (real)c->momentum;                                                                   \
        for (int64_t i = 0; i < c->count; i++) {                                                             \
            real g = (real)v[GRAD][i] * (real)(float)c->grad_scale, m = (real)v[M][i];                       \
            m += (1 - momentum) * (g - m);                                                                   \
            v[M][i] = (double)m;                                                                             \
            v[Y][i] = round(c->nesterov ? g + momentum * (m - g) : m, c->dtype);                             \
        }                                                                                                    \
    }

static double exactly(double value, tt_dtype dtype)
{
    (void)dtype;
    return value;
}

static double rounded(float value, tt_dtype dtype)
{
    return (double)test_round(value, dtype);
}

DEFINE_DIRECTION(direction_oracle, double, exactly)
DEFINE_DIRECTION(direction_plain, float, rounded)

struct problem {
    const struct muon_case *row;
    struct test_tensor tensors[LINES], first[LINES];
    double *exact[LINES], *simple[LINES];
};

static void check_direction(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor t[LINES];
    for (int i = 0; i < LINES; i++) t[i] = test_tensor_copy(&p->tensors[i]);
    test_tensor_poison(&t[Y]);
    test_array_to_device(device, t, LINES);
    struct tt_muon_direction_args args = {.grad = t[GRAD].view,
                                          .m = t[M].view,
                                          .y = t[Y].view,
                                          .momentum = p->row->momentum,
                                          .grad_scale = (float)p->row->grad_scale,
                                          .nesterov = p->row->nesterov};
    test_ok(tt_muon_direction(device->stream, &args));
    test_array_to_host(device, t, LINES);
    for (int i = 0; i < LINES; i++)
        test_check_result(names[i], t[i], threads, p->exact[i], p->simple[i], 2, &p->first[i]);
}

static void check_direction_case(const void *row)
{
    struct problem p = {.row = row};
    for (int i = 0; i < LINES; i++) {
        tt_dtype dtype = i == Y ? p.row->dtype : TT_F32;
        p.tensors[i] = test_tensor_random(dtype, p.row->count, TEST_UNUSED, TEST_UNUSED, 0, (uint64_t)i + 1,
                                          i == GRAD ? p.row->size : 1);
        p.exact[i] = test_tensor_values(&p.tensors[i]);
        p.simple[i] = test_tensor_values(&p.tensors[i]);
    }
    direction_oracle(p.row, p.exact);
    direction_plain(p.row, p.simple);
    test_on_each_isa(check_direction, &p);
    test_array_free(p.tensors, LINES);
    test_array_free(p.first, LINES);
    test_free_values(p.exact, LINES);
    test_free_values(p.simple, LINES);
}

struct norm_problem {
    struct test_tensor x, first;
    double *exact, *simple, squares;
};

static const double eps = 1e-7;

static void check_norm(struct test_device *device, int threads, void *context)
{
    struct norm_problem *p = context;
    struct test_tensor x = test_tensor_copy(&p->x);
    struct test_tensor squares = test_tensor_make(TT_F64, 1, TEST_UNUSED, TEST_UNUSED, 0);
    test_tensor_poison(&squares);
    TEST_TO_DEVICE(device, &x, &squares);
    struct tt_muon_normalize_args args = {.x = x.view, .squares = squares.view, .eps = eps};
    test_ok(tt_muon_normalize(device->stream, &args));
    TEST_TO_HOST(device, &x, &squares);
    double sum = *(double *)squares.view.data;
    /* The oracle adds one number after the other. */
    double room = fmax(1e-13, 0x1p-53 * (double)tt_tensor_count(p->x.view));
    if (fabs(sum - p->squares) > room * p->squares)
        fail_msg("sum of squares %.17g, not %.17g", sum, p->squares);
    test_check_result("x", x, threads, p->exact, p->simple, 2, &p->first);
    test_tensor_free(&squares);
}

/* The norm is a value of x's type. */
static void check_norm_case(const void *row)
{
    const struct muon_case *c = row;
    struct norm_problem p = {
        .x = test_tensor_random(c->dtype, c->count, TEST_UNUSED, TEST_UNUSED, 0, 5, c->size)};
    p.exact = test_tensor_values(&p.x);
    p.simple = test_tensor_values(&p.x);
    for (int64_t i = 0; i < c->count; i++) p.squares += p.exact[i] * p.exact[i];
    float norm = test_round((float)sqrt(p.squares), c->dtype);
    double divisor = fmax((double)norm, (double)(float)eps);
    for (int64_t i = 0; i < c->count; i++) {
        p.simple[i] = (double)test_round((float)p.exact[i] / (float)divisor, c->dtype);
        p.exact[i] /= divisor;
    }
    test_on_each_isa(check_norm, &p);
    test_tensor_free(&p.x);
    test_tensor_free(&p.first);
    free(p.exact);
    free(p.simple);
}

static void check_apply(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor t[2] = {test_tensor_copy(&p->tensors[M]), test_tensor_copy(&p->tensors[Y])};
    test_array_to_device(device, t, 2);
    struct tt_muon_apply_args args = {
        .param = t[0].view, .x = t[1].view, .lr = 0.02 * p->row->size, .decay = 0.002};
    test_ok(tt_muon_apply(device->stream, &args));
    test_array_to_host(device, t, 2);
    test_check_result("param", t[0], threads, p->exact[M], p->simple[M], 2, &p->first[M]);
    test_check_result("x", t[1], threads, p->exact[Y], p->exact[Y], 2, &p->first[Y]);
}

static void check_apply_case(const void *row)
{
    struct problem p = {.row = row};
    for (int i = M; i < LINES; i++) {
        p.tensors[i] = test_tensor_random(i == Y ? p.row->dtype : TT_F32, p.row->count, TEST_UNUSED,
                                          TEST_UNUSED, 0, (uint64_t)i + 7, 1);
        p.exact[i] = test_tensor_values(&p.tensors[i]);
        p.simple[i] = test_tensor_values(&p.tensors[i]);
    }
    for (int64_t i = 0; i < p.row->count; i++) {
        float param = (float)p.exact[M][i] * (float)(1 - 0.002);
        p.simple[M][i] = (double)(param - (float)(0.02 * p.row->size) * (float)p.exact[Y][i]);
        p.exact[M][i] = p.exact[M][i] * (1 - 0.002) - 0.02 * p.row->size * p.exact[Y][i];
    }
    test_on_each_isa(check_apply, &p);
    for (int i = M; i < LINES; i++) {
        test_tensor_free(&p.tensors[i]);
        test_tensor_free(&p.first[i]);
        free(p.exact[i]);
        free(p.simple[i]);
    }
}

static void directions_follow_the_formula(void **state)
{
    (void)state;
    TEST_CASES("muon_direction", cases, check_direction_case);
}

static void matrices_are_divided_by_their_norm(void **state)
{
    (void)state;
    TEST_CASES("muon_normalize", cases, check_norm_case);
}

static void updates_follow_the_formula(void **state)
{
    (void)state;
    TEST_CASES("muon_apply", cases, check_apply_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("muon_direction", gpu_cases, check_direction_case);
    TEST_CASES("muon_normalize", gpu_cases, check_norm_case);
    TEST_CASES("muon_apply", gpu_cases, check_apply_case);
}

/* A matrix of zeros stays one. */
static void check_zeros(struct test_device *device, int threads, void *context)
{
    (void)threads, (void)context;
    struct test_tensor x = test_tensor_make(TT_BF16, 50, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_tensor squares = test_tensor_make(TT_F64, 1, TEST_UNUSED, TEST_UNUSED, 0);
    TEST_TO_DEVICE(device, &x, &squares);
    struct tt_muon_normalize_args args = {.x = x.view, .squares = squares.view, .eps = eps};
    test_ok(tt_muon_normalize(device->stream, &args));
    TEST_TO_HOST(device, &x, &squares);
    double *values = test_tensor_values(&x);
    for (int i = 0; i < 50; i++) assert_true(values[i] == 0);
    free(values);
    test_tensor_free(&x);
    test_tensor_free(&squares);
}

static void zeros_stay_zero(void **state)
{
    (void)state;
    test_on_each_isa(check_zeros, NULL);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(directions_follow_the_formula),
        cmocka_unit_test(matrices_are_divided_by_their_norm),
        cmocka_unit_test(updates_follow_the_formula),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(zeros_stay_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
