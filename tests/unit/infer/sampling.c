/* infer/sampling.h: which candidates top_k and top_p leave, and that each is drawn as often as its
 * probability says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "infer/sampling.h"

enum { WORDS = 6, DRAWS = 20000 };

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_p_keeps_the_shortest_prefix),
        cmocka_unit_test(top_k_keeps_that_many),
        cmocka_unit_test(top_p_counts_what_top_k_left),
        cmocka_unit_test(greedy_takes_the_lowest_of_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
