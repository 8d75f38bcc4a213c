/* For the tests of ops: a device, random tensors with strides and guarded gaps, comparison with an fp64 oracle, finite
 * differences. All functions fail the running cmocka test with a text that names what was compared.
 *
 * A test of an op usually is: make the inputs; TEST_TO_DEVICE; run the op; TEST_TO_HOST; compute the oracle in fp64
 * from the very values the inputs hold (tests read them with test_tensor_values); compute a plain implementation in
 * floats with the same types in and out; test_close.
 *
 * TT_TEST_DEVICE says which device the case tables run on: cpu (the default) or cuda. Without a GPU the latter is
 * skipped (exit code 77), or fails where TT_REQUIRE is gpu. Sizes of real models run on GPUs only: TT_TEST_SIZES=0
 * leaves them out there (for compute-sanitizer), TT_TEST_SIZES=1 runs them on cpus too. */
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
    bool shared; /* the one GPU device of this program: opening one takes a second, so all tests use it */
};

/* "cpu" or "cuda": what TT_TEST_DEVICE says. */
const char *test_device_kind(void);
bool test_on_cpu(void);
bool test_sizes_wanted(void); /* TT_TEST_SIZES; by default true on GPUs */
/* First in main(): 0, or the exit code to end with because the wanted device is not there (it has said why). */
int test_device_missing(void);
/* For a cmocka test of something that only one of the two has. */
#define TEST_CPU_ONLY()                                                                                      \
    if (!test_on_cpu()) skip()
#define TEST_SIZES_ONLY()                                                                                    \
    if (!test_sizes_wanted()) skip()

/* kind: test_device_kind(), or a kind that the test is about. `threads` is for cpus. Before a GPU's first stream is
 * made, its memory is filled with 0xFF where it is free. */
void test_device_open(struct test_device *out, const char *kind, int threads);
/* waits for the stream, whose late errors fail the test */
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
    struct tt_buffer *buffer; /* while the view points to device memory */
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
/* All elements become 0xFF bytes, NaN or -1: for what an op overwrites without reading it. */
void test_tensor_poison(const struct test_tensor *tensor);

/* Where the device's memory is not the host's: uploads the tensors with their gaps and guards and lets the views point
 * there; and the way back, after waiting for the device. On cpus nothing
 * happens. Values are read, set, copied and compared on the host only. */
void test_to_device(const struct test_device *device, struct test_tensor *const *tensors, int count);
void test_to_host(const struct test_device *device, struct test_tensor *const *tensors, int count);
#define TEST_LIST(...)                                                                                       \
    (struct test_tensor *[]){__VA_ARGS__},                                                                   \
        (int)(sizeof((struct test_tensor *[]){__VA_ARGS__}) / sizeof(void *))
#define TEST_TO_DEVICE(device, ...) test_to_device(device, TEST_LIST(__VA_ARGS__))
#define TEST_TO_HOST(device, ...) test_to_host(device, TEST_LIST(__VA_ARGS__))
/* The same for the `count` tensors of an array. */
void test_array_to_device(const struct test_device *device, struct test_tensor *tensors, int count);
void test_array_to_host(const struct test_device *device, struct test_tensor *tensors, int count);
/* names: NULL, or of each tensor. */
void test_array_check_gaps(const char *const *names, const struct test_tensor *tensors, int count);
void test_array_free(struct test_tensor *tensors, int count);

void test_tensor_check_gaps(const char *what, const struct test_tensor *tensor);
/* The same elements, bit for bit. */
void test_tensor_equal(const char *what, const struct test_tensor *a, const struct test_tensor *b);

/* The elements in order without gaps, as doubles; released with free(). */
double *test_view_values(tt_tensor view);
double *test_tensor_values(const struct test_tensor *tensor);
/* `count` zeros; released with free(). */
double *test_doubles(int64_t count);
void test_free_values(double *const *values, int count);
/* What `value` becomes when stored as `dtype`: for plain implementations. */
float test_round(float value, tt_dtype dtype);

/* The house rule: the error of `got` against the oracle is at most `factor` times that of the plain implementation
 * (2 for results, 3 for gradients), in the largest element and in the root mean square. An error below half a unit
 * in the last place of `dtype` at the oracle's size is never held against it. */
void test_close(const char *what, const double *got, const double *oracle, const double *plain, int64_t count,
                tt_dtype dtype, double factor);
/* As test_close, but an error below `relative` of the oracle's size, or below `absolute`, is not held against it
 * either: for what a GPU rounds otherwise than plain code, with the reason where it is used. */
void test_close_allowing(const char *what, const double *got, const double *oracle, const double *plain,
                         int64_t count, tt_dtype dtype, double factor, double relative, double absolute);
/* Loops over more elements than this are shared out to the processors: those of GPU sizes. */
#define TEST_IS_LARGE(count) ((count) > 1 << 17)

/* Checks an fp64 gradient by central differences of `f` at each of `count` places of `x`. */
typedef double test_function(void *context);
void test_gradient(const char *what, test_function *f, void *context, double *x, const double *gradient,
                   int64_t count);

/* The case that failures are reported with; NULL: none. */
void test_case_set(const char *what, size_t row);

/* The driver of a case table: runs `body` for each of `count` rows of `row_bytes` bytes, with the row's number as
 * context of a failure. */
typedef void test_case_body(const void *row);
void test_case_table(const char *what, const void *rows, size_t row_bytes, size_t count,
                     test_case_body *body);
#define TEST_CASES(what, rows, body)                                                                         \
    test_case_table(what, rows, sizeof(rows)[0], sizeof(rows) / sizeof(rows)[0], body)

#endif
