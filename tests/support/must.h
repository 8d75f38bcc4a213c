/* For calls of a test that have to succeed. */
#ifndef TT_TESTS_SUPPORT_MUST_H
#define TT_TESTS_SUPPORT_MUST_H

#include "base/error.h"

/* Fails the running test with the error record when `status` is not TT_OK. */
void test_must(tt_status status);

#endif
