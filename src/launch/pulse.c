#include "launch/pulse.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"

enum {
    STUCK_SECONDS = 27, /* longer than a device takes to detect its own hang */
    POLL_MS = 500,
    STOPPED_MS =
        3000, /* a longer time between two polls means that the process was stopped or the machine slept */
};

struct tt_pulse_watch {
    struct tt_pulse *pulses;
    int count, first_rank;
    struct tt_comm *comm;
    int64_t limit_ms;
    struct tt_thread *thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stops;
};

/* Set once, before the first run, and only read afterwards. */
static tt_stuck_handler *installed_handler;

void tt_pulse_set_handler(tt_stuck_handler *handler)
{
    installed_handler = handler;
}

static int64_t now_ms(void)
{
    return (int64_t)(tt_clock_seconds() * 1e3) + 1;
}

void tt_pulse_beat(struct tt_pulse *pulse, const char *what)
{
    if (pulse == NULL) return;
    int64_t now = now_ms();
    atomic_store_explicit(&pulse->what, what, memory_order_relaxed);
    atomic_store_explicit(&pulse->last_ms, now, memory_order_relaxed);
    atomic_store_explicit(&pulse->beat_ms, now, memory_order_release);
}

double tt_pulse_last(const struct tt_pulse *pulses, int count)
{
    int64_t last = 0;
    for (int r = 0; r < count; r++) {
        int64_t beat = atomic_load_explicit(&pulses[r].last_ms, memory_order_relaxed);
        if (beat > last) last = beat;
    }
    return (double)last / 1e3;
}

double tt_pulse_limit_seconds(double hang_seconds)
{
    return hang_seconds > 0 ? hang_seconds * 1.35 : STUCK_SECONDS;
}

void tt_pulse_rest(struct tt_pulse *pulse)
{
    if (pulse != NULL) atomic_store_explicit(&pulse->beat_ms, 0, memory_order_release);
}

/* Returns the stuck rank with the oldest beat, since the others may only wait for it; -1: none is stuck. Time before
 * `awake` is ignored: the whole process was stopped until then. */
static int find_stuck(const struct tt_pulse_watch *watch, int64_t now, int64_t awake, int64_t *silent_ms)
{
    int stuck = -1;
    *silent_ms = watch->limit_ms;
    for (int r = 0; r < watch->count; r++) {
        int64_t beat = atomic_load_explicit(&watch->pulses[r].beat_ms, memory_order_acquire);
        if (beat == 0) continue;
        if (beat < awake) beat = awake;
        if (now - beat <= *silent_ms) continue;
        *silent_ms = now - beat;
        stuck = r;
    }
    return stuck;
}

static tt_status watch_main(void *argument)
{
    struct tt_pulse_watch *watch = argument;
    tt_status status = TT_OK;
    int64_t awake = now_ms(), polled = awake;
    pthread_mutex_lock(&watch->mutex);
    while (!watch->stops && status == TT_OK) {
        (void)tt_cond_wait_until(&watch->changed, &watch->mutex, tt_clock_seconds() + POLL_MS * 1e-3);
        int64_t silent_ms, now = now_ms();
        if (now - polled > STOPPED_MS) awake = now;
        polled = now;
        int stuck = watch->stops ? -1 : find_stuck(watch, now, awake, &silent_ms);
        if (stuck < 0) continue;
        const char *what = atomic_load_explicit(&watch->pulses[stuck].what, memory_order_relaxed);
        status = tt_fail(TT_ERR_DEVICE, "rank %d has not returned for %lld s from a call in the %s",
                         watch->first_rank + stuck, (long long)silent_ms / 1000, what);
        tt_hint("a GPU or its driver hangs: see dmesg and nvidia-smi; --hang_seconds changes the time "
                "limit");
    }
    pthread_mutex_unlock(&watch->mutex);
    if (status == TT_OK) return TT_OK;
    tt_comm_abort(watch->comm);
    if (installed_handler != NULL) installed_handler(tt_error_last());
    return status;
}

tt_status tt_pulse_watch_start(struct tt_pulse *pulses, int count, int first_rank, struct tt_comm *comm,
                               double hang_seconds, struct tt_pulse_watch **out)
{
    struct tt_pulse_watch *watch = tt_calloc(1, sizeof *watch);
    if (watch == NULL) return TT_ERR_MEMORY;
    watch->pulses = pulses;
    watch->count = count;
    watch->first_rank = first_rank;
    watch->comm = comm;
    watch->limit_ms = (int64_t)(tt_pulse_limit_seconds(hang_seconds) * 1e3);
    pthread_mutex_init(&watch->mutex, NULL);
    pthread_cond_init(&watch->changed, NULL);
    tt_status status = tt_thread_start("pulse", watch_main, watch, &watch->thread);
    if (status == TT_OK)
        *out = watch;
    else
        tt_pulse_watch_stop(watch);
    return status;
}

void tt_pulse_watch_stop(struct tt_pulse_watch *watch)
{
    if (watch == NULL) return;
    pthread_mutex_lock(&watch->mutex);
    watch->stops = true;
    pthread_cond_signal(&watch->changed);
    pthread_mutex_unlock(&watch->mutex);
    /* Joining the thread replaces the record of this one; an error of the thread was reported already. */
    struct tt_error record;
    tt_error_copy(&record);
    tt_status status = watch->thread != NULL ? tt_thread_join(watch->thread) : TT_OK;
    if (status != TT_OK) (void)tt_error_restore(&record);
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->mutex);
    tt_free(watch);
}
