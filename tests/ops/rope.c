#include <math.h>
#include <stdlib.h>

#include "backend/ops/attention.h"
#include "ops/isa.h"

struct rope_case {
    int64_t tokens, heads, head_dim, gap;
    tt_dtype dtype;
    bool inverse, pairs;
};

static const struct rope_case cases[] = {
    {5, 2, 64, 0, TT_F32, false, false},      {5, 2, 64, 0, TT_BF16, false, false},
    {70, 14, 64, 128, TT_BF16, false, false}, {70, 3, 128, 5, TT_F32, true, false},
    {9, 1, 80, 3, TT_BF16, true, false},      {9, 2, 2, 0, TT_F32, false, false},
    {9, 2, 24, 1, TT_F32, false, false},      {9, 4, 16, 0, TT_BF16, false, false},
    {300, 4, 32, 0, TT_F32, false, false},    {3, 2, 256, 0, TT_BF16, false, false},
    {3, 2, 6, 1, TT_BF16, true, false},       {0, 2, 64, 0, TT_F32, false, false},
    {5, 2, 64, 0, TT_F32, false, true},       {70, 14, 64, 128, TT_BF16, true, true},
    {9, 3, 80, 3, TT_BF16, false, true},      {9, 2, 2, 0, TT_F32, true, true},
    {9, 2, 24, 1, TT_F32, false, true},       {3, 2, 6, 1, TT_BF16, true, true},
    {300, 5, 32, 0, TT_F32, false, true},
};

static const struct rope_case gpu_cases[] = {
    {2048, 32, 128, 0, TT_BF16, false, false},
    {2049, 8, 128, 4096 + 1024, TT_BF16, true, false}, /* keys of a fused q, k, v */
    {3001, 14, 64, 0, TT_BF16, false, false},
    {1025, 8, 256, 0, TT_BF16, false, false},
    {70001, 2, 16, 0, TT_BF16, false, false},
    {2049, 8, 128, 4096 + 1024, TT_BF16, true, true},
    {2048, 32, 64, 64, TT_BF16, false, true}, /* the first columns of heads, as GLM-4's */
};

enum { POSITIONS = 50 };

struct problem {
    const struct rope_case *row;
    struct test_tensor x, positions, cos, sin, first;
    double *exact, *simple;
};

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor x = test_tensor_copy(&p->x);
    TEST_TO_DEVICE(device, &x, &p->positions, &p->cos, &p->sin);
    struct tt_rope_args args = {.x_THE = x.view,
                                .positions_T = p->positions.view,
                                .cos_PE = p->cos.view,
                                .sin_PE = p->sin.view,
                                .inverse = p->row->inverse,
                                .pairs = p->row->pairs};
    test_ok(tt_rope(device->stream, &args));
    TEST_TO_HOST(device, &x, &p->positions, &p->cos, &p->sin);
    test_check_result("x", x, threads, p->exact, p->simple, 2, &p->first);
}

static void check_case(const void *row_pointer)
{
    const struct rope_case *row = row_pointer;
    int64_t half = row->head_dim / 2;
    struct problem p = {.row = row};
    p.x = test_tensor_random(row->dtype, row->tokens, row->heads, row->head_dim, row->gap, 1, 1);
    p.positions = test_tensor_make(TT_I32, row->tokens, TEST_UNUSED, TEST_UNUSED, 0);
    test_tensor_random_index(&p.positions, 2, POSITIONS);
    p.cos = test_tensor_random(TT_F32, POSITIONS, half, TEST_UNUSED, 3, 3, 1);
    p.sin = test_tensor_random(TT_F32, POSITIONS, half, TEST_UNUSED, 3, 4, 1);
    double *x = test_tensor_values(&p.x), *at = test_tensor_values(&p.positions);
    double *cosine = test_tensor_values(&p.cos), *sine = test_tensor_values(&p.sin);
    p.exact = test_doubles(tt_tensor_count(p.x.view));
    p.simple = test_doubles(tt_tensor_count(p.x.view));
    for (int64_t i = 0; i < row->tokens * row->heads; i++)
        for (int64_t e = 0; e < half; e++) {
            int64_t place = (int64_t)at[i / row->heads] * half + e,
                    low = i * row->head_dim + (row->pairs ? 2 * e : e), high = low + (row->pairs ? 1 : half);
            double c = cosine[place], s = row->inverse ? -sine[place] : sine[place];
            p.exact[low] = x[low] * c - x[high] * s;
            p.exact[high] = x[high] * c + x[low] * s;
            float a = (float)x[low], b = (float)x[high];
            p.simple[low] = (double)test_round(a * (float)c - b * (float)s, row->dtype);
            p.simple[high] = (double)test_round(b * (float)c + a * (float)s, row->dtype);
        }
    test_on_each_isa(check_run, &p);
    free(x), free(at), free(cosine), free(sine), free(p.exact), free(p.simple);
    test_tensor_free(&p.x);
    test_tensor_free(&p.positions);
    test_tensor_free(&p.cos);
    test_tensor_free(&p.sin);
    test_tensor_free(&p.first);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("rope", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("rope", gpu_cases, check_case);
}

/* The inverse is the transpose: <rope(x), y> = <x, rope^-1(y)>. That it also undoes a rotation needs real
 * angles. */
static void inverse_undoes(void **state)
{
    (void)state;
    struct test_device device;
    test_device_open(&device, test_device_kind(), 1);
    struct test_tensor x = test_tensor_random(TT_F32, 20, 3, 64, 0, 1, 1), y = test_tensor_copy(&x);
    struct test_tensor positions = test_tensor_make(TT_I32, 20, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_tensor cosine = test_tensor_make(TT_F32, POSITIONS, 32, TEST_UNUSED, 0);
    struct test_tensor sine = test_tensor_make(TT_F32, POSITIONS, 32, TEST_UNUSED, 0);
    test_tensor_random_index(&positions, 2, POSITIONS);
    for (int64_t i = 0; i < POSITIONS * 32; i++) {
        double angle = (double)(i / 32) * pow(10000, -(double)(i % 32) / 32);
        ((float *)cosine.view.data)[i] = (float)cos(angle);
        ((float *)sine.view.data)[i] = (float)sin(angle);
    }
    TEST_TO_DEVICE(&device, &y, &positions, &cosine, &sine);
    struct tt_rope_args args = {
        .x_THE = y.view, .positions_T = positions.view, .cos_PE = cosine.view, .sin_PE = sine.view};
    test_ok(tt_rope(device.stream, &args));
    args.inverse = true;
    test_ok(tt_rope(device.stream, &args));
    TEST_TO_HOST(&device, &y, &positions, &cosine, &sine);
    for (int64_t i = 0; i < 20 * 3 * 64; i++)
        assert_true(fabsf(((float *)x.view.data)[i] - ((float *)y.view.data)[i]) < 2e-6f);
    test_device_close(&device);
    test_tensor_free(&x);
    test_tensor_free(&y);
    test_tensor_free(&positions);
    test_tensor_free(&cosine);
    test_tensor_free(&sine);
}

/* A view of the first columns of each head: they turn, the others stay. */
static void first_columns_of_heads(void **state)
{
    enum { T = 20, H = 3, E = 64, COLUMNS = 24, HALF = COLUMNS / 2 };
    (void)state;
    struct test_device device;
    test_device_open(&device, test_device_kind(), 1);
    struct test_tensor x = test_tensor_random(TT_F32, T, H, E, 0, 1, 1), y = test_tensor_copy(&x);
    struct test_tensor positions = test_tensor_make(TT_I32, T, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_tensor cosine = test_tensor_random(TT_F32, POSITIONS, HALF, TEST_UNUSED, 0, 3, 1);
    struct test_tensor sine = test_tensor_random(TT_F32, POSITIONS, HALF, TEST_UNUSED, 0, 4, 1);
    test_tensor_random_index(&positions, 2, POSITIONS);
    double *at = test_tensor_values(&positions), *c = test_tensor_values(&cosine),
           *s = test_tensor_values(&sine);
    TEST_TO_DEVICE(&device, &y, &positions, &cosine, &sine);
    struct tt_rope_args args = {
        .x_THE = y.view, .positions_T = positions.view, .cos_PE = cosine.view, .sin_PE = sine.view};
    args.x_THE.dims[2] = COLUMNS;
    test_ok(tt_rope(device.stream, &args));
    TEST_TO_HOST(&device, &y, &positions, &cosine, &sine);
    for (int64_t i = 0; i < T * H; i++) {
        const float *before = (const float *)x.view.data + i * E, *after = (const float *)y.view.data + i * E;
        for (int64_t e = 0; e < HALF; e++) {
            int64_t angle = (int64_t)at[i / H] * HALF + e;
            double low = before[e] * c[angle] - before[e + HALF] * s[angle],
                   high = before[e + HALF] * c[angle] + before[e] * s[angle];
            assert_true(fabs(after[e] - low) < 1e-5 && fabs(after[e + HALF] - high) < 1e-5);
        }
        assert_memory_equal(before + COLUMNS, after + COLUMNS, (E - COLUMNS) * sizeof(float));
    }
    free(at), free(c), free(s);
    test_device_close(&device);
    test_tensor_free(&x);
    test_tensor_free(&y);
    test_tensor_free(&positions);
    test_tensor_free(&cosine);
    test_tensor_free(&sine);
}

static void a_position_beyond_the_table_is_refused(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    struct test_device device;
    test_device_open(&device, "cpu", 1);
    struct test_tensor x = test_tensor_random(TT_F32, 2, 1, 4, 0, 1, 1),
                       table = test_tensor_make(TT_F32, 5, 2, -1, 0);
    struct test_tensor positions = test_tensor_make(TT_I32, 2, TEST_UNUSED, TEST_UNUSED, 0);
    struct tt_rope_args args = {
        .x_THE = x.view, .positions_T = positions.view, .cos_PE = table.view, .sin_PE = table.view};
    test_tensor_set(&positions, (const double[]){4, 5});
    test_refused(tt_rope(device.stream, &args), TT_ERR_INTERNAL, "token 1 has position 5");
    test_tensor_set(&positions, (const double[]){-1, 0});
    test_refused(tt_rope(device.stream, &args), TT_ERR_INTERNAL, "token 0 has position -1");
    test_device_close(&device);
    test_tensor_free(&x);
    test_tensor_free(&table);
    test_tensor_free(&positions);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(inverse_undoes),
        cmocka_unit_test(first_columns_of_heads),
        cmocka_unit_test(a_position_beyond_the_table_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
