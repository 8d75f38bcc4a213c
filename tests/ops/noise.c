#include "backend/ops/noise.h"

#include <math.h>
#include <stdlib.h>

#include "ops/isa.h"

struct noise_case {
    int64_t rows, width, gap;
    tt_dtype type;
    float alpha;
    int64_t lengths[4]; /* of the first sequences; the last one has the rest */
};

static const struct noise_case cases[] = {
    {20, 896, 0, TT_BF16, 5, {7, 1, 9}}, {20, 896, 0, TT_F32, 5, {20}}, {33, 67, 3, TT_F32, 15, {1, 1, 30}},
    {33, 67, 3, TT_BF16, 15, {32}},      {5, 1, 0, TT_F32, 1, {2}},     {6, 130, 1, TT_BF16, 0, {3}},
    {0, 64, 0, TT_F32, 5, {0}},
};

static const struct noise_case gpu_cases[] = {
    {513, 4095, 1, TT_BF16, 5, {500, 1}},
    {4096, 4096, 0, TT_BF16, 5, {1000, 3, 2000}},
    {70000, 64, 0, TT_F32, 10, {65000}},
};

struct problem {
    const struct noise_case *row;
    struct test_tensor x, keys, borders;
    struct tt_rng rng;
};

/* The length of the sequence of row t. */
static int64_t length_at(const int32_t *borders, int64_t t)
{
    while (borders[1] <= t) borders++;
    return borders[1] - borders[0];
}

/* In [-1, 1), by the definition. */
static double draw(const struct problem *p, int64_t t, int64_t d)
{
    uint32_t words[4];
    tt_rng_block(p->rng, (uint64_t)((const int64_t *)p->keys.view.data)[t], (uint64_t)d / 4, words);
    return (double)(words[d % 4] >> 8) / 0x1p23 - 1;
}

static void check_statistics(const struct problem *p, double sum, double squares)
{
    double count = (double)(p->row->rows * p->row->width);
    if (count < 1000) return;
    /* Variance of u: 1/3; of u^2: 4/45 */
    assert_true(fabs(sum / count) <= 5 / sqrt(3 * count));
    assert_true(fabs(squares / count - 1.0 / 3) <= 5 * sqrt(4.0 / 45 / count));
}

/* Against the definition: one product and sum, rounded once. */
static void check_run(struct test_device *device, int threads, void *context)
{
    (void)threads;
    const struct problem *p = context;
    const struct noise_case *row = p->row;
    struct test_tensor x = test_tensor_copy(&p->x), keys = test_tensor_copy(&p->keys);
    struct test_tensor borders = test_tensor_copy(&p->borders);
    double *before = test_tensor_values(&p->x), sum = 0, squares = 0;
    TEST_TO_DEVICE(device, &x, &keys, &borders);
    struct tt_add_noise_args args = {.x_TD = x.view,
                                     .row_keys_T = keys.view,
                                     .cu_seqlens = borders.view,
                                     .rng = p->rng,
                                     .alpha = row->alpha};
    test_ok(tt_add_noise(device->stream, &args));
    TEST_TO_HOST(device, &x, &keys, &borders);
    double *got = test_tensor_values(&x);
    for (int64_t t = 0; t < row->rows; t++) {
        int64_t length = length_at(p->borders.view.data, t);
        float scale = row->alpha / sqrtf((float)(length * row->width));
        for (int64_t d = 0; d < row->width; d++) {
            int64_t at = t * row->width + d;
            double u = draw(p, t, d);
            float want = fmaf((float)u, scale, (float)before[at]);
            if (row->type == TT_BF16) want = tt_bf16_to_f32(tt_f32_to_bf16(want));
            if (got[at] != (double)want)
                fail_msg("token %lld element %lld is %.9g instead of %.9g", (long long)t, (long long)d,
                         got[at], (double)want);
            sum += u, squares += u * u;
        }
    }
    check_statistics(p, sum, squares);
    test_tensor_check_gaps("x", &x);
    free(got), free(before);
    test_tensor_free(&x);
    test_tensor_free(&keys);
    test_tensor_free(&borders);
}

static void check_case(const void *row_pointer)
{
    const struct noise_case *row = row_pointer;
    struct problem p = {.row = row, .rng = tt_rng_derive(tt_rng_make(12345678901234567u), "embedding")};
    p.x = test_tensor_random(row->type, row->rows, row->width, TEST_UNUSED, row->gap, 1, 1);
    p.keys = test_tensor_make(TT_I64, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    for (int64_t t = 0; t < row->rows; t++) /* beyond 32 bits, and negative */
        ((int64_t *)p.keys.view.data)[t] = (t % 3 - 1) * 0x123456789abcdef + t;
    int64_t count = 0, end = 0;
    while (count < 4 && row->lengths[count] > 0) count++;
    p.borders = test_tensor_make(TT_I32, count + 2, TEST_UNUSED, TEST_UNUSED, 0);
    int32_t *borders = p.borders.view.data;
    borders[0] = 0;
    for (int64_t s = 0; s < count; s++) borders[s + 1] = (int32_t)(end += row->lengths[s]);
    borders[count + 1] = (int32_t)row->rows;
    test_on_each_isa(check_run, &p);
    test_tensor_free(&p.x);
    test_tensor_free(&p.keys);
    test_tensor_free(&p.borders);
}

static void every_element_follows_the_definition(void **state)
{
    (void)state;
    TEST_CASES("add_noise", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("add_noise", gpu_cases, check_case);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_follows_the_definition),
        cmocka_unit_test(sizes_of_real_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
