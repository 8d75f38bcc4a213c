/* A product in bf16 on the CPU is rounded once: the wide product, the narrow ones beside it and the addend are one sum
 * of floats. All inputs are small integers, so these sums are exact, and each element has one right value. */
#include <stdlib.h>

#include "backend/ops/gemm_fused.h"
#include "base/rng.h"
#include "ops/gemm_fused_cases.h"
#include "ops/isa.h"

enum { RANK = 16, NARROW = 64, PARTS = 3, WIDE_MAX = 64, LOW_MAX = 16 };

struct rounding_case {
    int64_t m, k;
    bool adds;
};

/* k of one block and of several; rows of one block and of several. */
static const struct rounding_case cases[] = {
    {96, 64, false}, {96, 64, true}, {96, 1100, false}, {300, 64, false}, {300, 1100, true},
};

static const int64_t part_first[PARTS] = {0, 128, 192}, part_columns[PARTS] = {128, NARROW, NARROW};
enum { COLUMNS = 256 };

/* Integers from -most to most. */
static struct test_tensor integers(int64_t rows, int64_t columns, uint64_t seed, int64_t most)
{
    struct test_tensor tensor = test_tensor_make(TT_BF16, rows, columns, TEST_UNUSED, 0);
    double *values = test_doubles(rows * columns);
    struct tt_rng rng = tt_rng_make(seed);
    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = (double)tt_rng_below(rng, (uint64_t)i, (uint64_t)(2 * most + 1)) - (double)most;
    test_tensor_set(&tensor, values);
    free(values);
    return tensor;
}

struct product {
    struct test_tensor x, w, h, b[PARTS], addend, out;
    bool adds;
    double *expected; /* rounded once */
};

/* y += a b^T for columns first ... of y. */
static void add_product(const struct test_tensor *a, int64_t first_a, int64_t depth,
                        const struct test_tensor *b, int64_t first, double *y)
{
    double *left = test_tensor_values(a), *right = test_tensor_values(b);
    int64_t rows = a->view.dims[0], stride = a->view.dims[1], columns = b->view.dims[0];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t p = 0; p < depth; p++)
                y[i * COLUMNS + first + j] += left[i * stride + first_a + p] * right[j * depth + p];
    free(left);
    free(right);
}

static struct product make_product(const struct rounding_case *test)
{
    struct product product = {.x = integers(test->m, test->k, 1, WIDE_MAX),
                              .w = integers(COLUMNS, test->k, 2, WIDE_MAX),
                              .h = integers(test->m, (int64_t)PARTS * RANK, 3, LOW_MAX),
                              .addend = integers(test->m, COLUMNS, 4, WIDE_MAX),
                              .out = integers(test->m, COLUMNS, 5, 1),
                              .adds = test->adds,
                              .expected = test_doubles(test->m * COLUMNS)};
    add_product(&product.x, 0, test->k, &product.w, 0, product.expected);
    for (int i = 0; i < PARTS; i++) {
        product.b[i] = integers(part_columns[i], RANK, 6 + (uint64_t)i, LOW_MAX);
        add_product(&product.h, (int64_t)i * RANK, RANK, &product.b[i], part_first[i], product.expected);
    }
    double *addend = test_tensor_values(&product.addend);
    for (int64_t i = 0; i < test->m * COLUMNS; i++) {
        if (test->adds) product.expected[i] += addend[i];
        product.expected[i] = test_round((float)product.expected[i], TT_BF16);
    }
    free(addend);
    return product;
}

static void product_free(struct product *product)
{
    test_tensor_free(&product->x);
    test_tensor_free(&product->w);
    test_tensor_free(&product->h);
    test_tensor_free(&product->addend);
    test_tensor_free(&product->out);
    for (int i = 0; i < PARTS; i++) test_tensor_free(&product->b[i]);
    free(product->expected);
}

static void check_rounding(struct test_device *device, int threads, void *context)
{
    struct product *product = context;
    (void)threads;
    struct tt_gemm_lora_args args = {.x_MK = product->x.view,
                                     .w.dense = product->w.view,
                                     .trans_w = true,
                                     .low = {.h_MR = product->h.view, .count = PARTS},
                                     .y_MN = product->out.view};
    if (product->adds) args.addend_MN = product->addend.view;
    for (int i = 0; i < PARTS; i++) {
        args.low.parts[i].b = product->b[i].view;
        args.low.parts[i].first_h = (int64_t)i * RANK;
        args.low.parts[i].first_y = part_first[i];
    }
    test_tensor_poison(&product->out);
    test_ok(tt_gemm_lora(device->stream, &args));
    test_ok(tt_stream_synchronize(device->stream));
    double *got = test_tensor_values(&product->out);
    int64_t count = product->out.view.dims[0] * COLUMNS;
    for (int64_t i = 0; i < count; i++) {
        if (got[i] == product->expected[i]) continue;
        fail_msg("element %lld: %.0f, rounded once it is %.0f", (long long)i, got[i], product->expected[i]);
    }
    free(got);
}

static void check_case(const void *row)
{
    struct product product = make_product(row);
    test_on_each_isa(check_rounding, &product);
    product_free(&product);
}

static void a_sum_is_rounded_once(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    TEST_CASES("rounding of gemm_lora", cases, check_case);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_sum_is_rounded_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
