/* The seam: devices, buffers, streams, events. The implementations (cpu, cuda, plan) are visible only in
 * backend/device_impl.h.
 *
 * A device belongs to one rank and is driven by that rank's thread. Each buffer is counted under a purpose. Streams run
 * work in order; events order one stream after another. On the cpu and plan devices a stream runs each piece of work
 * immediately, in the calling thread; on cuda a call returns when the work is queued, and a later call reports errors
 * of the work.
 *
 * "cuda" is a plugin, libtrimtab_cuda.so, searched beside the program (or the library) and in its libdir, or loaded
 * from TRIMTAB_CUDA_PLUGIN; the program does not link CUDA and runs without it.
 */
#ifndef TT_BACKEND_DEVICE_H
#define TT_BACKEND_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include "backend/tuning.h"
#include "base/error.h"

struct tt_chip;
struct tt_device;
struct tt_stream;
struct tt_event;
struct tt_buffer;

enum tt_purpose {
    TT_PURPOSE_WEIGHTS,  /* this rank's frozen shards */
    TT_PURPOSE_ADAPTERS, /* fp32 masters of trainable parameters */
    TT_PURPOSE_OPTIMIZER,
    TT_PURPOSE_GRADIENTS,   /* slices, and full gradients of the unit in flight */
    TT_PURPOSE_GATHER,      /* whole units, lent to the blocks */
    TT_PURPOSE_ACTIVATIONS, /* the workspace: kept results, scratch, chunks of logits */
    TT_PURPOSE_BATCH,       /* token ids, positions, labels */
    TT_PURPOSE_COMM,
    TT_PURPOSE_STAGING, /* host memory through which files are read and written */
    /* host memory for data offloaded from the device: shards, optimizer state, inputs of blocks */
    TT_PURPOSE_OFFLOAD,
    TT_PURPOSE_PANELS, /* weights packed for the products of a generation (backend/kept.h) */
    /* memory of the device itself, allocated when it opens: packed panels, tiles, GEMM workspace */
    TT_PURPOSE_SCRATCH,
    /* memory of driver and libraries besides our buffers: CUDA context, kernels, NCCL */
    TT_PURPOSE_CONTEXT,
    TT_PURPOSE_COUNT
};
const char *tt_purpose_name(enum tt_purpose purpose); /* "weights shard", ... */
/* TT_PURPOSE_SCRATCH of a processor's device with so many threads. */
size_t tt_host_scratch_bytes(int threads);

/* The memory of a machine, or the limit of a control group where that is less, and the ranks that share it. bytes 0:
 * not known. */
struct tt_machine_memory {
    uint64_t bytes;
    int ranks;
    bool grouped;
};

struct tt_device_config {
    const char *kind;    /* "cpu", "cuda" or "plan" */
    int index;           /* index among devices of its kind; on cpus only a number for messages */
    int threads;         /* cpu: threads of one op; 0: all processors */
    size_t memory_limit; /* total bytes of device memory; 0: no limit. More is TT_ERR_MEMORY */
    /* cpu, and a plan of one: a plan without memory_limit that needs more than a rank's share does not fit */
    struct tt_machine_memory machine;
    /* plan: the planned chip ("cpu", or a name of tt_chip_find such as "h200"); NULL: "cpu" */
    const char *stands_for;
    /* plan: rate at which a rank receives from other machines; 0: that of usual servers with the chip */
    double network_bytes_per_second;
    struct tt_device_tuning tuning;
};

/* Number of GPUs visible to this process; when it is 0, `reason` (may be NULL) gets the reason: no plugin, no driver,
 * ... */
int tt_cuda_device_count(char *reason, size_t reason_bytes);

/* Fails with the reason (TT_ERR_DEVICE or TT_ERR_UNSUPPORTED); there is no silent fallback. */
TT_MUST_USE tt_status tt_device_open(const struct tt_device_config *config, struct tt_device **out);
void tt_device_close(struct tt_device *device); /* takes NULL; all its buffers must be destroyed before */
const char *tt_device_kind(const struct tt_device *device);
const char *tt_device_name(const struct tt_device *device); /* "AMD EPYC, 2 threads, AVX2" */
bool tt_device_is_plan(const struct tt_device *device);     /* computes nothing, buffers have no memory */
int tt_device_threads(const struct tt_device *device);

/* the chip of the device, or of the plan (chips.h); NULL: unknown */
const struct tt_chip *tt_device_chip(const struct tt_device *device);
/* Products of ops/gemm_scaled.h: not on GPUs without FP8. */
bool tt_device_multiplies_fp8(const struct tt_device *device);
/* its memory is the host's (cpu, or a plan of one) */
bool tt_device_is_host(const struct tt_device *device);

struct tt_memory_use {
    size_t current[TT_PURPOSE_COUNT];
    size_t peak[TT_PURPOSE_COUNT];
    /* of all purposes on the device, compared with the limit */
    size_t total_current;
    size_t total_peak;
    /* page-locked host buffers (tt_host_buffer_create), not in the numbers above */
    size_t host[TT_PURPOSE_COUNT];
    size_t host_total;
};
/* Enables on-device copies of this device from the memory of GPU `index` of this process; false: not possible. */
bool tt_device_reach(struct tt_device *device, int index);
int tt_device_index(const struct tt_device *device);
const struct tt_device_tuning *tt_device_tuning_of(const struct tt_device *device); /* lent */
/* Bytes of device memory used by this process, by the driver's count: buffers, context and libraries together; 0 where
 * the device is the host. */
size_t tt_device_used_bytes(struct tt_device *device);
void tt_device_memory(const struct tt_device *device, struct tt_memory_use *out);
/* While frozen, creating a buffer is TT_ERR_INTERNAL: training allocates nothing. Host buffers of TT_PURPOSE_STAGING
 * are exempt, because a save uses one. */
void tt_device_freeze(struct tt_device *device, bool frozen);

/* Zero-filled, 256-byte aligned. On the plan device data is a fictitious address that must not be accessed. */
TT_MUST_USE tt_status tt_buffer_create(struct tt_device *device, size_t bytes, enum tt_purpose purpose,
                                       struct tt_buffer **out);
/* Host memory that the device's copy engines access directly (page-locked where the device is not the host);
 * zero-filled, 256-byte aligned. Copies from and to it are asynchronous: see tt_copy_to_device. */
TT_MUST_USE tt_status tt_host_buffer_create(struct tt_device *device, size_t bytes, enum tt_purpose purpose,
                                            struct tt_buffer **out);
void tt_buffer_destroy(struct tt_buffer *buffer); /* takes NULL */
/* Memory of a device that other processes of the machine may read (CUDA's IPC). A handle is valid until its buffer is
 * destroyed or its process ends. */
enum { TT_MEMORY_HANDLE_BYTES = 64 };
struct tt_memory_handle {
    unsigned char bytes[TT_MEMORY_HANDLE_BYTES];
};
/* TT_ERR_UNSUPPORTED with the reason where device, driver or container do not allow it. */
TT_MUST_USE tt_status tt_buffer_export(const struct tt_buffer *buffer, struct tt_memory_handle *handle);
/* Maps memory of another process's device, for copies to this device: never of a buffer of this process.
 * TT_ERR_UNSUPPORTED as above. tt_device_unimport unmaps it, before the device is closed. */
TT_MUST_USE tt_status tt_device_import(struct tt_device *device, const struct tt_memory_handle *handle,
                                       void **data);
void tt_device_unimport(struct tt_device *device, void *data); /* takes NULL */
void *tt_buffer_data(const struct tt_buffer *buffer);
size_t tt_buffer_bytes(const struct tt_buffer *buffer);

/* A compute stream runs every op. A copy stream runs copies, collectives and element-wise ops (cast, add, scale); it
 * has no scratch for other ops. */
enum tt_stream_kind { TT_STREAM_COMPUTE, TT_STREAM_COPY };
/* a compute stream */
TT_MUST_USE tt_status tt_stream_create(struct tt_device *device, struct tt_stream **out);
TT_MUST_USE tt_status tt_stream_create_copy(struct tt_device *device, struct tt_stream **out);
void tt_stream_destroy(struct tt_stream *stream);
struct tt_device *tt_stream_device(const struct tt_stream *stream);
TT_MUST_USE tt_status tt_stream_synchronize(struct tt_stream *stream); /* the host waits */

/* Names the work queued from now on ("backward of model.layers.3"), for messages about a failure or hang of the device.
 * No effect where the device is the host. */
void tt_stream_mark(struct tt_stream *stream, const char *what);
/* While the host waits for this device, it polls `check`; a status other than TT_OK ends the wait and is returned (a
 * communicator reports the failure of a peer). NULL: none. */
typedef tt_status tt_device_check(void *context);
void tt_device_set_watch(struct tt_device *device, tt_device_check *check, void *context);

TT_MUST_USE tt_status tt_event_create(struct tt_device *device, struct tt_event **out);
void tt_event_destroy(struct tt_event *event);
TT_MUST_USE tt_status tt_event_record(struct tt_event *event, struct tt_stream *stream);
TT_MUST_USE tt_status tt_stream_wait(struct tt_stream *stream, struct tt_event *event); /* the stream waits */
/* the host waits for the work before the last record */
TT_MUST_USE tt_status tt_event_synchronize(struct tt_event *event);
/* *done: that work is done. Never waits; any thread may call it, unlike all other calls. */
TT_MUST_USE tt_status tt_event_query(struct tt_event *event, bool *done);

/* A graph: work of a compute stream that is recorded once and then launched again and again as one piece, which takes
 * the host microseconds instead of one launch for each op. It reads and writes the memory that it was recorded with.
 *     begin -> ops, copies on the device, copies to host buffers -> end -> launch ... -> destroy
 * Nothing runs while it is recorded, and nothing may be uploaded. Events are neither recorded nor waited for: what they
 * stand for must be done. An op that chooses an algorithm at its
 * first call must have run before. end may be called after a failed op: then, and after any other failure, there is no
 * graph. */
struct tt_graph;
bool tt_device_has_graphs(const struct tt_device *device);
TT_MUST_USE tt_status tt_graph_begin(struct tt_stream *stream);
TT_MUST_USE tt_status tt_graph_end(struct tt_stream *stream, struct tt_graph **out);
TT_MUST_USE tt_status tt_graph_launch(struct tt_graph *graph, struct tt_stream *stream);
void tt_graph_destroy(struct tt_graph *graph); /* takes NULL; its launches must be done */

/* Copies in stream order. The source of an upload may change when the call returns, except in a host buffer
 * (tt_host_buffer_create), which must not change until the copy is done. A download is complete after
 * tt_stream_synchronize; a download to memory other than a host buffer waits itself. On-device copies also access the
 * memory of other GPUs of this process, and what was imported. */
TT_MUST_USE tt_status tt_copy_to_device(struct tt_stream *stream, void *to, const void *from_host,
                                        size_t bytes);
TT_MUST_USE tt_status tt_copy_to_host(struct tt_stream *stream, void *to_host, const void *from,
                                      size_t bytes);
TT_MUST_USE tt_status tt_copy_on_device(struct tt_stream *stream, void *to, const void *from, size_t bytes);
TT_MUST_USE tt_status tt_fill_zero(struct tt_stream *stream, void *data, size_t bytes);

#endif
