#include "support/workplace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "support/must.h"
#include "support/temporary.h"

const char *test_join(const char *folder, const char *name, char path[TEST_PATH_BYTES])
{
    if (snprintf(path, TEST_PATH_BYTES, "%s/%s", folder, name) >= TEST_PATH_BYTES)
        fail_msg("too long a path: %s/%s", folder, name);
    return path;
}

void test_copy_file(const char *from, const char *to)
{
    test_must(tt_file_copy(from, to));
}

struct copy {
    const char *from, *to;
};

static tt_status copy_entry(void *context, const char *name)
{
    const struct copy *copy = context;
    char from[TEST_PATH_BYTES], to[TEST_PATH_BYTES];
    return tt_file_copy(test_join(copy->from, name, from), test_join(copy->to, name, to));
}

static void copy_folder(const char *from, const char *to)
{
    struct copy copy = {from, to};
    test_must(tt_dir_create(to));
    test_must(tt_dir_list(from, copy_entry, &copy));
}

void test_workplace_create(const char *family, struct test_workplace *place)
{
    char golden[TEST_PATH_BYTES], name[64];
    test_temporary(place->folder, sizeof place->folder, "trimtab-test-XXXXXX");
    if (mkdtemp(place->folder) == NULL) fail_msg("cannot make a temporary folder");
    test_join(place->folder, "model", place->model);
    snprintf(name, sizeof name, "golden/%s/model", family);
    copy_folder(test_join(TT_TEST_ROOT, name, golden), place->model);
    copy_folder(test_join(TT_TEST_ROOT, "support/tiny_tokenizer", golden), place->model);
}

void test_workplace_remove(struct test_workplace *place)
{
    test_must(tt_dir_remove(place->folder));
}

const char *test_workplace_path(const struct test_workplace *place, const char *name,
                                char path[TEST_PATH_BYTES])
{
    return test_join(place->folder, name, path);
}

const char *test_workplace_write(const struct test_workplace *place, const char *name, const char *text,
                                 char path[TEST_PATH_BYTES])
{
    test_join(place->folder, name, path);
    test_must(tt_file_write_atomic(path, text, strlen(text)));
    return path;
}

struct count {
    const char *prefix;
    int entries;
};

static tt_status count_entry(void *context, const char *name)
{
    struct count *count = context;
    count->entries += strncmp(name, count->prefix, strlen(count->prefix)) == 0;
    return TT_OK;
}

int test_count_entries(const char *folder, const char *prefix)
{
    struct count count = {prefix, 0};
    test_must(tt_dir_list(folder, count_entry, &count));
    return count.entries;
}

static tt_status look_at_entry(void *context, const char *name)
{
    static const char *const marks[] = {".tmp-", ".saving", ".old-", ".write-probe"};
    char path[TEST_PATH_BYTES];
    test_join(context, name, path);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (strstr(name, marks[i]) != NULL) return tt_fail(TT_ERR_IO, "'%s' is unfinished", path);
    return tt_path_is_dir(path) ? tt_dir_list(path, look_at_entry, path) : TT_OK;
}

void test_nothing_unfinished(const char *folder)
{
    test_must(tt_dir_list(folder, look_at_entry, (void *)(uintptr_t)folder));
}
