#include "comm/latch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"

struct tt_latch {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int inside; /* users that have not called tt_latch_leave */
    int users;  /* threads that may still use the latch */
};

struct tt_latch *tt_latch_create(int users)
{
    struct tt_latch *latch = tt_calloc(1, sizeof *latch);
    if (latch == NULL) return NULL;
    pthread_mutex_init(&latch->mutex, NULL);
    pthread_cond_init(&latch->changed, NULL);
    latch->inside = latch->users = users;
    return latch;
}

void tt_latch_destroy(struct tt_latch *latch)
{
    if (latch == NULL) return;
    pthread_cond_destroy(&latch->changed);
    pthread_mutex_destroy(&latch->mutex);
    tt_free(latch);
}

void tt_latch_leave(struct tt_latch *latch, int seconds_max, void (*release)(void *context), void *context)
{
    double deadline = tt_clock_seconds() + seconds_max;
    pthread_mutex_lock(&latch->mutex);
    latch->inside--;
    pthread_cond_broadcast(&latch->changed);
    while (latch->inside > 0 && tt_cond_wait_until(&latch->changed, &latch->mutex, deadline)) continue;
    bool last = --latch->users == 0;
    pthread_mutex_unlock(&latch->mutex);
    if (!last) return;
    if (release != NULL) release(context);
    tt_latch_destroy(latch);
}
