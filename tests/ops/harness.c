#include "ops/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tensor/e4m3.h"

enum { GUARD_BYTE = 0xA5, DRAWN_MAX = 1 << 19 };

/* Device memory is aligned as tt_buffer_create aligns it; on the host a narrow guard lets a sanitizer see
 * more. */
static size_t guard_bytes(void)
{
    return test_on_cpu() ? 64 : 256;
}

/* The row of the case table that runs, for messages. Each test program is one thread. */
static const char *case_table_name;
static size_t case_row;

static const char *where(void)
{
    static char text[160];
    if (case_table_name == NULL) return "";
    snprintf(text, sizeof text, " (%s, row %zu)", case_table_name, case_row);
    return text;
}

void test_ok(tt_status status)
{
    if (status == TT_OK) return;
    char text[1024];
    tt_error_format(tt_error_last(), text, sizeof text);
    fail_msg("%s%s", text, where());
}

void test_refused(tt_status status, tt_status expected, const char *part)
{
    const struct tt_error *error = tt_error_last();
    if (status != expected) {
        fail_msg("status %s instead of %s: %s%s", tt_status_name(status), tt_status_name(expected),
                 error->message, where());
    }
    if (strstr(error->message, part) == NULL) {
        fail_msg("'%s' does not contain '%s'%s", error->message, part, where());
    }
}

static void *must_allocate(size_t bytes)
{
    void *block = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(block);
    return block;
}

double *test_doubles(int64_t count)
{
    double *values = must_allocate((size_t)count * sizeof *values);
    memset(values, 0, (size_t)count * sizeof *values);
    return values;
}

void test_free_values(double *const *values, int count)
{
    for (int i = 0; i < count; i++) free(values[i]);
}

/* Calls `visit` with the address of each row's first element; rows are the last dimension. */
typedef void row_visitor(void *context, unsigned char *row, int64_t first, int64_t count, tt_dtype dtype);

static void for_rows(tt_tensor view, row_visitor *visit, void *context)
{
    int64_t width = view.dims[view.rank - 1], rows = 1;
    for (int d = 0; d < view.rank - 1; d++) rows *= view.dims[d];
#pragma omp parallel for if (TEST_IS_LARGE(rows * width))
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = 0, rest = row;
        for (int d = view.rank - 2; d >= 0; d--) {
            offset += rest % view.dims[d] * view.strides[d];
            rest /= view.dims[d];
        }
        unsigned char *start = (unsigned char *)view.data + offset * (int64_t)tt_dtype_bytes(view.dtype);
        visit(context, start, row * width, width, view.dtype);
    }
}

static double read_element(const unsigned char *from, tt_dtype dtype)
{
    union {
        float f;
        double d;
        uint16_t h;
        int32_t i;
        int64_t l;
        uint8_t b;
    } u;
    memcpy(&u, from, tt_dtype_bytes(dtype));
    switch (dtype) {
    case TT_F32:
        return u.f;
    case TT_F64:
        return u.d;
    case TT_BF16:
        return tt_bf16_to_f32(u.h);
    case TT_F16:
        return tt_f16_to_f32(u.h);
    case TT_I32:
        return u.i;
    case TT_I64:
        return (double)u.l;
    case TT_U8:
        return (double)u.b;
    case TT_F8_E4M3:
        return (double)tt_e4m3_to_f32(u.b);
    default:
        fail_msg("the harness does not know type %s", tt_dtype_name(dtype));
        return 0;
    }
}

static void write_element(unsigned char *to, tt_dtype dtype, double value)
{
    union {
        float f;
        double d;
        uint16_t h;
        int32_t i;
        int64_t l;
        uint8_t b;
    } u;
    switch (dtype) {
    case TT_F32:
        u.f = (float)value;
        break;
    case TT_F64:
        u.d = value;
        break;
    case TT_BF16:
        u.h = tt_f32_to_bf16((float)value);
        break;
    case TT_F16:
        u.h = tt_f32_to_f16((float)value);
        break;
    case TT_I32:
        u.i = (int32_t)value;
        break;
    case TT_I64:
        u.l = (int64_t)value;
        break;
    case TT_U8:
        u.b = (uint8_t)value;
        break;
    case TT_F8_E4M3:
        u.b = tt_e4m3_from_f32((float)value);
        break;
    default:
        fail_msg("the harness does not know type %s", tt_dtype_name(dtype));
        return;
    }
    memcpy(to, &u, tt_dtype_bytes(dtype));
}

float test_round(float value, tt_dtype dtype)
{
    unsigned char bytes[8];
    write_element(bytes, dtype, value);
    return (float)read_element(bytes, dtype);
}

static void read_row(void *context, unsigned char *row, int64_t first, int64_t count, tt_dtype dtype)
{
    double *values = context;
    for (int64_t i = 0; i < count; i++) {
        values[first + i] = read_element(row + (size_t)i * tt_dtype_bytes(dtype), dtype);
    }
}

static void write_row(void *context, unsigned char *row, int64_t first, int64_t count, tt_dtype dtype)
{
    const double *values = context;
    for (int64_t i = 0; i < count; i++) {
        write_element(row + (size_t)i * tt_dtype_bytes(dtype), dtype, values[first + i]);
    }
}

double *test_view_values(tt_tensor view)
{
    double *values = test_doubles(tt_tensor_count(view));
    for_rows(view, read_row, values);
    return values;
}

double *test_tensor_values(const struct test_tensor *tensor)
{
    assert_null(tensor->buffer); /* still on the device */
    return test_view_values(tensor->view);
}

void test_tensor_set(const struct test_tensor *tensor, const double *values)
{
    assert_null(tensor->buffer);
    for_rows(tensor->view, write_row, (void *)values);
}

struct test_tensor test_tensor_make(tt_dtype dtype, int64_t d0, int64_t d1, int64_t d2, int64_t gap)
{
    struct test_tensor tensor = {0};
    size_t element = tt_dtype_bytes(dtype);
    int64_t rows = d1 == TEST_UNUSED ? 1 : d0;
    int64_t width = d1 == TEST_UNUSED ? d0 : d2 == TEST_UNUSED ? d1 : d1 * d2;
    size_t body = (size_t)(rows * (width + gap)) * element;
    tensor.memory_bytes = body + 2 * guard_bytes();
    tensor.memory = must_allocate(tensor.memory_bytes);
    memset(tensor.memory, GUARD_BYTE, tensor.memory_bytes);
    void *data = tensor.memory + guard_bytes();
    if (d1 == TEST_UNUSED) {
        tensor.view = tt_tensor_1d(data, dtype, d0);
    } else if (d2 == TEST_UNUSED) {
        tensor.view = tt_tensor_2d_strided(data, dtype, d0, d1, width + gap);
    } else {
        tensor.view = tt_tensor_3d(data, dtype, d0, d1, d2);
        tensor.view.strides[0] = width + gap;
    }
    double *zeros = test_doubles(tt_tensor_count(tensor.view));
    test_tensor_set(&tensor, zeros);
    free(zeros);
    return tensor;
}

struct test_tensor test_tensor_random(tt_dtype dtype, int64_t d0, int64_t d1, int64_t d2, int64_t gap,
                                      uint64_t seed, double scale)
{
    struct test_tensor tensor = test_tensor_make(dtype, d0, d1, d2, gap);
    int64_t count = tt_tensor_count(tensor.view);
    double *values = test_doubles(count);
    struct tt_rng rng = tt_rng_derive(tt_rng_make(seed), "test");
    int64_t drawn = count < DRAWN_MAX ? count : DRAWN_MAX;
#pragma omp parallel for if (TEST_IS_LARGE(count))
    for (int64_t i = 0; i < drawn; i++) values[i] = scale * tt_rng_normal(rng, (uint64_t)i);
        /* Matrices of models: normal numbers are slow to draw, so the rest are the first in another order. */
#pragma omp parallel for if (TEST_IS_LARGE(count))
    for (int64_t i = drawn; i < count; i++) {
        uint64_t mixed = ((uint64_t)i + seed) * 0x9e3779b97f4a7c15u;
        mixed = (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9u;
        values[i] = values[(mixed >> 32) % DRAWN_MAX];
    }
    test_tensor_set(&tensor, values);
    free(values);
    return tensor;
}

void test_tensor_random_index(const struct test_tensor *tensor, uint64_t seed, int64_t bound)
{
    int64_t count = tt_tensor_count(tensor->view);
    double *values = test_doubles(count);
    struct tt_rng rng = tt_rng_derive(tt_rng_make(seed), "test index");
    for (int64_t i = 0; i < count; i++) {
        values[i] = (double)tt_rng_below(rng, (uint64_t)i, (uint64_t)bound);
    }
    test_tensor_set(tensor, values);
    free(values);
}

void test_tensor_free(struct test_tensor *tensor)
{
    tt_buffer_destroy(tensor->buffer);
    free(tensor->memory);
    *tensor = (struct test_tensor){0};
}

void test_array_free(struct test_tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) test_tensor_free(&tensors[i]);
}

struct test_tensor test_tensor_copy(const struct test_tensor *tensor)
{
    assert_null(tensor->buffer);
    struct test_tensor copy = *tensor;
    copy.memory = must_allocate(tensor->memory_bytes);
    memcpy(copy.memory, tensor->memory, tensor->memory_bytes);
    copy.view.data = copy.memory + guard_bytes();
    return copy;
}

static void stamp_row(void *context, unsigned char *row, int64_t first, int64_t count, tt_dtype dtype)
{
    (void)context, (void)first;
    memset(row, GUARD_BYTE, (size_t)count * tt_dtype_bytes(dtype));
}

static void poison_row(void *context, unsigned char *row, int64_t first, int64_t count, tt_dtype dtype)
{
    (void)context, (void)first;
    memset(row, 0xFF, (size_t)count * tt_dtype_bytes(dtype));
}

void test_tensor_poison(const struct test_tensor *tensor)
{
    for_rows(tensor->view, poison_row, NULL);
}

void test_tensor_check_gaps(const char *what, const struct test_tensor *tensor)
{
    struct test_tensor copy = test_tensor_copy(tensor);
    for_rows(copy.view, stamp_row, NULL);
    size_t at = 0;
    while (at < copy.memory_bytes && copy.memory[at] == GUARD_BYTE) at++;
    bool untouched = at == copy.memory_bytes;
    test_tensor_free(&copy);
    if (!untouched) {
        fail_msg("%s: byte %zd was written, which is outside the tensor%s", what,
                 (ssize_t)at - (ssize_t)guard_bytes(), where());
    }
}

void test_array_check_gaps(const char *const *names, const struct test_tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) {
        char number[24];
        snprintf(number, sizeof number, "tensor %d", i);
        test_tensor_check_gaps(names != NULL ? names[i] : number, &tensors[i]);
    }
}

void test_tensor_equal(const char *what, const struct test_tensor *a, const struct test_tensor *b)
{
    assert_true(tt_tensor_same_shape(a->view, b->view) && a->view.dtype == b->view.dtype);
    double *a_values = test_tensor_values(a), *b_values = test_tensor_values(b);
    int64_t count = tt_tensor_count(a->view);
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(&a_values[i], &b_values[i], sizeof *a_values) != 0) {
            fail_msg("%s: element %lld of %lld is %.9g and %.9g%s", what, (long long)i, (long long)count,
                     a_values[i], b_values[i], where());
        }
    }
    free(a_values);
    free(b_values);
}

struct error_size {
    double largest, rms;
    int64_t at;
};

static struct error_size error_against(const double *values, const double *oracle, int64_t count)
{
    struct error_size size = {0};
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double error = fabs(values[i] - oracle[i]);
        if (isnan(error)) error = values[i] == oracle[i] ? 0 : INFINITY;
        if (error > size.largest) {
            size.largest = error;
            size.at = i;
        }
        sum += error * error;
    }
    if (count > 0) size.rms = sqrt(sum / (double)count);
    return size;
}

void test_close(const char *what, const double *got, const double *oracle, const double *plain, int64_t count,
                tt_dtype dtype, double factor)
{
    test_close_allowing(what, got, oracle, plain, count, dtype, factor, 0, 0);
}

void test_close_allowing(const char *what, const double *got, const double *oracle, const double *plain,
                         int64_t count, tt_dtype dtype, double factor, double relative, double absolute)
{
    struct error_size got_error = error_against(got, oracle, count);
    struct error_size plain_error = error_against(plain, oracle, count);
    double zero = 0, half_unit = dtype == TT_BF16 ? 0x1p-9 : dtype == TT_F16 ? 0x1p-12 : 0x1p-25;
    double largest = 0, sum = 0;
    if (half_unit < relative) half_unit = relative;
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(oracle[i]));
        sum += oracle[i] * oracle[i];
    }
    double rms = count > 0 ? sqrt(sum / (double)count) : zero;
    double bound_largest = fmax(fmax(factor * plain_error.largest, half_unit * largest), absolute);
    double bound_rms = fmax(fmax(factor * plain_error.rms, half_unit * rms), absolute);
    if (got_error.largest > bound_largest) {
        int64_t at = got_error.at;
        fail_msg(
            "%s: element %lld of %lld is %.9g, the oracle says %.9g, plain code %.9g; off by %.3g, at most "
            "%.3g%s",
            what, (long long)at, (long long)count, got[at], oracle[at], plain[at], got_error.largest,
            bound_largest, where());
    }
    if (got_error.rms > bound_rms) {
        fail_msg("%s: root mean square error %.3g, at most %.3g%s", what, got_error.rms, bound_rms, where());
    }
}

void test_gradient(const char *what, test_function *f, void *context, double *x, const double *gradient,
                   int64_t count)
{
    double scale = 0;
    for (int64_t i = 0; i < count; i++) scale = fmax(scale, fabs(gradient[i]));
    for (int64_t i = 0; i < count; i++) {
        double h = 1e-5 * fmax(1.0, fabs(x[i])), x_here = x[i];
        x[i] = x_here + h;
        double up = f(context);
        x[i] = x_here - h;
        double down = f(context);
        x[i] = x_here;
        double difference = (up - down) / (2 * h);
        /* Truncation is O(h^2), cancellation O(1e-16 |f| / h). */
        double allowed = 1e-7 * scale + 1e-10 * (1 + fabs(up));
        if (!(fabs(difference - gradient[i]) <= allowed)) {
            fail_msg("%s: derivative %lld of %lld is %.9g, finite differences say %.9g%s", what, (long long)i,
                     (long long)count, gradient[i], difference, where());
        }
    }
}

void test_case_set(const char *what, size_t row)
{
    case_table_name = what;
    case_row = row;
}

void test_case_table(const char *what, const void *rows, size_t row_bytes, size_t count, test_case_body *body)
{
    for (size_t row = 0; row < count; row++) {
        test_case_set(what, row);
        body((const char *)rows + row * row_bytes);
    }
    test_case_set(NULL, 0);
}
