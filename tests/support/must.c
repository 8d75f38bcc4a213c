#include "support/must.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

void test_must(tt_status status)
{
    char text[4096];
    if (status == TT_OK) return;
    (void)tt_error_format(tt_error_last(), text, sizeof text);
    fail_msg("%s", text);
}
