#include "support/allocations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/alloc.h"

enum { ALLOCATIONS_MAX = 100000 };

int test_allocations_fail(tt_status (*attempt)(void *context), void *context)
{
    uint64_t live = tt_alloc_live();
    for (int nth = 1; nth < ALLOCATIONS_MAX; nth++) {
        tt_alloc_fail_at((uint64_t)nth);
        tt_status status = attempt(context);
        tt_alloc_fail_at(0);
        if (tt_alloc_live() != live) fail_msg("allocation %d: something is not given back", nth);
        if (status == TT_OK) {
            assert_true(nth > 1); /* something was allocated */
            return nth - 1;
        }
        if (status != TT_ERR_MEMORY) fail_msg("allocation %d: %s", nth, tt_error_last()->message);
    }
    fail_msg("it never succeeds");
    return 0;
}
