/* Marks of queued work: texts in the order of the compute stream, and how many of them the stream has passed. So a
 * message names the work that the device was at. One thread, that of the device's rank, uses them. */
#ifndef TT_BACKEND_CUDA_MARKS_H
#define TT_BACKEND_CUDA_MARKS_H

#include "backend/cuda/cuda.h"

enum { TT_CUDA_MARKS = 512, TT_CUDA_MARK_BYTES = 96 };

struct tt_cuda_marks {
    cudaEvent_t events[TT_CUDA_MARKS];
    /* Copies: an error may be reported after the executor is destroyed. */
    char texts[TT_CUDA_MARKS][TT_CUDA_MARK_BYTES];
    uint64_t queued; /* marks set so far */
    uint64_t passed; /* marks that the stream is known to have passed */
};

/* cudaErrorMemoryAllocation also where the host has no memory. */
cudaError_t tt_cuda_marks_create(struct tt_cuda_marks **out);
void tt_cuda_marks_destroy(struct tt_cuda_marks *marks); /* NULL: nothing */
/* Queues a mark on the stream. The ring holds the last TT_CUDA_MARKS; an older one counts as passed. */
void tt_cuda_marks_add(struct tt_cuda_marks *marks, cudaStream_t stream, const char *what);
/* Moves `passed` over all marks that are done; returns whether it moved. */
bool tt_cuda_marks_advance(struct tt_cuda_marks *marks);
/* The work that the stream was at, as text for messages; never NULL. `marks` may be NULL. */
const char *tt_cuda_marks_where(const struct tt_cuda_marks *marks);

#endif
