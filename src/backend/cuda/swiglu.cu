#include <type_traits>

#include "backend/compose.h"
#include "backend/cuda/fast_math.cuh"
#include "backend/cuda/quant/rows_e4m3.cuh"
#include "backend/cuda/sheet.cuh"

namespace
{

/* Uses the hardware's exponential and reciprocal, because the result is rounded to 8 bits. */
__device__ __forceinline__ float sigmoid(float x, bf16)
{
    return sigmoid_fast(x);
}

__device__ __forceinline__ float sigmoid(float x, float)
{
    return 1.0f / (1.0f + expf(-x));
}

__device__ __forceinline__ float exponential(float x, bf16)
{
    return exp_fast(x);
}

__device__ __forceinline__ float exponential(float x, float)
{
    return expf(x);
}

/* f and act' = f + x f' of act(x) = x f(x); of the sigmoid, which is f, f' (ops/swiglu.h). */
struct activated {
    float f, slope;
};

template <typename T>
__device__ __forceinline__ struct activated activate(float x, enum tt_activation activation, T type)
{
    if (activation == TT_ACTIVATION_GELU) {
        float f = 0.5f * erfcf(x * -0.70710678f);
        return {f, f + x * (0.39894228f * exponential(-0.5f * x * x, type))};
    }
    if (activation == TT_ACTIVATION_GELU_TANH) {
        /* 1 - f is the other sigmoid, without a difference: near f = 1 that would lose its digits. */
        float x2 = x * x, z = 1.59576912f * (x + 0.044715f * (x * x2)), f = sigmoid(z, type);
        return {f, f + x * (f * sigmoid(-z, type) * (1.59576912f * (1.0f + 0.134145f * x2)))};
    }
    if (activation == TT_ACTIVATION_RELU2) {
        float f = fmaxf(x, 0.0f);
        return {f, f + f};
    }
    if (activation == TT_ACTIVATION_CLAMPED) {
        float z = x > TT_SWIGLU_LIMIT ? TT_SWIGLU_LIMIT : x, f = sigmoid(TT_SWIGLU_ALPHA * z, type);
        return {f, x > TT_SWIGLU_LIMIT ? 0.0f : f * (1.0f + TT_SWIGLU_ALPHA * z * (1.0f - f))};
    }
    float s = sigmoid(x, type);
    if (activation == TT_ACTIVATION_SIGMOID) return {s, s * (1.0f - s)};
    return {s, s * (1.0f + x * (1.0f - s))};
}

__device__ __forceinline__ float act_of(float x, const struct activated &a, enum tt_activation activation)
{
    if (activation == TT_ACTIVATION_CLAMPED && x > TT_SWIGLU_LIMIT) x = TT_SWIGLU_LIMIT;
    return activation == TT_ACTIVATION_SIGMOID ? a.f : x * a.f;
}

/* The factor that up is, and its derivative. */
struct linear {
    float y, slope;
};

__device__ __forceinline__ struct linear linear_of(float up, enum tt_activation activation)
{
    if (activation != TT_ACTIVATION_CLAMPED) return {up, 1.0f};
    if (up > TT_SWIGLU_LIMIT) return {TT_SWIGLU_LIMIT + 1.0f, 0.0f};
    if (up < -TT_SWIGLU_LIMIT) return {1.0f - TT_SWIGLU_LIMIT, 0.0f};
    return {up + 1.0f, 1.0f};
}

/* The heads of rows as rows of their own. */
template <typename T> struct heads_view {
    T *data;
    int64_t stride, head_stride;
    int heads;

    __device__ __forceinline__ T *at(int64_t row, int64_t col) const
    {
        int64_t token = row / heads;
        return data + token * stride + (row - token * heads) * head_stride + col;
    }
};

template <typename T> void set_view(view<T> &to, const tt_tensor &x)
{
    to = view_of<T>(x);
}

template <typename T> void set_view(heads_view<T> &to, const tt_tensor &x)
{
    to = {static_cast<T *>(x.data), x.strides[0], x.strides[1], (int)x.dims[1]};
}

template <typename T, template <typename> class VIEW> struct forward_op {
    VIEW<const T> gate, up; /* up.data NULL: 1 */
    VIEW<T> h;
    enum tt_activation activation;

    template <int W> struct loaded {
        vec<T, W> gate, up;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.gate = ::load<T, W>(gate.at(row, col));
        if (up.data != nullptr) in.up = ::load<T, W>(up.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        float g[W], u[W];
        widen(in.gate, g);
        widen(in.up, u);
#pragma unroll
        for (int i = 0; i < W; i++)
            u[i] = (up.data != nullptr ? linear_of(u[i], activation).y : 1.0f) *
                   act_of(g[i], activate(g[i], activation, T{}), activation);
        vec<T, W> out;
        narrow(out, u);
        ::store(h.at(row, col), out);
    }
};

template <typename T, template <typename> class VIEW> struct backward_op {
    VIEW<const T> dh, gate, up; /* up.data NULL: 1 */
    VIEW<T> dgate, dup, h;      /* data NULL: not computed */
    enum tt_activation activation;

    template <int W> struct loaded {
        vec<T, W> dh, gate, up;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.dh = ::load<T, W>(dh.at(row, col));
        in.gate = ::load<T, W>(gate.at(row, col));
        if (up.data != nullptr) in.up = ::load<T, W>(up.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        float d[W], g[W], u[W], dg[W], du[W];
        widen(in.dh, d);
        widen(in.gate, g);
        widen(in.up, u);
#pragma unroll
        for (int i = 0; i < W; i++) {
            struct activated a = activate(g[i], activation, T{});
            float act = act_of(g[i], a, activation);
            if (up.data == nullptr) u[i] = 1.0f;
            struct linear l = linear_of(u[i], activation);
            dg[i] = d[i] * l.y * a.slope;
            du[i] = d[i] * act * l.slope;
            u[i] = l.y * act;
        }
        vec<T, W> out;
        narrow(out, dg);
        ::store(dgate.at(row, col), out);
        narrow(out, du);
        if (dup.data != nullptr) ::store(dup.at(row, col), out);
        if (h.data == nullptr) return;
        narrow(out, u);
        ::store(h.at(row, col), out);
    }
};

/* Rows of a tensor, or the heads of them, and their columns. */
int64_t rows_in(const tt_tensor &x)
{
    return x.rank == 3 ? x.dims[0] * x.dims[1] : x.dims[0];
}

template <typename T, template <typename> class VIEW>
tt_status forward_typed(struct tt_stream *stream, const struct tt_swiglu_forward_args *args)
{
    constexpr int W = wide<T>();
    const tt_tensor &gate = args->gate_TF, &up = args->up_TF, &h = args->h_TF;
    struct forward_op<T, VIEW> op = {
    };
    op.activation = args->activation;
    bool alone = tt_tensor_is_empty(up);
    set_view(op.gate, gate);
    if (!alone) set_view(op.up, up);
    set_view(op.h, h);
    bool aligned = is_aligned(gate, W) && (alone || is_aligned(up, W)) && is_aligned(h, W);
    return apply<W, 2>(stream, "swiglu_forward", op, rows_in(h), h.dims[h.rank - 1], aligned, &h);
}

template <typename T, template <typename> class VIEW>
tt_status backward_typed(struct tt_stream *stream, const struct tt_swiglu_backward_args *args)
{
    constexpr int W = wide<T>();
    const tt_tensor &gate = args->gate_TF, &up = args->up_TF, &dh = args->dh_TF;
    struct backward_op<T, VIEW> op = {
    };
    op.activation = args->activation;
    set_view(op.dh, dh);
    set_view(op.gate, gate);
    bool aligned = is_aligned(gate, W) && is_aligned(dh, W) && is_aligned(args->dgate_TF, W);
    set_view(op.dgate, args->dgate_TF);
    if (!tt_tensor_is_empty(up)) {
        set_view(op.up, up);
        set_view(op.dup, args->dup_TF);
        aligned = aligned && is_aligned(up, W) && is_aligned(args->dup_TF, W);
    }
    if (!tt_tensor_is_empty(args->h_TF)) {
        set_view(op.h, args->h_TF);
        aligned = aligned && is_aligned(args->h_TF, W);
    }
    return apply<W, 2>(stream, "swiglu_backward", op, rows_in(gate), gate.dims[gate.rank - 1], aligned,
                       &gate);
}

/* SwiGLU with its rows in FP8: a thread block has a row, whose results it holds, rounded to bf16 as they would be
 * stored, until the largest is known. All loads of a row are queued before its first result is computed, and rows of up
 * to four vectors a thread leave room for two blocks on a multiprocessor, so that one loads while the other stores.
 *
 * Gate and up in FP8: forward stores their codes from the vectors that it holds anyway, before it computes in their
 * place; backward loads codes instead, half of the bytes. */
constexpr int ROWS_VECTOR = 8;

/* The most threads of a block with CHUNKS vectors each, and how many such blocks share a multiprocessor. */
template <int CHUNKS> constexpr int rows_threads = CHUNKS <= 4 ? 448 : 512;
template <int CHUNKS> constexpr int rows_blocks = CHUNKS <= 4 ? 2 : 1;

struct rows_pass {
    view<const bf16> dh, gate, up; /* dh: backward alone */
    view<bf16> first, second, act; /* h, or dgate and dup, and act; data NULL: not stored */
    struct coded_rows out;         /* of h, or of dgate | dup */
    int cols;
    enum tt_activation activation;
};

/* Apart, because with them among the parameters of the other kernels the compiler spills more registers. */
struct coded_pass : rows_pass {
    struct coded_rows gate_coded, up_coded;
};
template <bool CODED> using pass_type = std::conditional_t<CODED, struct coded_pass, struct rows_pass>;

/* Eight codes, in the first words of the place for what they stand for. */
__device__ __forceinline__ vec<bf16, ROWS_VECTOR> load_coded(const struct coded_rows &from, int64_t at)
{
    uint2 raw = *reinterpret_cast<const uint2 *>(from.codes + at);
    return {{raw.x, raw.y, 0, 0}};
}

/* Values of the codes, in bf16 as tt_dequantize decodes them. */
__device__ __forceinline__ void widen_coded(const vec<bf16, ROWS_VECTOR> &held, float scale,
                                            float (&x)[ROWS_VECTOR])
{
    vec<bf16, ROWS_VECTOR> rounded;
#pragma unroll
    for (int i = 0; i < ROWS_VECTOR; i += 2) {
        float2 pair = e4m3_values(held.word[i / 4] >> (8 * (i % 4)) & 0xffffu);
        x[i] = __fmul_rn(pair.x, scale);
        x[i + 1] = __fmul_rn(pair.y, scale);
    }
    narrow(rounded, x);
    widen(rounded, x);
}

/* The codes of gate and up, from the vectors that the threads of a row hold. */
template <int CHUNKS>
__device__ __forceinline__ void store_inputs(const struct coded_pass &p, int64_t row,
                                             const vec<bf16, ROWS_VECTOR> (&gates)[CHUNKS],
                                             const vec<bf16, ROWS_VECTOR> (&ups)[CHUNKS])
{
    constexpr int W = ROWS_VECTOR;
    __shared__ uint32_t partial[2][ROW_WARP];
    int first = (int)threadIdx.x * W, step = (int)blockDim.x * W;
    uint32_t pairs[2] = {0, 0};
    float x[W];
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (first + k * step >= p.cols) continue;
        pairs[0] = largest_pair(pairs[0], gates[k]);
        pairs[1] = largest_pair(pairs[1], ups[k]);
    }
    uint32_t largest[2] = {largest_of_pair(pairs[0]), largest_of_pair(pairs[1])};
    block_largest(largest, partial);
    float gate_scale = row_scale(largest[0]), up_scale = row_scale(largest[1]);
    struct row_divisor by_gate = divisor_of(gate_scale), by_up = divisor_of(up_scale);
    if (threadIdx.x == 0) {
        p.gate_coded.scale[row] = gate_scale;
        p.up_coded.scale[row] = up_scale;
    }
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int64_t at = row * p.cols + first + k * step;
        if (first + k * step >= p.cols) continue;
        widen(gates[k], x);
        store_codes(p.gate_coded.codes + at, x, by_gate);
        widen(ups[k], x);
        store_codes(p.up_coded.codes + at, x, by_up);
    }
}

template <int CHUNKS, bool CODED, bool SILU>
__global__ void __launch_bounds__(rows_threads<CHUNKS>, rows_blocks<CHUNKS>)
    forward_rows(const pass_type<CODED> p)
{
    constexpr int W = ROWS_VECTOR;
    __shared__ uint32_t partial[ROW_WARP];
    const enum tt_activation activation = SILU ? TT_ACTIVATION_SILU : p.activation;
    int64_t row = blockIdx.x;
    int first = (int)threadIdx.x * W, step = (int)blockDim.x * W;
    vec<bf16, W> held[CHUNKS], ups[CHUNKS];
    uint32_t pair = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int col = first + k * step;
        if (col >= p.cols) continue;
        held[k] = load<bf16, W>(p.gate.at(row, col));
        ups[k] = load<bf16, W>(p.up.at(row, col));
    }
    if constexpr (CODED) store_inputs<CHUNKS>(p, row, held, ups);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int col = first + k * step;
        if (col >= p.cols) continue;
        float g[W], u[W];
        widen(held[k], g);
        widen(ups[k], u);
#pragma unroll
        for (int i = 0; i < W; i++)
            u[i] =
                linear_of(u[i], activation).y * act_of(g[i], activate(g[i], activation, bf16{}), activation);
        narrow(held[k], u);
        pair = largest_pair(pair, held[k]);
        if (p.first.data != nullptr) store(p.first.at(row, col), held[k]);
    }
    float scale = row_scale(block_largest(largest_of_pair(pair), partial));
    struct row_divisor by = divisor_of(scale);
    if (threadIdx.x == 0) p.out.scale[row] = scale;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int col = first + k * step;
        if (col >= p.cols) continue;
        float u[W];
        widen(held[k], u);
        store_codes(p.out.codes + row * p.cols + col, u, by);
    }
}

template <int CHUNKS, bool CODED, bool SILU>
__global__ void __launch_bounds__(rows_threads<CHUNKS>, rows_blocks<CHUNKS>)
    backward_rows(const pass_type<CODED> p)
{
    constexpr int W = ROWS_VECTOR;
    __shared__ uint32_t partial[ROW_WARP];
    const enum tt_activation activation = SILU ? TT_ACTIVATION_SILU : p.activation;
    int64_t row = blockIdx.x;
    int first = (int)threadIdx.x * W, step = (int)blockDim.x * W;
    vec<bf16, W> gates[CHUNKS], ups[CHUNKS], dhs[CHUNKS];
    uint32_t pair = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int col = first + k * step;
        if (col >= p.cols) continue;
        dhs[k] = load<bf16, W>(p.dh.at(row, col));
        if constexpr (CODED) {
            gates[k] = load_coded(p.gate_coded, row * p.cols + col);
            ups[k] = load_coded(p.up_coded, row * p.cols + col);
        } else {
            gates[k] = load<bf16, W>(p.gate.at(row, col));
            ups[k] = load<bf16, W>(p.up.at(row, col));
        }
    }
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int col = first + k * step;
        if (col >= p.cols) continue;
        float d[W], g[W], u[W], dg[W], du[W];
        widen(dhs[k], d);
        if constexpr (CODED) {
            widen_coded(gates[k], p.gate_coded.scale[row], g);
            widen_coded(ups[k], p.up_coded.scale[row], u);
        } else {
            widen(gates[k], g);
            widen(ups[k], u);
        }
#pragma unroll
        for (int i = 0; i < W; i++) {
            struct activated a = activate(g[i], activation, bf16{});
            float act = act_of(g[i], a, activation);
            struct linear l = linear_of(u[i], activation);
            dg[i] = d[i] * l.y * a.slope;
            du[i] = d[i] * act * l.slope;
            u[i] = l.y * act;
        }
        narrow(gates[k], dg);
        narrow(ups[k], du);
        pair = largest_pair(largest_pair(pair, gates[k]), ups[k]);
        if (p.first.data != nullptr) {
            store(p.first.at(row, col), gates[k]);
            store(p.second.at(row, col), ups[k]);
        }
        if (p.act.data == nullptr) continue;
        vec<bf16, W> out;
        narrow(out, u);
        store(p.act.at(row, col), out);
    }
    float scale = row_scale(block_largest(largest_of_pair(pair), partial));
    struct row_divisor by = divisor_of(scale);
    if (threadIdx.x == 0) p.out.scale[row] = scale;
    uint8_t *codes = p.out.codes + row * 2 * p.cols;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int col = first + k * step;
        if (col >= p.cols) continue;
        float x[W];
        widen(gates[k], x);
        store_codes(codes + col, x, by);
        widen(ups[k], x);
        store_codes(codes + p.cols + col, x, by);
    }
}

view<bf16> view_or_none(const tt_tensor &x)
{
    if (!tt_tensor_is_empty(x)) return view_of<bf16>(x);
    return {nullptr, 0};
}

bool rows_fit(const tt_tensor &x)
{
    return tt_tensor_is_empty(x) || is_aligned(x, ROWS_VECTOR);
}

template <bool BACKWARD, bool CODED, bool SILU, int CHUNKS>
void queue_rows(cudaStream_t on, const pass_type<CODED> &p, unsigned rows)
{
    int vectors = p.cols / ROWS_VECTOR, each = (vectors + CHUNKS - 1) / CHUNKS;
    unsigned threads = (unsigned)(each + ROW_WARP - 1) / ROW_WARP * ROW_WARP; /* as few as hold the row */
    if constexpr (BACKWARD)
        backward_rows<CHUNKS, CODED, SILU><<<rows, threads, 0, on>>>(p);
    else
        forward_rows<CHUNKS, CODED, SILU><<<rows, threads, 0, on>>>(p);
}

template <int CHUNKS> constexpr int most_columns = CHUNKS *rows_threads<CHUNKS> *ROWS_VECTOR;

/* The kernel for rows of this width, which tt_swiglu_rows_in_one_pass limits. */
template <bool BACKWARD, bool CODED, bool SILU>
void queue_width(cudaStream_t on, const pass_type<CODED> &p, unsigned rows)
{
    static_assert(most_columns<8> == 32768, "as in tt_swiglu_rows_fit");
    if (p.cols <= most_columns<2>)
        queue_rows<BACKWARD, CODED, SILU, 2>(on, p, rows);
    else if (p.cols <= most_columns<4>)
        queue_rows<BACKWARD, CODED, SILU, 4>(on, p, rows);
    else
        queue_rows<BACKWARD, CODED, SILU, 8>(on, p, rows);
}

/* SiLU has kernels of its own: a choice for each element keeps the compiler from computing several at once. */
template <bool BACKWARD, bool CODED>
tt_status launch_rows(struct tt_stream *stream, const char *op, const pass_type<CODED> &p, int64_t rows)
{
    cudaStream_t on = tt_cuda_handle(stream);
    if (p.activation == TT_ACTIVATION_SILU)
        queue_width<BACKWARD, CODED, true>(on, p, (unsigned)rows);
    else
        queue_width<BACKWARD, CODED, false>(on, p, (unsigned)rows);
    return tt_cuda_launched(stream, op, nullptr);
}

struct coded_rows coded_of(const struct tt_coded &coded)
{
    return {static_cast<uint8_t *>(tt_coded_codes(&coded).data),
            static_cast<float *>(tt_coded_scales(&coded).data)};
}

/* Parameters of both directions: the activation, codes and scales of the result, and those of gate and up. */
struct coded_pass pass_of(enum tt_activation activation, const tt_tensor &like, const tt_tensor &codes,
                          const tt_tensor &scale, const struct tt_swiglu_coded &coded)
{
    struct coded_pass p = {};
    p.out = coded_of(codes, scale);
    p.cols = (int)like.dims[1];
    p.activation = activation;
    if (tt_swiglu_is_coded(&coded)) {
        p.gate_coded = coded_of(coded.gate_TF);
        p.up_coded = coded_of(coded.up_TF);
    }
    return p;
}

} // namespace

extern "C" tt_status tt_cuda_swiglu_rows(struct tt_stream *stream, const struct tt_swiglu_rows_args *args)
{
    const struct tt_swiglu_forward_args &pass = args->pass;
    bool one = tt_swiglu_rows_fit(pass.gate_TF.dims[1], pass.gate_TF.dtype) && rows_fit(pass.gate_TF) &&
               rows_fit(pass.up_TF) && rows_fit(pass.h_TF);
    if (!one) return tt_compose_swiglu_rows(stream, args);
    struct coded_pass p = pass_of(pass.activation, pass.gate_TF, args->codes_TF, args->scale_T, args->kept);
    p.gate = view_of<const bf16>(pass.gate_TF);
    p.up = view_of<const bf16>(pass.up_TF);
    p.first = view_or_none(pass.h_TF);
    int64_t rows = pass.gate_TF.dims[0];
    if (tt_swiglu_is_coded(&args->kept)) return launch_rows<false, true>(stream, "swiglu_rows", p, rows);
    return launch_rows<false, false>(stream, "swiglu_rows", p, rows);
}

extern "C" tt_status tt_cuda_swiglu_rows_backward(struct tt_stream *stream,
                                                  const struct tt_swiglu_rows_backward_args *args)
{
    const struct tt_swiglu_backward_args &pass = args->pass;
    bool coded = tt_swiglu_is_coded(&args->coded);
    bool one = tt_swiglu_rows_fit(pass.dh_TF.dims[1], pass.dh_TF.dtype) && rows_fit(pass.gate_TF) &&
               rows_fit(pass.up_TF) && rows_fit(pass.dh_TF) && rows_fit(pass.dgate_TF) &&
               rows_fit(pass.dup_TF) && rows_fit(pass.h_TF);
    if (!one) return tt_compose_swiglu_rows_backward(stream, args);
    struct coded_pass p = pass_of(pass.activation, pass.dh_TF, args->codes_T2F, args->scale_T, args->coded);
    p.dh = view_of<const bf16>(pass.dh_TF);
    p.first = view_or_none(pass.dgate_TF);
    p.second = view_or_none(pass.dup_TF);
    p.act = view_or_none(pass.h_TF);
    if (coded) return launch_rows<true, true>(stream, "swiglu_rows_backward", p, pass.dh_TF.dims[0]);
    p.gate = view_of<const bf16>(pass.gate_TF);
    p.up = view_of<const bf16>(pass.up_TF);
    return launch_rows<true, false>(stream, "swiglu_rows_backward", p, pass.dh_TF.dims[0]);
}

extern "C" tt_status tt_cuda_swiglu_forward(struct tt_stream *stream,
                                            const struct tt_swiglu_forward_args *args)
{
    bool heads = args->gate_TF.rank == 3;
    return with_type(args->gate_TF.dtype, [&](auto t) {
        using T = decltype(t);
        return heads ? forward_typed<T, heads_view>(stream, args) : forward_typed<T, view>(stream, args);
    });
}

extern "C" tt_status tt_cuda_swiglu_backward(struct tt_stream *stream,
                                             const struct tt_swiglu_backward_args *args)
{
    bool heads = args->gate_TF.rank == 3;
    return with_type(args->gate_TF.dtype, [&](auto t) {
        using T = decltype(t);
        return heads ? backward_typed<T, heads_view>(stream, args) : backward_typed<T, view>(stream, args);
    });
}
