/* Norms of groups of channels, forward and backward. */
#include <math.h>
#include <stdlib.h>

#include "backend/ops/group_norm.h"
#include "ops/isa.h"

struct norm_case {
    int64_t images, pixels, channels, groups, gap;
    tt_dtype dtype;
    bool relu, trains;
};

static const struct norm_case cases[] = {
    {2, 35, 64, 32, 0, TT_F32, true, true},    {3, 20, 24, 4, 5, TT_F32, false, true},
    {1, 300, 256, 32, 0, TT_BF16, true, true}, {2, 1, 12, 3, 3, TT_F32, true, false},
    {2, 50, 7, 1, 1, TT_BF16, false, true},    {1, 40, 600, 2, 0, TT_F32, true, true},
};

enum { X, WEIGHT, BIAS, MEAN, SCALE, Y, DY, DX, DWEIGHT, DBIAS, FACTORS, PARTS, LINES };

struct problem {
    const struct norm_case *row;
    struct test_tensor t[LINES], first[LINES];
};

static const double eps = 1e-5;

/* All from the values in v; y, dx, dweight and dbias are written. */
#define DEFINE_NORM(name, real, real_sqrt)                                                                   \
    static void name(const struct norm_case *row, double *const v[LINES])                                    \
    {                                                                                                        \
        int64_t C = row->channels, each = C / row->groups;                                                   \
        for (int64_t i = 0; i < row->images * row->groups; i++) {                                            \
            int64_t first = i / row->groups * row->pixels * C + i % row->groups * each;                      \
            int64_t channel = i % row->groups * each;                                                        \
            real mean = 0, variance = 0, sum = 0, slope = 0, count = (real)(row->pixels * each);             \
            for (int64_t p = 0; p < row->pixels; p++)                                                        \
                for (int64_t c = 0; c < each; c++) mean += (real)v[X][first + p * C + c] / count;            \
            for (int64_t p = 0; p < row->pixels; p++)                                                        \
                for (int64_t c = 0; c < each; c++) {                                                         \
                    real off = (real)v[X][first + p * C + c] - mean;                                         \
                    variance += off * off / count;                                                           \
                }                                                                                            \
            real r = 1 / real_sqrt(variance + (real)eps);                                                    \
            v[MEAN][i] = (double)mean;                                                                       \
            v[SCALE][i] = (double)r;                                                                         \
            for (int64_t p = 0; p < row->pixels; p++)                                                        \
                for (int64_t c = 0; c < each; c++) {                                                         \
                    int64_t at = first + p * C + c;                                                          \
                    real h = ((real)v[X][at] - mean) * r, w = (real)v[WEIGHT][channel + c];                  \
                    real y = h * w + (real)v[BIAS][channel + c];                                             \
                    real g = row->relu && v[Y][at] <= 0 ? 0 : (real)v[DY][at];                               \
                    v[DX][at] = row->relu && y < 0 ? 0 : (double)y; /* for now the output */                 \
                    sum += g * w;                                                                            \
                    slope += g * w * h;                                                                      \
                    v[DWEIGHT][channel + c] += (double)(g * h);                                              \
                    v[DBIAS][channel + c] += (double)g;                                                      \
                }                                                                                            \
            for (int64_t p = 0; p < row->pixels; p++)                                                        \
                for (int64_t c = 0; c < each; c++) {                                                         \
                    int64_t at = first + p * C + c;                                                          \
                    real h = ((real)v[X][at] - mean) * r;                                                    \
                    real g = row->relu && v[Y][at] <= 0 ? 0 : (real)v[DY][at];                               \
                    real output = (real)v[DX][at];                                                           \
                    v[DX][at] =                                                                              \
                        (double)(r * (g * (real)v[WEIGHT][channel + c] - sum / count - h * slope / count));  \
                    v[Y][at] = (double)output;                                                               \
                }                                                                                            \
        }                                                                                                    \
    }
DEFINE_NORM(exact_norm, double, sqrt)
DEFINE_NORM(plain_norm, float, sqrtf)

static void make(struct problem *p)
{
    const struct norm_case *row = p->row;
    int64_t rows = row->images * row->pixels, C = row->channels;
    p->t[X] = test_tensor_random(row->dtype, rows, C, TEST_UNUSED, row->gap, 1, 2);
    p->t[DY] = test_tensor_random(row->dtype, rows, C, TEST_UNUSED, row->gap, 2, 1);
    p->t[Y] = test_tensor_make(row->dtype, rows, C, TEST_UNUSED, row->gap);
    p->t[DX] = test_tensor_make(row->dtype, rows, C, TEST_UNUSED, row->gap);
    p->t[WEIGHT] = test_tensor_random(TT_F32, C, TEST_UNUSED, TEST_UNUSED, 0, 3, 1);
    p->t[BIAS] = test_tensor_random(TT_F32, C, TEST_UNUSED, TEST_UNUSED, 0, 4, 1);
    p->t[DWEIGHT] = test_tensor_random(TT_F32, C, TEST_UNUSED, TEST_UNUSED, 0, 5, 1);
    p->t[DBIAS] = test_tensor_random(TT_F32, C, TEST_UNUSED, TEST_UNUSED, 0, 6, 1);
    p->t[MEAN] = test_tensor_make(TT_F32, row->images, row->groups, TEST_UNUSED, 0);
    p->t[SCALE] = test_tensor_make(TT_F32, row->images, row->groups, TEST_UNUSED, 0);
    p->t[FACTORS] = test_tensor_make(TT_F32, 3 * row->images, C, TEST_UNUSED, 0);
    p->t[PARTS] = test_tensor_make(TT_F64, 2 * row->images, C, TEST_UNUSED, 0);
    static const int written[] = {Y, DX, MEAN, SCALE, FACTORS, PARTS};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) test_tensor_poison(&p->t[written[i]]);
}

static void run(struct tt_stream *stream, const struct norm_case *row, struct test_tensor *t)
{
    const tt_tensor none = {0};
    test_ok(tt_group_norm(stream, &(struct tt_group_norm_args){.x_PC = t[X].view,
                                                               .weight_C = t[WEIGHT].view,
                                                               .bias_C = t[BIAS].view,
                                                               .images = row->images,
                                                               .groups = row->groups,
                                                               .eps = eps,
                                                               .mean_NG = t[MEAN].view,
                                                               .scale_NG = t[SCALE].view,
                                                               .y_PC = t[Y].view,
                                                               .relu = row->relu}));
    test_ok(tt_group_norm_backward(
        stream, &(struct tt_group_norm_backward_args){.x_PC = t[X].view,
                                                      .weight_C = t[WEIGHT].view,
                                                      .images = row->images,
                                                      .groups = row->groups,
                                                      .mean_NG = t[MEAN].view,
                                                      .scale_NG = t[SCALE].view,
                                                      .y_PC = row->relu ? t[Y].view : none,
                                                      .dy_PC = t[DY].view,
                                                      .dx_PC = t[DX].view,
                                                      .dweight_C = row->trains ? t[DWEIGHT].view : none,
                                                      .dbias_C = row->trains ? t[DBIAS].view : none,
                                                      .factors_NC = t[FACTORS].view,
                                                      .parts_NC = t[PARTS].view}));
}

static void compare(const struct problem *p, const struct test_tensor *t)
{
    static const int written[] = {MEAN, SCALE, Y, DX, DWEIGHT, DBIAS};
    double *exact[LINES], *plain[LINES];
    for (int i = 0; i < LINES; i++) {
        /* The relu of the backward pass is that of the output. */
        const struct test_tensor *from = i == Y ? &t[Y] : &p->t[i];
        exact[i] = test_tensor_values(from);
        plain[i] = test_tensor_values(from);
    }
    exact_norm(p->row, exact);
    plain_norm(p->row, plain);
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        int line = written[i];
        double *got = test_tensor_values(&t[line]);
        int64_t count = tt_tensor_count(t[line].view);
        tt_dtype dtype = t[line].view.dtype;
        for (int64_t j = 0; j < count; j++) plain[line][j] = test_round((float)plain[line][j], dtype);
        if (line < DWEIGHT || p->row->trains)
            /* Of few elements plain code has the nearest float by chance: a unit in the last place is allowed. */
            test_close_allowing("group norm", got, exact[line], plain[line], count, dtype, line <= Y ? 2 : 3,
                                1.2e-7, 0);
        else
            test_tensor_equal("gradient of frozen values", &t[line], &p->t[line]);
        free(got);
    }
    for (int i = 0; i < LINES; i++) free(exact[i]), free(plain[i]);
}

static void check(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor t[LINES];
    for (int i = 0; i < LINES; i++) t[i] = test_tensor_copy(&p->t[i]);
    test_array_to_device(device, t, LINES);
    run(device->stream, p->row, t);
    test_array_to_host(device, t, LINES);
    compare(p, t);
    for (int i = 0; i < LINES; i++) {
        test_tensor_check_gaps("group norm", &t[i]);
        if (threads > 1) test_tensor_equal("several threads", &t[i], &p->first[i]);
        test_tensor_free(&p->first[i]);
        p->first[i] = t[i];
    }
}

static void run_case(const void *row)
{
    struct problem p = {.row = row};
    make(&p);
    test_on_each_isa(check, &p);
    for (int i = 0; i < LINES; i++) {
        test_tensor_free(&p.t[i]);
        test_tensor_free(&p.first[i]);
    }
}

static void norms(void **state)
{
    (void)state;
    TEST_CASES("group norm", cases, run_case);
}

static void in_place(struct test_device *device, int threads, void *context)
{
    (void)threads;
    struct problem *p = context;
    struct test_tensor t[LINES], same[LINES];
    for (int i = 0; i < LINES; i++) {
        t[i] = test_tensor_copy(&p->t[i]);
        same[i] = test_tensor_copy(&p->t[i]);
    }
    test_array_to_device(device, t, LINES);
    test_array_to_device(device, same, LINES);
    run(device->stream, p->row, t);
    struct test_tensor dx = same[DX];
    same[DX] = same[DY];
    run(device->stream, p->row, same);
    same[DX] = dx;
    test_array_to_host(device, t, LINES);
    test_array_to_host(device, same, LINES);
    test_tensor_equal("gradient in place", &same[DY], &t[DX]);
    for (int i = 0; i < LINES; i++) {
        test_tensor_free(&t[i]);
        test_tensor_free(&same[i]);
    }
}

static void gradients_in_place(void **state)
{
    (void)state;
    struct problem p = {.row = &cases[0]};
    make(&p);
    test_on_each_isa(in_place, &p);
    test_array_free(p.t, LINES);
}

static void refuses(void **state)
{
    (void)state;
    struct problem p = {.row = &cases[1]};
    struct test_device device;
    make(&p);
    test_device_open(&device, test_device_kind(), 1);
    struct tt_group_norm_args args = {.x_PC = p.t[X].view,
                                      .weight_C = p.t[WEIGHT].view,
                                      .bias_C = p.t[BIAS].view,
                                      .images = 3,
                                      .groups = 5,
                                      .mean_NG = p.t[MEAN].view,
                                      .scale_NG = p.t[SCALE].view,
                                      .y_PC = p.t[Y].view};
    test_refused(tt_group_norm(device.stream, &args), TT_ERR_INTERNAL, "24 channels in 5 groups");
    args.groups = 4;
    args.images = 7;
    test_refused(tt_group_norm(device.stream, &args), TT_ERR_INTERNAL, "60 pixels of 7 images");
    test_device_close(&device);
    test_array_free(p.t, LINES);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(gradients_in_place),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
