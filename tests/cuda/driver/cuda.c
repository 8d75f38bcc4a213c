/* libcuda.so.1 of a machine without a GPU, for cuDNN: there is no device, and kernels can be loaded, but not run. It is
 * enough to build plans for a described GPU (tests/cuda/cudnn_conv_plans.c). Results are values of CUresult. */
#include <stddef.h>

#define NO_DEVICE(name)                                                                                      \
    int name(void);                                                                                          \
    int name(void)                                                                                           \
    {                                                                                                        \
        return 100; /* CUDA_ERROR_NO_DEVICE */                                                               \
    }
#define SUCCEEDS(name)                                                                                       \
    int name(void);                                                                                          \
    int name(void)                                                                                           \
    {                                                                                                        \
        return 0;                                                                                            \
    }
/* Writes a handle into its first argument. */
#define GIVES_HANDLE(name)                                                                                   \
    int name(void **handle);                                                                                 \
    int name(void **handle)                                                                                  \
    {                                                                                                        \
        static int thing;                                                                                    \
        *handle = &thing;                                                                                    \
        return 0;                                                                                            \
    }

GIVES_HANDLE(cuLibraryLoadData)
GIVES_HANDLE(cuLibraryGetKernel)
GIVES_HANDLE(cuKernelGetFunction)
GIVES_HANDLE(cuModuleLoadData)
GIVES_HANDLE(cuModuleGetFunction)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuFuncSetAttribute)
NO_DEVICE(cuInit)
NO_DEVICE(cuCtxGetCurrent)
NO_DEVICE(cuCtxGetLimit)
NO_DEVICE(cuCtxPopCurrent)
NO_DEVICE(cuCtxPopCurrent_v2)
NO_DEVICE(cuCtxPushCurrent)
NO_DEVICE(cuCtxPushCurrent_v2)
NO_DEVICE(cuDeviceGet)
NO_DEVICE(cuDeviceGetAttribute)
NO_DEVICE(cuDeviceGetCount)
NO_DEVICE(cuDriverGetVersion)
NO_DEVICE(cuFuncGetAttribute)
NO_DEVICE(cuGetErrorName)
NO_DEVICE(cuGetErrorString)
NO_DEVICE(cuGetProcAddress)
NO_DEVICE(cuGetProcAddress_v2)
NO_DEVICE(cuKernelGetAttribute)
NO_DEVICE(cuLaunchCooperativeKernel)
NO_DEVICE(cuLaunchKernel)
NO_DEVICE(cuLaunchKernelEx)
NO_DEVICE(cuLibraryLoadFromFile)
NO_DEVICE(cuLinkAddData)
NO_DEVICE(cuLinkComplete)
NO_DEVICE(cuLinkCreate)
NO_DEVICE(cuLinkDestroy)
NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
NO_DEVICE(cuStreamGetCtx)
NO_DEVICE(cuTensorMapEncodeIm2col)
NO_DEVICE(cuTensorMapEncodeTiled)
