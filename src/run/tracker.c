#include "run/tracker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/own_folder.h"
#include "run/tracker_mirror.h"

static const char *const names[] = {
#define TRACKER(word, ...) word,
#include "job/trackers.def"
#undef TRACKER
};

enum {
    KINDS = sizeof names / sizeof *names,
    LINE_BYTES = 1024,
    STOPPED_SECONDS = 5, /* of a run that was stopped, whose machine may be about to go */
    PATIENT_SECONDS = 2, /* a longer wait is announced */
    READS_MAX = 64,      /* of a follower's lines at once */
};

struct follower {
    const char *name; /* NULL: not started */
    pid_t process;    /* 0: it has ended */
    int lifeline;     /* our end, which it waits for */
    int lines;        /* what it says, without blocking */
    char line[LINE_BYTES];
    size_t line_bytes;
    bool is_kept; /* its identity is put where a run that goes on finds it */
};

struct tt_trackers {
    struct follower followers[KINDS];
    struct tt_tracker_mirror mirror;
    int64_t seconds;
};

/* The follower's file, of an installed program, the library in its folder of Debian, or a build. */
static bool find_program(char *path, size_t bytes)
{
    static const char *const places[] = {"..", "../..", "."};
    char folder[2048];
    if (!tt_own_folder(folder, sizeof folder)) return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int length = snprintf(path, bytes, "%s/%s/share/trimtab/python/tracker.py", folder, places[i]);
        if (length > 0 && (size_t)length < bytes && tt_path_exists(path)) return true;
    }
    return false;
}

static void close_end(int *end)
{
    if (*end >= 0) (void)close(*end);
    *end = -1;
}

/* Both ends are above the standard streams, which may be closed. */
static int open_pipe(int ends[2])
{
    int made[2];
    if (pipe2(made, O_CLOEXEC) != 0) return errno;
    int error = 0;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(made[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (ends[i] < 0) error = errno;
        (void)close(made[i]);
    }
    return error;
}

/* The process has no file of ours open but the two ends; with the lock of output_dir it would keep a run from it. */
static int spawn(struct follower *follower, int waits, int says, char *const *arguments)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    int error = posix_spawn_file_actions_init(&files);
    if (error != 0) return error;
    error = posix_spawnattr_init(&how);
    if (error != 0) goto files;
    error = posix_spawn_file_actions_adddup2(&files, waits, STDIN_FILENO);
    if (error == 0) error = posix_spawn_file_actions_adddup2(&files, says, STDOUT_FILENO);
    if (error == 0) error = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (error == 0) error = posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    if (error == 0)
        error = posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                   POSIX_SPAWN_SETSIGDEF);
    if (error == 0) error = posix_spawnattr_setsigmask(&how, &none);
    if (error == 0) error = posix_spawnattr_setsigdefault(&how, &all);
    if (error == 0) error = posix_spawnp(&follower->process, arguments[0], &files, &how, arguments, environ);
    if (error != 0) follower->process = 0;
    (void)posix_spawnattr_destroy(&how);
files:
    (void)posix_spawn_file_actions_destroy(&files);
    return error;
}

/* Bytes of the completions that an earlier part of the run has written. */
static int64_t shown_bytes(const char *folder)
{
    struct tt_path path;
    struct tt_file_facts info;
    if (tt_path_set(&path, folder, "generations.jsonl") != TT_OK) tt_error_clear();
    return tt_file_facts(path.text, &info) == 0 ? (int64_t)info.bytes : 0;
}

static void start(const struct tt_run_job *job, const struct tt_tracker_mirror *mirror,
                  struct follower *follower, const char *program, const char *name)
{
    const char *python = job->watch->tracker_python;
    int life[2] = {-1, -1}, said[2] = {-1, -1};
    const char *output_dir = job->run->output_dir,
               *folder = mirror->is_other ? mirror->folder.text : output_dir;
    char seconds[32], from[32];
    if (tt_tracker_mirror_find(mirror, name) != TT_OK) {
        tt_warn("%s; training continues without %s", tt_error_last()->message, name);
        tt_error_clear();
        return;
    }
    snprintf(seconds, sizeof seconds, "%lld", (long long)job->watch->tracker_seconds);
    snprintf(from, sizeof from, "%lld", (long long)shown_bytes(folder));
    char *const arguments[] = {(char *)python,
                               "-I",
                               (char *)program,
                               (char *)name,
                               (char *)folder,
                               seconds,
                               from,
                               mirror->is_other ? (char *)output_dir : NULL,
                               NULL};
    int error = open_pipe(life);
    if (error == 0) error = open_pipe(said);
    if (error == 0 && fcntl(said[0], F_SETFL, O_NONBLOCK) != 0) error = errno;
    if (error == 0) error = spawn(follower, life[0], said[1], arguments);
    close_end(&life[0]);
    close_end(&said[1]);
    if (error == 0) {
        *follower = (struct follower){.name = name, .process = follower->process, life[1], said[0]};
        return;
    }
    close_end(&life[1]);
    close_end(&said[0]);
    (void)tt_fail_errno(error, "report_to %s: '%s' cannot be started", name, python);
    tt_warn("%s; training continues without it (tracker_python, TRIMTAB_PYTHON)", tt_error_last()->message);
    tt_error_clear();
}

static bool write_config(const struct tt_tracker_config *config, const char *output_dir)
{
    struct tt_path folder;
    tt_status status = tt_path_set(&folder, output_dir, "trackers");
    if (status == TT_OK) status = tt_dir_create(folder.text);
    if (status == TT_OK) status = tt_tracker_config_write(config, folder.text, "config.json");
    if (status != TT_OK) tt_warn("%s; training continues without trackers", tt_error_last()->message);
    if (status != TT_OK) tt_error_clear();
    return status == TT_OK;
}

struct tt_trackers *tt_trackers_open(const struct tt_run_job *job, const struct tt_tracker_config *config,
                                     const struct tt_trackers_files *files)
{
    char program[4096];
    const char *output_dir = job->run->output_dir;
    if (job->watch->report_to < TT_REPORT_TRACKER) return NULL;
    if (!find_program(program, sizeof program)) {
        tt_warn("report_to: share/trimtab/python/tracker.py is not beside the program; training continues "
                "without trackers");
        return NULL;
    }
    if (!write_config(config, output_dir)) return NULL;
    struct tt_trackers *trackers = tt_calloc(1, sizeof *trackers);
    if (trackers == NULL ||
        tt_tracker_mirror_open(output_dir, files->journal, files->generations, &trackers->mirror) != TT_OK) {
        tt_warn("%s; training continues without trackers", tt_error_last()->message);
        tt_error_clear();
        tt_free(trackers);
        return NULL;
    }
    trackers->seconds = job->watch->tracker_seconds;
    for (int i = 0; i < KINDS; i++)
        if ((job->watch->report_to & (unsigned)TT_REPORT_TRACKER << i) != 0)
            start(job, &trackers->mirror, &trackers->followers[i], program, names[i]);
    return trackers;
}

/* A line is for people: 'I' before information, 'W' before a warning. The first that is information comes when the
 * follower has noted the identity of its run. */
static void pass_line(const struct tt_tracker_mirror *mirror, struct follower *follower)
{
    follower->line[follower->line_bytes] = '\0';
    const char *text = follower->line + (follower->line_bytes > 0);
    if (follower->line[0] == 'W')
        tt_warn("%s: %s", follower->name, text);
    else if (follower->line_bytes > 0)
        tt_notice("%s: %s", follower->name, text);
    if (follower->line[0] == 'I' && !follower->is_kept) {
        tt_tracker_mirror_keep(mirror, follower->name);
        follower->is_kept = true;
    }
    follower->line_bytes = 0;
}

static void read_lines(const struct tt_tracker_mirror *mirror, struct follower *follower)
{
    char bytes[512];
    for (int i = 0; i < READS_MAX && follower->lines >= 0; i++) {
        ssize_t got = read(follower->lines, bytes, sizeof bytes);
        if (got == 0) close_end(&follower->lines);
        if (got <= 0) return;
        for (ssize_t k = 0; k < got; k++)
            if (bytes[k] == '\n')
                pass_line(mirror, follower);
            else if (follower->line_bytes < LINE_BYTES - 1)
                follower->line[follower->line_bytes++] = bytes[k];
    }
}

/* True if the follower has ended; the first time it logs how, where that was not well. */
static bool has_ended(const struct tt_tracker_mirror *mirror, struct follower *follower)
{
    int how = 0;
    if (follower->name == NULL || follower->process == 0) return true;
    pid_t found = waitpid(follower->process, &how, WNOHANG);
    if (found == 0 || (found < 0 && errno == EINTR)) return false;
    follower->process = 0;
    read_lines(mirror, follower);
    if (found > 0 && WIFSIGNALED(how))
        tt_warn("%s: its process ended by signal %d; training continues without it", follower->name,
                WTERMSIG(how));
    else if (found > 0 && WEXITSTATUS(how) != 0)
        tt_warn("%s: its process ended with exit code %d; training continues without it", follower->name,
                WEXITSTATUS(how));
    return true;
}

void tt_trackers_poll(struct tt_trackers *trackers)
{
    for (int i = 0; trackers != NULL && i < KINDS; i++) {
        struct follower *follower = &trackers->followers[i];
        if (follower->name == NULL || follower->process == 0) continue;
        read_lines(&trackers->mirror, follower);
        (void)has_ended(&trackers->mirror, follower);
    }
}

/* Ends the follower with all processes of its group. */
static void end(const struct tt_tracker_mirror *mirror, struct follower *follower, int64_t seconds)
{
    if (has_ended(mirror, follower)) return;
    (void)kill(-follower->process, SIGKILL);
    while (waitpid(follower->process, NULL, 0) < 0 && errno == EINTR) {
    }
    follower->process = 0;
    read_lines(mirror, follower);
    tt_warn("%s did not take the last rows within %lld s and was ended; metrics.jsonl has them all "
            "(tracker_seconds: how long it may take)",
            follower->name, (long long)seconds);
}

static bool all_ended(struct tt_trackers *trackers)
{
    bool ended = true;
    tt_trackers_poll(trackers);
    for (int i = 0; i < KINDS; i++) ended &= has_ended(&trackers->mirror, &trackers->followers[i]);
    return ended;
}

void tt_trackers_close(struct tt_trackers *trackers, bool stopped)
{
    if (trackers == NULL) return;
    int64_t seconds = trackers->seconds;
    if (stopped && seconds > STOPPED_SECONDS) seconds = STOPPED_SECONDS;
    tt_tracker_mirror_end(&trackers->mirror);
    for (int i = 0; i < KINDS; i++)
        if (trackers->followers[i].name != NULL) close_end(&trackers->followers[i].lifeline);
    double begun = tt_clock_seconds(), waited = 0;
    for (bool said = false; !all_ended(trackers) && waited < (double)seconds;
         waited = tt_clock_seconds() - begun) {
        if (!said && waited > PATIENT_SECONDS && seconds > PATIENT_SECONDS) {
            tt_notice("waiting up to %lld s for the trackers to take the last rows", (long long)seconds);
            said = true;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    for (int i = 0; i < KINDS; i++) {
        end(&trackers->mirror, &trackers->followers[i], seconds);
        if (trackers->followers[i].name != NULL) close_end(&trackers->followers[i].lines);
    }
    tt_tracker_mirror_close(&trackers->mirror);
    tt_free(trackers);
}
