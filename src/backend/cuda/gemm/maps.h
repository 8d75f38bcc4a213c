/* Tensor maps of the copy engine (cuTensorMapEncodeTiled), and what it and the kernels of fused.h ask of operands. */
#ifndef TT_BACKEND_CUDA_GEMM_MAPS_H
#define TT_BACKEND_CUDA_GEMM_MAPS_H

#include <cuda.h>

#include "backend/cuda/gemm/algorithms.h"

/* cuTensorMapEncodeTiled, found at run time: the plugin does not link the driver. NULL: this driver has none. */
void *tt_cuda_map_encoder(void);

/* The copy engine needs addresses and row strides in multiples of 16 bytes; the kernels write 16 bytes at a time. */
static inline bool tt_cuda_map_fits(tt_tensor matrix)
{
    return matrix.dtype == TT_BF16 && (uintptr_t)matrix.data % 16 == 0 &&
           (matrix.dims[0] <= 1 || matrix.strides[0] % 8 == 0) && matrix.dims[0] <= INT32_MAX &&
           matrix.dims[1] <= INT32_MAX;
}

/* Elements from a row to the next, also of a single row. */
static inline int64_t tt_cuda_map_row(tt_tensor matrix)
{
    return matrix.dims[0] > 1 ? matrix.strides[0] : (matrix.dims[1] + 7) / 8 * 8;
}

/* Makes a map of a matrix of bf16 or E4M3 with boxes of 128 bytes by `rows`. */
tt_status tt_cuda_map_matrix(const struct tt_cuda_gemm *gemm, tt_tensor matrix, int rows, CUtensorMap *map);
/* The same of matrices one after the other, [X, rows, columns], contiguous: the third coordinate is the matrix. */
tt_status tt_cuda_map_matrices(const struct tt_cuda_gemm *gemm, tt_tensor matrices, int rows,
                               CUtensorMap *map);

#endif
