#include "store/s3_lock.h"

#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

enum { TEXT_BYTES = 512, NONCE_BYTES = 33, RENEWALS = 4, ATTEMPTS = 3 };

/* The content of the object, one line: "trimtab-lock NONCE PID START BOOT HOST". START and BOOT tell whether the
 * process
 * is one that ran on this machine, and still does. */
struct holder {
    char nonce[NONCE_BYTES], boot[64], host[128];
    long pid;
    unsigned long long start;
};

struct tt_s3_lock {
    struct tt_s3 *s3;
    char *path;
    char text[TEXT_BYTES]; /* the content of the object */
    struct holder self;
    bool unlocked; /* the server knows no conditions */
    char etag[TT_S3_ETAG_BYTES];
    atomic_bool lost;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool ends; /* under the mutex */
    struct tt_thread *thread;
};

static bool parse(const struct tt_str *text, struct holder *holder)
{
    *holder = (struct holder){0};
    return sscanf(tt_str_text(text), "trimtab-lock %32s %ld %llu %63s %127[^\n]", holder->nonce, &holder->pid,
                  &holder->start, holder->boot, holder->host) == 5;
}

static void name_self(struct tt_s3_lock *lock)
{
    unsigned char random[16];
    struct tt_str boot = {0};
    struct holder *self = &lock->self;
    randombytes_buf(random, sizeof random);
    sodium_bin2hex(self->nonce, sizeof self->nonce, random, sizeof random);
    if (gethostname(self->host, sizeof self->host) != 0) snprintf(self->host, sizeof self->host, "localhost");
    self->host[sizeof self->host - 1] = '\0';
    self->pid = (long)getpid();
    self->start = tt_lock_process_start(self->pid);
    if (tt_file_read("/proc/sys/kernel/random/boot_id", 1 << 10, &boot) != TT_OK) tt_error_clear();
    snprintf(self->boot, sizeof self->boot, "%.*s", (int)strcspn(tt_str_text(&boot), "\n"),
             tt_str_text(&boot));
    if (self->boot[0] == '\0') snprintf(self->boot, sizeof self->boot, "-");
    tt_str_deinit(&boot);
    snprintf(lock->text, sizeof lock->text, "trimtab-lock %s %ld %llu %s %s\n", self->nonce, self->pid,
             self->start, self->boot, self->host);
}

static tt_status put(struct tt_s3_lock *lock, const struct tt_s3_condition *condition, bool *kept)
{
    *kept = false;
    return tt_s3_put(lock->s3, lock->path, lock->text, strlen(lock->text), lock->unlocked ? NULL : condition,
                     lock->unlocked ? NULL : kept, lock->etag);
}

static tt_status read_lock(struct tt_s3_lock *lock, struct tt_s3_object *object, struct holder *holder)
{
    struct tt_str text = {0};
    tt_status status = tt_s3_get_all(lock->s3, lock->path, 1 << 16, &text, object);
    if (status == TT_OK && object->exists) (void)parse(&text, holder);
    tt_str_deinit(&text);
    return status;
}

/* ---- The heartbeat ---- */

/* Whether the object is still this lock's, where the server knows no conditions. */
static tt_status check_own(struct tt_s3_lock *lock, bool *kept)
{
    struct tt_s3_object object;
    struct holder holder = {{0}, {0}, {0}, 0, 0};
    TT_TRY(read_lock(lock, &object, &holder));
    *kept = !object.exists || strcmp(holder.nonce, lock->self.nonce) != 0;
    return TT_OK;
}

static tt_status renew(struct tt_s3_lock *lock, bool *kept)
{
    const struct tt_s3_condition own = {.etag = lock->etag};
    *kept = false;
    if (lock->unlocked || lock->etag[0] == '\0') TT_TRY(check_own(lock, kept));
    return *kept ? TT_OK : put(lock, &own, kept);
}

static tt_status beat(void *argument)
{
    struct tt_s3_lock *lock = argument;
    double renewed = tt_clock_seconds();
    pthread_mutex_lock(&lock->mutex);
    while (!lock->ends && !atomic_load(&lock->lost)) {
        double next = tt_clock_seconds() + (double)TT_S3_LEASE_SECONDS / RENEWALS;
        while (!lock->ends && tt_cond_wait_until(&lock->changed, &lock->mutex, next)) {
        }
        if (lock->ends) break;
        pthread_mutex_unlock(&lock->mutex);
        bool kept = false;
        if (renew(lock, &kept) == TT_OK && !kept) renewed = tt_clock_seconds();
        tt_error_clear();
        /* A retry of a renewal that had arrived does not fit its own condition. */
        if (kept && check_own(lock, &kept) == TT_OK && !kept) lock->etag[0] = '\0';
        tt_error_clear();
        if (kept || tt_clock_seconds() - renewed > TT_S3_LEASE_SECONDS) atomic_store(&lock->lost, true);
        pthread_mutex_lock(&lock->mutex);
    }
    pthread_mutex_unlock(&lock->mutex);
    return TT_OK;
}

/* ---- Taking ---- */

static bool has_ended(const struct tt_s3_lock *lock, const struct holder *holder)
{
    if (holder->boot[0] == '\0' || strcmp(holder->boot, lock->self.boot) != 0) return false;
    if (strcmp(holder->host, lock->self.host) != 0) return false;
    unsigned long long start = tt_lock_process_start(holder->pid);
    return start == 0 || start != holder->start;
}

static tt_status refuse(const struct tt_s3_lock *lock, const struct holder *holder, const char *what,
                        double age)
{
    if (holder->host[0] == '\0')
        (void)tt_fail(TT_ERR_USAGE, "%s is in use by another run", what);
    else
        (void)tt_fail(TT_ERR_USAGE,
                      "%s is in use by another run: process %ld on host '%s', which renewed '%s' %.0f s ago",
                      what, holder->pid, holder->host, lock->path, age);
    tt_hint("wait until it has ended, or choose another place; a run that was killed gives it up %d s after "
            "its last "
            "renewal",
            TT_S3_LEASE_SECONDS);
    return TT_ERR_USAGE;
}

/* *done: the lock is held, or refused; false: look again. */
static tt_status take_over(struct tt_s3_lock *lock, const char *what, bool *done)
{
    bool kept;
    struct tt_s3_object object;
    struct holder holder = {{0}, {0}, {0}, 0, 0};
    TT_TRY(read_lock(lock, &object, &holder));
    if (!object.exists) return TT_OK;
    double age = object.now > object.changed ? object.now - object.changed : 0;
    bool ended = has_ended(lock, &holder);
    if (!ended && age <= TT_S3_LEASE_SECONDS) return refuse(lock, &holder, what, age);
    const struct tt_s3_condition same = {.etag = object.etag};
    TT_TRY(put(lock, &same, &kept));
    if (kept) return TT_OK;
    TT_TRY(check_own(lock, &kept));
    if (kept) return TT_OK;
    *done = true;
    tt_notice("%s: taken over from process %ld on host '%s', which %s", what, holder.pid,
              holder.host[0] != '\0' ? holder.host : "unknown",
              ended ? "has ended" : "has not renewed its lock for its lease");
    return TT_OK;
}

/* The lock was put where none was: a server that takes it again, on the same condition, knows no conditions. */
static tt_status check_server(struct tt_s3_lock *lock, const char *what, bool unlocked)
{
    char etag[TT_S3_ETAG_BYTES];
    bool kept;
    const struct tt_s3_condition none = {.missing = true};
    TT_TRY(tt_s3_put(lock->s3, lock->path, lock->text, strlen(lock->text), &none, &kept, etag));
    if (kept) return TT_OK;
    lock->unlocked = true;
    if (unlocked) return TT_OK;
    TT_TRY(tt_s3_delete(lock->s3, lock->path));
    tt_status status = tt_fail(
        TT_ERR_USAGE, "%s cannot be locked: its server ignores the condition of a put (If-None-Match)", what);
    tt_hint(
        "choose a store that knows conditional writes; or make sure that no other run writes there, and give "
        "--unlocked_store true");
    return status;
}

static tt_status take(struct tt_s3_lock *lock, const char *what, bool unlocked)
{
    const struct tt_s3_condition none = {.missing = true};
    bool done = false, kept;
    for (int attempt = 0; !done && attempt < ATTEMPTS; attempt++) {
        struct tt_s3_object object;
        TT_TRY(tt_s3_head(lock->s3, lock->path, &object));
        if (object.exists) {
            TT_TRY(take_over(lock, what, &done));
            continue;
        }
        tt_status status = put(lock, &none, &kept);
        /* Some servers refuse what they do not know. */
        if (status == TT_ERR_DATA && unlocked) {
            lock->unlocked = true;
            TT_TRY(put(lock, &none, &kept));
            return TT_OK;
        }
        TT_TRY(status);
        if (kept) TT_TRY(check_own(lock, &kept)); /* its own, which arrived before its answer was lost */
        if (kept) continue;
        TT_TRY(check_server(lock, what, unlocked));
        done = true;
    }
    return done ? TT_OK : refuse(lock, &(struct holder){{0}, {0}, {0}, 0, 0}, what, 0);
}

tt_status tt_s3_lock_take(struct tt_s3 *s3, const char *path, const char *what, bool unlocked,
                          struct tt_s3_lock **out)
{
    tt_status status = TT_OK;
    struct tt_s3_lock *lock = tt_calloc(1, sizeof *lock);
    if (lock == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&lock->mutex, NULL);
    pthread_cond_init(&lock->changed, NULL);
    lock->s3 = s3;
    lock->path = tt_strdup(path);
    atomic_store(&lock->lost, true); /* nothing to remove yet */
    if (lock->path == NULL) TT_GO(TT_ERR_MEMORY);
    tt_s3_hurry(s3, false);
    name_self(lock);
    TT_GO(take(lock, what, unlocked));
    atomic_store(&lock->lost, false);
    TT_GO(tt_thread_start("lock", beat, lock, &lock->thread));
    *out = lock;
    lock = NULL;
out:
    tt_s3_lock_release(lock);
    return status;
}

bool tt_s3_lock_is_held(struct tt_s3_lock *lock)
{
    struct tt_error error;
    bool kept = false;
    tt_error_copy(&error);
    if (check_own(lock, &kept) == TT_OK && kept) atomic_store(&lock->lost, true);
    (void)tt_error_restore(&error);
    return !atomic_load(&lock->lost);
}

void tt_s3_lock_release(struct tt_s3_lock *lock)
{
    struct tt_error error;
    if (lock == NULL) return;
    tt_error_copy(&error);
    pthread_mutex_lock(&lock->mutex);
    lock->ends = true;
    pthread_cond_broadcast(&lock->changed);
    pthread_mutex_unlock(&lock->mutex);
    if (lock->thread != NULL) (void)!tt_thread_join(lock->thread);
    if (!atomic_load(&lock->lost)) (void)!tt_s3_delete(lock->s3, lock->path);
    (void)tt_error_restore(&error);
    pthread_cond_destroy(&lock->changed);
    pthread_mutex_destroy(&lock->mutex);
    tt_free(lock->path);
    tt_free(lock);
}
