/* backend/ops/grouped_gemm.h against the definition in fp64; the gradients of weights by finite differences. */
#include "backend/ops/grouped_gemm.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/isa.h"
#include "tensor/format.h"

enum { EXPERTS_MAX = 8 };

struct grouped_case {
    int64_t n, k, r, gap;
    tt_dtype dtype;
    bool transposed, bias;
    float alpha;
    int64_t counts[EXPERTS_MAX]; /* rows of each expert, ended by -1 */
};

static const struct grouped_case cases[] = {
    {32, 48, 0, 0, TT_F32, false, false, 0, {5, 0, 17, 1, -1}},
    {32, 48, 0, 3, TT_BF16, false, true, 0, {40, 2, 0, 9, -1}},
    {40, 24, 4, 0, TT_F32, false, false, 0, {3, 30, 6, -1}},
    {40, 24, 8, 2, TT_BF16, true, false, 0, {12, 1, 1, 50, -1}},
    {33, 17, 3, 0, TT_F32, true, false, 0, {0, 0, 21, -1}},
    {4, 64, 0, 0, TT_F32, false, false, 2.5f, {7, 9, -1}},
    {64, 4, 0, 1, TT_BF16, true, false, 0.5f, {70, 3, -1}},
    {8, 8, 0, 0, TT_F32, false, false, 0, {0, 0, -1}},
};

static const struct grouped_case gpu_cases[] = {
    {1536, 2048, 16, 0, TT_BF16, false, false, 0, {300, 3, 0, 128, 129, 257, -1}},
    {2048, 768, 0, 0, TT_BF16, true, false, 0, {64, 256, 31, 1, -1}},
    {520, 200, 8, 8, TT_BF16, false, true, 0, {300, 0, 64, 65, 1, 513, -1}},
    {264, 136, 24, 0, TT_BF16, true, false, 0, {257, 385, 0, 2, -1}},
    {16, 1024, 0, 0, TT_BF16, false, false, 0.5f, {130, 0, 250, -1}},
    {8, 72, 0, 0, TT_BF16, true, true, 2, {0, 40, 300, -1}},
    /* few rows */
    {1536, 2048, 16, 0, TT_BF16, false, false, 0, {0, 1, 0, 8, 9, 0, 63, -1}},
    {2048, 768, 0, 8, TT_BF16, false, true, 0, {0, 0, 1, -1}},
    {48, 64, 0, 0, TT_BF16, false, true, 0.5f, {128, 0, -1}},
    {48, 64, 3, 0, TT_BF16, false, true, 0, {65, 0, 63, -1}},
    {2880, 2880, 0, 0, TT_BF16, false, true, 0, {0, 4, 0, 0, 7, 0, 17, -1}},
};

enum { A, W, H, B, BIAS, Y, DY, DW, LINES };
static const char *const names[LINES] = {"x", "w", "h", "b", "bias", "y", "dy", "dw"};

struct problem {
    const struct grouped_case *row;
    int64_t experts, rows;
    struct test_tensor border, tensors[LINES], first[LINES];
    double *exact[LINES], *simple[LINES];
};

static void make_problem(struct problem *p, const struct grouped_case *row)
{
    double ends[EXPERTS_MAX + 1] = {0};
    int64_t none = TEST_UNUSED, n = row->n, k = row->k, r = row->r > 0 ? row->r : 1;
    memset(p, 0, sizeof *p);
    p->row = row;
    for (; row->counts[p->experts] >= 0; p->experts++)
        ends[p->experts + 1] = (double)(p->rows += row->counts[p->experts]);
    p->border = test_tensor_make(TT_I32, p->experts + 1, none, none, 0);
    test_tensor_set(&p->border, ends);
    for (int i = 0; i < LINES; i++) {
        uint64_t seed = (uint64_t)i + 1;
        if (i == A || i == H || i == Y || i == DY)
            p->tensors[i] = test_tensor_random(row->dtype, p->rows,
                                               i == A   ? k
                                               : i == H ? r
                                                        : n,
                                               none, row->gap, seed, 1);
        else if (i == BIAS)
            p->tensors[i] = test_tensor_random(row->dtype, p->experts, n, none, 0, seed, 1);
        else if (i == W || i == B)
            p->tensors[i] = test_tensor_random(row->dtype, p->experts, row->transposed ? (i == W ? k : r) : n,
                                               row->transposed ? n : (i == W ? k : r), 0, seed, 1);
        else
            p->tensors[i] = test_tensor_random(TT_F32, p->experts, n, k, 0, seed, 1);
        if (i == Y) test_tensor_poison(&p->tensors[i]);
        p->exact[i] = test_tensor_values(&p->tensors[i]);
        p->simple[i] = test_tensor_values(&p->tensors[i]);
    }
}

static void free_problem(struct problem *p)
{
    test_tensor_free(&p->border);
    test_array_free(p->tensors, LINES);
    test_array_free(p->first, LINES);
    test_free_values(p->exact, LINES);
    test_free_values(p->simple, LINES);
}

/* The rows of a matrix of an expert are outputs, or with `transposed` inputs. */
#define DEFINE_REFERENCE(name, real)                                                                         \
    static void name(const struct problem *p, double *const v[LINES])                                        \
    {                                                                                                        \
        const struct grouped_case *row = p->row;                                                             \
        int64_t N = row->n, K = row->k, R = row->r, m = 0;                                                   \
        for (int64_t e = 0; e < p->experts; e++)                                                             \
            for (int64_t end = m + row->counts[e]; m < end; m++)                                             \
                for (int64_t n = 0; n < N; n++) {                                                            \
                    real sum = 0, dy = (real)v[DY][m * N + n];                                               \
                    for (int64_t k = 0; k < K; k++) {                                                        \
                        int64_t at = row->transposed ? (e * K + k) * N + n : (e * N + n) * K + k;            \
                        sum += (real)v[A][m * K + k] * (real)v[W][at];                                       \
                        v[DW][(e * N + n) * K + k] =                                                         \
                            (double)((real)v[DW][(e * N + n) * K + k] + dy * (real)v[A][m * K + k]);         \
                    }                                                                                        \
                    sum *= row->alpha == 0 ? 1 : (real)row->alpha;                                           \
                    for (int64_t r = 0; r < R; r++) {                                                        \
                        int64_t at = row->transposed ? (e * R + r) * N + n : (e * N + n) * R + r;            \
                        sum += (real)v[H][m * R + r] * (real)v[B][at];                                       \
                    }                                                                                        \
                    v[Y][m * N + n] = (double)sum;                                                           \
                }                                                                                            \
    }

DEFINE_REFERENCE(oracle, double)
DEFINE_REFERENCE(plain, float)

/* The bias is added behind the rounding of the product. */
static void add_bias(const struct problem *p, double *y, const double *bias, bool rounds)
{
    int64_t N = p->row->n, m = 0;
    for (int64_t e = 0; e < p->experts; e++)
        for (int64_t end = m + p->row->counts[e]; m < end; m++)
            for (int64_t n = 0; n < N; n++) {
                double *value = &y[m * N + n];
                if (rounds) *value = (double)test_round((float)*value, p->row->dtype);
                if (p->row->bias) *value += bias[e * N + n];
                if (rounds) *value = (double)test_round((float)*value, p->row->dtype);
            }
}

static void run_op(struct test_device *device, const struct problem *p, tt_tensor border,
                   struct test_tensor *t)
{
    const struct grouped_case *row = p->row;
    const tt_tensor none = {0};
    struct tt_grouped_gemm_args product = {.border_X1 = border,
                                           .x_MK = t[A].view,
                                           .w_XNK = t[W].view,
                                           .transposed = row->transposed,
                                           .h_MR = row->r > 0 ? t[H].view : none,
                                           .b_XNR = row->r > 0 ? t[B].view : none,
                                           .bias_XN = row->bias ? t[BIAS].view : none,
                                           .alpha = row->alpha,
                                           .y_MN = t[Y].view};
    struct tt_grouped_gradients_args gradients = {
        .border_X1 = border, .dy_MN = t[DY].view, .x_MK = t[A].view, .dw_XNK = t[DW].view};
    test_ok(tt_grouped_gemm(device->stream, &product));
    test_ok(tt_grouped_gradients(device->stream, &gradients));
}

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor t[LINES], border = test_tensor_copy(&p->border);
    for (int i = 0; i < LINES; i++) t[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, t, LINES);
    TEST_TO_DEVICE(device, &border);
    run_op(device, p, border.view, t);
    test_array_to_host(device, t, LINES);
    TEST_TO_HOST(device, &border);
    for (int i = 0; i < LINES; i++) {
        if (i == Y || i == DW)
            test_check_result(names[i], t[i], threads, p->exact[i], p->simple[i], 3, &p->first[i]);
        else
            test_check_untouched(names[i], &t[i], &p->tensors[i]);
    }
    test_check_untouched("border", &border, &p->border);
}

static void check_case(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    oracle(&p, p.exact);
    plain(&p, p.simple);
    add_bias(&p, p.exact[Y], p.exact[BIAS], false);
    add_bias(&p, p.simple[Y], p.simple[BIAS], true);
    test_on_each_isa(check_run, &p);
    free_problem(&p);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("grouped gemm", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("grouped gemm", gpu_cases, check_case);
}

static double weighted_output(void *context)
{
    struct problem *p = context;
    double sum = 0;
    memset(p->exact[DW], 0, (size_t)(p->experts * p->row->n * p->row->k) * sizeof(double));
    oracle(p, p->exact);
    for (int64_t i = 0; i < p->rows * p->row->n; i++) sum += p->exact[Y][i] * p->exact[DY][i];
    return sum;
}

static void oracle_agrees_with_finite_differences(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    const struct grouped_case row = {3, 4, 2, 0, TT_F32, false, false, 0, {2, 0, 3, -1}};
    struct problem p;
    make_problem(&p, &row);
    weighted_output(&p);
    double *gradient = test_doubles(3 * 3 * 4);
    memcpy(gradient, p.exact[DW], 3 * 3 * 4 * sizeof *gradient);
    test_gradient("dw", weighted_output, &p, p.exact[W], gradient, 3 * 3 * 4);
    free(gradient);
    free_problem(&p);
}

/* ---- Coded matrices ---- */

static const struct tt_quant_format formats[] = {
    {.type = TT_QUANT_NF4, .block = 64},
    {.type = TT_QUANT_NF4, .nested = true, .block = 64, .nested_block = 256},
    {.type = TT_QUANT_FP4, .block = 64},
    {.type = TT_QUANT_MXFP4, .nested = true, .block = 32, .nested_block = 256},
    {.type = TT_QUANT_INT8},
    {.type = TT_QUANT_FP8},
    {.type = TT_QUANT_FP8, .block = TT_FP8_BLOCK},
};

/* Rows and columns in multiples of 8, and not; experts without rows. */
static const struct grouped_case coded_cases[] = {
    {32, 48, 0, 0, TT_F32, false, false, 0, {5, 0, 17, 1, -1}},
    {64, 32, 4, 0, TT_BF16, false, true, 0, {0, 9, 0, 33, 2, 0, -1}},
    {160, 136, 8, 0, TT_BF16, true, false, 0, {12, 0, 1, 50, -1}},
    {33, 18, 2, 3, TT_F32, true, false, 0, {0, 21, 4, -1}},
    {12, 7, 0, 0, TT_BF16, false, false, 0.5f, {7, 0, 9, -1}},
};

static const struct grouped_case coded_sizes[] = {
    {1536, 2048, 16, 0, TT_BF16, false, false, 0, {300, 3, 0, 128, 129, 257, -1}},
    {2048, 768, 0, 0, TT_BF16, true, false, 0, {64, 256, 0, 31, 1, -1}},
};

struct coded_problem {
    const struct grouped_case *row;
    struct problem p;
    struct tt_quant_layout layout;
    uint8_t *segment;
};

static tt_status read_float(void *context, int64_t first, int64_t count, void *to)
{
    memcpy(to, (const float *)context + first, (size_t)count * sizeof(float));
    return TT_OK;
}

/* A segment of normal numbers; squares, which are not made, get codes by rows and scales of their own. */
static void make_segment(struct coded_problem *coded, struct tt_quant_format format)
{
    const tt_tensor *w = &coded->p.tensors[W].view;
    int64_t rows = w->dims[0] * w->dims[1], cols = w->dims[2];
    struct tt_quant_layout made;
    struct tt_quant_format plain = format;
    if (format.type == TT_QUANT_FP8) plain.block = 0;
    test_ok(tt_quant_layout_make(format, rows, cols, &coded->layout));
    test_ok(tt_quant_layout_make(plain, rows, cols, &made));
    struct test_tensor numbers = test_tensor_random(TT_F32, rows, cols, TEST_UNUSED, 0, 5, 0.02);
    float *absmax = tt_alloc_aligned((size_t)made.blocks * sizeof *absmax);
    coded->segment = tt_alloc_aligned(coded->layout.bytes > made.bytes ? coded->layout.bytes : made.bytes);
    assert_true(absmax != NULL && coded->segment != NULL);
    tt_quant_absmax(&made, 0, made.blocks, numbers.view.data, TT_F32, absmax);
    struct tt_quant_source source = {.absmax = absmax,
                                     .offset = tt_quant_offset(&made, absmax),
                                     .dtype = TT_F32,
                                     .read = read_float,
                                     .context = numbers.view.data};
    test_ok(tt_quant_encode(&made, &source, 0, made.bytes, coded->segment));
    for (int64_t i = 0; i < coded->layout.blocks && format.block == TT_FP8_BLOCK; i++)
        memcpy(coded->segment + coded->layout.absmax.offset + (size_t)i * sizeof(float),
               &(float){0.001f * (float)(1 + i % 7)}, sizeof(float));
    tt_free(absmax);
    test_tensor_free(&numbers);
}

static void run_coded(struct test_device *device, const struct coded_problem *coded, int64_t together,
                      struct test_tensor *t, tt_tensor border)
{
    const struct grouped_case *row = coded->row;
    const tt_tensor none = {0}, *w = &coded->p.tensors[W].view;
    struct test_tensor scratch = test_tensor_make(row->dtype, together, w->dims[1], w->dims[2], 0);
    struct tt_buffer *buffer = NULL;
    test_ok(tt_buffer_create(device->device, coded->layout.bytes, TT_PURPOSE_WEIGHTS, &buffer));
    test_ok(tt_copy_to_device(device->stream, tt_buffer_data(buffer), coded->segment, coded->layout.bytes));
    TEST_TO_DEVICE(device, &scratch);
    struct tt_grouped_gemm_args product = {
        .border_X1 = border,
        .x_MK = t[A].view,
        .coded = {&coded->layout, tt_tensor_1d(tt_buffer_data(buffer), TT_U8, (int64_t)coded->layout.bytes)},
        .scratch = scratch.view,
        .transposed = row->transposed,
        .h_MR = row->r > 0 ? t[H].view : none,
        .b_XNR = row->r > 0 ? t[B].view : none,
        .bias_XN = row->bias ? t[BIAS].view : none,
        .alpha = row->alpha,
        .y_MN = t[Y].view};
    test_ok(tt_grouped_gemm(device->stream, &product));
    TEST_TO_HOST(device, &scratch);
    tt_buffer_destroy(buffer);
    test_tensor_free(&scratch);
}

/* The bits of the product with the decoded matrices, whatever the number of experts that are decoded together. */
static void check_coded(struct test_device *device, int threads, void *context)
{
    struct coded_problem *coded = context;
    const struct problem *p = &coded->p;
    struct test_tensor wanted = {0};
    const int64_t together[] = {0, 1, 2, p->experts};
    (void)threads;
    for (size_t i = 0; i < sizeof together / sizeof *together; i++) {
        struct test_tensor t[LINES], border = test_tensor_copy(&p->border);
        for (int l = 0; l < LINES; l++) t[l] = test_tensor_copy(&p->tensors[l]);
        test_array_to_device(device, t, LINES);
        TEST_TO_DEVICE(device, &border);
        if (together[i] == 0)
            run_op(device, p, border.view, t);
        else
            run_coded(device, coded, together[i] < p->experts ? together[i] : p->experts, t, border.view);
        test_array_to_host(device, t, LINES);
        TEST_TO_HOST(device, &border);
        if (i == 0)
            wanted = test_tensor_copy(&t[Y]);
        else
            test_tensor_equal("y of codes", &t[Y], &wanted);
        test_tensor_check_gaps("y of codes", &t[Y]);
        test_tensor_free(&border);
        test_array_free(t, LINES);
    }
    test_tensor_free(&wanted);
}

static void check_coded_case(const void *row)
{
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        struct coded_problem coded = {.row = row};
        make_problem(&coded.p, row);
        make_segment(&coded, formats[f]);
        tt_quant_decode(&coded.layout, coded.segment, 0, coded.layout.count, coded.p.tensors[W].view.data,
                        coded.row->dtype);
        test_on_each_isa(check_coded, &coded);
        tt_free(coded.segment);
        free_problem(&coded.p);
    }
}

static void codes_have_the_bits_of_their_numbers(void **state)
{
    (void)state;
    TEST_CASES("grouped gemm of codes", coded_cases, check_coded_case);
}

static void codes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("grouped gemm of codes", coded_sizes, check_coded_case);
}

#define REFUSE(op, good, change, message)                                                                    \
    do {                                                                                                     \
        __typeof__(good) args = good;                                                                        \
        change;                                                                                              \
        test_refused(op(device.stream, &args), TT_ERR_INTERNAL, message);                                    \
    } while (0)

static void hostile_arguments(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    static float memory[6][256];
    static int32_t border[3] = {0, 1, 3};
    static _Alignas(64) uint8_t segment[512];
    struct test_device device;
    test_device_open(&device, "cpu", 1);
    struct tt_grouped_gemm_args good = {.border_X1 = tt_tensor_1d(border, TT_I32, 3),
                                        .x_MK = tt_tensor_2d(memory[0], TT_F32, 3, 4),
                                        .w_XNK = tt_tensor_3d(memory[1], TT_F32, 2, 5, 4),
                                        .y_MN = tt_tensor_2d(memory[2], TT_F32, 3, 5)};
    test_ok(tt_grouped_gemm(device.stream, &good));
    REFUSE(tt_grouped_gemm, good, args.border_X1.dims[0] = 1, "border is of no expert");
    REFUSE(tt_grouped_gemm, good, args.w_XNK = tt_tensor_3d(memory[1], TT_F32, 3, 5, 4), "grouped_gemm: w");
    REFUSE(tt_grouped_gemm, good, args.transposed = true, "grouped_gemm: w");
    REFUSE(tt_grouped_gemm, good, args.h_MR = tt_tensor_2d(memory[3], TT_F32, 3, 2), "h is given without b");
    REFUSE(tt_grouped_gemm, good,
           (args.h_MR = tt_tensor_2d(memory[3], TT_F32, 3, 2),
            args.b_XNR = tt_tensor_3d(memory[4], TT_F32, 2, 5, 2), args.alpha = 2),
           "alpha beside an adapter");
    REFUSE(tt_grouped_gemm, good, args.y_MN = tt_tensor_2d(memory[0], TT_F32, 3, 5), "overlap in memory");
    struct tt_quant_layout layout;
    test_ok(tt_quant_layout_make(tt_quant_format_make(TT_QUANT_NF4, false), 10, 4, &layout));
    struct tt_grouped_gemm_args codes = good;
    codes.w_XNK = (tt_tensor){0};
    codes.coded = (struct tt_coded){&layout, tt_tensor_1d(segment, TT_U8, (int64_t)layout.bytes)};
    codes.scratch = tt_tensor_3d(memory[1], TT_F32, 1, 5, 4);
    assert_true(layout.bytes <= sizeof segment);
    REFUSE(tt_grouped_gemm, codes, args.w_XNK = good.w_XNK, "w beside its codes");
    REFUSE(tt_grouped_gemm, codes, args.scratch.dims[0] = 0, "scratch of no matrix");
    REFUSE(tt_grouped_gemm, codes, args.scratch = tt_tensor_3d(memory[1], TT_BF16, 1, 5, 4), "scratch");
    REFUSE(tt_grouped_gemm, codes, args.transposed = true, "codes of [10, 4] for 2 matrices of [4, 5]");
    REFUSE(tt_grouped_gemm, codes, args.coded.packed.dims[0]--, "grouped_gemm: codes");
    REFUSE(tt_grouped_gemm, codes, args.coded.packed.data = segment + 4,
           "codes do not lie at a multiple of 16 bytes");
    REFUSE(tt_grouped_gemm, codes, args.scratch.data = memory[2], "overlap in memory");
    struct tt_grouped_gradients_args gradients = {.border_X1 = good.border_X1,
                                                  .dy_MN = good.y_MN,
                                                  .x_MK = good.x_MK,
                                                  .dw_XNK = tt_tensor_3d(memory[5], TT_F32, 2, 5, 4)};
    test_ok(tt_grouped_gradients(device.stream, &gradients));
    REFUSE(tt_grouped_gradients, gradients, args.dw_XNK.dims[0] = 3, "grouped_gradients: dw");
    test_device_close(&device);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_agrees_with_finite_differences),
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(codes_have_the_bits_of_their_numbers),
        cmocka_unit_test(codes_of_real_models),
        cmocka_unit_test(hostile_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
