/* The parts of a cuda device that device.c puts together: uploads, waiting, spans, facts. Inside the plugin
 * only. */
#ifndef TT_BACKEND_CUDA_PARTS_H
#define TT_BACKEND_CUDA_PARTS_H

#include "backend/cuda/cuda.h"
#include "backend/plugin.h"

/* staging.c: a ring of page-locked slots through which ordinary memory reaches the device. */
tt_status tt_cuda_staging_create(struct tt_cuda_staging **out);
void tt_cuda_staging_destroy(struct tt_cuda_staging *staging);
tt_status tt_cuda_upload(struct tt_stream *stream, void *to, const void *from_host, size_t bytes);
tt_status tt_cuda_download(struct tt_stream *stream, void *to_host, const void *from, size_t bytes);

/* watch.c: what is queued (marks), and whether it still moves. */
tt_status tt_cuda_watch_create(int device_index, struct tt_cuda_watch **out);
void tt_cuda_watch_destroy(struct tt_cuda_watch *watch);
void tt_cuda_mark(struct tt_stream *stream, const char *what);
/* Said before and after each collective and each wait for another GPU is queued: a stream that has come to one and
 * is not through it waits for other ranks, which may take so long. One that has not come to it yet is held up by
 * work of its own. */
enum {
    TT_CUDA_PROCESSES_SECONDS = 1800, /* other processes may save or evaluate meanwhile */
    TT_CUDA_GPUS_SECONDS = 300 /* what the other GPU has to do first is queued already: within a step */
};
void tt_cuda_wait_begins(struct tt_stream *stream, int seconds_max);
void tt_cuda_wait_queued(struct tt_stream *stream);
/* Text of what the compute stream was at, for messages: never NULL. */
const char *tt_cuda_watch_where(const struct tt_device *device);
/* A kernel never ended, or never will: destroying anything would wait for it. When another rank has failed
 * this first waits a little for what is queued. */
bool tt_cuda_is_stuck(const struct tt_device *device);
/* the same as far as is known; from any thread, at once */
bool tt_cuda_has_hung(const struct tt_device *device);
tt_status tt_cuda_event_wait(struct tt_device *device,
                             cudaEvent_t event); /* as tt_cuda_wait, for one event */

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
