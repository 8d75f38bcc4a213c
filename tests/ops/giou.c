/* The generalized intersection over union of a detector's boxes as a loss, and its gradient. */
#include <math.h>
#include <stdlib.h>

#include "backend/ops/detection.h"
#include "ops/isa.h"

enum { IMAGES = 2, ANCHORS = 300, TRUTHS = 12 };
enum { DELTAS, ANCHORS_LINE, MATCH, TRUTHS_LINE, FOREGROUND, SUMS, LINES };

/* d: deltas; a: anchor; t: truth; g: the gradient. */
#define DEFINE_GIOU(name, real, real_exp, real_min, real_max)                                                \
    static real name(const real d[4], const real a[4], const real t[4], real g[4])                           \
    {                                                                                                        \
        real low[2], high[2], inner[2], outer[2], side[2], to_low[2], to_high[2];                            \
        const real eps = (real)1e-7, most = (real)4.135166556742356;                                         \
        for (int i = 0; i < 2; i++) {                                                                        \
            real own = a[2 + i] - a[i], middle = d[i] * own + a[i] + own / 2;                                \
            side[i] = real_exp(real_min(d[2 + i], most)) * own;                                              \
            low[i] = middle - side[i] / 2;                                                                   \
            high[i] = middle + side[i] / 2;                                                                  \
            inner[i] = real_min(high[i], t[2 + i]) - real_max(low[i], t[i]);                                 \
            outer[i] = real_max(high[i], t[2 + i]) - real_min(low[i], t[i]);                                 \
        }                                                                                                    \
        bool meets = inner[0] > 0 && inner[1] > 0;                                                           \
        real shared = meets ? inner[0] * inner[1] : 0, hull = outer[0] * outer[1];                           \
        real both = (high[0] - low[0]) * (high[1] - low[1]) + (t[2] - t[0]) * (t[3] - t[1]) - shared;        \
        real by_both = shared / ((both + eps) * (both + eps)) - 1 / (hull + eps);                            \
        real by_shared = meets ? -1 / (both + eps) - by_both : 0;                                            \
        real by_hull = 1 / (hull + eps) - (hull - both) / ((hull + eps) * (hull + eps));                     \
        for (int i = 0; i < 2; i++) {                                                                        \
            int j = 1 - i;                                                                                   \
            to_low[i] = -by_both * (high[j] - low[j]);                                                       \
            to_high[i] = by_both * (high[j] - low[j]);                                                       \
            if (low[i] > t[i]) to_low[i] -= by_shared * inner[j];                                            \
            if (low[i] < t[i]) to_low[i] -= by_hull * outer[j];                                              \
            if (high[i] < t[2 + i]) to_high[i] += by_shared * inner[j];                                      \
            if (high[i] > t[2 + i]) to_high[i] += by_hull * outer[j];                                        \
            g[i] = (a[2 + i] - a[i]) * (to_low[i] + to_high[i]);                                             \
            g[2 + i] = d[2 + i] <= most ? side[i] / 2 * (to_high[i] - to_low[i]) : 0;                        \
        }                                                                                                    \
        return 1 - shared / (both + eps) + (hull - both) / (hull + eps);                                     \
    }
DEFINE_GIOU(exact_giou, double, exp, fmin, fmax)
DEFINE_GIOU(plain_giou, float, expf, fminf, fmaxf)

struct problem {
    tt_dtype dtype;
    int64_t each; /* anchors of a row of deltas */
    struct test_tensor t[LINES], first;
};

static void make_boxes(uint64_t seed, int64_t count, double least, struct test_tensor *to)
{
    struct test_tensor drawn = test_tensor_random(TT_F32, count, 4, TEST_UNUSED, 0, seed, 20);
    double *values = test_tensor_values(&drawn);
    for (int64_t i = 0; i < count; i++)
        for (int axis = 0; axis < 2; axis++)
            values[4 * i + 2 + axis] = values[4 * i + axis] + least + fabs(values[4 * i + 2 + axis]);
    *to = test_tensor_make(TT_F32, count, 4, TEST_UNUSED, 0);
    test_tensor_set(to, values);
    test_tensor_free(&drawn);
    free(values);
}

static void make(struct problem *p)
{
    double match[IMAGES * ANCHORS], foreground[IMAGES] = {0};
    p->t[DELTAS] =
        test_tensor_random(p->dtype, IMAGES * ANCHORS / p->each, 4 * p->each, TEST_UNUSED, 3, 1, 1);
    make_boxes(2, ANCHORS, 4, &p->t[ANCHORS_LINE]);
    make_boxes(3, TRUTHS, 1, &p->t[TRUTHS_LINE]);
    p->t[MATCH] = test_tensor_make(TT_I32, IMAGES, ANCHORS, TEST_UNUSED, 5);
    p->t[FOREGROUND] = test_tensor_make(TT_I32, IMAGES, TEST_UNUSED, TEST_UNUSED, 0);
    p->t[SUMS] = test_tensor_random(TT_F64, 1, TEST_UNUSED, TEST_UNUSED, 0, 4, 1);
    double *deltas = test_tensor_values(&p->t[DELTAS]);
    deltas[2] = 9; /* beyond the clamp of a side */
    deltas[7] = 5;
    test_tensor_set(&p->t[DELTAS], deltas);
    for (int64_t i = 0; i < IMAGES * ANCHORS; i++) {
        match[i] = i % 5 == 3 ? TT_MATCH_BACKGROUND : i % 7 == 4 ? TT_MATCH_IGNORED : (double)(i % TRUTHS);
        foreground[i / ANCHORS] += match[i] >= 0;
    }
    test_tensor_set(&p->t[MATCH], match);
    test_tensor_set(&p->t[FOREGROUND], foreground);
    free(deltas);
}

static void run(struct tt_stream *stream, struct test_tensor *t, int64_t each, bool gradient)
{
    test_ok(tt_box_loss(stream, &(struct tt_box_loss_args){.kind = TT_BOX_GIOU,
                                                           .deltas_P4 = t[DELTAS].view,
                                                           .row_anchors = each,
                                                           .anchors_A4 = t[ANCHORS_LINE].view,
                                                           .match_NA = t[MATCH].view,
                                                           .boxes_M4 = t[TRUTHS_LINE].view,
                                                           .foreground_N = t[FOREGROUND].view,
                                                           .weight = 0.25f,
                                                           .gradient = gradient,
                                                           .sums = t[SUMS].view}));
}

/* Loss and gradients from the values that the tensors hold. */
static void oracle(const struct problem *p, double *exact, double *plain, double *exact_sum,
                   double *plain_sum)
{
    double *deltas = test_tensor_values(&p->t[DELTAS]), *anchors = test_tensor_values(&p->t[ANCHORS_LINE]);
    double *truths = test_tensor_values(&p->t[TRUTHS_LINE]), *match = test_tensor_values(&p->t[MATCH]);
    double *foreground = test_tensor_values(&p->t[FOREGROUND]);
    for (int64_t i = 0; i < IMAGES * ANCHORS; i++) {
        if (match[i] < 0) continue;
        const double *a = anchors + i % ANCHORS * 4, *t = truths + (int64_t)match[i] * 4;
        double w = 0.25 / fmax(1, foreground[i / ANCHORS]), g[4];
        float d4[4], a4[4], t4[4], g4[4];
        for (int k = 0; k < 4; k++) {
            d4[k] = (float)deltas[4 * i + k];
            a4[k] = (float)a[k];
            t4[k] = (float)t[k];
        }
        *exact_sum += w * exact_giou(deltas + 4 * i, a, t, g);
        *plain_sum += (float)w * plain_giou(d4, a4, t4, g4);
        for (int k = 0; k < 4; k++) {
            exact[4 * i + k] = w * g[k];
            plain[4 * i + k] = test_round((float)w * g4[k], p->dtype);
        }
    }
    free(deltas), free(anchors), free(truths), free(match), free(foreground);
}

static void check(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor t[LINES], forward[LINES];
    double *exact = test_doubles(4 * IMAGES * ANCHORS), *plain = test_doubles(4 * IMAGES * ANCHORS);
    double *start = test_tensor_values(&p->t[SUMS]), exact_sum = *start, plain_sum = *start;
    for (int i = 0; i < LINES; i++) {
        t[i] = test_tensor_copy(&p->t[i]);
        forward[i] = test_tensor_copy(&p->t[i]);
    }
    test_array_to_device(device, t, LINES);
    test_array_to_device(device, forward, LINES);
    run(device->stream, t, p->each, true);
    run(device->stream, forward, p->each, false);
    test_array_to_host(device, t, LINES);
    test_array_to_host(device, forward, LINES);
    test_tensor_equal("sums without gradient", &forward[SUMS], &t[SUMS]);
    test_tensor_equal("deltas without gradient", &forward[DELTAS], &p->t[DELTAS]);
    oracle(p, exact, plain, &exact_sum, &plain_sum);
    double *got = test_tensor_values(&t[DELTAS]), *sum = test_tensor_values(&t[SUMS]);
    test_close("gradient", got, exact, plain, (int64_t)4 * IMAGES * ANCHORS, p->dtype, 3);
    test_close("loss", sum, &exact_sum, &plain_sum, 1, TT_F32, 3);
    if (threads > 1) test_tensor_equal("gradient of several threads", &t[DELTAS], &p->first);
    test_tensor_free(&p->first);
    p->first = test_tensor_copy(&t[DELTAS]);
    for (int i = 0; i < LINES; i++) {
        test_tensor_check_gaps("giou", &t[i]);
        test_tensor_free(&t[i]);
        test_tensor_free(&forward[i]);
    }
    free(got), free(sum), free(exact), free(plain), free(start);
}

static void losses(void **state)
{
    static const struct problem problems[] = {{.dtype = TT_F32, .each = 1},
                                              {.dtype = TT_BF16, .each = 1},
                                              {.dtype = TT_F32, .each = 3},
                                              {.dtype = TT_BF16, .each = 3}};
    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        struct problem p = problems[i];
        make(&p);
        test_on_each_isa(check, &p);
        for (int l = 0; l < LINES; l++) test_tensor_free(&p.t[l]);
        test_tensor_free(&p.first);
    }
}

struct place {
    double d[4], a[4], t[4];
};

static double loss_at(void *context)
{
    struct place *place = context;
    double unused[4];
    return exact_giou(place->d, place->a, place->t, unused);
}

/* The oracle's gradient is that of the oracle's loss: apart, within each other, and crossing. */
static void oracle_is_consistent(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        struct place place = {{sin(i), cos(2 * i), 0.7 * sin(3 * i), 0.7 * cos(5 * i)},
                              {0, 0, 10 + i % 7, 8 + i % 5},
                              {i % 11 - 3.3, i % 13 - 4.7, i % 11 + 7.1, i % 13 + 3.9}};
        double gradient[4];
        (void)exact_giou(place.d, place.a, place.t, gradient);
        test_gradient("giou", loss_at, &place, place.d, gradient, 4);
    }
    /* A box that is its truth has a loss of 0. */
    const double d[4] = {0}, box[4] = {1, 2, 11, 14};
    double gradient[4];
    assert_true(fabs(exact_giou(d, box, box, gradient)) < 1e-8);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses),
        cmocka_unit_test(oracle_is_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
