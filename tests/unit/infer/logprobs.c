/* Log p of a token and of the likeliest ones from logits, against sums in long double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "infer/logprobs.h"

enum { VOCAB = 4803 }; /* more than a block of the sum, and no multiple of its lanes */

static void fill(float *logits, float size)
{
    uint32_t x = 7;
    for (int v = 0; v < VOCAB; v++) {
        x = x * 1664525u + 1013904223u;
        logits[v] = size * ((float)(x >> 8) / (float)(1 << 24) - 0.5f);
    }
}

static long double exact(const float *logits, int token)
{
    long double sum = 0;
    for (int v = 0; v < VOCAB; v++) sum += expl((long double)logits[v] - (long double)logits[token]);
    return -logl(sum);
}

static void as_softmax(void **state)
{
    (void)state;
    static const float sizes[] = {0.0f, 1.0f, 20.0f, 300.0f};
    float logits[VOCAB];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct tt_token_logprobs got;
        fill(logits, sizes[s]);
        tt_token_logprobs_make(logits, VOCAB, 17, TT_TOP_LOGPROBS_MAX, &got);
        assert_true(fabsl((long double)got.logprob - exact(logits, 17)) <= 1e-6L * (1 + sizes[s]));
        assert_int_equal(got.count, TT_TOP_LOGPROBS_MAX);
        for (int32_t i = 0; i < got.count; i++) {
            int larger = 0; /* tokens that come before this one */
            for (int v = 0; v < VOCAB; v++) {
                float mine = logits[got.ids[i]];
                larger += logits[v] > mine || (logits[v] == mine && v < got.ids[i]);
            }
            assert_int_equal(larger, i);
            assert_true(fabsl((long double)got.logprobs[i] - exact(logits, got.ids[i])) <=
                        1e-6L * (1 + sizes[s]));
        }
    }
}

static void few(void **state)
{
    (void)state;
    const float logits[3] = {-INFINITY, 2.0f, 2.0f};
    struct tt_token_logprobs got;
    tt_token_logprobs_make(logits, 3, 0, 5, &got);
    assert_true(isinf(got.logprob) && got.logprob < 0);
    assert_int_equal(got.count, 3);
    assert_int_equal(got.ids[0], 1);
    assert_int_equal(got.ids[1], 2);
    assert_true(fabsf(got.logprobs[1] + logf(2.0f)) < 1e-6f);
    tt_token_logprobs_make(logits, 3, 1, 0, &got);
    assert_int_equal(got.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_softmax), cmocka_unit_test(few)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
