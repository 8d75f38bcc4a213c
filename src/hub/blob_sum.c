#include "hub/blob_sum.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <sodium.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"

enum {
    PIECE_BYTES = 128 << 10, /* read at a time: it stays in a processor's cache until it is summed */
    WORTH_BYTES = 1 << 20,   /* what wakes the thread, so that it does not sleep and wake for each piece */
    BEHIND_BYTES = 32 << 20, /* how far it may be behind: what it reads is in memory still */
};

struct hub_sum_helper {
    struct tt_thread *thread;
    pthread_mutex_t mutex; /* for what follows */
    pthread_cond_t changed;
    uint64_t written, summed;
    bool sleeps; /* it waits for WORTH_BYTES, or the end */
    bool over, dropped, failed;
    unsigned char piece[PIECE_BYTES]; /* the thread's own */
};

static void add(struct hub_sum *sum, const void *data, size_t bytes)
{
    if (sum->large)
        tt_sha256_add(&sum->sha256, data, bytes);
    else
        tt_sha1_update(&sum->sha1, data, bytes);
    sum->summed += bytes;
}

static tt_status add_from_file(struct hub_sum *sum, unsigned char *piece, uint64_t until)
{
    uint64_t left = until - sum->summed;
    size_t bytes = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
    TT_TRY(tt_file_pread(sum->file->descriptor, sum->file->path, piece, bytes, sum->summed));
    add(sum, piece, bytes);
    return TT_OK;
}

static tt_status sum_behind(void *context)
{
    struct hub_sum *sum = context;
    struct hub_sum_helper *helper = sum->helper;
    tt_status status = TT_OK;
    pthread_mutex_lock(&helper->mutex);
    while (status == TT_OK) {
        helper->sleeps = helper->summed == helper->written && !helper->over;
        while (helper->sleeps) pthread_cond_wait(&helper->changed, &helper->mutex);
        const uint64_t until = helper->written;
        if (helper->dropped || helper->summed == until) break;
        pthread_mutex_unlock(&helper->mutex);
        status = add_from_file(sum, helper->piece, until);
        pthread_mutex_lock(&helper->mutex);
        helper->summed = sum->summed;
        helper->failed = status != TT_OK;
        uint64_t behind = helper->written - helper->summed;
        if (behind == 0 || behind <= BEHIND_BYTES / 2 || helper->failed)
            pthread_cond_broadcast(&helper->changed);
    }
    pthread_mutex_unlock(&helper->mutex);
    return status;
}

static void drop_helper(struct hub_sum *sum)
{
    pthread_cond_destroy(&sum->helper->changed);
    pthread_mutex_destroy(&sum->helper->mutex);
    tt_free(sum->helper);
    sum->helper = NULL;
}

/* The caller's thread makes the sum where none can be started. */
static void start_helper(struct hub_sum *sum)
{
    sum->helper = tt_calloc(1, sizeof *sum->helper);
    if (sum->helper == NULL) {
        tt_error_clear();
        return;
    }
    pthread_mutex_init(&sum->helper->mutex, NULL);
    pthread_cond_init(&sum->helper->changed, NULL);
    if (tt_thread_start("hub sum", sum_behind, sum, &sum->helper->thread) == TT_OK) return;
    tt_error_clear();
    drop_helper(sum);
}

void hub_sum_begin(struct hub_sum *sum, const struct tt_hub_file *listed, const struct tt_partial_file *file,
                   bool aside)
{
    char head[40];
    *sum = (struct hub_sum){.large = strlen(listed->digest) == 64, .file = file};
    if (sum->large) tt_sha256_begin(&sum->sha256);
    tt_sha1_init(&sum->sha1);
    int bytes = snprintf(head, sizeof head, "blob %llu", (unsigned long long)listed->bytes);
    tt_sha1_update(&sum->sha1, head, (size_t)bytes + 1);
    if (aside) start_helper(sum);
}

/* The caller holds the mutex. */
static void wake(struct hub_sum_helper *helper)
{
    if (!helper->sleeps) return;
    helper->sleeps = false;
    pthread_cond_broadcast(&helper->changed);
}

static tt_status wait_for_begin(struct hub_sum_helper *helper, uint64_t until, bool (*stopped)(void *context),
                                void *context)
{
    bool stops = false;
    pthread_mutex_lock(&helper->mutex);
    helper->written = until;
    wake(helper);
    while (helper->summed < until && !helper->failed && !(stops = stopped(context)))
        (void)tt_cond_wait_until(&helper->changed, &helper->mutex, tt_clock_seconds() + 0.1);
    pthread_mutex_unlock(&helper->mutex);
    return stops ? tt_fail(TT_ERR_CANCELLED, "stopped on request") : TT_OK;
}

tt_status hub_sum_begin_of_file(struct hub_sum *sum, bool (*stopped)(void *context), void *context)
{
    tt_status status = TT_OK;
    const uint64_t until = sum->file->bytes;
    if (until == 0) return TT_OK;
    if (sum->helper != NULL) return wait_for_begin(sum->helper, until, stopped, context);
    unsigned char *piece = tt_alloc_aligned(PIECE_BYTES);
    if (piece == NULL) return TT_ERR_MEMORY;
    while (status == TT_OK && sum->summed < until)
        status = stopped(context) ? tt_fail(TT_ERR_CANCELLED, "stopped on request")
                                  : add_from_file(sum, piece, until);
    tt_free(piece);
    return status;
}

void hub_sum_add(struct hub_sum *sum, const void *data, size_t bytes)
{
    struct hub_sum_helper *helper = sum->helper;
    if (helper == NULL) {
        add(sum, data, bytes);
        return;
    }
    pthread_mutex_lock(&helper->mutex);
    helper->written += bytes;
    if (helper->written - helper->summed >= WORTH_BYTES) wake(helper);
    if (helper->written - helper->summed > BEHIND_BYTES)
        while (helper->written - helper->summed > BEHIND_BYTES / 2 && !helper->failed)
            pthread_cond_wait(&helper->changed, &helper->mutex);
    pthread_mutex_unlock(&helper->mutex);
}

tt_status hub_sum_end(struct hub_sum *sum, char digits[TT_HUB_DIGEST_BYTES])
{
    unsigned char digest[TT_SHA256_BYTES];
    tt_status status = TT_OK;
    if (sum->helper != NULL) {
        pthread_mutex_lock(&sum->helper->mutex);
        sum->helper->over = true;
        sum->helper->dropped = digits == NULL;
        wake(sum->helper);
        pthread_mutex_unlock(&sum->helper->mutex);
        status = tt_thread_join(sum->helper->thread);
        drop_helper(sum);
    }
    if (sum->large)
        tt_sha256_end(&sum->sha256, digest);
    else
        tt_sha1_final(&sum->sha1, digest);
    if (digits != NULL)
        sodium_bin2hex(digits, TT_HUB_DIGEST_BYTES, digest, sum->large ? TT_SHA256_BYTES : TT_SHA1_BYTES);
    return status;
}
