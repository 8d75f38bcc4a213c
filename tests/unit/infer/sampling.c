/* infer/sampling.h: which candidates each rule leaves, that each is drawn as often as its probability says, every draw
 * against a plain reference, and the distributions against transformers' processors. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "backend/device.h"
#include "base/json.h"
#include "base/rng.h"
#include "infer/sampling.h"

enum { WORDS = 6, DRAWS = 20000, WORDS_MAX = 40, VOCAB = 5000 };

static struct tt_device *device;
static struct tt_stream *stream;

static int open_device(void **state)
{
    const struct tt_device_config config = {.kind = "cpu", .threads = 1};
    (void)state;
    if (tt_device_open(&config, &device) != TT_OK) return -1;
    return tt_stream_create(device, &stream) == TT_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    tt_stream_destroy(stream);
    tt_device_close(device);
    return 0;
}

static int choose(const float *logits, int count, const struct tt_sampling_options *options,
                  const int32_t *past, size_t past_count, double uniform)
{
    float copy[VOCAB];
    int32_t seen[(VOCAB + 31) / 32] = {0}, id;
    struct tt_sample_rule rule = tt_sampling_rule(options, uniform, 0);
    memcpy(copy, logits, (size_t)count * sizeof *copy);
    for (size_t i = 0; i < past_count; i++) seen[past[i] / 32] |= (int32_t)(UINT32_C(1) << past[i] % 32);
    const struct tt_sample_args args = {
        .logits_NV = tt_tensor_2d(copy, TT_F32, 1, count),
        .rules_N = tt_tensor_1d(&rule, TT_U8, sizeof rule),
        .seen_SW = tt_tensor_2d(seen, TT_I32, 1, tt_sample_seen_words(count)),
        .ids_N = tt_tensor_1d(&id, TT_I32, 1),
    };
    assert_int_equal(tt_sample(stream, &args), TT_OK);
    return id;
}

/* In descending order 3, 1, 4, 0, 5, 2. */
static const double probabilities[WORDS] = {0.1, 0.25, 0.0, 0.4, 0.2, 0.05};

static void count_draws(const struct tt_sampling_options *options, int counts[WORDS])
{
    struct tt_rng rng = tt_rng_make(7);
    memset(counts, 0, WORDS * sizeof *counts);
    for (uint64_t i = 0; i < DRAWS; i++) {
        float logits[WORDS];
        for (int v = 0; v < WORDS; v++)
            logits[v] = probabilities[v] > 0 ? (float)log(probabilities[v]) : -INFINITY;
        counts[choose(logits, WORDS, options, NULL, 0, tt_rng_uniform(rng, i))]++;
    }
}

/* The words of `kept` are drawn by their share of their sum, and no other is. */
static void check_kept(const struct tt_sampling_options *options, const int *kept, int kept_count)
{
    int counts[WORDS];
    double sum = 0;
    count_draws(options, counts);
    for (int i = 0; i < kept_count; i++) sum += probabilities[kept[i]];
    for (int v = 0; v < WORDS; v++) {
        double wanted = 0;
        for (int i = 0; i < kept_count; i++)
            if (kept[i] == v) wanted = probabilities[v] / sum;
        double got = (double)counts[v] / DRAWS;
        /* 5 standard deviations of a share of 20,000 draws; the draws are the same in every run. */
        if (fabs(got - wanted) > 5 * sqrt(wanted * (1 - wanted) / DRAWS))
            fail_msg("top_k %lld, top_p %g: word %d in %.4f of all draws, not %.4f",
                     (long long)options->top_k, options->top_p, v, got, wanted);
    }
}

static struct tt_sampling_options sampling(int top_k, double top_p)
{
    return (struct tt_sampling_options){.sample = true, .temperature = 1.0, .top_k = top_k, .top_p = top_p};
}

static const int order[] = {3, 1, 4, 0, 5};

static void top_p_keeps_the_shortest_prefix(void **state)
{
    /* Sums of the prefixes: 0.4, 0.65, 0.85, 0.95, 1. */
    static const struct {
        double top_p;
        int kept;
    } cases[] = {{1e-6, 1}, {0.39, 1}, {0.41, 2}, {0.64, 2}, {0.66, 3},
                 {0.84, 3}, {0.86, 4}, {0.94, 4}, {0.96, 5}, {1.0, 5}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_sampling_options options = sampling(0, cases[i].top_p);
        check_kept(&options, order, cases[i].kept);
    }
}

static void top_k_keeps_that_many(void **state)
{
    (void)state;
    for (int k = 1; k <= 5; k++) {
        struct tt_sampling_options options = sampling(k, 1.0);
        check_kept(&options, order, k);
    }
}

/* As transformers' warpers in their order: top_p is a share of what top_k left. */
static void top_p_counts_what_top_k_left(void **state)
{
    (void)state;
    struct tt_sampling_options options = sampling(2, 0.60); /* 0.4 / 0.65 = 0.615 */
    check_kept(&options, order, 1);
    options.top_p = 0.63;
    check_kept(&options, order, 2);
}

static void greedy_takes_the_lowest_of_the_largest(void **state)
{
    float logits[] = {1, 5, 2, 5};
    struct tt_sampling_options options = {.sample = false};
    (void)state;
    assert_int_equal(choose(logits, 4, &options, NULL, 0, 0.9), 1);
}

/* How many words come before `word`: larger logits, and equal ones of a lower number. */
static int place_of(const float *logits, int count, int word)
{
    int place = 0;
    for (int v = 0; v < count; v++)
        place += logits[v] > logits[word] || (logits[v] == logits[word] && v < word);
    return place;
}

/* The definition, word for word: softmax of logits / temperature over the top_k first; of these the first
 * until their sum reaches top_p; the draw u of [0, 1) falls on one of them. `margin`: how far u, and top_p, are from
 * another word. */
static int reference(const float *logits, int count, const struct tt_sampling_options *options, double u,
                     double *margin)
{
    double weights[WORDS_MAX], all = 0, kept_sum = 0, below = 0;
    int words[WORDS_MAX], kept = 0;
    int left = options->top_k > 0 && options->top_k < count ? (int)options->top_k : count;
    for (int v = 0; v < count; v++) words[place_of(logits, count, v)] = v;
    for (int i = 0; i < left; i++) {
        weights[i] = exp((double)logits[words[i]] / options->temperature);
        all += weights[i];
    }
    *margin = 1;
    do {
        kept_sum += weights[kept++];
        *margin = fmin(*margin, fabs(kept_sum / all - options->top_p));
    } while (kept < left && kept_sum / all < options->top_p);
    if (options->top_p == 1) *margin = 1;
    for (int i = 0; i < kept; i++) {
        below += weights[i] / kept_sum;
        *margin = fmin(*margin, fabs(u - below));
    }
    below = 0;
    for (int i = 0; i < kept; i++) {
        below += weights[i] / kept_sum;
        if (u < below) return words[i];
    }
    return words[kept - 1];
}

/* Logits of few values, so that many are equal, and some words that cannot be; every mixture of settings. No
 * top_p is the share of some words among at most 40 equal ones, where rounding would decide. */
static void every_draw_is_the_reference_s(void **state)
{
    static const double temperatures[] = {0.05, 0.7, 1.0, 2.5}, top_ps[] = {1e-3, 0.317, 0.553, 0.911, 1.0};
    static const int top_ks[] = {0, 1, 3, 17, WORDS_MAX, 1000};
    struct tt_rng values = tt_rng_make(11), draws = tt_rng_make(12);
    uint64_t at = 0;
    int compared = 0;
    (void)state;
    for (int round = 0; round < 60; round++) {
        float logits[WORDS_MAX];
        int count = 1 + (int)(tt_rng_u64(values, at++) % WORDS_MAX);
        for (int v = 0; v < count; v++) {
            double value = tt_rng_uniform(values, at++) * 12 - 6;
            logits[v] = (float)(round % 3 == 0 ? floor(value) : value);
            if (v > 0 && round % 4 == 3 && value < -3) logits[v] = -INFINITY;
        }
        for (int i = 0; i < 4 * 5 * 6; i++) {
            struct tt_sampling_options options = {.sample = true,
                                                  .temperature = temperatures[i % 4],
                                                  .top_p = top_ps[i / 4 % 5],
                                                  .top_k = top_ks[i / 20]};
            double margin;
            double uniform = tt_rng_uniform(draws, at++);
            int got = choose(logits, count, &options, NULL, 0, uniform);
            int wanted = reference(logits, count, &options, uniform, &margin);
            if (margin < 5e-6) continue; /* shares are rounded: 3e-6 of each (backend/ops/sample.h) */
            compared++;
            if (got != wanted)
                fail_msg("round %d, temperature %g, top_k %lld, top_p %g: word %d instead of %d", round,
                         options.temperature, (long long)options.top_k, options.top_p, got, wanted);
        }
    }
    assert_true(compared > 7000);
}

/* Pearson's chi-square of draws among many tokens, which takes more than the first sorted candidates. The limit has a
 * probability of about 1e-6; the draws are the same in every run. */
static void shares_of_many_tokens(void **state)
{
    enum { TOKENS = 300, MANY = 30000 };
    static float logits[TOKENS];
    static int counts[TOKENS];
    struct tt_rng rng = tt_rng_make(3);
    struct tt_sampling_options options = {.sample = true, .temperature = 1.3};
    double sum = 0, square = 0;
    (void)state;
    for (int v = 0; v < TOKENS; v++) {
        logits[v] = (float)tt_rng_normal(rng, (uint64_t)v);
        sum += exp((double)logits[v] / 1.3);
    }
    memset(counts, 0, sizeof counts);
    for (uint64_t i = 0; i < MANY; i++)
        counts[choose(logits, TOKENS, &options, NULL, 0, tt_rng_uniform(rng, TOKENS + i))]++;
    for (int v = 0; v < TOKENS; v++) {
        double wanted = MANY * exp((double)logits[v] / 1.3) / sum;
        square += (counts[v] - wanted) * (counts[v] - wanted) / wanted;
    }
    /* mean TOKENS - 1, deviation sqrt(2 (TOKENS - 1)) */
    double deviations = (square - (TOKENS - 1)) / sqrt(2.0 * (TOKENS - 1));
    if (fabs(deviations) > 5) fail_msg("chi-square is %.1f deviations off", deviations);
}

/* The likeliest of many with extreme values. Those between -1e-30 and 1e-30 are equal beside 7.25, so the lowest id
 * comes first. */
static void order_of_all_kinds_of_logits(void **state)
{
    static const float values[] = {-INFINITY, -3e38f, -1.0f, -1e-30f, -0.0f, 0.0f, 1e-30f, 0.5f, 1.0f, 7.25f};
    enum { KINDS = sizeof values / sizeof *values };
    (void)state;
    for (int kept = 1; kept <= KINDS; kept++) {
        struct tt_sampling_options options = {.sample = true, .top_k = kept, .temperature = 1000};
        /* The last of those kept, unless its share is 0. */
        int got = choose(values, KINDS, &options, NULL, 0, 1 - 1e-12);
        static const int last[] = {9, 8, 7, 3, 4, 5, 6, 2, 2, 2};
        if (got != last[kept - 1]) fail_msg("top_k %d: token %d", kept, got);
    }
}

static void a_penalty_counts_each_id_once(void **state)
{
    static const float logits[] = {2.0f, 3.0f, -1.0f, 2.4f};
    static const int32_t past[] = {1, 1, 1, 1, 2};
    struct tt_sampling_options options = {.repetition_penalty = 1.3};
    (void)state;
    assert_int_equal(choose(logits, 4, &options, past, 0, 0), 1);
    assert_int_equal(choose(logits, 4, &options, past, 5, 0), 3); /* 3 / 1.3 = 2.31 */
    options.repetition_penalty = 1.2;                             /* 2.5; 3 / 1.44 would be less than 2.4 */
    assert_int_equal(choose(logits, 4, &options, past, 5, 0), 1);
    options.repetition_penalty = 0.5; /* 6; the negative one -0.5 */
    assert_int_equal(choose(logits, 4, &options, past, 5, 0), 1);
    assert_int_equal(choose(logits, 4, &options, past + 4, 1, 0), 1);
}

static double number(const struct tt_json_value *settings, const char *name)
{
    const struct tt_json_value *value = tt_json_get(settings, name);
    return value == NULL ? 0.0 : tt_json_number(value);
}

/* Every kept token, in the middle and close to both ends of its share of [0, 1). */
static void check_case(const struct tt_json_value *item, size_t index)
{
    float logits[WORDS_MAX];
    int32_t past[WORDS_MAX];
    const struct tt_json_value *settings = tt_json_get(item, "settings"), *kept = tt_json_get(item, "kept");
    size_t past_count = tt_json_count(tt_json_get(item, "past"));
    int count = (int)tt_json_count(tt_json_get(item, "logits"));
    const struct tt_sampling_options options = {.sample = true,
                                                .temperature = number(settings, "temperature"),
                                                .top_k = (int64_t)number(settings, "top_k"),
                                                .top_p = number(settings, "top_p"),
                                                .min_p = number(settings, "min_p"),
                                                .repetition_penalty = number(settings, "repetition_penalty")};
    double below = 0;
    for (int v = 0; v < count; v++)
        logits[v] = (float)tt_json_number(tt_json_at(tt_json_get(item, "logits"), (size_t)v));
    for (size_t i = 0; i < past_count; i++)
        past[i] = (int32_t)tt_json_integer(tt_json_at(tt_json_get(item, "past"), i));
    for (size_t i = 0; i < tt_json_count(kept); i++) {
        const struct tt_json_value *pair = tt_json_at(kept, i);
        int wanted = (int)tt_json_integer(tt_json_at(pair, 0));
        double share = tt_json_number(tt_json_at(pair, 1)), rim = 2e-6;
        const double at[] = {below + share / 2, below + rim, below + share - rim};
        for (int k = 0; k < (share > 3 * rim ? 3 : 1) && share > 1e-9; k++) {
            int got = choose(logits, count, &options, past, past_count, at[k]);
            if (got != wanted)
                fail_msg("case %zu, draw %.9f: token %d instead of %d", index, at[k], got, wanted);
        }
        below += share;
    }
}

static void distributions_of_transformers(void **state)
{
    struct tt_json json = {0};
    (void)state;
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/golden/sampling/processors.json", 1 << 20, &json), TT_OK);
    const struct tt_json_value *cases = tt_json_get(json.root, "cases");
    for (size_t i = 0; i < tt_json_count(cases); i++) check_case(tt_json_at(cases, i), i);
    assert_int_equal(tt_json_count(cases), 28);
    tt_json_deinit(&json);
}

static void wrong_values_are_refused(void **state)
{
    static const struct tt_sampling_options wrong[] = {
        {.temperature = -1},
        {.temperature = INFINITY},
        {.temperature = NAN},
        {.top_k = -1},
        {.top_p = -0.1},
        {.top_p = 1.1},
        {.top_p = NAN},
        {.min_p = -0.1},
        {.min_p = 1.1},
        {.repetition_penalty = -1},
        {.repetition_penalty = NAN},
        {.repetition_penalty = INFINITY},
    };
    static const struct tt_sampling_options right = {.top_p = 1, .min_p = 1, .repetition_penalty = 1};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(tt_sampling_check(&wrong[i]), TT_ERR_USAGE);
    assert_int_equal(tt_sampling_check(&right), TT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_p_keeps_the_shortest_prefix),
        cmocka_unit_test(top_k_keeps_that_many),
        cmocka_unit_test(top_p_counts_what_top_k_left),
        cmocka_unit_test(every_draw_is_the_reference_s),
        cmocka_unit_test(greedy_takes_the_lowest_of_the_largest),
        cmocka_unit_test(shares_of_many_tokens),
        cmocka_unit_test(order_of_all_kinds_of_logits),
        cmocka_unit_test(a_penalty_counts_each_id_once),
        cmocka_unit_test(distributions_of_transformers),
        cmocka_unit_test(wrong_values_are_refused),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
