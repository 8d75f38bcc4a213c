#include "comm/latch.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "base/alloc.h"

struct tt_latch {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int inside; /* have not yet said that they leave */
    int users;  /* still look at the latch */
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
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds_max;
    pthread_mutex_lock(&latch->mutex);
    latch->inside--;
    pthread_cond_broadcast(&latch->changed);
    int waited = 0;
    while (latch->inside > 0 && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&latch->changed, &latch->mutex, &until);
    bool last = --latch->users == 0;
    pthread_mutex_unlock(&latch->mutex);
    if (!last) return;
    if (release != NULL) release(context);
    tt_latch_destroy(latch);
}
