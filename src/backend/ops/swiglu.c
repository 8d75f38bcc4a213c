#include "backend/ops/swiglu.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_swiglu_forward(struct tt_stream *stream, const struct tt_swiglu_forward_args *args)
{
    struct tt_check check = {.op = "swiglu_forward"};
    tt_tensor gate = args->gate_TF;
    tt_check_tensor(&check, "gate", gate, TT_TYPES_REAL, 2, 2);
    tt_check_like(&check, "up", args->up_TF, TT_TYPES_REAL, "gate", gate);
    tt_check_like(&check, "h", args->h_TF, TT_TYPES_REAL, "gate", gate);
    tt_check_type(&check, "up", args->up_TF, gate.dtype);
    tt_check_type(&check, "h", args->h_TF, gate.dtype);
    tt_check_same_or_apart(&check, "h", args->h_TF, "gate", gate);
    tt_check_same_or_apart(&check, "h", args->h_TF, "up", args->up_TF);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_swiglu_forward(stream, args);
}

tt_status tt_swiglu_backward(struct tt_stream *stream, const struct tt_swiglu_backward_args *args)
{
    struct tt_check check = {.op = "swiglu_backward"};
    tt_tensor gate = args->gate_TF;
    tt_check_tensor(&check, "gate", gate, TT_TYPES_REAL, 2, 2);
    const struct {
        const char *name;
        tt_tensor tensor;
    } all[] = {{"gate", gate},        {"up", args->up_TF}, {"dh", args->dh_TF}, {"dgate", args->dgate_TF},
               {"dup", args->dup_TF}, {"h", args->h_TF}};
    int count = tt_tensor_is_empty(args->h_TF) ? 5 : 6;
    for (int i = 1; i < count; i++) {
        tt_check_like(&check, all[i].name, all[i].tensor, TT_TYPES_REAL, "gate", gate);
        tt_check_type(&check, all[i].name, all[i].tensor, gate.dtype);
    }
    /* Every output may overlap an input exactly, element by element; no two outputs may overlap. */
    for (int out = 3; out < count; out++) {
        for (int in = 0; in < 3; in++) {
            tt_check_same_or_apart(&check, all[out].name, all[out].tensor, all[in].name, all[in].tensor);
        }
        for (int other = 3; other < out; other++) {
            tt_check_apart(&check, all[out].name, all[out].tensor, all[other].name, all[other].tensor);
        }
    }
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_swiglu_backward(stream, args);
}
