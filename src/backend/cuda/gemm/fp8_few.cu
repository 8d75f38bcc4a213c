#include "backend/cuda/gemm/fp8_few.h"

#include <cuda_bf16.h>

#include "backend/cuda/device_math.cuh"
#include "backend/cuda/gemm/hopper.cuh"

namespace
{

enum {
    ROWS = TT_FP8_FEW_ROWS,
    COLUMNS = TT_FP8_FEW_COLUMNS,
    STAGES = 4,
    DEPTH = TT_FP8_FEW_DEPTH,
    CONSUMERS = 128, /* threads that multiply; a warp behind them loads */
    THREADS = CONSUMERS + 32,
    SUMS_ROW = COLUMNS + 4, /* numbers: rows begin in different banks */
};

struct stages {
    unsigned char a[STAGES][ROWS * DEPTH], b[STAGES][COLUMNS * DEPTH];
};

struct alignas(1024) few_shared {
    union {
        stages in;
        float sums[ROWS * SUMS_ROW]; /* when all stages have been read */
    };
    uint64_t full[STAGES], empty[STAGES];
};

#if defined(TT_HOPPER)

struct span {
    int begin, end; /* steps */
};

TT_DEVICE span own_steps(const tt_fp8_few_params &p, int part)
{
    return {p.steps * part / p.parts, p.steps * (part + 1) / p.parts};
}

TT_DEVICE void load_stages(const tt_fp8_few_params &p, few_shared &s, int tile, span steps)
{
    for (int i = steps.begin, n = 0; i < steps.end; i++, n++) {
        int slot = n % STAGES;
        barrier_wait(&s.empty[slot], (n / STAGES & 1) ^ 1);
        barrier_expect(&s.full[slot], (ROWS + COLUMNS) * DEPTH);
        copy_tile(s.in.b[slot], &p.b, &s.full[slot], i * DEPTH, tile * COLUMNS);
        copy_tile(s.in.a[slot], &p.a, &s.full[slot], i * DEPTH, 0);
    }
}

TT_DEVICE void multiply(const tt_fp8_few_params &p, few_shared &s, span steps)
{
    constexpr uint32_t eight_rows = 8 * DEPTH;
    const int thread = threadIdx.x, lane = thread % 32;
    float sums[64];
#pragma unroll
    for (int i = 0; i < 64; i++) sums[i] = 0;
    int before = -1;
    for (int i = steps.begin, n = 0; i < steps.end; i++, n++) {
        int slot = n % STAGES;
        uint64_t a = matrix_descriptor(s.in.a[slot], 16, eight_rows),
                 b = matrix_descriptor(s.in.b[slot], 16, eight_rows);
        barrier_wait(&s.full[slot], n / STAGES & 1);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 32; k++) wgmma_64x128x32(sums, a + k * 2, b + k * 2, 1);
        wgmma_commit();
        wgmma_wait<1>();
        if (before >= 0 && thread == 0) barrier_arrive(&s.empty[before]);
        before = slot;
    }
    wgmma_wait<0>();
    wgmma_results(sums);
    group_sync(1); /* all warps have read the stages, where the sums go */
    int row = thread / 32 * 16 + lane / 4, column = 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float *to = s.sums + row * SUMS_ROW + 8 * i + column;
        *reinterpret_cast<float2 *>(to) = {sums[4 * i], sums[4 * i + 1]};
        *reinterpret_cast<float2 *>(to + 8 * SUMS_ROW) = {sums[4 * i + 2], sums[4 * i + 3]};
    }
}

TT_DEVICE void add4(float4 &x, const float4 &y)
{
    x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
}

template <typename T> TT_DEVICE void finish4(const tt_fp8_few_params &p, int row, int column, float4 sum)
{
    float x[4] = {sum.x, sum.y, sum.z, sum.w};
    int64_t at = row * p.c_row + column;
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] *= p.a_scale[row] * __ldg(p.b_scale + column + i);
    if (p.addend != nullptr) {
        float y[4];
        widen(load<T, 4>(static_cast<const T *>(p.addend) + at), y);
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] += y[i];
    }
    vec<T, 4> out;
    narrow(out, x);
    store(static_cast<T *>(p.c) + at, out);
}

/* The rows of this part, 32 threads for each; sums are added in order of the parts. */
template <typename T> TT_DEVICE void write_rows(const tt_fp8_few_params &p, few_shared &s, int tile, int part)
{
    const int rows = ROWS / p.parts, in_row = threadIdx.x % 32 * 4, column = tile * COLUMNS + in_row;
    for (int r = part * rows + (int)threadIdx.x / 32; r < (part + 1) * rows && r < p.m; r += CONSUMERS / 32) {
        if (column >= p.n) continue;
        const float *own = s.sums + r * SUMS_ROW + in_row;
        float4 sums[TT_FP8_FEW_PARTS_MAX];
#pragma unroll
        for (int i = 0; i < TT_FP8_FEW_PARTS_MAX; i++)
            if (i < p.parts) sums[i] = load_from(own, (uint32_t)i);
#pragma unroll
        for (int i = 1; i < TT_FP8_FEW_PARTS_MAX; i++)
            if (i < p.parts) add4(sums[0], sums[i]);
        finish4<T>(p, r, column, sums[0]);
    }
}

#endif

__global__ void __launch_bounds__(THREADS) gemm_fp8_few(const __grid_constant__ tt_fp8_few_params p)
{
#if defined(TT_HOPPER)
    extern __shared__ __align__(1024) unsigned char bytes[];
    few_shared &s = *reinterpret_cast<few_shared *>(bytes);
    const int part = (int)blockIdx.x % p.parts, tile = (int)blockIdx.x / p.parts;
    const span steps = own_steps(p, part);
    if (threadIdx.x == CONSUMERS) {
        prefetch_map(&p.a);
        prefetch_map(&p.b);
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&s.full[i], 1);
            barrier_init(&s.empty[i], 1);
        }
        barriers_are_ready();
    }
    __syncthreads();
    if (threadIdx.x < CONSUMERS)
        multiply(p, s, steps);
    else if (threadIdx.x == CONSUMERS)
        load_stages(p, s, tile, steps);
    __syncwarp();
    cluster_sync();
    if (threadIdx.x < CONSUMERS) {
        if (p.c_is_bf16)
            write_rows<bf16>(p, s, tile, part);
        else
            write_rows<float>(p, s, tile, part);
    }
    __syncwarp();
    cluster_sync(); /* others may still read these sums */
#endif
}

} // namespace

/* Built for sm_90, without sm_90a's instructions, the body is empty and has no shared memory of its own. */
extern "C" bool tt_cuda_fp8_few_is_built(void)
{
    cudaFuncAttributes facts;
    if (cudaFuncGetAttributes(&facts, gemm_fp8_few) == cudaSuccess) return facts.numRegs >= 64;
    cudaGetLastError();
    return false;
}

extern "C" cudaError_t tt_cuda_fp8_few_launch(const struct tt_fp8_few_params *params, cudaStream_t stream)
{
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = (unsigned)params->parts;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)((params->n + COLUMNS - 1) / COLUMNS * params->parts));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = sizeof(few_shared);
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaError_t error = cudaFuncSetAttribute(gemm_fp8_few, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)sizeof(few_shared));
    return error != cudaSuccess ? error : cudaLaunchKernelEx(&config, gemm_fp8_few, *params);
}
