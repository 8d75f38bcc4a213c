/* Errors of the CUDA runtime as statuses, with the work that the device was at. */
#include <stdio.h>

#include "backend/cuda/marks.h"

tt_status tt_cuda_check(cudaError_t error, const struct tt_stream *stream, const char *what)
{
    if (error == cudaSuccess) return TT_OK;
    (void)cudaGetLastError(); /* clears a recoverable error, which a later call would report */
    bool memory = error == cudaErrorMemoryAllocation;
    tt_status status = memory ? TT_ERR_MEMORY : TT_ERR_DEVICE;
    if (stream == NULL)
        return tt_fail(status, "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
    tt_fail(status, "%s: %s (%s) on %s, at %s", what, cudaGetErrorString(error), cudaGetErrorName(error),
            stream->device->name, tt_cuda_marks_where(tt_cuda_device_of(stream)->marks));
    if (!memory)
        tt_hint("kernels run after the call that starts them: CUDA_LAUNCH_BLOCKING=1 shows the failing one, "
                "compute-sanitizer why");
    return status;
}

tt_status tt_cuda_launched(const struct tt_stream *stream, const char *op, const tt_tensor *tensor)
{
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return TT_OK;
    char shape[96] = "", what[160];
    if (tensor != NULL) tt_tensor_format(*tensor, shape, sizeof shape);
    snprintf(what, sizeof what, "%s%s%s", op, shape[0] != '\0' ? " of " : "", shape);
    return tt_cuda_check(error, stream, what);
}
