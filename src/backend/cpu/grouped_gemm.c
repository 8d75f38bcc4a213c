/* Products of rows with the matrix of their expert: one product for each expert that has rows, by the kernels of the
 * plain product, whose threads share it. */
#include "backend/cpu/parallel.h"
#include "backend/ops/quant.h"

/* Matrix e of a contiguous stack. */
static tt_tensor matrix_of(tt_tensor stack, int64_t e)
{
    size_t bytes = (size_t)(stack.dims[1] * stack.dims[2]) * tt_dtype_bytes(stack.dtype);
    return tt_tensor_2d((char *)stack.data + (size_t)e * bytes, stack.dtype, stack.dims[1], stack.dims[2]);
}

/* The matrix of expert e: one of w, or decoded into the scratch, of which the first part is used alone, so that the
 * product finds its numbers in the caches. */
static tt_status find_matrix(struct tt_stream *stream, const struct tt_grouped_gemm_args *args, int64_t e,
                             tt_tensor *matrix)
{
    if (args->coded.layout == NULL) {
        *matrix = matrix_of(args->w_XNK, e);
        return TT_OK;
    }
    *matrix = matrix_of(args->scratch, 0);
    struct tt_dequantize_args decode = {.layout = *args->coded.layout,
                                        .packed = args->coded.packed,
                                        .first_row = e * matrix->dims[0],
                                        .y_NK = *matrix};
    return tt_cpu_dequantize(stream, &decode);
}

/* Numbers of expert e of a contiguous stack of vectors. */
static tt_tensor vector_of(tt_tensor stack, int64_t e)
{
    size_t bytes = (size_t)stack.dims[1] * tt_dtype_bytes(stack.dtype);
    return tt_tensor_1d((char *)stack.data + (size_t)e * bytes, stack.dtype, stack.dims[1]);
}

static tt_status multiply_codes(struct tt_stream *stream, const struct tt_grouped_gemm_args *args, int64_t e,
                                int64_t first, int64_t count)
{
    const struct tt_grouped_codes *codes = &args->codes;
    tt_tensor y = tt_tensor_rows(args->y_MN, first, count);
    float *scale = (float *)codes->x_scale_M.data + first;
    struct tt_gemm_scaled_args product = {.a_MK = tt_tensor_rows(codes->x_MK, first, count),
                                          .a_scale_M = tt_tensor_1d(scale, TT_F32, count),
                                          .b_NK = matrix_of(codes->w_XNK, e),
                                          .b_scale_N = vector_of(codes->w_scale_XN, e),
                                          .y_MN = y,
                                          .scratch = args->scratch};
    TT_TRY(tt_cpu_gemm_scaled(stream, &product));
    if (tt_tensor_is_empty(args->h_MR)) return TT_OK;
    struct tt_gemm_args narrow = {.a = tt_tensor_rows(args->h_MR, first, count),
                                  .b = matrix_of(args->b_XNR, e),
                                  .c = y,
                                  .trans_b = !args->transposed,
                                  .alpha = 1,
                                  .beta = 1};
    return tt_cpu_gemm(stream, &narrow);
}

static tt_status multiply(struct tt_stream *stream, const struct tt_grouped_gemm_args *args, int64_t e,
                          int64_t first, int64_t count)
{
    tt_tensor w;
    if (tt_grouped_is_scaled(args)) return multiply_codes(stream, args, e, first, count);
    TT_TRY(find_matrix(stream, args, e, &w));
    tt_tensor x = tt_tensor_rows(args->x_MK, first, count), y = tt_tensor_rows(args->y_MN, first, count);
    if (tt_tensor_is_empty(args->h_MR)) {
        struct tt_gemm_args product = {.a = x,
                                       .b = w,
                                       .c = y,
                                       .trans_b = !args->transposed,
                                       .alpha = args->alpha == 0 ? 1 : args->alpha};
        return tt_cpu_gemm(stream, &product);
    }
    struct tt_gemm_lora_args product = {.x_MK = x,
                                        .w = tt_matrix_of(w),
                                        .trans_w = !args->transposed,
                                        .low = {.h_MR = tt_tensor_rows(args->h_MR, first, count), .count = 1},
                                        .y_MN = y};
    product.low.parts[0].b = matrix_of(args->b_XNR, e);
    return tt_cpu_gemm_lora(stream, &product);
}

tt_status tt_cpu_grouped_gemm(struct tt_stream *stream, const struct tt_grouped_gemm_args *args)
{
    const int32_t *border = args->border_X1.data;
    for (int64_t e = 0; e + 1 < args->border_X1.dims[0]; e++) {
        int64_t first = border[e], count = border[e + 1] - first;
        if (count == 0) continue;
        TT_TRY(multiply(stream, args, e, first, count));
        if (tt_tensor_is_empty(args->bias_XN)) continue;
        struct tt_bias_forward_args add = {.bias_N = vector_of(args->bias_XN, e),
                                           .y_TN = tt_tensor_rows(args->y_MN, first, count)};
        TT_TRY(tt_cpu_bias_forward(stream, &add));
    }
    return TT_OK;
}

tt_status tt_cpu_grouped_gradients(struct tt_stream *stream, const struct tt_grouped_gradients_args *args)
{
    const int32_t *border = args->border_X1.data;
    for (int64_t e = 0; e < args->dw_XNK.dims[0]; e++) {
        int64_t first = border[e], count = border[e + 1] - first;
        if (count == 0) continue;
        struct tt_gemm_args product = {.a = tt_tensor_rows(args->dy_MN, first, count),
                                       .b = tt_tensor_rows(args->x_MK, first, count),
                                       .c = matrix_of(args->dw_XNK, e),
                                       .trans_a = true,
                                       .alpha = 1,
                                       .beta = 1};
        TT_TRY(tt_cpu_gemm(stream, &product));
    }
    return TT_OK;
}
