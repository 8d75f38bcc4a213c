#include "backend/ops/lora_gradients.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

static void check_columns(struct tt_check *check, int part, const char *name, tt_tensor matrix, int64_t first,
                          int64_t count)
{
    tt_check_that(check, first >= 0 && first + count <= matrix.dims[1],
                  "part %d has columns %lld to %lld of %s, which has %lld", part, (long long)first,
                  (long long)(first + count), name, (long long)matrix.dims[1]);
}

static void check_part(struct tt_check *check, const struct tt_lora_gradients_args *args, int i)
{
    const struct tt_lora_gradients_part *part = &args->part[i];
    tt_check_tensor(check, "b", part->b_NR, TT_TYPES_REAL, 2, 2);
    if (check->status != TT_OK) return;
    tt_check_type(check, "b", part->b_NR, args->dy_MN.dtype);
    check_columns(check, i, "dy", args->dy_MN, part->first_y, part->b_NR.dims[0]);
    check_columns(check, i, "dh", args->dh_MR, part->first_h, part->b_NR.dims[1]);
    if (!tt_tensor_is_empty(part->db_NR)) {
        tt_check_like(check, "db", part->db_NR, TT_TYPES_REAL, "b", part->b_NR);
        tt_check_like(check, "h", args->h_MR, TT_TYPES_REAL, "dh", args->dh_MR);
        tt_check_type(check, "h", args->h_MR, args->dy_MN.dtype);
        tt_check_apart(check, "dh", args->dh_MR, "h", args->h_MR);
    }
}

tt_status tt_lora_gradients(struct tt_stream *stream, const struct tt_lora_gradients_args *args)
{
    struct tt_check check = {.op = "lora_gradients"};
    tt_check_tensor(&check, "dy", args->dy_MN, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(&check, "dh", args->dh_MR, TT_TYPES_REAL, 2, 2);
    tt_check_type(&check, "dh", args->dh_MR, args->dy_MN.dtype);
    tt_check_that(&check, args->count >= 0 && args->count <= TT_LOW_RANK_PARTS, "%d adapters", args->count);
    if (check.status == TT_OK)
        tt_check_that(&check, args->dh_MR.dims[0] == args->dy_MN.dims[0], "dh has %lld rows, dy %lld",
                      (long long)args->dh_MR.dims[0], (long long)args->dy_MN.dims[0]);
    for (int i = 0; i < args->count && check.status == TT_OK; i++) check_part(&check, args, i);
    if (check.status == TT_OK) tt_check_apart(&check, "dh", args->dh_MR, "dy", args->dy_MN);
    if (check.status != TT_OK || args->dy_MN.dims[0] == 0) return check.status;
    return tt_dispatch_lora_gradients(stream, args);
}
