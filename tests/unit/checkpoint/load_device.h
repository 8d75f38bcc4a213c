/* For tests of loading and saving: a CPU device that behaves as one with memory of its own. Copies from and to the
 * host are only queued; they are made when an event or the stream is waited for, so that a buffer that is used again
 * too early shows as wrong bytes. */
#ifndef TT_TESTS_UNIT_CHECKPOINT_LOAD_DEVICE_H
#define TT_TESTS_UNIT_CHECKPOINT_LOAD_DEVICE_H

#include <stdlib.h>
#include <string.h>

#include "backend/device_impl.h"
#include "base/thread.h"

enum { LATE_COPIES_MAX = 1 << 16 };

struct late_copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct late_device {
    struct tt_device_table table; /* first: found by the device's table */
    void (*release_host)(struct tt_device *device, void *data, size_t bytes); /* of the CPU device */
    pthread_mutex_t mutex; /* a rank and its saver ask at the same time; holds copies, queued, done */
    struct late_copy copies[LATE_COPIES_MAX];
    size_t queued, done;
    size_t fail_at;           /* this copy fails; 0: none */
    struct tt_cancel *cancel; /* is requested with copy cancel_at */
    size_t cancel_at;
    size_t host_peak;
};

static struct late_device *late_of(const struct tt_device *device)
{
    return (struct late_device *)(uintptr_t)device->table;
}

static void late_run_locked(struct late_device *late, size_t end)
{
    for (; late->done < end; late->done++) {
        struct late_copy *copy = &late->copies[late->done];
        memcpy(copy->to, copy->from, copy->bytes);
    }
}

static void late_run(struct late_device *late, size_t end)
{
    pthread_mutex_lock(&late->mutex);
    late_run_locked(late, end);
    pthread_mutex_unlock(&late->mutex);
}

static void late_run_all(struct late_device *late)
{
    pthread_mutex_lock(&late->mutex);
    late_run_locked(late, late->queued);
    pthread_mutex_unlock(&late->mutex);
}

static tt_status late_queue_locked(struct late_device *late, const struct late_copy *copy)
{
    if (late->fail_at > 0 && late->queued + 1 == late->fail_at)
        return tt_fail(TT_ERR_DEVICE, "the wire broke");
    if (late->cancel != NULL && late->queued + 1 == late->cancel_at) atomic_store(&late->cancel->requests, 1);
    if (late->queued == LATE_COPIES_MAX)
        return tt_fail(TT_ERR_INTERNAL, "the test's device has too many copies");
    late->copies[late->queued++] = *copy;
    return TT_OK;
}

static tt_status late_copy(struct tt_stream *stream, void *to, const void *from, size_t bytes, int direction)
{
    struct late_device *late = late_of(stream->device);
    if (stream->device->memory.host_total > late->host_peak)
        late->host_peak = stream->device->memory.host_total;
    pthread_mutex_lock(&late->mutex);
    tt_status status = late_queue_locked(late, &(struct late_copy){to, from, bytes});
    pthread_mutex_unlock(&late->mutex);
    if (status == TT_OK && direction == TT_COPY_ON_DEVICE) late_run_all(late);
    return status;
}

static tt_status late_fill_zero(struct tt_stream *stream, void *data, size_t bytes)
{
    late_run_all(late_of(stream->device));
    memset(data, 0, bytes);
    return TT_OK;
}

static tt_status late_record(struct tt_event *event, struct tt_stream *stream)
{
    struct late_device *late = late_of(stream->device);
    pthread_mutex_lock(&late->mutex);
    event->impl = (void *)late->queued;
    pthread_mutex_unlock(&late->mutex);
    return TT_OK;
}

static tt_status late_event_synchronize(struct tt_event *event)
{
    late_run(late_of(event->device), (size_t)event->impl);
    return TT_OK;
}

/* Not at the first question: whoever asks has to ask again. */
static tt_status late_event_query(struct tt_event *event, bool *done)
{
    struct late_device *late = late_of(event->device);
    pthread_mutex_lock(&late->mutex);
    *done = late->done >= (size_t)event->impl;
    late_run_locked(late, (size_t)event->impl);
    pthread_mutex_unlock(&late->mutex);
    return TT_OK;
}

static tt_status late_synchronize(struct tt_stream *stream)
{
    late_run_all(late_of(stream->device));
    return TT_OK;
}

/* Memory that a copy still reads or writes must not go. */
static void late_release_host(struct tt_device *device, void *data, size_t bytes)
{
    struct late_device *late = late_of(device);
    pthread_mutex_lock(&late->mutex);
    for (size_t i = late->done; i < late->queued; i++) {
        uintptr_t from = (uintptr_t)late->copies[i].from, to = (uintptr_t)late->copies[i].to,
                  at = (uintptr_t)data;
        if ((from >= at && from < at + bytes) || (to >= at && to < at + bytes)) abort();
    }
    pthread_mutex_unlock(&late->mutex);
    late->release_host(device, data, bytes);
}

/* Opens a CPU device; `late` (zeroed) is NULL for one that is what it is. */
static inline tt_status late_device_open(struct late_device *late, int threads, struct tt_device **out)
{
    TT_TRY(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = threads}, out));
    if (late == NULL) return TT_OK;
    pthread_mutex_init(&late->mutex, NULL);
    late->table = *(*out)->table;
    late->table.copy = late_copy;
    late->table.fill_zero = late_fill_zero;
    late->table.event_record = late_record;
    late->table.event_synchronize = late_event_synchronize;
    late->table.event_query = late_event_query;
    late->table.stream_synchronize = late_synchronize;
    late->release_host = late->table.release_host;
    late->table.release_host = late_release_host;
    (*out)->table = &late->table;
    (*out)->is_host = false;
    return TT_OK;
}

#endif
