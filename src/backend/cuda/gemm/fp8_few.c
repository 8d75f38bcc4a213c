/* The choice of products for the kernel of fp8_few.h. */
#include "backend/cuda/gemm/fp8_few.h"

#include "backend/cuda/gemm/fused.h"
#include "backend/cuda/gemm/maps.h"

enum { LEAST_STEPS = 4 /* of a part of k */, BLOCKS = 2 /* of a processor */ };

/* The most parts of k whose CTAs run at one time; 0: this kernel has too many tiles, or too little to do. */
static int parts_for(const struct tt_cuda_device *cuda, int64_t n, int64_t steps)
{
    int64_t tiles = (n + TT_FP8_FEW_COLUMNS - 1) / TT_FP8_FEW_COLUMNS,
            most = (int64_t)BLOCKS * cuda->processors;
    int parts = TT_FP8_FEW_PARTS_MAX;
    while (parts > 1 && (tiles * parts > most || steps / parts < LEAST_STEPS)) parts /= 2;
    return tiles <= most && steps / parts >= LEAST_STEPS ? parts : 0;
}

static bool is_aligned(tt_tensor x)
{
    size_t element = tt_dtype_bytes(x.dtype);
    return (uintptr_t)x.data % 16 == 0 && (x.dims[0] <= 1 || (size_t)x.strides[0] * element % 16 == 0);
}

/* Parts of k; 0: the kernel does not take it. A part is no longer than a chain of sums (scaled_sums.cuh). */
static int parts_of(const struct tt_cuda_device *cuda, const struct tt_gemm_scaled_args *args, int64_t steps)
{
    tt_tensor y = args->y_MN;
    if (!cuda->gemm->has_fp8_few || y.dims[0] > TT_FP8_FEW_ROWS || y.dims[1] > INT32_MAX) return 0;
    if (!is_aligned(args->a_MK) || !is_aligned(args->b_NK) || !is_aligned(y) ||
        (uintptr_t)args->addend_MN.data % 16 != 0)
        return 0;
    int parts = parts_for(cuda, y.dims[1], steps);
    return steps <= (int64_t)parts * TT_FUSED_CHAIN ? parts : 0;
}

tt_status tt_cuda_gemm_scaled_few(struct tt_stream *stream, const struct tt_gemm_scaled_args *args)
{
    const struct tt_cuda_device *cuda = tt_cuda_device_of(stream);
    int64_t steps = (args->a_MK.dims[1] + TT_FP8_FEW_DEPTH - 1) / TT_FP8_FEW_DEPTH;
    struct tt_fp8_few_params params = {.m = (int)args->y_MN.dims[0],
                                       .n = (int)args->y_MN.dims[1],
                                       .steps = (int)steps,
                                       .parts = parts_of(cuda, args, steps),
                                       .a_scale = args->a_scale_M.data,
                                       .b_scale = args->b_scale_N.data,
                                       .addend = args->addend_MN.data,
                                       .c = args->y_MN.data,
                                       .c_row = args->y_MN.strides[0],
                                       .c_is_bf16 = args->y_MN.dtype == TT_BF16};
    if (params.parts == 0) return TT_ERR_UNSUPPORTED;
    TT_TRY(tt_cuda_map_matrix(cuda->gemm, args->a_MK, TT_FP8_FEW_ROWS, &params.a));
    TT_TRY(tt_cuda_map_matrix(cuda->gemm, args->b_NK, TT_FP8_FEW_COLUMNS, &params.b));
    return tt_cuda_check(tt_cuda_fp8_few_launch(&params, tt_cuda_handle(stream)), stream, "gemm_scaled");
}
