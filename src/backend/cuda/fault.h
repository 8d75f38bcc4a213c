/* The test hook of watch.c. TRIMTAB_GPU_FAULT="GPU:mark" in the environment queues a kernel that does not end
 * after that mark (tt_stream_mark, counted from 1) of that GPU. */
#ifndef TT_BACKEND_CUDA_FAULT_H
#define TT_BACKEND_CUDA_FAULT_H

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

uint64_t tt_cuda_fault_mark(int device_index); /* 0: no fault on this GPU */
void tt_cuda_hang(struct tt_stream *stream);   /* queues the kernel */

#ifdef __cplusplus
}
#endif

#endif
