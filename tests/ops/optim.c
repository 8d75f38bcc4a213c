#include "backend/ops/optim.h"

#include <math.h>
#include <stdlib.h>

#include "ops/isa.h"

struct adamw_case {
    int64_t count, steps;
    double lr, beta1, beta2, eps, weight_decay, grad_scale, size;
};

static const struct adamw_case cases[] = {
    {1000, 1, 1e-3, 0.9, 0.999, 1e-8, 0.01, 1, 1},  {1000, 20, 1e-3, 0.9, 0.999, 1e-8, 0.01, 1, 1},
    {40001, 3, 1e-2, 0.8, 0.95, 1e-6, 0, 0.3, 1},   {7, 5, 1e-3, 0.9, 0.999, 1e-8, 0.1, 1, 1},
    {300, 5, 1e-3, 0.9, 0.999, 1e-8, 0.1, 1, 1e-9}, {300, 5, 1e-3, 0.9, 0.999, 1e-8, 0.1, 1, 1e4},
    {0, 1, 1e-3, 0.9, 0.999, 1e-8, 0.01, 1, 1},     {50, 2, 0, 0.9, 0.999, 1e-8, 0.5, 1, 1},
};

static const struct adamw_case gpu_cases[] = {
    {3000001, 2, 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.5, 1},
};

enum { PARAM, GRAD, M, V, LINES };

static const char *const names[LINES] = {"param", "grad", "m", "v"};

/* The header's formula as it stands there. */
#define DEFINE_REFERENCE(name, real, real_sqrt)                                                              \
    static void name(const struct adamw_case *c, int64_t step, double *const v[LINES])                       \
    {                                                                                                        \
        real b1 = (real)c->beta1, b2 = (real)c->beta2, lr = (real)c->lr;                                     \
        for (int64_t i = 0; i < c->count; i++) {                                                             \
            real g = (real)v[GRAD][i] * (real)(float)c->grad_scale, p = (real)v[PARAM][i];                   \
            p -= lr * (real)c->weight_decay * p;                                                             \
            real m = b1 * (real)v[M][i] + (1 - b1) * g, s = b2 * (real)v[V][i] + (1 - b2) * g * g;           \
            real c1 = (real)(1 - pow(c->beta1, (double)step)), c2 = (real)(1 - pow(c->beta2, (double)step)); \
            p -= lr / c1 * m / (real_sqrt(s) / real_sqrt(c2) + (real)c->eps);                                \
            v[PARAM][i] = (double)p;                                                                         \
            v[M][i] = (double)m;                                                                             \
            v[V][i] = (double)s;                                                                             \
        }                                                                                                    \
    }

DEFINE_REFERENCE(oracle, double, sqrt)
DEFINE_REFERENCE(plain, float, sqrtf)

struct problem {
    const struct adamw_case *row;
    struct test_tensor tensors[LINES], first[LINES];
    double *exact[LINES], *simple[LINES];
};

/* All steps with one gradient: the moments move, and so does their correction. */
static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor t[LINES];
    for (int i = 0; i < LINES; i++) t[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, t, LINES);
    for (int64_t step = 1; step <= p->row->steps; step++) {
        struct tt_adamw_args args = {.param = t[PARAM].view,
                                     .grad = t[GRAD].view,
                                     .m = t[M].view,
                                     .v = t[V].view,
                                     .lr = p->row->lr,
                                     .beta1 = p->row->beta1,
                                     .beta2 = p->row->beta2,
                                     .eps = p->row->eps,
                                     .weight_decay = p->row->weight_decay,
                                     .grad_scale = (float)p->row->grad_scale,
                                     .step = step};
        test_ok(tt_adamw(device->stream, &args));
    }
    test_array_to_host(device, t, LINES);
    for (int i = 0; i < LINES; i++)
        test_check_result(names[i], t[i], threads, p->exact[i], p->simple[i], 2, &p->first[i]);
}

static void check_case(const void *row)
{
    struct problem p = {.row = row};
    for (int i = 0; i < LINES; i++) {
        p.tensors[i] = i == M || i == V ? test_tensor_make(TT_F32, p.row->count, TEST_UNUSED, TEST_UNUSED, 0)
                                        : test_tensor_random(TT_F32, p.row->count, TEST_UNUSED, TEST_UNUSED,
                                                             0, (uint64_t)i + 1, i == GRAD ? p.row->size : 1);
        p.exact[i] = test_tensor_values(&p.tensors[i]);
        p.simple[i] = test_tensor_values(&p.tensors[i]);
    }
    for (int64_t step = 1; step <= p.row->steps; step++) {
        oracle(p.row, step, p.exact);
        plain(p.row, step, p.simple);
    }
    test_on_each_isa(check_run, &p);
    test_array_free(p.tensors, LINES);
    test_array_free(p.first, LINES);
    test_free_values(p.exact, LINES);
    test_free_values(p.simple, LINES);
}

struct sgd_case {
    int64_t count, steps;
    double lr, momentum, weight_decay, grad_scale;
    bool nesterov, has_v;
};

static const struct sgd_case sgd_cases[] = {
    {40001, 4, 0.1, 0.9, 0.01, 0.5, false, true}, {40001, 4, 0.1, 0.9, 0.01, 0.5, true, true},
    {40001, 4, 0.1, 0, 0.01, 0.5, false, false},  {1000, 3, 0.1, 0, 0, 1, false, true},
    {7, 20, 1e-2, 0.95, 0.1, 1, true, true},      {0, 1, 0.1, 0.9, 0, 1, false, true},
};

static const struct sgd_case sgd_gpu_cases[] = {{3000001, 2, 0.1, 0.9, 0.01, 0.5, false, true}};

/* The header's formula as it stands there; the value V is the momentum. */
#define DEFINE_SGD(name, real)                                                                               \
    static void name(const struct sgd_case *c, double *const value[LINES])                                   \
    {                                                                                                        \
        for (int64_t i = 0; i < c->count; i++) {                                                             \
            real p = (real)value[PARAM][i];                                                                  \
            real g = (real)value[GRAD][i] * (real)(float)c->grad_scale + (real)c->weight_decay * p;          \
            real v = (real)c->momentum * (real)value[V][i] + g;                                              \
            p -= (real)c->lr * (c->nesterov ? g + (real)c->momentum * v : v);                                \
            value[PARAM][i] = (double)p;                                                                     \
            if (c->has_v) value[V][i] = (double)v;                                                           \
        }                                                                                                    \
    }

DEFINE_SGD(sgd_oracle, double)
DEFINE_SGD(sgd_plain, float)

struct sgd_problem {
    const struct sgd_case *row;
    struct test_tensor tensors[LINES], first[LINES];
    double *exact[LINES], *simple[LINES];
};

static void check_sgd_run(struct test_device *device, int threads, void *context)
{
    struct sgd_problem *p = context;
    struct test_tensor t[LINES];
    for (int i = 0; i < LINES; i++) t[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, t, LINES);
    for (int64_t step = 0; step < p->row->steps; step++) {
        struct tt_sgd_args args = {.param = t[PARAM].view,
                                   .grad = t[GRAD].view,
                                   .lr = p->row->lr,
                                   .momentum = p->row->momentum,
                                   .weight_decay = p->row->weight_decay,
                                   .grad_scale = (float)p->row->grad_scale,
                                   .nesterov = p->row->nesterov};
        if (p->row->has_v) args.v = t[V].view;
        test_ok(tt_sgd(device->stream, &args));
    }
    test_array_to_host(device, t, LINES);
    for (int i = 0; i < LINES; i++)
        test_check_result(names[i], t[i], threads, p->exact[i], p->simple[i], 2, &p->first[i]);
}

static void check_sgd_case(const void *row)
{
    struct sgd_problem p = {.row = row};
    for (int i = 0; i < LINES; i++) {
        p.tensors[i] = i == M || i == V ? test_tensor_make(TT_F32, p.row->count, TEST_UNUSED, TEST_UNUSED, 0)
                                        : test_tensor_random(TT_F32, p.row->count, TEST_UNUSED, TEST_UNUSED,
                                                             0, (uint64_t)i + 1, 1);
        p.exact[i] = test_tensor_values(&p.tensors[i]);
        p.simple[i] = test_tensor_values(&p.tensors[i]);
    }
    for (int64_t step = 0; step < p.row->steps; step++) {
        sgd_oracle(p.row, p.exact);
        sgd_plain(p.row, p.simple);
    }
    test_on_each_isa(check_sgd_run, &p);
    test_array_free(p.tensors, LINES);
    test_array_free(p.first, LINES);
    test_free_values(p.exact, LINES);
    test_free_values(p.simple, LINES);
}

static void sgd_follows_the_formula(void **state)
{
    (void)state;
    TEST_CASES("sgd", sgd_cases, check_sgd_case);
}

static void momentum_needs_its_value(struct test_device *device, int threads, void *context)
{
    (void)threads, (void)context;
    struct test_tensor t[2] = {test_tensor_make(TT_F32, 8, TEST_UNUSED, TEST_UNUSED, 0),
                               test_tensor_make(TT_F32, 8, TEST_UNUSED, TEST_UNUSED, 0)};
    struct tt_sgd_args args = {.param = t[0].view, .grad = t[1].view, .lr = 0.1, .momentum = 0.9};
    assert_int_equal(tt_sgd(device->stream, &args), TT_ERR_INTERNAL);
    test_array_free(t, 2);
}

static void sgd_checks_its_arguments(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    test_on_each_isa(momentum_needs_its_value, NULL);
}

static void adamw_follows_the_formula(void **state)
{
    (void)state;
    TEST_CASES("adamw", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("adamw", gpu_cases, check_case);
    TEST_CASES("sgd", sgd_gpu_cases, check_sgd_case);
}

static void check_squares(struct test_device *device, int threads, void *context)
{
    double *first = context;
    static const int64_t counts[] = {0, 1, 15, 16, 17, 16384, 16385, 200003, 9000001};
    int sizes = test_sizes_wanted() ? 9 : 8;
    for (int i = 0; i < sizes; i++) {
        struct test_tensor x = test_tensor_random(TT_F32, counts[i], TEST_UNUSED, TEST_UNUSED, 0, 9, 3);
        struct test_tensor out = test_tensor_make(TT_F64, 1, TEST_UNUSED, TEST_UNUSED, 0);
        test_tensor_set(&out, (const double[]){0.25});
        TEST_TO_DEVICE(device, &x, &out);
        struct tt_sum_squares_args args = {.x = x.view, .out = out.view};
        test_ok(tt_sum_squares(device->stream, &args));
        TEST_TO_HOST(device, &x, &out);
        long double sum = 0.25L;
        for (int64_t j = 0; j < counts[i]; j++)
            sum += (long double)((float *)x.view.data)[j] * (long double)((float *)x.view.data)[j];
        double got = *(double *)out.view.data;
        assert_true(fabs(got - (double)sum) <= 1e-14 * (double)sum);
        if (threads > 1) assert_true(got == first[i]);
        first[i] = got;
        test_tensor_free(&x);
        test_tensor_free(&out);
    }
}

static void squares_are_summed_in_double(void **state)
{
    (void)state;
    double first[9];
    test_on_each_isa(check_squares, first);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_follows_the_formula),    cmocka_unit_test(sgd_follows_the_formula),
        cmocka_unit_test(sgd_checks_its_arguments),     cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(squares_are_summed_in_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
