/* Products of rows with the matrix of their expert, for Hopper: ops/grouped_gemm.h in bf16 and in E4M3 with a scale a
 * row, by the loop of the kernel of fused.h.
 *
 * Each CTA counts the tiles of every expert from its rows, which only the device knows, and walks through all tiles of
 * all experts: the grid is the same whatever the rows, and no host reads their number. The tiles of an expert are one
 * after the other, those of its columns outside and those of its rows inside, so that its matrix is read from the
 * second-level cache.
 *
 * A cluster of two CTAs has a tile of 256 rows, whose matrix it loads once for both (multicast). A last rest of at most
 * 128 rows is a tile of 512 columns instead, whose rows it loads once for both. So an expert's rows are rounded up to
 * 128, and a warp group without rows (its 64 of 128) does not multiply. A tile's rows beyond the expert's last are
 * those of its neighbour: they are read, and not written. */
#ifndef TT_BACKEND_CUDA_GEMM_GROUPED_H
#define TT_BACKEND_CUDA_GEMM_GROUPED_H

#include <cuda.h>

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TT_GROUPED_EXPERTS_MAX = 1024, TT_GROUPED_BOX_ROWS = 64 /* of a and a2 */ };

/* The kernel's parameter. Boxes of the maps are 64 columns by 64 rows of a and a2, by 128 rows of b and b2 [X, n, k],
 * by 64 rows of b and b2 [X, k, n]; of codes 128 columns, and b [X, n, k] in both directions. */
struct tt_grouped_params {
    CUtensorMap a, b, a2, b2; /* a2, b2: of the adapter */
    const int32_t *border;    /* [experts + 1] */
    int experts, n, k, r;     /* r 0: no adapter */
    float alpha;              /* of the sums; not of codes */
    /* Codes have scales of rows, [M] and [X, n]; steps of 128 that tensor cores add at once (scaled_sums.cuh). */
    const float *a_scale, *b_scale;
    int chain;
    const void *bias;  /* [X, n]; NULL: none */
    bool bias_is_bf16; /* or fp32 */
    void *c;
    int64_t c_row;
};

bool tt_cuda_grouped_is_built(void);
/* Queues the kernel on `ctas` CTAs, a multiple of two; transposed: b is [X, k, n]. */
cudaError_t tt_cuda_grouped_launch(bool transposed, const struct tt_grouped_params *params, int ctas,
                                   cudaStream_t stream);
/* grouped_fp8.cu: the same of codes; transposed: b2 is [X, r, n]. */
bool tt_cuda_grouped_fp8_is_built(void);
cudaError_t tt_cuda_grouped_fp8_launch(bool transposed, const struct tt_grouped_params *params, int ctas,
                                       cudaStream_t stream);

/* grouped_few.cu: a few rows in bf16. TT_ERR_UNSUPPORTED, without a message, for an unsupported case. */
tt_status tt_cuda_grouped_few(struct tt_stream *stream, const struct tt_grouped_gemm_args *args);
/* cuda/quant/quant.cu: the numbers of the matrices of experts from `first` on that have rows by `border_C1`, which is
 * of the C experts of `to_CNK` alone; the others are left as they are, or decoded too. */
tt_status tt_cuda_decode_experts(struct tt_stream *stream, const struct tt_coded *coded, int64_t first,
                                 tt_tensor border_C1, tt_tensor to_CNK);

/* cuda/grouped_gemm.cu: any types and strides, without tensor cores. */
tt_status tt_cuda_grouped_gemm_plain(struct tt_stream *stream, const struct tt_grouped_gemm_args *args);
tt_status tt_cuda_grouped_gradients_plain(struct tt_stream *stream,
                                          const struct tt_grouped_gradients_args *args);

#ifdef __cplusplus
}
#endif

#endif
