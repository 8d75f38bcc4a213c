/* FP8: rows to E4M3 have the bits of plain code; products of E4M3 matrices are those of the coded numbers in fp64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops/gemm_fused.h"
#include "backend/ops/gemm_scaled.h"
#include "base/alloc.h"
#include "ops/coded_rows.h"
#include "ops/isa.h"

/* The error of a product of coded numbers, rounded to bf16 or not, relative to the size of the result: rounding to bf16
 * alone makes 1.7e-3. */
static const double error_most = 2.5e-3;

struct rows_case {
    int64_t rows, cols;
    tt_dtype dtype;
    int64_t gap;
};

static const struct rows_case rows_cases[] = {
    {7, 64, TT_BF16, 0},   {7, 64, TT_F32, 0},    {5, 96, TT_BF16, 8},   {3, 33, TT_BF16, 1},
    {3, 1, TT_F32, 0},     {9, 1040, TT_F32, 4},  {4, 5000, TT_BF16, 0}, {2, 40000, TT_BF16, 0},
    {2, 10008, TT_F32, 0}, {1, 2056, TT_BF16, 3},
};

static const struct rows_case rows_gpu_cases[] = {
    {513, 4096, TT_BF16, 0},
    {300, 14336, TT_BF16, 0},
    {200, 28672, TT_BF16, 0},
    {257, 6144, TT_F32, 0},
};

static void run_rows(struct test_device *device, int threads, void *context)
{
    static const double sizes[] = {1, 1e-3, 30000, 1e-30, 0, 1e-37};
    const struct rows_case *row = context;
    struct test_tensor x = test_tensor_random(row->dtype, row->rows, row->cols, TEST_UNUSED, row->gap, 3, 1);
    struct test_tensor codes = test_tensor_make(TT_F8_E4M3, row->rows, row->cols, TEST_UNUSED, 0);
    struct test_tensor scale = test_tensor_make(TT_F32, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    (void)threads;
    fill_rows(&x, sizes, sizeof sizes / sizeof *sizes, 5e4);
    test_tensor_poison(&codes);
    test_tensor_poison(&scale);
    TEST_TO_DEVICE(device, &x, &codes, &scale);
    struct tt_quantize_rows_args args = {.x_MK = x.view, .codes_MK = codes.view, .scale_M = scale.view};
    test_ok(tt_quantize_rows(device->stream, &args));
    TEST_TO_HOST(device, &x, &codes, &scale);
    double *values = test_tensor_values(&x);
    expect_rows("rows", values, &codes, &scale);
    free(values);
    test_tensor_check_gaps("codes", &codes);
    test_tensor_check_gaps("scale", &scale);
    test_tensor_free(&x);
    test_tensor_free(&codes);
    test_tensor_free(&scale);
}

/* Numbers at the borders between codes, and beside them, of rows with many scales: the code is that of the quotient,
 * which a product with the reciprocal of the scale misses here and there. Returns how often it does. */
static int fill_borders(struct test_tensor *x)
{
    int misses = 0;
    int64_t rows = x->view.dims[0], cols = x->view.dims[1];
    for (int64_t r = 0; r < rows; r++) {
        float *row = (float *)x->view.data + r * cols,
              largest = ldexpf(1.0f + (float)r * 0.0137f, (int)r % 60 - 30);
        float scale = tt_e4m3_scale(largest);
        for (int64_t c = 0; c < cols; c++) {
            int code = (int)(c / 3) % 0x7d;
            double border =
                0.5 * ((double)tt_e4m3_to_f32((uint8_t)code) + (double)tt_e4m3_to_f32((uint8_t)(code + 1)));
            float number = (float)(border * (double)scale);
            row[c] = c == 0 ? largest : c % 3 == 0 ? number : nextafterf(number, c % 3 == 1 ? 0 : largest);
            misses += tt_e4m3_from_f32(row[c] / scale) != tt_e4m3_from_f32(row[c] * (1.0f / scale));
        }
    }
    return misses;
}

static void run_borders(struct test_device *device, int threads, void *context)
{
    const struct rows_case *row = context;
    struct test_tensor x = test_tensor_make(TT_F32, row->rows, row->cols, TEST_UNUSED, 0);
    struct test_tensor codes = test_tensor_make(TT_F8_E4M3, row->rows, row->cols, TEST_UNUSED, 0);
    struct test_tensor scale = test_tensor_make(TT_F32, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    (void)threads;
    assert_true(fill_borders(&x) > 100);
    double *values = test_tensor_values(&x);
    TEST_TO_DEVICE(device, &x, &codes, &scale);
    struct tt_quantize_rows_args args = {.x_MK = x.view, .codes_MK = codes.view, .scale_M = scale.view};
    test_ok(tt_quantize_rows(device->stream, &args));
    TEST_TO_HOST(device, &x, &codes, &scale);
    expect_rows("borders", values, &codes, &scale);
    free(values);
    test_tensor_free(&x);
    test_tensor_free(&codes);
    test_tensor_free(&scale);
}

static void numbers_at_borders_are_divided(void **state)
{
    static const struct rows_case borders[] = {{60, 384, TT_F32, 0}, {60, 377, TT_F32, 0}};
    (void)state;
    TEST_ISA_CASES("quantize_rows", borders, run_borders);
}

static void rows_have_the_bits_of_plain_code(void **state)
{
    (void)state;
    TEST_ISA_CASES("quantize_rows", rows_cases, run_rows);
    if (test_sizes_wanted()) TEST_ISA_CASES("quantize_rows", rows_gpu_cases, run_rows);
}

/* ---- Products ---- */

enum { NO_ADDEND, IN_PLACE, APART };
struct product_case {
    int64_t m, n, k;
    tt_dtype dtype; /* of y */
    int addend;
    int64_t gap; /* of y; a is then a part of wider rows, too */
};

static const struct product_case product_cases[] = {
    {5, 16, 16, TT_F32, NO_ADDEND, 0},   {33, 48, 96, TT_BF16, NO_ADDEND, 0},
    {1, 64, 32, TT_BF16, IN_PLACE, 0},   {40, 32, 64, TT_F32, APART, 8},
    {300, 80, 176, TT_BF16, APART, 16},  {17, 16, 512, TT_BF16, IN_PLACE, 16},
    {257, 112, 80, TT_F32, IN_PLACE, 0},
};

static const struct product_case product_gpu_cases[] = {
    {2048, 6144, 4096, TT_BF16, NO_ADDEND, 0},
    {1024, 4096, 14336, TT_BF16, NO_ADDEND, 0},
    {1999, 4096, 14336, TT_BF16, APART, 0},
    {4096, 4096, 1024, TT_BF16, IN_PLACE, 0},
    {8192, 1024, 4096, TT_BF16, NO_ADDEND, 2048},
    {1, 4096, 4096, TT_BF16, NO_ADDEND, 0},
    {2048, 2048, 2048, TT_F32, NO_ADDEND, 0},
    {300, 1040, 28672, TT_BF16, NO_ADDEND, 8},
    {8448, 2048, 1024, TT_BF16, NO_ADDEND, 0},
    /* rows of generation */
    {64, 5120, 2048, TT_BF16, NO_ADDEND, 0},
    {37, 4096, 14336, TT_BF16, IN_PLACE, 0},
    {5, 1536, 4112, TT_F32, APART, 0},
    {64, 144, 2048, TT_BF16, NO_ADDEND, 16},
    {48, 28672, 4096, TT_BF16, NO_ADDEND, 0},
};

/* A matrix of codes with scales, and its values. */
struct coded {
    struct test_tensor codes, scale;
    double *values;
};

static struct coded make_coded(int64_t rows, int64_t cols, int64_t gap, uint64_t seed, double size)
{
    struct coded made = {.codes = test_tensor_make(TT_F8_E4M3, rows, cols, TEST_UNUSED, gap),
                         .scale = test_tensor_make(TT_F32, rows, TEST_UNUSED, TEST_UNUSED, 0),
                         .values = test_doubles(rows * cols)};
    struct test_tensor x = test_tensor_random(TT_F32, rows, cols, TEST_UNUSED, 0, seed, size);
    int64_t stride = made.codes.view.strides[0];
    for (int64_t r = 0; r < rows; r++) {
        const float *row = (const float *)x.view.data + r * cols;
        uint8_t *codes = (uint8_t *)made.codes.view.data + r * stride;
        float largest = 0, grown = 1.0f + (float)(r % 5) * 7.0f;
        for (int64_t c = 0; c < cols; c++) largest = fmaxf(largest, fabsf(row[c] * grown));
        float scale = tt_e4m3_scale(largest);
        ((float *)made.scale.view.data)[r] = scale;
        for (int64_t c = 0; c < cols; c++) {
            codes[c] = tt_e4m3_from_f32(row[c] * grown / scale);
            made.values[r * cols + c] = (double)tt_e4m3_to_f32(codes[c]) * (double)scale;
        }
    }
    test_tensor_free(&x);
    return made;
}

static void free_coded(struct coded *coded)
{
    test_tensor_free(&coded->codes);
    test_tensor_free(&coded->scale);
    free(coded->values);
}

/* The root of the mean over rows of (error / size)^2; rows `step` apart are looked at. No row may be off by more than
 * twice that: bf16 rounds a single number by at most 3.9e-3. */
static void check_product(const char *what, const struct test_tensor *y, const double *a, const double *b,
                          const double *addend, int64_t k, double most)
{
    int64_t m = y->view.dims[0], n = y->view.dims[1], step = m * n * k > (INT64_C(1) << 28) ? 97 : 1;
    double *got = test_tensor_values(y), squares = 0, seen = 0;
    for (int64_t row = 0; row < m; row += step, seen++) {
        double error = 0, size = 0;
#pragma omp parallel for reduction(+ : error, size) if (TEST_IS_LARGE(n * k))
        for (int64_t col = 0; col < n; col++) {
            double sum = addend != NULL ? addend[row * n + col] : 0;
            for (int64_t i = 0; i < k; i++) sum += a[row * k + i] * b[col * k + i];
            double difference = got[row * n + col] - sum;
            error += difference * difference;
            size += sum * sum;
        }
        if (!(sqrt(error) <= 2 * most * sqrt(size)))
            fail_msg("%s: row %lld is off by %.2e", what, (long long)row, sqrt(error / size));
        squares += error / size;
    }
    if (!(sqrt(squares / seen) <= most)) fail_msg("%s is off by %.2e", what, sqrt(squares / seen));
    print_message("%s %lld x %lld x %lld: error %.2e\n", what, (long long)m, (long long)n, (long long)k,
                  sqrt(squares / seen));
    free(got);
}

static struct test_tensor push_scratch(const struct test_device *device, int64_t m, int64_t n, int64_t k)
{
    size_t bytes = tt_gemm_scaled_scratch(device->device, m, n, k);
    return bytes > 0 ? test_tensor_make(TT_U8, (int64_t)bytes + 64, TEST_UNUSED, TEST_UNUSED, 0)
                     : (struct test_tensor){0};
}

static tt_tensor aligned(const struct test_tensor *scratch)
{
    tt_tensor view = scratch->view;
    if (tt_tensor_is_empty(view)) return view;
    uintptr_t up = (64 - (uintptr_t)view.data % 64) % 64;
    return tt_tensor_1d((char *)view.data + up, TT_U8, view.dims[0] - 64);
}

static void run_product(struct test_device *device, int threads, void *context)
{
    const struct product_case *row = context;
    int64_t m = row->m, n = row->n, k = row->k;
    struct coded a = make_coded(m, k, row->gap > 0 ? 16 : 0, 1, 1), b = make_coded(n, k, 0, 2, 0.1);
    struct test_tensor y = test_tensor_random(row->dtype, m, n, TEST_UNUSED, row->gap, 3, 2);
    struct test_tensor addend = test_tensor_random(row->dtype, m, n, TEST_UNUSED, row->gap, 4, 2);
    struct test_tensor scratch = push_scratch(device, m, n, k);
    double *before = test_tensor_values(row->addend == IN_PLACE ? &y : &addend);
    (void)threads;
    TEST_TO_DEVICE(device, &a.codes, &a.scale, &b.codes, &b.scale, &y, &addend);
    struct tt_gemm_scaled_args args = {.a_MK = a.codes.view,
                                       .a_scale_M = a.scale.view,
                                       .b_NK = b.codes.view,
                                       .b_scale_N = b.scale.view,
                                       .y_MN = y.view,
                                       .scratch = aligned(&scratch)};
    if (row->addend != NO_ADDEND) args.addend_MN = row->addend == IN_PLACE ? y.view : addend.view;
    test_ok(tt_gemm_scaled(device->stream, &args));
    TEST_TO_HOST(device, &a.codes, &a.scale, &b.codes, &b.scale, &y, &addend);
    /* A GPU rounds the product to bf16 before it adds. */
    bool rounds_twice = row->addend != NO_ADDEND && row->dtype == TT_BF16;
    check_product("gemm_scaled", &y, a.values, b.values, row->addend != NO_ADDEND ? before : NULL, k,
                  error_most * (!test_on_cpu() && rounds_twice ? 1.6 : 1));
    test_tensor_check_gaps("y", &y);
    free(before);
    free_coded(&a);
    free_coded(&b);
    test_tensor_free(&y);
    test_tensor_free(&addend);
    if (!tt_tensor_is_empty(scratch.view)) test_tensor_free(&scratch);
}

static void products_are_those_of_the_coded_numbers(void **state)
{
    (void)state;
    TEST_ISA_CASES("gemm_scaled", product_cases, run_product);
    if (test_sizes_wanted()) TEST_ISA_CASES("gemm_scaled", product_gpu_cases, run_product);
}

/* ---- A linear in FP8: quantized rows, two parts, low rank, an addend, a rotation ---- */

/* Forward: y = q(x) [w0; w1]^T + h b^T. Backward: the parts are transposed copies [n0 + n1 columns of x -> k]. */
struct linear_case {
    int64_t m, n0, n1, k;
    bool trans;
    int64_t r; /* of one low-rank part for all columns; 0: none */
    bool adds;
    int64_t rotated; /* columns in heads of 64 */
};

static const struct linear_case linear_cases[] = {
    {40, 48, 32, 64, true, 8, false, 0},
    {40, 48, 32, 64, false, 8, false, 0},
    {33, 64, 64, 96, true, 8, false, 64},
    {33, 64, 64, 96, true, 8, true, 0},
};

/* Chains of every length, parts that end within a step, ranks on both sides of a step of 64. */
static const struct linear_case linear_gpu_cases[] = {
    {1999, 1024, 1024, 1024, true, 16, false, 0},   {1999, 1152, 880, 1168, true, 72, false, 0},
    {2048, 1280, 768, 2064, true, 0, false, 0},     {2048, 1024, 1024, 1024, true, 16, true, 0},
    {2048, 1536, 512, 4096, true, 24, false, 1536}, {2048, 1024, 1040, 2048, false, 16, false, 0},
    {1999, 528, 4112, 2032, false, 200, false, 0},  {2048, 7168, 7168, 2048, false, 0, false, 0},
    {2048, 1024, 1024, 14336, true, 0, true, 0},    {2048, 1024, 1024, 14336, true, 16, false, 0},
    {512, 14336, 14336, 1024, false, 16, false, 0},
};

enum { HEAD = 64, PLACES = 40 };

/* A segment of a coded matrix in memory of the device. */
struct segment {
    struct tt_quant_layout layout;
    struct test_tensor bytes; /* the segment begins at a multiple of 64 bytes */
    int64_t first;
    double *values;
};

static struct segment make_segment(int64_t rows, int64_t cols, uint64_t seed)
{
    struct segment made;
    struct coded coded = make_coded(rows, cols, 0, seed, 0.1);
    test_ok(tt_quant_layout_make(tt_quant_format_make(TT_QUANT_FP8, false), rows, cols, &made.layout));
    made.bytes = test_tensor_make(TT_U8, (int64_t)made.layout.bytes + 64, TEST_UNUSED, TEST_UNUSED, 0);
    made.first = (int64_t)((64 - (uintptr_t)made.bytes.view.data % 64) % 64);
    char *data = (char *)made.bytes.view.data + made.first;
    memcpy(data + made.layout.codes.offset, coded.codes.view.data, made.layout.codes.bytes);
    memcpy(data + made.layout.absmax.offset, coded.scale.view.data, made.layout.absmax.bytes);
    made.values = coded.values;
    test_tensor_free(&coded.codes);
    test_tensor_free(&coded.scale);
    return made;
}

static struct tt_coded part_of(const struct segment *segment, const struct test_tensor *bytes)
{
    return (struct tt_coded){&segment->layout, tt_tensor_1d((char *)bytes->view.data + segment->first, TT_U8,
                                                            (int64_t)segment->layout.bytes)};
}

/* The values of x after its rows were quantized. */
static double *quantized(const struct test_tensor *x)
{
    int64_t rows = x->view.dims[0], cols = x->view.dims[1];
    double *values = test_tensor_values(x);
    for (int64_t r = 0; r < rows; r++) {
        float scale = row_scale(values + r * cols, cols);
        for (int64_t c = 0; c < cols; c++)
            values[r * cols + c] =
                (double)tt_e4m3_to_f32(tt_e4m3_from_f32((float)values[r * cols + c] / scale)) * (double)scale;
    }
    return values;
}

enum { X, HIDDEN, B, Y, ROTATED, ADDEND, CODES, SCALE, W0, W1, POSITIONS, COS, SIN, TENSORS };

struct linear {
    struct linear_case is;
    int64_t inner, outer;
    struct segment parts[2];
    struct test_tensor t[TENSORS], scratch;
};

static struct linear make_linear(const struct test_device *device, const struct linear_case *is)
{
    struct linear made = {.is = *is};
    int64_t n0 = is->n0, n1 = is->n1, k = is->k, m = is->m, r = is->r > 0 ? is->r : 8;
    bool trans = is->trans;
    int64_t inner = trans ? k : n0 + n1, outer = trans ? n0 + n1 : k;
    made.inner = inner;
    made.outer = outer;
    made.parts[0] = trans ? make_segment(n0, k, 5) : make_segment(k, n0, 5);
    made.parts[1] = trans ? make_segment(n1, k, 6) : make_segment(k, n1, 6);
    made.t[X] = test_tensor_random(TT_BF16, m, inner, TEST_UNUSED, 0, 7, 1);
    made.t[HIDDEN] = test_tensor_random(TT_BF16, m, r, TEST_UNUSED, 0, 8, 1);
    made.t[B] = test_tensor_random(TT_BF16, trans ? outer : r, trans ? r : outer, TEST_UNUSED, 0, 9, 0.3);
    made.t[Y] = test_tensor_make(TT_BF16, m, outer, TEST_UNUSED, 16);
    made.t[ROTATED] = test_tensor_make(TT_BF16, m, outer, TEST_UNUSED, 16);
    made.t[ADDEND] = test_tensor_random(TT_BF16, m, outer, TEST_UNUSED, 16, 10, 2);
    made.t[CODES] = test_tensor_make(TT_F8_E4M3, m, inner, TEST_UNUSED, 0);
    made.t[SCALE] = test_tensor_make(TT_F32, m, TEST_UNUSED, TEST_UNUSED, 0);
    made.t[W0] = made.parts[0].bytes;
    made.t[W1] = made.parts[1].bytes;
    made.t[POSITIONS] = test_tensor_make(TT_I32, m, TEST_UNUSED, TEST_UNUSED, 0);
    test_tensor_random_index(&made.t[POSITIONS], 11, PLACES);
    made.t[COS] = test_tensor_random(TT_F32, PLACES, HEAD / 2, TEST_UNUSED, 0, 12, 1);
    made.t[SIN] = test_tensor_random(TT_F32, PLACES, HEAD / 2, TEST_UNUSED, 0, 13, 1);
    made.scratch = push_scratch(device, m, outer, inner);
    test_tensor_poison(&made.t[Y]);
    test_tensor_poison(&made.t[ROTATED]);
    return made;
}

static void multiply_linear(const struct test_device *device, const struct linear *linear, bool rotates)
{
    const struct test_tensor *t = linear->t;
    struct tt_gemm_lora_args args = {
        .x_MK = t[X].view, .trans_w = linear->is.trans, .y_MN = t[rotates ? ROTATED : Y].view};
    args.w.count = 2;
    args.w.parts[0] = part_of(&linear->parts[0], &t[W0]);
    args.w.parts[1] = part_of(&linear->parts[1], &t[W1]);
    args.w.quantized = (struct tt_quantized_rows){
        .codes_MK = t[CODES].view, .scale_M = t[SCALE].view, .scratch = aligned(&linear->scratch)};
    if (linear->is.r > 0) {
        args.low = (struct tt_low_rank){.h_MR = t[HIDDEN].view, .count = 1};
        args.low.parts[0].b = t[B].view;
    }
    if (linear->is.adds) args.addend_MN = t[ADDEND].view;
    if (rotates)
        args.rotation = (struct tt_rotation){.columns = linear->is.rotated,
                                             .head_dim = HEAD,
                                             .positions_T = t[POSITIONS].view,
                                             .cos_PE = t[COS].view,
                                             .sin_PE = t[SIN].view};
    test_ok(tt_gemm_lora(device->stream, &args));
}

/* op(w) as [outer, inner]. */
static double *all_weights(const struct linear *linear)
{
    int64_t outer = linear->outer, inner = linear->inner, n0 = linear->is.n0, n1 = linear->is.n1;
    double *w = test_doubles(outer * inner);
    bool trans = linear->is.trans;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            int64_t along = trans ? o : i, first = along < n0 ? 0 : n0, part = along < n0 ? 0 : 1;
            w[o * inner + i] = trans ? linear->parts[part].values[(o - first) * inner + i]
                                     : linear->parts[part].values[o * (part == 0 ? n0 : n1) + (i - first)];
        }
    return w;
}

/* What is added to the wide product. */
static double *other_terms(const struct linear *linear)
{
    int64_t m = linear->is.m, outer = linear->outer, r = linear->is.r;
    double *h = test_tensor_values(&linear->t[HIDDEN]), *b = test_tensor_values(&linear->t[B]);
    double *low = linear->is.adds ? test_tensor_values(&linear->t[ADDEND]) : test_doubles(m * outer);
    for (int64_t row = 0; row < m; row++)
        for (int64_t o = 0; o < outer; o++)
            for (int64_t i = 0; i < r; i++)
                low[row * outer + o] += h[row * r + i] * (linear->is.trans ? b[o * r + i] : b[i * outer + o]);
    free(h), free(b);
    return low;
}

/* The rotated result is the rotation of the other one, within its rounding. */
static void check_rotated(const struct linear *linear)
{
    int64_t m = linear->is.m, n = linear->outer, half = HEAD / 2;
    double *y = test_tensor_values(&linear->t[Y]), *rotated = test_tensor_values(&linear->t[ROTATED]),
           *at = test_tensor_values(&linear->t[POSITIONS]), *cos_PE = test_tensor_values(&linear->t[COS]),
           *sin_PE = test_tensor_values(&linear->t[SIN]), error = 0, size = 0;
    for (int64_t row = 0; row < m; row++)
        for (int64_t j = 0; j < n; j++) {
            int64_t place = (int64_t)at[row] * half + j % half, other = j % HEAD < half ? j + half : j - half;
            double expected = y[row * n + j], sign = j % HEAD < half ? -1 : 1;
            if (j < linear->is.rotated)
                expected = expected * cos_PE[place] + sign * y[row * n + other] * sin_PE[place];
            double difference = rotated[row * n + j] - expected;
            error += difference * difference;
            size += expected * expected;
        }
    if (!(sqrt(error / size) <= error_most)) fail_msg("the rotation is off by %.2e", sqrt(error / size));
    test_tensor_check_gaps("rotated", &linear->t[ROTATED]);
    free(y), free(rotated), free(at), free(cos_PE), free(sin_PE);
}

/* One kernel takes large cases, whose borders of parts are borders of tiles, on a GPU that has it. */
static bool composes(const struct linear *linear)
{
    return test_on_cpu() || (linear->is.m < 1024 && linear->inner <= 4096);
}

static void check_linear(const void *row)
{
    struct test_device device;
    test_device_open(&device, test_device_kind(), 2);
    struct linear linear = make_linear(&device, row);
    test_array_to_device(&device, linear.t, TENSORS);
    multiply_linear(&device, &linear, false);
    if (linear.is.rotated > 0) multiply_linear(&device, &linear, true);
    test_array_to_host(&device, linear.t, TENSORS);
    test_device_close(&device);
    double *x = quantized(&linear.t[X]), *w = all_weights(&linear), *others = other_terms(&linear);
    /* Composed, bf16 rounds the narrow product and every part of the wide one; one kernel rounds once, or before it
     * adds the addend. */
    check_product("gemm_lora", &linear.t[Y], x, w, others, linear.inner,
                  error_most * (composes(&linear) ? 2
                                : linear.is.adds  ? 1.6
                                                  : 1));
    if (linear.is.rotated > 0) check_rotated(&linear);
    test_tensor_check_gaps("y", &linear.t[Y]);
    free(x), free(w), free(others);
    for (int i = 0; i < 2; i++) free(linear.parts[i].values);
    test_array_free(linear.t, TENSORS);
    if (!tt_tensor_is_empty(linear.scratch.view)) test_tensor_free(&linear.scratch);
}

static void linears_quantize_their_input(void **state)
{
    (void)state;
    TEST_CASES("gemm_lora", linear_cases, check_linear);
    if (test_sizes_wanted()) TEST_CASES("gemm_lora", linear_gpu_cases, check_linear);
}

static void wrong_arguments_are_refused(void **state)
{
    struct test_device device;
    struct coded a = make_coded(4, 32, 0, 1, 1), b = make_coded(16, 32, 0, 2, 1);
    struct test_tensor y = test_tensor_make(TT_F32, 4, 16, TEST_UNUSED, 0);
    (void)state;
    test_device_open(&device, "cpu", 1);
    struct test_tensor scratch = push_scratch(&device, 4, 16, 32);
    const struct tt_gemm_scaled_args good = {.a_MK = a.codes.view,
                                             .a_scale_M = a.scale.view,
                                             .b_NK = b.codes.view,
                                             .b_scale_N = b.scale.view,
                                             .y_MN = y.view,
                                             .scratch = aligned(&scratch)};
    test_ok(tt_gemm_scaled(device.stream, &good));
    struct tt_gemm_scaled_args args = good;
    args.b_NK = tt_tensor_2d(b.codes.view.data, TT_F8_E4M3, 15, 32);
    args.b_scale_N.dims[0] = 15;
    test_refused(tt_gemm_scaled(device.stream, &args), TT_ERR_INTERNAL, "multiples of 16");
    args = good;
    args.a_scale_M.dims[0] = 3;
    test_refused(tt_gemm_scaled(device.stream, &args), TT_ERR_INTERNAL, "its scale");
    args = good;
    args.scratch.dims[0] = 64;
    test_refused(tt_gemm_scaled(device.stream, &args), TT_ERR_INTERNAL, "scratch has 64 bytes");
    struct test_tensor wide = test_tensor_make(TT_F32, 4, 16, TEST_UNUSED, 8);
    args = good;
    args.addend_MN = wide.view;
    test_refused(tt_gemm_scaled(device.stream, &args), TT_ERR_INTERNAL,
                 "rows of addend lie 24 apart, those of y 16");
    args.addend_MN = tt_tensor_rows(y.view, 0, 3);
    test_refused(tt_gemm_scaled(device.stream, &args), TT_ERR_INTERNAL, "addend");
    test_tensor_free(&wide);
    args = good;
    args.scratch.data = (char *)args.scratch.data + 32;
    test_refused(tt_gemm_scaled(device.stream, &args), TT_ERR_INTERNAL, "scratch is not 64-byte aligned");
    args = good;
    args.a_MK.dtype = TT_U8;
    test_refused(tt_gemm_scaled(device.stream, &args), TT_ERR_UNSUPPORTED, "a is");
    struct tt_quantize_rows_args rows = {.x_MK = y.view, .codes_MK = a.codes.view, .scale_M = a.scale.view};
    test_refused(tt_quantize_rows(device.stream, &rows), TT_ERR_INTERNAL, "codes");
    test_device_close(&device);
    free_coded(&a);
    free_coded(&b);
    test_tensor_free(&y);
    test_tensor_free(&scratch);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_bits_of_plain_code),
        cmocka_unit_test(numbers_at_borders_are_divided),
        cmocka_unit_test(products_are_those_of_the_coded_numbers),
        cmocka_unit_test(linears_quantize_their_input),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
