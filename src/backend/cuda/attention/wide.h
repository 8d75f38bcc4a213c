/* Attention with heads of 257 to 512 columns on Hopper (compute capability 9.0), in bf16, with warp group products.
 *
 * A block has 64 rows and all 512 columns of its sums: two warp groups with 256 columns each (64 x 512 in fp32 are half
 * of the registers of a processor). A thread of a third group loads tiles with the copy engine, in boxes of 32 rows by
 * 64 columns; columns beyond the head are zeros. All operands of products are in shared memory:
 *     forward  rows: q. A tile has 64 keys: k, then v. Each group computes the scores of half of the keys; the groups
 *              exchange the maxima of rows, and store their parts of the weights as bf16 beside each other.
 *     dv       rows: k. A tile has 64 queries: q, then do. As forward without maxima: weights follow from lse.
 *     dq       rows: q and do. A tile has 32 keys: k and v. One group computes scores, the other the gradients of the
 *              weights; they exchange halves, and store the gradients of the scores.
 *     dk       rows: k and v. A tile has 32 queries: q and do. As dq.
 * No sum crosses blocks, so repeats are equal bit for bit. Speed: docs/measurements/attention.md. */
#ifndef TT_BACKEND_CUDA_ATTENTION_WIDE_H
#define TT_BACKEND_CUDA_ATTENTION_WIDE_H

#include <cuda.h>

#include "backend/cuda/attention/mma_tiles.h"
#include "backend/cuda/cuda.h"

enum { TT_WIDE_HEAD_DIM_MIN = 257, TT_WIDE_HEAD_DIM_MAX = 512 };

/* Parameter of the kernels. The maps have boxes of 64 columns, one head and 32 rows, with the 128-byte swizzle. */
struct tt_wide_params {
    tt_attention_problem problem;
    CUtensorMap q, k, v, go; /* go: in the backward pass alone */
};

/* Whether the plugin has the kernels for the current GPU: built for sm_90, without sm_90a's instructions, they are
 * empty. */
bool tt_attention_wide_is_built(void);
tt_status tt_attention_wide_forward(const tt_attention_problem *problem, cudaStream_t stream);
/* The launch of delta comes before. */
tt_status tt_attention_wide_backward(const tt_attention_problem *problem, cudaStream_t stream);

/* One kernel each; errors are left to cudaGetLastError. */
void tt_attention_wide_launch_forward(const tt_wide_params *params, cudaStream_t stream);
void tt_attention_wide_launch_dv(const tt_wide_params *params, cudaStream_t stream);
void tt_attention_wide_launch_dq(const tt_wide_params *params, cudaStream_t stream);
void tt_attention_wide_launch_dk(const tt_wide_params *params, cudaStream_t stream);

#endif
