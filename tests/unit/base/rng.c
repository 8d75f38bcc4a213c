/* base/rng.h: the published known answers, the statistics that users rely on, and the permutation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/rng.h"

/* Random123, tests/kat_vectors, "philox4x32 10": counter (four words), key (two words), result. */
static void known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], result[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        struct tt_rng rng = {(uint64_t)vectors[i].key[1] << 32 | vectors[i].key[0]};
        uint32_t out[4];
        tt_rng_block(rng, (uint64_t)vectors[i].counter[3] << 32 | vectors[i].counter[2],
                     (uint64_t)vectors[i].counter[1] << 32 | vectors[i].counter[0], out);
        assert_memory_equal(out, vectors[i].result, sizeof out);
    }
}

/* Mean, variance and tails of 2^18 draws lie within five standard errors. */
static void uniform_and_normal(void **state)
{
    (void)state;
    enum { COUNT = 1 << 18 };
    struct tt_rng rng = tt_rng_derive(tt_rng_make(7), "test");
    double sum = 0, sum_squares = 0, normal = 0, normal_squares = 0, fourth = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        double u = tt_rng_uniform(rng, i), n = tt_rng_normal(rng, i);
        assert_true(u >= 0.0 && u < 1.0);
        sum += u;
        sum_squares += u * u;
        normal += n;
        normal_squares += n * n;
        fourth += n * n * n * n;
    }
    double error = 5.0 / sqrt(COUNT);
    assert_true(fabs(sum / COUNT - 0.5) < error * 0.29);
    assert_true(fabs(sum_squares / COUNT - 1.0 / 3) < error * 0.30);
    assert_true(fabs(normal / COUNT) < error);
    assert_true(fabs(normal_squares / COUNT - 1.0) < error * 1.42);
    assert_true(fabs(fourth / COUNT - 3.0) < error * 9.8);
}

static void derived_streams_differ(void **state)
{
    (void)state;
    struct tt_rng root = tt_rng_make(1);
    const char *names[] = {"",
                           "a",
                           "b",
                           "aa",
                           "ab",
                           "abcdefgh",
                           "abcdefghi",
                           "abcdefgha",
                           "model.layers.0.weight",
                           "model.layers.1.weight"};
    enum { NAMES = sizeof names / sizeof names[0] };
    for (int i = 0; i < NAMES; i++) {
        assert_true(tt_rng_derive(root, names[i]).key == tt_rng_derive(root, names[i]).key);
        assert_true(tt_rng_derive(root, names[i]).key != tt_rng_derive(tt_rng_make(2), names[i]).key);
        assert_true(tt_rng_derive(root, names[i]).key != root.key);
        for (int j = 0; j < i; j++) {
            assert_true(tt_rng_derive(root, names[i]).key != tt_rng_derive(root, names[j]).key);
        }
    }
    assert_true(tt_rng_derive_index(root, 0).key != tt_rng_derive_index(root, 1).key);
}

static void below_covers_its_range(void **state)
{
    (void)state;
    struct tt_rng rng = tt_rng_make(3);
    int seen[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) seen[tt_rng_below(rng, i, 7)]++;
    for (int i = 0; i < 7; i++) assert_in_range(seen[i], 9500, 10500);
    assert_int_equal(tt_rng_below(rng, 0, 1), 0);
}

static void check_bijection(uint64_t key, uint64_t count)
{
    unsigned char *seen = calloc(count, 1);
    assert_non_null(seen);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = tt_rng_permute((struct tt_rng){key}, i, count);
        assert_true(at < count);
        assert_false(seen[at]);
        seen[at] = 1;
    }
    free(seen);
}

static void permute_is_a_permutation(void **state)
{
    (void)state;
    for (uint64_t count = 1; count < 300; count++) check_bijection(count * 77, count);
    const uint64_t larger[] = {1023, 1024, 1025, 4095, 65535, 65536, 65537, 99991};
    for (size_t i = 0; i < sizeof larger / sizeof larger[0]; i++) check_bijection(i, larger[i]);
    /* The largest domain: no overflow, and still in range. */
    for (uint64_t i = 0; i < 100; i++) {
        assert_true(tt_rng_permute(tt_rng_make(5), UINT64_MAX - 1 - i, UINT64_MAX) < UINT64_MAX);
        uint64_t square = (uint64_t)0xffffffff * 0xffffffff;
        assert_true(tt_rng_permute(tt_rng_make(5), square - 1 - i, square) < square);
    }
}

/* Every position is taken by every element about equally often over seeds (chi-square, 5 sigma), and
 * neighbours do not stay neighbours. */
static void permute_mixes(void **state)
{
    (void)state;
    enum { COUNT = 13, SEEDS = 20000 };
    static int hits[COUNT][COUNT];
    int neighbours = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct tt_rng rng = tt_rng_derive_index(tt_rng_make(11), seed);
        uint64_t before = 0;
        for (uint64_t i = 0; i < COUNT; i++) {
            uint64_t at = tt_rng_permute(rng, i, COUNT);
            hits[i][at]++;
            if (i > 0 && (at == before + 1 || at + 1 == before)) neighbours++;
            before = at;
        }
    }
    double expected = (double)SEEDS / COUNT, chi = 0;
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < COUNT; j++) chi += (hits[i][j] - expected) * (hits[i][j] - expected) / expected;
    }
    double freedom = (COUNT - 1) * (COUNT - 1);
    assert_true(chi < freedom + 5 * sqrt(2 * freedom));
    /* A random permutation has 2 (n - 1) / n such pairs on average; the deviation is about 1.4. */
    double pairs = 2.0 * (COUNT - 1) / COUNT;
    assert_true(fabs(neighbours / (double)SEEDS - pairs) < 0.06);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(uniform_and_normal),
        cmocka_unit_test(derived_streams_differ),
        cmocka_unit_test(below_covers_its_range),
        cmocka_unit_test(permute_is_a_permutation),
        cmocka_unit_test(permute_mixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
