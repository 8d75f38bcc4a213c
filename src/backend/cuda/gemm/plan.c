/* The descriptors of a product for cuBLASLt, and its call. */
#include "backend/cuda/gemm/algorithms.h"

static cudaDataType cuda_type(uint8_t dtype)
{
    return dtype == TT_F32 ? CUDA_R_32F : dtype == TT_F8_E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
}

/* The scales of a and b, which differ from call to call. */
static cublasStatus_t set_scales(struct tt_gemm_plan *plan, const struct tt_gemm_operands *operands)
{
    cublasStatus_t set = cublasLtMatmulDescSetAttribute(
        &plan->operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &operands->a_scale, sizeof operands->a_scale);
    if (set != CUBLAS_STATUS_SUCCESS) return set;
    return cublasLtMatmulDescSetAttribute(&plan->operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                          &operands->b_scale, sizeof operands->b_scale);
}

/* E4M3: one scale a row of both, and sums of which only every few are kept in fp32 (14 bits between them): on an H200
 * 1,220 instead of 1,110 TFLOP/s, with an error of 2.0e-3 instead of 1.8e-3, most of which is the rounding to bf16. */
static cublasStatus_t describe_scales(struct tt_gemm_plan *plan, const struct tt_gemm_operands *operands)
{
    cublasLtMatmulMatrixScale_t rows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    int8_t fast = 1;
    cublasStatus_t parts[] = {
        cublasLtMatmulDescSetAttribute(&plan->operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &rows,
                                       sizeof rows),
        cublasLtMatmulDescSetAttribute(&plan->operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &rows,
                                       sizeof rows),
        cublasLtMatmulDescSetAttribute(&plan->operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast),
        set_scales(plan, operands),
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i] != CUBLAS_STATUS_SUCCESS) return parts[i];
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t tt_gemm_plan_describe(struct tt_gemm_plan *plan, const struct tt_gemm_operands *operands)
{
    const struct tt_gemm_key *key = &plan->key;
    cublasOperation_t a_op = key->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b_op = key->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    int64_t a_rows = key->trans_a ? key->k : key->m, a_columns = key->trans_a ? key->m : key->k;
    int64_t b_rows = key->trans_b ? key->n : key->k, b_columns = key->trans_b ? key->k : key->n;
    cublasStatus_t parts[] = {
        cublasLtMatmulDescInit(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        cublasLtMatmulDescSetAttribute(&plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &a_op, sizeof a_op),
        cublasLtMatmulDescSetAttribute(&plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &b_op, sizeof b_op),
        cublasLtMatrixLayoutInit(&plan->a, cuda_type(key->a_type), (uint64_t)a_rows, (uint64_t)a_columns,
                                 key->lda),
        cublasLtMatrixLayoutInit(&plan->b, cuda_type(key->b_type), (uint64_t)b_rows, (uint64_t)b_columns,
                                 key->ldb),
        cublasLtMatrixLayoutInit(&plan->c, cuda_type(key->c_type), (uint64_t)key->m, (uint64_t)key->n,
                                 key->ldc),
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i] != CUBLAS_STATUS_SUCCESS) return parts[i];
    }
    return tt_gemm_is_scaled(key) ? describe_scales(plan, operands) : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t tt_gemm_plan_run(struct tt_cuda_gemm *gemm, struct tt_stream *stream,
                                struct tt_gemm_plan *plan, const cublasLtMatmulAlgo_t *algorithm,
                                const struct tt_gemm_operands *operands)
{
    const struct tt_cuda_stream *of = tt_cuda_of(stream);
    cublasStatus_t set = tt_gemm_is_scaled(&plan->key) ? set_scales(plan, operands) : CUBLAS_STATUS_SUCCESS;
    if (set != CUBLAS_STATUS_SUCCESS) return set;
    return cublasLtMatmul(gemm->handle, &plan->operation, &operands->alpha, operands->a, &plan->a,
                          operands->b, &plan->b, &operands->beta, operands->addend, &plan->c, operands->c,
                          &plan->c, algorithm, of->gemm_workspace, TT_CUDA_GEMM_WORKSPACE_BYTES, of->stream);
}
