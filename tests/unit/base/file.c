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
#include "support/allocations.h"
#include "support/root.h"

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
    assert_int_equal(tt_file_write_atomic(test_at("a"), "one\0two", 7), TT_OK);
    assert_int_equal(tt_file_read(test_at("a"), 7, &data), TT_OK);
    assert_int_equal(data.bytes, 7);
    assert_memory_equal(data.data, "one\0two", 8);
    assert_int_equal(tt_file_read(test_at("a"), 6, &data), TT_ERR_DATA);
    assert_int_equal(data.bytes, 7);
    assert_int_equal(tt_file_write_atomic(test_at("a"), "", 0), TT_OK);
    assert_int_equal(tt_file_read(test_at("a"), 0, &data), TT_OK);
    assert_int_equal(data.bytes, 0);
    assert_int_equal(data.data[0], 0);
    assert_int_equal(tt_file_read(test_at("absent"), 10, &data), TT_ERR_DATA);
    assert_message("absent");
    assert_message("No such file");
    assert_int_equal(tt_file_read(test_root(), 10, &data), TT_ERR_DATA);
    assert_message("directory");
    assert_int_equal(tt_file_write_atomic(test_at("no/such/folder"), "x", 1), TT_ERR_DATA);
    assert_entries(test_root(), "a ");
    tt_str_deinit(&data);
}

/* A new file gets the permissions that the umask leaves, as any other program's. */
static void permissions(void **state)
{
    (void)state;
    mode_t before = umask(027);
    assert_int_equal(tt_file_write_atomic(test_at("mode"), "x", 1), TT_OK);
    umask(before);
    struct stat info;
    assert_int_equal(stat(test_at("mode"), &info), 0);
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
    uint64_t free_bytes = 0, block = 0;
    assert_int_equal(tt_dir_free_bytes(test_root(), &free_bytes, &block), TT_OK);
    assert_true(block > 0 && free_bytes % block == 0);
    /* File systems that cannot reserve blocks make a sparse file instead. */
    tt_status status = tt_file_create(test_at("huge"), (uint64_t)1 << 60, &descriptor);
    if (status == TT_OK) {
        tt_file_close(descriptor);
    } else {
        assert_int_equal(status, TT_ERR_IO);
        assert_message("huge");
    }
    assert_int_equal(unlink(test_at("huge")), 0);
}

static void positioned(void **state)
{
    (void)state;
    int descriptor = -1;
    uint64_t bytes = 0;
    char back[8] = {0};
    assert_int_equal(tt_file_create(test_at("p"), 10, &descriptor), TT_OK);
    assert_int_equal(tt_file_pwrite(descriptor, "p", "tail", 4, 6), TT_OK);
    assert_int_equal(tt_file_sync_close(descriptor, "p"), TT_OK);
    assert_int_equal(tt_file_open_read(test_at("p"), &descriptor, &bytes), TT_OK);
    assert_int_equal(bytes, 10);
    assert_int_equal(tt_file_pread(descriptor, "p", back, 4, 6), TT_OK);
    assert_string_equal(back, "tail");
    assert_int_equal(tt_file_pread(descriptor, "p", back, 5, 6), TT_ERR_DATA);
    assert_message("4 read");
    tt_file_close(descriptor);
    assert_int_equal(tt_file_copy(test_at("p"), test_at("q")), TT_OK);
    struct tt_file_map p = {0}, q = {0};
    assert_int_equal(tt_file_map_open(test_at("p"), &p), TT_OK);
    assert_int_equal(tt_file_map_open(test_at("q"), &q), TT_OK);
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
    snprintf(address.sun_path, sizeof address.sun_path, "%s", test_at("socket"));
    assert_int_equal(bind(server, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(mkfifo(test_at("pipe"), 0600), 0);
    assert_int_equal(symlink("pipe", test_at("to-pipe")), 0);
    const char *const names[][2] = {{test_at("pipe"), "a pipe"},
                                    {test_at("to-pipe"), "a pipe"},
                                    {test_at("socket"), "a socket"},
                                    {"/dev/zero", "a device"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(tt_file_read(names[i][0], 1 << 20, &data), TT_ERR_DATA);
        assert_message(names[i][1]);
        assert_int_equal(tt_file_open_read(names[i][0], &descriptor, &bytes), TT_ERR_DATA);
        assert_int_equal(tt_file_map_open(names[i][0], &map), TT_ERR_DATA);
        char copy[256];
        snprintf(copy, sizeof copy, "%s/copy", test_root());
        assert_int_equal(tt_file_copy(names[i][0], copy), TT_ERR_DATA);
        assert_false(tt_path_exists(copy));
        assert_int_equal(tt_file_create(names[i][0], 0, &descriptor), TT_ERR_DATA);
        assert_int_equal(tt_file_open_shared(names[i][0], 8, &descriptor), TT_ERR_DATA);
    }
    assert_int_equal(descriptor, -1);
    close(server);
    assert_int_equal(unlink(test_at("pipe")) | unlink(test_at("to-pipe")) | unlink(test_at("socket")), 0);
}

/* A link where a file is to be written is refused; what it points at stays as it was. */
static void planted_links(void **state)
{
    (void)state;
    struct tt_str data = {0};
    int descriptor = -1;
    assert_int_equal(tt_file_write_atomic(test_at("secret"), "kept", 4), TT_OK);
    assert_int_equal(symlink("secret", test_at("log")), 0);
    assert_int_equal(symlink("not-there", test_at("dangling")), 0);
    assert_int_equal(tt_file_create(test_at("log"), 0, &descriptor), TT_ERR_DATA);
    assert_message("it is a link");
    assert_int_equal(tt_file_open_shared(test_at("dangling"), 10, &descriptor), TT_ERR_DATA);
    assert_message("it is a link");
    assert_int_equal(descriptor, -1);
    assert_false(tt_path_exists(test_at("not-there")));
    assert_int_equal(tt_file_read(test_at("secret"), 10, &data), TT_OK);
    assert_string_equal(data.data, "kept");
    tt_str_deinit(&data);
    assert_int_equal(unlink(test_at("log")) | unlink(test_at("dangling")) | unlink(test_at("secret")), 0);
}

static tt_status copy_inside(const char *folder, const char *name, uint64_t max_bytes)
{
    return tt_file_copy_inside(test_at(folder), name, max_bytes, test_at("copied"));
}

/* Files that are copied from a stranger's folder: links stay inside it, or have the form of the hub's cache.
 */
static void copies_stay_inside(void **state)
{
    (void)state;
#define HASH "0123456789abcdef0123456789abcdef01234567"
    assert_int_equal(tt_dir_create(test_at("hub/blobs")), TT_OK);
    assert_int_equal(tt_dir_create(test_at("hub/snapshots/r1/sub")), TT_OK);
    assert_int_equal(tt_dir_create(test_at("hub2/blobs")), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("hub/blobs/" HASH), "blob", 4), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("hub2/blobs/" HASH), "blob", 4), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("hub/blobs/secret"), "blob", 4), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("hub/outside"), "out", 3), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("hub/snapshots/r1/plain"), "plain", 5), TT_OK);
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
        assert_int_equal(symlink(links[i].target, test_at(path)), 0);
        tt_status status = copy_inside("hub/snapshots/r1", links[i].name, 100);
        if (status != links[i].status) fail_msg("%s: %s", links[i].name, tt_status_name(status));
        assert_int_equal(tt_path_exists(test_at("copied")), status == TT_OK);
        if (status == TT_OK) assert_int_equal(unlink(test_at("copied")), 0);
    }
    /* The same folder by another name, and one whose sibling begins as it does. */
    assert_int_equal(symlink("hub/snapshots/r1", test_at("model")), 0);
    assert_int_equal(copy_inside("model", "within", 100), TT_OK);
    assert_int_equal(copy_inside("model", "blob", 4), TT_OK);
    assert_int_equal(copy_inside("model", "blob", 3), TT_ERR_DATA);
    assert_message("larger than the expected 3 bytes");
    assert_int_equal(tt_dir_create(test_at("hub/snapshots/r1-b")), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("hub/snapshots/r1-b/f"), "f", 1), TT_OK);
    assert_int_equal(symlink("../r1-b/f", test_at("hub/snapshots/r1/sibling")), 0);
    assert_int_equal(copy_inside("model", "sibling", 100), TT_ERR_DATA);
    assert_message("leaves the folder");
    assert_int_equal(tt_dir_remove(test_at("hub")), TT_OK);
    assert_int_equal(tt_dir_remove(test_at("hub2")), TT_OK);
    assert_int_equal(unlink(test_at("copied")) | unlink(test_at("model")), 0);
}

static void folders(void **state)
{
    (void)state;
    assert_int_equal(tt_dir_create(test_at("x/y/z")), TT_OK);
    assert_int_equal(tt_dir_create(test_at("x/y/z/")), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("x/f"), "1", 1), TT_OK);
    assert_int_equal(tt_dir_create(test_at("x/f")), TT_ERR_DATA);
    assert_int_equal(tt_dir_create(test_at("x/f/g")), TT_ERR_DATA);
    assert_int_equal(tt_dir_create(""), TT_ERR_USAGE);
    assert_entries(test_at("x"), "f y ");
    /* A link out of the tree is removed, what it points at stays. */
    assert_int_equal(tt_file_write_atomic(test_at("keep"), "1", 1), TT_OK);
    assert_int_equal(symlink(test_at("keep"), test_at("x/link")), 0);
    assert_int_equal(tt_dir_remove(test_at("x")), TT_OK);
    assert_false(tt_path_exists(test_at("x")));
    assert_true(tt_path_exists(test_at("keep")));
    assert_int_equal(tt_dir_remove(test_at("x")), TT_OK);
}

static void commit(void **state)
{
    (void)state;
    assert_int_equal(tt_dir_create(test_at("new/sub")), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("new/sub/f"), "1", 1), TT_OK);
    assert_int_equal(tt_dir_commit(test_at("new"), test_at("final")), TT_OK);
    assert_true(tt_path_exists(test_at("final/sub/f")));
    assert_false(tt_path_exists(test_at("new")));
    assert_int_equal(tt_dir_create(test_at("new")), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("new/g"), "2", 1), TT_OK);
    assert_int_equal(tt_dir_commit(test_at("new"), test_at("final")), TT_OK);
    assert_entries(test_at("final"), "g ");
    assert_false(tt_path_exists(test_at("new")));
    assert_int_equal(tt_dir_commit(test_at("new"), test_at("final")), TT_ERR_DATA);
    assert_entries(test_at("final"), "g ");
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

static tt_status use_files(void *context)
{
    struct tt_str data = {0};
    (void)context;
    tt_status status = tt_dir_create(test_at("t"));
    if (status == TT_OK) status = tt_file_write_atomic(test_at("t/f"), "content", 7);
    if (status == TT_OK) status = tt_file_copy(test_at("t/f"), test_at("t/g"));
    if (status == TT_OK) status = tt_file_read(test_at("t/g"), 100, &data);
    if (status == TT_OK) status = tt_dir_list(test_at("t"), count_entry, &data);
    if (status == TT_OK) status = tt_dir_commit(test_at("t"), test_at("t-final"));
    tt_str_deinit(&data);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    test_allocations_fail(use_files, NULL);
    /* Nothing temporary is left behind. */
    assert_entries(test_at("t-final"), "f g ");
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
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
