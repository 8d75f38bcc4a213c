/* Scans by chunks on tensor cores (chunks.cuh says how), for the sizes of tt_cuda_scan_has_chunks. */
#ifndef TT_BACKEND_CUDA_SCAN_CHUNKS_H
#define TT_BACKEND_CUDA_SCAN_CHUNKS_H

#include "backend/cuda/cuda.h"
#include "backend/ops/scan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the call, or its backward pass unless NULL, is supported: sizes, alignment of rows to 16 bytes, the GPU. */
bool tt_cuda_scan_by_chunks(const struct tt_stream *stream, const struct tt_scan_forward_args *args,
                            const struct tt_scan_backward_args *backward);
/* Sequences of more than TT_SCAN_ROWS_MAX rows; the others are left alone. */
tt_status tt_cuda_scan_chunks_forward(struct tt_stream *stream, const struct tt_scan_forward_args *args);
tt_status tt_cuda_scan_chunks_backward(struct tt_stream *stream, const struct tt_scan_backward_args *args);

#ifdef __cplusplus
}
#endif

#endif
