/* The definition of a dropout mask (backend/ops/elementwise.h), element by element. */
#ifndef TT_TESTS_SUPPORT_DROPOUT_MASK_H
#define TT_TESTS_SUPPORT_DROPOUT_MASK_H

#include <math.h>
#include <stdbool.h>

#include "base/rng.h"

/* p rounded to the steps of a mask. */
static inline double test_dropout_rate(double p)
{
    return fmin(round(p * 16384), 16383) / 16384;
}

static inline bool test_dropout_keeps(struct tt_rng rng, int64_t row_key, int64_t d, double p)
{
    uint32_t words[4];
    tt_rng_block(rng, (uint64_t)row_key, (uint64_t)d / 8, words);
    return (words[d % 8 / 2] >> 16 * (d % 2) & 0x3fff) >= test_dropout_rate(p) * 16384;
}

#endif
