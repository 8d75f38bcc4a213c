/* Tests of failing allocations, one after the other. */
#ifndef TT_TESTS_SUPPORT_ALLOCATIONS_H
#define TT_TESTS_SUPPORT_ALLOCATIONS_H

#include "base/error.h"

/* Calls `attempt` with its first allocation failing, then with its second, and so on until it succeeds. Each
 * failure must be TT_ERR_MEMORY, and `attempt` must free everything. Returns the number of allocations that
 * failed. */
int test_allocations_fail(tt_status (*attempt)(void *context), void *context);

#endif
