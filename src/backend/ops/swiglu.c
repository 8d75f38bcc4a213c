#include "backend/ops/swiglu.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

/* Rows in FP8 are of rank 2. h is left out where `h` is empty and `only_rows`, up where it is empty and `alone`. */
static void check_forward(struct tt_check *check, const struct tt_swiglu_forward_args *args, int rank_max,
                          bool only_rows, bool alone)
{
    tt_tensor gate = args->gate_TF;
    tt_check_tensor(check, "gate", gate, TT_TYPES_REAL, 2, rank_max);
    alone = alone && tt_tensor_is_empty(args->up_TF) && args->activation != TT_ACTIVATION_CLAMPED;
    if (!alone) tt_check_like(check, "up", args->up_TF, TT_TYPES_REAL, "gate", gate);
    if (!alone) tt_check_type(check, "up", args->up_TF, gate.dtype);
    if (only_rows && tt_tensor_is_empty(args->h_TF)) return;
    tt_check_like(check, "h", args->h_TF, TT_TYPES_REAL, "gate", gate);
    tt_check_type(check, "h", args->h_TF, gate.dtype);
    tt_check_same_or_apart(check, "h", args->h_TF, "gate", gate);
    if (!alone) tt_check_same_or_apart(check, "h", args->h_TF, "up", args->up_TF);
}

tt_status tt_swiglu_forward(struct tt_stream *stream, const struct tt_swiglu_forward_args *args)
{
    struct tt_check check = {.op = "swiglu_forward"};
    check_forward(&check, args, 3, false, true);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_swiglu_forward(stream, args);
}

/* dgate and dup are left out where they are empty and `only_rows`; gate and up where they are `coded`; up and dup where
 * they are empty and `alone`. */
static void check_backward(struct tt_check *check, const struct tt_swiglu_backward_args *args, int rank_max,
                           bool only_rows, bool coded, bool alone)
{
    enum { MOST = 6 };
    tt_tensor dh = args->dh_TF;
    struct {
        const char *name;
        tt_tensor tensor;
    } all[MOST] = {{"dh", dh}, {"gate", args->gate_TF}, {"up", args->up_TF}};
    alone = alone && tt_tensor_is_empty(args->up_TF) && tt_tensor_is_empty(args->dup_TF);
    int inputs = coded ? 1 : alone ? 2 : 3, count = inputs;
    bool gradients = !only_rows || !tt_tensor_is_empty(args->dgate_TF) || !tt_tensor_is_empty(args->dup_TF);
    if (gradients) all[count].name = "dgate", all[count++].tensor = args->dgate_TF;
    if (gradients && !alone) all[count].name = "dup", all[count++].tensor = args->dup_TF;
    if (!tt_tensor_is_empty(args->h_TF)) all[count].name = "h", all[count++].tensor = args->h_TF;
    tt_check_tensor(check, "dh", dh, TT_TYPES_REAL, 2, rank_max);
    for (int i = 1; i < count; i++) {
        tt_check_like(check, all[i].name, all[i].tensor, TT_TYPES_REAL, "dh", dh);
        tt_check_type(check, all[i].name, all[i].tensor, dh.dtype);
    }
    /* Every output may overlap an input exactly, element by element; no two outputs may overlap. */
    for (int out = inputs; out < count; out++) {
        for (int in = 0; in < inputs; in++) {
            tt_check_same_or_apart(check, all[out].name, all[out].tensor, all[in].name, all[in].tensor);
        }
        for (int other = inputs; other < out; other++) {
            tt_check_apart(check, all[out].name, all[out].tensor, all[other].name, all[other].tensor);
        }
    }
}

tt_status tt_swiglu_backward(struct tt_stream *stream, const struct tt_swiglu_backward_args *args)
{
    struct tt_check check = {.op = "swiglu_backward"};
    check_backward(&check, args, 3, false, false, true);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_swiglu_backward(stream, args);
}

bool tt_swiglu_rows_in_one_pass(const struct tt_device *device, int64_t width, tt_dtype dtype)
{
    return !tt_device_is_host(device) && tt_swiglu_rows_fit(width, dtype);
}

/* Codes and scales of gate or up. */
static void check_coded(struct tt_check *check, const char *name, const struct tt_coded *coded,
                        tt_tensor like)
{
    if (check->status != TT_OK) return;
    const struct tt_quant_layout *layout = coded->layout;
    tt_check_that(check,
                  layout != NULL && tt_quant_multiplies(layout->format.type) && layout->row_squares == 0,
                  "%s are not fp8 by rows", name);
    if (check->status != TT_OK) return;
    tt_check_that(check, layout->rows == like.dims[0] && layout->cols == like.dims[1],
                  "%s are [%lld, %lld], not [%lld, %lld]", name, (long long)layout->rows,
                  (long long)layout->cols, (long long)like.dims[0], (long long)like.dims[1]);
    tt_check_shape(check, name, coded->packed, 1u << TT_U8, 1, TT_DIMS((int64_t)layout->bytes));
    if (check->status != TT_OK) return;
    tt_check_that(check, (uintptr_t)coded->packed.data % 16 == 0, "%s are not at a multiple of 16 bytes",
                  name);
}

/* One pass reads rows as vectors of 16 bytes; the sequence of two passes, which takes others, must store. */
static void check_vectors(struct tt_check *check, const char *name, tt_tensor x)
{
    if (check->status != TT_OK) return;
    tt_check_that(check, (uintptr_t)x.data % 16 == 0 && (x.dims[0] <= 1 || x.strides[0] % 8 == 0),
                  "rows of %s are not aligned, and the result is not to be stored", name);
}

tt_status tt_swiglu_rows(struct tt_stream *stream, const struct tt_swiglu_rows_args *args)
{
    struct tt_check check = {.op = "swiglu_rows"};
    tt_tensor gate = args->pass.gate_TF;
    bool one = tt_swiglu_rows_in_one_pass(tt_stream_device(stream), gate.dims[1], gate.dtype);
    check_forward(&check, &args->pass, 2, one, false);
    tt_check_quantized_rows(&check, gate.dims[0], gate.dims[1], args->codes_TF, args->scale_T);
    if (tt_swiglu_is_coded(&args->kept)) {
        check_coded(&check, "codes of gate", &args->kept.gate_TF, gate);
        check_coded(&check, "codes of up", &args->kept.up_TF, gate);
    }
    if (tt_tensor_is_empty(args->pass.h_TF)) {
        check_vectors(&check, "gate", gate);
        check_vectors(&check, "up", args->pass.up_TF);
    }
    if (check.status != TT_OK) return check.status;
    return gate.dims[0] == 0 ? TT_OK : tt_dispatch_swiglu_rows(stream, args);
}

/* Whether dup is the columns behind dgate. */
static bool are_halves(const struct tt_swiglu_backward_args *args)
{
    tt_tensor dgate = args->dgate_TF, dup = args->dup_TF;
    size_t half = (size_t)dgate.dims[1] * tt_dtype_bytes(dgate.dtype);
    return (const char *)dgate.data + half == (const char *)dup.data &&
           (dgate.dims[0] <= 1 || dgate.strides[0] == dup.strides[0]);
}

tt_status tt_swiglu_rows_backward(struct tt_stream *stream, const struct tt_swiglu_rows_backward_args *args)
{
    struct tt_check check = {.op = "swiglu_rows_backward"};
    const struct tt_swiglu_backward_args *pass = &args->pass;
    tt_tensor dh = pass->dh_TF;
    bool one = tt_swiglu_rows_in_one_pass(tt_stream_device(stream), dh.dims[1], dh.dtype),
         coded = tt_swiglu_is_coded(&args->coded);
    check_backward(&check, pass, 2, one, coded, false);
    tt_check_quantized_rows(&check, dh.dims[0], 2 * dh.dims[1], args->codes_T2F, args->scale_T);
    if (coded) {
        check_coded(&check, "codes of gate", &args->coded.gate_TF, dh);
        check_coded(&check, "codes of up", &args->coded.up_TF, dh);
    }
    if (tt_tensor_is_empty(pass->dgate_TF)) {
        if (!coded) check_vectors(&check, "gate", pass->gate_TF);
        if (!coded) check_vectors(&check, "up", pass->up_TF);
        check_vectors(&check, "dh", dh);
    } else if (check.status == TT_OK) {
        tt_check_that(&check, are_halves(pass), "dgate and dup are not halves of one matrix");
    }
    if (check.status != TT_OK) return check.status;
    return dh.dims[0] == 0 ? TT_OK : tt_dispatch_swiglu_rows_backward(stream, args);
}
