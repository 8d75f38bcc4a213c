#ifndef TT_VECTOR_LANES

#include "backend/ops/swiglu.h"

#define TT_VECTOR_SOURCE "backend/cpu/swiglu.c"
#include "backend/cpu/vector_math_passes.h"

static int64_t row_count(tt_tensor x)
{
    return x.rank == 3 ? x.dims[0] * x.dims[1] : x.dims[0];
}

tt_status tt_cpu_swiglu_forward(struct tt_stream *stream, const struct tt_swiglu_forward_args *args)
{
    int64_t cols = args->gate_TF.dims[args->gate_TF.rank - 1], rows = row_count(args->gate_TF);
    void (*forward_row)(const struct tt_swiglu_forward_args *, int64_t) = TT_BEST(stream, forward_row);
    int threads = tt_cpu_threads(stream, rows * cols * 4);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) forward_row(args, row);
    return TT_OK;
}

tt_status tt_cpu_swiglu_backward(struct tt_stream *stream, const struct tt_swiglu_backward_args *args)
{
    int64_t cols = args->gate_TF.dims[args->gate_TF.rank - 1], rows = row_count(args->gate_TF);
    void (*backward_row)(const struct tt_swiglu_backward_args *, int64_t) = TT_BEST(stream, backward_row);
    int threads = tt_cpu_threads(stream, rows * cols * 6);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) backward_row(args, row);
    return TT_OK;
}

#else

/* The first element of a row, or of a head of one. */
TT_INLINE int64_t TT_PASS(row_at)(const tt_tensor *x, int64_t row)
{
    if (x->rank < 3) return row * x->strides[0];
    return row / x->dims[1] * x->strides[0] + row % x->dims[1] * x->strides[1];
}

/* f and act' = f + x f' of act(x) = x f(x), lane by lane; of the sigmoid, which is f, f'; of the clamped unit, whose x
 * is cut, 0 behind the border. */
struct TT_PASS(activation_lanes) {
    vf f, slope;
};
#define activation_lanes TT_PASS(activation_lanes)

/* f and its slope for GELU. With a = |x| and e = exp(-a^2 / 2) the normal distribution has f(-a) = e g(a), and g,
 * half of the scaled complementary error function, is a quotient of polynomials: least squares with weights towards
 * the least maximum, relative error 5e-9 up to 13.2, where e leaves the range of float. a^2 has two parts, the first
 * without rounding, so that the tail keeps its digits: its relative error is below 1e-6. */
TT_INLINE struct activation_lanes TT_PASS(gelu)(vf x)
{
    vf a = vmin(vsplat(14.0f), vmax(x, -x)), head = (vf)((vu)a & 0xfffff000u);
    vf e = vexp(-0.5f * head * head) * vexp(-0.5f * (a - head) * (a + head));
    e = vselect((vi)(a > vsplat(13.2f)), vsplat(0.0f), e);
    vf above = (((4.020124684e-3f * a + 3.998375959e-2f) * a + 0.1813055785f) * a + 0.435684793f) * a + 0.5f;
    vf below =
        ((((1.007681498e-2f * a + 0.1002318038f) * a + 0.4643772033f) * a + 1.19447942f) * a + 1.669254505f) *
            a +
        1.0f;
    vf tail = e * (above / below), f = vselect((vi)(x < vsplat(0.0f)), tail, 1.0f - tail);
    return (struct activation_lanes){f, f + x * (0x1.988454p-2f * e)}; /* 1 / sqrt(2 pi) */
}

/* The clamped unit's x, and its factor of the product; NaN stays. */
TT_INLINE vf TT_PASS(cut_gate)(vf x)
{
    return vselect((vi)(x > vsplat(TT_SWIGLU_LIMIT)), vsplat(TT_SWIGLU_LIMIT), x);
}

TT_INLINE vf TT_PASS(cut_up)(vf y)
{
    y = vselect((vi)(y > vsplat(TT_SWIGLU_LIMIT)), vsplat(TT_SWIGLU_LIMIT), y);
    return vselect((vi)(y < vsplat(-TT_SWIGLU_LIMIT)), vsplat(-TT_SWIGLU_LIMIT), y) + 1.0f;
}

TT_INLINE struct activation_lanes TT_PASS(activate)(vf x, const enum tt_activation activation)
{
    if (activation == TT_ACTIVATION_GELU) return TT_PASS(gelu)(x);
    if (activation == TT_ACTIVATION_GELU_TANH) {
        /* 2 u = c (x + 0.044715 x^3), c = 2 sqrt(2 / pi); 1 - f is e f, without a difference */
        vf x2 = x * x, e = vexp(x * (-0x1.988454p+0f - 0x1.2444f2p-4f * x2)), f = 1.0f / (1.0f + e);
        return (struct activation_lanes){f, f + x * (f * (e * f)) * (0x1.988454p+0f + 0x1.b6676cp-3f * x2)};
    }
    if (activation == TT_ACTIVATION_RELU2) {
        vf f = vmax(x, vsplat(0.0f));
        return (struct activation_lanes){f, f + f};
    }
    if (activation == TT_ACTIVATION_CLAMPED) {
        vf z = TT_PASS(cut_gate)(x), s = vsigmoid(TT_SWIGLU_ALPHA * z);
        vf slope = s * (1.0f + TT_SWIGLU_ALPHA * z * (1.0f - s));
        return (struct activation_lanes){s, vselect((vi)(x > vsplat(TT_SWIGLU_LIMIT)), vsplat(0.0f), slope)};
    }
    vf s = vsigmoid(x);
    if (activation == TT_ACTIVATION_SIGMOID) return (struct activation_lanes){s, s * (1.0f - s)};
    return (struct activation_lanes){s, s * (1.0f + x * (1.0f - s))};
}

/* up, or where there is none 1 */
TT_INLINE vf TT_PASS(up_lanes)(const void *up, int64_t at, const bool bf16)
{
    return up != NULL ? vload(up, at, bf16) : vsplat(1.0f);
}

TT_INLINE vf TT_PASS(some_up_lanes)(const void *up, int64_t at, const bool bf16, int64_t left)
{
    return up != NULL ? vload_some(up, at, bf16, left) : vsplat(1.0f);
}

/* act(x) * y */
TT_INLINE vf TT_PASS(times)(vf x, vf f, vf y, const enum tt_activation activation)
{
    if (activation == TT_ACTIVATION_CLAMPED) return TT_PASS(cut_gate)(x) * TT_PASS(cut_up)(y) * f;
    return activation == TT_ACTIVATION_SIGMOID ? y * f : x * y * f;
}

TT_INLINE void TT_PASS(forward_typed)(const struct tt_swiglu_forward_args *args, int64_t row, const bool bf16,
                                      const enum tt_activation activation)
{
    const void *gate = args->gate_TF.data, *up = args->up_TF.data;
    void *h = args->h_TF.data;
    int64_t gate_at = TT_PASS(row_at)(&args->gate_TF, row);
    int64_t up_at = up != NULL ? TT_PASS(row_at)(&args->up_TF, row) : 0;
    int64_t h_at = TT_PASS(row_at)(&args->h_TF, row), cols = args->gate_TF.dims[args->gate_TF.rank - 1],
            f = 0;
    for (; f + TT_VECTOR_LANES <= cols; f += TT_VECTOR_LANES) {
        vf x = vload(gate, gate_at + f, bf16);
        vf share = TT_PASS(activate)(x, activation).f;
        vstore(h, h_at + f, bf16,
               TT_PASS(times)(x, share, TT_PASS(up_lanes)(up, up_at + f, bf16), activation));
    }
    int64_t left = cols - f;
    if (left == 0) return;
    vf x = vload_some(gate, gate_at + f, bf16, left);
    vf share = TT_PASS(activate)(x, activation).f;
    vstore_some(h, h_at + f, bf16,
                TT_PASS(times)(x, share, TT_PASS(some_up_lanes)(up, up_at + f, bf16, left), activation),
                left);
}

TT_INLINE void TT_PASS(forward_any)(const struct tt_swiglu_forward_args *args, int64_t row,
                                    const enum tt_activation activation)
{
    if (args->gate_TF.dtype == TT_BF16)
        TT_PASS(forward_typed)(args, row, true, activation);
    else
        TT_PASS(forward_typed)(args, row, false, activation);
}

static void TT_PASS(forward_row)(const struct tt_swiglu_forward_args *args, int64_t row)
{
    switch (args->activation) {
    case TT_ACTIVATION_SILU:
        TT_PASS(forward_any)(args, row, TT_ACTIVATION_SILU);
        break;
    case TT_ACTIVATION_GELU:
        TT_PASS(forward_any)(args, row, TT_ACTIVATION_GELU);
        break;
    case TT_ACTIVATION_GELU_TANH:
        TT_PASS(forward_any)(args, row, TT_ACTIVATION_GELU_TANH);
        break;
    case TT_ACTIVATION_SIGMOID:
        TT_PASS(forward_any)(args, row, TT_ACTIVATION_SIGMOID);
        break;
    case TT_ACTIVATION_RELU2:
        TT_PASS(forward_any)(args, row, TT_ACTIVATION_RELU2);
        break;
    case TT_ACTIVATION_CLAMPED:
        TT_PASS(forward_any)(args, row, TT_ACTIVATION_CLAMPED);
        break;
    case TT_ACTIVATIONS:
        break;
    }
}

struct TT_PASS(backward_lanes) {
    vf dgate, dup, h;
};

TT_INLINE struct TT_PASS(backward_lanes)
    TT_PASS(backward_of)(vf dh, vf gate, vf up, const enum tt_activation activation)
{
    struct activation_lanes a = TT_PASS(activate)(gate, activation);
    struct TT_PASS(backward_lanes) out = {.dgate = dh * up * a.slope};
    out.dup = activation == TT_ACTIVATION_SIGMOID ? dh * a.f : dh * (gate * a.f);
    out.h = TT_PASS(times)(gate, a.f, up, activation);
    if (activation == TT_ACTIVATION_CLAMPED) {
        vi cut = (vi)(up > vsplat(TT_SWIGLU_LIMIT)) | (vi)(up < vsplat(-TT_SWIGLU_LIMIT));
        out.dgate = dh * TT_PASS(cut_up)(up) * a.slope;
        out.dup = vselect(cut, vsplat(0.0f), dh * (TT_PASS(cut_gate)(gate) * a.f));
    }
    return out;
}

/* Reads all inputs of an element before it writes the first output: outputs may overlap inputs exactly. */
TT_INLINE void TT_PASS(backward_typed)(const struct tt_swiglu_backward_args *args, int64_t row,
                                       const bool bf16, const enum tt_activation activation)
{
    const void *dh = args->dh_TF.data, *gate = args->gate_TF.data, *up = args->up_TF.data;
    void *dgate = args->dgate_TF.data, *dup = args->dup_TF.data, *h = args->h_TF.data;
    int64_t dh_at = TT_PASS(row_at)(&args->dh_TF, row), gate_at = TT_PASS(row_at)(&args->gate_TF, row);
    int64_t dgate_at = TT_PASS(row_at)(&args->dgate_TF, row);
    int64_t up_at = up != NULL ? TT_PASS(row_at)(&args->up_TF, row) : 0;
    int64_t dup_at = dup != NULL ? TT_PASS(row_at)(&args->dup_TF, row) : 0;
    int64_t cols = args->gate_TF.dims[args->gate_TF.rank - 1], f = 0;
    bool wants_h = !tt_tensor_is_empty(args->h_TF);
    int64_t h_at = wants_h ? TT_PASS(row_at)(&args->h_TF, row) : 0;
    for (; f + TT_VECTOR_LANES <= cols; f += TT_VECTOR_LANES) {
        struct TT_PASS(backward_lanes) out =
            TT_PASS(backward_of)(vload(dh, dh_at + f, bf16), vload(gate, gate_at + f, bf16),
                                 TT_PASS(up_lanes)(up, up_at + f, bf16), activation);
        vstore(dgate, dgate_at + f, bf16, out.dgate);
        if (dup != NULL) vstore(dup, dup_at + f, bf16, out.dup);
        if (wants_h) vstore(h, h_at + f, bf16, out.h);
    }
    int64_t left = cols - f;
    if (left == 0) return;
    struct TT_PASS(backward_lanes) out =
        TT_PASS(backward_of)(vload_some(dh, dh_at + f, bf16, left), vload_some(gate, gate_at + f, bf16, left),
                             TT_PASS(some_up_lanes)(up, up_at + f, bf16, left), activation);
    vstore_some(dgate, dgate_at + f, bf16, out.dgate, left);
    if (dup != NULL) vstore_some(dup, dup_at + f, bf16, out.dup, left);
    if (wants_h) vstore_some(h, h_at + f, bf16, out.h, left);
}

TT_INLINE void TT_PASS(backward_any)(const struct tt_swiglu_backward_args *args, int64_t row,
                                     const enum tt_activation activation)
{
    if (args->gate_TF.dtype == TT_BF16)
        TT_PASS(backward_typed)(args, row, true, activation);
    else
        TT_PASS(backward_typed)(args, row, false, activation);
}

static void TT_PASS(backward_row)(const struct tt_swiglu_backward_args *args, int64_t row)
{
    switch (args->activation) {
    case TT_ACTIVATION_SILU:
        TT_PASS(backward_any)(args, row, TT_ACTIVATION_SILU);
        break;
    case TT_ACTIVATION_GELU:
        TT_PASS(backward_any)(args, row, TT_ACTIVATION_GELU);
        break;
    case TT_ACTIVATION_GELU_TANH:
        TT_PASS(backward_any)(args, row, TT_ACTIVATION_GELU_TANH);
        break;
    case TT_ACTIVATION_SIGMOID:
        TT_PASS(backward_any)(args, row, TT_ACTIVATION_SIGMOID);
        break;
    case TT_ACTIVATION_RELU2:
        TT_PASS(backward_any)(args, row, TT_ACTIVATION_RELU2);
        break;
    case TT_ACTIVATION_CLAMPED:
        TT_PASS(backward_any)(args, row, TT_ACTIVATION_CLAMPED);
        break;
    case TT_ACTIVATIONS:
        break;
    }
}

#endif
