/* For tests of operations that make rows in FP8 with a scale each (backend/ops/gemm_scaled.h): rows of every kind, and
 * plain code that quantizes. */
#ifndef TT_TEST_OPS_CODED_ROWS_H
#define TT_TEST_OPS_CODED_ROWS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/harness.h"
#include "tensor/e4m3.h"

/* The rows of random `x` become of size_count + 3 kinds in turn: multiplied by one of `sizes`; with `outlier` in the
 * middle; with minus infinity; with NaN. */
static inline void fill_rows(const struct test_tensor *x, const double *sizes, int size_count, double outlier)
{
    int64_t rows = x->view.dims[0], cols = x->view.dims[1];
    double *values = test_tensor_values(x);
    for (int64_t r = 0; r < rows; r++) {
        double *row = values + r * cols;
        int kind = (int)(r % (size_count + 3));
        for (int64_t c = 0; c < cols && kind < size_count; c++) row[c] *= sizes[kind];
        if (kind == size_count) row[cols / 2] = outlier;
        if (kind == size_count + 1) row[cols / 3] = (double)-INFINITY;
        if (kind == size_count + 2) row[cols - 1] = (double)NAN;
    }
    test_tensor_set(x, values);
    free(values);
}

/* Rows that an operation computes with: their squares stay finite and normal. */
static inline void fill_operand_rows(const struct test_tensor *x)
{
    static const double sizes[] = {1, 1e-3, 3000, 1e-20, 0};
    fill_rows(x, sizes, sizeof sizes / sizeof *sizes, 1000);
}

/* The scale of the `count` numbers of a row. */
static inline float row_scale(const double *row, int64_t count)
{
    float largest = 0;
    for (int64_t c = 0; c < count && !isnan(largest); c++) {
        float size = fabsf((float)row[c]);
        if (isnan(size) || size > largest) largest = size;
    }
    return tt_e4m3_scale(largest);
}

/* The same bits; any NaN is as good as another. */
static inline void expect_equal(const char *what, const struct test_tensor *got,
                                const struct test_tensor *expected)
{
    double *a = test_tensor_values(got), *b = test_tensor_values(expected);
    for (int64_t i = 0; i < tt_tensor_count(got->view); i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: element %lld is %.9g, not %.9g", what, (long long)i, a[i], b[i]);
    free(a), free(b);
}

/* Codes and scales of the rows of `x`, [rows, width of codes]. */
static inline void expect_rows(const char *what, const double *x, const struct test_tensor *codes,
                               const struct test_tensor *scale)
{
    int64_t rows = codes->view.dims[0], cols = codes->view.dims[1];
    for (int64_t r = 0; r < rows; r++) {
        float expected = row_scale(x + r * cols, cols), got = ((const float *)scale->view.data)[r];
        if (memcmp(&expected, &got, sizeof got) != 0 && !(isnan(expected) && isnan(got)))
            fail_msg("%s: the scale of row %lld is %g, not %g", what, (long long)r, (double)got,
                     (double)expected);
        for (int64_t c = 0; c < cols; c++) {
            uint8_t code = tt_e4m3_from_f32((float)x[r * cols + c] / expected);
            uint8_t stored = ((const uint8_t *)codes->view.data)[r * cols + c];
            if (stored != code)
                fail_msg("%s: row %lld, column %lld: %g with scale %g is %02x, not %02x", what, (long long)r,
                         (long long)c, x[r * cols + c], (double)expected, stored, code);
        }
    }
}

#endif
