#include "hub/blob_sum.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <sodium.h>

#include "base/alloc.h"

enum { ROOMS = 16 };

/* A ring of pieces between the thread of the transfer and the one that sums. */
struct hub_sum_helper {
    struct tt_thread *thread;
    pthread_mutex_t mutex; /* for what follows */
    pthread_cond_t changed;
    size_t bytes[ROOMS];
    uint64_t filled, summed; /* rooms so far */
    bool over;
    unsigned char rooms[ROOMS][HUB_PIECE_BYTES];
};

static void add(struct hub_sum *sum, const void *data, size_t bytes)
{
    if (sum->large)
        tt_sha256_add(&sum->sha256, data, bytes);
    else
        tt_sha1_update(&sum->sha1, data, bytes);
}

static tt_status sum_rooms(void *context)
{
    struct hub_sum *sum = context;
    struct hub_sum_helper *helper = sum->helper;
    pthread_mutex_lock(&helper->mutex);
    for (;;) {
        while (helper->summed == helper->filled && !helper->over)
            pthread_cond_wait(&helper->changed, &helper->mutex);
        if (helper->summed == helper->filled) break;
        const size_t room = helper->summed % ROOMS;
        pthread_mutex_unlock(&helper->mutex);
        add(sum, helper->rooms[room], helper->bytes[room]);
        pthread_mutex_lock(&helper->mutex);
        helper->summed++;
        pthread_cond_broadcast(&helper->changed);
    }
    pthread_mutex_unlock(&helper->mutex);
    return TT_OK;
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
    sum->helper = tt_alloc_aligned(sizeof *sum->helper);
    if (sum->helper == NULL) {
        tt_error_clear();
        return;
    }
    memset(sum->helper, 0, offsetof(struct hub_sum_helper, rooms));
    pthread_mutex_init(&sum->helper->mutex, NULL);
    pthread_cond_init(&sum->helper->changed, NULL);
    if (tt_thread_start("hub sum", sum_rooms, sum, &sum->helper->thread) == TT_OK) return;
    tt_error_clear();
    drop_helper(sum);
}

tt_status hub_sum_begin(struct hub_sum *sum, const struct tt_hub_file *file, bool aside)
{
    char head[40];
    *sum = (struct hub_sum){.large = strlen(file->digest) == 64};
    if (sum->large) tt_sha256_begin(&sum->sha256);
    tt_sha1_init(&sum->sha1);
    int bytes = snprintf(head, sizeof head, "blob %llu", (unsigned long long)file->bytes);
    tt_sha1_update(&sum->sha1, head, (size_t)bytes + 1);
    if (aside) start_helper(sum);
    if (sum->helper == NULL) sum->room = tt_alloc_aligned(HUB_PIECE_BYTES);
    if (sum->helper != NULL || sum->room != NULL) return TT_OK;
    hub_sum_end(sum, (char[TT_HUB_DIGEST_BYTES]){0});
    return TT_ERR_MEMORY;
}

unsigned char *hub_sum_room(struct hub_sum *sum)
{
    struct hub_sum_helper *helper = sum->helper;
    if (helper == NULL) return sum->room;
    pthread_mutex_lock(&helper->mutex);
    while (helper->filled - helper->summed == ROOMS) pthread_cond_wait(&helper->changed, &helper->mutex);
    const size_t room = helper->filled % ROOMS;
    pthread_mutex_unlock(&helper->mutex);
    return helper->rooms[room];
}

void hub_sum_add(struct hub_sum *sum, size_t bytes)
{
    struct hub_sum_helper *helper = sum->helper;
    if (helper == NULL) {
        add(sum, sum->room, bytes);
        return;
    }
    pthread_mutex_lock(&helper->mutex);
    helper->bytes[helper->filled % ROOMS] = bytes;
    helper->filled++;
    pthread_cond_broadcast(&helper->changed);
    pthread_mutex_unlock(&helper->mutex);
}

void hub_sum_end(struct hub_sum *sum, char digits[TT_HUB_DIGEST_BYTES])
{
    unsigned char digest[TT_SHA256_BYTES];
    if (sum->helper != NULL) {
        pthread_mutex_lock(&sum->helper->mutex);
        sum->helper->over = true;
        pthread_cond_broadcast(&sum->helper->changed);
        pthread_mutex_unlock(&sum->helper->mutex);
        if (tt_thread_join(sum->helper->thread) != TT_OK) tt_error_clear();
        drop_helper(sum);
    }
    if (sum->large)
        tt_sha256_end(&sum->sha256, digest);
    else
        tt_sha1_final(&sum->sha1, digest);
    tt_free(sum->room);
    sum->room = NULL;
    sodium_bin2hex(digits, TT_HUB_DIGEST_BYTES, digest, sum->large ? TT_SHA256_BYTES : TT_SHA1_BYTES);
}
