/* Memory of other processes' GPUs: CUDA's IPC handles ("Interprocess Communication" of the CUDA programming guide). The
 * driver refuses them where processes do not share an IPC or PID namespace, and on parts of a GPU (MIG). */
#include <string.h>

#include "backend/cuda/device_parts.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == TT_MEMORY_HANDLE_BYTES, "a handle has CUDA's size");

static tt_status refused(const struct tt_device *device, cudaError_t error, const char *what)
{
    (void)cudaGetLastError(); /* it is no failure of the device */
    return tt_fail(TT_ERR_UNSUPPORTED, "%s of %s: %s (%s)", what, device->name, cudaGetErrorString(error),
                   cudaGetErrorName(error));
}

tt_status tt_cuda_export(struct tt_device *device, void *data, struct tt_memory_handle *handle)
{
    cudaIpcMemHandle_t own;
    cudaError_t error = cudaIpcGetMemHandle(&own, data);
    if (error != cudaSuccess) return refused(device, error, "sharing memory");
    memcpy(handle->bytes, &own, sizeof own);
    return TT_OK;
}

tt_status tt_cuda_import(struct tt_device *device, const struct tt_memory_handle *handle, void **data)
{
    cudaIpcMemHandle_t theirs;
    memcpy(&theirs, handle->bytes, sizeof theirs);
    cudaError_t error = cudaIpcOpenMemHandle(data, theirs, cudaIpcMemLazyEnablePeerAccess);
    return error == cudaSuccess ? TT_OK
                                : refused(device, error, "opening memory of another process for copies");
}

void tt_cuda_unimport(struct tt_device *device, void *data)
{
    if (!tt_cuda_is_stuck(device)) (void)cudaIpcCloseMemHandle(data);
}
