/* infer/sampling.h: which candidates top_k and top_p leave, that each is drawn as often as its probability
 * says, and every draw against a plain reference. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "infer/sampling.h"

enum { WORDS = 6, DRAWS = 20000, WORDS_MAX = 40 };

/* In descending order 3, 1, 4, 0, 5, 2. */
static const double probabilities[WORDS] = {0.1, 0.25, 0.0, 0.4, 0.2, 0.05};

static void count_draws(const struct tt_generate_options *options, int counts[WORDS])
{
    struct tt_rng rng = tt_rng_make(7);
    memset(counts, 0, WORDS * sizeof *counts);
    for (uint64_t i = 0; i < DRAWS; i++) {
        float logits[WORDS];
        int32_t order[WORDS];
        for (int v = 0; v < WORDS; v++)
            logits[v] = probabilities[v] > 0 ? (float)log(probabilities[v]) : -INFINITY;
        counts[tt_sample_token(logits, WORDS, options, rng, i, order)]++;
    }
}

/* The words of `kept` are drawn by their share of their sum, and no other is. */
static void check_kept(const struct tt_generate_options *options, const int *kept, int kept_count)
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

static struct tt_generate_options sampling(int top_k, double top_p)
{
    return (struct tt_generate_options){.sample = true, .temperature = 1.0, .top_k = top_k, .top_p = top_p};
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
        struct tt_generate_options options = sampling(0, cases[i].top_p);
        check_kept(&options, order, cases[i].kept);
    }
}

static void top_k_keeps_that_many(void **state)
{
    (void)state;
    for (int k = 1; k <= 5; k++) {
        struct tt_generate_options options = sampling(k, 1.0);
        check_kept(&options, order, k);
    }
}

/* As transformers' warpers in their order: top_p is a share of what top_k left. */
static void top_p_counts_what_top_k_left(void **state)
{
    (void)state;
    struct tt_generate_options options = sampling(2, 0.60); /* 0.4 / 0.65 = 0.615 */
    check_kept(&options, order, 1);
    options.top_p = 0.63;
    check_kept(&options, order, 2);
}

static void greedy_takes_the_lowest_of_the_largest(void **state)
{
    float logits[] = {1, 5, 2, 5};
    int32_t scratch[4];
    struct tt_generate_options options = {.sample = false};
    (void)state;
    assert_int_equal(tt_sample_token(logits, 4, &options, tt_rng_make(1), 0, scratch), 1);
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
 * until their sum reaches top_p; the draw u of [0, 1) falls on one of them. `margin`: how far u is from
 * another word. */
static int reference(const float *logits, int count, const struct tt_generate_options *options, double u,
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
    do kept_sum += weights[kept++];
    while (kept < left && kept_sum / all < options->top_p);
    *margin = 1;
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
        float logits[WORDS_MAX], copy[WORDS_MAX];
        int32_t scratch[WORDS_MAX];
        int count = 1 + (int)(tt_rng_u64(values, at++) % WORDS_MAX);
        for (int v = 0; v < count; v++) {
            double value = tt_rng_uniform(values, at++) * 12 - 6;
            logits[v] = (float)(round % 3 == 0 ? floor(value) : value);
            if (v > 0 && round % 4 == 3 && value < -3) logits[v] = -INFINITY;
        }
        for (int i = 0; i < 4 * 5 * 6; i++) {
            struct tt_generate_options options = {.sample = true,
                                                  .temperature = temperatures[i % 4],
                                                  .top_p = top_ps[i / 4 % 5],
                                                  .top_k = top_ks[i / 20]};
            double margin;
            memcpy(copy, logits, sizeof copy);
            int got = tt_sample_token(copy, count, &options, draws, at, scratch);
            int wanted = reference(logits, count, &options, tt_rng_uniform(draws, at++), &margin);
            if (margin < 1e-12) continue; /* rounding may decide */
            compared++;
            if (got != wanted)
                fail_msg("round %d, temperature %g, top_k %lld, top_p %g: word %d instead of %d", round,
                         options.temperature, (long long)options.top_k, options.top_p, got, wanted);
        }
    }
    assert_true(compared > 7000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_p_keeps_the_shortest_prefix),
        cmocka_unit_test(top_k_keeps_that_many),
        cmocka_unit_test(top_p_counts_what_top_k_left),
        cmocka_unit_test(every_draw_is_the_reference_s),
        cmocka_unit_test(greedy_takes_the_lowest_of_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
