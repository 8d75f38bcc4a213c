/* data/packing.h against the definition of best-fit decreasing, done the slow way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "data/packing.h"

static int descending(const void *a, const void *b)
{
    return *(const int32_t *)b - *(const int32_t *)a;
}

static struct tt_store make_store(uint64_t seed, size_t count, int64_t length, bool short_ones)
{
    struct tt_store store = {0};
    struct tt_rng rng = tt_rng_make(seed);
    store.samples = tt_calloc(count, sizeof *store.samples);
    store.sample_count = count;
    for (size_t i = 0; i < count; i++) {
        uint64_t most = short_ones && i % 8 != 0 ? (uint64_t)length / 8 + 1 : (uint64_t)length;
        store.samples[i].count =
            (int32_t)(1 + tt_rng_below(rng, i, most < (uint64_t)length ? most : (uint64_t)length));
    }
    return store;
}

/* What packs are filled to, the slow way: each sample into the fullest pack that has room. */
static size_t fill_slowly(const struct tt_store *store, int64_t length, int32_t *fill)
{
    size_t packs = 0;
    int32_t *lengths = tt_calloc(store->sample_count, sizeof *lengths);
    for (size_t i = 0; i < store->sample_count; i++) lengths[i] = store->samples[i].count;
    qsort(lengths, store->sample_count, sizeof *lengths, descending);
    for (size_t i = 0; i < store->sample_count; i++) {
        size_t best = packs;
        for (size_t p = 0; p < packs; p++) {
            if (fill[p] + lengths[i] <= length && (best == packs || fill[p] > fill[best])) best = p;
        }
        if (best == packs) fill[packs++] = 0;
        fill[best] += lengths[i];
    }
    tt_free(lengths);
    qsort(fill, packs, sizeof *fill, descending);
    return packs;
}

static void check(uint64_t seed, size_t count, int64_t length, bool short_ones)
{
    struct tt_store store = make_store(seed, count, length, short_ones);
    struct tt_packs packs = {0};
    assert_int_equal(tt_packs_make(&store, length, &packs), TT_OK);
    int32_t *fill = tt_calloc(count, sizeof *fill), *wanted = tt_calloc(count, sizeof *wanted);
    uint8_t *seen = tt_calloc(count, 1);
    for (size_t p = 0; p < packs.count; p++) {
        assert_true(packs.first[p] < packs.first[p + 1]);
        for (uint32_t i = packs.first[p]; i < packs.first[p + 1]; i++) {
            uint32_t sample = packs.samples[i];
            assert_int_equal(seen[sample]++, 0);
            fill[p] += store.samples[sample].count;
            if (i > packs.first[p]) assert_true(packs.samples[i - 1] < sample);
        }
        assert_true(fill[p] <= length);
    }
    for (size_t i = 0; i < count; i++) assert_int_equal(seen[i], 1);
    qsort(fill, packs.count, sizeof *fill, descending);
    assert_int_equal(packs.count, fill_slowly(&store, length, wanted));
    assert_memory_equal(fill, wanted, packs.count * sizeof *fill);
    tt_free(fill);
    tt_free(wanted);
    tt_free(seen);
    tt_packs_deinit(&packs);
    tt_store_deinit(&store);
}

static void best_fit_decreasing(void **state)
{
    (void)state;
    /* Lengths around the borders of the tree's words: 64 and 4096. */
    static const int64_t lengths[] = {1, 2, 7, 63, 64, 65, 127, 128, 500, 4095, 4096, 4097, 70000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (uint64_t seed = 0; seed < 6; seed++)
            check(seed, 1 + (size_t)seed * 150, lengths[i], seed % 2 == 1);
    }
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    struct tt_store store = make_store(1, 3, 10, false);
    store.samples[1].count = 11;
    struct tt_packs packs = {0};
    assert_int_equal(tt_packs_make(&store, 10, &packs), TT_ERR_USAGE);
    assert_string_equal(tt_error_last()->message,
                        "sample 1 has 11 tokens and does not fit into a pack of 10");
    assert_int_equal(tt_packs_make(&(struct tt_store){.sample_count = UINT32_MAX}, 10, &packs),
                     TT_ERR_UNSUPPORTED);
    assert_string_equal(tt_error_last()->message, "packing supports fewer than 4294967295 samples");
    assert_null(packs.first);
    tt_store_deinit(&store);
}

/* A million samples take well under a second; a quadratic search would take minutes. */
static void large(void **state)
{
    (void)state;
    struct tt_store store = make_store(3, 1000000, 8192, true);
    struct tt_packs packs = {0};
    double start = tt_clock_seconds();
    assert_int_equal(tt_packs_make(&store, 8192, &packs), TT_OK);
    assert_true(tt_clock_seconds() - start < 20.0);
    tt_packs_deinit(&packs);
    tt_store_deinit(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_fit_decreasing),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
