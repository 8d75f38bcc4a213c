/* base/lock.h: one holder at a time, in this process and others; a lock that a dead process left is taken
 * over, on file systems with locks and (a filter of system calls plays one) without. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/lock.h"
#include "support/temporary.h"

enum { PATH_BYTES = 256 };

struct place {
    char folder[160], path[PATH_BYTES];
};

/* NULL, or the lock file that somebody removes, and makes again, before the next lock of an open file. */
static const char *removed;
static bool made_again;

/* In place of libc's, for everything that is linked here. */
int fcntl(int descriptor, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (command == F_OFD_SETLK && removed != NULL) {
        (void)unlink(removed);
        if (made_again) (void)close(open(removed, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
        removed = NULL;
    }
    return (int)syscall(SYS_fcntl, descriptor, command, argument);
}

static int set_up(void **state)
{
    static struct place place;
    test_temporary(place.folder, sizeof place.folder, "trimtab-lock-XXXXXX");
    assert_non_null(mkdtemp(place.folder));
    snprintf(place.path, sizeof place.path, "%s/.lock", place.folder);
    *state = &place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *place = *state;
    return tt_dir_remove(place->folder) == TT_OK ? 0 : -1;
}

static void assert_refused(const char *path, const char *part)
{
    struct tt_lock *second = NULL;
    assert_int_equal(tt_lock_take(path, "output_dir 'x'", &second), TT_ERR_USAGE);
    assert_null(second);
    const char *message = tt_error_last()->message;
    if (strstr(message, "output_dir 'x' is in use by another run") == NULL || strstr(message, part) == NULL)
        fail_msg("wanted '%s' in: %s", part, message);
}

/* From now on, in this process, the system knows no locks on open files. */
static int forget_locks(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_OFD_SETLK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* A process that takes the lock and then waits to be killed; comes back when it has it. */
static pid_t start_holder(const char *path, bool without_locks)
{
    int pipe_ends[2];
    char answer = 'n';
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct tt_lock *lock = NULL;
        if (without_locks && forget_locks() != 0) _exit(77);
        answer = tt_lock_take(path, "test", &lock) == TT_OK ? 'y' : 'n';
        if (write(pipe_ends[1], &answer, 1) != 1) _exit(1);
        pause();
        _exit(0);
    }
    close(pipe_ends[1]);
    ssize_t got = read(pipe_ends[0], &answer, 1);
    close(pipe_ends[0]);
    assert_true(got == 1 || (without_locks && got == 0));
    if (got == 1) assert_int_equal(answer, 'y');
    return got == 1 ? child : -1;
}

static void end_holder(pid_t holder)
{
    int how;
    assert_int_equal(kill(holder, SIGKILL), 0);
    assert_int_equal(waitpid(holder, &how, 0), holder);
}

static void one_holder(void **state)
{
    struct place *place = *state;
    char host[128], other[PATH_BYTES + 8], part[300];
    struct tt_lock *lock = NULL, *next = NULL;
    assert_int_equal(gethostname(host, sizeof host), 0);
    assert_int_equal(tt_lock_take(place->path, "output_dir 'x'", &lock), TT_OK);
    assert_true(tt_lock_is_held(lock));
    snprintf(part, sizeof part, "process %ld on host '%s'", (long)getpid(), host);
    assert_refused(place->path, part);
    /* Whoever removes or replaces the file takes the lock away, and the next does not get in its holder's
     * way. */
    snprintf(other, sizeof other, "%s.gone", place->path);
    assert_int_equal(rename(place->path, other), 0);
    assert_false(tt_lock_is_held(lock));
    assert_int_equal(tt_lock_take(place->path, "output_dir 'x'", &next), TT_OK);
    tt_lock_release(lock);
    assert_true(tt_lock_is_held(next));
    tt_lock_release(next);
    assert_false(tt_path_exists(place->path));
    assert_false(tt_lock_is_held(NULL));
    tt_lock_release(NULL);
}

/* The file is removed, or is another one, between its opening and its lock: the lock is of the file that is there. */
static void a_file_that_was_removed_meanwhile(void **state)
{
    struct place *place = *state;
    for (int again = 0; again < 2; again++) {
        struct tt_lock *lock = NULL;
        removed = place->path;
        made_again = again == 1;
        assert_int_equal(tt_lock_take(place->path, "output_dir 'x'", &lock), TT_OK);
        assert_null(removed);
        assert_true(tt_lock_is_held(lock));
        assert_refused(place->path, "process");
        tt_lock_release(lock);
        assert_false(tt_path_exists(place->path));
    }
}

/* A file server has given the lock away meanwhile: another process has written its name into the file, which stays. */
static void a_lock_that_was_lost(void **state)
{
    struct place *place = *state;
    struct tt_lock *lock = NULL;
    static const char other[] = "7 123456 1 another-host\n";
    assert_int_equal(tt_lock_take(place->path, "test", &lock), TT_OK);
    assert_true(tt_lock_is_held(lock));
    int file = open(place->path, O_WRONLY | O_TRUNC);
    assert_true(file >= 0 && write(file, other, sizeof other - 1) == (ssize_t)sizeof other - 1 &&
                close(file) == 0);
    assert_false(tt_lock_is_held(lock));
    tt_lock_release(lock);
    assert_true(tt_path_exists(place->path));
}

static void a_dead_process_holds_nothing(void **state)
{
    struct place *place = *state;
    char part[64];
    struct tt_lock *lock = NULL;
    pid_t holder = start_holder(place->path, false);
    snprintf(part, sizeof part, "process %ld", (long)holder);
    assert_refused(place->path, part);
    end_holder(holder);
    assert_true(tt_path_exists(place->path));
    assert_int_equal(tt_lock_take(place->path, "test", &lock), TT_OK);
    tt_lock_release(lock);
}

static void in_a_child(struct place *place, void (*test)(struct place *))
{
    fflush(NULL);
    pid_t child = fork();
    int how;
    assert_true(child >= 0);
    if (child == 0) {
        if (forget_locks() != 0) _exit(77);
        test(place);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 77) skip();
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

static void write_text(const char *path, const char *text)
{
    if (tt_file_write_atomic(path, text, strlen(text)) != TT_OK) _exit(2);
}

/* 0: taken; else the line that says otherwise. */
static void expect(const char *path, bool taken, int line)
{
    struct tt_lock *lock = NULL;
    tt_status status = tt_lock_take(path, "test", &lock);
    if ((status == TT_OK) != taken || (!taken && strstr(tt_error_last()->hint, "has no locks") == NULL)) {
        fprintf(stderr, "line %d: %s\n", line, tt_error_last()->message);
        _exit(3);
    }
    tt_lock_release(lock);
}

static void hold_without_locks(struct place *place)
{
    char text[400], host[128];
    struct stat info;
    struct tt_lock *mine = NULL;
    if (gethostname(host, sizeof host) != 0) _exit(4);
    if (tt_lock_take(place->path, "test", &mine) != TT_OK) _exit(5);
    expect(place->path, false, __LINE__); /* this process has it */
    tt_lock_release(mine);
    write_text(place->path, ""); /* killed before it could say who it is */
    expect(place->path, true, __LINE__);
    for (int other = 0; other < 2; other++) {
        write_text(place->path, "x");
        if (stat(place->path, &info) != 0) _exit(6);
        int file = open(place->path, O_WRONLY | O_TRUNC | O_CLOEXEC);
        /* A process of this host that started at another time, and one of another host. */
        int bytes = snprintf(text, sizeof text, "%ld 1 %llu %s%s\n", (long)getpid(),
                             (unsigned long long)info.st_ino, host, other == 0 ? "" : "-other");
        if (file < 0 || write(file, text, (size_t)bytes) != bytes) _exit(7);
        close(file);
        expect(place->path, other == 0, __LINE__);
    }
    /* Copied with its folder: another file than the one that was locked. */
    snprintf(text, sizeof text, "%ld 1 1 %s-other\n", (long)getpid(), host);
    write_text(place->path, text);
    expect(place->path, true, __LINE__);
}

static void without_locks(void **state)
{
    in_a_child(*state, hold_without_locks);
}

static void a_dead_process_without_locks(void **state)
{
    struct place *place = *state;
    pid_t holder = start_holder(place->path, true);
    if (holder < 0) skip();
    /* The file alone: with locks this process is not misled by it, as nobody locks. */
    struct tt_lock *lock = NULL;
    assert_int_equal(tt_lock_take(place->path, "test", &lock), TT_OK);
    tt_lock_release(lock);
    end_holder(holder);
}

static void what_is_no_file(void **state)
{
    struct place *place = *state;
    char target[PATH_BYTES + 8];
    struct tt_lock *lock = NULL;
    snprintf(target, sizeof target, "%s.target", place->path);
    assert_int_equal(symlink(target, place->path), 0);
    assert_int_equal(tt_lock_take(place->path, "test", &lock), TT_ERR_DATA);
    assert_false(tt_path_exists(target));
    assert_int_equal(unlink(place->path), 0);
    assert_int_equal(mkfifo(place->path, 0600), 0);
    assert_int_equal(tt_lock_take(place->path, "test", &lock), TT_ERR_USAGE);
    assert_int_equal(unlink(place->path), 0);
    assert_int_equal(tt_lock_take("/no/such/folder/lock", "test", &lock), TT_ERR_DATA);
    assert_null(lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_holder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_was_removed_meanwhile, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lock_that_was_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_dead_process_holds_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_locks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_dead_process_without_locks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_file, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
