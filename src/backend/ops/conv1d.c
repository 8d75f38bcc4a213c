#include "backend/ops/conv1d.h"

#include "backend/device_impl.h"

struct named {
    const char *name;
    tt_tensor tensor;
};

static void check_rows(struct tt_check *check, const char *name, tt_tensor rows, tt_tensor x, bool needed)
{
    if (!needed && tt_tensor_is_empty(rows)) return;
    tt_check_like(check, name, rows, TT_TYPES_REAL, "x", x);
    tt_check_type(check, name, rows, x.dtype);
}

static void check_inputs(struct tt_check *check, const struct tt_conv1d_forward_args *args)
{
    tt_tensor x = args->x_TC, w = args->w_CJ;
    tt_check_tensor(check, "x", x, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(check, "w", w, TT_TYPES_REAL, 2, 2);
    if (check->status != TT_OK) return;
    tt_check_that(check, w.dims[1] >= 1 && w.dims[1] <= TT_CONV1D_KERNEL_MAX,
                  "a kernel of %lld columns is not in 1..%d", (long long)w.dims[1], TT_CONV1D_KERNEL_MAX);
    tt_check_shape(check, "w", w, TT_TYPES_REAL, 2, TT_DIMS(x.dims[1], w.dims[1]));
    tt_check_contiguous(check, "w", w);
    if (!tt_tensor_is_empty(args->bias_C))
        tt_check_shape(check, "bias", args->bias_C, TT_TYPES_REAL, 1, TT_DIMS(x.dims[1]));
    check_rows(check, "in_gate", args->in_gate_TC, x, false);
    check_rows(check, "out_gate", args->out_gate_TC, x, false);
    if (check->status == TT_OK) tt_check_sequences(check, &args->sequences, x.dims[0]);
}

/* Checks that result i is apart from all inputs, and from the results after it. */
static void check_apart(struct tt_check *check, const struct named *results, int result_count,
                        const struct named *inputs, int input_count)
{
    for (int i = 0; i < result_count; i++) {
        for (int j = 0; j < input_count; j++)
            tt_check_apart(check, results[i].name, results[i].tensor, inputs[j].name, inputs[j].tensor);
        for (int j = i + 1; j < result_count; j++)
            tt_check_apart(check, results[i].name, results[i].tensor, results[j].name, results[j].tensor);
    }
}

tt_status tt_conv1d_forward(struct tt_stream *stream, const struct tt_conv1d_forward_args *args)
{
    struct tt_check check = {.op = "conv1d_forward"};
    check_inputs(&check, args);
    if (check.status != TT_OK) return check.status;
    check_rows(&check, "y", args->y_TC, args->x_TC, true);
    tt_check_states(&check, &args->states, args->sequences.count, 3,
                    TT_DIMS(args->w_CJ.dims[1] - 1, args->w_CJ.dims[0]));
    check_apart(&check, (struct named[]){{"y", args->y_TC}, {"states", args->states.pool}}, 2,
                (struct named[]){{"x", args->x_TC},
                                 {"in_gate", args->in_gate_TC},
                                 {"out_gate", args->out_gate_TC},
                                 {"w", args->w_CJ},
                                 {"bias", args->bias_C}},
                5);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_conv1d_forward(stream, args);
}

static void check_gate_gradient(struct tt_check *check, const char *name, tt_tensor gradient, tt_tensor gate,
                                tt_tensor x)
{
    tt_check_that(check, tt_tensor_is_empty(gradient) == tt_tensor_is_empty(gate),
                  "%s is given without its gate, or the gate without it", name);
    check_rows(check, name, gradient, x, false);
}

tt_status tt_conv1d_backward(struct tt_stream *stream, const struct tt_conv1d_backward_args *args)
{
    const struct tt_conv1d_forward_args *forward = &args->forward;
    struct tt_check check = {.op = "conv1d_backward"};
    tt_tensor x = forward->x_TC, w = forward->w_CJ;
    check_inputs(&check, forward);
    tt_check_that(&check, tt_tensor_is_empty(forward->states.pool), "states have no gradient");
    if (check.status != TT_OK) return check.status;
    check_rows(&check, "dy", args->dy_TC, x, true);
    check_rows(&check, "dx", args->dx_TC, x, true);
    check_gate_gradient(&check, "din_gate", args->din_gate_TC, forward->in_gate_TC, x);
    check_gate_gradient(&check, "dout_gate", args->dout_gate_TC, forward->out_gate_TC, x);
    if (!tt_tensor_is_empty(args->dw_CJ)) {
        tt_check_like(&check, "dw", args->dw_CJ, TT_TYPES_F32, "w", w);
        tt_check_contiguous(&check, "dw", args->dw_CJ);
    }
    if (!tt_tensor_is_empty(args->dbias_C))
        tt_check_shape(&check, "dbias", args->dbias_C, TT_TYPES_F32, 1, TT_DIMS(x.dims[1]));
    check_apart(&check,
                (struct named[]){{"dx", args->dx_TC},
                                 {"din_gate", args->din_gate_TC},
                                 {"dout_gate", args->dout_gate_TC},
                                 {"dw", args->dw_CJ},
                                 {"dbias", args->dbias_C}},
                5,
                (struct named[]){{"x", x},
                                 {"in_gate", forward->in_gate_TC},
                                 {"out_gate", forward->out_gate_TC},
                                 {"dy", args->dy_TC},
                                 {"w", w},
                                 {"bias", forward->bias_C}},
                6);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_conv1d_backward(stream, args);
}
