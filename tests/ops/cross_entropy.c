#include "backend/ops/cross_entropy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/isa.h"

struct entropy_case {
    int64_t rows, words, gap;
    tt_dtype dtype;
    double size, smoothing;
    bool gradient, wants_correct;
    double cap; /* 0: none */
};

static const struct entropy_case cases[] = {
    {6, 100, 0, TT_F32, 1, 0, true, true, 0},
    {6, 100, 0, TT_BF16, 1, 0, true, true, 0},
    {20, 32000, 0, TT_F32, 3, 0, true, true, 0},
    {20, 32000, 0, TT_BF16, 3, 0, true, true, 0},
    {9, 5001, 7, TT_F32, 3, 0.1, true, true, 0},
    {9, 5001, 7, TT_BF16, 3, 0.1, true, true, 0},
    {40, 17, 1, TT_F32, 1, 0, true, true, 0},
    {5, 1, 0, TT_F32, 1, 0, true, true, 0},
    {5, 2, 0, TT_BF16, 1, 0.5, true, true, 0},
    {3, 2048, 0, TT_F32, 1, 0, true, false, 0},
    {3, 2049, 0, TT_F32, 1, 0, false, true, 0},
    {8, 300, 0, TT_F32, 1000, 0, true, true, 0}, /* near the borders of exp */
    {8, 300, 0, TT_BF16, 1e4, 0, true, true, 0},
    {8, 300, 0, TT_F32, 1e30, 0, true, true, 0},
    {0, 100, 0, TT_F32, 1, 0, true, true, 0},
    /* caps: far above the logits, of their size, far below */
    {20, 32000, 0, TT_F32, 3, 0, true, true, 30},
    {20, 32000, 0, TT_BF16, 3, 0, true, true, 30},
    {9, 5001, 7, TT_F32, 6, 0.1, true, true, 5},
    {9, 5001, 7, TT_BF16, 6, 0.1, true, true, 5},
    {40, 17, 1, TT_F32, 20, 0, true, true, 2},
    {5, 1, 0, TT_F32, 1, 0, true, true, 30},
    {3, 2049, 0, TT_F32, 1, 0.3, false, true, 0.5},
    {8, 300, 0, TT_BF16, 1e4, 0.1, true, true, 30},
};

static const struct entropy_case gpu_cases[] = {
    {40, 128256, 0, TT_BF16, 3, 0, true, true, 0},   {33, 151936, 0, TT_BF16, 3, 0.1, true, false, 0},
    {1025, 2049, 1, TT_BF16, 3, 0, true, true, 0},   {17, 128257, 0, TT_F32, 3, 0, false, true, 0},
    {70000, 30, 0, TT_BF16, 1, 0, true, true, 0},    {11, 40001, 1, TT_BF16, 3, 0, true, true, 0},
    {300, 65003, 3, TT_BF16, 3, 0.1, true, true, 0}, {9, 128257, 1, TT_F32, 3, 0, true, true, 0},
    {5, 300001, 0, TT_F32, 3, 0.1, true, true, 0},   {65, 256000, 0, TT_BF16, 8, 0, true, true, 30},
    {9, 256001, 1, TT_F32, 8, 0.1, true, true, 30},
};

enum { LOGITS, LABELS, LOSS, CORRECT, ENTROPY, MEAN, LINES };

static const char *const names[LINES] = {"logits", "labels", "loss", "correct", "entropy", "mean"};

#define DEFINE_REFERENCE(name, real, real_exp, real_log, real_tanh)                                          \
    static void name(const struct entropy_case *row, real scale, const double *labels, double *logits,       \
                     double *loss, double *entropy, double *mean)                                            \
    {                                                                                                        \
        int64_t V = row->words;                                                                              \
        real smoothing = (real)(float)row->smoothing, cap = (real)row->cap;                                  \
        _Pragma("omp parallel for if (TEST_IS_LARGE(row->rows * V))") for (int64_t n = 0; n < row->rows;     \
                                                                           n++)                              \
        {                                                                                                    \
            double *x = logits + n * V;                                                                      \
            int64_t label = (int64_t)labels[n];                                                              \
            for (int64_t v = 0; cap > 0 && v < V; v++) x[v] = (double)(cap * real_tanh((real)x[v] / cap));   \
            real most = (real)x[0], sum = 0, all = 0, weighted = 0;                                          \
            for (int64_t v = 0; v < V; v++) most = (real)x[v] > most ? (real)x[v] : most;                    \
            for (int64_t v = 0; v < V; v++) {                                                                \
                real e = real_exp((real)x[v] - most);                                                        \
                sum += e;                                                                                    \
                weighted += e * ((real)x[v] - most);                                                         \
                all += (real)x[v];                                                                           \
            }                                                                                                \
            real lse = most + real_log(sum);                                                                 \
            entropy[n] = (double)(real_log(sum) - weighted / sum);                                           \
            mean[n] = (double)(all / (real)V);                                                               \
            loss[n] =                                                                                        \
                (double)((1 - smoothing) * (lse - (real)x[label]) + smoothing * (lse - all / (real)V));      \
            if (!row->gradient) continue;                                                                    \
            for (int64_t v = 0; v < V; v++) {                                                                \
                real p = real_exp((real)x[v] - lse) - smoothing / (real)V,                                   \
                     t = cap > 0 ? (real)x[v] / cap : 0;                                                     \
                x[v] = (double)((p - (v == label ? 1 - smoothing : 0)) * scale * (1 - t * t));               \
            }                                                                                                \
        }                                                                                                    \
    }

DEFINE_REFERENCE(oracle, double, exp, log, tanh)
DEFINE_REFERENCE(plain, float, expf, logf, tanhf)

struct problem {
    const struct entropy_case *row;
    struct test_tensor tensors[LINES], first[LINES];
    double *exact[LINES], *simple[LINES];
};

static const float grad_scale = 0.03125f * 1.1f;

static void make_problem(struct problem *p, const struct entropy_case *row)
{
    memset(p, 0, sizeof *p);
    p->row = row;
    p->tensors[LOGITS] =
        test_tensor_random(row->dtype, row->rows, row->words, TEST_UNUSED, row->gap, 1, row->size);
    p->tensors[LABELS] = test_tensor_make(TT_I32, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    p->tensors[LOSS] = test_tensor_make(TT_F32, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    p->tensors[CORRECT] = test_tensor_make(TT_I32, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    p->tensors[ENTROPY] = test_tensor_make(TT_F32, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    p->tensors[MEAN] = test_tensor_make(TT_F32, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    test_tensor_random_index(&p->tensors[LABELS], 2, row->words);
    int32_t *labels = p->tensors[LABELS].view.data;
    if (row->rows > 0) labels[0] = 0;
    if (row->rows > 1) labels[1] = (int32_t)row->words - 1;
    for (int i = 0; i < LINES; i++) {
        p->exact[i] = test_tensor_values(&p->tensors[i]);
        p->simple[i] = test_tensor_values(&p->tensors[i]);
    }
    /* The label of every third row is its largest logit, so that `correct` has something to say. */
    for (int64_t n = 2; n < row->rows; n += 3) {
        const double *x = p->exact[LOGITS] + n * row->words;
        int64_t best = 0;
        for (int64_t v = 1; v < row->words; v++)
            if (x[v] > x[best]) best = v;
        labels[n] = (int32_t)best;
        p->exact[LABELS][n] = p->simple[LABELS][n] = (double)best;
    }
    for (int64_t n = 0; n < row->rows; n++) {
        const double *x = p->exact[LOGITS] + n * row->words;
        int64_t best = 0;
        for (int64_t v = 1; v < row->words; v++)
            if (x[v] > x[best]) best = v;
        p->exact[CORRECT][n] = p->simple[CORRECT][n] = best == labels[n];
    }
}

static void free_problem(struct problem *p)
{
    test_array_free(p->tensors, LINES);
    test_array_free(p->first, LINES);
    test_free_values(p->exact, LINES);
    test_free_values(p->simple, LINES);
}

static tt_status run_scaled(struct test_device *device, const struct entropy_case *row,
                            const struct test_tensor *t, float scale, tt_tensor scale_N)
{
    struct tt_cross_entropy_args args = {.logits_NV = t[LOGITS].view,
                                         .labels_N = t[LABELS].view,
                                         .loss_N = t[LOSS].view,
                                         .grad_scale = scale,
                                         .grad_scale_N = scale_N,
                                         .label_smoothing = (float)row->smoothing,
                                         .soft_cap = (float)row->cap,
                                         .gradient = row->gradient};
    if (row->wants_correct) args.correct_N = t[CORRECT].view;
    if (row->wants_correct) args.entropy_N = t[ENTROPY].view;
    if (row->wants_correct) args.mean_N = t[MEAN].view;
    return tt_cross_entropy(device->stream, &args);
}

static tt_status run_op(struct test_device *device, const struct entropy_case *row,
                        const struct test_tensor *t)
{
    return run_scaled(device, row, t, grad_scale, (tt_tensor){0});
}

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor tensors[LINES];
    for (int i = 0; i < LINES; i++) tensors[i] = test_tensor_copy(&p->tensors[i]);
    test_tensor_poison(&tensors[LOSS]);
    test_array_to_device(device, tensors, LINES);
    test_ok(run_op(device, p->row, tensors));
    test_array_to_host(device, tensors, LINES);
    for (int i = 0; i < LINES; i++) {
        test_tensor_check_gaps(names[i], &tensors[i]);
        if (i == LABELS || (i == LOGITS && !p->row->gradient) ||
            ((i == CORRECT || i == ENTROPY || i == MEAN) && !p->row->wants_correct)) {
            test_tensor_equal(names[i], &tensors[i], &p->tensors[i]);
        } else if (threads == 1) {
            double *got = test_tensor_values(&tensors[i]);
            /* exp of what is far below the largest may be the least normal number instead of 0, times -128.
             */
            double least = i == ENTROPY ? 256 * 0x1p-126 * (double)p->row->words : 0;
            /* Two units in the last place of tanh near 1, times the cap; few words do not average them out. */
            if (i == MEAN) least = 0x1p-23 * p->row->cap;
            /* Of bf16 logits a GPU takes the fast exp, which is off by up to two units in the last place
             * (CUDA C++ programming guide, __expf); with two words nothing averages them out. */
            double relative = i == ENTROPY && p->row->dtype == TT_BF16 ? 0x1p-23 : 0;
            test_close_allowing(names[i], got, p->exact[i], p->simple[i], tt_tensor_count(tensors[i].view),
                                tensors[i].view.dtype, i == LOGITS ? 3 : 2, relative, least);
            free(got);
        } else {
            test_tensor_equal(names[i], &tensors[i], &p->first[i]);
        }
        test_tensor_free(&p->first[i]);
        p->first[i] = tensors[i];
    }
}

static void check_case(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    oracle(p.row, (double)grad_scale, p.exact[LABELS], p.exact[LOGITS], p.exact[LOSS], p.exact[ENTROPY],
           p.exact[MEAN]);
    plain(p.row, grad_scale, p.simple[LABELS], p.simple[LOGITS], p.simple[LOSS], p.simple[ENTROPY],
          p.simple[MEAN]);
    for (int64_t i = 0; i < p.row->rows * p.row->words; i++)
        p.simple[LOGITS][i] = (double)test_round((float)p.simple[LOGITS][i], p.row->dtype);
    test_on_each_isa(check_run, &p);
    free_problem(&p);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("cross_entropy", cases, check_case);
}

/* The oracle's gradient against its own loss. */
static struct {
    struct entropy_case row;
    double labels[4], logits[4 * 9], work[4 * 9], loss[4], entropy[4], mean[4];
} small = {.row = {4, 9, 0, TT_F32, 1, 0.2, true, false, 0}, .labels = {0, 8, 3, 5}};

static double total_loss(void *context)
{
    (void)context;
    memcpy(small.work, small.logits, sizeof small.work);
    oracle(&small.row, 0.7, small.labels, small.work, small.loss, small.entropy, small.mean);
    return 0.7 * (small.loss[0] + small.loss[1] + small.loss[2] + small.loss[3]);
}

static void oracle_agrees_with_finite_differences(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    struct test_tensor random = test_tensor_random(TT_F32, 4, 9, TEST_UNUSED, 0, 5, 1.5);
    for (int i = 0; i < 36; i++) small.logits[i] = (double)((float *)random.view.data)[i];
    total_loss(NULL);
    double gradient[36];
    memcpy(gradient, small.work, sizeof gradient);
    test_gradient("dlogits", total_loss, NULL, small.logits, gradient, 36);
    small.row.cap = 1.2;
    total_loss(NULL);
    memcpy(gradient, small.work, sizeof gradient);
    test_gradient("dlogits of capped logits", total_loss, NULL, small.logits, gradient, 36);
    test_tensor_free(&random);
}

/* Rows of few different values: the lowest index among the largest is the arg max. */
static void ties(struct test_device *device, int threads, void *context)
{
    (void)context, (void)threads;
    const struct entropy_case row = {60, 5000, 0, TT_BF16, 1, 0, false, true, 0};
    struct problem p;
    make_problem(&p, &row);
    uint16_t *logits = p.tensors[LOGITS].view.data;
    int32_t *labels = p.tensors[LABELS].view.data;
    for (int64_t n = 0; n < row.rows; n++) {
        uint16_t *x = logits + n * row.words;
        for (int64_t v = 0; v < row.words; v++) x[v] = tt_f32_to_bf16(-1.0f);
        int64_t first = n * 83 % 5000, second = first + n * 7 % (5000 - first);
        x[first] = x[second] = tt_f32_to_bf16(2.0f);
        labels[n] = (int32_t)(n % 2 == 0 ? first : second);
    }
    test_array_to_device(device, p.tensors, LINES);
    test_ok(run_op(device, &row, p.tensors));
    test_array_to_host(device, p.tensors, LINES);
    for (int64_t n = 0; n < row.rows; n++) {
        int64_t first = n * 83 % 5000;
        assert_int_equal(((int32_t *)p.tensors[CORRECT].view.data)[n], labels[n] == first);
    }
    free_problem(&p);
}

static void lowest_index_wins_a_tie(void **state)
{
    (void)state;
    test_on_each_isa(ties, NULL);
}

static void odd_numbers(struct test_device *device, int threads, void *context)
{
    (void)context, (void)threads;
    const struct entropy_case row = {3, 70, 0, TT_F32, 1, 0, true, true, 0};
    struct problem p;
    make_problem(&p, &row);
    float *logits = p.tensors[LOGITS].view.data;
    logits[33] = NAN;           /* row 0: the loss says so */
    logits[70 + 5] = -INFINITY; /* row 1: a word that is ruled out */
    for (int v = 0; v < 70; v++) logits[140 + v] = 3e38f;
    test_array_to_device(device, p.tensors, LINES);
    test_ok(run_op(device, &row, p.tensors));
    test_array_to_host(device, p.tensors, LINES);
    const float *loss = p.tensors[LOSS].view.data;
    assert_true(isnan(loss[0]));
    assert_true(isfinite(loss[1]));
    assert_true(fabsf(logits[70 + 5]) < 1e-30f);
    assert_true(isfinite(loss[2])); /* 3e38 + log 70 - 3e38 */
    const float *entropy = p.tensors[ENTROPY].view.data;
    assert_true(isnan(entropy[0]));
    assert_true(entropy[1] > 0 && entropy[1] < logf(69.0f)); /* the word that is ruled out adds nothing */
    assert_true(fabsf(entropy[2] - logf(70.0f)) < 1e-6f);    /* all alike: the most there can be */
    for (int v = 0; v < 140; v++) assert_true(isfinite(logits[70 + v]));
    free_problem(&p);
}

static void nan_shows_and_infinity_is_survived(void **state)
{
    (void)state;
    test_on_each_isa(odd_numbers, NULL);
}

static const float row_scales[] = {0.03125f * 1.1f, -0.7f, 0.0f, 300.0f};
enum { ROW_SCALES = sizeof row_scales / sizeof *row_scales };

/* Row n must have the bits that it has when all rows are scaled as it is. `alike`: they are. */
static void check_row_scales(struct test_device *device, const struct problem *p, int alike)
{
    int64_t rows = p->row->rows, width = p->row->words * (p->row->dtype == TT_BF16 ? 2 : 4);
    struct test_tensor scaled[LINES], scales = test_tensor_make(TT_F32, rows, TEST_UNUSED, TEST_UNUSED, 0);
    for (int64_t n = 0; n < rows; n++)
        ((float *)scales.view.data)[n] = row_scales[alike >= 0 ? alike : n % ROW_SCALES];
    for (int i = 0; i < LINES; i++) scaled[i] = test_tensor_copy(&p->tensors[i]);
    test_array_to_device(device, scaled, LINES);
    test_array_to_device(device, &scales, 1);
    test_ok(run_scaled(device, p->row, scaled, NAN, scales.view));
    test_array_to_host(device, scaled, LINES);
    for (int s = 0; s < ROW_SCALES; s++) {
        struct test_tensor tensors[LINES];
        for (int i = 0; i < LINES; i++) tensors[i] = test_tensor_copy(&p->tensors[i]);
        test_array_to_device(device, tensors, LINES);
        test_ok(run_scaled(device, p->row, tensors, row_scales[s], (tt_tensor){0}));
        test_array_to_host(device, tensors, LINES);
        for (int64_t n = 0; n < rows; n++) {
            int64_t at = n * tensors[LOGITS].view.strides[0] * (p->row->dtype == TT_BF16 ? 2 : 4);
            if (s != (alike >= 0 ? alike : n % ROW_SCALES)) continue;
            assert_memory_equal((char *)scaled[LOGITS].view.data + at, (char *)tensors[LOGITS].view.data + at,
                                width);
        }
        for (int i = LABELS; i < LINES; i++) test_tensor_equal(names[i], &scaled[i], &tensors[i]);
        test_array_free(tensors, LINES);
    }
    test_array_free(scaled, LINES);
    test_array_to_host(device, &scales, 1);
    test_tensor_free(&scales);
}

static void scale_rows(struct test_device *device, int threads, void *context)
{
    (void)context, (void)threads;
    static const struct entropy_case rows[] = {
        {21, 1000, 0, TT_F32, 3, 0, true, true, 0},
        {21, 1000, 0, TT_BF16, 3, 0, true, true, 0},
        {9, 5001, 7, TT_F32, 3, 0.1, true, true, 0},
        {9, 5001, 7, TT_BF16, 3, 0.1, true, true, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct problem p;
        make_problem(&p, &rows[i]);
        for (int alike = -1; alike < ROW_SCALES; alike++) check_row_scales(device, &p, alike);
        free_problem(&p);
    }
}

static void a_row_has_its_own_scale(void **state)
{
    (void)state;
    test_on_each_isa(scale_rows, NULL);
}

static void scales_are_one_for_each_row(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    const struct entropy_case row = {3, 10, 0, TT_F32, 1, 0, true, true, 0};
    struct problem p;
    struct test_device device;
    float scales[4] = {1, 1, 1, 1};
    make_problem(&p, &row);
    test_device_open(&device, "cpu", 1);
    test_refused(run_scaled(&device, &row, p.tensors, 1, tt_tensor_1d(scales, TT_F32, 4)), TT_ERR_INTERNAL,
                 "grad_scale");
    test_device_close(&device);
    free_problem(&p);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("cross_entropy", gpu_cases, check_case);
}

static void a_label_outside_the_vocabulary_is_refused(void **state)
{
    (void)state;
    TEST_CPU_ONLY();
    const struct entropy_case row = {3, 10, 0, TT_F32, 1, 0, true, true, 0};
    struct problem p;
    struct test_device device;
    make_problem(&p, &row);
    test_device_open(&device, "cpu", 1);
    test_tensor_set(&p.tensors[LABELS], (const double[]){0, 10, 1});
    test_refused(run_op(&device, &row, p.tensors), TT_ERR_DATA,
                 "cross_entropy: label 1 is 10, which is outside 0..9");
    test_tensor_set(&p.tensors[LABELS], (const double[]){0, 1, -100});
    test_refused(run_op(&device, &row, p.tensors), TT_ERR_DATA, "label 2 is -100");
    test_device_close(&device);
    free_problem(&p);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_agrees_with_finite_differences),
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(lowest_index_wins_a_tie),
        cmocka_unit_test(nan_shows_and_infinity_is_survived),
        cmocka_unit_test(a_label_outside_the_vocabulary_is_refused),
        cmocka_unit_test(a_row_has_its_own_scale),
        cmocka_unit_test(scales_are_one_for_each_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
