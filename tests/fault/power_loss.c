/* A loss of power at any moment of a run, on a disk that forgets what was not flushed: writes of a file until
 * its fsync, names of a folder until the folder's. The calls that change the file system are replaced here by
 * ones that also record what they do; after the run the state of the disk is worked out for moments of it,
 * and looked at: a checkpoint that was reported as saved, or a newer one, is whole, and so is the former or
 * the new result.
 *
 * In full: TT_TEST_STRIDE=1 (default: after every 5th change). */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "checkpoint/manifest.h"
#include "support/train_run.h"
#include "support/workplace.h"

enum { OPS_MAX = 20000, NODES_MAX = 8000, FILES_MAX = 1024, NAME_BYTES = 128, ROOT = 0, NONE = -1 };

/* LINK gives `node` a name in folder `folder`, UNLINK takes it away, MOVE does both at once, EXCHANGE swaps
 * two names. */
enum kind { WRITE, RESIZE, FLUSH, LINK, UNLINK, MOVE, EXCHANGE, REPORT };

struct op {
    enum kind kind;
    int node, folder, to_folder;
    char name[NAME_BYTES], to_name[NAME_BYTES];
    uint64_t offset, bytes;
    void *data;
    int64_t step; /* REPORT: of the checkpoint; 0: the result */
};

static struct {
    pthread_mutex_t mutex;
    bool on;
    struct op ops[OPS_MAX];
    int op_count;
    ino_t inodes[NODES_MAX]; /* of the nodes; the newest with a number has it */
    bool folders[NODES_MAX];
    int node_count;
    int nodes_of_files[FILES_MAX]; /* by descriptor */
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- Recording ---- */

static int node_of(ino_t inode)
{
    for (int n = disk.node_count - 1; n >= 0; n--)
        if (disk.inodes[n] == inode) return n;
    return NONE;
}

static int node_at(const char *path)
{
    struct stat info;
    return disk.on && lstat(path, &info) == 0 ? node_of(info.st_ino) : NONE;
}

/* The folder that holds `path`; NONE when it is not below the root. */
static int folder_of(const char *path, char name[NAME_BYTES])
{
    char parent[1024];
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') bytes--;
    snprintf(parent, sizeof parent, "%.*s", (int)bytes, path);
    char *slash = strrchr(parent, '/');
    if (slash == NULL) return NONE;
    snprintf(name, NAME_BYTES, "%s", slash + 1);
    *slash = '\0';
    return node_at(parent);
}

static struct op *add_op(enum kind kind, int node)
{
    if (disk.op_count == OPS_MAX) abort();
    struct op *op = &disk.ops[disk.op_count++];
    *op = (struct op){.kind = kind, .node = node};
    return op;
}

static int add_node(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0 || disk.node_count == NODES_MAX) abort();
    disk.inodes[disk.node_count] = info.st_ino;
    disk.folders[disk.node_count] = S_ISDIR(info.st_mode);
    return disk.node_count++;
}

static void add_entry(enum kind kind, int node, const char *path)
{
    char name[NAME_BYTES];
    int folder = folder_of(path, name);
    struct op *op = add_op(kind, node);
    op->folder = folder;
    memcpy(op->name, name, sizeof name);
}

static void add_data(int node, const void *data, size_t bytes, uint64_t offset)
{
    struct op *op = add_op(WRITE, node);
    op->offset = offset;
    op->bytes = bytes;
    op->data = malloc(bytes + 1);
    if (op->data == NULL) abort();
    memcpy(op->data, data, bytes);
}

static void add_size(int file, uint64_t bytes)
{
    if (disk.on && file < FILES_MAX && disk.nodes_of_files[file] != NONE)
        add_op(RESIZE, disk.nodes_of_files[file])->bytes = bytes;
}

/* ---- The calls ---- */

static int checked(long result)
{
    return (int)result; /* syscall() sets errno */
}

static int open_recorded(const char *path, int flags, unsigned mode)
{
    char name[NAME_BYTES];
    struct stat info;
    pthread_mutex_lock(&disk.mutex);
    bool inside = disk.on && folder_of(path, name) != NONE;
    bool creates = inside && (flags & O_CREAT) != 0 && lstat(path, &info) != 0;
    int file = checked(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
    if (file >= FILES_MAX) abort();
    if (file >= 0) disk.nodes_of_files[file] = NONE;
    if (file >= 0 && creates) add_entry(LINK, add_node(path), path);
    if (file >= 0 && disk.on && fstat(file, &info) == 0) disk.nodes_of_files[file] = node_of(info.st_ino);
    if (file >= 0 && inside && !creates && (flags & O_TRUNC) != 0) add_size(file, 0);
    pthread_mutex_unlock(&disk.mutex);
    return file;
}

#define REPLACES __attribute__((visibility("default")))

REPLACES int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = (flags & O_CREAT) != 0 ? va_arg(arguments, unsigned) : 0;
    va_end(arguments);
    return open_recorded(path, flags, mode);
}

REPLACES ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset)
{
    pthread_mutex_lock(&disk.mutex);
    ssize_t done = syscall(SYS_pwrite64, file, data, bytes, offset);
    if (done > 0 && disk.on && disk.nodes_of_files[file] != NONE)
        add_data(disk.nodes_of_files[file], data, (size_t)done, (uint64_t)offset);
    pthread_mutex_unlock(&disk.mutex);
    return done;
}

REPLACES int ftruncate(int file, off_t bytes)
{
    pthread_mutex_lock(&disk.mutex);
    int result = checked(syscall(SYS_ftruncate, file, bytes));
    if (result == 0) add_size(file, (uint64_t)bytes);
    pthread_mutex_unlock(&disk.mutex);
    return result;
}

REPLACES int fallocate(int file, int mode, off_t offset, off_t bytes)
{
    pthread_mutex_lock(&disk.mutex);
    int result = checked(syscall(SYS_fallocate, file, mode, offset, bytes));
    if (result == 0) add_size(file, (uint64_t)(offset + bytes));
    pthread_mutex_unlock(&disk.mutex);
    return result;
}

/* The test's own disk need not do it. */
REPLACES int fsync(int file)
{
    pthread_mutex_lock(&disk.mutex);
    if (disk.on && disk.nodes_of_files[file] != NONE) (void)add_op(FLUSH, disk.nodes_of_files[file]);
    pthread_mutex_unlock(&disk.mutex);
    return 0;
}

static void add_move(enum kind kind, int node, const char *from, const char *to)
{
    add_entry(kind, node, from);
    struct op *op = &disk.ops[disk.op_count - 1];
    op->to_folder = folder_of(to, op->to_name);
}

REPLACES int rename(const char *from, const char *to)
{
    pthread_mutex_lock(&disk.mutex);
    int node = node_at(from), result = checked(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
    if (result == 0 && node != NONE) add_move(MOVE, node, from, to);
    pthread_mutex_unlock(&disk.mutex);
    return result;
}

REPLACES int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    pthread_mutex_lock(&disk.mutex);
    int node = node_at(from),
        result = checked(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
    if (result == 0 && node != NONE) add_move((flags & 2) != 0 ? EXCHANGE : MOVE, node, from, to);
    pthread_mutex_unlock(&disk.mutex);
    return result;
}

REPLACES int mkdir(const char *path, mode_t mode)
{
    char name[NAME_BYTES];
    pthread_mutex_lock(&disk.mutex);
    int result = checked(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
    if (result == 0 && folder_of(path, name) != NONE) add_entry(LINK, add_node(path), path);
    pthread_mutex_unlock(&disk.mutex);
    return result;
}

static int remove_recorded(const char *path, int flags)
{
    pthread_mutex_lock(&disk.mutex);
    int node = node_at(path), result = checked(syscall(SYS_unlinkat, AT_FDCWD, path, flags));
    if (result == 0 && node != NONE) add_entry(UNLINK, node, path);
    pthread_mutex_unlock(&disk.mutex);
    return result;
}

REPLACES int unlink(const char *path)
{
    return remove_recorded(path, 0);
}

REPLACES int rmdir(const char *path)
{
    return remove_recorded(path, AT_REMOVEDIR);
}

REPLACES int remove(const char *path)
{
    struct stat info;
    return remove_recorded(path, lstat(path, &info) == 0 && S_ISDIR(info.st_mode) ? AT_REMOVEDIR : 0);
}

/* ---- The disk after a loss of power ---- */

/* What becomes of changes to names that were not flushed. All of them, none, removals alone, or any half of
 * them. */
enum loss { LOSE_ALL, LOSE_NONE, KEEP_REMOVALS, LOSE_SOME, LOSS_COUNT };

static bool is_flushed(int at, int node, int end)
{
    for (int i = at + 1; i < end; i++)
        if (disk.ops[i].kind == FLUSH && disk.ops[i].node == node) return true;
    return false;
}

static bool is_kept(int at, int end, enum loss loss)
{
    const struct op *op = &disk.ops[at];
    /* A move is there with its new name; that the old one is still there too would do no harm. */
    bool flushed = is_flushed(at, op->kind == MOVE ? op->to_folder : op->folder, end);
    if (flushed || loss == LOSE_NONE) return true;
    if (loss == KEEP_REMOVALS) return op->kind == UNLINK;
    return loss == LOSE_SOME && ((unsigned)at * 2654435761u + (unsigned)end) % 7 < 4;
}

struct entry {
    int folder, node;
    char name[NAME_BYTES];
};

static struct entry entries[NODES_MAX];
static int entry_count;

static struct entry *find_entry(int folder, const char *name)
{
    for (int i = 0; i < entry_count; i++)
        if (entries[i].folder == folder && strcmp(entries[i].name, name) == 0) return &entries[i];
    return NULL;
}

static void set_entry(int folder, const char *name, int node)
{
    struct entry *entry = find_entry(folder, name);
    if (entry == NULL) {
        if (entry_count == NODES_MAX) abort();
        entry = &entries[entry_count++];
        entry->folder = folder;
        snprintf(entry->name, sizeof entry->name, "%s", name);
    }
    entry->node = node;
}

static void drop_entry(int folder, const char *name)
{
    struct entry *entry = find_entry(folder, name);
    if (entry != NULL) *entry = entries[--entry_count];
}

static void apply_entry(const struct op *op)
{
    if (op->kind == LINK) set_entry(op->folder, op->name, op->node);
    if (op->kind == UNLINK) drop_entry(op->folder, op->name);
    if (op->kind == MOVE) {
        drop_entry(op->folder, op->name);
        set_entry(op->to_folder, op->to_name, op->node);
    }
    struct entry *a = find_entry(op->folder, op->name), *b = find_entry(op->to_folder, op->to_name);
    if (op->kind == EXCHANGE && a != NULL && b != NULL) {
        int node = a->node;
        a->node = b->node;
        b->node = node;
    }
}

/* Of a file that part which was flushed. */
static void write_file(const char *path, int node, int end)
{
    int file = checked(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666)), last = 0;
    if (file < 0) abort();
    for (int i = 0; i < end; i++)
        if (disk.ops[i].kind == FLUSH && disk.ops[i].node == node) last = i;
    for (int i = 0; i < last; i++) {
        const struct op *op = &disk.ops[i];
        if (op->node != node) continue;
        if (op->kind == RESIZE) (void)!syscall(SYS_ftruncate, file, op->bytes);
        if (op->kind == WRITE) (void)!syscall(SYS_pwrite64, file, op->data, op->bytes, op->offset);
    }
    close(file);
}

static void write_folder(const char *path, int folder, int end)
{
    (void)!syscall(SYS_mkdirat, AT_FDCWD, path, 0777);
    for (int i = 0; i < entry_count; i++) {
        char inside[1024];
        if (entries[i].folder != folder) continue;
        snprintf(inside, sizeof inside, "%s/%s", path, entries[i].name);
        if (disk.folders[entries[i].node])
            write_folder(inside, entries[i].node, end);
        else
            write_file(inside, entries[i].node, end);
    }
}

static void lose_power(const char *path, int end, enum loss loss)
{
    entry_count = 0;
    for (int i = 0; i < end; i++) {
        enum kind kind = disk.ops[i].kind;
        if (kind >= LINK && kind <= EXCHANGE && is_kept(i, end, loss)) apply_entry(&disk.ops[i]);
    }
    write_folder(path, ROOT, end);
}

/* ---- The test ---- */

static void on_save(void *context, const char *folder, double seconds)
{
    (void)context, (void)seconds;
    const char *number = strstr(folder, "checkpoint-");
    pthread_mutex_lock(&disk.mutex);
    add_op(REPORT, NONE)->step = number != NULL ? atoll(number + strlen("checkpoint-")) : 0;
    pthread_mutex_unlock(&disk.mutex);
}

static tt_status train(const struct test_workplace *place, const char *more, char output[TEST_PATH_BYTES])
{
    struct test_words words = {0};
    struct tt_train_summary summary;
    const struct tt_train_observer observer = {.on_save = on_save};
    test_words_pair(&words, "model_name_or_path", place->model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_add(&words,
                   "threads 1 ranks 2 max_steps 6 save_steps 2 save_total_limit 1 lora_r 2 report_to none "
                   "overwrite_output_dir true learning_rate 0.01");
    test_words_add(&words, more);
    return test_train_watched(words.list, test_workplace_path(place, "disk/out", output), &observer, NULL,
                              &summary);
}

static bool is_whole(const char *output, int64_t step)
{
    struct tt_manifest manifest = {0};
    char *path = tt_checkpoint_path(output, step);
    assert_non_null(path);
    bool whole =
        tt_manifest_read(path, &manifest) == TT_OK && tt_manifest_verify(&manifest, path, NULL) == TT_OK;
    tt_manifest_deinit(&manifest);
    tt_free(path);
    return whole;
}

static bool has_whole_since(const char *output, int64_t step)
{
    int64_t *steps = NULL;
    size_t count = 0;
    bool found = false;
    if (!tt_path_is_dir(output)) return false;
    assert_int_equal(tt_checkpoint_list(output, &steps, &count), TT_OK);
    for (size_t i = 0; i < count && !found; i++) found = steps[i] >= step && is_whole(output, steps[i]);
    tt_free(steps);
    return found;
}

static bool are_same(const char *a, const char *b)
{
    struct tt_str x = {0}, y = {0};
    bool same = tt_file_read(a, 1 << 26, &x) == TT_OK && tt_file_read(b, 1 << 26, &y) == TT_OK &&
                x.bytes == y.bytes && memcmp(x.data, y.data, x.bytes) == 0;
    tt_str_deinit(&x);
    tt_str_deinit(&y);
    return same;
}

/* What must be there after the first `end` changes. */
static void check_disk(const struct test_workplace *place, int end, enum loss loss)
{
    char after[TEST_PATH_BYTES], output[TEST_PATH_BYTES], weights[TEST_PATH_BYTES], former[TEST_PATH_BYTES],
        latest[TEST_PATH_BYTES];
    int64_t reported = 0;
    bool result = false;
    for (int i = 0; i < end; i++) {
        if (disk.ops[i].kind != REPORT) continue;
        if (disk.ops[i].step > reported) reported = disk.ops[i].step;
        result |= disk.ops[i].step == 0;
    }
    test_workplace_path(place, "after", after);
    assert_int_equal(tt_dir_remove(after), TT_OK);
    lose_power(after, end, loss);
    test_join(after, "out", output);
    if (reported > 0 && !has_whole_since(output, reported))
        fail_msg("after change %d of %d, loss %d: checkpoint-%lld was saved, and neither it nor a later one "
                 "is whole",
                 end, disk.op_count, (int)loss, (long long)reported);
    test_join(output, "adapter_model.safetensors", weights);
    bool is_former = are_same(weights, test_workplace_path(place, "former.safetensors", former));
    bool is_latest = are_same(weights, test_workplace_path(place, "latest.safetensors", latest));
    if (!is_latest && (result || !is_former))
        fail_msg("after change %d of %d, loss %d: the result is %s", end, disk.op_count, (int)loss,
                 is_former ? "the former one, and a new one was reported" : "torn or gone");
}

/* What is there before the run is on the disk. */
static void add_baseline(const char *path, int folder)
{
    char command[2 * TEST_PATH_BYTES], name[1024];
    snprintf(command, sizeof command, "find '%s' -mindepth 1 -maxdepth 1", path);
    FILE *list = popen(command, "r");
    assert_non_null(list);
    while (fgets(name, sizeof name, list) != NULL) {
        struct tt_str bytes = {0};
        name[strcspn(name, "\n")] = '\0';
        int node = add_node(name);
        add_entry(LINK, node, name);
        if (disk.folders[node]) {
            add_baseline(name, node);
            continue;
        }
        assert_int_equal(tt_file_read(name, 1 << 26, &bytes), TT_OK);
        add_data(node, bytes.data, bytes.bytes, 0);
        (void)add_op(FLUSH, node);
        tt_str_deinit(&bytes);
    }
    pclose(list);
    (void)add_op(FLUSH, folder);
}

static void begin_recording(const char *root)
{
    disk.op_count = disk.node_count = 0;
    for (int i = 0; i < FILES_MAX; i++) disk.nodes_of_files[i] = NONE;
    disk.on = true;
    assert_int_equal(add_node(root), ROOT);
}

static void end_recording(void)
{
    for (int i = 0; i < disk.op_count; i++) free(disk.ops[i].data);
    disk.op_count = 0;
}

static void nothing_saved_is_lost(void **state)
{
    (void)state;
    struct test_workplace place;
    char root[TEST_PATH_BYTES], output[TEST_PATH_BYTES], weights[TEST_PATH_BYTES], copy[TEST_PATH_BYTES];
    const char *setting = getenv("TT_TEST_STRIDE");
    int stride = setting != NULL && atoi(setting) > 0 ? atoi(setting) : 5;
    test_workplace_create("llama2", &place);
    test_workplace_path(&place, "disk", root);
    assert_int_equal(tt_dir_create(root), TT_OK);
    assert_int_equal(train(&place, "seed 3", output), TT_OK);
    test_join(output, "adapter_model.safetensors", weights);
    test_copy_file(weights, test_workplace_path(&place, "former.safetensors", copy));
    /* Records that cannot be written: the result is on the disk without the flushes that come with them. */
    for (int i = 0; i < 2; i++) {
        test_join(output, i == 0 ? "trainer_state.json" : "trimtab_config.yaml", copy);
        assert_int_equal(tt_dir_remove(copy), TT_OK);
        assert_int_equal(tt_dir_create(copy), TT_OK);
    }
    begin_recording(root);
    add_baseline(root, ROOT);
    int begin = disk.op_count;
    assert_int_equal(train(&place, "seed 4", output), TT_OK);
    disk.on = false;
    test_copy_file(weights, test_workplace_path(&place, "latest.safetensors", copy));
    for (int end = begin; end <= disk.op_count;
         end += end + stride > disk.op_count && end < disk.op_count ? disk.op_count - end : stride)
        for (int loss = 0; loss < LOSS_COUNT; loss++) check_disk(&place, end, (enum loss)loss);
    printf("%d changes, power lost after every %d\n", disk.op_count - begin, stride);
    assert_true(disk.op_count - begin > 100);
    end_recording();
    test_workplace_remove(&place);
}

static void expect_file(const struct test_workplace *place, const char *name)
{
    char path[TEST_PATH_BYTES];
    struct tt_str text = {0};
    if (tt_file_read(test_workplace_path(place, name, path), 64, &text) != TT_OK || text.bytes != 4)
        fail_msg("'%s' is torn or gone", name);
    tt_str_deinit(&text);
}

/* What base/file.h says: a file that has been written and a folder that has been committed, with all that is
 * in it, are there. */
static void what_is_committed_is_there(void **state)
{
    (void)state;
    struct test_workplace place;
    char root[TEST_PATH_BYTES], path[TEST_PATH_BYTES], final[TEST_PATH_BYTES];
    int file = -1;
    test_workplace_create("llama2", &place);
    test_workplace_path(&place, "disk", root);
    assert_int_equal(tt_dir_create(root), TT_OK);
    begin_recording(root);
    assert_int_equal(tt_dir_create(test_workplace_path(&place, "disk/made", path)), TT_OK);
    assert_int_equal(tt_dir_create(test_workplace_path(&place, "disk/made/inside", path)), TT_OK);
    assert_int_equal(tt_file_create(test_workplace_path(&place, "disk/made/inside/file", path), 4, &file),
                     TT_OK);
    assert_int_equal(tt_file_pwrite(file, path, "text", 4, 0), TT_OK);
    assert_int_equal(tt_file_sync_close(file, path), TT_OK);
    assert_int_equal(tt_dir_commit(test_workplace_path(&place, "disk/made", path),
                                   test_workplace_path(&place, "disk/final", final)),
                     TT_OK);
    assert_int_equal(tt_file_write_atomic(test_workplace_path(&place, "disk/alone", path), "text", 4), TT_OK);
    disk.on = false;
    for (int loss = 0; loss < LOSS_COUNT; loss++) {
        assert_int_equal(tt_dir_remove(test_workplace_path(&place, "after", path)), TT_OK);
        lose_power(path, disk.op_count, (enum loss)loss);
        expect_file(&place, "after/alone");
        expect_file(&place, "after/final/inside/file");
    }
    end_recording();
    test_workplace_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_saved_is_lost),
        cmocka_unit_test(what_is_committed_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
