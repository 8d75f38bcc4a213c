/* data/length_order.h: the same order as transformers makes of the same permutation (golden/length_order); an order of
 * an epoch is a permutation, whoever asks for which epoch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "data/length_order.h"
#include "support/allocations.h"

static uint64_t number(const struct tt_json_value *list, size_t at)
{
    return (uint64_t)tt_json_integer(tt_json_at(list, at));
}

static void check_case(const struct tt_json_value *given)
{
    const struct tt_json_value *lengths = tt_json_get(given, "lengths"), *order = tt_json_get(given, "order");
    const struct tt_json_value *permutation = tt_json_get(given, "permutation");
    size_t count = tt_json_count(lengths);
    struct tt_length_unit *units = tt_calloc(count, sizeof *units);
    assert_non_null(units);
    for (size_t i = 0; i < count; i++) {
        uint64_t unit = number(permutation, i);
        units[i] = (struct tt_length_unit){.unit = unit, .tokens = (int64_t)number(lengths, unit)};
    }
    tt_length_order_sort(units, count, (uint64_t)tt_json_integer(tt_json_get(given, "batch")));
    for (size_t i = 0; i < count; i++)
        if (units[i].unit != number(order, i))
            fail_msg("of %zu, position %zu is %d instead of %d", count, i, (int)units[i].unit,
                     (int)number(order, i));
    tt_free(units);
}

static void order_is_theirs(void **state)
{
    struct tt_json json = {0};
    (void)state;
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/golden/length_order/cases.json", 1 << 20, &json), TT_OK);
    assert_int_equal(tt_json_count(json.root), 7);
    for (size_t i = 0; i < tt_json_count(json.root); i++) check_case(tt_json_at(json.root, i));
    tt_json_deinit(&json);
}

enum { UNITS = 403, BATCH = 4 };

static int64_t tokens_of(const void *context, uint64_t unit)
{
    return ((const int64_t *)context)[unit];
}

static void epochs_are_permutations(void **state)
{
    static const int64_t asked[] = {0, 1, 0, 2, 7, 1};
    int64_t tokens[UNITS];
    static uint64_t first[8][UNITS];
    struct tt_length_order *order = NULL;
    (void)state;
    for (uint64_t i = 0; i < UNITS; i++) tokens[i] = (int64_t)(tt_rng_u64(tt_rng_make(3), i) % 100);
    const struct tt_length_order_config config = {UNITS, BATCH, tokens_of, tokens, tt_rng_make(9)};
    assert_int_equal(tt_length_order_create(&config, &order), TT_OK);
    for (size_t e = 0; e < sizeof asked / sizeof *asked; e++) {
        bool seen[UNITS] = {false};
        uint64_t *before = first[asked[e]], spread = 0;
        for (uint64_t i = 0; i < UNITS; i++) {
            uint64_t unit = tt_length_order_unit(order, asked[e], i);
            assert_true(unit < UNITS && !seen[unit]);
            seen[unit] = true;
            if (e == 2 || e == 5) assert_int_equal(unit, before[i]); /* made again */
            before[i] = unit;
        }
        for (uint64_t i = BATCH; i + BATCH <= UNITS; i += BATCH)
            spread += (uint64_t)(tokens[before[i]] - tokens[before[i + BATCH - 1]] + 100) % 100;
        assert_true(spread < UNITS / BATCH * 15); /* of random batches about 60 each */
    }
    assert_true(memcmp(first[0], first[1], sizeof first[0]) != 0);
    tt_length_order_destroy(order);
}

static tt_status create_and_destroy(void *context)
{
    struct tt_length_order *order = NULL;
    tt_status status = tt_length_order_create(context, &order);
    tt_length_order_destroy(order);
    return status;
}

static void memory_may_run_out(void **state)
{
    int64_t tokens[UNITS] = {0};
    struct tt_length_order_config config = {UNITS, BATCH, tokens_of, tokens, tt_rng_make(9)};
    (void)state;
    assert_int_equal(test_allocations_fail(create_and_destroy, &config), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_theirs),
        cmocka_unit_test(epochs_are_permutations),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
