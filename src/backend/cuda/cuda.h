/* Internal header of the plugin: the members of a cuda device and a cuda stream, and helpers that all files of
 * cuda/ use.
 *
 * C files own resources (device.c, gemm/gemm.c, cudnn/graph.c, nccl.c, ...); .cu files hold kernels, launchers and
 * tables of variants only. Each op is `tt_status tt_cuda_<op>(struct tt_stream *stream, const struct tt_<op>_args
 * *args)` in extern "C"; backend/ops/ has checked its arguments. An op queues work on the stream and returns; it
 * never allocates and never waits. Small scratch of a fixed size comes from the stream (tt_cuda_scratch): the
 * next op on the stream may reuse it. */
#ifndef TT_BACKEND_CUDA_CUDA_H
#define TT_BACKEND_CUDA_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include <cuda_runtime.h>

#include "backend/device_impl.h"

enum {
    TT_CUDA_SCRATCH_BYTES = 8 << 20,         /* per compute stream: partial sums, offsets */
    TT_CUDA_GEMM_WORKSPACE_BYTES = 32 << 20, /* per compute stream; NVIDIA's recommendation for Hopper */
};

struct tt_cuda_gemm;      /* gemm/gemm.c: cuBLASLt handle, chosen algorithms */
struct tt_cuda_attention; /* attention/attention.c: cuDNN handle, plans, the variant of each configuration */
struct tt_cuda_conv;      /* conv/cudnn.c: cuDNN handle, plans */

struct tt_cuda_device {
    int index;
    int processors;   /* streaming multiprocessors */
    int architecture; /* 90: compute capability 9.0 */
    struct tt_cuda_gemm *gemm;
    struct tt_cuda_attention *attention;
    struct tt_cuda_conv *conv;
    struct tt_cuda_staging *staging; /* page-locked ring for uploads from ordinary memory */
    struct tt_cuda_marks *marks;     /* of queued work (marks.h) */
    struct tt_cuda_watch *watch;     /* bounded waits */
    struct tt_cuda_spans *spans;     /* profile events */
    struct tt_cuda_stream *streams;  /* list of open streams */
};

struct tt_cuda_stream {
    struct tt_cuda_stream *next; /* in the device's list */
    cudaStream_t stream;
    bool records;         /* a graph: nothing runs (graph.c) */
    void *scratch;        /* TT_CUDA_SCRATCH_BYTES of device memory; NULL on copy streams */
    void *gemm_workspace; /* TT_CUDA_GEMM_WORKSPACE_BYTES; NULL on copy streams */
};

static inline struct tt_cuda_device *tt_cuda_device_of(const struct tt_stream *stream)
{
    return (struct tt_cuda_device *)stream->device->impl;
}

static inline struct tt_cuda_stream *tt_cuda_of(const struct tt_stream *stream)
{
    return (struct tt_cuda_stream *)stream->impl;
}

static inline cudaStream_t tt_cuda_handle(const struct tt_stream *stream)
{
    return tt_cuda_of(stream)->stream;
}

static inline void *tt_cuda_scratch(const struct tt_stream *stream)
{
    return tt_cuda_of(stream)->scratch;
}

/* check.c. TT_OK for cudaSuccess. Otherwise TT_ERR_DEVICE (TT_ERR_MEMORY for a failed allocation) with a message such
 * as "rmsnorm_forward: an illegal memory access was encountered (cudaErrorIllegalAddress) on cuda:0, at backward of
 * model.layers.3". `stream` may be NULL. */
tt_status tt_cuda_check(cudaError_t error, const struct tt_stream *stream, const char *what);
/* Called after a launch; fails if the kernel could not be launched. The message has the shape of `tensor` (may
 * be NULL). */
tt_status tt_cuda_launched(const struct tt_stream *stream, const char *op, const tt_tensor *tensor);

/* Waits until all work queued on the stream is done, and meanwhile polls the device's check and the marks. Fails
 * with TT_ERR_DEVICE when no mark has been passed for too long (the message names the last mark), or with the
 * status of the check when that ends the wait. */
tt_status tt_cuda_wait(struct tt_stream *stream);

#define OP(name) tt_status tt_cuda_##name(struct tt_stream *stream, const struct tt_##name##_args *args);
#include "backend/ops.def"
#undef OP

/* conv/conv.c: the device table's */
tt_status tt_cuda_conv2d_prepare(struct tt_stream *stream, const struct tt_conv2d_requests *requests);

/* gemm/gemm.c, attention/attention.c, conv/cudnn.c: device.c calls create when the device opens and destroy before it
 * closes. create may allocate device memory (the caller counts it as TT_PURPOSE_CONTEXT). */
tt_status tt_cuda_gemm_create(struct tt_device *device, struct tt_cuda_gemm **out);
void tt_cuda_gemm_destroy(struct tt_cuda_gemm *gemm);
tt_status tt_cuda_attention_create(struct tt_device *device, struct tt_cuda_attention **out);
void tt_cuda_attention_destroy(struct tt_cuda_attention *attention);
tt_status tt_cuda_conv_create(struct tt_device *device, struct tt_cuda_conv **out);
void tt_cuda_conv_destroy(struct tt_cuda_conv *conv);

#ifdef __cplusplus
}
#endif

#endif
