/* The seam: devices, buffers, streams, events. What is behind it (cpu, cuda, plan) shows only in backend/device_impl.h.
 *
 * A device belongs to one rank and is driven by that rank's thread. Buffers carry the purpose that they are counted
 * under. Streams run work in order; events order one stream after another. On the cpu and plan devices a stream runs
 * each piece of work at once, in the calling thread; on cuda a call returns when the work is queued, and an error of
 * the work itself shows in a later call.
 *
 * "cuda" is a plugin, libtrimtab_cuda.so, looked for beside the program (or the library) and in its libdir, or where
 * TRIMTAB_CUDA_PLUGIN says; the program links no CUDA and runs without it.
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
    TT_PURPOSE_WEIGHTS,  /* this rank's frozen shards */
    TT_PURPOSE_ADAPTERS, /* fp32 masters of what trains */
    TT_PURPOSE_OPTIMIZER,
    TT_PURPOSE_GRADIENTS,   /* slices, and full gradients of the unit in flight */
    TT_PURPOSE_GATHER,      /* whole units, lent to the blocks */
    TT_PURPOSE_ACTIVATIONS, /* the workspace: kept results, scratch, chunks of logits */
    TT_PURPOSE_BATCH,       /* token ids, positions, labels */
    TT_PURPOSE_COMM,
    TT_PURPOSE_STAGING, /* host memory through which files are read and written */
    /* host memory that holds what the device has no room for: shards, optimizer state, inputs of blocks */
    TT_PURPOSE_OFFLOAD,
    /* what the device needs for itself from the day it opens: packed panels, tiles, GEMM workspace */
    TT_PURPOSE_SCRATCH,
    /* what driver and libraries take beside our buffers: CUDA context, kernels, NCCL */
    TT_PURPOSE_CONTEXT,
    TT_PURPOSE_COUNT
};
const char *tt_purpose_name(enum tt_purpose purpose); /* "weights shard", ... */

struct tt_device_config {
    const char *kind;    /* "cpu", "cuda" or "plan" */
    int index;           /* which one of its kind; on cpus only a number for messages */
    int threads;         /* cpu: threads that one op may use; 0: all processors */
    size_t memory_limit; /* bytes of device memory, all in; 0: none. More is TT_ERR_MEMORY */
    /* plan: which chip is planned for ("cpu", or a name of tt_chip_find such as "h200"); NULL: "cpu" */
    const char *stands_for;
    /* plan: what a rank receives from other machines; 0: what the chip's usual servers give */
    double network_bytes_per_second;
};

/* What is known of a chip without having one: for plans (sizes, rates) and for messages. Rates are what programs
 * reach. */
struct tt_chip {
    const char *name;         /* "h200" */
    const char *kind;         /* which device kind it is: "cpu" or "cuda" */
    size_t memory_bytes;      /* as cudaMemGetInfo's total */
    size_t context_bytes;     /* TT_PURPOSE_CONTEXT of one rank */
    size_t collectives_bytes; /* what NCCL adds to it where ranks are processes */
    double gemm_flops;        /* bf16, sustained */
    double attention_forward_flops, attention_backward_flops; /* causal, head dim 128, long sequences */
    double memory_bytes_per_second;                           /* read plus written */
    double link_bytes_per_second; /* received from the other GPUs of the machine */
    /* received from other machines: one network adapter a GPU, as usual servers have it */
    double network_bytes_per_second;
    double host_bytes_per_second; /* one way, page-locked */
    bool fuses;                   /* products with LoRA and SwiGLU in one kernel (cuda/gemm_fused.h) */
};
/* "h200", "h100", "a100-80gb", "rtx4090", ...; NULL: unknown */
const struct tt_chip *tt_chip_find(const char *name);
/* of a chip that is not known (NULL): a cautious guess */
size_t tt_chip_context_bytes(const struct tt_chip *chip);
const char *tt_chip_names(void); /* "h200, h100, ..." for messages */
/* "NVIDIA H200" -> h200; NULL: unknown */
const struct tt_chip *tt_chip_of_device_name(const char *device_name);

/* GPUs that this process sees; 0 when there is none. `reason` (may be NULL) then gets why: no plugin, no driver, ... */
int tt_cuda_device_count(char *reason, size_t reason_bytes);

/* A kind that cannot be opened says why (TT_ERR_DEVICE or TT_ERR_UNSUPPORTED); there is no silent fallback. */
TT_MUST_USE tt_status tt_device_open(const struct tt_device_config *config, struct tt_device **out);
void tt_device_close(struct tt_device *device); /* takes NULL; all its buffers must be destroyed before */
const char *tt_device_kind(const struct tt_device *device);
const char *tt_device_name(const struct tt_device *device); /* "AMD EPYC, 2 threads, AVX2" */
bool tt_device_is_plan(const struct tt_device *device);     /* computes nothing, buffers have no memory */
int tt_device_threads(const struct tt_device *device);

/* what it is, or stands for; NULL: unknown */
const struct tt_chip *tt_device_chip(const struct tt_device *device);
/* its memory is the host's (cpu, or a plan of one) */
bool tt_device_is_host(const struct tt_device *device);

struct tt_memory_use {
    size_t current[TT_PURPOSE_COUNT];
    size_t peak[TT_PURPOSE_COUNT];
    /* of device buffers, as the limit is: cpus without TT_PURPOSE_SCRATCH, so that a plan can match it */
    size_t total_current;
    size_t total_peak;
    /* page-locked host buffers (tt_host_buffer_create), not in the numbers above */
    size_t host[TT_PURPOSE_COUNT];
    size_t host_total;
};
/* Whether on-device copies of this device may read the memory of GPU `index` of this process; switches it on. */
bool tt_device_reach(struct tt_device *device, int index);
int tt_device_index(const struct tt_device *device);
/* Bytes of the device that this process holds as the driver counts it, buffers, context and libraries together; 0
 * where the device is the host. */
size_t tt_device_used_bytes(struct tt_device *device);
void tt_device_memory(const struct tt_device *device, struct tt_memory_use *out);
/* After this, creating a buffer is TT_ERR_INTERNAL until thawed: training allocates nothing. Host buffers for
 * TT_PURPOSE_STAGING are let through: a save has one while it lasts. */
void tt_device_freeze(struct tt_device *device, bool frozen);

/* Zero-filled, 256-byte aligned. On the plan device data is a made-up address that must not be touched. */
TT_MUST_USE tt_status tt_buffer_create(struct tt_device *device, size_t bytes, enum tt_purpose purpose,
                                       struct tt_buffer **out);
/* Host memory that the device's copy engines reach without a copy in between (page-locked where the device is not the
 * host); zero-filled, 256-byte aligned. A copy from or to it is asynchronous: see tt_copy_to_device. */
TT_MUST_USE tt_status tt_host_buffer_create(struct tt_device *device, size_t bytes, enum tt_purpose purpose,
                                            struct tt_buffer **out);
void tt_buffer_destroy(struct tt_buffer *buffer); /* takes NULL */
void *tt_buffer_data(const struct tt_buffer *buffer);
size_t tt_buffer_bytes(const struct tt_buffer *buffer);

/* A compute stream runs every op. A copy stream runs copies, collectives and element-wise ops (cast, add, scale): it
 * has no scratch for others. */
enum tt_stream_kind { TT_STREAM_COMPUTE, TT_STREAM_COPY };
/* a compute stream */
TT_MUST_USE tt_status tt_stream_create(struct tt_device *device, struct tt_stream **out);
TT_MUST_USE tt_status tt_stream_create_copy(struct tt_device *device, struct tt_stream **out);
void tt_stream_destroy(struct tt_stream *stream);
struct tt_device *tt_stream_device(const struct tt_stream *stream);
TT_MUST_USE tt_status tt_stream_synchronize(struct tt_stream *stream); /* the host waits */

/* Says what the work queued from now on is ("backward of model.layers.3"): it is named when the
 * device fails or hangs there. Where the device is the host this does nothing. */
void tt_stream_mark(struct tt_stream *stream, const char *what);
/* While the host waits for this device, `check` is called now and then; another status than TT_OK ends the wait with
 * it (a communicator whose peer failed says so). NULL: none. */
typedef tt_status tt_device_check(void *context);
void tt_device_set_watch(struct tt_device *device, tt_device_check *check, void *context);

TT_MUST_USE tt_status tt_event_create(struct tt_device *device, struct tt_event **out);
void tt_event_destroy(struct tt_event *event);
TT_MUST_USE tt_status tt_event_record(struct tt_event *event, struct tt_stream *stream);
TT_MUST_USE tt_status tt_stream_wait(struct tt_stream *stream, struct tt_event *event); /* the stream waits */
/* the host waits for what came before the last record */
TT_MUST_USE tt_status tt_event_synchronize(struct tt_event *event);
/* Whether that is done. Never waits; from any thread, unlike all other calls. */
TT_MUST_USE tt_status tt_event_query(struct tt_event *event, bool *done);

/* In stream order. The host side of an upload may change as soon as the call returns, unless it lies in a host buffer
 * (tt_host_buffer_create): that must stay as it is until the stream has passed. A download is there after a
 * tt_stream_synchronize; into memory that is no host buffer the call itself waits. On-device copies also reach the
 * memory of another GPU of this process. */
TT_MUST_USE tt_status tt_copy_to_device(struct tt_stream *stream, void *to, const void *from_host,
                                        size_t bytes);
TT_MUST_USE tt_status tt_copy_to_host(struct tt_stream *stream, void *to_host, const void *from,
                                      size_t bytes);
TT_MUST_USE tt_status tt_copy_on_device(struct tt_stream *stream, void *to, const void *from, size_t bytes);
TT_MUST_USE tt_status tt_fill_zero(struct tt_stream *stream, void *data, size_t bytes);

#endif
