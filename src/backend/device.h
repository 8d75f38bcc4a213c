/* The seam: devices, buffers, streams, events. What is behind it (cpu, cuda, plan) shows only in backend/device_impl.h.
 *
 * A device belongs to one rank and is driven by that rank's thread. Buffers carry the purpose that they are
 * counted under. Streams run work in order; events order one stream after another. On the cpu and plan devices
 * a stream runs each piece of work at once, in the calling thread.
 */
#ifndef TT_BACKEND_DEVICE_H
#define TT_BACKEND_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

struct tt_device;
struct tt_stream;
struct tt_event;
struct tt_buffer;

enum tt_purpose {
    TT_PURPOSE_WEIGHTS,     /* this rank's frozen shards */
    TT_PURPOSE_ADAPTERS,    /* fp32 masters of what trains */
    TT_PURPOSE_OPTIMIZER,
    TT_PURPOSE_GRADIENTS,   /* slices, and full gradients of the unit in flight */
    TT_PURPOSE_GATHER,      /* whole units, lent to the blocks */
    TT_PURPOSE_ACTIVATIONS, /* the workspace: kept results, scratch, chunks of logits */
    TT_PURPOSE_BATCH,       /* token ids, positions, labels */
    TT_PURPOSE_COMM,
    TT_PURPOSE_STAGING,     /* host memory through which files are read and written */
    TT_PURPOSE_SCRATCH,     /* what the device needs for itself from the day it opens: packed panels, tiles */
    TT_PURPOSE_COUNT
};
const char *tt_purpose_name(enum tt_purpose purpose); /* "weights shard", ... */

struct tt_device_config {
    const char *kind;    /* "cpu", "cuda" or "plan" */
    int index;           /* which one of its kind; on cpus only a number for messages */
    int threads;         /* cpu: threads that one op may use; 0: all processors */
    size_t memory_limit; /* bytes of buffers; 0: none. More is TT_ERR_MEMORY */
};

/* A kind that cannot be opened says why (TT_ERR_DEVICE or TT_ERR_UNSUPPORTED); there is no silent fallback. */
TT_MUST_USE tt_status tt_device_open(const struct tt_device_config *config, struct tt_device **out);
void tt_device_close(struct tt_device *device); /* takes NULL; all its buffers must be destroyed before */
const char *tt_device_kind(const struct tt_device *device);
const char *tt_device_name(const struct tt_device *device); /* "AMD EPYC, 2 threads, AVX2" */
bool tt_device_is_plan(const struct tt_device *device);     /* computes nothing, buffers have no memory */
int tt_device_threads(const struct tt_device *device);

struct tt_memory_use {
    size_t current[TT_PURPOSE_COUNT];
    size_t peak[TT_PURPOSE_COUNT];
    size_t total_current; /* of buffers, as the limit is: without TT_PURPOSE_SCRATCH, so that a plan can match it */
    size_t total_peak;
};
void tt_device_memory(const struct tt_device *device, struct tt_memory_use *out);
/* After this, creating a buffer is TT_ERR_INTERNAL until thawed: training allocates nothing. */
void tt_device_freeze(struct tt_device *device, bool frozen);

/* Zero-filled, 256-byte aligned. On the plan device data is a made-up address that must not be touched. */
TT_MUST_USE tt_status tt_buffer_create(struct tt_device *device, size_t bytes, enum tt_purpose purpose,
                                       struct tt_buffer **out);
void tt_buffer_destroy(struct tt_buffer *buffer); /* takes NULL */
void *tt_buffer_data(const struct tt_buffer *buffer);
size_t tt_buffer_bytes(const struct tt_buffer *buffer);

TT_MUST_USE tt_status tt_stream_create(struct tt_device *device, struct tt_stream **out);
void tt_stream_destroy(struct tt_stream *stream);
struct tt_device *tt_stream_device(const struct tt_stream *stream);
TT_MUST_USE tt_status tt_stream_synchronize(struct tt_stream *stream); /* the host waits */

TT_MUST_USE tt_status tt_event_create(struct tt_device *device, struct tt_event **out);
void tt_event_destroy(struct tt_event *event);
TT_MUST_USE tt_status tt_event_record(struct tt_event *event, struct tt_stream *stream);
TT_MUST_USE tt_status tt_stream_wait(struct tt_stream *stream, struct tt_event *event); /* the stream waits */

/* In stream order. The host side of an upload must stay as it is until the stream has passed it. */
TT_MUST_USE tt_status tt_copy_to_device(struct tt_stream *stream, void *to, const void *from_host, size_t bytes);
TT_MUST_USE tt_status tt_copy_to_host(struct tt_stream *stream, void *to_host, const void *from, size_t bytes);
TT_MUST_USE tt_status tt_copy_on_device(struct tt_stream *stream, void *to, const void *from, size_t bytes);
TT_MUST_USE tt_status tt_fill_zero(struct tt_stream *stream, void *data, size_t bytes);

#endif
