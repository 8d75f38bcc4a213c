/* The choice of grouped products for the kernel of grouped.h. */
#include "backend/cuda/gemm/grouped.h"

#include "backend/cuda/gemm/fused.h"
#include "backend/cuda/gemm/maps.h"

/* Rows of a matrix of each expert in boxes of 16 bytes. */
static bool fits(tt_tensor matrices)
{
    return matrices.dtype == TT_BF16 && (uintptr_t)matrices.data % 16 == 0 && matrices.dims[2] % 8 == 0 &&
           matrices.dims[1] <= INT32_MAX && matrices.dims[2] <= INT32_MAX;
}

static bool takes(const struct tt_cuda_device *cuda, const struct tt_grouped_gemm_args *args)
{
    bool adapter = !tt_tensor_is_empty(args->h_MR);
    return cuda->gemm->has_grouped && args->border_X1.dims[0] - 1 <= TT_GROUPED_EXPERTS_MAX &&
           args->y_MN.dims[1] % 8 == 0 && args->x_MK.dims[1] > 0 && tt_cuda_map_fits(args->x_MK) &&
           tt_cuda_map_fits(args->y_MN) && fits(args->w_XNK) &&
           (!adapter || (tt_cuda_map_fits(args->h_MR) && fits(args->b_XNR))) &&
           (uintptr_t)args->bias_XN.data % 16 == 0;
}

static bool takes_codes(const struct tt_cuda_device *cuda, const struct tt_grouped_gemm_args *args)
{
    const struct tt_grouped_codes *codes = &args->codes;
    bool adapter = !tt_tensor_is_empty(args->h_MR);
    return cuda->gemm->has_grouped_scaled && args->border_X1.dims[0] - 1 <= TT_GROUPED_EXPERTS_MAX &&
           tt_cuda_map_fits(args->y_MN) && (uintptr_t)codes->x_MK.data % 16 == 0 &&
           (uintptr_t)codes->w_XNK.data % 16 == 0 && (uintptr_t)codes->w_scale_XN.data % 8 == 0 &&
           codes->x_MK.dims[0] <= INT32_MAX && args->y_MN.dims[1] <= INT32_MAX &&
           codes->x_MK.dims[1] <= INT32_MAX &&
           (!adapter || (tt_cuda_map_fits(args->h_MR) && fits(args->b_XNR))) &&
           (uintptr_t)args->bias_XN.data % 16 == 0;
}

static tt_status map_low_rank(const struct tt_cuda_gemm *gemm, const struct tt_grouped_gemm_args *args,
                              struct tt_grouped_params *params)
{
    int rows = args->transposed ? TT_FUSED_DEPTH : TT_FUSED_COLUMNS / 2;
    if (tt_tensor_is_empty(args->h_MR)) return TT_OK;
    params->r = (int)args->h_MR.dims[1];
    TT_TRY(tt_cuda_map_matrix(gemm, args->h_MR, TT_GROUPED_BOX_ROWS, &params->a2));
    return tt_cuda_map_matrices(gemm, args->b_XNR, rows, &params->b2);
}

static tt_status map_operands(const struct tt_cuda_gemm *gemm, const struct tt_grouped_gemm_args *args,
                              struct tt_grouped_params *params)
{
    int rows = args->transposed ? TT_FUSED_DEPTH : TT_FUSED_COLUMNS / 2;
    TT_TRY(tt_cuda_map_matrix(gemm, args->x_MK, TT_GROUPED_BOX_ROWS, &params->a));
    TT_TRY(tt_cuda_map_matrices(gemm, args->w_XNK, rows, &params->b));
    return map_low_rank(gemm, args, params);
}

static struct tt_grouped_params params_of(const struct tt_grouped_gemm_args *args)
{
    return (struct tt_grouped_params){.border = args->border_X1.data,
                                      .experts = (int)(args->border_X1.dims[0] - 1),
                                      .n = (int)args->y_MN.dims[1],
                                      .k = (int)args->x_MK.dims[1],
                                      .alpha = args->alpha == 0 ? 1 : args->alpha,
                                      .a_scale = args->codes.x_scale_M.data,
                                      .b_scale = args->codes.w_scale_XN.data,
                                      .chain = TT_FUSED_CHAIN,
                                      .bias = args->bias_XN.data,
                                      .bias_is_bf16 = args->bias_XN.dtype == TT_BF16,
                                      .c = args->y_MN.data,
                                      .c_row = tt_cuda_map_row(args->y_MN)};
}

static int ctas_of(const struct tt_cuda_device *cuda)
{
    return cuda->processors / TT_FUSED_CLUSTER * TT_FUSED_CLUSTER;
}

static tt_status multiply_codes(struct tt_stream *stream, const struct tt_grouped_gemm_args *args)
{
    const struct tt_cuda_device *cuda = tt_cuda_device_of(stream);
    struct tt_grouped_params params = params_of(args);
    if (!takes_codes(cuda, args)) return tt_cuda_grouped_gemm_plain(stream, args);
    TT_TRY(tt_cuda_map_matrix(cuda->gemm, args->codes.x_MK, TT_GROUPED_BOX_ROWS, &params.a));
    TT_TRY(tt_cuda_map_matrices(cuda->gemm, args->codes.w_XNK, TT_FUSED_COLUMNS / 2, &params.b));
    TT_TRY(map_low_rank(cuda->gemm, args, &params));
    return tt_cuda_check(
        tt_cuda_grouped_fp8_launch(args->transposed, &params, ctas_of(cuda), tt_cuda_handle(stream)), stream,
        "grouped_gemm in fp8");
}

static tt_status multiply(struct tt_stream *stream, const struct tt_grouped_gemm_args *args)
{
    const struct tt_cuda_device *cuda = tt_cuda_device_of(stream);
    struct tt_grouped_params params = params_of(args);
    if (args->y_MN.dims[1] == 0) return TT_OK;
    tt_status few = tt_cuda_grouped_few(stream, args);
    if (few != TT_ERR_UNSUPPORTED) return few;
    if (!takes(cuda, args)) return tt_cuda_grouped_gemm_plain(stream, args);
    TT_TRY(map_operands(cuda->gemm, args, &params));
    return tt_cuda_check(
        tt_cuda_grouped_launch(args->transposed, &params, ctas_of(cuda), tt_cuda_handle(stream)), stream,
        "grouped_gemm");
}

/* Matrices or rows of experts `first` .. `first + count - 1` of a contiguous stack. */
static tt_tensor part_of(tt_tensor stack, int64_t first, int64_t count)
{
    size_t each = tt_dtype_bytes(stack.dtype);
    if (tt_tensor_is_empty(stack)) return stack;
    for (int d = 1; d < stack.rank; d++) each *= (size_t)stack.dims[d];
    stack.data = (char *)stack.data + (size_t)first * each;
    stack.dims[0] = count;
    return stack;
}

/* Some experts after the others, decoded and multiplied: rows of all others are left alone. */
static tt_status multiply_coded(struct tt_stream *stream, const struct tt_grouped_gemm_args *args)
{
    int64_t experts = args->border_X1.dims[0] - 1, most = args->scratch.dims[0], count;
    for (int64_t first = 0; first < experts; first += count) {
        struct tt_grouped_gemm_args part = *args;
        count = experts - first < most ? experts - first : most;
        part.coded.layout = NULL;
        part.border_X1 = tt_tensor_1d((int32_t *)args->border_X1.data + first, TT_I32, count + 1);
        part.w_XNK = part_of(args->scratch, 0, count);
        part.b_XNR = part_of(args->b_XNR, first, count);
        part.bias_XN = part_of(args->bias_XN, first, count);
        TT_TRY(tt_cuda_decode_experts(stream, &args->coded, first, part.border_X1, part.w_XNK));
        TT_TRY(multiply(stream, &part));
    }
    return TT_OK;
}

tt_status tt_cuda_grouped_gemm(struct tt_stream *stream, const struct tt_grouped_gemm_args *args)
{
    if (tt_grouped_is_scaled(args)) return multiply_codes(stream, args);
    return args->coded.layout != NULL ? multiply_coded(stream, args) : multiply(stream, args);
}
