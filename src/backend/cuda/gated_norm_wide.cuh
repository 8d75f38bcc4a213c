/* Gated norms of gated_norm.cu over groups of whole 16-byte vectors: LANES neighbouring threads have a group, each N
 * vectors of it in registers, so a row is read once. */
#ifndef TT_BACKEND_CUDA_GATED_NORM_WIDE_CUH
#define TT_BACKEND_CUDA_GATED_NORM_WIDE_CUH

#include "backend/cuda/device_math.cuh"

namespace
{

/* A thread's numbers of a row; `first` is the column of its first vector, the next is LANES * V further. */
template <typename T, int LANES, int N> struct wide_place {
    static constexpr int V = wide<T>();
    int64_t item, row, group, first;

    __device__ __forceinline__ wide_place(const struct gated<T> &p)
    {
        item = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LANES;
        row = item / p.groups, group = item % p.groups;
        first = (int64_t)(threadIdx.x % LANES) * V;
    }

    __device__ __forceinline__ void load(const struct rows<T> &x, int64_t width, float (&to)[N][V]) const
    {
        vec<T, V> raw[N];
#pragma unroll
        for (int n = 0; n < N; n++) raw[n] = ::load<T, V>(x.at(row, group * width + first + n * LANES * V));
#pragma unroll
        for (int n = 0; n < N; n++) widen(raw[n], to[n]);
    }

    __device__ __forceinline__ void store(const struct rows<T> &x, int64_t width, int n,
                                          const float (&from)[V]) const
    {
        vec<T, V> raw;
        narrow(raw, from);
        ::store(x.at(row, group * width + first + n * LANES * V), raw);
    }

    __device__ __forceinline__ void load_weight(const struct gated<T> &p, int n, float (&to)[V]) const
    {
        load_either<V>(p.weight, (p.shared ? 0 : group * p.width) + first + n * LANES * V, p.weight_bf16, to);
    }
};

template <typename T, int LANES, int N>
__global__ void __launch_bounds__(THREADS)
    forward_wide(const struct gated<T> p, struct rows<T> y, float *rstds, float eps)
{
    using place = wide_place<T, LANES, N>;
    place at(p);
    float x[N][place::V], z[N][place::V], squares = 0;
    bool inside = at.row < p.count;
    if (inside) {
        at.load(p.x, p.width, x), at.load(p.z, p.width, z);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < place::V; i++) {
                z[n][i] = gate_at(z[n][i], p.sigmoid).act;
                float u = p.gate_first ? x[n][i] * z[n][i] : x[n][i];
                squares = __fmaf_rn(u, u, squares);
            }
    }
    float rstd = 1.0f / sqrtf(lanes_sum(squares, LANES) / (float)p.width + eps);
    if (!inside) return;
#pragma unroll
    for (int n = 0; n < N; n++) {
        float weight[place::V];
        at.load_weight(p, n, weight);
#pragma unroll
        for (int i = 0; i < place::V; i++) weight[i] *= x[n][i] * z[n][i] * rstd;
        at.store(y, p.width, n, weight);
    }
    if (threadIdx.x % LANES == 0 && rstds != nullptr) rstds[at.item] = rstd;
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
