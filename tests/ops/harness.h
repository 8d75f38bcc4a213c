/* For the tests of ops: a cpu device, random tensors with strides and guarded gaps, comparison with an fp64 oracle,
 * finite differences. All functions fail the running cmocka test with a text that names what was compared.
 *
 * A test of an op usually is: make the inputs; run the op; compute the oracle in fp64 from the very values the inputs
 * hold (tests read them with test_tensor_values); compute a plain implementation in floats with the same types in
 * and out; test_close. */
#ifndef TT_TESTS_OPS_HARNESS_H
#define TT_TESTS_OPS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/device.h"
#include "tensor/tensor.h"

struct test_device {
    struct tt_device *device;
    struct tt_stream *stream;
};

void test_device_open(struct test_device *out, const char *kind, int threads);
void test_device_close(struct test_device *device);

/* Fails the test with the error record when `status` is not TT_OK. */
void test_ok(tt_status status);
/* Fails unless `status` is `expected` and its message contains `part`. */
void test_refused(tt_status status, tt_status expected, const char *part);

/* A tensor in memory of its own. `gap` elements follow each row (and each row group, for rank 3: between tokens);
 * they and the guards around the tensor hold a pattern that test_tensor_check_gaps looks for afterwards. Memory
 * ends right behind the last guard, so that a sanitizer sees what goes beyond. */
struct test_tensor {
    tt_tensor view;
    unsigned char *memory;
    size_t memory_bytes;
};

enum { TEST_UNUSED = -1 }; /* for dimensions beyond the rank */

/* `rank` is 1..3, taken from the dimensions given: d1 and d2 may be TEST_UNUSED. Floats: zeros. */
struct test_tensor test_tensor_make(tt_dtype dtype, int64_t d0, int64_t d1, int64_t d2, int64_t gap);
/* As test_tensor_make, filled with normal numbers of deviation `scale` that depend on `seed` alone. */
struct test_tensor test_tensor_random(tt_dtype dtype, int64_t d0, int64_t d1, int64_t d2, int64_t gap,
                                      uint64_t seed, double scale);
/* Sets all elements; integers and f16 as well. */
void test_tensor_set(const struct test_tensor *tensor, const double *values);
/* Uniform integers in [0, bound), for ids and labels. */
void test_tensor_random_index(const struct test_tensor *tensor, uint64_t seed, int64_t bound);
void test_tensor_free(struct test_tensor *tensor);
/* A copy with the same layout and contents, in memory of its own. */
struct test_tensor test_tensor_copy(const struct test_tensor *tensor);
void test_tensor_check_gaps(const char *what, const struct test_tensor *tensor);
/* The same elements, bit for bit. */
void test_tensor_equal(const char *what, const struct test_tensor *a, const struct test_tensor *b);

/* The elements in order without gaps, as doubles; released with free(). */
double *test_view_values(tt_tensor view);
double *test_tensor_values(const struct test_tensor *tensor);
/* `count` zeros; released with free(). */
double *test_doubles(int64_t count);
/* What `value` becomes when stored as `dtype`: for plain implementations. */
float test_round(float value, tt_dtype dtype);

/* The house rule: the error of `got` against the oracle is at most `factor` times that of the plain implementation
 * (2 for results, 3 for gradients), in the largest element and in the root mean square. An error below half a unit
 * in the last place of `dtype` at the oracle's size is never held against it. */
void test_close(const char *what, const double *got, const double *oracle, const double *plain, int64_t count,
                tt_dtype dtype, double factor);

/* Checks an fp64 gradient by central differences of `f` at each of `count` places of `x`. */
typedef double test_function(void *context);
void test_gradient(const char *what, test_function *f, void *context, double *x, const double *gradient,
                   int64_t count);

/* The driver of a case table: runs `body` for each of `count` rows of `row_bytes` bytes, with the row's number as
 * context of a failure. */
typedef void test_case_body(const void *row);
void test_case_table(const char *what, const void *rows, size_t row_bytes, size_t count, test_case_body *body);
#define TEST_CASES(what, rows, body)                                                                         \
    test_case_table(what, rows, sizeof (rows)[0], sizeof(rows) / sizeof (rows)[0], body)

#endif
