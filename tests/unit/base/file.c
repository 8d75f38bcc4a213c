/* base/file.h: whole reads, atomic writes, folders, and what they say when something is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"

static char root[64];

static const char *in_root(const char *name)
{
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", root, name);
    return path[next];
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/tt-file-%ld", (long)getpid());
    return tt_dir_create(root) == TT_OK ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return tt_dir_remove(root) == TT_OK ? 0 : -1;
}

static void assert_message(const char *part)
{
    if (strstr(tt_error_last()->message, part) == NULL)
        fail_msg("'%s' not in '%s'", part, tt_error_last()->message);
}

static tt_status count_entry(void *context, const char *name)
{
    struct tt_str *all = context;
    return tt_str_printf(all, "%s ", name);
}

static void assert_entries(const char *path, const char *wanted)
{
    struct tt_str all = {0};
    assert_int_equal(tt_dir_list(path, count_entry, &all), TT_OK);
    assert_string_equal(tt_str_text(&all), wanted);
    tt_str_deinit(&all);
}

static void write_and_read(void **state)
{
    (void)state;
    struct tt_str data = {0};
    assert_int_equal(tt_file_write_atomic(in_root("a"), "one\0two", 7), TT_OK);
    assert_int_equal(tt_file_read(in_root("a"), 7, &data), TT_OK);
    assert_int_equal(data.bytes, 7);
    assert_memory_equal(data.data, "one\0two", 8);
    assert_int_equal(tt_file_read(in_root("a"), 6, &data), TT_ERR_DATA);
    assert_int_equal(data.bytes, 7);
    assert_int_equal(tt_file_write_atomic(in_root("a"), "", 0), TT_OK);
    assert_int_equal(tt_file_read(in_root("a"), 0, &data), TT_OK);
    assert_int_equal(data.bytes, 0);
    assert_int_equal(data.data[0], 0);
    assert_int_equal(tt_file_read(in_root("absent"), 10, &data), TT_ERR_IO);
    assert_message("absent");
    assert_message("No such file");
    assert_int_equal(tt_file_read(root, 10, &data), TT_ERR_IO);
    assert_message("directory");
    assert_int_equal(tt_file_write_atomic(in_root("no/such/folder"), "x", 1), TT_ERR_IO);
    assert_entries(root, "a ");
    tt_str_deinit(&data);
}

/* A new file gets the permissions that the umask leaves, as any other program's. */
static void permissions(void **state)
{
    (void)state;
    mode_t before = umask(027);
    assert_int_equal(tt_file_write_atomic(in_root("mode"), "x", 1), TT_OK);
    umask(before);
    struct stat info;
    assert_int_equal(stat(in_root("mode"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
}

static void a_full_disk(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    int descriptor = -1;
    assert_int_equal(tt_file_open_write("/dev/full", &descriptor), TT_OK);
    assert_int_equal(tt_file_pwrite(descriptor, "/dev/full", "x", 1, 0), TT_ERR_IO);
    assert_message("No space left");
    tt_file_close(descriptor);
    uint64_t free_bytes = 0;
    assert_int_equal(tt_dir_free_bytes(root, &free_bytes), TT_OK);
    /* File systems that cannot reserve blocks make a sparse file instead. */
    tt_status status = tt_file_create(in_root("huge"), (uint64_t)1 << 60, &descriptor);
    if (status == TT_OK) {
        tt_file_close(descriptor);
    } else {
        assert_int_equal(status, TT_ERR_IO);
        assert_message("huge");
    }
    assert_int_equal(unlink(in_root("huge")), 0);
}

static void positioned(void **state)
{
    (void)state;
    int descriptor = -1;
    uint64_t bytes = 0;
    char back[8] = {0};
    assert_int_equal(tt_file_create(in_root("p"), 10, &descriptor), TT_OK);
    assert_int_equal(tt_file_pwrite(descriptor, "p", "tail", 4, 6), TT_OK);
    assert_int_equal(tt_file_sync_close(descriptor, "p"), TT_OK);
    assert_int_equal(tt_file_open_read(in_root("p"), &descriptor, &bytes), TT_OK);
    assert_int_equal(bytes, 10);
    assert_int_equal(tt_file_pread(descriptor, "p", back, 4, 6), TT_OK);
    assert_string_equal(back, "tail");
    assert_int_equal(tt_file_pread(descriptor, "p", back, 5, 6), TT_ERR_DATA);
    assert_message("4 were there");
    tt_file_close(descriptor);
    assert_int_equal(tt_file_copy(in_root("p"), in_root("q")), TT_OK);
    struct tt_file_map p = {0}, q = {0};
    assert_int_equal(tt_file_map_open(in_root("p"), &p), TT_OK);
    assert_int_equal(tt_file_map_open(in_root("q"), &q), TT_OK);
    assert_int_equal(q.bytes, 10);
    assert_memory_equal(p.data, q.data, 10);
    tt_file_map_close(&p);
    tt_file_map_close(&q);
    tt_file_map_close(&q);
}

static void folders(void **state)
{
    (void)state;
    assert_int_equal(tt_dir_create(in_root("x/y/z")), TT_OK);
    assert_int_equal(tt_dir_create(in_root("x/y/z/")), TT_OK);
    assert_int_equal(tt_file_write_atomic(in_root("x/f"), "1", 1), TT_OK);
    assert_int_equal(tt_dir_create(in_root("x/f")), TT_ERR_IO);
    assert_int_equal(tt_dir_create(in_root("x/f/g")), TT_ERR_IO);
    assert_int_equal(tt_dir_create(""), TT_ERR_USAGE);
    assert_entries(in_root("x"), "f y ");
    /* A link out of the tree is removed, what it points at stays. */
    assert_int_equal(tt_file_write_atomic(in_root("keep"), "1", 1), TT_OK);
    assert_int_equal(symlink(in_root("keep"), in_root("x/link")), 0);
    assert_int_equal(tt_dir_remove(in_root("x")), TT_OK);
    assert_false(tt_path_exists(in_root("x")));
    assert_true(tt_path_exists(in_root("keep")));
    assert_int_equal(tt_dir_remove(in_root("x")), TT_OK);
}

static void commit(void **state)
{
    (void)state;
    assert_int_equal(tt_dir_create(in_root("new/sub")), TT_OK);
    assert_int_equal(tt_file_write_atomic(in_root("new/sub/f"), "1", 1), TT_OK);
    assert_int_equal(tt_dir_commit(in_root("new"), in_root("final")), TT_OK);
    assert_true(tt_path_exists(in_root("final/sub/f")));
    assert_false(tt_path_exists(in_root("new")));
    assert_int_equal(tt_dir_create(in_root("new")), TT_OK);
    assert_int_equal(tt_file_write_atomic(in_root("new/g"), "2", 1), TT_OK);
    assert_int_equal(tt_dir_commit(in_root("new"), in_root("final")), TT_OK);
    assert_entries(in_root("final"), "g ");
    assert_false(tt_path_exists(in_root("new")));
    assert_int_equal(tt_dir_commit(in_root("new"), in_root("final")), TT_ERR_IO);
    assert_entries(in_root("final"), "g ");
}

static void paths(void **state)
{
    (void)state;
    char *joined = tt_path_join("a/", "b");
    assert_string_equal(joined, "a/b");
    tt_free(joined);
    joined = tt_path_join("", "b");
    assert_string_equal(joined, "b");
    tt_free(joined);
    assert_string_equal(tt_path_basename("a/b/c"), "c");
    assert_string_equal(tt_path_basename("c"), "c");
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    uint64_t live = tt_alloc_live();
    for (uint64_t nth = 1;; nth++) {
        struct tt_str data = {0};
        (void)!tt_dir_create(in_root("t"));
        tt_alloc_fail_at(nth);
        tt_status status = tt_file_write_atomic(in_root("t/f"), "content", 7);
        if (status == TT_OK) status = tt_file_copy(in_root("t/f"), in_root("t/g"));
        if (status == TT_OK) status = tt_file_read(in_root("t/g"), 100, &data);
        if (status == TT_OK) status = tt_dir_list(in_root("t"), count_entry, &data);
        if (status == TT_OK) status = tt_dir_commit(in_root("t"), in_root("t-final"));
        tt_alloc_fail_at(0);
        tt_str_deinit(&data);
        assert_int_equal(tt_alloc_live(), live);
        if (status == TT_OK) break;
        assert_int_equal(status, TT_ERR_MEMORY);
    }
    /* Nothing temporary is left behind. */
    assert_entries(in_root("t-final"), "f g ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_and_read), cmocka_unit_test(permissions),
        cmocka_unit_test(a_full_disk),    cmocka_unit_test(positioned),
        cmocka_unit_test(folders),        cmocka_unit_test(commit),
        cmocka_unit_test(paths),          cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
