#include "backend/cuda/marks.h"

#include <stdio.h>

#include "base/alloc.h"

cudaError_t tt_cuda_marks_create(struct tt_cuda_marks **out)
{
    struct tt_cuda_marks *marks = tt_calloc(1, sizeof *marks);
    if (marks == NULL) return cudaErrorMemoryAllocation;
    for (int i = 0; i < TT_CUDA_MARKS; i++) {
        cudaError_t error = cudaEventCreateWithFlags(&marks->events[i], cudaEventDisableTiming);
        if (error == cudaSuccess) continue;
        tt_cuda_marks_destroy(marks);
        return error;
    }
    *out = marks;
    return cudaSuccess;
}

void tt_cuda_marks_destroy(struct tt_cuda_marks *marks)
{
    if (marks == NULL) return;
    for (int i = 0; i < TT_CUDA_MARKS; i++)
        if (marks->events[i] != NULL) cudaEventDestroy(marks->events[i]);
    tt_free(marks);
}

void tt_cuda_marks_add(struct tt_cuda_marks *marks, cudaStream_t stream, const char *what)
{
    int index = (int)(marks->queued % TT_CUDA_MARKS);
    snprintf(marks->texts[index], TT_CUDA_MARK_BYTES, "%s", what);
    (void)cudaEventRecord(marks->events[index], stream);
    marks->queued++;
    if (marks->queued - marks->passed > TT_CUDA_MARKS) marks->passed = marks->queued - TT_CUDA_MARKS;
}

bool tt_cuda_marks_advance(struct tt_cuda_marks *marks)
{
    uint64_t before = marks->passed;
    while (marks->passed < marks->queued &&
           cudaEventQuery(marks->events[marks->passed % TT_CUDA_MARKS]) == cudaSuccess)
        marks->passed++;
    return marks->passed != before;
}

const char *tt_cuda_marks_where(const struct tt_cuda_marks *marks)
{
    if (marks == NULL || marks->queued == 0) return "no marked work";
    /* The running work is that of the last mark passed. */
    uint64_t at = marks->passed > 0 ? marks->passed - 1 : 0;
    return marks->texts[at % TT_CUDA_MARKS];
}
