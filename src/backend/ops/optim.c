#include "backend/ops/optim.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_adamw(struct tt_stream *stream, const struct tt_adamw_args *args)
{
    struct tt_check check = {.op = "adamw"};
    tt_check_tensor(&check, "param", args->param, TT_TYPES_F32, 1, 1);
    tt_check_like(&check, "grad", args->grad, TT_TYPES_F32, "param", args->param);
    tt_check_like(&check, "m", args->m, TT_TYPES_F32, "param", args->param);
    tt_check_like(&check, "v", args->v, TT_TYPES_F32, "param", args->param);
    tt_check_that(&check, args->step >= 1, "step %lld is counted from 1", (long long)args->step);
    tt_check_apart(&check, "param", args->param, "grad", args->grad);
    tt_check_apart(&check, "param", args->param, "m", args->m);
    tt_check_apart(&check, "param", args->param, "v", args->v);
    tt_check_apart(&check, "m", args->m, "grad", args->grad);
    tt_check_apart(&check, "m", args->m, "v", args->v);
    tt_check_apart(&check, "v", args->v, "grad", args->grad);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_adamw(stream, args);
}

tt_status tt_sgd(struct tt_stream *stream, const struct tt_sgd_args *args)
{
    struct tt_check check = {.op = "sgd"};
    tt_check_tensor(&check, "param", args->param, TT_TYPES_F32, 1, 1);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "grad", args->grad, TT_TYPES_F32, 1, args->param.dims);
    tt_check_apart(&check, "param", args->param, "grad", args->grad);
    if (tt_tensor_is_empty(args->v)) {
        tt_check_that(&check, args->momentum == 0.0, "momentum %g needs v", args->momentum);
    } else {
        tt_check_shape(&check, "v", args->v, TT_TYPES_F32, 1, args->param.dims);
        tt_check_apart(&check, "param", args->param, "v", args->v);
        tt_check_apart(&check, "v", args->v, "grad", args->grad);
    }
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_sgd(stream, args);
}

tt_status tt_lion(struct tt_stream *stream, const struct tt_lion_args *args)
{
    struct tt_check check = {.op = "lion"};
    tt_check_tensor(&check, "param", args->param, TT_TYPES_F32, 1, 1);
    tt_check_like(&check, "grad", args->grad, TT_TYPES_F32, "param", args->param);
    tt_check_like(&check, "m", args->m, TT_TYPES_F32, "param", args->param);
    tt_check_apart(&check, "param", args->param, "grad", args->grad);
    tt_check_apart(&check, "param", args->param, "m", args->m);
    tt_check_apart(&check, "m", args->m, "grad", args->grad);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_lion(stream, args);
}

static int64_t blocks_of(int64_t count)
{
    return (count + TT_MOMENT_BLOCK - 1) / TT_MOMENT_BLOCK;
}

struct tt_coded_moment tt_coded_moment(uint8_t *codes, float *absmax, int64_t count)
{
    return (struct tt_coded_moment){tt_tensor_1d(codes, TT_U8, count),
                                    tt_tensor_1d(absmax, TT_F32, blocks_of(count))};
}

static void check_coded(struct tt_check *check, const struct tt_coded_moment *moment, tt_tensor param,
                        tt_tensor grad)
{
    if (check->status != TT_OK) return;
    tt_check_shape(check, "codes", moment->codes, TT_TYPES_U8, 1, param.dims);
    tt_check_shape(check, "absmax", moment->absmax, TT_TYPES_F32, 1, TT_DIMS(blocks_of(param.dims[0])));
    tt_check_apart(check, "codes", moment->codes, "param", param);
    tt_check_apart(check, "codes", moment->codes, "grad", grad);
    tt_check_apart(check, "absmax", moment->absmax, "param", param);
    tt_check_apart(check, "absmax", moment->absmax, "grad", grad);
    tt_check_apart(check, "absmax", moment->absmax, "codes", moment->codes);
}

tt_status tt_adamw8(struct tt_stream *stream, const struct tt_adamw8_args *args)
{
    struct tt_check check = {.op = "adamw8"};
    tt_check_tensor(&check, "param", args->param, TT_TYPES_F32, 1, 1);
    tt_check_like(&check, "grad", args->grad, TT_TYPES_F32, "param", args->param);
    tt_check_apart(&check, "param", args->param, "grad", args->grad);
    tt_check_that(&check, args->step >= 1, "step %lld is counted from 1", (long long)args->step);
    check_coded(&check, &args->m, args->param, args->grad);
    check_coded(&check, &args->v, args->param, args->grad);
    tt_check_apart(&check, "m", args->m.codes, "v", args->v.codes);
    tt_check_apart(&check, "m", args->m.absmax, "v", args->v.absmax);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_adamw8(stream, args);
}

tt_status tt_lion8(struct tt_stream *stream, const struct tt_lion8_args *args)
{
    struct tt_check check = {.op = "lion8"};
    tt_check_tensor(&check, "param", args->param, TT_TYPES_F32, 1, 1);
    tt_check_like(&check, "grad", args->grad, TT_TYPES_F32, "param", args->param);
    tt_check_apart(&check, "param", args->param, "grad", args->grad);
    check_coded(&check, &args->m, args->param, args->grad);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_lion8(stream, args);
}

tt_status tt_sum_squares(struct tt_stream *stream, const struct tt_sum_squares_args *args)
{
    struct tt_check check = {.op = "sum_squares"};
    tt_check_tensor(&check, "x", args->x, TT_TYPES_F32, 1, 1);
    tt_check_shape(&check, "out", args->out, TT_TYPES_F64, 1, TT_DIMS(1));
    tt_check_apart(&check, "out", args->out, "x", args->x);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_sum_squares(stream, args);
}
