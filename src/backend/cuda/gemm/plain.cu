#include "backend/cuda/gemm/plain.h"

#include "backend/cuda/device_math.cuh"
#include "backend/cuda/plain_tile.cuh"

namespace
{

struct operand {
    const void *data;
    int64_t outer, inner; /* strides in elements: along m or n, along k */
};

struct problem {
    struct operand a, b;
    void *c;
    int64_t c_row;
    int64_t m, n, k;
    int64_t tiles_n;
    float alpha, beta;
};

/* Copies TILE x DEPTH elements to to[k][outer], zeros outside. Neighbouring threads read neighbouring
 * elements. */
template <typename T>
__device__ inline void load_panel(const struct operand &from, int64_t first, int64_t count, int64_t k0,
                                  int64_t k_count, panel &to)
{
    const T *data = static_cast<const T *>(from.data);
    for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        int outer = from.inner == 1 ? e / DEPTH : e % TILE;
        int k = from.inner == 1 ? e % DEPTH : e / TILE;
        bool inside = first + outer < count && k0 + k < k_count;
        to[k][outer] = inside ? load_one(data + (first + outer) * from.outer + (k0 + k) * from.inner) : 0.0f;
    }
}

template <typename A, typename B, typename C>
__global__ __launch_bounds__(THREADS) void gemm_plain(struct problem p)
{
    __shared__ panel a_panel, b_panel;
    int64_t m0 = blockIdx.x / p.tiles_n * TILE, n0 = blockIdx.x % p.tiles_n * TILE;
    int row = tile_row(), column = tile_column();
    float sum[EACH][EACH] = {};
    for (int64_t k0 = 0; k0 < p.k; k0 += DEPTH) {
        load_panel<A>(p.a, m0, p.m, k0, p.k, a_panel);
        load_panel<B>(p.b, n0, p.n, k0, p.k, b_panel);
        __syncthreads();
        multiply_panels(a_panel, b_panel, sum);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (m0 + row + i >= p.m || n0 + column + j >= p.n) continue;
            C *to = static_cast<C *>(p.c) + (m0 + row + i) * p.c_row + n0 + column + j;
            float value = p.alpha * sum[i][j];
            store_one(to, p.beta == 0.0f ? value : fmaf(p.beta, load_one(to), value));
        }
    }
}

typedef void kernel(struct problem);

template <typename A, typename B> kernel *for_c(tt_dtype c)
{
    return c == TT_F32 ? gemm_plain<A, B, float> : gemm_plain<A, B, bf16>;
}

template <typename A> kernel *for_b(tt_dtype b, tt_dtype c)
{
    return b == TT_F32 ? for_c<A, float>(c) : for_c<A, bf16>(c);
}

struct operand make_operand(tt_tensor matrix, bool rows_are_k)
{
    struct operand operand = {matrix.data, matrix.strides[0], 1};
    if (rows_are_k) {
        operand.outer = 1;
        operand.inner = matrix.strides[0];
    }
    return operand;
}

} // namespace

extern "C" tt_status tt_cuda_gemm_plain(struct tt_stream *stream, const struct tt_gemm_args *args)
{
    struct problem p = {};
    p.a = make_operand(args->a, args->trans_a);
    p.b = make_operand(args->b, !args->trans_b);
    p.c = args->c.data;
    p.c_row = args->c.strides[0];
    p.m = args->c.dims[0];
    p.n = args->c.dims[1];
    p.k = args->a.dims[args->trans_a ? 0 : 1];
    p.tiles_n = (p.n + TILE - 1) / TILE;
    p.alpha = args->alpha;
    p.beta = args->beta;
    int64_t tiles = (p.m + TILE - 1) / TILE * p.tiles_n;
    if (tiles > INT32_MAX) return tt_fail(TT_ERR_UNSUPPORTED, "gemm: c is too large for the plain kernel");
    kernel *run = args->a.dtype == TT_F32 ? for_b<float>(args->b.dtype, args->c.dtype)
                                          : for_b<bf16>(args->b.dtype, args->c.dtype);
    run<<<(unsigned)tiles, THREADS, 0, tt_cuda_handle(stream)>>>(p);
    return tt_cuda_launched(stream, "gemm", &args->c);
}
