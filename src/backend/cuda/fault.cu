/* A kernel that seems never to end, for tests of hang detection: see fault.h. It ends after two minutes, so that
 * a failed test does not block the GPU. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/fault.h"

namespace
{

constexpr uint64_t END_NS = 120ull * 1000 * 1000 * 1000;

__device__ __forceinline__ uint64_t now_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

__global__ void hang()
{
    for (uint64_t begin = now_ns(); now_ns() - begin < END_NS;) __nanosleep(100000);
}

} // namespace

extern "C" uint64_t tt_cuda_fault_mark(int device_index)
{
    unsigned long long mark;
    int index;
    const char *text = getenv("TRIMTAB_GPU_FAULT");
    return text != NULL && sscanf(text, "%d:%llu", &index, &mark) == 2 && index == device_index ? mark : 0;
}

extern "C" void tt_cuda_hang(struct tt_stream *stream)
{
    hang<<<1, 1, 0, tt_cuda_handle(stream)>>>();
}
