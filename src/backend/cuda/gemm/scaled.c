/* Products in E4M3 with a scale a row: the kernel of fp8.cu where it is better (fused.c), else cuBLASLt in
 * the form "TN" with outer vectors of scales, which compute capability 9.0 has. What cuBLASLt declines is an error,
 * because a rank refuses devices without FP8 (tt_device_multiplies_fp8) and models decode matrices whose sides are not
 * multiples of 16. */
#include "backend/cuda/gemm/algorithms.h"
#include "backend/cuda/gemm/fp8_few.h"

static tt_status fail(const struct tt_stream *stream, const struct tt_gemm_scaled_args *args, const char *why)
{
    char a[96], b[96];
    int architecture = tt_cuda_device_of(stream)->architecture;
    cudaError_t cause = cudaPeekAtLastError();
    if (cause != cudaSuccess) return tt_cuda_check(cause, stream, "gemm_scaled");
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED, "gemm_scaled of %s and %s: %s on %s (compute capability %d.%d)",
                tt_tensor_format(args->a_MK, a, sizeof a), tt_tensor_format(args->b_NK, b, sizeof b), why,
                stream->device->name, architecture / 10, architecture % 10);
    tt_hint("--fp8_products none decodes the weights for products in the compute type");
    return status;
}

tt_status tt_cuda_gemm_scaled(struct tt_stream *stream, const struct tt_gemm_scaled_args *args)
{
    struct tt_cuda_gemm *gemm = tt_cuda_device_of(stream)->gemm;
    bool adds = !tt_tensor_is_empty(args->addend_MN);
    struct tt_gemm_key key = {.m = args->y_MN.dims[1],
                              .n = args->y_MN.dims[0],
                              .k = args->a_MK.dims[1],
                              .lda = tt_gemm_leading(args->b_NK),
                              .ldb = tt_gemm_leading(args->a_MK),
                              .ldc = tt_gemm_leading(args->y_MN),
                              .a_type = TT_F8_E4M3,
                              .b_type = TT_F8_E4M3,
                              .c_type = (uint8_t)args->y_MN.dtype,
                              .trans_a = true,
                              .accumulates = adds,
                              .a_align = tt_gemm_alignment(args->b_NK.data),
                              .b_align = tt_gemm_alignment(args->a_MK.data),
                              .c_align = tt_gemm_alignment(args->y_MN.data)};
    if (adds && tt_gemm_alignment(args->addend_MN.data) < key.c_align)
        key.c_align = tt_gemm_alignment(args->addend_MN.data);
    struct tt_gemm_operands operands = {.a = args->b_NK.data,
                                        .b = args->a_MK.data,
                                        .c = args->y_MN.data,
                                        .alpha = 1,
                                        .beta = adds ? 1 : 0,
                                        .addend = adds ? args->addend_MN.data : args->y_MN.data,
                                        .a_scale = args->b_scale_N.data,
                                        .b_scale = args->a_scale_M.data};
    struct tt_gemm_plan *plan;
    tt_status fused = tt_cuda_gemm_scaled_few(stream, args);
    if (fused == TT_ERR_UNSUPPORTED) fused = tt_cuda_gemm_scaled_fused(stream, args);
    if (fused != TT_ERR_UNSUPPORTED) return fused;
    TT_TRY(tt_gemm_plan_find(gemm, stream, &key, &operands, &plan));
    if (plan->declined) return fail(stream, args, "cuBLASLt has no algorithm for it");
    cublasStatus_t ran = tt_gemm_plan_run(gemm, stream, plan, &plan->algorithm, &operands);
    return ran == CUBLAS_STATUS_SUCCESS ? TT_OK : fail(stream, args, cublasLtGetStatusName(ran));
}
