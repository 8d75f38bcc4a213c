#include "backend/ops/cross_entropy.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_cross_entropy(struct tt_stream *stream, const struct tt_cross_entropy_args *args)
{
    struct tt_check check = {.op = "cross_entropy"};
    tt_check_tensor(&check, "logits", args->logits_NV, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    int64_t rows = args->logits_NV.dims[0];
    tt_check_that(&check, rows == 0 || args->logits_NV.dims[1] > 0, "the vocabulary is empty");
    tt_check_shape(&check, "labels", args->labels_N, TT_TYPES_I32, 1, TT_DIMS(rows));
    tt_check_shape(&check, "loss", args->loss_N, TT_TYPES_F32, 1, TT_DIMS(rows));
    if (!tt_tensor_is_empty(args->correct_N)) {
        tt_check_shape(&check, "correct", args->correct_N, TT_TYPES_I32, 1, TT_DIMS(rows));
    }
    if (!tt_tensor_is_empty(args->entropy_N)) {
        tt_check_shape(&check, "entropy", args->entropy_N, TT_TYPES_F32, 1, TT_DIMS(rows));
    }
    if (!tt_tensor_is_empty(args->mean_N)) {
        tt_check_shape(&check, "mean", args->mean_N, TT_TYPES_F32, 1, TT_DIMS(rows));
    }
    if (!tt_tensor_is_empty(args->grad_scale_N)) {
        tt_check_shape(&check, "grad_scale", args->grad_scale_N, TT_TYPES_F32, 1, TT_DIMS(rows));
    }
    tt_check_that(&check, args->label_smoothing >= 0 && args->label_smoothing < 1,
                  "label smoothing %g is not in [0, 1)", (double)args->label_smoothing);
    tt_check_that(&check, args->soft_cap >= 0, "soft_cap %g is negative", (double)args->soft_cap);
    tt_check_apart(&check, "logits", args->logits_NV, "loss", args->loss_N);
    tt_check_apart(&check, "logits", args->logits_NV, "labels", args->labels_N);
    tt_check_apart(&check, "logits", args->logits_NV, "correct", args->correct_N);
    tt_check_apart(&check, "logits", args->logits_NV, "entropy", args->entropy_N);
    tt_check_apart(&check, "logits", args->logits_NV, "mean", args->mean_N);
    tt_check_apart(&check, "logits", args->logits_NV, "grad_scale", args->grad_scale_N);
    tt_check_apart(&check, "loss", args->loss_N, "grad_scale", args->grad_scale_N);
    tt_check_apart(&check, "loss", args->loss_N, "entropy", args->entropy_N);
    tt_check_apart(&check, "loss", args->loss_N, "mean", args->mean_N);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_cross_entropy(stream, args);
}

tt_status tt_loss_sums(struct tt_stream *stream, const struct tt_loss_sums_args *args)
{
    struct tt_check check = {.op = "loss_sums"};
    tt_check_tensor(&check, "loss", args->loss_N, TT_TYPES_F32, 1, 1);
    if (check.status != TT_OK) return check.status;
    if (!tt_tensor_is_empty(args->correct_N)) {
        tt_check_like(&check, "correct", args->correct_N, TT_TYPES_I32, "loss", args->loss_N);
    }
    if (!tt_tensor_is_empty(args->entropy_N)) {
        tt_check_like(&check, "entropy", args->entropy_N, TT_TYPES_F32, "loss", args->loss_N);
    }
    tt_check_shape(&check, "sums", args->sums, TT_TYPES_F64, 1, TT_DIMS(3));
    tt_check_apart(&check, "sums", args->sums, "loss", args->loss_N);
    tt_check_apart(&check, "sums", args->sums, "correct", args->correct_N);
    tt_check_apart(&check, "sums", args->sums, "entropy", args->entropy_N);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_loss_sums(stream, args);
}
