#include "backend/ops/conv.h"

#include <stdlib.h>
#include <string.h>

#include "ops/isa.h"

struct conv_case {
    struct tt_conv_geometry geometry;
    int64_t in, out, gap;
    tt_dtype dtype;
    bool scale, bias, residual, relu, accumulate;
    bool biased; /* the gradient of the bias too */
};

static const struct conv_case cases[] = {
    {{2, 7, 9, 3, 1, 1}, 5, 6, 0, TT_F32, true, true, true, true, false, false},
    {{2, 7, 9, 3, 1, 1}, 5, 6, 3, TT_BF16, false, true, false, true, true, false},
    {{1, 16, 12, 3, 1, 1}, 64, 48, 0, TT_F32, false, false, false, false, false, false},
    {{3, 16, 12, 3, 1, 1}, 64, 72, 0, TT_BF16, true, true, true, true, false, false},
    {{2, 15, 14, 3, 2, 1}, 17, 33, 0, TT_F32, true, false, false, true, true, false},
    {{1, 16, 16, 3, 2, 1}, 96, 40, 0, TT_BF16, false, true, false, false, false, false},
    {{2, 21, 18, 7, 2, 3}, 3, 20, 5, TT_F32, true, true, false, true, false, false},
    /* A GPU computes these on pairs of pixels. */
    {{3, 22, 18, 7, 2, 3}, 3, 24, 5, TT_BF16, true, true, false, true, false, false},
    {{2, 18, 20, 3, 2, 1}, 4, 16, 0, TT_BF16, false, true, false, false, false, false},
    {{2, 18, 20, 5, 2, 2}, 3, 16, 5, TT_BF16, false, false, false, true, false, false},
    /* Channels that are no whole vectors of a GPU. */
    {{2, 20, 18, 7, 2, 3}, 3, 16, 1, TT_BF16, true, true, false, true, false, false},
    {{2, 9, 11, 3, 1, 1}, 4, 16, 0, TT_BF16, false, true, false, false, false, false},
    {{2, 9, 11, 3, 2, 1}, 12, 24, 0, TT_BF16, false, true, false, false, false, false},
    {{3, 9, 11, 1, 1, 0}, 20, 16, 4, TT_BF16, false, true, false, false, true, false},
    {{2, 9, 11, 3, 1, 1}, 34, 36, 0, TT_BF16, false, true, false, true, false, false},
    {{5, 40, 32, 3, 1, 1}, 64, 64, 0, TT_BF16, false, true, false, true, false, true},
    {{2, 13, 9, 3, 1, 1}, 24, 264, 8, TT_BF16, true, true, false, true, false, true},
    {{2, 13, 9, 3, 1, 1}, 8, 36, 0, TT_F32, false, true, true, true, true, true},
    {{1, 40, 40, 1, 1, 0}, 96, 200, 0, TT_F32, true, true, true, true, true, false},
    {{1, 40, 40, 1, 1, 0}, 96, 200, 0, TT_BF16, true, true, true, true, false, false},
    {{2, 11, 13, 1, 2, 0}, 40, 56, 0, TT_F32, true, true, false, false, false, false},
    {{2, 10, 12, 1, 2, 0}, 40, 56, 2, TT_BF16, true, true, false, false, true, false},
    {{2, 9, 8, 3, 1, 1}, 64, 36, 0, TT_BF16, false, true, false, false, true, false},
    {{2, 9, 8, 1, 1, 0}, 64, 36, 0, TT_BF16, false, true, false, false, false, false},
    {{1, 1, 1, 3, 2, 1}, 8, 4, 0, TT_F32, false, true, false, false, false, false},
    {{1, 2, 3, 3, 1, 1}, 300, 36, 0, TT_F32, false, true, false, false, false, false},
    {{1, 5, 6, 4, 3, 2}, 7, 9, 0, TT_F32, true, false, true, true, false, false}, /* phases without a tap */
    /* Winograd's algorithm: the first two for the gradient of the weight, the others for y and dx. */
    {{3, 26, 27, 3, 1, 1}, 33, 40, 2, TT_F32, false, true, false, true, false, false},
    {{2, 33, 34, 3, 1, 1}, 67, 36, 0, TT_BF16, false, true, false, true, false, false},
    {{2, 18, 21, 3, 1, 1}, 128, 133, 3, TT_F32, true, true, true, true, true, false},
    {{1, 17, 23, 3, 1, 1}, 215, 130, 0, TT_BF16, false, true, true, true, true, false},
    {{1, 16, 16, 3, 1, 1}, 256, 128, 0, TT_F32, false, false, false, false, false, false},
    {{0, 5, 6, 3, 1, 1}, 7, 9, 0, TT_F32, true, false, true, true, false, false},
};

enum { X, W, SCALE, BIAS, RESIDUAL, DY, DZ_IN, Y, DRESIDUAL, DZ, DBIAS, DX, DW, SCRATCH, LINES };

static const char *const names[LINES] = {"x", "w",         "scale",   "bias",  "residual", "dy", "dz",
                                         "y", "dresidual", "dz of y", "dbias", "dx",       "dw", "scratch"};

/* All in one type of arithmetic: `real`. */
#define DEFINE_REFERENCE(name, real)                                                                         \
    static void name(const struct conv_case *row, double *const v[LINES])                                    \
    {                                                                                                        \
        const struct tt_conv_geometry *g = &row->geometry;                                                   \
        int64_t K = g->kernel, C = row->in, O = row->out, H = tt_conv_side(g, g->height),                    \
                V = tt_conv_side(g, g->width);                                                               \
        real *z = calloc((size_t)(g->images * H * V * O) + 1, sizeof *z);                                    \
        real *dx = calloc((size_t)(g->images * g->height * g->width * C) + 1, sizeof *dx);                   \
        real *dw = calloc((size_t)(O * C * K * K), sizeof *dw);                                              \
        assert_non_null(z);                                                                                  \
        assert_non_null(dx);                                                                                 \
        assert_non_null(dw);                                                                                 \
        for (int64_t q = 0; q < g->images * H * V; q++)                                                      \
            for (int64_t tap = 0; tap < K * K; tap++) {                                                      \
                int64_t h = q / V % H * g->stride - g->padding + tap / K,                                    \
                        w = q % V * g->stride - g->padding + tap % K;                                        \
                if (h < 0 || h >= g->height || w < 0 || w >= g->width) continue;                             \
                int64_t p = (q / V / H * g->height + h) * g->width + w;                                      \
                for (int64_t o = 0; o < O; o++)                                                              \
                    for (int64_t c = 0; c < C; c++) {                                                        \
                        int64_t at = (o * C + c) * K * K + tap;                                              \
                        real x = (real)v[X][p * C + c], weight = (real)v[W][at];                             \
                        real dz = (real)v[DZ_IN][q * O + o];                                                 \
                        z[q * O + o] += x * weight;                                                          \
                        dx[p * C + c] += dz * weight;                                                        \
                        dw[at] += dz * x;                                                                    \
                    }                                                                                        \
            }                                                                                                \
        for (int64_t i = 0; i < g->images * H * V * O; i++) {                                                \
            real y = z[i];                                                                                   \
            if (row->scale) y *= (real)v[SCALE][i % O];                                                      \
            if (row->bias) y += (real)v[BIAS][i % O];                                                        \
            if (row->residual) y += (real)v[RESIDUAL][i];                                                    \
            v[Y][i] = row->relu && y < 0 ? 0 : (double)y;                                                    \
        }                                                                                                    \
        for (int64_t i = 0; i < g->images * g->height * g->width * C; i++)                                   \
            v[DX][i] = (double)(row->accumulate ? (real)v[DX][i] + dx[i] : dx[i]);                           \
        for (int64_t i = 0; i < O * C * K * K; i++) v[DW][i] = (double)((real)v[DW][i] + dw[i]);             \
        free(z);                                                                                             \
        free(dx);                                                                                            \
        free(dw);                                                                                            \
    }

DEFINE_REFERENCE(oracle, double)
DEFINE_REFERENCE(plain, float)

/* The gradient before the relu follows from the op's own y, and that of the bias from the op's own dz. */
static void backward_output(const struct conv_case *row, const double *y, const double *dz,
                            double *const v[LINES], int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double g = !row->relu || y[i] > 0 ? v[DY][i] : 0;
        v[DRESIDUAL][i] = row->accumulate ? v[DRESIDUAL][i] + g : g;
        v[DZ][i] = row->scale ? g * v[SCALE][i % row->out] : g;
        if (row->biased) v[DBIAS][i % row->out] += dz[i];
    }
}

struct problem {
    const struct conv_case *row;
    struct test_tensor tensors[LINES], first[LINES];
    double *exact[LINES], *simple[LINES];
};

static void make_problem(struct problem *p, const struct conv_case *row)
{
    const struct tt_conv_geometry *g = &row->geometry;
    int64_t in = g->images * g->height * g->width, out = tt_conv_pixels(g), taps = g->kernel * g->kernel;
    memset(p, 0, sizeof *p);
    p->row = row;
    for (int i = 0; i < LINES; i++) {
        bool channels = i == SCALE || i == BIAS || i == DBIAS, weight = i == W || i == DW || i == SCRATCH,
             of_x = i == X || i == DX;
        tt_dtype dtype = channels || i == DW || i == SCRATCH ? TT_F32 : row->dtype;
        uint64_t seed = (uint64_t)i + 1;
        p->tensors[i] = channels ? test_tensor_random(dtype, row->out, TEST_UNUSED, TEST_UNUSED, 0, seed, 1)
                        : weight
                            ? test_tensor_random(dtype, row->out, row->in * taps, TEST_UNUSED, 0, seed, 1)
                            : test_tensor_random(dtype, of_x ? in : out, of_x ? row->in : row->out,
                                                 TEST_UNUSED, row->gap, seed, 1);
        bool kept = i < Y || i == DW || i == DBIAS || (row->accumulate && (i == DX || i == DRESIDUAL));
        if (!kept) test_tensor_poison(&p->tensors[i]);
        p->exact[i] = test_tensor_values(&p->tensors[i]);
        p->simple[i] = test_tensor_values(&p->tensors[i]);
    }
}

static void free_problem(struct problem *p)
{
    test_array_free(p->tensors, LINES);
    test_array_free(p->first, LINES);
    test_free_values(p->exact, LINES);
    test_free_values(p->simple, LINES);
}

static void run_ops(struct tt_stream *stream, const struct conv_case *row, struct test_tensor *const t)
{
    const tt_tensor none = {0};
    const struct tt_conv_geometry geometry = row->geometry;
    tt_tensor scale = row->scale ? t[SCALE].view : none;
    test_ok(tt_conv2d_forward(
        stream, &(struct tt_conv2d_forward_args){.geometry = geometry,
                                                 .x_PC = t[X].view,
                                                 .w_OK = t[W].view,
                                                 .scale_O = scale,
                                                 .bias_O = row->bias ? t[BIAS].view : none,
                                                 .residual_QO = row->residual ? t[RESIDUAL].view : none,
                                                 .relu = row->relu,
                                                 .y_QO = t[Y].view}));
    test_ok(tt_conv2d_backward_output(
        stream, &(struct tt_conv2d_backward_output_args){
                    .y_QO = row->relu ? t[Y].view : none,
                    .dy_QO = t[DY].view,
                    .scale_O = scale,
                    .dresidual_QO = row->biased && !row->accumulate ? none : t[DRESIDUAL].view,
                    .dz_QO = t[DZ].view,
                    .dbias_O = row->biased ? t[DBIAS].view : none,
                    .accumulate = row->accumulate}));
    test_ok(tt_conv2d_backward_input(stream,
                                     &(struct tt_conv2d_backward_input_args){.geometry = geometry,
                                                                             .dz_QO = t[DZ_IN].view,
                                                                             .w_OK = t[W].view,
                                                                             .dx_PC = t[DX].view,
                                                                             .accumulate = row->accumulate}));
    test_ok(
        tt_conv2d_backward_weight(stream, &(struct tt_conv2d_backward_weight_args){
                                              .geometry = geometry,
                                              .x_PC = t[X].view,
                                              .dz_QO = t[DZ_IN].view,
                                              .dw_OK = t[DW].view,
                                              .scratch_OK = geometry.kernel > 1 ? t[SCRATCH].view : none}));
}

static void compare(struct problem *p, struct test_tensor *tensors)
{
    double *y = test_tensor_values(&tensors[Y]), *dz = test_tensor_values(&tensors[DZ]);
    int64_t count = tt_tensor_count(tensors[Y].view);
    double *lines[2][LINES];
    for (int i = 0; i < LINES; i++) {
        lines[0][i] = test_tensor_values(&p->tensors[i]);
        lines[1][i] = test_tensor_values(&p->tensors[i]);
    }
    backward_output(p->row, y, dz, lines[0], count);
    for (int i = Y; i < SCRATCH; i++) {
        bool from_y = i == DRESIDUAL || i == DZ || i == DBIAS;
        if (i == DRESIDUAL && p->row->biased && !p->row->accumulate) continue; /* not asked for */
        const double *exact = from_y ? lines[0][i] : p->exact[i];
        int64_t elements = tt_tensor_count(tensors[i].view);
        double *plain_values = test_doubles(elements), *got = test_tensor_values(&tensors[i]);
        for (int64_t j = 0; j < elements; j++)
            plain_values[j] =
                (double)test_round((float)(from_y ? exact[j] : p->simple[i][j]), tensors[i].view.dtype);
        /* A GPU's tensor cores add products of bf16 with fewer bits than fp32 has: 1.16e-5 of the size where the plain
         * sum has 3.8e-6 (cuDNN 9.19 on an H100). */
        double allowed = i == DW && !test_on_cpu() && p->row->dtype == TT_BF16 ? 5e-5 : i == DBIAS ? 1e-5 : 0;
        test_close_allowing(names[i], got, exact, plain_values, elements, tensors[i].view.dtype,
                            i >= DX ? 3 : 2, allowed, 0);
        free(plain_values);
        free(got);
    }
    for (int i = 0; i < LINES; i++) {
        free(lines[0][i]);
        free(lines[1][i]);
    }
    free(y);
    free(dz);
}

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor tensors[LINES];
    for (int i = 0; i < LINES; i++) tensors[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, tensors, LINES);
    run_ops(device->stream, p->row, tensors);
    test_array_to_host(device, tensors, LINES);
    if (threads == 1) compare(p, tensors);
    for (int i = 0; i < LINES; i++) {
        test_tensor_check_gaps(names[i], &tensors[i]);
        if (i < Y) test_tensor_equal(names[i], &tensors[i], &p->tensors[i]); /* not touched */
        if (i >= Y && i != SCRATCH && threads != 1) test_tensor_equal(names[i], &tensors[i], &p->first[i]);
        test_tensor_free(&p->first[i]);
        p->first[i] = tensors[i];
    }
}

static void check_case(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    oracle(p.row, p.exact);
    plain(p.row, p.simple);
    test_on_each_isa(check_run, &p);
    free_problem(&p);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("conv", cases, check_case);
}

/* Rows with room for whole groups of channels: the same results, and zeros behind the channels of y. */
static struct test_tensor with_room(const struct test_tensor *from, int64_t columns)
{
    int64_t rows = from->view.dims[0], used = from->view.dims[1];
    struct test_tensor to = test_tensor_make(from->view.dtype, rows, columns, TEST_UNUSED, 0);
    double *values = test_tensor_values(from), *all = test_doubles(rows * columns);
    for (int64_t i = 0; i < rows * columns; i++)
        all[i] = i % columns < used ? values[i / columns * used + i % columns] : 0;
    test_tensor_set(&to, all);
    free(values), free(all);
    return to;
}

static void check_padded(struct test_device *device, int threads, void *context)
{
    (void)threads;
    struct problem *p = context;
    const struct conv_case *row = p->row;
    int64_t columns = tt_conv_grouped(row->out);
    struct test_tensor t[LINES];
    for (int i = 0; i < LINES; i++)
        t[i] = i == Y || i == DZ_IN ? with_room(&p->tensors[i], columns) : test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, t, LINES);
    tt_tensor y = tt_tensor_cols(t[Y].view, 0, row->out), dz = tt_tensor_cols(t[DZ_IN].view, 0, row->out);
    test_ok(tt_conv2d_forward(device->stream, &(struct tt_conv2d_forward_args){.geometry = row->geometry,
                                                                               .x_PC = t[X].view,
                                                                               .w_OK = t[W].view,
                                                                               .bias_O = t[BIAS].view,
                                                                               .y_QO = y,
                                                                               .padded = true}));
    test_ok(tt_conv2d_backward_input(
        device->stream,
        &(struct tt_conv2d_backward_input_args){
            .geometry = row->geometry, .dz_QO = dz, .w_OK = t[W].view, .dx_PC = t[DX].view, .padded = true}));
    test_ok(tt_conv2d_backward_weight(device->stream,
                                      &(struct tt_conv2d_backward_weight_args){.geometry = row->geometry,
                                                                               .x_PC = t[X].view,
                                                                               .dz_QO = dz,
                                                                               .dw_OK = t[DW].view,
                                                                               .scratch_OK = t[SCRATCH].view,
                                                                               .padded = true}));
    test_array_to_host(device, t, LINES);
    double *all = test_tensor_values(&t[Y]), *used = test_doubles(t[Y].view.dims[0] * row->out);
    for (int64_t i = 0; i < t[Y].view.dims[0] * columns; i++) {
        if (i % columns < row->out)
            used[i / columns * row->out + i % columns] = all[i];
        else if (!test_on_cpu())
            assert_true(all[i] == 0);
    }
    const int lines[] = {Y, DX, DW};
    for (int l = 0; l < 3; l++) {
        int i = lines[l];
        int64_t count = tt_tensor_count(p->tensors[i].view);
        double *plain_values = test_doubles(count), *got = i == Y ? used : test_tensor_values(&t[i]);
        for (int64_t j = 0; j < count; j++)
            plain_values[j] = (double)test_round((float)p->simple[i][j], t[i].view.dtype);
        test_close_allowing(names[i], got, p->exact[i], plain_values, count, t[i].view.dtype, 3,
                            i == DW && !test_on_cpu() ? 5e-5 : 0, 0);
        free(plain_values);
        if (i != Y) free(got);
    }
    free(all), free(used);
    test_array_free(t, LINES);
}

static void padded_channels(void **state)
{
    (void)state;
    static const struct conv_case padded_cases[] = {
        {{2, 9, 8, 3, 1, 1}, 64, 36, 0, TT_BF16, false, true, false, false, false, false},
        {{3, 7, 6, 3, 1, 1}, 32, 99, 0, TT_BF16, false, true, false, false, false, false},
        {{2, 5, 6, 3, 1, 1}, 16, 7, 0, TT_F32, false, true, false, false, false, false},
    };
    for (size_t i = 0; i < sizeof padded_cases / sizeof *padded_cases; i++) {
        struct problem p;
        make_problem(&p, &padded_cases[i]);
        oracle(p.row, p.exact);
        plain(p.row, p.simple);
        test_on_each_isa(check_padded, &p);
        free_problem(&p);
    }
}

/* The bits of an image do not depend on the images beside it. */
static void check_alone(struct test_device *device, int threads, void *context)
{
    (void)threads, (void)context;
    const struct tt_conv_geometry one = {1, 6, 5, 3, 1, 1}, many = {40, 6, 5, 3, 1, 1};
    struct test_tensor x = test_tensor_random(TT_BF16, 40 * 30, 33, TEST_UNUSED, 0, 1, 1);
    struct test_tensor w = test_tensor_random(TT_BF16, 70, 33 * 9, TEST_UNUSED, 0, 2, 1);
    struct test_tensor y = test_tensor_make(TT_BF16, 40 * 30, 70, TEST_UNUSED, 0);
    struct test_tensor alone = test_tensor_make(TT_BF16, 30, 70, TEST_UNUSED, 0);
    test_ok(tt_conv2d_forward(
        device->stream,
        &(struct tt_conv2d_forward_args){.geometry = many, .x_PC = x.view, .w_OK = w.view, .y_QO = y.view}));
    for (int64_t image = 0; image < 40; image += 13) {
        test_ok(tt_conv2d_forward(
            device->stream, &(struct tt_conv2d_forward_args){.geometry = one,
                                                             .x_PC = tt_tensor_rows(x.view, image * 30, 30),
                                                             .w_OK = w.view,
                                                             .y_QO = alone.view}));
        assert_memory_equal(alone.view.data, tt_tensor_rows(y.view, image * 30, 30).data, 30 * 70 * 2);
    }
    test_tensor_free(&x);
    test_tensor_free(&w);
    test_tensor_free(&y);
    test_tensor_free(&alone);
}

static void images_do_not_depend_on_each_other(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    test_on_each_isa(check_alone, NULL);
}

static void contracts(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    struct test_device device;
    test_device_open(&device, "cpu", 1);
    struct test_tensor x = test_tensor_make(TT_F32, 12, 4, TEST_UNUSED, 0);
    struct test_tensor w = test_tensor_make(TT_F32, 5, 36, TEST_UNUSED, 0);
    struct test_tensor y = test_tensor_make(TT_F32, 12, 5, TEST_UNUSED, 0);
    struct tt_conv2d_forward_args args = {
        .geometry = {1, 3, 4, 3, 1, 1}, .x_PC = x.view, .w_OK = w.view, .y_QO = y.view};
    test_ok(tt_conv2d_forward(device.stream, &args));
    args.geometry.height = 4;
    test_refused(tt_conv2d_forward(device.stream, &args), TT_ERR_INTERNAL, "conv2d_forward: x is F32[12, 4]");
    args.geometry = (struct tt_conv_geometry){1, 3, 4, 3, 1, 3};
    test_refused(tt_conv2d_forward(device.stream, &args), TT_ERR_INTERNAL, "padding 3");
    args.geometry = (struct tt_conv_geometry){1, 3, 4, 5, 1, 0};
    test_refused(tt_conv2d_forward(device.stream, &args), TT_ERR_INTERNAL, "smaller than a kernel of 5");
    test_tensor_free(&x);
    test_tensor_free(&w);
    test_tensor_free(&y);
    test_device_close(&device);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(padded_channels),
        cmocka_unit_test(images_do_not_depend_on_each_other),
        cmocka_unit_test(contracts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
