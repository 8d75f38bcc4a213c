/* Whole numbers: the smaller, the larger, and rounding up. */
#ifndef TT_BASE_INTEGER_H
#define TT_BASE_INTEGER_H

#include <stddef.h>
#include <stdint.h>

static inline int64_t tt_smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t tt_larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline size_t tt_smaller_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The next multiple of `alignment`; `bytes` + `alignment` may not overflow. */
static inline size_t tt_align_up(size_t bytes, size_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

#endif
