#include "backend/cuda/attention/check.h"

#include <math.h>

#include "backend/cuda/attention/mma.h"
#include "backend/cuda/attention/offsets.h"
#include "backend/cuda/cuda.h"

struct batch {
    int64_t sequences, tokens, longest;
    int32_t cu[8];
};
/* Lengths shorter and longer than a tile, of one token and of none, and a last one that ends inside a tile. */
static const struct batch packed = {6, 432, 200, {0, 1, 38, 238, 238, 368, 432}};
/* The plan of the real batch cannot run a smaller one, so another plan is checked. It runs the same machine
 * code: with cuDNN 9.26 2 x 640 and 4 x 4096 differ in the kernels' arguments alone. */
static const struct batch dense = {2, 1280, 640, {0, 640, 1280}};

/* Device memory of one check, allocated as one piece. The first pass over the fields only counts (base == NULL). */
struct bench {
    char *base;
    size_t bytes;
    const struct batch *batch;
    bool training;
    struct tt_attention_backward_args by_cudnn, by_own;
    int32_t *device_cu;
    double *sums; /* two for each of o, dq, dk, dv: squared difference, squared norm */
};

static void *take(struct bench *bench, size_t bytes)
{
    void *at = bench->base != NULL ? bench->base + bench->bytes : NULL;
    bench->bytes += (bytes + 255) / 256 * 256;
    return at;
}

static tt_tensor take_rows(struct bench *bench, tt_tensor like, int64_t stride)
{
    tt_tensor view = like;
    view.dims[0] = bench->batch->tokens;
    view.strides[0] = stride;
    view.data = take(bench, (size_t)(bench->batch->tokens * stride) * sizeof(uint16_t));
    return view;
}

static void lay_out(struct bench *bench, const struct tt_attention_forward_args *like)
{
    int64_t heads = like->q_THE.dims[1], kv_heads = like->k_TKE.dims[1], head_dim = like->q_THE.dims[2];
    /* dk and dv have the row strides of the real backward pass, or those of cuDNN's contiguous copies. */
    int64_t q_stride = like->q_THE.strides[0], o_stride = like->o_THE.strides[0];
    bool in_place = heads == kv_heads || bench->batch == &dense, training = bench->training;
    int64_t dk_stride = in_place ? like->k_TKE.strides[0] : kv_heads * head_dim;
    int64_t tokens = bench->batch->tokens, longest = bench->batch->longest;
    struct tt_attention_forward_args args = *like;
    bench->bytes = 0;
    bench->device_cu = take(bench, sizeof bench->batch->cu);
    bench->sums = take(bench, 8 * sizeof(double));
    args.cu_q = args.cu_k = bench->batch->cu;
    args.device_cu_q = args.device_cu_k = tt_tensor_1d(bench->device_cu, TT_I32, bench->batch->sequences + 1);
    args.sequence_count = bench->batch->sequences;
    args.max_length_q = args.max_length_k = longest;
    args.window = tt_cudnn_window(like); /* the plan reads it at execution, so it may differ */
    if (args.window > longest / 2) args.window = longest / 2;
    args.q_THE = take_rows(bench, like->q_THE, q_stride);
    args.k_TKE = take_rows(bench, like->k_TKE, like->k_TKE.strides[0]);
    args.v_TKE = take_rows(bench, like->v_TKE, like->v_TKE.strides[0]);
    struct tt_attention_backward_args *both[] = {&bench->by_cudnn, &bench->by_own};
    tt_tensor do_THE = training ? take_rows(bench, like->o_THE, o_stride) : (tt_tensor){0};
    for (int i = 0; i < 2; i++) {
        struct tt_attention_backward_args *one = both[i];
        *one = (struct tt_attention_backward_args){.forward = args, .do_THE = do_THE};
        one->forward.o_THE = take_rows(bench, like->o_THE, o_stride);
        if (!training) continue;
        one->forward.lse_HT =
            tt_tensor_2d(take(bench, (size_t)(heads * tokens) * sizeof(float)), TT_F32, heads, tokens);
        one->dq_THE = take_rows(bench, like->q_THE, q_stride);
        one->dk_TKE = take_rows(bench, like->k_TKE, dk_stride);
        one->dv_TKE = take_rows(bench, like->v_TKE, dk_stride);
        size_t scratch =
            tt_cudnn_scratch_layout(tokens, heads, kv_heads, head_dim, q_stride, q_stride, dk_stride).total;
        size_t own = tt_mma_attention_backward_scratch(tokens, heads, kv_heads, head_dim);
        if (scratch < own) scratch = own;
        one->scratch = tt_tensor_1d(take(bench, scratch), TT_U8, (int64_t)scratch);
    }
}

static cudaError_t fill(struct bench *bench, cudaStream_t stream)
{
    const struct tt_attention_backward_args *args = &bench->by_cudnn;
    const tt_tensor *inputs[] = {&args->forward.q_THE, &args->forward.k_TKE, &args->forward.v_TKE,
                                 &args->do_THE};
    cudaError_t error = cudaMemsetAsync(bench->base, 0xff, bench->bytes, stream); /* NaN, in all types */
    if (error == cudaSuccess) error = cudaMemsetAsync(bench->sums, 0, 8 * sizeof(double), stream);
    if (error == cudaSuccess) {
        error = cudaMemcpyAsync(bench->device_cu, bench->batch->cu, sizeof bench->batch->cu,
                                cudaMemcpyHostToDevice, stream);
    }
    for (int i = 0; i < 4 && error == cudaSuccess; i++) {
        if (tt_tensor_is_empty(*inputs[i])) continue;
        error = tt_cuda_attention_noise(stream, inputs[i]->data, bench->batch->tokens * inputs[i]->strides[0],
                                        0x9e3779b9u * (uint32_t)(i + 1));
    }
    return error;
}

static tt_status run_both(struct tt_cuda_cudnn *cudnn, struct tt_stream *stream, const struct bench *bench)
{
    const struct tt_attention_backward_args *args = &bench->by_cudnn;
    bool is_dense = bench->batch == &dense;
    char why[200];
    if (!tt_cuda_cudnn_takes_forward(cudnn, &args->forward, is_dense, why, sizeof why) ||
        (bench->training && !tt_cuda_cudnn_takes_backward(cudnn, args, is_dense, why, sizeof why))) {
        return tt_fail(TT_ERR_UNSUPPORTED, "%s", why);
    }
    TT_TRY(tt_cuda_cudnn_forward(cudnn, stream, &args->forward, is_dense));
    TT_TRY(tt_cuda_mma_attention_forward(stream, &bench->by_own.forward));
    if (!bench->training) return TT_OK;
    TT_TRY(tt_cuda_cudnn_backward(cudnn, stream, args, is_dense));
    return tt_cuda_mma_attention_backward(stream, &bench->by_own);
}

static tt_status compare(struct tt_stream *stream, const struct bench *bench, int results, double errors[4])
{
    const struct tt_attention_backward_args *a = &bench->by_cudnn, *b = &bench->by_own;
    const struct {
        const tt_tensor *a, *b;
    } pairs[] = {{&a->forward.o_THE, &b->forward.o_THE},
                 {&a->dq_THE, &b->dq_THE},
                 {&a->dk_TKE, &b->dk_TKE},
                 {&a->dv_TKE, &b->dv_TKE}};
    double sums[8];
    for (int i = 0; i < results; i++) {
        const tt_tensor *x = pairs[i].a, *y = pairs[i].b;
        TT_TRY(tt_cuda_check(tt_cuda_attention_distance(tt_cuda_handle(stream), x->data, x->strides[0],
                                                        y->data, y->strides[0], bench->batch->tokens,
                                                        x->dims[1] * x->dims[2], bench->sums + 2 * i),
                             stream, "attention self-check"));
    }
    TT_TRY(tt_cuda_wait(stream));
    TT_TRY(tt_cuda_check(cudaMemcpy(sums, bench->sums, sizeof sums, cudaMemcpyDeviceToHost), stream,
                         "attention self-check"));
    for (int i = 0; i < results; i++) errors[i] = sqrt(sums[2 * i] / sums[2 * i + 1]);
    return TT_OK;
}

tt_status tt_cuda_attention_check(struct tt_cuda_cudnn *cudnn, struct tt_stream *stream,
                                  const struct tt_attention_forward_args *like, bool is_dense,
                                  struct tt_cuda_attention_errors *errors)
{
    bool training = !tt_tensor_is_empty(like->lse_HT);
    struct bench bench = {.batch = is_dense ? &dense : &packed, .training = training};
    tt_status status = TT_OK;
    char why[200];
    double found[4] = {0};
    *errors = (struct tt_cuda_attention_errors){0};
    lay_out(&bench, like);
    if (!tt_cuda_mma_attention_serves(&bench.by_own.forward, training, why, sizeof why)) return TT_OK;
    if (cudaMalloc((void **)&bench.base, bench.bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return TT_OK;
    }
    lay_out(&bench, like);
    tt_cuda_cudnn_least_tokens(cudnn, like->q_THE.dims[0]);
    TT_GO(tt_cuda_check(fill(&bench, tt_cuda_handle(stream)), stream, "attention self-check"));
    TT_GO(run_both(cudnn, stream, &bench));
    TT_GO(compare(stream, &bench, training ? 4 : 1, found));
    *errors = (struct tt_cuda_attention_errors){true, found[0], found[1], found[2], found[3]};
out:
    tt_cuda_cudnn_least_tokens(cudnn, 0);
    (void)cudaFree(bench.base); /* waits for the work that still uses it */
    return status;
}
