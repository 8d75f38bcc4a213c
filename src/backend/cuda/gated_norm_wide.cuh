/* Gated norms of gated_norm.cu over groups of whole 16-byte vectors: LANES neighbouring threads have a group, each N
 * vectors of it in registers, so a row is read once. With codes in FP8 a thread block has a whole row. */
#ifndef TT_BACKEND_CUDA_GATED_NORM_WIDE_CUH
#define TT_BACKEND_CUDA_GATED_NORM_WIDE_CUH

#include "backend/cuda/quant/rows_e4m3.cuh"

namespace
{

/* A thread's numbers of a row; `first` is the column of its first vector, the next is LANES * V further. */
template <typename T, int LANES, int N> struct wide_place {
    static constexpr int V = wide<T>();
    int64_t item, row, group, first;

    /* Groups of all rows follow each other. */
    __device__ __forceinline__ wide_place(const struct gated<T> &p)
    {
        item = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LANES;
        row = item / p.groups, group = item % p.groups;
        first = (int64_t)(threadIdx.x % LANES) * V;
    }

    /* A thread block has the groups of a row; threads beyond them have none. */
    __device__ __forceinline__ wide_place(const struct gated<T> &p, int64_t of_row)
    {
        row = of_row, group = threadIdx.x / LANES;
        item = row * p.groups + group;
        first = (int64_t)(threadIdx.x % LANES) * V;
    }

    __device__ __forceinline__ int64_t column(int64_t width, int n) const
    {
        return group * width + first + n * LANES * V;
    }

    __device__ __forceinline__ void load(const struct rows<T> &x, int64_t width, float (&to)[N][V]) const
    {
        vec<T, V> raw[N];
#pragma unroll
        for (int n = 0; n < N; n++) raw[n] = ::load<T, V>(x.at(row, column(width, n)));
#pragma unroll
        for (int n = 0; n < N; n++) widen(raw[n], to[n]);
    }

    __device__ __forceinline__ void store(const struct rows<T> &x, int64_t width, int n,
                                          const float (&from)[V]) const
    {
        vec<T, V> raw;
        narrow(raw, from);
        ::store(x.at(row, column(width, n)), raw);
    }

    __device__ __forceinline__ void load_weight(const struct gated<T> &p, int n, float (&to)[V]) const
    {
        load_either<V>(p.weight, (p.shared ? 0 : group * p.width) + first + n * LANES * V, p.weight_bf16, to);
    }
};

/* The result of a group, rounded to its type, in registers of its threads -> rstd. All threads of a warp call it. */
template <typename T, int LANES, int N>
__device__ __forceinline__ float norm_group(const wide_place<T, LANES, N> &at, const struct gated<T> &p,
                                            bool inside, float eps, vec<T, wide<T>()> (&held)[N])
{
    constexpr int V = wide<T>();
    float x[N][V], z[N][V], squares = 0;
    if (inside) {
        at.load(p.x, p.width, x), at.load(p.z, p.width, z);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < V; i++) {
                z[n][i] = gate_at(z[n][i], p.sigmoid).act;
                float u = p.gate_first ? x[n][i] * z[n][i] : x[n][i];
                squares = __fmaf_rn(u, u, squares);
            }
    }
    float rstd = 1.0f / sqrtf(lanes_sum(squares, LANES) / (float)p.width + eps);
    if (!inside) return rstd;
#pragma unroll
    for (int n = 0; n < N; n++) {
        float weight[V];
        at.load_weight(p, n, weight);
#pragma unroll
        for (int i = 0; i < V; i++) weight[i] *= x[n][i] * z[n][i] * rstd;
        narrow(held[n], weight);
    }
    return rstd;
}

template <typename T, int LANES, int N>
__global__ void __launch_bounds__(THREADS)
    forward_wide(const struct gated<T> p, struct rows<T> y, float *rstds, float eps)
{
    wide_place<T, LANES, N> at(p);
    vec<T, wide<T>()> held[N];
    bool inside = at.row < p.count;
    float rstd = norm_group(at, p, inside, eps, held);
    if (!inside) return;
#pragma unroll
    for (int n = 0; n < N; n++) ::store(y.at(at.row, at.column(p.width, n)), held[n]);
    if (threadIdx.x % LANES == 0 && rstds != nullptr) rstds[at.item] = rstd;
}

/* Threads of a block that has a row in registers, so few that each has room for its vectors. */
template <int N> constexpr int coded_threads = N == 1 ? 1024 : N == 2 ? 512 : 256;

/* The same with the row's codes in FP8, which need the largest size of all its groups. */
template <typename T, int LANES, int N>
__global__ void __launch_bounds__(coded_threads<N>)
    forward_coded(const struct gated<T> p, struct rows<T> y, float *rstds, float eps, struct coded_rows coded)
{
    constexpr int V = wide<T>();
    __shared__ uint32_t sizes[ROW_WARP];
    wide_place<T, LANES, N> at(p, blockIdx.x);
    vec<T, V> held[N];
    bool inside = at.group < p.groups;
    float rstd = norm_group(at, p, inside, eps, held), value[V];
    uint32_t largest = 0;
    if (inside) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            ::store(y.at(at.row, at.column(p.width, n)), held[n]);
            widen(held[n], value);
            largest = largest_of(largest, value);
        }
        if (threadIdx.x % LANES == 0 && rstds != nullptr) rstds[at.item] = rstd;
    }
    float scale = row_scale(block_largest(largest, sizes));
    struct row_divisor by = divisor_of(scale);
    if (threadIdx.x == 0) coded.scale[at.row] = scale;
    if (!inside) return;
    uint8_t *codes = coded.codes + at.row * p.groups * p.width;
#pragma unroll
    for (int n = 0; n < N; n++) {
        widen(held[n], value);
        store_codes(codes + at.column(p.width, n), value, by);
    }
}

template <typename T, int LANES, int N>
__global__ void __launch_bounds__(THREADS)
    backward_wide(const struct gated<T> p, struct rows<T> dy, struct rows<T> dx, struct rows<T> dz,
                  const float *rstds)
{
    using place = wide_place<T, LANES, N>;
    place at(p);
    float x[N][place::V], z[N][place::V], g[N][place::V], sum = 0, rstd = 0;
    bool inside = at.row < p.count;
    if (inside) {
        rstd = rstds[at.item];
        at.load(p.x, p.width, x), at.load(p.z, p.width, z), at.load(dy, p.width, g);
#pragma unroll
        for (int n = 0; n < N; n++) {
            float weight[place::V];
            at.load_weight(p, n, weight);
#pragma unroll
            for (int i = 0; i < place::V; i++) {
                g[n][i] *= weight[i];
                sum += g[n][i] * gate_at(z[n][i], p.sigmoid).act * (x[n][i] * rstd);
            }
        }
    }
    float mean = lanes_sum(sum, LANES) / (float)p.width;
    if (!inside) return;
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < place::V; i++) {
            struct gate gate = gate_at(z[n][i], p.sigmoid);
            float hat = x[n][i] * rstd, du;
            if (p.gate_first) {
                du = (g[n][i] - hat * gate.act * mean) * rstd;
                z[n][i] = du * x[n][i] * gate.slope;
                du *= gate.act;
            } else {
                du = (g[n][i] * gate.act - hat * mean) * rstd;
                z[n][i] = g[n][i] * hat * gate.slope;
            }
            x[n][i] = du;
        }
        at.store(dx, p.width, n, x[n]);
        at.store(dz, p.width, n, z[n]);
    }
}

/* Calls `run` with the numbers of lanes and vectors of a group of `width`; false: there is no kernel for it. */
template <typename T, typename F> bool with_lanes(int64_t width, F run)
{
    constexpr int V = wide<T>();
    if (width == 8 * V) return run(std::integral_constant<int, 8>(), std::integral_constant<int, 1>()), true;
    if (width == 16 * V)
        return run(std::integral_constant<int, 16>(), std::integral_constant<int, 1>()), true;
    if (width == 32 * V)
        return run(std::integral_constant<int, 32>(), std::integral_constant<int, 1>()), true;
    if (width == 64 * V)
        return run(std::integral_constant<int, 32>(), std::integral_constant<int, 2>()), true;
    if (width == 128 * V)
        return run(std::integral_constant<int, 32>(), std::integral_constant<int, 4>()), true;
    return false;
}

} // namespace

#endif
