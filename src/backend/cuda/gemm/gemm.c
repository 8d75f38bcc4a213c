/* Matrix products through cuBLASLt.
 *
 * Row-major c = op(a) op(b) is column-major c' = op(b)' op(a)': cuBLASLt's first matrix is our b, its second
 * our a, and a matrix that is stored "transposed" for us is not for it. A linear layer's y = x W' (W stored
 * [out, in]) becomes the form "TN", which is the fastest one on Hopper.
 *
 * cuBLASLt computes bf16 x bf16 and fp32 x fp32 -> fp32, with sums in fp32 (never TF32). The plain kernel
 * computes the rest: mixed types, which no layer uses in training, K = 0, and whatever cuBLASLt declines
 * (unaligned addresses, for example).
 *
 * One difference to the op's header: where c is bf16 and beta is not 0, cuBLASLt rounds the product to bf16
 * before it adds beta * c, and then rounds the sum (seen on an H200 with 13.1: a + b and b + a give the same
 * bits whichever of the two is in c). Where c is fp32, as gradients are, nothing is rounded. */

#include "backend/cuda/gemm/algorithms.h"
#include "backend/cuda/gemm/few.h"
#include "backend/cuda/gemm/fp8_few.h"
#include "backend/cuda/gemm/grouped.h"
#include "backend/cuda/gemm/plain.h"
#include "base/alloc.h"

tt_status tt_cuda_gemm_create(struct tt_device *device, struct tt_cuda_gemm **out)
{
    tt_status status = TT_OK;
    cublasStatus_t made;
    struct tt_cuda_gemm *gemm = tt_calloc(1, sizeof *gemm);
    if (gemm == NULL) return TT_ERR_MEMORY;
    gemm->plans = tt_calloc(TT_GEMM_PLANS, sizeof *gemm->plans);
    gemm->choices = tt_calloc(TT_GEMM_CHOICES, sizeof *gemm->choices);
    if (gemm->plans == NULL || gemm->choices == NULL) TT_GO(TT_ERR_MEMORY);
    made = cublasLtCreate(&gemm->handle);
    if (made != CUBLAS_STATUS_SUCCESS) {
        gemm->handle = NULL;
        TT_GO(tt_fail(TT_ERR_DEVICE, "cuBLASLt cannot be used: %s (%s)", cublasLtGetStatusString(made),
                      cublasLtGetStatusName(made)));
    }
    gemm->tunes = device->tuning.gemm_tune;
    tt_gemm_choices_load(gemm, device);
    tt_cuda_fused_open(gemm, device);
    gemm->has_grouped = gemm->encode != NULL && tt_cuda_grouped_is_built();
    gemm->has_grouped_scaled = gemm->encode != NULL && tt_cuda_grouped_fp8_is_built();
    gemm->has_fp8_few = gemm->encode != NULL && tt_cuda_fp8_few_is_built();
    *out = gemm;
    return TT_OK;
out:
    tt_cuda_gemm_destroy(gemm);
    return status;
}

void tt_cuda_gemm_destroy(struct tt_cuda_gemm *gemm)
{
    if (gemm == NULL) return;
    if (gemm->handle != NULL) cublasLtDestroy(gemm->handle);
    tt_free(gemm->choices);
    tt_free(gemm->plans);
    tt_free(gemm);
}

static bool is_cublas(const struct tt_gemm_args *args, const struct tt_gemm_key *key)
{
    if (key->k == 0 || key->m > INT32_MAX || key->n > INT32_MAX || key->k > INT32_MAX) return false;
    if (args->a.dtype != args->b.dtype) return false;
    return args->a.dtype == TT_BF16 || args->c.dtype == TT_F32;
}

static tt_status fail(const struct tt_stream *stream, const struct tt_gemm_args *args, cublasStatus_t error)
{
    char a[96], b[96], c[96];
    cudaError_t cause = cudaPeekAtLastError();
    if (cause != cudaSuccess) return tt_cuda_check(cause, stream, "gemm");
    return tt_fail(TT_ERR_DEVICE, "gemm of %s%s and %s%s into %s: %s (%s) on %s",
                   tt_tensor_format(args->a, a, sizeof a), args->trans_a ? " transposed" : "",
                   tt_tensor_format(args->b, b, sizeof b), args->trans_b ? " transposed" : "",
                   tt_tensor_format(args->c, c, sizeof c), cublasLtGetStatusString(error),
                   cublasLtGetStatusName(error), stream->device->name);
}

/* The product for K = 0. */
static tt_status zero(struct tt_stream *stream, tt_tensor c)
{
    size_t element = tt_dtype_bytes(c.dtype);
    return tt_cuda_check(cudaMemset2DAsync(c.data, (size_t)tt_gemm_leading(c) * element, 0,
                                           (size_t)c.dims[1] * element, (size_t)c.dims[0],
                                           tt_cuda_handle(stream)),
                         stream, "gemm");
}

/* The plain kernel can add only to c: another addend is copied there first. */
static tt_status plain(struct tt_stream *stream, const struct tt_gemm_args *args)
{
    if (args->beta != 0.0f && !tt_tensor_is_empty(args->addend)) {
        size_t element = tt_dtype_bytes(args->c.dtype), pitch = (size_t)tt_gemm_leading(args->c) * element;
        TT_TRY(tt_cuda_check(cudaMemcpy2DAsync(args->c.data, pitch, args->addend.data, pitch,
                                               (size_t)args->c.dims[1] * element, (size_t)args->c.dims[0],
                                               cudaMemcpyDeviceToDevice, tt_cuda_handle(stream)),
                             stream, "gemm"));
    }
    return tt_cuda_gemm_plain(stream, args);
}

tt_status tt_cuda_gemm(struct tt_stream *stream, const struct tt_gemm_args *args)
{
    struct tt_cuda_gemm *gemm = tt_cuda_device_of(stream)->gemm;
    struct tt_gemm_key key = {.m = args->c.dims[1],
                              .n = args->c.dims[0],
                              .k = args->a.dims[args->trans_a ? 0 : 1],
                              .lda = tt_gemm_leading(args->b),
                              .ldb = tt_gemm_leading(args->a),
                              .ldc = tt_gemm_leading(args->c),
                              .a_type = (uint8_t)args->b.dtype,
                              .b_type = (uint8_t)args->a.dtype,
                              .c_type = (uint8_t)args->c.dtype,
                              .trans_a = args->trans_b,
                              .trans_b = args->trans_a,
                              .accumulates = args->beta != 0.0f,
                              .a_align = tt_gemm_alignment(args->b.data),
                              .b_align = tt_gemm_alignment(args->a.data),
                              .c_align = tt_gemm_alignment(args->c.data)};
    tt_status few = tt_cuda_gemm_few(stream, args);
    if (few != TT_ERR_UNSUPPORTED) return few;
    bool adds_other = key.accumulates && !tt_tensor_is_empty(args->addend);
    if (key.k == 0 && !key.accumulates) return zero(stream, args->c);
    if (!is_cublas(args, &key)) return plain(stream, args);
    if (adds_other && tt_gemm_alignment(args->addend.data) < key.c_align)
        key.c_align = tt_gemm_alignment(args->addend.data);
    struct tt_gemm_operands operands = {.a = args->b.data,
                                        .b = args->a.data,
                                        .c = args->c.data,
                                        .alpha = args->alpha,
                                        .beta = args->beta,
                                        .addend = adds_other ? args->addend.data : args->c.data};
    struct tt_gemm_plan *plan;
    TT_TRY(tt_gemm_plan_find(gemm, stream, &key, &operands, &plan));
    if (plan->declined) return plain(stream, args);
    cublasStatus_t ran = tt_gemm_plan_run(gemm, stream, plan, &plan->algorithm, &operands);
    if (ran == CUBLAS_STATUS_SUCCESS) return TT_OK;
    if (ran != CUBLAS_STATUS_NOT_SUPPORTED && ran != CUBLAS_STATUS_INVALID_VALUE)
        return fail(stream, args, ran);
    plan->declined = true; /* nothing has been queued */
    return plain(stream, args);
}
