/* Waiting for the device with a limit. The host waits only here: it polls, calls the check of the device's
 * owner, which reports failures of other ranks (tt_device_set_watch), and follows the marks that the compute
 * stream passes. A device hangs when its stream passes no mark for HANG_SECONDS and no stream waits in a
 * collective whose other ranks may be late. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "backend/cuda/fault.h"
#include "backend/cuda/marks.h"
#include "backend/cuda/device_parts.h"
#include "base/alloc.h"
#include "base/clock.h"

enum {
    WAITS = 1024,
    STREAMS_SEEN = 4 /* no device has more streams that wait */
};

static const double hang_seconds_default = 20.0; /* longer than any block takes */
static const double spin_seconds = 0.0005;
static const double check_seconds = 0.005;
static const double stopped_seconds = 1.0; /* between two polls: the process had been stopped by a signal */
static const double settle_seconds = 10.0; /* limit for queued work when another rank has failed */

/* A position in a stream at which it may wait for other ranks. */
struct wait {
    const struct tt_stream *stream;
    cudaEvent_t reached, through;
    bool queued; /* `through` is recorded */
    bool over;   /* the stream is known to be past it */
    int seconds_max;
};

struct tt_cuda_watch {
    struct wait waits[WAITS];
    uint64_t waits_queued, waits_over; /* all streams are past the first `waits_over` waits */
    double hang_seconds;
    uint64_t fault_mark; /* the stream is made to hang after this mark; 0: never */
    atomic_bool stuck;   /* written by the thread that drives the device */
    bool settled;        /* another rank has failed, and queued work has been waited for */
};

static tt_status create_event(cudaEvent_t *event)
{
    return tt_cuda_check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), NULL, "creating an event");
}

tt_status tt_cuda_watch_create(int device_index, double hang_seconds, struct tt_cuda_watch **out)
{
    struct tt_cuda_watch *watch = tt_calloc(1, sizeof *watch);
    if (watch == NULL) return TT_ERR_MEMORY;
    watch->fault_mark = tt_cuda_fault_mark(device_index);
    watch->hang_seconds = hang_seconds > 0 ? hang_seconds : hang_seconds_default;
    tt_status status = TT_OK;
    for (int i = 0; i < WAITS && status == TT_OK; i++) {
        status = create_event(&watch->waits[i].reached);
        if (status == TT_OK) status = create_event(&watch->waits[i].through);
    }
    if (status != TT_OK) {
        tt_cuda_watch_destroy(watch);
        return status;
    }
    *out = watch;
    return TT_OK;
}

void tt_cuda_watch_destroy(struct tt_cuda_watch *watch)
{
    if (watch == NULL) return;
    for (int i = 0; i < WAITS; i++) {
        if (watch->waits[i].reached != NULL) cudaEventDestroy(watch->waits[i].reached);
        if (watch->waits[i].through != NULL) cudaEventDestroy(watch->waits[i].through);
    }
    tt_free(watch);
}

static struct tt_cuda_watch *watch_of(const struct tt_device *device)
{
    return ((struct tt_cuda_device *)device->impl)->watch;
}

static struct tt_cuda_marks *marks_of(const struct tt_device *device)
{
    return ((struct tt_cuda_device *)device->impl)->marks;
}

void tt_cuda_mark(struct tt_stream *stream, const char *what)
{
    struct tt_cuda_marks *marks = marks_of(stream->device);
    if (stream->kind != TT_STREAM_COMPUTE || tt_cuda_of(stream)->records) return;
    tt_cuda_marks_add(marks, tt_cuda_handle(stream), what);
    if (marks->queued == watch_of(stream->device)->fault_mark) tt_cuda_hang(stream);
}

void tt_cuda_wait_begins(struct tt_stream *stream, int seconds_max)
{
    struct tt_cuda_watch *watch = watch_of(stream->device);
    struct wait *wait = &watch->waits[watch->waits_queued++ % WAITS];
    wait->stream = stream;
    wait->queued = wait->over = false;
    wait->seconds_max = seconds_max;
    (void)cudaEventRecord(wait->reached, tt_cuda_handle(stream));
}

/* One thread drives the device, so the last wait of the table is the new one. */
void tt_cuda_wait_queued(struct tt_stream *stream)
{
    struct tt_cuda_watch *watch = watch_of(stream->device);
    struct wait *wait = &watch->waits[(watch->waits_queued - 1) % WAITS];
    wait->queued = cudaEventRecord(wait->through, tt_cuda_handle(stream)) == cudaSuccess;
}

/* Waits for queued work with a limit. Work that waits for an event of another GPU also ends soon, unless that GPU has
 * failed. */
static bool settles(const struct tt_cuda_device *cuda)
{
    double start = tt_clock_seconds();
    for (const struct tt_cuda_stream *stream = cuda->streams; stream != NULL; stream = stream->next) {
        while (cudaStreamQuery(stream->stream) == cudaErrorNotReady) {
            struct timespec nap = {0, 200000};
            if (tt_clock_seconds() - start > settle_seconds) return false;
            nanosleep(&nap, NULL);
        }
    }
    return true;
}

static bool others_failed(const struct tt_device *device)
{
    struct tt_error record;
    if (device->check == NULL) return false;
    tt_error_copy(&record);
    bool failed = device->check(device->check_context) != TT_OK;
    (void)tt_error_restore(&record);
    return failed;
}

bool tt_cuda_is_stuck(const struct tt_device *device)
{
    const struct tt_cuda_device *cuda = device->impl;
    struct tt_cuda_watch *watch = cuda != NULL ? cuda->watch : NULL;
    if (watch == NULL) return false;
    if (!watch->stuck && !watch->settled && others_failed(device)) {
        watch->settled = true;
        watch->stuck = !settles(cuda);
    }
    return watch->stuck;
}

bool tt_cuda_has_hung(const struct tt_device *device)
{
    const struct tt_cuda_device *cuda = device->impl;
    return cuda != NULL && cuda->watch != NULL && cuda->watch->stuck;
}

static bool is_over(struct wait *wait)
{
    if (!wait->over) wait->over = wait->queued && cudaEventQuery(wait->through) == cudaSuccess;
    return wait->over;
}

/* Returns how long the streams that now wait for other ranks may do so, in seconds; 0: none waits. A stream's
 * waits behind one that it has not passed need no query. `moved` is set when a stream has passed a wait since
 * the last call. */
static int waits_for_others(struct tt_cuda_watch *watch, bool *moved)
{
    const struct tt_stream *seen[STREAMS_SEEN];
    int seconds = 0, seen_count = 0;
    if (watch->waits_queued - watch->waits_over > WAITS) { /* the table has overwritten the oldest waits */
        watch->waits_over = watch->waits_queued - WAITS;
        seconds = TT_CUDA_PROCESSES_SECONDS;
    }
    for (uint64_t i = watch->waits_over; i < watch->waits_queued && seen_count < STREAMS_SEEN; i++) {
        struct wait *wait = &watch->waits[i % WAITS];
        bool behind = false, was_over = wait->over;
        for (int k = 0; k < seen_count; k++) behind |= seen[k] == wait->stream;
        if (behind) continue;
        if (is_over(wait)) {
            *moved |= !was_over;
            if (i == watch->waits_over) watch->waits_over++;
            continue;
        }
        seen[seen_count++] = wait->stream;
        if (wait->seconds_max > seconds && cudaEventQuery(wait->reached) == cudaSuccess)
            seconds = wait->seconds_max;
    }
    return seconds;
}

static tt_status report_hang(struct tt_device *device, double seconds)
{
    struct tt_cuda_watch *watch = watch_of(device);
    watch->stuck = true;
    tt_fail(TT_ERR_DEVICE, "%s has done nothing for %.0f s; it was at %s", device->name, seconds,
            tt_cuda_marks_where(marks_of(device)));
    tt_hint("a kernel that does not end, or a GPU that has stopped: see dmesg and nvidia-smi; "
            "--hang_seconds changes this limit");
    return TT_ERR_DEVICE;
}

/* Polls everything that can end a wait early. `moved` is the time of the last progress. */
static tt_status look(struct tt_device *device, double now, double *moved)
{
    struct tt_cuda_watch *watch = watch_of(device);
    if (device->check != NULL) TT_TRY(device->check(device->check_context));
    bool moves = tt_cuda_marks_advance(marks_of(device));
    int for_others = waits_for_others(watch, &moves);
    if (moves) *moved = now;
    double limit = for_others > 0 ? for_others : watch->hang_seconds;
    return now - *moved > limit ? report_hang(device, now - *moved) : TT_OK;
}

typedef cudaError_t query(void *what);

static tt_status wait_for(struct tt_device *device, query *is_done, void *what, struct tt_stream *stream,
                          const char *call)
{
    double start = 0, moved = 0, checked = 0;
    for (;;) {
        cudaError_t error = is_done(what);
        if (error == cudaSuccess) return TT_OK;
        if (error != cudaErrorNotReady) return tt_cuda_check(error, stream, call);
        double now = tt_clock_seconds();
        if (start == 0) start = moved = checked = now;
        if (now - checked > stopped_seconds) moved += now - checked;
        if (now - checked > check_seconds) {
            checked = now;
            TT_TRY(look(device, now, &moved));
        }
        if (now - start < spin_seconds) {
            sched_yield();
        } else {
            struct timespec nap = {0, 20000};
            nanosleep(&nap, NULL);
        }
    }
}

static cudaError_t stream_done(void *what)
{
    return cudaStreamQuery((cudaStream_t)what);
}

static cudaError_t event_done(void *what)
{
    return cudaEventQuery((cudaEvent_t)what);
}

tt_status tt_cuda_wait(struct tt_stream *stream)
{
    if (watch_of(stream->device)->stuck) return TT_ERR_DEVICE;
    tt_status status =
        wait_for(stream->device, stream_done, tt_cuda_handle(stream), stream, "waiting for the device");
    if (status == TT_OK) (void)tt_cuda_marks_advance(marks_of(stream->device));
    return status;
}

tt_status tt_cuda_event_wait(struct tt_device *device, cudaEvent_t event)
{
    if (watch_of(device)->stuck) return TT_ERR_DEVICE;
    return wait_for(device, event_done, event, NULL, "waiting for the device");
}
