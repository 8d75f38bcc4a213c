/* Products with LoRA or SwiGLU in one kernel, for Hopper (compute capability 9.0): ops/gemm_fused.h in bf16.
 *
 * The kernel is persistent; a CTA has three warp groups. One warp of the first group loads tiles of 128 x 64 and
 * 256 x 64 with the bulk tensor copy engine into a ring of three stages. Two CTAs with neighbouring tiles along m
 * form a cluster and load half of the shared operand each, for both (multicast). The two other warp groups multiply
 * (wgmma m64n256k16), 64 rows each. The tile of 128 x 256 sums is stored as bf16 in shared memory, and the other
 * three warps of the first group write it out while the next tile is multiplied: they add the residual, rotate
 * heads, or apply SwiGLU or its derivative. So the memory traffic of element-wise passes is hidden behind the
 * arithmetic of the next tile.
 *
 * LoRA's narrow product is a few more steps along K, from maps of h and b of their own. Beyond their edges the copy
 * engine fills in zeros, so nothing has to be padded.
 *
 * On an H200 at its 700 W, compared with the best of cuBLASLt's eight candidates and a separate pass (2026-11-21,
 * docs/performance.md): 16384 x 28672 x 4096 with SwiGLU 5.66 against 5.75 ms, backward 2.98 against 3.24; 16384 x 6144
 * x 4096 with rank 16 1.25 against 1.33. cuBLASLt is 1 to 2 % faster for plain products and computes those. */
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
    TT_FUSED_ROWS = 128,    /* rows of a CTA's tile */
    TT_FUSED_COLUMNS = 256, /* columns of a CTA's tile; with SwiGLU 128 of gate and 128 of up */
    TT_FUSED_DEPTH = 64,    /* depth of a stage, along k */
    TT_FUSED_CLUSTER = 2,   /* CTAs of a cluster, along m */
    /* The length of a chain of products in E4M3, in steps of 128 along k (scaled_sums.cuh); on an H100 at its 700 W,
     * 16384 x 4096 x 14336, with the error beside: no chains 1294 TFLOP/s and 3.3e-3, 32 steps 1245 and 2.1e-3, 16
     * steps 1209 and 1.9e-3. */
    TT_FUSED_CHAIN = 32,
};

/* Operands of products in E4M3: b is several matrices, with LORA_NN one after the other along k, otherwise along n. */
struct tt_fused_scaled {
    const float *a_scale; /* [m] */
    struct {
        const float *scale; /* of its rows */
        int first, size;    /* columns of a; of c, or with SWIGLU of gate | up */
    } part[TT_MATRIX_PARTS];
    int parts;
    int chain; /* steps of 128 along k whose products the tensor cores add before the sums are kept apart */
    bool copies_out; /* c is written by the copy engine: no addend, no rotation */
};

/* The kernel's parameter. The boxes of the maps are 64 columns by 128 rows of a, a2 and of b [n, k], and 64 by
 * 64 of b [k, n], all with the 128-byte swizzle. */
struct tt_fused_params {
    CUtensorMap a, b[TT_MATRIX_PARTS], a2, b2[TT_LOW_RANK_PARTS];
    CUtensorMap y; /* of c, E4M3 alone: boxes of 64 columns by 128 rows */
    int m, n, k;   /* n: columns of c; of gate with SwiGLU */
    int parts;     /* low-rank parts; with SwiGLU 0 or 2, for gate and up */
    struct {
        int first, end; /* columns of c */
        int h, r;       /* columns of a2; r may be 0 with SwiGLU */
    } part[TT_LOW_RANK_PARTS];
    const void *addend; /* NULL, or laid out as c */
    /* LORA: [m, n]; SWIGLU: gate | up, NULL when not kept; BACKWARD: gate | up, in place */
    void *c;
    void *act; /* SWIGLU: [m, n]; BACKWARD: NULL or [m, n] */
    int64_t c_row, act_row;
    /* ROTATED: number of columns that are heads, whole tiles or all; half of a head's columns: 32, 64 or 128 */
    int rotated, half;
    const int32_t *positions;
    const float *cos, *sin; /* [position, half] */
    int band;               /* clusters of rows processed together, for the second-level cache */
    struct tt_fused_scaled scaled;
};

/* Whether the plugin has the kernel for the current GPU. Built for sm_90, without sm_90a's instructions, its
 * body is empty and would leave c unchanged. */
bool tt_cuda_fused_is_built(void);
/* Queues the kernel on `ctas` CTAs, a multiple of the cluster. */
cudaError_t tt_cuda_fused_launch(enum tt_fused_kind kind, const struct tt_fused_params *params, int ctas,
                                 cudaStream_t stream);
/* The same for products in E4M3 with a scale a row. */
bool tt_cuda_fused_scaled_is_built(void);
cudaError_t tt_cuda_fused_scaled_launch(enum tt_fused_kind kind, const struct tt_fused_params *params,
                                        int ctas, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
