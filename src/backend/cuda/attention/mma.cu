/* The choice between our own attention kernels: tensor cores where their layout fits (wide.h for wide heads on Hopper),
 * else plain fp32 arithmetic. */
#include "backend/cuda/attention/mma.h"

#include <stdio.h>

#include "backend/cuda/attention/mma_tiles.h"
#include "backend/cuda/attention/wide.h"
#include "backend/cuda/cuda.h"

static struct tt_attention_view view_of(const tt_tensor *x_THE)
{
    return {x_THE->data, x_THE->strides[0], x_THE->strides[1]};
}

static struct tt_attention_problem problem_of(const struct tt_attention_forward_args *args)
{
    struct tt_attention_problem problem = {};
    problem.q = view_of(&args->q_THE);
    problem.k = view_of(&args->k_TKE);
    problem.v = view_of(&args->v_TKE);
    problem.o = view_of(&args->o_THE);
    if (!tt_tensor_is_empty(args->lse_HT)) {
        problem.lse = (float *)args->lse_HT.data;
        problem.lse_head = args->lse_HT.strides[0];
    }
    problem.cu_q = (const int32_t *)args->device_cu_q.data;
    problem.cu_k = (const int32_t *)args->device_cu_k.data;
    problem.rows_q = args->q_THE.dims[0];
    problem.rows_k = args->cu_k[args->sequence_count];
    problem.sequences = (int)args->sequence_count;
    problem.heads = (int)args->q_THE.dims[1];
    problem.kv_heads = (int)args->k_TKE.dims[1];
    problem.group = problem.heads / problem.kv_heads;
    problem.head_dim = (int)args->q_THE.dims[2];
    /* A window no shorter than the longest sequence hides nothing. */
    problem.window = args->window < args->max_length_k ? (int)args->window : 0;
    problem.scale = (float)args->scale;
    problem.cap = args->soft_cap;
    if (!tt_tensor_is_empty(args->sinks_H)) problem.sinks = (const float *)args->sinks_H.data;
    return problem;
}

static bool is_aligned(const tt_tensor *x_THE)
{
    return (uintptr_t)x_THE->data % 16 == 0 && x_THE->strides[0] % 8 == 0 && x_THE->strides[1] % 8 == 0;
}

enum kernels { PLAIN, TENSOR_CORES, WIDE };

/* The tensor-core kernels copy 16 bytes at a time, and assume that the largest raw score is also the largest
 * scaled score. */
static enum kernels kernels_for(const struct tt_stream *stream, const struct tt_attention_forward_args *args,
                                const struct tt_attention_backward_args *backward)
{
    int architecture = tt_cuda_device_of(stream)->architecture;
    if (architecture < 80) return PLAIN;
    if (args->q_THE.dtype != TT_BF16 || args->q_THE.dims[2] % 8 != 0 || !(args->scale > 0)) return PLAIN;
    if (!is_aligned(&args->q_THE) || !is_aligned(&args->k_TKE)) return PLAIN;
    if (!is_aligned(&args->v_TKE) || !is_aligned(&args->o_THE)) return PLAIN;
    if (backward != NULL && !(is_aligned(&backward->do_THE) && is_aligned(&backward->dq_THE) &&
                              is_aligned(&backward->dk_TKE) && is_aligned(&backward->dv_TKE)))
        return PLAIN;
    if (args->q_THE.dims[2] <= TT_MMA_HEAD_DIM_MAX) return TENSOR_CORES;
    if (!tt_tensor_is_empty(args->sinks_H)) return PLAIN;
    return architecture == 90 && args->q_THE.dims[0] > 0 && tt_attention_wide_is_built() ? WIDE : PLAIN;
}

bool tt_cuda_mma_attention_serves(const struct tt_attention_forward_args *args, bool backward, char *why,
                                  size_t why_bytes)
{
    (void)backward;
    if (args->sequence_count > 0 &&
        (tt_tensor_is_empty(args->device_cu_q) || tt_tensor_is_empty(args->device_cu_k))) {
        snprintf(why, why_bytes, "the borders of the sequences are not given in device memory");
        return false;
    }
    return true;
}

static tt_status check_serves(const struct tt_attention_forward_args *args, bool backward)
{
    char why[160];
    if (tt_cuda_mma_attention_serves(args, backward, why, sizeof why)) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED, "attention_%s: %s", backward ? "backward" : "forward", why);
}

static tt_status set_max_shared(struct tt_stream *stream, struct tt_attention_problem *problem,
                                const char *op)
{
    cudaError_t error = cudaDeviceGetAttribute(&problem->max_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                               tt_cuda_device_of(stream)->index);
    return tt_cuda_check(error, stream, op);
}

tt_status tt_cuda_mma_attention_forward(struct tt_stream *stream,
                                        const struct tt_attention_forward_args *args)
{
    TT_TRY(check_serves(args, false));
    struct tt_attention_problem problem = problem_of(args);
    if (problem.sequences == 0 || problem.rows_q == 0) return TT_OK;
    enum kernels kernels = kernels_for(stream, args, NULL);
    if (kernels == TENSOR_CORES) {
        TT_TRY(set_max_shared(stream, &problem, "attention_forward"));
        tt_attention_mma_forward(&problem, tt_cuda_handle(stream));
    } else if (kernels == WIDE) {
        TT_TRY(tt_attention_wide_forward(&problem, tt_cuda_handle(stream)));
    } else {
        tt_attention_any_forward(&problem, args->q_THE.dtype == TT_BF16, tt_cuda_handle(stream));
    }
    return tt_cuda_launched(stream, "attention_forward", &args->q_THE);
}

static tt_status finish_backward(struct tt_stream *stream, const struct tt_attention_backward_args *args,
                                 const struct tt_attention_problem *problem)
{
    if (!tt_tensor_is_empty(args->dsinks_H) && problem->rows_q > 0)
        tt_attention_sink_gradients(problem, (float *)args->dsinks_H.data, tt_cuda_handle(stream));
    return tt_cuda_launched(stream, "attention_backward", &args->forward.q_THE);
}

tt_status tt_cuda_mma_attention_backward(struct tt_stream *stream,
                                         const struct tt_attention_backward_args *args)
{
    const struct tt_attention_forward_args *forward = &args->forward;
    TT_TRY(check_serves(forward, true));
    struct tt_attention_problem problem = problem_of(forward);
    if (problem.sequences == 0 || problem.rows_k == 0) return TT_OK;
    size_t scratch_bytes = tt_tensor_is_empty(args->scratch) ? 0 : tt_tensor_bytes(args->scratch);
    size_t needed =
        tt_mma_attention_backward_scratch(problem.rows_q, problem.heads, problem.kv_heads, problem.head_dim);
    if (scratch_bytes < needed)
        return tt_fail(TT_ERR_INTERNAL, "attention_backward: %zu bytes of scratch, %zu are needed",
                       scratch_bytes, needed);
    problem.go = view_of(&args->do_THE);
    problem.gq = view_of(&args->dq_THE);
    problem.gk = view_of(&args->dk_TKE);
    problem.gv = view_of(&args->dv_TKE);
    problem.delta = (float *)args->scratch.data;
    cudaStream_t handle = tt_cuda_handle(stream);
    enum kernels kernels = kernels_for(stream, forward, args);
    if (kernels == PLAIN) {
        tt_attention_any_backward(&problem, forward->q_THE.dtype == TT_BF16, handle);
        return finish_backward(stream, args, &problem);
    }
    if (kernels == WIDE) {
        tt_attention_mma_delta(&problem, handle);
        TT_TRY(tt_attention_wide_backward(&problem, handle));
        return finish_backward(stream, args, &problem);
    }
    TT_TRY(set_max_shared(stream, &problem, "attention_backward"));
    if (problem.rows_q > 0) {
        tt_attention_mma_delta(&problem, handle);
        tt_attention_mma_dq(&problem, handle);
    }
    tt_attention_mma_dkv(&problem, handle);
    return finish_backward(stream, args, &problem);
}
