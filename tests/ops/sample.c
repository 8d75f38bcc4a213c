/* The op sample: every device chooses the token of a plain reference, which sorts all tokens and adds integers, bit
 * for bit; the integers are the shares that softmax gives; seen ids; rows of NaN and infinities; wrong shapes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops/sample.h"
#include "base/rng.h"
#include "ops/isa.h"

enum { ROWS_MAX = 12, RULE = sizeof(struct tt_sample_rule) };

struct candidate {
    int32_t id, distance;
};

static int compare(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->distance != y->distance) return x->distance < y->distance ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int64_t largest_of(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t v = 1; v < vocab; v++)
        if (logits[v] > logits[best] || (isnan(logits[best]) && logits[v] > -INFINITY)) best = v;
    return best;
}

/* The definition: all tokens in order, the prefixes of the rules one by one, and the draw. */
static int32_t reference(const float *logits, int64_t vocab, const struct tt_sample_settings *settings)
{
    struct tt_sample_rule rule = tt_sample_rule_make(settings);
    int64_t best = largest_of(logits, vocab), count = 0, kept = 0;
    if (!settings->draws || !isfinite(logits[best])) return (int32_t)best;
    struct candidate *all = calloc((size_t)vocab, sizeof *all);
    for (int64_t v = 0; v < vocab; v++) {
        int32_t distance = tt_sample_distance(logits[v], logits[best], rule.steps_per_logit);
        if (distance >= 0) all[count++] = (struct candidate){(int32_t)v, distance};
    }
    qsort(all, (size_t)count, sizeof *all, compare);
    if (settings->top_k > 0 && settings->top_k < count) count = settings->top_k;
    uint64_t sum = 0, kept_sum = 0, at = 0;
    for (int64_t i = 0; i < count; i++) sum += tt_sample_weight(all[i].distance);
    double least = (settings->top_p > 0 ? settings->top_p : 1) * (double)sum;
    double likely = settings->min_p * 0x1p40;
    for (; kept < count && (kept == 0 || (double)kept_sum < least); kept++) {
        if ((double)tt_sample_weight(all[kept].distance) < likely) break;
        kept_sum += tt_sample_weight(all[kept].distance);
    }
    uint64_t place = (uint64_t)(settings->uniform * (double)kept_sum);
    if (place >= kept_sum) place = kept_sum - 1;
    int64_t i = 0;
    for (; (at += tt_sample_weight(all[i].distance)) <= place; i++)
        ;
    int32_t id = all[i].id;
    free(all);
    return id;
}

/* Runs the op over the rows of `logits` [rows, vocab]; seen_SW and masks_SW may be NULL. Checks that nothing else is
 * written. */
static void run_masked(struct test_device *device, const struct test_tensor *logits,
                       const struct tt_sample_settings *settings, const struct test_tensor *seen,
                       const struct test_tensor *masks, int32_t *ids, float *after)
{
    int64_t rows = logits->view.dims[0], vocab = logits->view.dims[1];
    struct test_tensor copy = test_tensor_copy(logits), own_seen = {0}, own_masks = {0};
    struct test_tensor rules = test_tensor_make(TT_F64, rows * RULE / 8, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_tensor out = test_tensor_make(TT_I32, rows, TEST_UNUSED, TEST_UNUSED, 0);
    for (int64_t n = 0; n < rows; n++) {
        struct tt_sample_rule rule = tt_sample_rule_make(&settings[n]);
        memcpy((char *)rules.view.data + n * RULE, &rule, RULE);
    }
    test_tensor_poison(&out);
    if (seen != NULL) own_seen = *seen;
    if (masks != NULL) own_masks = test_tensor_copy(masks);
    TEST_TO_DEVICE(device, &copy, &rules, &out);
    if (seen != NULL) TEST_TO_DEVICE(device, &own_seen);
    if (masks != NULL) TEST_TO_DEVICE(device, &own_masks);
    struct tt_sample_args args = {.logits_NV = copy.view,
                                  .rules_N = tt_tensor_1d(rules.view.data, TT_U8, rows * RULE),
                                  .seen_SW = own_seen.view,
                                  .masks_SW = own_masks.view,
                                  .ids_N = out.view};
    test_ok(tt_sample(device->stream, &args));
    TEST_TO_HOST(device, &copy, &rules, &out);
    if (seen != NULL) TEST_TO_HOST(device, &own_seen);
    if (masks != NULL) TEST_TO_HOST(device, &own_masks);
    memcpy(ids, out.view.data, (size_t)rows * sizeof *ids);
    if (after != NULL)
        for (int64_t n = 0; n < rows; n++)
            memcpy(after + n * vocab, (float *)copy.view.data + n * copy.view.strides[0],
                   (size_t)vocab * sizeof *after);
    test_tensor_check_gaps("logits", &copy);
    test_tensor_check_gaps("ids", &out);
    test_tensor_free(&copy);
    test_tensor_free(&rules);
    test_tensor_free(&out);
    if (masks != NULL) test_tensor_free(&own_masks);
}

static void run_op(struct test_device *device, const struct test_tensor *logits,
                   const struct tt_sample_settings *settings, const struct test_tensor *seen, int32_t *ids,
                   float *after)
{
    run_masked(device, logits, settings, seen, NULL, ids, after);
}

static struct tt_sample_settings mixed(uint64_t i, double uniform)
{
    static const double temperatures[] = {0.05, 0.7, 1.0, 2.5, 100},
                        top_ps[] = {0, 1e-3, 0.35, 0.9, 0.999, 1.0};
    static const double min_ps[] = {0, 0, 0.02, 0.5, 1};
    static const int64_t top_ks[] = {0, 1, 3, 50, 1000, 1 << 30};
    return (struct tt_sample_settings){.draws = i % 11 != 0,
                                       .temperature = temperatures[i % 5],
                                       .top_p = top_ps[i / 5 % 6],
                                       .min_p = min_ps[i / 7 % 5],
                                       .top_k = top_ks[i / 3 % 6],
                                       .uniform = uniform,
                                       .seen_row = -1};
}

/* Logits like those of models, many equal ones, steep and flat ones, and some that cannot be. */
static void fill(struct test_tensor *logits, uint64_t kind)
{
    float *data = logits->view.data;
    int64_t vocab = logits->view.dims[1];
    struct tt_rng rng = tt_rng_make(40 + kind);
    for (int64_t n = 0; n < logits->view.dims[0]; n++)
        for (int64_t v = 0; v < vocab; v++) {
            double value = tt_rng_normal(rng, (uint64_t)(n * vocab + v)) * (n % 3 == 2 ? 12 : 2.5);
            if ((n + (int64_t)kind) % 4 == 1) value = floor(value);
            if (n % 5 == 3 && value < 0) value = -INFINITY;
            if (n % 6 == 4 && v % 17 == 0) value = NAN;
            if (n % 7 == 5) value *= 1e-6;
            data[n * logits->view.strides[0] + v] = (float)value;
        }
}

static void check_vocab(struct test_device *device, int64_t vocab, int rounds)
{
    struct tt_rng draws = tt_rng_make((uint64_t)vocab);
    struct test_tensor logits = test_tensor_make(TT_F32, ROWS_MAX, vocab, TEST_UNUSED, vocab % 3);
    int32_t ids[ROWS_MAX];
    for (int round = 0; round < rounds; round++) {
        struct tt_sample_settings settings[ROWS_MAX];
        fill(&logits, (uint64_t)round);
        for (uint64_t n = 0; n < ROWS_MAX; n++) {
            uint64_t i = (uint64_t)round * ROWS_MAX + n;
            settings[n] = mixed(i, i % 13 == 12 ? 1 - 0x1p-53 : tt_rng_uniform(draws, i));
        }
        run_op(device, &logits, settings, NULL, ids, NULL);
        for (int n = 0; n < ROWS_MAX; n++) {
            const float *row = (float *)logits.view.data + n * logits.view.strides[0];
            int32_t wanted = reference(row, vocab, &settings[n]);
            if (ids[n] != wanted)
                fail_msg("vocabulary %lld, round %d, row %d: token %d instead of %d", (long long)vocab, round,
                         n, ids[n], wanted);
        }
    }
    test_tensor_free(&logits);
}

static void check_run(struct test_device *device, int threads, void *context)
{
    static const int64_t vocabs[] = {1, 2, 31, 1000, 1023, 1025, 9000, 49152};
    (void)context;
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++)
        check_vocab(device, vocabs[i], vocabs[i] > 5000 ? 4 : 40);
    if (test_sizes_wanted() && threads == 1) check_vocab(device, 151936, 6);
}

static void every_device_chooses_the_reference_s(void **state)
{
    (void)state;
    test_on_each_isa(check_run, NULL);
}

static void weights_are_powers_of_two(void **state)
{
    uint64_t last = UINT64_MAX;
    (void)state;
    assert_int_equal(tt_sample_weight(0), UINT64_C(1) << 40);
    assert_int_equal(tt_sample_weight(TT_SAMPLE_DISTANCE_MAX), 1);
    assert_int_equal(tt_sample_weight(TT_SAMPLE_DISTANCE_MAX + 1), 0);
    for (int32_t d = 0; d <= TT_SAMPLE_DISTANCE_MAX; d += d < 1 << 19 ? 1 : 509) {
        uint64_t weight = tt_sample_weight(d);
        double exact = exp2(40 - (double)d / (1 << TT_SAMPLE_STEP_BITS));
        if (fabs((double)weight - exact) > 7e-9 * exact + 1 || weight > last)
            fail_msg("distance %d: weight %.0f, not %.3f", d, (double)weight, exact);
        last = weight;
    }
}

static void distances_are_logarithms(void **state)
{
    static const double temperatures[] = {0.1, 1, 1.7, 30};
    struct tt_rng rng = tt_rng_make(5);
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        double temperature = temperatures[i % 4];
        struct tt_sample_rule rule = tt_sample_rule_make(
            &(struct tt_sample_settings){.draws = true, .temperature = temperature, .seen_row = -1});
        float top = (float)(tt_rng_uniform(rng, 2 * i) * 30 - 10);
        float logit = (float)(top - tt_rng_uniform(rng, 2 * i + 1) * 35 * temperature);
        double steps = ((double)top - (double)logit) / temperature * 1.4426950408889634 * (1 << 18);
        int32_t distance = tt_sample_distance(logit, top, rule.steps_per_logit);
        if (steps > TT_SAMPLE_DISTANCE_MAX + 4) {
            assert_int_equal(distance, -1);
        } else if (steps < TT_SAMPLE_DISTANCE_MAX - 4) {
            /* half a step, and the rounding of floats: a difference, a factor, a product */
            double allowed = 0.501 + steps * 0x1.8p-23;
            if (fabs(distance - steps) > allowed) fail_msg("distance %d, not %.3f", distance, steps);
        }
    }
}

/* The bit of the chosen id is set, logits of seen ids change once, and only in rows that have a penalty. */
static void check_seen(struct test_device *device, int threads, void *context)
{
    enum { VOCAB = 70, ROWS = 4, WORDS = (VOCAB + 31) / 32 };
    struct test_tensor logits = test_tensor_make(TT_F32, ROWS, VOCAB, TEST_UNUSED, 1);
    struct test_tensor seen = test_tensor_make(TT_I32, ROWS + 1, WORDS, TEST_UNUSED, 0);
    struct tt_sample_settings settings[ROWS];
    uint32_t *bits = seen.view.data;
    int32_t ids[ROWS];
    float after[ROWS * VOCAB];
    (void)threads;
    (void)context;
    for (int n = 0; n < ROWS; n++) {
        float *row = (float *)logits.view.data + n * logits.view.strides[0];
        settings[n] = (struct tt_sample_settings){.penalty = n == 1 ? 0 : 1.5, .seen_row = 3 - n};
        for (int v = 0; v < VOCAB; v++) row[v] = (float)(v % 7) - 3;
        row[69] = 5, row[33] = 4;
        bits[(3 - n) * WORDS + 2] = 1u << (69 - 64); /* 5 / 1.5 is less than 4 */
        bits[(3 - n) * WORDS] = 1;                   /* -3 */
    }
    bits[4 * WORDS] = 0x1234;
    for (int step = 0; step < 2; step++) {
        run_op(device, &logits, settings, &seen, ids, after);
        for (int n = 0; n < ROWS; n++) {
            /* first 33; then it is seen too: 4 / 1.5 is less than 5 / 1.5 */
            assert_int_equal(ids[n], n == 1 || step == 1 ? 69 : 33);
            assert_true(after[n * VOCAB] == (n == 1 ? -3.0f : -4.5f));
            assert_true(after[n * VOCAB + 69] == (n == 1 ? 5.0f : (float)(5 / 1.5)));
            assert_true(after[n * VOCAB + 34] == 3.0f);
            assert_int_equal(bits[(3 - n) * WORDS + 1], n == 1 ? 0 : 2);
            assert_int_equal(bits[(3 - n) * WORDS + 2], 32);
        }
    }
    assert_int_equal(bits[4 * WORDS], 0x1234);
    test_tensor_free(&logits);
    test_tensor_free(&seen);
}

static void a_penalty_counts_what_was_seen(void **state)
{
    (void)state;
    test_on_each_isa(check_seen, NULL);
}

/* A row with a mask chooses as the reference does from logits that are -infinity where its bit is 0; rows share
 * masks, and a penalty counts beside one. */
static void check_masks(struct test_device *device, int threads, void *context)
{
    enum { VOCAB = 1000, WORDS = (VOCAB + 31) / 32, MASKS = 3, PENALIZED = 5 };
    struct test_tensor logits = test_tensor_make(TT_F32, ROWS_MAX, VOCAB, TEST_UNUSED, 1);
    struct test_tensor masks = test_tensor_make(TT_I32, MASKS, WORDS, TEST_UNUSED, 2);
    struct test_tensor seen = test_tensor_make(TT_I32, 1, WORDS, TEST_UNUSED, 0);
    struct tt_sample_settings settings[ROWS_MAX];
    struct tt_rng rng = tt_rng_make(77);
    int32_t ids[ROWS_MAX];
    static float after[ROWS_MAX * VOCAB];
    (void)threads;
    (void)context;
    for (int round = 0; round < 8; round++) {
        fill(&logits, (uint64_t)round);
        memset(seen.view.data, 0, WORDS * sizeof(uint32_t));
        ((uint32_t *)seen.view.data)[1] = 0xffff;
        for (int m = 0; m < MASKS; m++)
            for (int w = 0; w < WORDS; w++) {
                uint32_t bits = (uint32_t)tt_rng_u64(rng, (uint64_t)((round * MASKS + m) * WORDS + w));
                if (m == 1) bits = w == 9 ? 1u << round : 0; /* one token alone */
                ((uint32_t *)masks.view.data)[m * masks.view.strides[0] + w] = bits;
            }
        for (int n = 0; n < ROWS_MAX; n++) {
            settings[n] =
                mixed((uint64_t)(round * ROWS_MAX + n), tt_rng_uniform(rng, (uint64_t)(n + 100000)));
            settings[n].mask = n % (MASKS + 1);
        }
        settings[PENALIZED].penalty = 1.5;
        settings[PENALIZED].seen_row = 0;
        run_masked(device, &logits, settings, &seen, &masks, ids, after);
        for (int n = 0; n < ROWS_MAX; n++) {
            float *row = (float *)logits.view.data + n * logits.view.strides[0];
            const uint32_t *mask =
                (uint32_t *)masks.view.data +
                (settings[n].mask - 1) * (settings[n].mask > 0 ? masks.view.strides[0] : 0);
            for (int v = 0; v < VOCAB; v++) {
                if (settings[n].mask > 0 && (mask[v / 32] >> v % 32 & 1) == 0) row[v] = -INFINITY;
                if (n == PENALIZED && v >= 32 && v < 48) row[v] = tt_sample_penalized(row[v], 1.5);
                assert_true(after[n * VOCAB + v] == row[v] || (isnan(row[v]) && isnan(after[n * VOCAB + v])));
            }
            assert_int_equal(ids[n], reference(row, VOCAB, &settings[n]));
        }
    }
    test_tensor_free(&logits);
    test_tensor_free(&masks);
    test_tensor_free(&seen);
}

static void a_mask_leaves_what_may_come(void **state)
{
    (void)state;
    test_on_each_isa(check_masks, NULL);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct test_device device;
    float logits[8];
    struct tt_sample_rule rules[2];
    int32_t ids[2], seen[4];
    test_device_open(&device, "cpu", 1);
    const struct tt_sample_args right = {.logits_NV = tt_tensor_2d(logits, TT_F32, 2, 4),
                                         .rules_N = tt_tensor_1d(rules, TT_U8, 2 * RULE),
                                         .ids_N = tt_tensor_1d(ids, TT_I32, 2)};
    struct tt_sample_args args = right;
    args.rules_N = tt_tensor_1d(rules, TT_U8, RULE);
    test_refused(tt_sample(device.stream, &args), TT_ERR_INTERNAL, "rules");
    args = right;
    args.ids_N = tt_tensor_1d(ids, TT_I32, 1);
    test_refused(tt_sample(device.stream, &args), TT_ERR_INTERNAL, "ids");
    args = right;
    args.seen_SW = tt_tensor_2d(seen, TT_I32, 2, 2);
    test_refused(tt_sample(device.stream, &args), TT_ERR_INTERNAL, "seen");
    args = right;
    args.masks_SW = tt_tensor_2d(seen, TT_I32, 2, 2);
    test_refused(tt_sample(device.stream, &args), TT_ERR_INTERNAL, "masks");
    args = right;
    args.logits_NV = tt_tensor_2d(logits, TT_BF16, 2, 4);
    test_refused(tt_sample(device.stream, &args), TT_ERR_UNSUPPORTED, "logits");
    test_device_close(&device);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_device_chooses_the_reference_s),
        cmocka_unit_test(weights_are_powers_of_two),
        cmocka_unit_test(distances_are_logarithms),
        cmocka_unit_test(a_penalty_counts_what_was_seen),
        cmocka_unit_test(a_mask_leaves_what_may_come),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
