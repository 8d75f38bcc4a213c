/* How the devices of a test compute: as the environment says (TRIMTAB_CPU_ISA, ...). A test then runs on any level. */
#ifndef TT_TESTS_SUPPORT_TUNING_H
#define TT_TESTS_SUPPORT_TUNING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/tuning.h"

static inline struct tt_device_tuning test_tuning(void)
{
    struct tt_device_tuning tuning;
    assert_int_equal(tt_device_tuning_read(&tuning), TT_OK);
    return tuning;
}

#endif
