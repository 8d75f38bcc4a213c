/* The wide product also computes LoRA's narrow products and an addend: separate, each would cost a pass over y.
 * SwiGLU is a separate pass. */
#include "backend/compose.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/gemm/variants.h"

static void add_low(const struct tt_gemm_lora_args *args, int i, struct tt_gemm_low *low)
{
    tt_tensor b = args->low.parts[i].b;
    int64_t first = args->low.parts[i].first_y;
    low->k = b.dims[args->trans_w ? 1 : 0];
    low->a = tt_gemm_source_of(tt_tensor_cols(args->low.h_MR, args->low.parts[i].first_h, low->k), true);
    low->b = tt_gemm_source_of(b, args->trans_w);
    low->first = first;
    low->end = first + b.dims[args->trans_w ? 0 : 1];
}

tt_status tt_cpu_gemm_lora(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    struct tt_gemm_low low[TT_LOW_RANK_PARTS];
    bool adds = !tt_tensor_is_empty(args->addend_MN);
    struct tt_gemm_problem problem = {
        .m = args->y_MN.dims[0],
        .n = args->y_MN.dims[1],
        .k = args->x_MK.dims[1],
        .a = tt_gemm_source_of(args->x_MK, true),
        .b = tt_gemm_source_of(args->w.dense, args->trans_w),
        .c = {.data = args->y_MN.data, .dtype = args->y_MN.dtype, .stride = args->y_MN.strides[0]},
        .alpha = 1.0f,
        .beta = adds ? 1.0f : 0.0f,
        .low = low,
        .low_count = args->low.count,
    };
    if (adds && args->addend_MN.data != args->y_MN.data) problem.c.addend = args->addend_MN.data;
    for (int i = 0; i < args->low.count; i++) add_low(args, i, &low[i]);
    bool along = args->low.count > 0 || problem.c.addend != NULL;
    if (!along || problem.m == 0 || problem.n == 0 || problem.k == 0 ||
        !tt_gemm_takes_low(tt_gemm_state_of(stream), &problem)) {
        return tt_compose_gemm_lora(stream, args);
    }
    TT_TRY(tt_gemm_run(stream, &problem));
    return tt_compose_rotation(stream, args);
}

tt_status tt_cpu_gemm_swiglu(struct tt_stream *stream, const struct tt_gemm_swiglu_args *args)
{
    return tt_compose_gemm_swiglu(stream, args);
}

tt_status tt_cpu_gemm_swiglu_backward(struct tt_stream *stream,
                                      const struct tt_gemm_swiglu_backward_args *args)
{
    return tt_compose_gemm_swiglu_backward(stream, args);
}
