/* base/file.h: whole reads, atomic writes, folders, and what they say when something is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "support/temporary.h"

static char root[160];

static const char *in_root(const char *name)
{
    static char path[4][512];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", root, name);
    return path[next];
}

static int make_root(void **state)
{
    (void)state;
    test_temporary_of(root, sizeof root, "tt-file", (long)getpid(), "");
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
    assert_int_equal(tt_file_read(in_root("absent"), 10, &data), TT_ERR_DATA);
    assert_message("absent");
    assert_message("No such file");
    assert_int_equal(tt_file_read(root, 10, &data), TT_ERR_DATA);
    assert_message("directory");
    assert_int_equal(tt_file_write_atomic(in_root("no/such/folder"), "x", 1), TT_ERR_DATA);
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

/* Pipes, sockets and devices are refused at once by everything that opens a file: a pipe without a writer, or
 * without a reader, would be waited for. */
static void only_regular_files(void **state)
{
    (void)state;
    struct tt_str data = {0};
    struct tt_file_map map;
    int descriptor = -1;
    uint64_t bytes;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", in_root("socket"));
    assert_int_equal(bind(server, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(mkfifo(in_root("pipe"), 0600), 0);
    assert_int_equal(symlink("pipe", in_root("to-pipe")), 0);
    const char *const names[][2] = {{in_root("pipe"), "a pipe"},
                                    {in_root("to-pipe"), "a pipe"},
                                    {in_root("socket"), "a socket"},
                                    {"/dev/zero", "a device"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(tt_file_read(names[i][0], 1 << 20, &data), TT_ERR_DATA);
        assert_message(names[i][1]);
        assert_int_equal(tt_file_open_read(names[i][0], &descriptor, &bytes), TT_ERR_DATA);
        assert_int_equal(tt_file_map_open(names[i][0], &map), TT_ERR_DATA);
        char copy[256];
        snprintf(copy, sizeof copy, "%s/copy", root);
        assert_int_equal(tt_file_copy(names[i][0], copy), TT_ERR_DATA);
        assert_false(tt_path_exists(copy));
        assert_int_equal(tt_file_create(names[i][0], 0, &descriptor), TT_ERR_DATA);
        assert_int_equal(tt_file_open_shared(names[i][0], 8, &descriptor), TT_ERR_DATA);
    }
    assert_int_equal(descriptor, -1);
    close(server);
    assert_int_equal(unlink(in_root("pipe")) | unlink(in_root("to-pipe")) | unlink(in_root("socket")), 0);
}

/* A link where a file is to be written is refused; what it points at stays as it was. */
static void planted_links(void **state)
{
    (void)state;
    struct tt_str data = {0};
    int descriptor = -1;
    assert_int_equal(tt_file_write_atomic(in_root("secret"), "kept", 4), TT_OK);
    assert_int_equal(symlink("secret", in_root("log")), 0);
    assert_int_equal(symlink("not-there", in_root("dangling")), 0);
    assert_int_equal(tt_file_create(in_root("log"), 0, &descriptor), TT_ERR_DATA);
    assert_message("it is a link");
    assert_int_equal(tt_file_open_shared(in_root("dangling"), 10, &descriptor), TT_ERR_DATA);
    assert_message("it is a link");
    assert_int_equal(descriptor, -1);
    assert_false(tt_path_exists(in_root("not-there")));
    assert_int_equal(tt_file_read(in_root("secret"), 10, &data), TT_OK);
    assert_string_equal(data.data, "kept");
    tt_str_deinit(&data);
    assert_int_equal(unlink(in_root("log")) | unlink(in_root("dangling")) | unlink(in_root("secret")), 0);
}

static tt_status copy_inside(const char *folder, const char *name, uint64_t max_bytes)
{
    return tt_file_copy_inside(in_root(folder), name, max_bytes, in_root("copied"));
}

/* Files that are copied from a stranger's folder: links stay inside it, or have the form of the hub's cache.
 */
static void copies_stay_inside(void **state)
{
    (void)state;
#define HASH "0123456789abcdef0123456789abcdef01234567"
    assert_int_equal(tt_dir_create(in_root("hub/blobs")), TT_OK);
    assert_int_equal(tt_dir_create(in_root("hub/snapshots/r1/sub")), TT_OK);
    assert_int_equal(tt_dir_create(in_root("hub2/blobs")), TT_OK);
    assert_int_equal(tt_file_write_atomic(in_root("hub/blobs/" HASH), "blob", 4), TT_OK);
    assert_int_equal(tt_file_write_atomic(in_root("hub2/blobs/" HASH), "blob", 4), TT_OK);
    assert_int_equal(tt_file_write_atomic(in_root("hub/blobs/secret"), "blob", 4), TT_OK);
    assert_int_equal(tt_file_write_atomic(in_root("hub/outside"), "out", 3), TT_OK);
    assert_int_equal(tt_file_write_atomic(in_root("hub/snapshots/r1/plain"), "plain", 5), TT_OK);
    static const struct {
        const char *name, *target;
        tt_status status;
    } links[] = {
        {"within", "plain", TT_OK},
        {"sub/up", "../plain", TT_OK},
        {"blob", "../../blobs/" HASH, TT_OK},
        {"sub/blob", "../../../blobs/" HASH, TT_OK},
        {"named", "../../blobs/secret", TT_ERR_DATA},        /* no hash */
        {"other", "../../../hub2/blobs/" HASH, TT_ERR_DATA}, /* another model's */
        {"out", "../../outside", TT_ERR_DATA},
        {"password", "/etc/passwd", TT_ERR_DATA},
        {"device", "/dev/zero", TT_ERR_DATA},
    };
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        char path[128];
        snprintf(path, sizeof path, "hub/snapshots/r1/%s", links[i].name);
        assert_int_equal(symlink(links[i].target, in_root(path)), 0);
        tt_status status = copy_inside("hub/snapshots/r1", links[i].name, 100);
        if (status != links[i].status) fail_msg("%s: %s", links[i].name, tt_status_name(status));
        assert_int_equal(tt_path_exists(in_root("copied")), status == TT_OK);
        if (status == TT_OK) assert_int_equal(unlink(in_root("copied")), 0);
    }
    /* The same folder by another name, and one whose sibling begins as it does. */
    assert_int_equal(symlink("hub/snapshots/r1", in_root("model")), 0);
    assert_int_equal(copy_inside("model", "within", 100), TT_OK);
    assert_int_equal(copy_inside("model", "blob", 4), TT_OK);
    assert_int_equal(copy_inside("model", "blob", 3), TT_ERR_DATA);
    assert_message("more than the 3 bytes");
    assert_int_equal(tt_dir_create(in_root("hub/snapshots/r1-b")), TT_OK);
    assert_int_equal(tt_file_write_atomic(in_root("hub/snapshots/r1-b/f"), "f", 1), TT_OK);
    assert_int_equal(symlink("../r1-b/f", in_root("hub/snapshots/r1/sibling")), 0);
    assert_int_equal(copy_inside("model", "sibling", 100), TT_ERR_DATA);
    assert_message("leaves the folder");
    assert_int_equal(tt_dir_remove(in_root("hub")), TT_OK);
    assert_int_equal(tt_dir_remove(in_root("hub2")), TT_OK);
    assert_int_equal(unlink(in_root("copied")) | unlink(in_root("model")), 0);
}

static void folders(void **state)
{
    (void)state;
    assert_int_equal(tt_dir_create(in_root("x/y/z")), TT_OK);
    assert_int_equal(tt_dir_create(in_root("x/y/z/")), TT_OK);
    assert_int_equal(tt_file_write_atomic(in_root("x/f"), "1", 1), TT_OK);
    assert_int_equal(tt_dir_create(in_root("x/f")), TT_ERR_DATA);
    assert_int_equal(tt_dir_create(in_root("x/f/g")), TT_ERR_DATA);
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
    assert_int_equal(tt_dir_commit(in_root("new"), in_root("final")), TT_ERR_DATA);
    assert_entries(in_root("final"), "g ");
}

static void paths(void **state)
{
    static const char *const cases[][3] = {
        {"a/", "b", "a/b"}, {"a", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}, {"a", "", "a/"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_path path;
        char *joined = tt_path_join(cases[i][0], cases[i][1]);
        assert_string_equal(joined, cases[i][2]);
        tt_free(joined);
        assert_int_equal(tt_path_set(&path, cases[i][0], cases[i][1]), TT_OK);
        assert_string_equal(path.text, cases[i][2]);
    }
    assert_string_equal(tt_path_basename("a/b/c"), "c");
    assert_string_equal(tt_path_basename("c"), "c");
}

/* The longest path that Linux takes, and one byte more. */
static void long_paths(void **state)
{
    struct tt_path path;
    char name[TT_PATH_BYTES];
    (void)state;
    memset(name, 'x', sizeof name);
    name[TT_PATH_BYTES - 1 - 7] = '\0';
    assert_int_equal(tt_path_set(&path, "folder", name), TT_OK);
    assert_int_equal(strlen(path.text), TT_PATH_BYTES - 1);
    assert_int_equal(tt_path_set(&path, "folder/", name), TT_OK);
    assert_int_equal(tt_path_set(&path, "folder2", name), TT_ERR_IO);
    assert_non_null(strstr(tt_error_last()->message, "in 'folder2' is longer than 4095 bytes"));
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
        cmocka_unit_test(write_and_read),
        cmocka_unit_test(permissions),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(positioned),
        cmocka_unit_test(only_regular_files),
        cmocka_unit_test(planted_links),
        cmocka_unit_test(copies_stay_inside),
        cmocka_unit_test(folders),
        cmocka_unit_test(commit),
        cmocka_unit_test(paths),
        cmocka_unit_test(long_paths),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
