/* The choice of a cuBLASLt algorithm for each product: found once per shape, then looked up.
 *
 * This file uses cuBLASLt's conventions: column-major matrices, c[m, n] = op(a)[m, k] * op(b)[k, n]. A table
 * holds the descriptors and the algorithm of each shape seen so far, so that a later call creates nothing. The
 * first call of a shape asks the heuristics. With gemm_tune it times the candidates of the heuristics
 * and writes the choice to $XDG_CACHE_HOME/trimtab/gemm-<device>-<processors>-<cuBLAS version>.txt (or below
 * ~/.cache). Later runs read this file with or without gemm_tune. Each line is one choice: the shape, the
 * algorithm's 64 bytes in hexadecimal, its time. The first line of a shape counts, so a choice never changes; to
 * choose anew, delete the file.
 *
 * Algorithms never reduce in the type of the result and never with atomics: the partial sums of a split are
 * written to the workspace in fp32 and added in order. So one algorithm always gives the same bits, with and
 * without `deterministic`. Machines can differ in the algorithm alone: by the version of cuBLAS, the
 * GPU, or the choices on disk. */
#ifndef TT_BACKEND_CUDA_GEMM_ALGORITHMS_H
#define TT_BACKEND_CUDA_GEMM_ALGORITHMS_H

#include <cublasLt.h>

#include "backend/cuda/cuda.h"

/* Compared as bytes: no padding between the members. */
struct tt_gemm_key {
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    uint8_t a_type, b_type, c_type; /* tt_dtype */
    bool trans_a, trans_b;
    bool accumulates;                  /* beta is not 0 */
    uint8_t a_align, b_align, c_align; /* log2 of the address' alignment in bytes, at most 8 */
    uint8_t unused[7];
};

/* a_align, b_align and c_align of a key. */
static inline uint8_t tt_gemm_alignment(const void *data)
{
    uint8_t log2 = 0;
    while (log2 < 8 && ((uintptr_t)data >> log2 & 1) == 0) log2++;
    return log2;
}

/* lda, ldb and ldc of a key. The stride of a single row may be anything; cuBLASLt requires at least the length of the
 * row. */
static inline int64_t tt_gemm_leading(tt_tensor matrix)
{
    return matrix.dims[0] > 1 ? matrix.strides[0] : matrix.dims[1];
}

struct tt_gemm_plan {
    struct tt_gemm_key key;
    bool used;
    bool declined; /* cuBLASLt has no algorithm for it: the plain kernel runs */
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
};

struct tt_gemm_operands {
    const void *a, *b;
    void *c;
    float alpha, beta;
    const void *addend;             /* beta is its factor; the same as c by default */
    const float *a_scale, *b_scale; /* E4M3 alone: one for each row of a and of b as they are stored */
};

/* A choice made by timing; dimensions are rounded (tune.c). */
struct tt_gemm_choice {
    struct tt_gemm_key key;
    cublasLtMatmulAlgo_t algorithm;
};

enum {
    TT_GEMM_PLANS = 4096, /* a power of two; the table is emptied when three quarters are used */
    TT_GEMM_CHOICES = 1024,
    TT_GEMM_CANDIDATES = 8, /* maximum of the heuristics */
};

struct tt_cuda_gemm {
    cublasLtHandle_t handle;
    struct tt_gemm_plan *plans;
    int plan_count;
    bool tunes;
    bool warm; /* something has been timed before */
    struct tt_gemm_choice *choices;
    int choice_count;
    char choices_path[512]; /* empty: no cache folder */
    void *encode;           /* the driver's cuTensorMapEncodeTiled; NULL: the fused kernel is off */
    bool has_scaled;        /* the fused kernel for E4M3 */
    bool has_grouped, has_grouped_scaled; /* the kernels of grouped.h */
    bool has_fp8_few;                     /* the kernel of fp8_few.h */
    bool must_fuse;
};

/* Finds the plan of this key, or makes it. A new plan may be timed with `operands` (c is overwritten only when
 * the key does not accumulate). */
tt_status tt_gemm_plan_find(struct tt_cuda_gemm *gemm, struct tt_stream *stream,
                            const struct tt_gemm_key *key, const struct tt_gemm_operands *operands,
                            struct tt_gemm_plan **out);

/* plan.c. Whether a and b are in E4M3, with a scale a row. */
static inline bool tt_gemm_is_scaled(const struct tt_gemm_key *key)
{
    return key->a_type == TT_F8_E4M3;
}
/* Fills the descriptors of plan->key. The scales of `operands` are those of its first call. */
cublasStatus_t tt_gemm_plan_describe(struct tt_gemm_plan *plan, const struct tt_gemm_operands *operands);
/* Queues the product; the caller has chosen the algorithm. */
cublasStatus_t tt_gemm_plan_run(struct tt_cuda_gemm *gemm, struct tt_stream *stream,
                                struct tt_gemm_plan *plan, const cublasLtMatmulAlgo_t *algorithm,
                                const struct tt_gemm_operands *operands);

/* fused.c: sets `encode` when this device and this build have the fused kernel. gemm_fused off turns
 * it off; with `require` a product that it does not support is an error. */
void tt_cuda_fused_open(struct tt_cuda_gemm *gemm, const struct tt_device *device);
/* gemm_scaled by the fused kernel; TT_ERR_UNSUPPORTED without a record when it is not for it. */
tt_status tt_cuda_gemm_scaled_fused(struct tt_stream *stream, const struct tt_gemm_scaled_args *args);
/* tune.c. Reads the choices on disk. A missing or unreadable file counts as empty. */
void tt_gemm_choices_load(struct tt_cuda_gemm *gemm, const struct tt_device *device);
/* Rounds up to a number of four significant bits: 14336 stays, 15001 becomes 15360. So shapes that are nearly
 * equal share an algorithm. */
int64_t tt_gemm_rounded(int64_t value);
/* Whether a choice is stored for shapes like this one. */
bool tt_gemm_choice_applies(const struct tt_gemm_key *key);
const cublasLtMatmulAlgo_t *tt_gemm_choice_find(const struct tt_cuda_gemm *gemm,
                                                const struct tt_gemm_key *key);
/* Times the candidates, and stores the fastest in plan->algorithm and on disk. Blocks the host for about 1.5 s. */
tt_status tt_gemm_tune(struct tt_cuda_gemm *gemm, struct tt_stream *stream, struct tt_gemm_plan *plan,
                       const cublasLtMatmulHeuristicResult_t *candidates, int count,
                       const struct tt_gemm_operands *operands);

#endif
