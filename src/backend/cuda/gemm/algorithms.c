#include "backend/cuda/gemm/algorithms.h"

#include <string.h>

#include "base/log.h"

static uint64_t hash(const struct tt_gemm_key *key)
{
    uint64_t words[sizeof *key / sizeof(uint64_t)], mixed = 0x9e3779b97f4a7c15u;
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        mixed = (mixed ^ words[i]) * 0xff51afd7ed558ccdu;
        mixed ^= mixed >> 32;
    }
    return mixed;
}
_Static_assert(sizeof(struct tt_gemm_key) == 64, "a key is compared as bytes: no padding");

/* The entry of `key` in the table: its plan, or a free one. */
static struct tt_gemm_plan *look_up(struct tt_cuda_gemm *gemm, const struct tt_gemm_key *key)
{
    for (uint64_t at = hash(key);; at++) {
        struct tt_gemm_plan *plan = &gemm->plans[at % TT_GEMM_PLANS];
        if (!plan->used || memcmp(&plan->key, key, sizeof *key) == 0) return plan;
    }
}

/* The candidates of the heuristics, best guess first; returns their number, 0 when they decline. */
static int candidates_of(struct tt_cuda_gemm *gemm, struct tt_gemm_plan *plan,
                         cublasLtMatmulHeuristicResult_t results[TT_GEMM_CANDIDATES])
{
    const struct tt_gemm_key *key = &plan->key;
    uint64_t workspace_bytes = TT_CUDA_GEMM_WORKSPACE_BYTES;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* see the header: in fp32, in order */
    struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t bytes;
    } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 1u << key->a_align},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 1u << key->b_align},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 1u << key->c_align},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 1u << key->c_align}};
    cublasLtMatmulPreferenceOpaque_t preference;
    int offered = 0, usable = 0;
    if (cublasLtMatmulPreferenceInit(&preference) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace_bytes,
                                             sizeof workspace_bytes) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &reductions, sizeof reductions) != CUBLAS_STATUS_SUCCESS)
        return 0;
    for (int i = 0; i < 4; i++) {
        if (cublasLtMatmulPreferenceSetAttribute(&preference, alignments[i].name, &alignments[i].bytes,
                                                 sizeof alignments[i].bytes) != CUBLAS_STATUS_SUCCESS)
            return 0;
    }
    if (cublasLtMatmulAlgoGetHeuristic(gemm->handle, &plan->operation, &plan->a, &plan->b, &plan->c, &plan->c,
                                       &preference, TT_GEMM_CANDIDATES, results,
                                       &offered) != CUBLAS_STATUS_SUCCESS)
        return 0;
    for (int i = 0; i < offered; i++) {
        if (results[i].state == CUBLAS_STATUS_SUCCESS) results[usable++] = results[i];
    }
    return usable;
}

/* Sets an algorithm that was chosen for another shape; false when it does not support this one. */
static bool take(struct tt_cuda_gemm *gemm, struct tt_gemm_plan *plan, const cublasLtMatmulAlgo_t *algorithm)
{
    cublasLtMatmulHeuristicResult_t result;
    if (algorithm == NULL) return false;
    if (cublasLtMatmulAlgoCheck(gemm->handle, &plan->operation, &plan->a, &plan->b, &plan->c, &plan->c,
                                algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > TT_CUDA_GEMM_WORKSPACE_BYTES)
        return false;
    plan->algorithm = *algorithm;
    return true;
}

static void ask(struct tt_cuda_gemm *gemm, struct tt_gemm_plan *plan)
{
    cublasLtMatmulHeuristicResult_t results[TT_GEMM_CANDIDATES];
    plan->declined = candidates_of(gemm, plan, results) == 0;
    if (!plan->declined) plan->algorithm = results[0].algo;
}

/* The number of tokens differs from batch to batch, and asking the heuristics takes longer than running many a
 * product. So the heuristics are asked about tokens rounded up to one of a few numbers, and the answer serves
 * all numbers below it. The rounded number depends on the shape alone: a resumed run gets the same algorithms.
 * Tokens are the last dimension that two matrices have in common, so no leading dimension depends on their
 * number. */
static bool ask_for_similar(struct tt_cuda_gemm *gemm, struct tt_gemm_plan *plan,
                            const struct tt_gemm_operands *operands)
{
    struct tt_gemm_plan similar = {.key = plan->key};
    if (!plan->key.trans_b)
        similar.key.n = tt_gemm_rounded(plan->key.n);
    else if (!plan->key.trans_a)
        similar.key.k = tt_gemm_rounded(plan->key.k);
    if (memcmp(&similar.key, &plan->key, sizeof plan->key) == 0) return false;
    struct tt_gemm_plan *known = look_up(gemm, &similar.key);
    if (!known->used) {
        if (tt_gemm_plan_describe(&similar, operands) != CUBLAS_STATUS_SUCCESS) return false;
        ask(gemm, &similar);
        similar.used = true;
        *known = similar;
        gemm->plan_count++;
    }
    return !known->declined && take(gemm, plan, &known->algorithm);
}

static tt_status tune(struct tt_cuda_gemm *gemm, struct tt_stream *stream, struct tt_gemm_plan *plan,
                      const struct tt_gemm_operands *operands)
{
    cublasLtMatmulHeuristicResult_t results[TT_GEMM_CANDIDATES];
    int count = candidates_of(gemm, plan, results);
    plan->declined = count == 0;
    if (plan->declined) return TT_OK;
    plan->algorithm = results[0].algo;
    return count > 1 ? tt_gemm_tune(gemm, stream, plan, results, count, operands) : TT_OK;
}

static tt_status choose(struct tt_cuda_gemm *gemm, struct tt_stream *stream, struct tt_gemm_plan *plan,
                        const struct tt_gemm_operands *operands)
{
    bool worthwhile = tt_gemm_choice_applies(&plan->key);
    plan->declined = tt_gemm_plan_describe(plan, operands) != CUBLAS_STATUS_SUCCESS;
    if (plan->declined) return TT_OK;
    if (worthwhile && take(gemm, plan, tt_gemm_choice_find(gemm, &plan->key))) return TT_OK;
    if (worthwhile && gemm->tunes) return tune(gemm, stream, plan, operands);
    if (!ask_for_similar(gemm, plan, operands)) ask(gemm, plan);
    return TT_OK;
}

tt_status tt_gemm_plan_find(struct tt_cuda_gemm *gemm, struct tt_stream *stream,
                            const struct tt_gemm_key *key, const struct tt_gemm_operands *operands,
                            struct tt_gemm_plan **out)
{
    struct tt_gemm_plan *plan = look_up(gemm, key), fresh = {.key = *key};
    if (!plan->used) {
        if (gemm->plan_count >= TT_GEMM_PLANS / 4 * 3) {
            memset(gemm->plans, 0, TT_GEMM_PLANS * sizeof *gemm->plans);
            gemm->plan_count = 0;
        }
        tt_status status = choose(gemm, stream, &fresh, operands);
        if (status != TT_OK) {
            tt_while("choosing an algorithm for a matrix product");
            return status;
        }
        if (fresh.declined)
            tt_debug(
                "cuBLASLt declines a product of m %lld, n %lld, k %lld with leading dimensions %lld, %lld, "
                "%lld%s",
                (long long)key->m, (long long)key->n, (long long)key->k, (long long)key->lda,
                (long long)key->ldb, (long long)key->ldc,
                tt_gemm_is_scaled(key) ? " in fp8" : ": the plain kernel runs, slowly");
        fresh.used = true;
        plan = look_up(gemm, key); /* choose() may have used the free entry for another plan */
        *plan = fresh;
        gemm->plan_count++;
    }
    *out = plan;
    return TT_OK;
}
