/* For tests of operations that make rows in FP8 with a scale each (backend/ops/gemm_scaled.h). */
#ifndef TT_TEST_OPS_CODED_ROWS_H
#define TT_TEST_OPS_CODED_ROWS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/harness.h"
#include "tensor/e4m3.h"

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
        float largest = 0, got = ((const float *)scale->view.data)[r];
        for (int64_t c = 0; c < cols && !isnan(largest); c++) {
            float size = fabsf((float)x[r * cols + c]);
            if (isnan(size) || size > largest) largest = size;
        }
        float expected = tt_e4m3_scale(largest);
        if (memcmp(&expected, &got, sizeof got) != 0 && !(isnan(expected) && isnan(got)))
            fail_msg("%s: the scale of row %lld is %g, not %g", what, (long long)r, (double)got,
                     (double)expected);
        for (int64_t c = 0; c < cols; c++) {
            uint8_t code = tt_e4m3_from_f32((float)x[r * cols + c] * (1.0f / expected));
            uint8_t stored = ((const uint8_t *)codes->view.data)[r * cols + c];
            if (stored != code)
                fail_msg("%s: row %lld, column %lld: %g with scale %g is %02x, not %02x", what, (long long)r,
                         (long long)c, x[r * cols + c], (double)expected, stored, code);
        }
    }
}

#endif
