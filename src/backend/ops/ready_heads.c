#include "backend/ops/ready_heads.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

static void check_norm(struct tt_check *check, const char *name, const struct tt_head_norm *norm,
                       int64_t columns)
{
    if (!norm->is || tt_tensor_is_empty(norm->weight_E)) return;
    tt_check_shape(check, name, norm->weight_E, TT_TYPES_REAL, 1, TT_DIMS(columns));
    tt_check_contiguous(check, name, norm->weight_E);
}

static void check_rotation(struct tt_check *check, const struct tt_ready_heads_args *args)
{
    if (tt_tensor_is_empty(args->cos_PE)) return;
    tt_check_tensor(check, "cos", args->cos_PE, TT_TYPES_F32, 2, 2);
    if (check->status != TT_OK) return;
    tt_check_that(check, 2 * args->cos_PE.dims[1] <= args->q_THE.dims[2], "%lld angles for heads of %lld",
                  (long long)args->cos_PE.dims[1], (long long)args->q_THE.dims[2]);
    tt_check_contiguous(check, "cos", args->cos_PE);
    tt_check_like(check, "sin", args->sin_PE, TT_TYPES_F32, "cos", args->cos_PE);
    tt_check_contiguous(check, "sin", args->sin_PE);
    tt_check_shape(check, "positions", args->positions_T, TT_TYPES_I32, 1, TT_DIMS(args->q_THE.dims[0]));
}

static void check_cache(struct tt_check *check, const struct tt_ready_heads_args *args, const char *name,
                        tt_tensor cache)
{
    tt_tensor k = args->k_TKE;
    tt_check_tensor(check, name, cache, 1u << k.dtype, 2, 2);
    if (check->status != TT_OK) return;
    tt_check_shape(check, name, cache, 1u << k.dtype, 2, TT_DIMS(cache.dims[0], k.dims[1] * k.dims[2]));
    tt_check_apart(check, name, cache, "k", k);
    tt_check_apart(check, name, cache, "v", args->v_TKE);
}

tt_status tt_ready_heads(struct tt_stream *stream, const struct tt_ready_heads_args *args)
{
    struct tt_check check = {.op = "ready_heads"};
    tt_tensor q = args->q_THE, k = args->k_TKE;
    tt_check_tensor(&check, "q", q, TT_TYPES_REAL, 3, 3);
    tt_check_tensor(&check, "k", k, TT_TYPES_REAL, 3, 3);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "k", k, 1u << q.dtype, 3, TT_DIMS(q.dims[0], k.dims[1], q.dims[2]));
    tt_check_shape(&check, "v", args->v_TKE, 1u << q.dtype, 3, TT_DIMS(q.dims[0], k.dims[1], q.dims[2]));
    tt_check_that(&check, k.strides[1] == k.dims[2] && args->v_TKE.strides[1] == k.dims[2],
                  "heads of k or v are not one beside the other");
    check_norm(&check, "weight of q", &args->q_norm, q.dims[2]);
    check_norm(&check, "weight of k", &args->k_norm, q.dims[2]);
    check_rotation(&check, args);
    tt_check_shape(&check, "rows", args->rows_T, TT_TYPES_I32, 1, TT_DIMS(q.dims[0]));
    check_cache(&check, args, "cache of k", args->k_cache_RC);
    check_cache(&check, args, "cache of v", args->v_cache_RC);
    if (check.status != TT_OK || q.dims[0] == 0) return check.status;
    return tt_dispatch_ready_heads(stream, args);
}
