/* Which cuBLASLt algorithm serves which product, found once per shape and then looked up.
 *
 * Everything here speaks cuBLASLt's language: column-major matrices, c[m, n] = op(a)[m, k] * op(b)[k, n]. A
 * table holds, for each shape that has been seen, descriptors and algorithm, so that a call makes nothing.
 * The first call of a shape asks the heuristics; with TRIMTAB_GEMM_TUNE=1 it times what they offer and writes
 * the choice to $XDG_CACHE_HOME/trimtab/gemm-<device>-<processors>-<cuBLAS version>.txt (or below ~/.cache),
 * which later runs read, with or without that variable. One line per choice: the shape, the algorithm's 64
 * bytes in hexadecimal, its time. The first line of a shape counts, so a choice never changes once made;
 * delete the file to choose anew.
 *
 * Algorithms never reduce in the type of the result and never with atomics: partial sums of a split go to the
 * workspace in fp32 and are added in order. So the same algorithm gives the same bits, with
 * TRIMTAB_DETERMINISTIC=1 as without it. What could differ from one machine to the next is the algorithm: a
 * change of cuBLAS, of GPU, or of the choices on disk.
 */
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
    const void *addend; /* what beta multiplies; c unless said otherwise */
};

/* A choice that was made by timing; dimensions are rounded (gemm_tune.c). */
struct tt_gemm_choice {
    struct tt_gemm_key key;
    cublasLtMatmulAlgo_t algorithm;
};

enum {
    TT_GEMM_PLANS = 4096, /* a power of two. When three quarters are used all are forgotten */
    TT_GEMM_CHOICES = 1024,
    TT_GEMM_CANDIDATES = 8, /* the heuristics never return more */
};

struct tt_cuda_gemm {
    cublasLtHandle_t handle;
    struct tt_gemm_plan *plans;
    int plan_count;
    bool tunes;
    bool warm; /* something has been timed before */
    struct tt_gemm_choice *choices;
    int choice_count;
    char choices_path[512]; /* empty: there is no place for them */
    void *encode;           /* the driver's maker of tensor maps; NULL: gemm_fused.c takes nothing */
    bool must_fuse;
};

/* The plan of this key, made when it is new. `operands` are what a new plan may be timed with (c is
 * overwritten only when the key does not accumulate). */
tt_status tt_gemm_plan_find(struct tt_cuda_gemm *gemm, struct tt_stream *stream,
                            const struct tt_gemm_key *key, const struct tt_gemm_operands *operands,
                            struct tt_gemm_plan **out);
cublasStatus_t tt_gemm_plan_run(struct tt_cuda_gemm *gemm, struct tt_stream *stream,
                                struct tt_gemm_plan *plan, const cublasLtMatmulAlgo_t *algorithm,
                                const struct tt_gemm_operands *operands);

/* gemm_fused.c: whether this device and this build have the fused kernel; TRIMTAB_GEMM_FUSED=0 says no, and
 * with `require` products are refused that it does not take. */
void tt_cuda_fused_open(struct tt_cuda_gemm *gemm, const struct tt_device *device);
/* gemm_tune.c. Reads the choices on disk; without them, or when they cannot be read, there are none. */
void tt_gemm_choices_load(struct tt_cuda_gemm *gemm, const struct tt_device *device);
/* Up to the next number of four significant bits: 14336 stays, 15001 becomes 15360. Shapes that are nearly
 * equal share an algorithm. */
int64_t tt_gemm_rounded(int64_t value);
/* Whether shapes like this one are worth a choice of their own. */
bool tt_gemm_choice_applies(const struct tt_gemm_key *key);
const cublasLtMatmulAlgo_t *tt_gemm_choice_find(const struct tt_cuda_gemm *gemm,
                                                const struct tt_gemm_key *key);
/* Times the candidates, keeps the best as plan->algorithm and on disk. The host waits: about 1.5 s per shape.
 */
tt_status tt_gemm_tune(struct tt_cuda_gemm *gemm, struct tt_stream *stream, struct tt_gemm_plan *plan,
                       const cublasLtMatmulHeuristicResult_t *candidates, int count,
                       const struct tt_gemm_operands *operands);

#endif
