#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Counters of the process, for tests. `fail_countdown`: the allocations until one fails, itself included; 0: none. */
static atomic_uint_fast64_t allocation_count;
static atomic_uint_fast64_t live_count;
static atomic_uint_fast64_t fail_countdown;

/* True for exactly one allocation after tt_alloc_fail_at, whichever thread makes it. */
static bool must_fail(void)
{
    atomic_fetch_add_explicit(&allocation_count, 1, memory_order_relaxed);
    uint_fast64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (left > 0) {
        if (atomic_compare_exchange_weak_explicit(&fail_countdown, &left, left - 1, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            return left == 1;
        }
    }
    return false;
}

/* Counts a new block, or sets the error record. */
static void *finish(void *block, size_t bytes)
{
    if (block != NULL)
        atomic_fetch_add_explicit(&live_count, 1, memory_order_relaxed);
    else
        tt_fail(TT_ERR_MEMORY, "out of memory: cannot allocate %zu bytes", bytes);
    return block;
}

static bool product(size_t count, size_t size, size_t *bytes)
{
    if (!__builtin_mul_overflow(count, size, bytes) && *bytes <= PTRDIFF_MAX) return true;
    tt_fail(TT_ERR_MEMORY, "out of memory: %zu elements of %zu bytes do not fit the address space", count,
            size);
    return false;
}

void *tt_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!product(count, size, &bytes)) return NULL;
    return finish(must_fail() ? NULL : calloc(1, bytes > 0 ? bytes : 1), bytes);
}

void *tt_alloc_aligned(size_t bytes)
{
    void *block = NULL;
    if (bytes > PTRDIFF_MAX || must_fail() || posix_memalign(&block, 64, bytes > 0 ? bytes : 1) != 0)
        block = NULL;
    return finish(block, bytes);
}

void *tt_realloc(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (!product(count, size, &bytes)) return NULL;
    void *grown = must_fail() ? NULL : realloc(block, bytes > 0 ? bytes : 1);
    if (block == NULL) return finish(grown, bytes);
    if (grown == NULL) tt_fail(TT_ERR_MEMORY, "out of memory: cannot grow a block to %zu bytes", bytes);
    return grown;
}

char *tt_strndup(const char *text, size_t bytes)
{
    size_t length = strnlen(text, bytes);
    char *copy = tt_calloc(length + 1, 1);
    if (copy != NULL) memcpy(copy, text, length);
    return copy;
}

char *tt_strdup(const char *text)
{
    return tt_strndup(text, strlen(text));
}

void tt_free(void *block)
{
    if (block == NULL) return;
    atomic_fetch_sub_explicit(&live_count, 1, memory_order_relaxed);
    free(block);
}

tt_status tt_grow_array(void *array, size_t count, size_t *capacity, size_t element_bytes)
{
    if (count < *capacity) return TT_OK;
    size_t wanted = 8;
    if (*capacity >= 8 && __builtin_mul_overflow(*capacity, (size_t)2, &wanted))
        return tt_fail(TT_ERR_MEMORY, "out of memory: an array of %zu elements cannot grow", *capacity);
    void *block; /* copied as bytes: `array` is the address of a pointer of any type */
    memcpy(&block, array, sizeof block);
    block = tt_realloc(block, wanted, element_bytes);
    if (block == NULL) return TT_ERR_MEMORY;
    memcpy(array, &block, sizeof block);
    *capacity = wanted;
    return TT_OK;
}

tt_status tt_reserve_array(void *array, size_t count, size_t *capacity, size_t element_bytes)
{
    if (count <= *capacity) return TT_OK;
    void *block;
    memcpy(&block, array, sizeof block);
    block = tt_realloc(block, count, element_bytes);
    if (block == NULL) return TT_ERR_MEMORY;
    memcpy(array, &block, sizeof block);
    *capacity = count;
    return TT_OK;
}

uint64_t tt_alloc_fail_at(uint64_t nth)
{
    return atomic_exchange(&fail_countdown, nth);
}

uint64_t tt_alloc_count(void)
{
    return atomic_load(&allocation_count);
}

uint64_t tt_alloc_live(void)
{
    return atomic_load(&live_count);
}
