/* The parts of a cuda device that device.c combines: uploads, waiting, spans, facts. Internal to the plugin. */
#ifndef TT_BACKEND_CUDA_DEVICE_PARTS_H
#define TT_BACKEND_CUDA_DEVICE_PARTS_H

#include "backend/cuda/cuda.h"
#include "backend/plugin.h"

/* staging.c: a ring of page-locked slots for copies between ordinary memory and the device. */
tt_status tt_cuda_staging_create(struct tt_cuda_staging **out);
void tt_cuda_staging_destroy(struct tt_cuda_staging *staging);
tt_status tt_cuda_upload(struct tt_stream *stream, void *to, const void *from_host, size_t bytes);
tt_status tt_cuda_download(struct tt_stream *stream, void *to_host, const void *from, size_t bytes);

/* watch.c: waits for queued work, and the detection of a device that hangs. */
tt_status tt_cuda_watch_create(int device_index, double hang_seconds, struct tt_cuda_watch **out);
void tt_cuda_watch_destroy(struct tt_cuda_watch *watch);
void tt_cuda_mark(struct tt_stream *stream, const char *what);
/* wait_begins is called before, and wait_queued after, a collective or a wait for another GPU is queued. A
 * stream that has reached such a wait and is not past it waits for other ranks, for at most `seconds_max`. A
 * stream that has not reached it is held up by its own work. */
enum {
    TT_CUDA_PROCESSES_SECONDS = 1800, /* other processes may save or evaluate meanwhile */
    TT_CUDA_GPUS_SECONDS = 300        /* the other GPU's work is queued already: less than a step */
};
void tt_cuda_wait_begins(struct tt_stream *stream, int seconds_max);
void tt_cuda_wait_queued(struct tt_stream *stream);
/* Whether a kernel hangs, so that destroying anything would block. After a failure of another rank the call
 * first waits for queued work, with a limit. */
bool tt_cuda_is_stuck(const struct tt_device *device);
/* The same by what is known so far; returns at once, callable from any thread. */
bool tt_cuda_has_hung(const struct tt_device *device);
/* as tt_cuda_wait, for one event */
tt_status tt_cuda_event_wait(struct tt_device *device, cudaEvent_t event);

/* ipc.c: the device table's */
tt_status tt_cuda_export(struct tt_device *device, void *data, struct tt_memory_handle *handle);
tt_status tt_cuda_import(struct tt_device *device, const struct tt_memory_handle *handle, void **data);
void tt_cuda_unimport(struct tt_device *device, void *data);

/* graph.c */
tt_status tt_cuda_graph_begin(struct tt_stream *stream);
tt_status tt_cuda_graph_end(struct tt_stream *stream, void **impl);
tt_status tt_cuda_graph_launch(struct tt_stream *stream, void *impl);
void tt_cuda_graph_destroy(struct tt_device *device, void *impl);

/* facts.c */
void tt_cuda_sensors(struct tt_device *device, struct tt_device_sensors *out);
/* gemm/fused.c: the device table's gemm_coded */
tt_status tt_cuda_gemm_coded(struct tt_stream *stream, const struct tt_gemm_lora_args *args);
/* spans.c */
void tt_cuda_span_begin(struct tt_stream *stream, int span);
void tt_cuda_span_end(struct tt_stream *stream, int span);
tt_status tt_cuda_spans_collect(struct tt_device *device);
void tt_cuda_spans_destroy(struct tt_cuda_spans *spans);

/* facts.c */
int tt_cuda_count(char *reason, size_t reason_bytes);
tt_status tt_cuda_facts(int index, struct tt_gpu_facts *out);
void tt_cuda_link(int from, int to, char *text, size_t text_bytes);
bool tt_cuda_enable_peer(int from, int to);

extern const struct tt_collectives_table tt_cuda_collectives; /* nccl.c */
extern const struct tt_device_table tt_cuda_device_table;     /* device.c */

#endif
