/* run/divergence.h: losses that rise are found at the step at which their mean does, and usual ones never. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "run/divergence.h"

static const double guess = 7.0;

/* Records `count` steps that go from one loss to another, with noise of +-share of it. */
static void go(struct tt_divergence *seen, int count, double from, double to, double share)
{
    struct tt_rng rng = tt_rng_make(7);
    for (int i = 0; i < count; i++) {
        double loss = from + (to - from) * i / count;
        double noise = tt_rng_uniform(rng, (uint64_t)seen->count) * 2 - 1;
        tt_divergence_record(seen, seen->count + 1, loss * (1 + share * noise));
    }
}

static void usual_losses_do_not_diverge(void **state)
{
    (void)state;
    struct tt_divergence falls = {.guess = guess}, noisy = {.guess = guess}, begins = {.guess = guess},
                         dpo = {0};
    go(&falls, 300, 3.0, 0.2, 0.1);
    assert_true(falls.step == 0 && !falls.diverges);
    go(&noisy, 3000, 1.5, 1.5, 0.9);
    assert_int_equal(noisy.step, 0);
    tt_divergence_record(&noisy, 3001, 12.0); /* one strange batch */
    assert_true(noisy.step == 0 && !noisy.diverges);
    go(&begins, 100, 7.4, 7.1, 0.02); /* random weights guess at first */
    go(&begins, 300, 7.1, 2.0, 0.05);
    assert_int_equal(begins.step, 0);
    go(&dpo, 300, 0.69, 0.05, 0.5);
    assert_int_equal(dpo.step, 0);
}

static void a_rising_mean_is_found(void **state)
{
    (void)state;
    struct tt_divergence later = {.guess = 12.0}, dpo = {0};
    go(&later, 200, 3.0, 1.0, 0.05);
    assert_int_equal(later.step, 0);
    go(&later, 200, 9.0, 9.0, 0.05);
    assert_true(later.diverges && !later.guesses);
    assert_in_range(later.step, 201, 210);
    assert_true(fabs(later.least - 1.0) < 0.2 && fabs(later.mean - 9.0) < 0.5);
    int64_t step = later.step;
    go(&later, 100, 1.0, 1.0, 0.05); /* it comes back */
    assert_true(!later.diverges && later.step == step);
    go(&dpo, 1, 0.69, 0.69, 0);
    go(&dpo, 30, 5.0, 5.0, 0.1);
    assert_int_equal(dpo.step, 10);
}

static void worse_than_guessing_is_found(void **state)
{
    (void)state;
    struct tt_divergence at_once = {.guess = guess}, random = {.guess = guess};
    go(&at_once, 1, 5.4, 5.4, 0);
    go(&at_once, 30, 9.0, 8.0, 0.05); /* the first update spoilt it: no mean was ever low */
    assert_true(at_once.guesses && at_once.diverges);
    assert_int_equal(at_once.step, 10);
    go(&random, 40, 7.5, 7.5, 0.01); /* it began with guessing */
    assert_int_equal(random.step, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usual_losses_do_not_diverge),
        cmocka_unit_test(a_rising_mean_is_found),
        cmocka_unit_test(worse_than_guessing_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
