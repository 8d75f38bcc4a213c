/* Norms of rows, scaled columns, dot products of columns, and columns of groups, on every instruction set, in all
 * types. */
#include "backend/ops/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/isa.h"

struct columns_case {
    int64_t rows, width, gap;
    tt_dtype x, other; /* other: of y and of the addend, of g */
    bool adds, in_place;
};

static const struct columns_case cases[] = {
    {7, 64, 0, TT_F32, TT_F32, true, false},        {7, 64, 0, TT_BF16, TT_BF16, false, true},
    {40, 896, 8, TT_BF16, TT_F32, true, false},     {300, 33, 3, TT_F32, TT_F32, false, true},
    {300, 33, 3, TT_F32, TT_BF16, true, false},     {5, 4097, 1, TT_BF16, TT_BF16, true, false},
    {50, 1, 0, TT_F32, TT_F32, true, false},        {0, 64, 0, TT_F32, TT_F32, false, false},
    {1000, 260, 4, TT_BF16, TT_BF16, false, false},
};

static const struct columns_case gpu_cases[] = {
    {5000, 4096, 0, TT_BF16, TT_BF16, true, false},
    {257, 14336, 0, TT_BF16, TT_F32, false, false},
    {70000, 24, 8, TT_F32, TT_F32, true, false},
};

struct problem {
    const struct columns_case *row;
    struct test_tensor x, other, a, b;
    struct test_tensor first_y, first_dots, first_norm, first_inverse;
    double *y, *y_plain, *dots, *dots_plain, *norm, *norm_plain, *inverse, *inverse_plain;
};

static void run_scale(struct test_device *device, int threads, struct problem *p)
{
    const struct columns_case *row = p->row;
    struct test_tensor x = test_tensor_copy(&p->x), y = test_tensor_copy(&p->other),
                       addend = test_tensor_copy(&p->other), a = test_tensor_copy(&p->a),
                       b = test_tensor_copy(&p->b);
    TEST_TO_DEVICE(device, &x, &y, &addend, &a, &b);
    struct tt_scale_columns_args args = {
        .x_TN = x.view, .a_N = a.view, .b_N = b.view, .y_TN = row->in_place ? x.view : y.view};
    if (row->adds) args.addend_TN = addend.view;
    test_ok(tt_scale_columns(device->stream, &args));
    TEST_TO_HOST(device, &x, &y, &addend, &a, &b);
    test_check_result("y", row->in_place ? x : y, threads, p->y, p->y_plain, 2, &p->first_y);
    if (!row->in_place)
        test_check_untouched("x", &x, &p->x);
    else
        test_tensor_free(&y);
    test_check_untouched("addend", &addend, &p->other);
    test_tensor_free(&a), test_tensor_free(&b);
}

static void run_dots(struct test_device *device, int threads, struct problem *p)
{
    struct test_tensor x = test_tensor_copy(&p->x), g = test_tensor_copy(&p->other),
                       b = test_tensor_copy(&p->b), dots = test_tensor_copy(&p->a);
    TEST_TO_DEVICE(device, &x, &g, &b, &dots);
    struct tt_column_dots_args args = {.x_TN = x.view, .g_TN = g.view, .b_N = b.view, .dots_N = dots.view};
    test_ok(tt_column_dots(device->stream, &args));
    TEST_TO_HOST(device, &x, &g, &b, &dots);
    test_check_result("dots", dots, threads, p->dots, p->dots_plain, 3, &p->first_dots);
    test_tensor_free(&x), test_tensor_free(&g), test_tensor_free(&b);
}

static void run_norms(struct test_device *device, int threads, struct problem *p)
{
    int64_t rows = p->row->rows;
    struct test_tensor x = test_tensor_copy(&p->x),
                       norm = test_tensor_make(TT_F32, rows, TEST_UNUSED, TEST_UNUSED, 0),
                       inverse = test_tensor_make(TT_F32, rows, TEST_UNUSED, TEST_UNUSED, 0);
    test_tensor_poison(&norm), test_tensor_poison(&inverse);
    TEST_TO_DEVICE(device, &x, &norm, &inverse);
    struct tt_row_norms_args args = {.w_NK = x.view, .norm_N = norm.view};
    test_ok(tt_row_norms(device->stream, &args));
    args = (struct tt_row_norms_args){.w_NK = x.view, .inverse_N = inverse.view};
    test_ok(tt_row_norms(device->stream, &args));
    TEST_TO_HOST(device, &x, &norm, &inverse);
    test_check_result("norm", norm, threads, p->norm, p->norm_plain, 2, &p->first_norm);
    test_check_result("inverse", inverse, threads, p->inverse, p->inverse_plain, 2, &p->first_inverse);
    test_tensor_free(&x);
}

static void check_run(struct test_device *device, int threads, void *context)
{
    run_scale(device, threads, context);
    run_dots(device, threads, context);
    run_norms(device, threads, context);
}

static void solve_row(struct problem *p, int64_t t, const double *x, const double *other, const double *a,
                      const double *b)
{
    int64_t width = p->row->width;
    double squares = 0;
    float plain = 0;
    for (int64_t n = 0; n < width; n++) {
        int64_t at = t * width + n;
        float scaled = (float)x[at] * ((float)a[n] * (float)b[n]);
        p->y[at] = x[at] * a[n] * b[n] + (p->row->adds ? other[at] : 0);
        p->y_plain[at] = (double)test_round(scaled + (p->row->adds ? (float)other[at] : 0),
                                            p->row->in_place ? p->row->x : p->row->other);
        p->dots[n] += b[n] * x[at] * other[at];
        p->dots_plain[n] = (double)((float)p->dots_plain[n] + (float)b[n] * (float)x[at] * (float)other[at]);
        squares += x[at] * x[at];
        plain += (float)x[at] * (float)x[at];
    }
    p->norm[t] = sqrt(squares);
    p->norm_plain[t] = (double)sqrtf(plain);
    p->inverse[t] = squares > 0 ? 1 / sqrt(squares) : 0;
    p->inverse_plain[t] = plain > 0 ? (double)(1 / sqrtf(plain)) : 0;
}

static void check_case(const void *row_pointer)
{
    const struct columns_case *row = row_pointer;
    struct problem p = {.row = row};
    int64_t count = row->rows * row->width;
    p.x = test_tensor_random(row->x, row->rows, row->width, TEST_UNUSED, row->gap, 1, 1);
    p.other = test_tensor_random(row->other, row->rows, row->width, TEST_UNUSED, row->gap, 2, 1);
    p.a = test_tensor_random(TT_F32, row->width, TEST_UNUSED, TEST_UNUSED, 0, 3, 1);
    p.b = test_tensor_random(TT_F32, row->width, TEST_UNUSED, TEST_UNUSED, 0, 4, 1);
    double *x = test_tensor_values(&p.x), *other = test_tensor_values(&p.other),
           *a = test_tensor_values(&p.a), *b = test_tensor_values(&p.b);
    if (row->rows > 2) { /* a row of zeros */
        memset(x + row->width, 0, (size_t)row->width * sizeof *x);
        test_tensor_set(&p.x, x);
    }
    p.y = test_doubles(count), p.y_plain = test_doubles(count);
    p.dots = test_doubles(row->width), p.dots_plain = test_doubles(row->width);
    p.norm = test_doubles(row->rows), p.norm_plain = test_doubles(row->rows);
    p.inverse = test_doubles(row->rows), p.inverse_plain = test_doubles(row->rows);
    memcpy(p.dots, a, (size_t)row->width * sizeof *a); /* dots are added to */
    memcpy(p.dots_plain, a, (size_t)row->width * sizeof *a);
    for (int64_t t = 0; t < row->rows; t++) solve_row(&p, t, x, other, a, b);
    test_on_each_isa(check_run, &p);
    double *values[] = {x,      other,        a,         b,
                        p.y,    p.y_plain,    p.dots,    p.dots_plain,
                        p.norm, p.norm_plain, p.inverse, p.inverse_plain};
    test_free_values(values, sizeof values / sizeof *values);
    struct test_tensor *tensors[] = {&p.x,       &p.other,      &p.a,          &p.b,
                                     &p.first_y, &p.first_dots, &p.first_norm, &p.first_inverse};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) test_tensor_free(tensors[i]);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("columns", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("columns", gpu_cases, check_case);
}

/* ---- Columns of groups ---- */

struct groups_case {
    int64_t rows, width, gap;
    tt_dtype dtype;
    int64_t share, first, count, each; /* share 0: groups of the rows themselves */
};

static const struct groups_case groups_cases[] = {
    {7, 64, 0, TT_F32, 0, 0, 4, 16}, {7, 64, 0, TT_BF16, 0, 1, 2, 16}, {40, 36, 8, TT_BF16, 0, 0, 3, 4},
    {33, 15, 1, TT_F32, 2, 0, 5, 1}, {50, 21, 3, TT_BF16, 4, 0, 3, 7}, {64, 192, 0, TT_BF16, 0, 0, 4, 16},
    {0, 8, 0, TT_F32, 0, 0, 2, 4},   {9, 8, 0, TT_F32, 0, 0, 1, 8},
};

static const struct groups_case gpu_groups_cases[] = {
    {2048, 768, 0, TT_BF16, 0, 0, 16, 16},
    {8192, 256, 8, TT_BF16, 8, 0, 4, 64},
};

struct groups_problem {
    const struct groups_case *row;
    struct test_tensor x, group, place, first;
    double *kept, *plain;
};

static void run_groups(struct test_device *device, int threads, void *context)
{
    struct groups_problem *p = context;
    const struct groups_case *row = p->row;
    struct test_tensor x = test_tensor_copy(&p->x), group = test_tensor_copy(&p->group),
                       place = test_tensor_copy(&p->place);
    TEST_TO_DEVICE(device, &x, &group, &place);
    struct tt_keep_columns_args args = {.x_TN = x.view,
                                        .group_R = group.view,
                                        .share = row->share > 0 ? row->share : 1,
                                        .first = row->first,
                                        .count = row->count,
                                        .each = row->each};
    if (row->share > 0) args.row_T = place.view;
    test_ok(tt_keep_columns(device->stream, &args));
    TEST_TO_HOST(device, &x, &group, &place);
    test_check_result("kept", x, threads, p->kept, p->plain, 1, &p->first);
    test_check_untouched("group", &group, &p->group);
    test_check_untouched("row", &place, &p->place);
}

/* Columns of other groups are 0 where they hold an infinity, too. */
static void check_groups(const void *row_pointer)
{
    const struct groups_case *row = row_pointer;
    struct groups_problem p = {.row = row};
    int64_t share = row->share > 0 ? row->share : 1, groups = (row->rows + share - 1) / share;
    p.x = test_tensor_random(row->dtype, row->rows, row->width, TEST_UNUSED, row->gap, 1, 1);
    p.group = test_tensor_make(TT_I32, groups, TEST_UNUSED, TEST_UNUSED, 0);
    p.place = test_tensor_make(TT_I32, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    double *x = test_tensor_values(&p.x), *group = test_doubles(groups), *place = test_doubles(row->rows);
    p.kept = test_doubles(row->rows * row->width);
    p.plain = test_doubles(row->rows * row->width);
    for (int64_t i = 0; i < groups; i++) group[i] = (double)(row->first + i * 7 % (row->count + 2) - 1);
    for (int64_t t = 0; t < row->rows; t++) place[t] = (double)(row->rows - 1 - t);
    for (int64_t t = 0; t < row->rows; t++) {
        int64_t own = (int64_t)group[row->share > 0 ? (int64_t)place[t] / share : t];
        for (int64_t c = 0; c < row->width; c++) {
            int64_t at = t * row->width + c;
            bool keeps = row->first + c / row->each % row->count == own;
            if (!keeps && c % 3 == 0) x[at] = INFINITY;
            p.kept[at] = p.plain[at] = keeps ? x[at] : 0;
        }
    }
    test_tensor_set(&p.x, x), test_tensor_set(&p.group, group), test_tensor_set(&p.place, place);
    test_on_each_isa(run_groups, &p);
    double *values[] = {x, group, place, p.kept, p.plain};
    test_free_values(values, sizeof values / sizeof *values);
    struct test_tensor *tensors[] = {&p.x, &p.group, &p.place, &p.first};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) test_tensor_free(tensors[i]);
}

static void groups_keep_their_columns(void **state)
{
    (void)state;
    TEST_CASES("groups", groups_cases, check_groups);
}

static void groups_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("groups", gpu_groups_cases, check_groups);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(groups_keep_their_columns),
        cmocka_unit_test(groups_of_real_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
