/* Checked allocation. Every function sets the error record (TT_ERR_MEMORY) and returns NULL on failure, so the
 * caller writes `if (x == NULL) return TT_ERR_MEMORY;`. Memory is released with tt_free, which takes NULL.
 *
 * Tests make the Nth allocation fail with tt_alloc_fail_at(); 0 turns that off. The counter is process-wide.
 */
#ifndef TT_BASE_ALLOC_H
#define TT_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Zero-initialised, with count * size checked for overflow. A request of 0 bytes returns a unique pointer. */
void *tt_calloc(size_t count, size_t size);
/* 64-byte aligned and not initialised; for large numeric arrays. Released with tt_free. */
void *tt_alloc_aligned(size_t bytes);
/* Grows or shrinks; on failure the old block stays valid and owned by the caller. */
void *tt_realloc(void *block, size_t count, size_t size);
char *tt_strdup(const char *text);
char *tt_strndup(const char *text, size_t bytes);
void tt_free(void *block);

/* Makes room for one more element in a growing array: when count == *capacity, at least 8 elements, then twice as many
 * as before. `array`: the address of the typed pointer to the elements, which knows their size; both are unchanged
 * after an error. Anything else does not compile. */
#define tt_grow(array, count, capacity) tt_grow_array(array, count, capacity, TT_ELEMENT_BYTES(array))
/* The same with room for `count` elements, so that adding up to that many cannot fail. */
#define tt_reserve(array, count, capacity) tt_reserve_array(array, count, capacity, TT_ELEMENT_BYTES(array))
#define TT_ELEMENT_BYTES(array) (sizeof(char[sizeof *(array) == sizeof(void *) ? 1 : -1]) * sizeof **(array))
TT_MUST_USE tt_status tt_grow_array(void *array, size_t count, size_t *capacity, size_t element_bytes);
TT_MUST_USE tt_status tt_reserve_array(void *array, size_t count, size_t *capacity, size_t element_bytes);

/* Test hooks. */
/* The nth allocation from now on fails, once. Returns how many allocations an earlier call still waited for. */
uint64_t tt_alloc_fail_at(uint64_t nth);
uint64_t tt_alloc_count(void); /* allocations since the process began */
uint64_t tt_alloc_live(void);  /* blocks allocated and not yet freed */

#endif
