#ifndef TT_VECTOR_LANES

#include "backend/ops/swiglu.h"

#define TT_VECTOR_SOURCE "backend/cpu/swiglu.c"
#include "backend/cpu/vector_math_passes.h"

tt_status tt_cpu_swiglu_forward(struct tt_stream *stream, const struct tt_swiglu_forward_args *args)
{
    int64_t rows = args->gate_TF.dims[0], cols = args->gate_TF.dims[1];
    void (*forward_row)(const struct tt_swiglu_forward_args *, int64_t) = TT_BEST(stream, forward_row);
    int threads = tt_cpu_threads(stream, rows * cols * 4);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) forward_row(args, row);
    return TT_OK;
}

tt_status tt_cpu_swiglu_backward(struct tt_stream *stream, const struct tt_swiglu_backward_args *args)
{
    int64_t rows = args->gate_TF.dims[0], cols = args->gate_TF.dims[1];
    void (*backward_row)(const struct tt_swiglu_backward_args *, int64_t) = TT_BEST(stream, backward_row);
    int threads = tt_cpu_threads(stream, rows * cols * 6);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) backward_row(args, row);
    return TT_OK;
}

#else

TT_INLINE void TT_PASS(forward_typed)(const struct tt_swiglu_forward_args *args, int64_t row, const bool bf16)
{
    const void *gate = args->gate_TF.data, *up = args->up_TF.data;
    void *h = args->h_TF.data;
    int64_t gate_at = row * args->gate_TF.strides[0], up_at = row * args->up_TF.strides[0];
    int64_t h_at = row * args->h_TF.strides[0], cols = args->gate_TF.dims[1], f = 0;
    for (; f + TT_VECTOR_LANES <= cols; f += TT_VECTOR_LANES) {
        vf x = vload(gate, gate_at + f, bf16);
        vstore(h, h_at + f, bf16, x * vload(up, up_at + f, bf16) * vsigmoid(x));
    }
    int64_t left = cols - f;
    if (left == 0) return;
    vf x = vload_some(gate, gate_at + f, bf16, left);
    vstore_some(h, h_at + f, bf16, x * vload_some(up, up_at + f, bf16, left) * vsigmoid(x), left);
}

static void TT_PASS(forward_row)(const struct tt_swiglu_forward_args *args, int64_t row)
{
    if (args->gate_TF.dtype == TT_BF16)
        TT_PASS(forward_typed)(args, row, true);
    else
        TT_PASS(forward_typed)(args, row, false);
}

struct TT_PASS(backward_lanes) {
    vf dgate, dup, h;
};

TT_INLINE struct TT_PASS(backward_lanes) TT_PASS(backward_of)(vf dh, vf gate, vf up)
{
    vf s = vsigmoid(gate);
    return (struct TT_PASS(backward_lanes)){
        .dgate = dh * up * (s * (1.0f + gate * (1.0f - s))), .dup = dh * (gate * s), .h = gate * up * s};
}

/* Reads all inputs of an element before it writes the first output: outputs may overlap inputs exactly. */
TT_INLINE void TT_PASS(backward_typed)(const struct tt_swiglu_backward_args *args, int64_t row,
                                       const bool bf16)
{
    const void *dh = args->dh_TF.data, *gate = args->gate_TF.data, *up = args->up_TF.data;
    void *dgate = args->dgate_TF.data, *dup = args->dup_TF.data, *h = args->h_TF.data;
    int64_t dh_at = row * args->dh_TF.strides[0], gate_at = row * args->gate_TF.strides[0];
    int64_t up_at = row * args->up_TF.strides[0], dgate_at = row * args->dgate_TF.strides[0];
    int64_t dup_at = row * args->dup_TF.strides[0], cols = args->gate_TF.dims[1], f = 0;
    bool wants_h = !tt_tensor_is_empty(args->h_TF);
    int64_t h_at = wants_h ? row * args->h_TF.strides[0] : 0;
    for (; f + TT_VECTOR_LANES <= cols; f += TT_VECTOR_LANES) {
        struct TT_PASS(backward_lanes) out = TT_PASS(backward_of)(
            vload(dh, dh_at + f, bf16), vload(gate, gate_at + f, bf16), vload(up, up_at + f, bf16));
        vstore(dgate, dgate_at + f, bf16, out.dgate);
        vstore(dup, dup_at + f, bf16, out.dup);
        if (wants_h) vstore(h, h_at + f, bf16, out.h);
    }
    int64_t left = cols - f;
    if (left == 0) return;
    struct TT_PASS(backward_lanes) out =
        TT_PASS(backward_of)(vload_some(dh, dh_at + f, bf16, left), vload_some(gate, gate_at + f, bf16, left),
                             vload_some(up, up_at + f, bf16, left));
    vstore_some(dgate, dgate_at + f, bf16, out.dgate, left);
    vstore_some(dup, dup_at + f, bf16, out.dup, left);
    if (wants_h) vstore_some(h, h_at + f, bf16, out.h, left);
}

static void TT_PASS(backward_row)(const struct tt_swiglu_backward_args *args, int64_t row)
{
    if (args->gate_TF.dtype == TT_BF16)
        TT_PASS(backward_typed)(args, row, true);
    else
        TT_PASS(backward_typed)(args, row, false);
}

#endif
