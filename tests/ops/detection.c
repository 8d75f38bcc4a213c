#include "backend/ops/detection.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "ops/isa.h"

enum { IMAGES = 3, ANCHORS = 700, BOXES_MAX = 30, PLACES = 20 };

/* Boxes on a coarse grid: many overlaps are equal, and some boxes overlap no anchor. */
static void make_boxes(uint64_t seed, double *boxes, int64_t count, double offset)
{
    struct tt_rng rng = tt_rng_derive(tt_rng_make(seed), "boxes");
    for (int64_t i = 0; i < count; i++) {
        double x = (double)tt_rng_below(rng, (uint64_t)(4 * i), PLACES);
        double y = (double)tt_rng_below(rng, (uint64_t)(4 * i + 1), PLACES);
        boxes[4 * i] = offset + x;
        boxes[4 * i + 1] = offset + y;
        boxes[4 * i + 2] = offset + x + 1 + (double)tt_rng_below(rng, (uint64_t)(4 * i + 2), 5);
        boxes[4 * i + 3] = offset + y + 1 + (double)tt_rng_below(rng, (uint64_t)(4 * i + 3), 5);
    }
}

/* As torchvision.ops.box_iou, in floats. */
static float iou_of(const double *a, const double *b)
{
    float width = fmaxf(fminf((float)a[2], (float)b[2]) - fmaxf((float)a[0], (float)b[0]), 0);
    float height = fmaxf(fminf((float)a[3], (float)b[3]) - fmaxf((float)a[1], (float)b[1]), 0);
    float inner = width * height;
    float areas = ((float)a[2] - (float)a[0]) * ((float)a[3] - (float)a[1]) +
                  ((float)b[2] - (float)b[0]) * ((float)b[3] - (float)b[1]);
    return inner / (areas - inner);
}

/* torchvision's Matcher over the whole matrix, with allow_low_quality_matches. */
static void match_image(const double *boxes, int64_t first, int64_t end, const double *anchors, double *match)
{
    static float matrix[BOXES_MAX][ANCHORS], best[BOXES_MAX];
    int64_t count = end - first, all[ANCHORS];
    for (int64_t m = 0; m < count; m++) {
        best[m] = 0;
        for (int64_t a = 0; a < ANCHORS; a++) {
            matrix[m][a] = iou_of(boxes + 4 * (first + m), anchors + 4 * a);
            best[m] = fmaxf(best[m], matrix[m][a]);
        }
    }
    for (int64_t a = 0; a < ANCHORS; a++) {
        all[a] = -1;
        for (int64_t m = 0; m < count; m++)
            if (all[a] < 0 || matrix[m][a] > matrix[all[a]][a]) all[a] = m;
        match[a] = TT_MATCH_BACKGROUND;
        if (all[a] < 0) continue;
        float iou = matrix[all[a]][a];
        match[a] = iou < 0.4f   ? TT_MATCH_BACKGROUND
                   : iou < 0.5f ? TT_MATCH_IGNORED
                                : (double)(first + all[a]);
        for (int64_t m = 0; m < count; m++)
            if (matrix[m][a] == best[m]) match[a] = (double)(first + all[a]);
    }
}

static void check_match(struct test_device *device, int threads, void *context)
{
    (void)threads, (void)context;
    for (uint64_t seed = 0; seed < 20; seed++) {
        const double offsets[IMAGES + 1] = {0, (double)(7 + seed % 3), (double)(7 + seed % 3), BOXES_MAX};
        double anchors[ANCHORS * 4], boxes[BOXES_MAX * 4], expected[IMAGES * ANCHORS],
            foreground[IMAGES] = {0};
        make_boxes(seed, anchors, ANCHORS, 0);
        make_boxes(seed + 100, boxes, BOXES_MAX, seed % 4 == 3 ? 100 : 0); /* 100: no overlap at all */
        struct test_tensor t[] = {
            test_tensor_make(TT_F32, ANCHORS, 4, TEST_UNUSED, 0),
            test_tensor_make(TT_F32, BOXES_MAX, 4, TEST_UNUSED, 0),
            test_tensor_make(TT_I32, IMAGES + 1, TEST_UNUSED, TEST_UNUSED, 0),
            test_tensor_make(TT_I32, IMAGES, ANCHORS, TEST_UNUSED, 0),
            test_tensor_make(TT_I32, IMAGES, TEST_UNUSED, TEST_UNUSED, 0),
            test_tensor_make(TT_F32, BOXES_MAX, TEST_UNUSED, TEST_UNUSED, 0),
        };
        test_tensor_set(&t[0], anchors);
        test_tensor_set(&t[1], boxes);
        test_tensor_set(&t[2], offsets);
        test_array_to_device(device, t, (int)(sizeof t / sizeof *t));
        test_ok(tt_anchor_match(device->stream, &(struct tt_anchor_match_args){.anchors_A4 = t[0].view,
                                                                               .boxes_M4 = t[1].view,
                                                                               .offsets = t[2].view,
                                                                               .low = 0.4f,
                                                                               .high = 0.5f,
                                                                               .match_NA = t[3].view,
                                                                               .foreground_N = t[4].view,
                                                                               .best_M = t[5].view}));
        test_array_to_host(device, t, (int)(sizeof t / sizeof *t));
        double *match = test_tensor_values(&t[3]), *counted = test_tensor_values(&t[4]);
        for (int64_t n = 0; n < IMAGES; n++) {
            match_image(boxes, (int64_t)offsets[n], (int64_t)offsets[n + 1], anchors, expected + n * ANCHORS);
            for (int64_t a = 0; a < ANCHORS; a++) foreground[n] += expected[n * ANCHORS + a] >= 0;
            assert_true(counted[n] == foreground[n]);
        }
        for (int64_t i = 0; i < IMAGES * ANCHORS; i++) assert_true(match[i] == expected[i]);
        for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
            test_tensor_check_gaps("match", &t[i]);
            test_tensor_free(&t[i]);
        }
        free(match), free(counted);
    }
}

static void matches(void **state)
{
    (void)state;
    test_on_each_isa(check_match, NULL);
}

struct loss_case {
    int64_t anchors, classes;
    tt_dtype dtype;
    double size;
    float gamma;
    enum tt_box_loss kind;
    int64_t each, room; /* anchors of a row, 0: 1; columns behind them */
};

static const struct loss_case loss_cases[] = {
    {700, 5, TT_F32, 2, 2, TT_BOX_L1, 0, 0},    {700, 91, TT_F32, 8, 2, TT_BOX_SMOOTH_L1, 0, 0},
    {33, 33, TT_BF16, 2, 2, TT_BOX_L1, 0, 0},   {9, 1, TT_F32, 30, 2, TT_BOX_SMOOTH_L1, 0, 0},
    {50, 17, TT_F32, 2, 1.5f, TT_BOX_L1, 0, 0}, {72, 7, TT_F32, 4, 2, TT_BOX_L1, 9, 1},
    {90, 91, TT_BF16, 8, 2, TT_BOX_L1, 9, 5},   {99, 3, TT_BF16, 8, 2, TT_BOX_SMOOTH_L1, 9, 4},
    {99, 5, TT_BF16, 3, 2, TT_BOX_L1, 3, 1},
};

enum { LOGITS, DELTAS, MATCH, LABELS, FOREGROUND, ANCHORS_LINE, BOXES_LINE, SUMS, LOSS_LINES };

struct loss_problem {
    const struct loss_case *row;
    struct test_tensor t[LOSS_LINES], first[LOSS_LINES];
    double *exact[LOSS_LINES], *plain[LOSS_LINES];
};

static const float alpha = 0.25f, weight = 0.125f;

#define DEFINE_LOSSES(name, real, real_exp, real_log1p, real_log, real_pow, real_abs)                        \
    static real name##_element(real z, real gamma, real *slope)                                              \
    {                                                                                                        \
        real e = real_exp(-real_abs(z)), ln = (z < 0 ? z : 0) - real_log1p(e);                               \
        real s = z >= 0 ? 1 / (1 + e) : e / (1 + e), rest = z >= 0 ? e / (1 + e) : 1 / (1 + e);              \
        *slope = real_pow(rest, gamma) * (gamma * s * ln - rest);                                            \
        return -real_pow(rest, gamma) * ln;                                                                  \
    }                                                                                                        \
    static void name(const struct loss_case *row, double *const v[LOSS_LINES])                               \
    {                                                                                                        \
        real focal = 0, box = 0;                                                                             \
        for (int64_t p = 0; p < IMAGES * row->anchors; p++) {                                                \
            int64_t n = p / row->anchors, a = p % row->anchors, match = (int64_t)v[MATCH][p];                \
            real w = (real)weight / (real)fmax(1, v[FOREGROUND][n]);                                         \
            for (int64_t k = 0; k < row->classes; k++) {                                                     \
                double *x = &v[LOGITS][p * row->classes + k];                                                \
                bool target = match >= 0 && k == (int64_t)v[LABELS][match];                                  \
                real slope, share = target ? (real)alpha : 1 - (real)alpha;                                  \
                real loss = name##_element((real)(target ? *x : -*x), (real)row->gamma, &slope);             \
                if (match != TT_MATCH_IGNORED) focal += w * share * loss;                                    \
                *x = match == TT_MATCH_IGNORED ? 0 : (double)(w * share * (target ? slope : -slope));        \
            }                                                                                                \
            const double *g = v[BOXES_LINE] + 4 * (match < 0 ? 0 : match), *b = v[ANCHORS_LINE] + 4 * a;     \
            for (int i = 0; i < 4; i++) {                                                                    \
                real side = (real)b[2 + i % 2] - (real)b[i % 2], to = (real)g[2 + i % 2] - (real)g[i % 2];   \
                real centre = (real)g[i % 2] + to / 2 - ((real)b[i % 2] + side / 2);                         \
                double *d = &v[DELTAS][4 * p + i];                                                           \
                real distance = (real)*d - (i < 2 ? centre / side : real_log(to / side));                    \
                real size = real_abs(distance), slope = distance > 0 ? 1 : -1;                               \
                bool inner = row->kind == TT_BOX_SMOOTH_L1 && size < 1;                                      \
                real loss = inner                           ? size * size / 2                                \
                            : row->kind == TT_BOX_SMOOTH_L1 ? size - 1 / (real)2                             \
                                                            : size;                                          \
                if (inner) slope = distance;                                                                 \
                if (match >= 0) box += w * loss;                                                             \
                *d = match >= 0 ? (double)(w * slope) : 0;                                                   \
            }                                                                                                \
        }                                                                                                    \
        v[SUMS][0] += (double)focal;                                                                         \
        v[SUMS][1] += (double)box;                                                                           \
    }
DEFINE_LOSSES(exact_losses, double, exp, log1p, log, pow, fabs)
DEFINE_LOSSES(plain_losses, float, expf, log1pf, logf, powf, fabsf)

static void make_losses(struct loss_problem *p)
{
    const struct loss_case *row = p->row;
    int64_t rows = IMAGES * row->anchors;
    double *boxes = test_doubles(4 * row->anchors), *match = test_doubles(rows), foreground[IMAGES] = {0};
    int64_t each = row->each > 0 ? row->each : 1;
    p->t[LOGITS] = test_tensor_random(row->dtype, rows / each, each * row->classes, TEST_UNUSED,
                                      row->each > 0 ? row->room : 3, 1, row->size);
    p->t[DELTAS] = test_tensor_random(row->dtype, rows / each, each * 4, TEST_UNUSED,
                                      row->each > 0 ? row->room : 2, 2, 1);
    p->t[MATCH] = test_tensor_make(TT_I32, IMAGES, row->anchors, TEST_UNUSED, 11);
    p->t[LABELS] = test_tensor_make(TT_I32, BOXES_MAX, TEST_UNUSED, TEST_UNUSED, 0);
    p->t[FOREGROUND] = test_tensor_make(TT_I32, IMAGES, TEST_UNUSED, TEST_UNUSED, 0);
    p->t[ANCHORS_LINE] = test_tensor_make(TT_F32, row->anchors, 4, TEST_UNUSED, 0);
    p->t[BOXES_LINE] = test_tensor_make(TT_F32, BOXES_MAX, 4, TEST_UNUSED, 0);
    p->t[SUMS] = test_tensor_random(TT_F64, 2, TEST_UNUSED, TEST_UNUSED, 0, 3, 1);
    test_tensor_random_index(&p->t[LABELS], 4, row->classes);
    test_tensor_random_index(&p->t[MATCH], 5, BOXES_MAX + 20);
    double *drawn = test_tensor_values(&p->t[MATCH]);
    for (int64_t i = 0; i < rows; i++) {
        match[i] = drawn[i] < BOXES_MAX       ? drawn[i]
                   : drawn[i] < BOXES_MAX + 5 ? TT_MATCH_IGNORED
                                              : TT_MATCH_BACKGROUND;
        if (i / row->anchors == 1) match[i] = TT_MATCH_BACKGROUND; /* an image without boxes */
        foreground[i / row->anchors] += match[i] >= 0;
    }
    test_tensor_set(&p->t[MATCH], match);
    test_tensor_set(&p->t[FOREGROUND], foreground);
    make_boxes(6, boxes, row->anchors, 0);
    test_tensor_set(&p->t[ANCHORS_LINE], boxes);
    double some[4 * BOXES_MAX];
    make_boxes(7, some, BOXES_MAX, 0.5);
    test_tensor_set(&p->t[BOXES_LINE], some);
    for (int i = 0; i < LOSS_LINES; i++) {
        p->exact[i] = test_tensor_values(&p->t[i]);
        p->plain[i] = test_tensor_values(&p->t[i]);
    }
    free(boxes), free(match), free(drawn);
}

static void run_losses(struct tt_stream *stream, const struct loss_case *row, struct test_tensor *t,
                       bool gradient)
{
    tt_tensor sums = t[SUMS].view;
    test_ok(tt_focal_loss(stream, &(struct tt_focal_loss_args){.logits_PK = t[LOGITS].view,
                                                               .row_anchors = row->each,
                                                               .match_NA = t[MATCH].view,
                                                               .labels_M = t[LABELS].view,
                                                               .foreground_N = t[FOREGROUND].view,
                                                               .alpha = alpha,
                                                               .gamma = row->gamma,
                                                               .weight = weight,
                                                               .gradient = gradient,
                                                               .sums = tt_tensor_rows(sums, 0, 1)}));
    test_ok(tt_box_loss(stream, &(struct tt_box_loss_args){.kind = row->kind,
                                                           .deltas_P4 = t[DELTAS].view,
                                                           .row_anchors = row->each,
                                                           .anchors_A4 = t[ANCHORS_LINE].view,
                                                           .match_NA = t[MATCH].view,
                                                           .boxes_M4 = t[BOXES_LINE].view,
                                                           .foreground_N = t[FOREGROUND].view,
                                                           .weight = weight,
                                                           .gradient = gradient,
                                                           .sums = tt_tensor_rows(sums, 1, 1)}));
}

static void check_losses(struct test_device *device, int threads, void *context)
{
    struct loss_problem *p = context;
    struct test_tensor t[LOSS_LINES], forward[LOSS_LINES];
    for (int i = 0; i < LOSS_LINES; i++) {
        t[i] = test_tensor_copy(&p->t[i]);
        forward[i] = test_tensor_copy(&p->t[i]);
    }
    test_array_to_device(device, t, LOSS_LINES);
    test_array_to_device(device, forward, LOSS_LINES);
    run_losses(device->stream, p->row, t, true);
    run_losses(device->stream, p->row, forward, false);
    test_array_to_host(device, t, LOSS_LINES);
    test_array_to_host(device, forward, LOSS_LINES);
    test_tensor_equal("sums without gradient", &forward[SUMS], &t[SUMS]);
    test_tensor_equal("logits without gradient", &forward[LOGITS], &p->t[LOGITS]);
    for (int i = 0; i < LOSS_LINES; i++) {
        bool written = i == LOGITS || i == DELTAS || i == SUMS;
        double *got = test_tensor_values(&t[i]);
        int64_t count = tt_tensor_count(t[i].view);
        if (!written) test_tensor_equal("input", &t[i], &p->t[i]);
        for (int64_t j = 0; written && i != SUMS && j < count; j++)
            p->plain[i][j] = (double)test_round((float)p->plain[i][j], t[i].view.dtype);
        /* A GPU approximates exponentials and reciprocals for bf16: the sum does not round their errors away. */
        double allowed = i == SUMS && !test_on_cpu() && p->row->dtype == TT_BF16 ? 1e-6 : 0;
        if (written) test_close_allowing("loss", got, p->exact[i], p->plain[i], count, TT_F32, 3, allowed, 0);
        test_tensor_check_gaps("loss", &t[i]);
        if (threads > 1) test_tensor_equal("loss", &t[i], &p->first[i]);
        test_tensor_free(&p->first[i]);
        test_tensor_free(&forward[i]);
        p->first[i] = t[i];
        free(got);
    }
}

static void run_loss_case(const void *row)
{
    struct loss_problem p = {.row = row};
    make_losses(&p);
    exact_losses(row, p.exact);
    plain_losses(row, p.plain);
    test_on_each_isa(check_losses, &p);
    for (int i = 0; i < LOSS_LINES; i++) {
        test_tensor_free(&p.t[i]);
        test_tensor_free(&p.first[i]);
        free(p.exact[i]), free(p.plain[i]);
    }
}

static void losses(void **state)
{
    (void)state;
    TEST_CASES("losses", loss_cases, run_loss_case);
}

struct slope {
    double z, gamma;
};

static double loss_at(void *context)
{
    struct slope *at = context;
    double unused;
    return exact_losses_element(at->z, at->gamma, &unused);
}

/* The oracle's gradient is that of the oracle's loss. */
static void oracle_is_consistent(void **state)
{
    (void)state;
    for (double z = -6; z < 6; z += 0.37) {
        struct slope at = {z, z < 0 ? 2 : 1.5};
        double slope;
        (void)exact_losses_element(z, at.gamma, &slope);
        test_gradient("focal loss", loss_at, &at, &at.z, &slope, 1);
    }
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches),
        cmocka_unit_test(losses),
        cmocka_unit_test(oracle_is_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
