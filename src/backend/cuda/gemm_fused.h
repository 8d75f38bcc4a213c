/* Products with LoRA or SwiGLU in one kernel, for Hopper (compute capability 9.0): ops/gemm_fused.h in bf16.
 *
 * A persistent kernel in CTAs of three warp groups. One warp of the first loads tiles of 128 x 64 and 256 x 64 with
 * the bulk tensor copy engine into a ring of three stages; two CTAs that lie below each other form a cluster and load
 * half of the shared operand each, for both (multicast). Two warp groups multiply (wgmma m64n256k16), 64 rows each.
 * The tile of 128 x 256 sums goes as bf16 into shared memory, and the three other warps of the first group write it
 * out while the next tile is multiplied: they add the residual, rotate heads, or apply SwiGLU or its derivative. So
 * what element-wise passes move hides behind the arithmetic of the next tile.
 *
 * LoRA's narrow product is a few steps more along K, from maps of h and b of their own: beyond their edges the copy
 * engine fills in zeros, so that nothing has to be padded.
 *
 * On an H200 at its 700 W, beside cuBLASLt's best of eight and a pass of its own (2026-11-21, docs/performance.md):
 * 16384 x 28672 x 4096 with SwiGLU 5.66 against 5.75 ms, backward 2.98 against 3.24; 16384 x 6144 x 4096 with rank 16
 * 1.25 against 1.33. Without anything to fuse cuBLASLt is 1 to 2 % faster and is asked instead. */
#ifndef TT_BACKEND_CUDA_GEMM_FUSED_H
#define TT_BACKEND_CUDA_GEMM_FUSED_H

#include <cuda.h>

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tt_fused_kind {
    TT_FUSED_LORA,            /* c = a op(b) + low rank (+ addend), b [n, k] */
    TT_FUSED_LORA_NN,         /* the same, b [k, n] */
    TT_FUSED_ROTATED,         /* b [n, k], no addend; heads are rotated */
    TT_FUSED_SWIGLU,          /* b [2n, k] */
    TT_FUSED_SWIGLU_BACKWARD, /* b [k, n] */
    TT_FUSED_KINDS
};

enum {
    TT_FUSED_ROWS = 128,    /* of a CTA's tile */
    TT_FUSED_COLUMNS = 256, /* of a CTA's tile; with SwiGLU 128 of gate and 128 of up */
    TT_FUSED_DEPTH = 64,    /* of a stage, along k */
    TT_FUSED_CLUSTER = 2,   /* CTAs, along m */
};

/* The kernel's parameter. Boxes of the maps: 64 columns by 128 rows of a, a2 and of b [n, k]; 64 by 64 of b [k, n].
 * All with the 128-byte swizzle. */
struct tt_fused_params {
    CUtensorMap a, b, a2, b2[TT_LOW_RANK_PARTS];
    int m, n, k; /* n: columns of c; of gate with SwiGLU */
    int parts;   /* of low rank; with SwiGLU 0 or 2, gate's and up's */
    struct {
        int first, end; /* columns of c */
        int h, r;       /* columns of a2; r may be 0 with SwiGLU */
    } part[TT_LOW_RANK_PARTS];
    const void *addend; /* NULL, or as c */
    /* LORA: [m, n]; SWIGLU: gate | up, NULL when not kept; BACKWARD: gate | up, in place */
    void *c;
    void *act; /* SWIGLU: [m, n]; BACKWARD: NULL or [m, n] */
    int64_t c_row, act_row;
    /* ROTATED: columns of heads, whole tiles or all; half of a head's columns: 32, 64 or 128 */
    int rotated, half;
    const int32_t *positions;
    const float *cos, *sin; /* [position, half] */
    int band;               /* clusters of rows that are gone through together, for the second-level cache */
};

/* Whether the plugin holds the kernel for the current GPU. Built for sm_90, without sm_90a's instructions, it has an
 * empty body there, which would leave c as it was. */
bool tt_cuda_fused_is_built(void);
/* Queues the kernel on `ctas` CTAs, a multiple of the cluster. */
cudaError_t tt_cuda_fused_launch(enum tt_fused_kind kind, const struct tt_fused_params *params, int ctas,
                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
