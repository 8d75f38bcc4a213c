/* The levels at which blocks run: a wish that a block cannot fulfil becomes the next one below, else its lowest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "nn/block.h"

static enum tt_block_exchange statistics(const struct tt_block *block)
{
    (void)block;
    return TT_EXCHANGE_STATISTICS;
}

static void blocks_run_at_their_levels(void **state)
{
    (void)state;
    static const struct {
        unsigned levels;
        bool statistics;
        enum tt_level runs[TT_LEVEL_COUNT]; /* for each wish */
    } cases[] = {
        {TT_LEVELS_ALL, false, {TT_KEEP_ALL, TT_KEEP_CHEAP, TT_RECOMPUTE_BLOCK, TT_RECOMPUTE_OFFLOAD}},
        {TT_LEVELS_FEATURES, false, {TT_KEEP_CHEAP, TT_KEEP_CHEAP, TT_RECOMPUTE_BLOCK, TT_RECOMPUTE_BLOCK}},
        {TT_LEVELS_ONE, false, {TT_KEEP_CHEAP, TT_KEEP_CHEAP, TT_KEEP_CHEAP, TT_KEEP_CHEAP}},
        {TT_LEVELS_FEATURES, true, {TT_KEEP_CHEAP, TT_KEEP_CHEAP, TT_KEEP_CHEAP, TT_KEEP_CHEAP}},
        {TT_LEVELS_ALL, true, {TT_KEEP_ALL, TT_KEEP_CHEAP, TT_KEEP_CHEAP, TT_KEEP_CHEAP}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct tt_block_ops ops = {.levels = cases[i].levels,
                                         .exchange = cases[i].statistics ? statistics : NULL};
        const struct tt_block block = {.ops = &ops};
        for (int wish = 0; wish < TT_LEVEL_COUNT; wish++)
            assert_int_equal(tt_block_level(&block, (enum tt_level)wish), cases[i].runs[wish]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_run_at_their_levels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
