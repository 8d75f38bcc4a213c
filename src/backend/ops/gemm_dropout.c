#include "backend/ops/gemm_dropout.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

/* The parts are between `wide` [M, K] and `narrow` [M, R]; `matrix` of each part is a or da. */
static void check_parts(struct tt_check *check, const struct tt_dropout_parts *parts, tt_tensor wide,
                        const char *wide_name, tt_tensor narrow, const char *narrow_name, bool weights)
{
    tt_check_tensor(check, wide_name, wide, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(check, narrow_name, narrow, TT_TYPES_REAL, 2, 2);
    if (check->status != TT_OK) return;
    int64_t m = wide.dims[0], k = wide.dims[1], columns = narrow.dims[1];
    tt_check_type(check, narrow_name, narrow, wide.dtype);
    tt_check_that(check, narrow.dims[0] == m, "%s has %lld rows, %s %lld", narrow_name,
                  (long long)narrow.dims[0], wide_name, (long long)m);
    tt_check_shape(check, "row_keys", parts->row_keys_M, TT_TYPES_I64, 1, TT_DIMS(m));
    tt_check_that(check, parts->count >= 0 && parts->count <= TT_DROPOUT_PARTS, "%d adapters", parts->count);
    for (int i = 0; i < parts->count && check->status == TT_OK; i++) {
        const struct tt_dropout_part *part = &parts->part[i];
        tt_tensor matrix = weights ? part->da_RK : part->a_RK;
        const char *name = weights ? "da" : "a";
        tt_check_tensor(check, name, matrix, TT_TYPES_REAL, 2, 2);
        if (check->status != TT_OK) return;
        int64_t r = matrix.dims[0], first = part->first_h;
        if (!weights) tt_check_type(check, name, matrix, wide.dtype);
        tt_check_that(check, matrix.dims[1] == k, "%s of part %d has %lld columns, %s %lld", name, i,
                      (long long)matrix.dims[1], wide_name, (long long)k);
        tt_check_that(check, first >= 0 && first + r <= columns,
                      "part %d has columns %lld to %lld of %s, which has %lld", i, (long long)first,
                      (long long)(first + r), narrow_name, (long long)columns);
        tt_check_that(check, part->p >= 0 && part->p < 1, "p of part %d is %g", i, part->p);
    }
}

static void check_scratch(struct tt_check *check, tt_tensor scratch, tt_tensor wide, const char *name)
{
    tt_check_like(check, "scratch", scratch, TT_TYPES_REAL, name, wide);
    tt_check_type(check, "scratch", scratch, wide.dtype);
    tt_check_apart(check, "scratch", scratch, name, wide);
}

tt_status tt_gemm_dropout(struct tt_stream *stream, const struct tt_gemm_dropout_args *args)
{
    struct tt_check check = {.op = "gemm_dropout"};
    check_parts(&check, &args->parts, args->x_MK, "x", args->h_MR, "h", false);
    if (check.status == TT_OK) check_scratch(&check, args->scratch_MK, args->x_MK, "x");
    if (check.status == TT_OK) tt_check_apart(&check, "h", args->h_MR, "x", args->x_MK);
    if (check.status != TT_OK || args->x_MK.dims[0] == 0) return check.status;
    return tt_dispatch_gemm_dropout(stream, args);
}

tt_status tt_gemm_dropout_weights(struct tt_stream *stream, const struct tt_gemm_dropout_weights_args *args)
{
    struct tt_check check = {.op = "gemm_dropout_weights"};
    check_parts(&check, &args->parts, args->x_MK, "x", args->dh_MR, "dh", true);
    if (check.status == TT_OK) check_scratch(&check, args->scratch_MK, args->x_MK, "x");
    if (check.status != TT_OK || args->x_MK.dims[0] == 0) return check.status;
    return tt_dispatch_gemm_dropout_weights(stream, args);
}

tt_status tt_gemm_dropout_input(struct tt_stream *stream, const struct tt_gemm_dropout_input_args *args)
{
    struct tt_check check = {.op = "gemm_dropout_input"};
    check_parts(&check, &args->parts, args->dx_MK, "dx", args->dh_MR, "dh", false);
    if (check.status == TT_OK) check_scratch(&check, args->scratch_MK, args->dx_MK, "dx");
    if (check.status == TT_OK) tt_check_apart(&check, "dx", args->dx_MK, "dh", args->dh_MR);
    if (check.status != TT_OK || args->dx_MK.dims[0] == 0) return check.status;
    return tt_dispatch_gemm_dropout_input(stream, args);
}
