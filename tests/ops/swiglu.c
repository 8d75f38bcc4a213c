#include "backend/ops/swiglu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/isa.h"

struct swiglu_case {
    int64_t rows, width, gap;
    tt_dtype dtype;
    bool wants_h;
    double size;
    enum tt_activation activation;
};

static const struct swiglu_case cases[] = {
    {5, 64, 0, TT_F32, true, 1, TT_ACTIVATION_SILU},
    {5, 64, 0, TT_BF16, true, 1, TT_ACTIVATION_SILU},
    {100, 333, 5, TT_F32, false, 1, TT_ACTIVATION_SILU},
    {100, 333, 5, TT_BF16, true, 1, TT_ACTIVATION_SILU},
    {3, 1, 0, TT_F32, true, 1, TT_ACTIVATION_SILU},
    {1, 7, 1, TT_BF16, false, 1, TT_ACTIVATION_SILU},
    {60, 1000, 1000, TT_BF16, true, 3, TT_ACTIVATION_SILU},
    {10, 100, 0, TT_F32, true, 40, TT_ACTIVATION_SILU},
    {10, 100, 0, TT_BF16, true, 40, TT_ACTIVATION_SILU},
    {0, 16, 0, TT_F32, true, 1, TT_ACTIVATION_SILU},
    {100, 333, 5, TT_F32, true, 1, TT_ACTIVATION_GELU},
    {100, 333, 5, TT_BF16, false, 1, TT_ACTIVATION_GELU},
    {10, 100, 0, TT_F32, true, 6, TT_ACTIVATION_GELU},
    {100, 333, 5, TT_F32, true, 1, TT_ACTIVATION_GELU_TANH},
    {100, 333, 5, TT_BF16, false, 1, TT_ACTIVATION_GELU_TANH},
    {10, 100, 0, TT_F32, true, 6, TT_ACTIVATION_GELU_TANH},
    {100, 333, 5, TT_F32, true, 1, TT_ACTIVATION_SIGMOID},
    {100, 333, 5, TT_BF16, true, 1, TT_ACTIVATION_SIGMOID},
    {10, 100, 0, TT_F32, false, 20, TT_ACTIVATION_SIGMOID},
    {100, 333, 5, TT_F32, true, 1, TT_ACTIVATION_RELU2},
    {100, 333, 5, TT_BF16, true, 3, TT_ACTIVATION_RELU2},
    {100, 333, 5, TT_F32, true, 5, TT_ACTIVATION_CLAMPED},
    {100, 333, 5, TT_BF16, true, 1, TT_ACTIVATION_CLAMPED},
    {10, 100, 0, TT_F32, false, 20, TT_ACTIVATION_CLAMPED},
    {60, 1000, 1000, TT_BF16, true, 9, TT_ACTIVATION_CLAMPED},
};

static const struct swiglu_case gpu_cases[] = {
    {150, 14336, 0, TT_BF16, true, 1, TT_ACTIVATION_SILU},
    {130, 14336, 14336, TT_BF16, true, 1, TT_ACTIVATION_SILU}, /* halves of one gate and up */
    {70, 28672, 0, TT_BF16, false, 1, TT_ACTIVATION_SILU},
    {1501, 1537, 1, TT_BF16, true, 1, TT_ACTIVATION_SILU},
    {70000, 32, 0, TT_BF16, true, 3, TT_ACTIVATION_SILU},
};

enum { DH, GATE, UP, FORWARD_H, DGATE, DUP, H, LINES };

static const char *const names[LINES] = {"dh", "gate", "up", "h forward", "dgate", "dup", "h"};

/* The share of the gate that passes, and its derivative, as the definitions have them. */
#define DEFINE_REFERENCE(name, share, real, real_exp, real_erf, real_tanh)                                   \
    static void share(enum tt_activation activation, real x, real *f, real *df)                              \
    {                                                                                                        \
        const real pi = (real)3.14159265358979323846, c = (real)sqrt(2 / 3.14159265358979323846);            \
        if (activation == TT_ACTIVATION_GELU) {                                                              \
            *f = (1 + real_erf(x / (real)sqrt(2.0))) / 2;                                                    \
            *df = real_exp(-x * x / 2) / (real)sqrt(2 * (double)pi);                                         \
        } else if (activation == TT_ACTIVATION_GELU_TANH) {                                                  \
            real t = real_tanh(c * (x + (real)0.044715 * x * x * x));                                        \
            *f = (1 + t) / 2;                                                                                \
            *df = (1 - t * t) / 2 * c * (1 + 3 * (real)0.044715 * x * x);                                    \
        } else if (activation == TT_ACTIVATION_RELU2) {                                                      \
            *f = x > 0 ? x : 0;                                                                              \
            *df = x > 0;                                                                                     \
        } else if (activation == TT_ACTIVATION_CLAMPED) {                                                    \
            *f = 1 / (1 + real_exp(-(real)1.702f * x));                                                      \
            *df = (real)1.702f * *f * (1 - *f);                                                              \
        } else {                                                                                             \
            *f = 1 / (1 + real_exp(-x));                                                                     \
            *df = *f * (1 - *f);                                                                             \
        }                                                                                                    \
    }                                                                                                        \
    static void name(enum tt_activation activation, int64_t count, double *const v[LINES])                   \
    {                                                                                                        \
        _Pragma("omp parallel for if (TEST_IS_LARGE(count))") for (int64_t i = 0; i < count; i++)            \
        {                                                                                                    \
            real gate = (real)v[GATE][i], up = (real)v[UP][i], dh = (real)v[DH][i], f, df;                   \
            bool alone = activation == TT_ACTIVATION_SIGMOID, clamped = activation == TT_ACTIVATION_CLAMPED; \
            bool high = clamped && gate > 7, wide = clamped && (up > 7 || up < -7);                          \
            if (high) gate = 7;                                                                              \
            if (clamped) up = (up > 7 ? 7 : up < -7 ? -7 : up) + 1;                                          \
            share(activation, gate, &f, &df);                                                                \
            v[H][i] = v[FORWARD_H][i] = (double)(alone ? f * up : gate * f * up);                            \
            v[DUP][i] = wide ? 0 : (double)(dh * (alone ? f : gate * f));                                    \
            v[DGATE][i] = (double)(alone                              ? dh * up * df                         \
                                   : activation == TT_ACTIVATION_SILU ? dh * up * f * (1 + gate * (1 - f))   \
                                                                      : dh * up * (f + gate * df));          \
            if (high) v[DGATE][i] = 0;                                                                       \
        }                                                                                                    \
    }

DEFINE_REFERENCE(oracle, oracle_share, double, exp, erf, tanh)
DEFINE_REFERENCE(plain, plain_share, float, expf, erff, tanhf)

struct problem {
    const struct swiglu_case *row;
    struct test_tensor tensors[LINES], first[LINES];
    double *exact[LINES], *simple[LINES];
};

static void make_problem(struct problem *p, const struct swiglu_case *row)
{
    memset(p, 0, sizeof *p);
    p->row = row;
    for (int i = 0; i < LINES; i++) {
        p->tensors[i] = test_tensor_random(
            row->dtype, row->rows, row->width, TEST_UNUSED, row->gap, (uint64_t)i + 1,
            i == GATE || (i == UP && row->activation == TT_ACTIVATION_CLAMPED) ? row->size : 1);
        if (i >= FORWARD_H) test_tensor_poison(&p->tensors[i]);
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

static void run_op(struct test_device *device, const struct swiglu_case *row, const struct test_tensor *t)
{
    struct tt_swiglu_backward_args args = {.activation = row->activation,
                                           .dh_TF = t[DH].view,
                                           .gate_TF = t[GATE].view,
                                           .up_TF = t[UP].view,
                                           .dgate_TF = t[DGATE].view,
                                           .dup_TF = t[DUP].view};
    if (row->wants_h) args.h_TF = t[H].view;
    struct tt_swiglu_forward_args forward = {.activation = row->activation,
                                             .gate_TF = t[GATE].view,
                                             .up_TF = t[UP].view,
                                             .h_TF = t[FORWARD_H].view};
    test_ok(tt_swiglu_forward(device->stream, &forward));
    test_ok(tt_swiglu_backward(device->stream, &args));
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
        if (i >= FORWARD_H && (i != H || p->row->wants_h))
            test_check_result(names[i], tensors[i], threads, p->exact[i], p->simple[i],
                              i == DGATE || i == DUP ? 3 : 2, &p->first[i]);
        else
            test_check_untouched(names[i], &tensors[i], &p->tensors[i]);
    }
    if (p->row->wants_h) test_tensor_equal("h of both directions", &p->first[H], &p->first[FORWARD_H]);
}

static void check_case(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    int64_t count = p.row->rows * p.row->width;
    oracle(p.row->activation, count, p.exact);
    plain(p.row->activation, count, p.simple);
    for (int i = FORWARD_H; i < LINES; i++)
        for (int64_t j = 0; j < count; j++)
            p.simple[i][j] = (double)test_round((float)p.simple[i][j], p.row->dtype);
    test_on_each_isa(check_run, &p);
    free_problem(&p);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("swiglu", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("swiglu", gpu_cases, check_case);
}

/* [T H, E] as [T, H, E]. */
static tt_tensor as_heads(tt_tensor x, int64_t heads)
{
    return tt_tensor_heads(tt_tensor_2d(x.data, x.dtype, x.dims[0] / heads, heads * x.dims[1]), heads);
}

static double weighted_output(void *context)
{
    struct problem *p = context;
    int64_t count = p->row->rows * p->row->width;
    oracle(p->row->activation, count, p->exact);
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += p->exact[H][i] * p->exact[DH][i];
    return sum;
}

static void oracle_agrees_with_finite_differences(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    for (int activation = TT_ACTIVATION_SILU; activation < TT_ACTIVATIONS; activation++) {
        const struct swiglu_case row = {4, 5, 0, TT_F32, true, 2, (enum tt_activation)activation};
        struct problem p;
        make_problem(&p, &row);
        weighted_output(&p);
        double dgate[20], dup[20];
        memcpy(dgate, p.exact[DGATE], sizeof dgate);
        memcpy(dup, p.exact[DUP], sizeof dup);
        test_gradient("dgate", weighted_output, &p, p.exact[GATE], dgate, 20);
        test_gradient("dup", weighted_output, &p, p.exact[UP], dup, 20);
        free_problem(&p);
    }
}

/* GELU to 1e-6 of itself down to the end of the normal floats, where 1 + erf(x) has no digits. Behind it nothing
 * passes, however large the gate, and NaN stays NaN. */
static void check_tail(struct test_device *device, int threads, void *context)
{
    (void)threads, (void)context;
    enum { COUNT = 2650 };
    struct test_tensor lines[3]; /* gate, up, h */
    for (int i = 0; i < 3; i++) lines[i] = test_tensor_make(TT_F32, 1, COUNT, TEST_UNUSED, 0);
    float *x = lines[0].view.data, *up = lines[1].view.data, *h = lines[2].view.data;
    for (int i = 0; i < COUNT; i++) x[i] = 0.01f * (float)(i - COUNT / 2) + 0.003f, up[i] = 1.0f;
    x[0] = -3e38f, x[1] = -14.0f, x[2] = NAN, x[COUNT - 1] = 3e38f;
    const struct tt_swiglu_forward_args args = {.activation = TT_ACTIVATION_GELU,
                                                .gate_TF = lines[0].view,
                                                .up_TF = lines[1].view,
                                                .h_TF = lines[2].view};
    test_ok(tt_swiglu_forward(device->stream, &args));
    assert_true(h[0] == 0 && h[1] == 0 && isnan(h[2]) && h[COUNT - 1] == 3e38f);
    for (int i = 3; i < COUNT - 1; i++) {
        double wanted = 0.5 * (double)x[i] * erfc(-(double)x[i] / sqrt(2.0));
        if (fabs(wanted) < 1.2e-37) continue;
        if (!(fabs((double)h[i] - wanted) <= 1e-6 * fabs(wanted)))
            fail_msg("GELU of %.9g is %.9g, not %.9g", (double)x[i], (double)h[i], wanted);
    }
    test_array_free(lines, 3);
}

static void gelu_keeps_the_digits_of_its_tail(void **state)
{
    (void)state;
    TEST_CPU_ONLY(); /* a GPU's erfcf gets an argument that is rounded */
    test_on_each_isa(check_tail, NULL);
}

/* Halves of one [T, 2F], gradients in their place, h in place of dh. */
static void in_place(void **state)
{
    (void)state;
    const struct swiglu_case row = {6, 45, 0, TT_BF16, true, 1, TT_ACTIVATION_SILU};
    struct problem p;
    struct test_device device;
    make_problem(&p, &row);
    test_device_open(&device, test_device_kind(), 1);
    test_array_to_device(&device, p.tensors, LINES);
    run_op(&device, &row, p.tensors);
    test_array_to_host(&device, p.tensors, LINES);
    struct test_tensor both = test_tensor_make(TT_BF16, 6, 90, TEST_UNUSED, 0),
                       dh = test_tensor_copy(&p.tensors[DH]);
    tt_tensor gate = tt_tensor_cols(both.view, 0, 45), up = tt_tensor_cols(both.view, 45, 45);
    for (int64_t t = 0; t < 6; t++) {
        memcpy((uint16_t *)gate.data + t * 90, (uint16_t *)p.tensors[GATE].view.data + t * 45, 90);
        memcpy((uint16_t *)up.data + t * 90, (uint16_t *)p.tensors[UP].view.data + t * 45, 90);
    }
    TEST_TO_DEVICE(&device, &both, &dh);
    tt_tensor device_gate = tt_tensor_cols(both.view, 0, 45), device_up = tt_tensor_cols(both.view, 45, 45);
    struct tt_swiglu_backward_args args = {.dh_TF = dh.view,
                                           .gate_TF = device_gate,
                                           .up_TF = device_up,
                                           .dgate_TF = device_gate,
                                           .dup_TF = device_up,
                                           .h_TF = dh.view};
    test_ok(tt_swiglu_backward(device.stream, &args));
    TEST_TO_HOST(&device, &both, &dh);
    test_tensor_equal("h on dh", &dh, &p.tensors[H]);
    for (int64_t t = 0; t < 6; t++) {
        assert_memory_equal((uint16_t *)gate.data + t * 90, (uint16_t *)p.tensors[DGATE].view.data + t * 45,
                            90);
        assert_memory_equal((uint16_t *)up.data + t * 90, (uint16_t *)p.tensors[DUP].view.data + t * 45, 90);
    }
    test_device_close(&device);
    test_tensor_free(&both);
    test_tensor_free(&dh);
    free_problem(&p);
}

/* An activation alone has the bits of a unit whose up is 1. */
static void without_up(void **state)
{
    (void)state;
    const struct swiglu_case rows[] = {{9, 77, 3, TT_F32, true, 2, TT_ACTIVATION_RELU2},
                                       {9, 77, 0, TT_BF16, true, 2, TT_ACTIVATION_RELU2},
                                       {4, 64, 0, TT_BF16, true, 2, TT_ACTIVATION_GELU}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct problem p;
        struct test_device device;
        make_problem(&p, &rows[i]);
        double ones[9 * 77];
        for (int j = 0; j < 9 * 77; j++) ones[j] = 1;
        test_tensor_set(&p.tensors[UP], ones);
        struct test_tensor dgate = test_tensor_copy(&p.tensors[DGATE]), h = test_tensor_copy(&p.tensors[H]),
                           dh = test_tensor_copy(&p.tensors[DH]);
        test_device_open(&device, test_device_kind(), 1);
        test_array_to_device(&device, p.tensors, LINES);
        TEST_TO_DEVICE(&device, &dgate, &h, &dh);
        run_op(&device, &rows[i], p.tensors);
        struct tt_swiglu_forward_args forward = {
            .activation = rows[i].activation, .gate_TF = p.tensors[GATE].view, .h_TF = h.view};
        test_ok(tt_swiglu_forward(device.stream, &forward));
        struct tt_swiglu_backward_args backward = {.activation = rows[i].activation,
                                                   .dh_TF = dh.view,
                                                   .gate_TF = p.tensors[GATE].view,
                                                   .dgate_TF = dgate.view,
                                                   .h_TF = dh.view};
        test_ok(tt_swiglu_backward(device.stream, &backward));
        test_array_to_host(&device, p.tensors, LINES);
        TEST_TO_HOST(&device, &dgate, &h, &dh);
        test_tensor_equal("h", &h, &p.tensors[H]);
        test_tensor_equal("h of backward", &dh, &p.tensors[H]);
        test_tensor_equal("dgate", &dgate, &p.tensors[DGATE]);
        test_device_close(&device);
        test_tensor_free(&dgate);
        test_tensor_free(&h);
        test_tensor_free(&dh);
        free_problem(&p);
    }
}

/* A gate beside each head of one matrix [T, H, 2E], whose gradient takes its place, has the bits of heads apart. */
static void heads_of_rows(void **state)
{
    (void)state;
    enum { TOKENS = 7, HEADS = 3, DIM = 20 };
    const struct swiglu_case row = {TOKENS * HEADS, DIM, 0, TT_BF16, true, 1, TT_ACTIVATION_SIGMOID};
    struct problem p;
    struct test_device device;
    make_problem(&p, &row);
    struct test_tensor both = test_tensor_make(TT_BF16, TOKENS, HEADS * 2 * DIM, TEST_UNUSED, 4),
                       h = test_tensor_make(TT_BF16, TOKENS * HEADS, DIM, TEST_UNUSED, 0),
                       dup = test_tensor_copy(&h), unchanged = test_tensor_copy(&p.tensors[UP]);
    const uint16_t *gate = p.tensors[GATE].view.data;
    uint16_t *matrix = both.view.data;
    for (int64_t i = 0; i < TOKENS * HEADS; i++)
        memcpy(matrix + i / HEADS * both.view.strides[0] + i % HEADS * 2 * DIM + DIM, gate + i * DIM,
               DIM * sizeof *gate);
    test_device_open(&device, test_device_kind(), 1);
    test_array_to_device(&device, p.tensors, LINES);
    TEST_TO_DEVICE(&device, &both, &h, &dup);
    run_op(&device, &row, p.tensors);

    tt_tensor gates = tt_tensor_heads(both.view, HEADS);
    gates.dims[2] = DIM;
    gates.data = (uint16_t *)gates.data + DIM;
    struct tt_swiglu_forward_args forward = {.activation = TT_ACTIVATION_SIGMOID,
                                             .gate_TF = gates,
                                             .up_TF = as_heads(p.tensors[UP].view, HEADS),
                                             .h_TF = as_heads(h.view, HEADS)};
    test_ok(tt_swiglu_forward(device.stream, &forward));
    TEST_TO_HOST(&device, &h);
    TEST_TO_DEVICE(&device, &h);
    struct tt_swiglu_backward_args backward = {.activation = TT_ACTIVATION_SIGMOID,
                                               .dh_TF = as_heads(p.tensors[DH].view, HEADS),
                                               .gate_TF = gates,
                                               .up_TF = as_heads(p.tensors[UP].view, HEADS),
                                               .dgate_TF = gates,
                                               .dup_TF = as_heads(dup.view, HEADS),
                                               .h_TF = as_heads(h.view, HEADS)};
    test_ok(tt_swiglu_backward(device.stream, &backward));
    test_array_to_host(&device, p.tensors, LINES);
    TEST_TO_HOST(&device, &both, &h, &dup);
    test_tensor_equal("h of heads", &h, &p.tensors[FORWARD_H]);
    test_tensor_equal("dup of heads", &dup, &p.tensors[DUP]);
    test_tensor_equal("up", &p.tensors[UP], &unchanged);
    const uint16_t *dgate = p.tensors[DGATE].view.data;
    matrix = both.view.data;
    for (int64_t i = 0; i < TOKENS * HEADS; i++) {
        const uint16_t *head = matrix + i / HEADS * both.view.strides[0] + i % HEADS * 2 * DIM;
        assert_memory_equal(head + DIM, dgate + i * DIM, DIM * sizeof *dgate);
        for (int e = 0; e < DIM; e++) assert_int_equal(head[e], 0);
    }
    test_device_close(&device);
    struct test_tensor *made[] = {&both, &h, &dup, &unchanged};
    for (int i = 0; i < 4; i++) test_tensor_free(made[i]);
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
        cmocka_unit_test(gelu_keeps_the_digits_of_its_tail),
        cmocka_unit_test(in_place),
        cmocka_unit_test(without_up),
        cmocka_unit_test(heads_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
