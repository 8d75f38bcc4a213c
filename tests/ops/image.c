/* Ops on images besides convolutions: pooling, upsampling, and the sums and maps of channels. */
#include <math.h>
#include <stdlib.h>

#include "backend/ops/channels.h"
#include "base/json.h"
#include "backend/ops/conv.h"
#include "ops/isa.h"

struct pool_case {
    struct tt_conv_geometry geometry;
    int64_t channels, gap;
    tt_dtype dtype;
};

static const struct pool_case pool_cases[] = {
    {{2, 9, 12, 3, 2, 1}, 5, 0, TT_F32}, {{1, 10, 7, 3, 2, 1}, 64, 3, TT_BF16},
    {{3, 4, 4, 2, 2, 0}, 33, 0, TT_F32}, {{1, 1, 1, 3, 2, 1}, 8, 0, TT_F32},
    {{0, 4, 4, 3, 2, 1}, 8, 0, TT_F32},
};

enum { X, Y, WHICH, DY, DX, POOL_LINES };

/* Every value is one of few, so windows have equals. The result has no rounding but that of dx in bf16. */
static void check_pool(struct test_device *device, int threads, void *context)
{
    (void)threads;
    const struct pool_case *row = context;
    const struct tt_conv_geometry *g = &row->geometry;
    int64_t in = g->images * g->height * g->width, out = tt_conv_pixels(g), C = row->channels;
    int64_t H = tt_conv_side(g, g->height), V = tt_conv_side(g, g->width);
    struct test_tensor t[POOL_LINES] = {
        test_tensor_make(row->dtype, in, C, TEST_UNUSED, row->gap),
        test_tensor_make(row->dtype, out, C, TEST_UNUSED, row->gap),
        test_tensor_make(TT_I32, out, C, TEST_UNUSED, row->gap),
        test_tensor_make(row->dtype, out, C, TEST_UNUSED, row->gap),
        test_tensor_make(row->dtype, in, C, TEST_UNUSED, row->gap),
    };
    test_tensor_random_index(&t[X], 1, 5);
    test_tensor_random_index(&t[DY], 2, 9);
    for (int i = 0; i < POOL_LINES; i++)
        if (i != X && i != DY) test_tensor_poison(&t[i]);
    test_array_to_device(device, t, POOL_LINES);
    test_ok(tt_maxpool2d_forward(
        device->stream,
        &(struct tt_maxpool2d_forward_args){
            .geometry = *g, .x_PC = t[X].view, .y_QC = t[Y].view, .which_QC = t[WHICH].view}));
    test_ok(tt_maxpool2d_backward(
        device->stream,
        &(struct tt_maxpool2d_backward_args){
            .geometry = *g, .which_QC = t[WHICH].view, .dy_QC = t[DY].view, .dx_PC = t[DX].view}));
    test_array_to_host(device, t, POOL_LINES);
    double *x = test_tensor_values(&t[X]), *dy = test_tensor_values(&t[DY]), *y = test_tensor_values(&t[Y]);
    double *which = test_tensor_values(&t[WHICH]), *dx = test_tensor_values(&t[DX]),
           *sum = test_doubles(in * C);
    for (int64_t q = 0; q < out; q++)
        for (int64_t c = 0; c < C; c++) {
            double best = -INFINITY;
            int64_t at = -1;
            for (int64_t tap = 0; tap < g->kernel * g->kernel; tap++) {
                int64_t h = q / V % H * g->stride - g->padding + tap / g->kernel;
                int64_t w = q % V * g->stride - g->padding + tap % g->kernel;
                int64_t p = (q / V / H * g->height + h) * g->width + w;
                if (h < 0 || h >= g->height || w < 0 || w >= g->width || x[p * C + c] <= best) continue;
                best = x[p * C + c];
                at = p;
            }
            assert_true(y[q * C + c] == best);
            assert_true(which[q * C + c] == (double)at);
            sum[at * C + c] += dy[q * C + c];
        }
    for (int64_t i = 0; i < in * C; i++) assert_true(dx[i] == sum[i]); /* small integers: exact in bf16 too */
    test_array_check_gaps(NULL, t, POOL_LINES);
    test_array_free(t, POOL_LINES);
    free(x), free(dy), free(y), free(which), free(dx), free(sum);
}

static void pools(void **state)
{
    (void)state;
    TEST_ISA_CASES("pool", pool_cases, check_pool);
}

struct up_case {
    int64_t images, height, width, channels, gap;
    tt_dtype dtype;
};

static const struct up_case up_cases[] = {
    {2, 3, 5, 33, 0, TT_F32},
    {1, 4, 2, 64, 5, TT_BF16},
    {1, 1, 1, 7, 0, TT_F32},
};

/* Sums of small integers: exact. */
static void check_upsample(struct test_device *device, int threads, void *context)
{
    (void)threads;
    const struct up_case *row = context;
    int64_t pixels = row->images * row->height * row->width, C = row->channels, W = row->width;
    struct test_tensor x = test_tensor_make(row->dtype, pixels, C, TEST_UNUSED, row->gap);
    struct test_tensor y = test_tensor_make(row->dtype, 4 * pixels, C, TEST_UNUSED, row->gap);
    test_tensor_random_index(&x, 1, 20);
    test_tensor_random_index(&y, 2, 20);
    double *small = test_tensor_values(&x), *large = test_tensor_values(&y);
    TEST_TO_DEVICE(device, &x, &y);
    struct tt_upsample_add_args add = {row->images, row->height, row->width, x.view, y.view};
    test_ok(tt_upsample_add(device->stream, &add));
    TEST_TO_HOST(device, &x, &y);
    double *got = test_tensor_values(&y);
    for (int64_t p = 0; p < 4 * pixels; p++) {
        int64_t from = (p / (2 * W) / 2) * W + p % (2 * W) / 2;
        for (int64_t c = 0; c < C; c++) {
            large[p * C + c] += small[from * C + c];
            assert_true(got[p * C + c] == large[p * C + c]);
        }
    }
    TEST_TO_DEVICE(device, &x, &y);
    struct tt_upsample_backward_args back = {row->images, row->height, row->width, y.view, x.view};
    test_ok(tt_upsample_backward(device->stream, &back));
    TEST_TO_HOST(device, &x, &y);
    for (int64_t p = 0; p < 4 * pixels; p++)
        for (int64_t c = 0; c < C; c++)
            small[((p / (2 * W) / 2) * W + p % (2 * W) / 2) * C + c] += large[p * C + c];
    double *dx = test_tensor_values(&x);
    for (int64_t i = 0; i < pixels * C; i++) assert_true(dx[i] == small[i]);
    test_tensor_check_gaps("upsampled x", &x);
    test_tensor_check_gaps("upsampled y", &y);
    test_tensor_free(&x);
    test_tensor_free(&y);
    free(small), free(large), free(got), free(dx);
}

static void upsamples(void **state)
{
    (void)state;
    TEST_ISA_CASES("upsample", up_cases, check_upsample);
}

struct channel_case {
    int64_t pixels, channels, gap;
    tt_dtype dtype;
    bool residual, relu;
};

static const struct channel_case channel_cases[] = {
    {1000, 33, 0, TT_F32, true, true},
    {700, 64, 7, TT_BF16, false, true},
    {3, 1, 0, TT_F32, true, false},
    {0, 16, 0, TT_F32, false, false},
};

enum { CX, CG, SCALE, SHIFT, RESIDUAL, CY, MIX, SUMS, MIXED_SUMS, CHANNEL_LINES };

struct channel_problem {
    const struct channel_case *row;
    struct test_tensor first[CHANNEL_LINES];
};

/* `real` is the type of the arithmetic. */
#define DEFINE_CHANNELS(name, real)                                                                          \
    static void name(const struct channel_case *row, double *const v[CHANNEL_LINES])                         \
    {                                                                                                        \
        int64_t C = row->channels;                                                                           \
        for (int64_t i = 0; i < row->pixels * C; i++) {                                                      \
            int64_t c = i % C;                                                                               \
            real x = (real)v[CX][i], g = (real)v[CG][i];                                                     \
            real y = x * (real)v[SCALE][c] + (real)v[SHIFT][c];                                              \
            if (row->residual) y += (real)v[RESIDUAL][i];                                                    \
            v[CY][i] = row->relu && y < 0 ? 0 : (double)y;                                                   \
            v[MIX][i] = (double)(g * (real)v[SCALE][c] + x * (real)v[SHIFT][c] + (real)v[SCALE][c]);         \
            v[SUMS][c] = (double)((real)v[SUMS][c] + x);                                                     \
            v[SUMS][C + c] = (double)((real)v[SUMS][C + c] + x * x);                                         \
            v[MIXED_SUMS][c] = (double)((real)v[MIXED_SUMS][c] + g);                                         \
            v[MIXED_SUMS][C + c] = (double)((real)v[MIXED_SUMS][C + c] + g * x);                             \
        }                                                                                                    \
    }
DEFINE_CHANNELS(exact_channels, double)
DEFINE_CHANNELS(plain_channels, float)

static void run_channel_ops(struct tt_stream *stream, const struct channel_case *row, struct test_tensor *t)
{
    const tt_tensor none = {0};
    test_ok(tt_channel_sums(stream, &(struct tt_channel_sums_args){t[CX].view, none, t[SUMS].view}));
    test_ok(
        tt_channel_sums(stream, &(struct tt_channel_sums_args){t[CX].view, t[CG].view, t[MIXED_SUMS].view}));
    test_ok(tt_channel_affine(
        stream, &(struct tt_channel_affine_args){.x_PC = t[CX].view,
                                                 .scale_C = t[SCALE].view,
                                                 .shift_C = t[SHIFT].view,
                                                 .residual_PC = row->residual ? t[RESIDUAL].view : none,
                                                 .y_PC = t[CY].view,
                                                 .relu = row->relu}));
    test_ok(tt_channel_mix(stream, &(struct tt_channel_mix_args){t[CG].view, t[CX].view, t[SCALE].view,
                                                                 t[SHIFT].view, t[SCALE].view, t[MIX].view}));
}

static void check_channels(struct test_device *device, int threads, void *context)
{
    struct channel_problem *p = context;
    const struct channel_case *row = p->row;
    struct test_tensor t[CHANNEL_LINES];
    double *exact[CHANNEL_LINES], *plain[CHANNEL_LINES];
    for (int i = 0; i < CHANNEL_LINES; i++) {
        uint64_t seed = (uint64_t)i + 1;
        if (i == SCALE || i == SHIFT)
            t[i] = test_tensor_random(TT_F32, row->channels, TEST_UNUSED, TEST_UNUSED, 0, seed, 1);
        else if (i >= SUMS)
            t[i] = test_tensor_make(TT_F64, 2, row->channels, TEST_UNUSED, 0);
        else
            t[i] = test_tensor_random(row->dtype, row->pixels, row->channels, TEST_UNUSED, row->gap, seed, 1);
        exact[i] = test_tensor_values(&t[i]);
        plain[i] = test_tensor_values(&t[i]);
    }
    exact_channels(row, exact);
    plain_channels(row, plain);
    test_array_to_device(device, t, CHANNEL_LINES);
    run_channel_ops(device->stream, row, t);
    test_array_to_host(device, t, CHANNEL_LINES);
    for (int i = 0; i < CHANNEL_LINES; i++) {
        double *got = test_tensor_values(&t[i]);
        int64_t count = tt_tensor_count(t[i].view);
        for (int64_t j = 0; i < SUMS && j < count; j++)
            plain[i][j] = (double)test_round((float)plain[i][j], t[i].view.dtype);
        test_close("channels", got, exact[i], plain[i], count, t[i].view.dtype, 2);
        test_tensor_check_gaps("channels", &t[i]);
        if (threads > 1) test_tensor_equal("channels", &t[i], &p->first[i]);
        free(got), free(exact[i]), free(plain[i]);
        test_tensor_free(&p->first[i]);
        p->first[i] = t[i];
    }
}

static void run_channel_case(const void *row)
{
    struct channel_problem p = {.row = row};
    test_on_each_isa(check_channels, &p);
    test_array_free(p.first, CHANNEL_LINES);
}

static void channels(void **state)
{
    (void)state;
    TEST_CASES("channels", channel_cases, run_channel_case);
}

static void folds(void **state)
{
    (void)state;
    struct test_device device;
    test_device_open(&device, test_device_kind(), 1);
    struct test_tensor t[6];
    for (int i = 0; i < 6; i++)
        t[i] = test_tensor_random(TT_F32, 7, TEST_UNUSED, TEST_UNUSED, 0, (uint64_t)i, 1);
    double *w = test_tensor_values(&t[0]), *b = test_tensor_values(&t[1]), *m = test_tensor_values(&t[2]),
           *v = test_tensor_values(&t[3]);
    for (int i = 0; i < 7; i++) v[i] = fabs(v[i]);
    test_tensor_set(&t[3], v);
    test_array_to_device(&device, t, 6);
    test_ok(tt_norm_fold(device.stream, &(struct tt_norm_fold_args){t[0].view, t[1].view, t[2].view,
                                                                    t[3].view, 1e-5, t[4].view, t[5].view}));
    test_array_to_host(&device, t, 6);
    double *scale = test_tensor_values(&t[4]), *shift = test_tensor_values(&t[5]);
    for (int i = 0; i < 7; i++) {
        double exact = w[i] / sqrt(v[i] + 1e-5);
        assert_true(fabs(scale[i] - exact) <= 3e-7 * fabs(exact));
        assert_true(fabs(shift[i] - (b[i] - m[i] * exact)) <= 3e-7 * (fabs(b[i]) + fabs(m[i] * exact)));
    }
    test_array_free(t, 6);
    free(w), free(b), free(m), free(v), free(scale), free(shift);
    test_device_close(&device);
}

/* ---- Batch norm, made of these ops, against torch (tests/golden/detect/make_batch_norm.py) ---- */

enum { NORM_PIXELS = 60, NORM_CHANNELS = 6, NORM_PARTS = 2 };

static void golden_vector(const struct tt_json_value *from, const char *name, double *values)
{
    const struct tt_json_value *list = tt_json_get(from, name);
    assert_int_equal(tt_json_count(list), NORM_CHANNELS);
    for (size_t c = 0; c < NORM_CHANNELS; c++) values[c] = tt_json_number(tt_json_at(list, c));
}

static void golden_rows(const struct tt_json_value *from, const char *name, double *values)
{
    const struct tt_json_value *rows = tt_json_get(from, name);
    assert_int_equal(tt_json_count(rows), NORM_PIXELS);
    for (size_t p = 0; p < NORM_PIXELS; p++)
        for (size_t c = 0; c < NORM_CHANNELS; c++)
            values[p * NORM_CHANNELS + c] = tt_json_number(tt_json_at(tt_json_at(rows, p), c));
}

enum {
    WEIGHT,
    BIAS,
    RUNNING_MEAN,
    RUNNING_VARIANCE,
    MEAN,
    VARIANCE,
    A_VECTOR,
    B_VECTOR,
    C_VECTOR,
    DWEIGHT,
    DBIAS,
    VECTORS,
    X_ROWS = VECTORS,
    G_ROWS,
    Y_ROWS,
    FORWARD_SUMS, /* of each part, then of all */
    BACKWARD_SUMS = FORWARD_SUMS + NORM_PARTS + 1,
    PIXEL_COUNT = BACKWARD_SUMS + NORM_PARTS + 1,
    NORM_LINES
};

/* The pixels are in two parts, as on two ranks: the sums of both are added. */
struct norm_scene {
    struct test_device device;
    const struct tt_json_value *golden;
    struct test_tensor t[NORM_LINES];
    double eps;
};

static void expect_values(struct norm_scene *scene, const char *name, int line)
{
    double wanted[NORM_PIXELS * NORM_CHANNELS], *got = test_tensor_values(&scene->t[line]);
    bool rows = line >= VECTORS;
    int count = rows ? NORM_PIXELS * NORM_CHANNELS : NORM_CHANNELS;
    if (rows)
        golden_rows(scene->golden, name, wanted);
    else
        golden_vector(scene->golden, name, wanted);
    for (int i = 0; i < count; i++)
        if (!(fabs(got[i] - (double)(float)wanted[i]) <= 3e-6 * (1 + fabs(wanted[i]))))
            fail_msg("%s, element %d: %.9g, wanted %.9g", name, i, got[i], wanted[i]);
    free(got);
}

static void make_scene(struct norm_scene *scene)
{
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
    double values[NORM_PIXELS * NORM_CHANNELS], count = NORM_PIXELS;
    for (int i = 0; i < NORM_LINES; i++)
        scene->t[i] = i < VECTORS ? test_tensor_make(TT_F32, NORM_CHANNELS, TEST_UNUSED, TEST_UNUSED, 0)
                      : i < FORWARD_SUMS
                          ? test_tensor_make(TT_F32, NORM_PIXELS, NORM_CHANNELS, TEST_UNUSED, 0)
                      : i < PIXEL_COUNT ? test_tensor_make(TT_F64, 2, NORM_CHANNELS, TEST_UNUSED, 0)
                                        : test_tensor_make(TT_F64, 1, TEST_UNUSED, TEST_UNUSED, 0);
    for (int i = WEIGHT; i <= RUNNING_VARIANCE; i++) {
        golden_vector(tt_json_get(scene->golden, "before"), names[i], values);
        test_tensor_set(&scene->t[i], values);
    }
    golden_rows(scene->golden, "x", values);
    test_tensor_set(&scene->t[X_ROWS], values);
    golden_rows(scene->golden, "g", values);
    test_tensor_set(&scene->t[G_ROWS], values);
    test_tensor_set(&scene->t[PIXEL_COUNT], &count);
    scene->eps = tt_json_number(tt_json_get(scene->golden, "eps"));
}

static void to_device(struct norm_scene *scene)
{
    test_array_to_device(&scene->device, scene->t, NORM_LINES);
}

static void to_host(struct norm_scene *scene)
{
    test_array_to_host(&scene->device, scene->t, NORM_LINES);
}

static tt_tensor part_of(const struct norm_scene *scene, int line, int part)
{
    const int64_t borders[NORM_PARTS + 1] = {0, 23, NORM_PIXELS};
    return tt_tensor_rows(scene->t[line].view, borders[part], borders[part + 1] - borders[part]);
}

/* The sums of both parts; they are added on the host, as ranks add them. */
static void add_sums(struct norm_scene *scene, int line, bool backward)
{
    const tt_tensor none = {0};
    to_device(scene);
    for (int i = 0; i < NORM_PARTS; i++) {
        struct tt_channel_sums_args args = {
            part_of(scene, X_ROWS, i), backward ? part_of(scene, G_ROWS, i) : none, scene->t[line + i].view};
        test_ok(tt_channel_sums(scene->device.stream, &args));
    }
    to_host(scene);
    double all[2 * NORM_CHANNELS] = {0};
    for (int i = 0; i < NORM_PARTS; i++) {
        double *own = test_tensor_values(&scene->t[line + i]);
        for (int c = 0; c < 2 * NORM_CHANNELS; c++) all[c] += own[c];
        free(own);
    }
    test_tensor_set(&scene->t[line + NORM_PARTS], all);
}

static void find_statistics(struct norm_scene *scene)
{
    const struct test_tensor *t = scene->t;
    to_device(scene);
    struct tt_batch_statistics_args args = {t[FORWARD_SUMS + NORM_PARTS].view,
                                            t[PIXEL_COUNT].view,
                                            tt_json_number(tt_json_get(scene->golden, "momentum")),
                                            t[MEAN].view,
                                            t[VARIANCE].view,
                                            t[RUNNING_MEAN].view,
                                            t[RUNNING_VARIANCE].view};
    test_ok(tt_batch_statistics(scene->device.stream, &args));
    to_host(scene);
    expect_values(scene, "running_mean", RUNNING_MEAN);
    expect_values(scene, "running_var", RUNNING_VARIANCE);
}

static void check_norm_forward(struct norm_scene *scene)
{
    const struct test_tensor *t = scene->t;
    add_sums(scene, FORWARD_SUMS, false);
    find_statistics(scene);
    to_device(scene);
    struct tt_norm_fold_args fold = {t[WEIGHT].view, t[BIAS].view,     t[MEAN].view,    t[VARIANCE].view,
                                     scene->eps,     t[A_VECTOR].view, t[B_VECTOR].view};
    test_ok(tt_norm_fold(scene->device.stream, &fold));
    for (int i = 0; i < NORM_PARTS; i++) {
        struct tt_channel_affine_args affine = {.x_PC = part_of(scene, X_ROWS, i),
                                                .scale_C = t[A_VECTOR].view,
                                                .shift_C = t[B_VECTOR].view,
                                                .y_PC = part_of(scene, Y_ROWS, i)};
        test_ok(tt_channel_affine(scene->device.stream, &affine));
    }
    to_host(scene);
    expect_values(scene, "y", Y_ROWS);
}

/* Gradients of the parameters add up over the parts. */
static void check_norm_backward(struct norm_scene *scene)
{
    const struct test_tensor *t = scene->t;
    add_sums(scene, BACKWARD_SUMS, true);
    to_device(scene);
    for (int i = 0; i < NORM_PARTS; i++) {
        struct tt_batch_norm_gradient_args args = {
            .all_2C = t[BACKWARD_SUMS + NORM_PARTS].view,
            .own_2C = t[BACKWARD_SUMS + i].view,
            .count_1 = t[PIXEL_COUNT].view,
            .mean_C = t[MEAN].view,
            .variance_C = t[VARIANCE].view,
            .weight_C = t[WEIGHT].view,
            .eps = scene->eps,
            .a_C = t[A_VECTOR].view,
            .b_C = t[B_VECTOR].view,
            .c_C = t[C_VECTOR].view,
            .dweight_C = t[DWEIGHT].view,
            .dbias_C = t[DBIAS].view,
        };
        tt_tensor x = part_of(scene, X_ROWS, i), g = part_of(scene, G_ROWS, i);
        test_ok(tt_batch_norm_gradient(scene->device.stream, &args));
        struct tt_channel_mix_args mix = {g, x, args.a_C, args.b_C, args.c_C, g};
        test_ok(tt_channel_mix(scene->device.stream, &mix));
    }
    to_host(scene);
    expect_values(scene, "dx", G_ROWS);
    expect_values(scene, "dweight", DWEIGHT);
    expect_values(scene, "dbias", DBIAS);
}

static void batch_norm_is_torchs(void **state)
{
    (void)state;
    struct norm_scene scene = {0};
    struct tt_json json = {0};
    const double none = 0;
    test_device_open(&scene.device, test_device_kind(), 1);
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/golden/detect/batch_norm.json", 1 << 20, &json), TT_OK);
    scene.golden = json.root;
    make_scene(&scene);
    check_norm_forward(&scene);
    check_norm_backward(&scene);
    test_tensor_set(&scene.t[PIXEL_COUNT], &none); /* no pixel on any rank: the running statistics stay */
    find_statistics(&scene);
    for (int i = 0; i < NORM_LINES; i++) test_tensor_free(&scene.t[i]);
    tt_json_deinit(&json);
    test_device_close(&scene.device);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools),
        cmocka_unit_test(upsamples),
        cmocka_unit_test(channels),
        cmocka_unit_test(folds),
        cmocka_unit_test(batch_norm_is_torchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
