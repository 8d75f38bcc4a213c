#include "support/root.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/temporary.h"

static char root[160];

int test_root_create(void **state)
{
    (void)state;
    test_temporary_of(root, sizeof root, "tt-root", (long)getpid(), "");
    return tt_dir_remove(root) == TT_OK && tt_dir_create(root) == TT_OK ? 0 : -1;
}

int test_root_remove(void **state)
{
    (void)state;
    return tt_dir_remove(root) == TT_OK ? 0 : -1;
}

const char *test_root(void)
{
    return root;
}

const char *test_at(const char *name)
{
    static char path[4][512];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", root, name);
    return path[next];
}

void test_put(const char *name, const char *text)
{
    assert_int_equal(tt_file_write_atomic(test_at(name), text, strlen(text)), TT_OK);
}
