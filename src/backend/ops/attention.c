#include <string.h>

#include "backend/ops/attention.h"

#include "backend/ops/attention_whole.h"

#include "backend/chips.h"
#include "backend/cuda/attention/cudnn.h"
#include "backend/cuda/attention/mma.h"
#include "backend/device_impl.h"
#include "backend/ops/check.h"

/* Checks that offsets rise from 0, stay inside `rows`, and that no sequence is longer than `max_length`. */
static void check_offsets(struct tt_check *check, const char *name, const int32_t *offsets, int64_t count,
                          int64_t rows, int64_t max_length)
{
    tt_check_that(check, offsets != NULL, "%s is not given", name);
    if (check->status != TT_OK) return;
    tt_check_that(check, offsets[0] == 0, "%s begins with %d instead of 0", name, offsets[0]);
    for (int64_t b = 0; b < count && check->status == TT_OK; b++) {
        int64_t length = (int64_t)offsets[b + 1] - offsets[b];
        tt_check_that(check, length >= 0, "%s falls from %d to %d at sequence %lld", name, offsets[b],
                      offsets[b + 1], (long long)b);
        tt_check_that(check, length <= max_length,
                      "%s gives sequence %lld %lld rows, the longest may have %lld", name, (long long)b,
                      (long long)length, (long long)max_length);
    }
    tt_check_that(check, offsets[count] <= rows, "%s ends at row %d of %lld", name, offsets[count],
                  (long long)rows);
}

static void check_sequences(struct tt_check *check, const struct tt_attention_forward_args *args)
{
    int64_t count = args->sequence_count;
    tt_check_that(check, count >= 0, "%lld sequences", (long long)count);
    check_offsets(check, "cu_q", args->cu_q, count, args->q_THE.dims[0], args->max_length_q);
    check_offsets(check, "cu_k", args->cu_k, count, args->k_TKE.dims[0], args->max_length_k);
    for (int64_t b = 0; b < count && check->status == TT_OK; b++) {
        int length_q = args->cu_q[b + 1] - args->cu_q[b], length_k = args->cu_k[b + 1] - args->cu_k[b];
        tt_check_that(check, length_k >= length_q, "sequence %lld has %d queries but only %d keys",
                      (long long)b, length_q, length_k);
    }
    if (check->status != TT_OK) return;
    tt_check_that(check, args->cu_q[count] == args->q_THE.dims[0], "cu_q covers %d of %lld query rows",
                  args->cu_q[count], (long long)args->q_THE.dims[0]);
    if (!tt_tensor_is_empty(args->device_cu_q)) {
        tt_check_shape(check, "device_cu_q", args->device_cu_q, TT_TYPES_I32, 1, TT_DIMS(count + 1));
    }
    if (!tt_tensor_is_empty(args->device_cu_k)) {
        tt_check_shape(check, "device_cu_k", args->device_cu_k, TT_TYPES_I32, 1, TT_DIMS(count + 1));
    }
}

static void check_heads(struct tt_check *check, int64_t heads, int64_t kv_heads, int64_t head_dim)
{
    tt_check_that(check, head_dim >= 1 && head_dim <= TT_ATTENTION_HEAD_DIM_MAX,
                  "head dimension %lld is not in 1..%d", (long long)head_dim, TT_ATTENTION_HEAD_DIM_MAX);
    tt_check_that(check, kv_heads >= 1 && heads >= 1 && heads % kv_heads == 0,
                  "%lld query heads cannot share %lld key heads", (long long)heads, (long long)kv_heads);
}

static void check_sinks(struct tt_check *check, const char *name, tt_tensor sinks, int64_t heads)
{
    if (tt_tensor_is_empty(sinks)) return;
    tt_check_shape(check, name, sinks, TT_TYPES_F32, 1, TT_DIMS(heads));
    tt_check_contiguous(check, name, sinks);
}

static void check_forward(struct tt_check *check, const struct tt_attention_forward_args *args)
{
    tt_tensor q = args->q_THE, k = args->k_TKE;
    tt_check_tensor(check, "q", q, TT_TYPES_REAL, 3, 3);
    tt_check_tensor(check, "k", k, TT_TYPES_REAL, 3, 3);
    if (check->status != TT_OK) return;
    int64_t heads = q.dims[1], kv_heads = k.dims[1], head_dim = q.dims[2];
    check_heads(check, heads, kv_heads, head_dim);
    tt_check_shape(check, "k", k, TT_TYPES_REAL, 3, TT_DIMS(k.dims[0], kv_heads, head_dim));
    tt_check_like(check, "v", args->v_TKE, TT_TYPES_REAL, "k", k);
    tt_check_like(check, "o", args->o_THE, TT_TYPES_REAL, "q", q);
    tt_check_type(check, "k", k, q.dtype);
    tt_check_type(check, "v", args->v_TKE, q.dtype);
    tt_check_type(check, "o", args->o_THE, q.dtype);
    if (!tt_tensor_is_empty(args->lse_HT)) {
        tt_check_shape(check, "lse", args->lse_HT, TT_TYPES_F32, 2, TT_DIMS(heads, q.dims[0]));
    }
    tt_check_that(check, args->window >= 0, "window %lld is negative", (long long)args->window);
    tt_check_that(check, args->soft_cap >= 0, "soft_cap %g is negative", (double)args->soft_cap);
    check_sinks(check, "sinks", args->sinks_H, heads);
    tt_check_apart(check, "o", args->o_THE, "q", q);
    tt_check_apart(check, "o", args->o_THE, "k", k);
    tt_check_apart(check, "o", args->o_THE, "v", args->v_TKE);
    tt_check_apart(check, "o", args->o_THE, "lse", args->lse_HT);
    if (check->status == TT_OK) check_sequences(check, args);
}

tt_status tt_attention_forward(struct tt_stream *stream, const struct tt_attention_forward_args *args)
{
    struct tt_check check = {.op = "attention_forward"};
    check_forward(&check, args);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_attention_forward(stream, args);
}

/* Hopper and newer, for which cuDNN has plans (cuda/attention/cudnn.h); an unknown GPU may be one. */
static bool may_use_cudnn(const struct tt_device *device)
{
    const struct tt_chip *chip = tt_device_chip(device);
    return chip == NULL || chip->name[0] == 'h' || strcmp(chip->name, "b200") == 0 ||
           strcmp(chip->name, "rtx5090") == 0;
}

bool tt_attention_prefers_whole(const struct tt_device *device)
{
    bool own = device->tuning.deterministic || device->tuning.attention == TT_TUNING_ATTENTION_OWN;
    return !tt_device_is_host(device) && !own && may_use_cudnn(device);
}

/* The maximum over the variants of cuda/: cuDNN's, which needs Hopper and a head that it supports, and that of our own
 * kernels with a copy of lse in their order. */
size_t tt_attention_backward_scratch(const struct tt_device *device,
                                     const struct tt_attention_backward_args *args)
{
    tt_tensor q = args->forward.q_THE;
    int64_t tokens = q.dims[0], heads = q.dims[1], kv_heads = args->forward.k_TKE.dims[1],
            head_dim = q.dims[2];
    if (tt_device_is_host(device)) return 0;
    size_t own = tt_mma_attention_backward_scratch(tokens, heads, kv_heads, head_dim) +
                 (size_t)(tokens * heads) * sizeof(float);
    size_t cudnn = tt_cudnn_scratch_layout(tokens, heads, kv_heads, head_dim, q.strides[0],
                                           args->dq_THE.strides[0], args->dk_TKE.strides[0])
                       .total;
    return !may_use_cudnn(device) || head_dim > TT_CUDNN_HEAD_DIM_MAX || cudnn < own ? own : cudnn;
}

tt_status tt_attention_backward(struct tt_stream *stream, const struct tt_attention_backward_args *args)
{
    const struct tt_attention_forward_args *forward = &args->forward;
    struct tt_check check = {.op = "attention_backward"};
    check_forward(&check, forward);
    if (check.status != TT_OK) return check.status;
    tt_check_that(&check, !tt_tensor_is_empty(forward->lse_HT), "lse is not given");
    tt_check_that(&check, tt_tensor_is_empty(args->dsinks_H) || !tt_tensor_is_empty(forward->sinks_H),
                  "a gradient of sinks that are not given");
    check_sinks(&check, "dsinks", args->dsinks_H, forward->q_THE.dims[1]);
    const struct {
        const char *name, *like_name;
        tt_tensor tensor, like;
    } gradients[] = {{"do", "q", args->do_THE, forward->q_THE},
                     {"dq", "q", args->dq_THE, forward->q_THE},
                     {"dk", "k", args->dk_TKE, forward->k_TKE},
                     {"dv", "v", args->dv_TKE, forward->v_TKE}};
    for (int i = 0; i < 4; i++) {
        tt_check_like(&check, gradients[i].name, gradients[i].tensor, TT_TYPES_REAL, gradients[i].like_name,
                      gradients[i].like);
        tt_check_type(&check, gradients[i].name, gradients[i].tensor, forward->q_THE.dtype);
    }
    const struct {
        const char *name;
        tt_tensor tensor;
    } inputs[] = {{"q", forward->q_THE}, {"k", forward->k_TKE},    {"v", forward->v_TKE},
                  {"o", forward->o_THE}, {"lse", forward->lse_HT}, {"do", args->do_THE}};
    for (int i = 1; i < 4; i++) {
        for (int j = 0; j < 6; j++) {
            tt_check_apart(&check, gradients[i].name, gradients[i].tensor, inputs[j].name, inputs[j].tensor);
        }
        for (int j = i + 1; j < 4; j++) {
            tt_check_apart(&check, gradients[i].name, gradients[i].tensor, gradients[j].name,
                           gradients[j].tensor);
        }
        tt_check_apart(&check, gradients[i].name, gradients[i].tensor, "scratch", args->scratch);
    }
    if (check.status == TT_OK)
        tt_check_scratch(&check, args->scratch, tt_attention_backward_scratch(tt_stream_device(stream), args),
                         256);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_attention_backward(stream, args);
}

size_t tt_attention_decode_scratch(const struct tt_device *device,
                                   const struct tt_attention_decode_args *args)
{
    int64_t parts = tt_decode_parts(args->max_count);
    if (tt_device_is_host(device) || parts <= 1) return 0;
    int64_t rows = args->q_THE.dims[0] * args->q_THE.dims[1], width = args->q_THE.dims[2] + 2;
    return ((size_t)(rows * parts * width) * sizeof(float) + 255) / 256 * 256;
}

tt_status tt_attention_decode(struct tt_stream *stream, const struct tt_attention_decode_args *args)
{
    struct tt_check check = {.op = "attention_decode"};
    tt_tensor q = args->q_THE, k = args->k_RKE;
    tt_check_tensor(&check, "q", q, TT_TYPES_REAL, 3, 3);
    tt_check_tensor(&check, "k", k, TT_TYPES_REAL, 3, 3);
    if (check.status != TT_OK) return check.status;
    int64_t rows = q.dims[0], heads = q.dims[1], kv_heads = k.dims[1], head_dim = q.dims[2];
    check_heads(&check, heads, kv_heads, head_dim);
    tt_check_shape(&check, "k", k, TT_TYPES_REAL, 3, TT_DIMS(k.dims[0], kv_heads, head_dim));
    tt_check_like(&check, "v", args->v_RKE, TT_TYPES_REAL, "k", k);
    tt_check_like(&check, "o", args->o_THE, TT_TYPES_REAL, "q", q);
    tt_check_type(&check, "k", k, q.dtype);
    tt_check_type(&check, "v", args->v_RKE, q.dtype);
    tt_check_type(&check, "o", args->o_THE, q.dtype);
    tt_check_shape(&check, "first", args->first_T, TT_TYPES_I32, 1, TT_DIMS(rows));
    tt_check_shape(&check, "count", args->count_T, TT_TYPES_I32, 1, TT_DIMS(rows));
    tt_check_that(&check, args->max_count >= 0 && args->max_count <= k.dims[0], "max_count %lld of %lld rows",
                  (long long)args->max_count, (long long)k.dims[0]);
    tt_check_that(&check, args->window >= 0, "window %lld is negative", (long long)args->window);
    tt_check_that(&check, args->soft_cap >= 0, "soft_cap %g is negative", (double)args->soft_cap);
    check_sinks(&check, "sinks", args->sinks_H, heads);
    tt_check_apart(&check, "o", args->o_THE, "q", q);
    tt_check_apart(&check, "o", args->o_THE, "k", k);
    tt_check_apart(&check, "o", args->o_THE, "v", args->v_RKE);
    if (check.status != TT_OK) return check.status;
    tt_check_scratch(&check, args->scratch, tt_attention_decode_scratch(tt_stream_device(stream), args), 256);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_attention_decode(stream, args);
}

/* Rows in FP8 of a matrix that begins with x. */
static void check_rotated_rows(struct tt_check *check, const struct tt_rope_args *args)
{
    tt_tensor x = args->x_THE, rows = args->rows_TC;
    if (tt_tensor_is_empty(args->codes_TC)) return;
    tt_check_tensor(check, "rows", rows, 1u << x.dtype, 2, 2);
    if (check->status != TT_OK) return;
    tt_check_that(check, rows.data == x.data && rows.dims[0] == x.dims[0], "the rows do not begin with x");
    tt_check_that(check, x.dims[0] <= 1 || rows.strides[0] == x.strides[0], "rows of x lie apart otherwise");
    tt_check_that(check, x.dims[1] <= 1 || x.strides[1] == x.dims[2],
                  "heads of x have other columns between");
    tt_check_that(check, x.dims[1] * x.dims[2] <= rows.dims[1], "x has more columns than the rows");
    tt_check_quantized_rows(check, rows.dims[0], rows.dims[1], args->codes_TC, args->scale_T);
    tt_check_apart(check, "codes", args->codes_TC, "rows", rows);
    tt_check_apart(check, "scale", args->scale_T, "rows", rows);
}

tt_status tt_rope(struct tt_stream *stream, const struct tt_rope_args *args)
{
    struct tt_check check = {.op = "rope"};
    tt_tensor x = args->x_THE;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 3, 3);
    if (check.status != TT_OK) return check.status;
    tt_check_that(&check, x.dims[2] % 2 == 0, "head dimension %lld is odd", (long long)x.dims[2]);
    tt_check_shape(&check, "positions", args->positions_T, TT_TYPES_I32, 1, TT_DIMS(x.dims[0]));
    tt_check_tensor(&check, "cos", args->cos_PE, TT_TYPES_F32, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "cos", args->cos_PE, TT_TYPES_F32, 2,
                   TT_DIMS(args->cos_PE.dims[0], x.dims[2] / 2));
    tt_check_like(&check, "sin", args->sin_PE, TT_TYPES_F32, "cos", args->cos_PE);
    tt_check_apart(&check, "x", x, "cos", args->cos_PE);
    tt_check_apart(&check, "x", x, "sin", args->sin_PE);
    check_rotated_rows(&check, args);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_rope(stream, args);
}
