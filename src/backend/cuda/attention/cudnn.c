#include "backend/cuda/attention/cudnn.h"

#include "backend/cuda/attention/offsets.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/attention/cudnn_plans.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum {
    SEQUENCES_MAX = 1 << 15,
    /* The parts of the stream's scratch: cuDNN's workspace (plans need about 20 kB), offsets and lengths, an
     * lse that is discarded. */
    WORKSPACE_BYTES = 1 << 20,
    OFFSETS_BYTES = 5 << 19,
    LSE_BYTES = TT_CUDA_SCRATCH_BYTES - WORKSPACE_BYTES - OFFSETS_BYTES,
    /* Lengths of a dense plan fill cuDNN's tiles: some releases gave NaN for other lengths. A single sequence
     * has a length by chance, so it gets such a plan only for a multiple of a larger step. */
    DENSE_BATCHES_MAX = 16,
    DENSE_LENGTH_MIN = 512,
    DENSE_STEP = 128,
    DENSE_STEP_ALONE = 512,
    ARCHITECTURE_FIRST = 90, /* older chips: no ragged sums, no backward pass with head dimension 256 */
    ARCHITECTURE_END = 120
};

struct tt_cuda_cudnn {
    struct tt_cudnn library;
    struct tt_cudnn_plans plans;
    int64_t least_tokens;
    struct dense_batch {
        int64_t sequences, length;
    } dense_batches[DENSE_BATCHES_MAX]; /* batches with a plan of their own */
    int dense_count;
    char name[32];
};

tt_status tt_cuda_cudnn_create(struct tt_device *device, struct tt_cuda_cudnn **out)
{
    const struct tt_cuda_device *cuda = device->impl;
    if (cuda->architecture < ARCHITECTURE_FIRST || cuda->architecture >= ARCHITECTURE_END) {
        return tt_fail(TT_ERR_UNSUPPORTED, "compute capability %d.%d", cuda->architecture / 10,
                       cuda->architecture % 10);
    }
    struct tt_cuda_cudnn *cudnn = tt_calloc(1, sizeof *cudnn);
    if (cudnn == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    struct cudaDeviceProp properties;
    TT_GO(tt_cudnn_open(&cudnn->library));
    TT_GO(tt_cudnn_connect(&cudnn->library));
    TT_GO(tt_cuda_check(cudaGetDeviceProperties(&properties, cuda->index), NULL, "device properties"));
    cudnn->plans.cudnn = &cudnn->library;
    cudnn->plans.workspace_limit = WORKSPACE_BYTES;
    snprintf(cudnn->plans.device, sizeof cudnn->plans.device, "%.96s %d.%d %d", properties.name,
             properties.major, properties.minor, properties.multiProcessorCount);
    size_t version = cudnn->library.version;
    snprintf(cudnn->name, sizeof cudnn->name, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
    *out = cudnn;
    return TT_OK;
out:
    tt_cuda_cudnn_destroy(cudnn);
    return status;
}

void tt_cuda_cudnn_destroy(struct tt_cuda_cudnn *cudnn)
{
    if (cudnn == NULL) return;
    tt_cudnn_plans_deinit(&cudnn->plans);
    tt_cudnn_close(&cudnn->library);
    tt_free(cudnn);
}

void tt_cuda_cudnn_least_tokens(struct tt_cuda_cudnn *cudnn, int64_t tokens)
{
    cudnn->least_tokens = tokens;
}

const char *tt_cuda_cudnn_name(const struct tt_cuda_cudnn *cudnn)
{
    return cudnn->name;
}

bool tt_cuda_cudnn_is_dense(struct tt_cuda_cudnn *cudnn, const struct tt_attention_forward_args *args)
{
    int64_t count = args->sequence_count, length = count > 0 ? args->cu_q[1] : 0;
    int64_t step = count > 1 ? DENSE_STEP : DENSE_STEP_ALONE;
    if (length < DENSE_LENGTH_MIN || length % step != 0 || tt_cudnn_window(args) > 0) return false;
    if (args->q_THE.dims[0] * args->q_THE.strides[0] > INT32_MAX) return false;
    for (int64_t b = 0; b < count; b++) {
        if (args->cu_q[b + 1] - args->cu_q[b] != length) return false;
    }
    for (int i = 0; i < cudnn->dense_count; i++) {
        const struct dense_batch *known = &cudnn->dense_batches[i];
        if (known->sequences == count && known->length == length) return true;
    }
    if (cudnn->dense_count == DENSE_BATCHES_MAX) return false;
    cudnn->dense_batches[cudnn->dense_count++] = (struct dense_batch){count, length};
    return true;
}

#define DECLINE(...)                                                                                         \
    do {                                                                                                     \
        snprintf(why, why_bytes, __VA_ARGS__);                                                               \
        return false;                                                                                        \
    } while (0)

/* Whether cuDNN can load the tensor: heads follow each other, rows consist of 16-byte pieces. */
static bool fits(const tt_tensor *tensor)
{
    return tensor->strides[1] == tensor->dims[2] && tensor->strides[0] % 8 == 0 &&
           (uintptr_t)tensor->data % 16 == 0;
}

static bool same_lengths(const struct tt_attention_forward_args *args)
{
    if (args->cu_q == args->cu_k) return true;
    size_t bytes = (size_t)(args->sequence_count + 1) * sizeof *args->cu_q;
    return memcmp(args->cu_q, args->cu_k, bytes) == 0;
}

/* Checks the conditions on the arguments alone. */
static bool suits(const struct tt_attention_forward_args *args, char *why, size_t why_bytes)
{
    int64_t head_dim = args->q_THE.dims[2];
    if (args->q_THE.dtype != TT_BF16) DECLINE("%s", tt_dtype_name(args->q_THE.dtype));
    if (head_dim % 16 != 0) DECLINE("head dimension %lld is no multiple of 16", (long long)head_dim);
    if (head_dim > TT_CUDNN_HEAD_DIM_MAX)
        DECLINE("head dimension %lld is over %d", (long long)head_dim, TT_CUDNN_HEAD_DIM_MAX);
    if (args->q_THE.dims[0] == 0) DECLINE("no tokens");
    if (args->sequence_count > SEQUENCES_MAX) DECLINE("%lld sequences", (long long)args->sequence_count);
    if (tt_tensor_is_empty(args->device_cu_q)) DECLINE("offsets are not on the device");
    if (!same_lengths(args)) DECLINE("more keys than queries");
    const tt_tensor *tensors[] = {&args->q_THE, &args->k_TKE, &args->v_TKE, &args->o_THE};
    for (int i = 0; i < 4; i++) {
        if (!fits(tensors[i])) DECLINE("a layout of \"%c\" that cuDNN does not read", "qkvo"[i]);
    }
    return true;
}

_Static_assert(((SEQUENCES_MAX + 1) * TT_CUDA_OFFSETS_MAX * 8 + SEQUENCES_MAX * 4) <= OFFSETS_BYTES,
               "offsets fit");

/* Whether the plan stores lse. A forward pass that keeps no lse uses the plan of one that does when the scratch has
 * room, because plans are expensive to make. */
static bool has_lse(const struct tt_attention_forward_args *args)
{
    return !tt_tensor_is_empty(args->lse_HT) ||
           args->q_THE.dims[0] * args->q_THE.dims[1] * (int64_t)sizeof(float) <= LSE_BYTES;
}

static struct tt_cudnn_shape shape_of(const struct tt_cuda_cudnn *cudnn,
                                      const struct tt_attention_forward_args *args, bool dense)
{
    int64_t sequences = args->sequence_count, tokens = args->q_THE.dims[0];
    if (tokens < cudnn->least_tokens) tokens = cudnn->least_tokens;
    return (struct tt_cudnn_shape){.heads = args->q_THE.dims[1],
                                   .kv_heads = args->k_TKE.dims[1],
                                   .head_dim = args->q_THE.dims[2],
                                   .sequences = dense ? sequences : tt_cudnn_round_sequences(sequences),
                                   .tokens = dense ? args->cu_q[1] : tt_cudnn_round_tokens(tokens),
                                   .q = args->q_THE.strides[0],
                                   .k = args->k_TKE.strides[0],
                                   .v = args->v_TKE.strides[0],
                                   .o = args->o_THE.strides[0],
                                   .stats = has_lse(args),
                                   .window = tt_cudnn_window(args) > 0,
                                   .dense = dense};
}

static struct tt_cudnn_scratch scratch_of(const struct tt_attention_backward_args *args, bool dense)
{
    const struct tt_attention_forward_args *forward = &args->forward;
    if (dense) {
        return tt_cudnn_dense_scratch_layout(forward->q_THE.dims[0], forward->q_THE.dims[1],
                                             forward->k_TKE.dims[1], forward->q_THE.dims[2]);
    }
    return tt_cudnn_scratch_layout(forward->q_THE.dims[0], forward->q_THE.dims[1], forward->k_TKE.dims[1],
                                   forward->q_THE.dims[2], forward->q_THE.strides[0], args->dq_THE.strides[0],
                                   args->dk_TKE.strides[0]);
}

static struct tt_cudnn_shape backward_shape_of(const struct tt_cuda_cudnn *cudnn,
                                               const struct tt_attention_backward_args *args,
                                               const struct tt_cudnn_scratch *scratch, bool dense)
{
    struct tt_cudnn_shape shape = shape_of(cudnn, &args->forward, dense);
    int64_t packed = shape.kv_heads * shape.head_dim;
    shape.backward = 1;
    shape.dq = dense ? args->dq_THE.strides[0] : shape.q;
    shape.sums = dense ? shape.heads * shape.head_dim : shape.q;
    shape.dk = scratch->stages_kv ? packed : args->dk_TKE.strides[0];
    shape.dv = scratch->stages_kv ? packed : args->dv_TKE.strides[0];
    return shape;
}

bool tt_cuda_cudnn_takes_forward(struct tt_cuda_cudnn *cudnn, const struct tt_attention_forward_args *args,
                                 bool dense, char *why, size_t why_bytes)
{
    if (!suits(args, why, why_bytes)) return false;
    struct tt_cudnn_shape shape = shape_of(cudnn, args, dense);
    int64_t sequences;
    return tt_cudnn_plans_find(&cudnn->plans, &shape, &sequences, why, why_bytes) != NULL;
}

bool tt_cuda_cudnn_takes_backward(struct tt_cuda_cudnn *cudnn, const struct tt_attention_backward_args *args,
                                  bool dense, char *why, size_t why_bytes)
{
    const struct tt_attention_forward_args *forward = &args->forward;
    if (!suits(forward, why, why_bytes)) return false;
    if (forward->k_TKE.dims[0] != forward->q_THE.dims[0]) DECLINE("rows of k that no sequence has");
    const tt_tensor *tensors[] = {&args->do_THE, &args->dq_THE, &args->dk_TKE, &args->dv_TKE};
    for (int i = 0; i < 4; i++) {
        if (!fits(tensors[i])) DECLINE("a layout of \"d%c\" that cuDNN does not write", "oqkv"[i]);
    }
    if (args->do_THE.strides[0] != forward->o_THE.strides[0]) {
        DECLINE("rows of o and do are %lld and %lld elements apart", (long long)forward->o_THE.strides[0],
                (long long)args->do_THE.strides[0]);
    }
    if (args->dv_TKE.strides[0] != args->dk_TKE.strides[0]) {
        DECLINE("rows of dk and dv are %lld and %lld elements apart", (long long)args->dk_TKE.strides[0],
                (long long)args->dv_TKE.strides[0]);
    }
    struct tt_cudnn_scratch scratch = scratch_of(args, dense);
    if (tt_tensor_is_empty(args->scratch) || tt_tensor_bytes(args->scratch) < scratch.total) {
        DECLINE("%zu bytes of scratch are needed", scratch.total);
    }
    struct tt_cudnn_shape shape = backward_shape_of(cudnn, args, &scratch, dense);
    int64_t sequences;
    return tt_cudnn_plans_find(&cudnn->plans, &shape, &sequences, why, why_bytes) != NULL;
}

/* The arguments of an execution of a plan. */
struct pack {
    int64_t ids[TT_ID_COUNT];
    void *pointers[TT_ID_COUNT];
    int count;
    bool dense;
    float scale, masked, window, one;
    char *scratch; /* the stream's */
    struct tt_cuda_offsets offsets;
};

static void put(struct pack *pack, enum tt_cudnn_id id, const void *pointer)
{
    pack->ids[pack->count] = id;
    pack->pointers[pack->count++] = (void *)(uintptr_t)pointer;
}

/* Only packed plans need offsets: a dense plan has fixed borders. */
static void put_offsets(struct pack *pack, enum tt_cudnn_id id, int64_t stride)
{
    if (pack->dense) return;
    struct tt_cuda_offsets *offsets = &pack->offsets;
    int64_t *data = (int64_t *)(void *)pack->scratch;
    pack->scratch += ((size_t)offsets->bucket + 1) * sizeof *data;
    offsets->strides[offsets->count] = stride;
    offsets->offsets[offsets->count++] = data;
    put(pack, id, data);
}

/* Adds the arguments that both passes share. The stream's scratch holds cuDNN's workspace, then offsets, then
 * lengths. */
static void put_common(struct pack *pack, struct tt_stream *stream,
                       const struct tt_attention_forward_args *args, int64_t sequences)
{
    pack->scratch = (char *)tt_cuda_scratch(stream) + WORKSPACE_BYTES;
    pack->offsets.cu = args->device_cu_q.data;
    pack->offsets.sequences = (int)args->sequence_count;
    pack->offsets.bucket = (int)sequences;
    put_offsets(pack, TT_ID_OFFSETS_Q, args->q_THE.strides[0]);
    put_offsets(pack, TT_ID_OFFSETS_K, args->k_TKE.strides[0]);
    put_offsets(pack, TT_ID_OFFSETS_V, args->v_TKE.strides[0]);
    put_offsets(pack, TT_ID_OFFSETS_O, args->o_THE.strides[0]);
    if (has_lse(args)) {
        char *unkept = (char *)tt_cuda_scratch(stream) + WORKSPACE_BYTES + OFFSETS_BYTES;
        put_offsets(pack, TT_ID_OFFSETS_LSE, args->q_THE.dims[1]);
        put(pack, TT_ID_LSE, tt_tensor_is_empty(args->lse_HT) ? unkept : args->lse_HT.data);
    }
    pack->scale = (float)args->scale;
    pack->masked = -INFINITY;
    pack->window = (float)args->window;
    put(pack, TT_ID_SCALE, &pack->scale);
    put(pack, TT_ID_MASKED, &pack->masked);
    if (tt_cudnn_window(args) > 0) put(pack, TT_ID_WINDOW, &pack->window);
    put(pack, TT_ID_Q, args->q_THE.data);
    put(pack, TT_ID_K, args->k_TKE.data);
    put(pack, TT_ID_V, args->v_TKE.data);
    put(pack, TT_ID_O, args->o_THE.data);
}

static tt_status execute(struct tt_stream *stream, const struct tt_cudnn_plan *plan, struct pack *pack)
{
    if (!pack->dense) {
        pack->offsets.lengths = (int32_t *)(void *)pack->scratch;
        put(pack, TT_ID_LENGTHS_Q, pack->offsets.lengths);
        put(pack, TT_ID_LENGTHS_K, pack->offsets.lengths);
        TT_TRY(tt_cuda_check(tt_cuda_attention_offsets(tt_cuda_handle(stream), &pack->offsets), stream,
                             "attention offsets"));
    }
    return tt_cudnn_plan_execute(plan, tt_cuda_handle(stream), pack->ids, pack->pointers, pack->count,
                                 tt_cuda_scratch(stream));
}

tt_status tt_cuda_cudnn_forward(struct tt_cuda_cudnn *cudnn, struct tt_stream *stream,
                                const struct tt_attention_forward_args *args, bool dense)
{
    struct tt_cudnn_shape shape = shape_of(cudnn, args, dense);
    struct pack pack = {.dense = dense};
    int64_t sequences = 0;
    char why[200];
    const struct tt_cudnn_plan *plan =
        tt_cudnn_plans_find(&cudnn->plans, &shape, &sequences, why, sizeof why);
    if (plan == NULL) return tt_fail(TT_ERR_INTERNAL, "attention_forward: cuDNN has no plan: %s", why);
    put_common(&pack, stream, args, sequences);
    return execute(stream, plan, &pack);
}

static void add_move(struct tt_cuda_moves *moves, const void *from, int64_t from_stride, const tt_tensor *to)
{
    int i = moves->count++;
    moves->moves[i].from = from;
    moves->moves[i].from_stride = from_stride;
    moves->moves[i].to = to->data;
    moves->moves[i].to_stride = to->strides[0];
    moves->moves[i].columns = to->dims[1] * to->dims[2];
}

tt_status tt_cuda_cudnn_backward(struct tt_cuda_cudnn *cudnn, struct tt_stream *stream,
                                 const struct tt_attention_backward_args *args, bool dense)
{
    struct tt_cudnn_scratch scratch = scratch_of(args, dense);
    struct tt_cudnn_shape shape = backward_shape_of(cudnn, args, &scratch, dense);
    struct pack pack = {.dense = dense};
    int64_t sequences = 0;
    char why[200], *base = args->scratch.data;
    const struct tt_cudnn_plan *plan =
        tt_cudnn_plans_find(&cudnn->plans, &shape, &sequences, why, sizeof why);
    if (plan == NULL) return tt_fail(TT_ERR_INTERNAL, "attention_backward: cuDNN has no plan: %s", why);
    put_common(&pack, stream, &args->forward, sequences);
    put_offsets(&pack, TT_ID_OFFSETS_DK, shape.dk);
    put_offsets(&pack, TT_ID_OFFSETS_DV, shape.dv);
    pack.one = 1.0f;
    put(&pack, TT_ID_ONE, &pack.one);
    put(&pack, TT_ID_DO, args->do_THE.data);
    void *dq = scratch.stages_q ? base + scratch.staged_q : args->dq_THE.data;
    void *dk = scratch.stages_kv ? base + scratch.staged_k : args->dk_TKE.data;
    void *dv = scratch.stages_kv ? base + scratch.staged_v : args->dv_TKE.data;
    put(&pack, TT_ID_DQ, dq);
    put(&pack, TT_ID_DK, dk);
    put(&pack, TT_ID_DV, dv);
    put(&pack, TT_ID_SUMS, base + scratch.sums);
    put(&pack, TT_ID_DELTA, base + scratch.delta);
    if (scratch.has_full) {
        put(&pack, TT_ID_FULL_K, base + scratch.full_k);
        put(&pack, TT_ID_FULL_V, base + scratch.full_v);
    }
    TT_TRY(execute(stream, plan, &pack));
    struct tt_cuda_moves moves = {.rows = args->dq_THE.dims[0]};
    if (scratch.stages_q) add_move(&moves, dq, shape.q, &args->dq_THE);
    if (scratch.stages_kv) add_move(&moves, dk, shape.dk, &args->dk_TKE);
    if (scratch.stages_kv) add_move(&moves, dv, shape.dv, &args->dv_TKE);
    return tt_cuda_check(tt_cuda_attention_move(tt_cuda_handle(stream), &moves), stream,
                         "attention_backward");
}
