/* The graphs of attention in cuDNN's graph API. */
#include "backend/cuda/attention/cudnn_plans.h"

/* The graphs follow those of the attention nodes of NVIDIA's cudnn-frontend (MIT): cuDNN's engines recognise
 * these patterns and no others.
 *   forward:   S = scale Q K^T, masked;  m = max S;  P = exp(S - m);  l = sum P;  O = (P / l) V;
 *              lse = m + log l
 *   backward:  delta = sum_e dO O;  P = exp(S - lse);  dV = P^T dO;  dS = scale P (dO V^T - delta);
 *              dK = dS^T Q;  dQ = dS K */

/* Describes rows of `heads` heads of `columns` columns in a matrix with row stride `stride`. Sequences begin
 * where `offsets` says, or follow each other when all have the same length. */
static struct tt_cudnn_tensor rows(const struct tt_cudnn_shape *shape, cudnnDataType_t type, int64_t heads,
                                   int64_t columns, int64_t stride, int offsets)
{
    return (struct tt_cudnn_tensor){.type = type,
                                    .dims = {shape->sequences, heads, shape->tokens, columns},
                                    .strides = {shape->tokens * stride, columns, stride, 1},
                                    .ragged = shape->dense ? 0 : offsets};
}

/* c = a b; m, n, k as in tt_cudnn_matmul. In a dense batch sequences have the extent of the graph. */
static int product(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape, int a, int b, int c,
                   int m, int n, int k)
{
    if (shape->dense) m = n = k = 0;
    return tt_cudnn_matmul(graph, a, b, c, m, n, k);
}

/* The same tensor with rows and columns exchanged. */
static struct tt_cudnn_tensor transposed(struct tt_cudnn_tensor tensor)
{
    int64_t dim = tensor.dims[2], stride = tensor.strides[2];
    tensor.dims[2] = tensor.dims[3];
    tensor.strides[2] = tensor.strides[3];
    tensor.dims[3] = dim;
    tensor.strides[3] = stride;
    return tensor;
}

static void per_sequence(struct tt_cudnn_graph *graph, int id, cudnnDataType_t type, int64_t count)
{
    tt_cudnn_tensor(
        graph, id, (struct tt_cudnn_tensor){.type = type, .dims = {count, 1, 1, 1}, .strides = {1, 1, 1, 1}});
}

/* Declares the offsets and the lengths of sequences. */
static void declare_sequences(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape)
{
    if (shape->dense) return;
    int offsets_end = shape->backward ? TT_ID_OFFSETS_DV : TT_ID_OFFSETS_LSE;
    for (int id = TT_ID_OFFSETS_Q; id <= offsets_end; id++) {
        if (id == TT_ID_OFFSETS_LSE && !shape->stats) continue;
        per_sequence(graph, id, CUDNN_DATA_INT64, shape->sequences + 1);
    }
    per_sequence(graph, TT_ID_LENGTHS_Q, CUDNN_DATA_INT32, shape->sequences);
    per_sequence(graph, TT_ID_LENGTHS_K, CUDNN_DATA_INT32, shape->sequences);
}

/* Declares the scalars, and the tensors that both passes read in the same form. */
static void declare_common(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape)
{
    declare_sequences(graph, shape);
    tt_cudnn_scalar(graph, TT_ID_SCALE);
    tt_cudnn_scalar(graph, TT_ID_MASKED);
    if (shape->window) tt_cudnn_scalar(graph, TT_ID_WINDOW);
    int64_t e = shape->head_dim;
    cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16;
    tt_cudnn_tensor(graph, TT_ID_Q, rows(shape, bf16, shape->heads, e, shape->q, TT_ID_OFFSETS_Q));
    tt_cudnn_tensor(graph, TT_ID_K,
                    transposed(rows(shape, bf16, shape->kv_heads, e, shape->k, TT_ID_OFFSETS_K)));
    tt_cudnn_tensor(graph, TT_ID_O, rows(shape, bf16, shape->heads, e, shape->o, TT_ID_OFFSETS_O));
    if (shape->stats) {
        struct tt_cudnn_tensor lse =
            rows(shape, CUDNN_DATA_FLOAT, shape->heads, 1, shape->heads, TT_ID_OFFSETS_LSE);
        tt_cudnn_tensor(graph, TT_ID_LSE, lse);
    }
}

/* A virtual tensor {B, H, tokens, tokens}. */
static int virtual_square(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape)
{
    int64_t h = shape->heads, s = shape->tokens;
    return tt_cudnn_virtual(graph, (struct tt_cudnn_tensor){.type = CUDNN_DATA_FLOAT,
                                                            .dims = {shape->sequences, h, s, s},
                                                            .strides = {h * s * s, s * s, s, 1}});
}

/* Its transpose in bf16, the form of a factor of a matrix product. */
static int virtual_transpose(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape, int x)
{
    int64_t h = shape->heads, s = shape->tokens;
    int y = tt_cudnn_virtual(graph, (struct tt_cudnn_tensor){.type = CUDNN_DATA_BFLOAT16,
                                                             .dims = {shape->sequences, h, s, s},
                                                             .strides = {h * s * s, s * s, 1, s}});
    tt_cudnn_reshape(graph, x, y);
    return y;
}

static int scaled_scores(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape)
{
    int s = product(graph, shape, TT_ID_Q, TT_ID_K, virtual_square(graph, shape), TT_ID_LENGTHS_Q,
                    TT_ID_LENGTHS_K, 0);
    return tt_cudnn_float(graph, CUDNN_POINTWISE_MUL, s, TT_ID_SCALE, 0);
}

static int compare(struct tt_cudnn_graph *graph, cudnnPointwiseMode_t mode, int a, int b)
{
    return tt_cudnn_pointwise(graph, mode, CUDNN_DATA_BOOLEAN, a, b, 0, CUDNN_DATA_BOOLEAN);
}

/* Masks rows and columns beyond the length of the sequence. */
static int mask_padding(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape, int s)
{
    if (shape->dense) return s;
    int row = tt_cudnn_index(graph, s, 2), column = tt_cudnn_index(graph, s, 3);
    int row_in = compare(graph, CUDNN_POINTWISE_CMP_LT, row, TT_ID_LENGTHS_Q);
    int column_in = compare(graph, CUDNN_POINTWISE_CMP_LT, column, TT_ID_LENGTHS_K);
    int in = compare(graph, CUDNN_POINTWISE_LOGICAL_AND, row_in, column_in);
    return tt_cudnn_select(graph, s, TT_ID_MASKED, in);
}

/* Masks all but row - window < column <= row. */
static int mask_band(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape, int s)
{
    int row = tt_cudnn_index(graph, s, 2), column = tt_cudnn_index(graph, s, 3);
    int seen = compare(graph, CUDNN_POINTWISE_CMP_GE, row, column);
    s = tt_cudnn_select(graph, s, TT_ID_MASKED, seen);
    if (!shape->window) return s;
    row = tt_cudnn_index(graph, s, 2);
    column = tt_cudnn_index(graph, s, 3);
    int end = tt_cudnn_float(graph, CUDNN_POINTWISE_ADD, column, TT_ID_WINDOW, 0);
    seen = compare(graph, CUDNN_POINTWISE_CMP_GT, end, row);
    return tt_cudnn_select(graph, s, TT_ID_MASKED, seen);
}

static void forward(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape)
{
    tt_cudnn_tensor(
        graph, TT_ID_V,
        rows(shape, CUDNN_DATA_BFLOAT16, shape->kv_heads, shape->head_dim, shape->v, TT_ID_OFFSETS_V));
    int s = mask_band(graph, shape, mask_padding(graph, shape, scaled_scores(graph, shape)));
    int m = tt_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_MAX, s, 0);
    int p =
        tt_cudnn_float(graph, CUDNN_POINTWISE_EXP, tt_cudnn_float(graph, CUDNN_POINTWISE_SUB, s, m, 0), 0, 0);
    int l = tt_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, p, 0);
    /* Part of the pattern even when lse is not used. */
    int log = tt_cudnn_float(graph, CUDNN_POINTWISE_LOG, l, 0, 0);
    tt_cudnn_float(graph, CUDNN_POINTWISE_ADD, m, log, shape->stats ? TT_ID_LSE : 0);
    p = tt_cudnn_pointwise(graph, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, p, l, 0, CUDNN_DATA_BFLOAT16);
    product(graph, shape, p, TT_ID_V, TT_ID_O, TT_ID_LENGTHS_Q, 0, TT_ID_LENGTHS_K);
}

/* out = x^T b for dV (P, dO) and dK (dS, Q). When heads share keys the product goes to `full`, with one part for
 * each query head, and is then summed. */
static void gradient_of_keys(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape, int x, int b,
                             int full, int out)
{
    int xt = virtual_transpose(graph, shape, x);
    bool grouped = shape->heads != shape->kv_heads;
    product(graph, shape, xt, b, grouped ? full : out, TT_ID_LENGTHS_K, 0, TT_ID_LENGTHS_Q);
    if (grouped) tt_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, full, out);
}

static void declare_backward(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape)
{
    int64_t e = shape->head_dim, h = shape->heads, k = shape->kv_heads, group = h / k;
    cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16, f32 = CUDNN_DATA_FLOAT;
    tt_cudnn_scalar(graph, TT_ID_ONE);
    tt_cudnn_tensor(graph, TT_ID_V, transposed(rows(shape, bf16, k, e, shape->v, TT_ID_OFFSETS_V)));
    tt_cudnn_tensor(graph, TT_ID_DO, rows(shape, bf16, h, e, shape->o, TT_ID_OFFSETS_O));
    tt_cudnn_tensor(graph, TT_ID_DQ, rows(shape, bf16, h, e, shape->dq, TT_ID_OFFSETS_Q));
    tt_cudnn_tensor(graph, TT_ID_SUMS, rows(shape, f32, h, e, shape->sums, TT_ID_OFFSETS_Q));
    tt_cudnn_tensor(graph, TT_ID_DELTA, rows(shape, f32, h, 1, h, TT_ID_OFFSETS_LSE));
    tt_cudnn_tensor(graph, TT_ID_DK, rows(shape, bf16, k, e, shape->dk, TT_ID_OFFSETS_DK));
    tt_cudnn_tensor(graph, TT_ID_DV, rows(shape, bf16, k, e, shape->dv, TT_ID_OFFSETS_DV));
    if (group == 1) return;
    /* Their offsets are those of dk and dv times `group`: cuDNN multiplies. */
    int64_t full_k = shape->dense ? h * e : shape->dk * group,
            full_v = shape->dense ? h * e : shape->dv * group;
    tt_cudnn_tensor(graph, TT_ID_FULL_K, rows(shape, bf16, h, e, full_k, TT_ID_OFFSETS_DK));
    tt_cudnn_tensor(graph, TT_ID_FULL_V, rows(shape, bf16, h, e, full_v, TT_ID_OFFSETS_DV));
}

static void backward(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape)
{
    declare_backward(graph, shape);
    int x = tt_cudnn_float(graph, CUDNN_POINTWISE_MUL, TT_ID_DO, TT_ID_O, 0);
    x = tt_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, x, 0);
    tt_cudnn_float(graph, CUDNN_POINTWISE_MUL, x, TT_ID_ONE, TT_ID_DELTA);

    int s = mask_padding(graph, shape, scaled_scores(graph, shape));
    s = mask_band(graph, shape, tt_cudnn_float(graph, CUDNN_POINTWISE_SUB, s, TT_ID_LSE, 0));
    int p = tt_cudnn_float(graph, CUDNN_POINTWISE_EXP, s, 0, 0);
    gradient_of_keys(graph, shape, p, TT_ID_DO, TT_ID_FULL_V, TT_ID_DV);

    int dp = product(graph, shape, TT_ID_DO, TT_ID_V, virtual_square(graph, shape), TT_ID_LENGTHS_Q,
                     TT_ID_LENGTHS_K, 0);
    dp = tt_cudnn_float(graph, CUDNN_POINTWISE_SUB, dp, TT_ID_DELTA, 0);
    int ds = tt_cudnn_float(graph, CUDNN_POINTWISE_MUL, dp, p, 0);
    ds = tt_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, ds, TT_ID_SCALE, 0,
                            CUDNN_DATA_FLOAT);
    gradient_of_keys(graph, shape, ds, TT_ID_Q, TT_ID_FULL_K, TT_ID_DK);

    int k = tt_cudnn_virtual(
        graph, rows(shape, CUDNN_DATA_BFLOAT16, shape->kv_heads, shape->head_dim, shape->k, TT_ID_OFFSETS_K));
    tt_cudnn_reshape(graph, TT_ID_K, k);
    product(graph, shape, ds, k, TT_ID_SUMS, TT_ID_LENGTHS_Q, 0, TT_ID_LENGTHS_K);
    tt_cudnn_float(graph, CUDNN_POINTWISE_IDENTITY, TT_ID_SUMS, 0, TT_ID_DQ);
}

void tt_cudnn_attention_graph(struct tt_cudnn_graph *graph, const struct tt_cudnn_shape *shape)
{
    declare_common(graph, shape);
    if (shape->backward)
        backward(graph, shape);
    else
        forward(graph, shape);
}
