/* Copies between ordinary memory and the device go through page-locked slots. An upload copies into a slot at
 * once, so that the caller may change its memory, and queues the copy from the slot. The driver's own copy from
 * ordinary memory would wait for all work queued before it. */
#include <string.h>

#include "backend/cuda/device_parts.h"
#include "base/alloc.h"

enum { SLOTS = 8, SLOT_BYTES = 512 << 10 };

struct tt_cuda_staging {
    char *memory;
    cudaEvent_t passed[SLOTS]; /* the stream has read, or written, the slot */
    int next;
};

tt_status tt_cuda_staging_create(struct tt_cuda_staging **out)
{
    struct tt_cuda_staging *staging = tt_calloc(1, sizeof *staging);
    if (staging == NULL) return TT_ERR_MEMORY;
    void *memory = NULL;
    tt_status status =
        tt_cuda_check(cudaHostAlloc(&memory, (size_t)SLOTS * SLOT_BYTES, cudaHostAllocPortable), NULL,
                      "page-locking the upload slots");
    staging->memory = memory;
    for (int i = 0; i < SLOTS && status == TT_OK; i++)
        status = tt_cuda_check(cudaEventCreateWithFlags(&staging->passed[i], cudaEventDisableTiming), NULL,
                               "creating an event");
    if (status != TT_OK) {
        tt_cuda_staging_destroy(staging);
        return status;
    }
    *out = staging;
    return TT_OK;
}

void tt_cuda_staging_destroy(struct tt_cuda_staging *staging)
{
    if (staging == NULL) return;
    for (int i = 0; i < SLOTS; i++)
        if (staging->passed[i] != NULL) cudaEventDestroy(staging->passed[i]);
    if (staging->memory != NULL) cudaFreeHost(staging->memory);
    tt_free(staging);
}

static tt_status take_slot(struct tt_stream *stream, char **slot, cudaEvent_t *passed)
{
    struct tt_cuda_staging *staging = tt_cuda_device_of(stream)->staging;
    int index = staging->next;
    staging->next = (index + 1) % SLOTS;
    *slot = staging->memory + (size_t)index * SLOT_BYTES;
    *passed = staging->passed[index];
    /* an event that was never recorded counts as complete */
    return tt_cuda_event_wait(stream->device, *passed);
}

static bool is_page_locked(const void *memory)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return attributes.type == cudaMemoryTypeHost;
}

tt_status tt_cuda_upload(struct tt_stream *stream, void *to, const void *from_host, size_t bytes)
{
    cudaStream_t handle = tt_cuda_handle(stream);
    if (tt_cuda_of(stream)->records) return tt_fail(TT_ERR_INTERNAL, "an upload inside a graph");
    /* The copy is queued on the stream, because earlier work may still write its source. */
    if (is_page_locked(from_host))
        return tt_cuda_check(cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyDefault, handle), stream,
                             "upload");
    for (size_t done = 0; done < bytes;) {
        size_t part = bytes - done < SLOT_BYTES ? bytes - done : SLOT_BYTES;
        char *slot;
        cudaEvent_t passed;
        TT_TRY(take_slot(stream, &slot, &passed));
        memcpy(slot, (const char *)from_host + done, part);
        TT_TRY(tt_cuda_check(cudaMemcpyAsync((char *)to + done, slot, part, cudaMemcpyDefault, handle),
                             stream, "upload"));
        TT_TRY(tt_cuda_check(cudaEventRecord(passed, handle), stream, "upload"));
        done += part;
    }
    return TT_OK;
}

tt_status tt_cuda_download(struct tt_stream *stream, void *to_host, const void *from, size_t bytes)
{
    cudaStream_t handle = tt_cuda_handle(stream);
    if (is_page_locked(to_host))
        return tt_cuda_check(cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, handle), stream,
                             "download");
    for (size_t done = 0; done < bytes;) {
        size_t part = bytes - done < SLOT_BYTES ? bytes - done : SLOT_BYTES;
        char *slot;
        cudaEvent_t passed;
        TT_TRY(take_slot(stream, &slot, &passed));
        TT_TRY(tt_cuda_check(
            cudaMemcpyAsync(slot, (const char *)from + done, part, cudaMemcpyDeviceToHost, handle), stream,
            "download"));
        TT_TRY(tt_cuda_wait(stream));
        memcpy((char *)to_host + done, slot, part);
        done += part;
    }
    return TT_OK;
}
