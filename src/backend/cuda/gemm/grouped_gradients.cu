/* grouped_gradients in bf16, by tensor cores. A thread block has a piece of one expert's matrix, 256 columns of its
 * wider side by up to 64 of the narrower, a warp 64 of the 256, and adds over the expert's rows in order: each element
 * has one owner, and no sums are shared. With adapters the narrower side is the rank, and both operands are read
 * once. */
#include <cuda_pipeline.h>

#include "backend/cuda/device_math.cuh"
#include "backend/cuda/gemm/grouped.h"
#include "backend/cuda/mma.cuh"

namespace
{

/* STEP: rows that are multiplied at a time; STRIP: columns of a warp. */
constexpr int LANES = 32, WARPS = 4, STEP = 32, STAGES = 3, STRIP = 64, WIDE = WARPS * STRIP,
              PIECES = STRIP / 8;

struct operand {
    const uint16_t *data;
    int64_t row;
    int columns;
};

struct problem {
    const int32_t *border;
    struct operand narrow, wide;
    float *dw;
    /* elements of dw between experts, and between columns of either side */
    int64_t each, narrow_step, wide_step;
};

/* TILES of 16 narrow columns. A row of them has a length that puts successive rows into different banks. */
template <int TILES> struct stages {
    static constexpr int PITCH = TILES * 16 + 8;
    uint4 wide[STAGES][STEP * WIDE / 8]; /* rows of 32 times 16 bytes, places exchanged by row */
    uint16_t narrow[STAGES][STEP][PITCH];
};

/* Where 16 bytes of a row lie. */
__device__ __forceinline__ int chunk_of(int row, int chunk)
{
    return row * (WIDE / 8) + (chunk ^ (row & 7));
}

__device__ __forceinline__ void copy(void *to, const struct operand &from, int row, int column, bool there)
{
    there = there && column < from.columns;
    const uint16_t *at = from.data + (there ? row * from.row + column : 0);
    __pipeline_memcpy_async(to, at, 16, there ? 0 : 16);
}

/* Begins to copy the rows of a step; those from `end` are zeros. */
template <int TILES>
__device__ __forceinline__ void fetch(const struct problem &p, int first, int end, int stage,
                                      stages<TILES> &s)
{
    for (int i = (int)threadIdx.x; i < STEP * WIDE / 8 && first < end; i += WARPS * LANES) {
        int row = i / (WIDE / 8), chunk = i % (WIDE / 8);
        copy(&s.wide[stage][chunk_of(row, chunk)], p.wide, first + row, (int)blockIdx.x * WIDE + chunk * 8,
             first + row < end);
    }
    for (int i = (int)threadIdx.x; i < STEP * TILES * 2 && first < end; i += WARPS * LANES) {
        int row = i / (TILES * 2), column = i % (TILES * 2) * 8;
        copy(&s.narrow[stage][row][column], p.narrow, first + row, (int)blockIdx.y * TILES * 16 + column,
             first + row < end);
    }
    __pipeline_commit();
}

template <int TILES>
__device__ __forceinline__ void multiply(const stages<TILES> &s, int stage, float (&sums)[TILES][PIECES][4])
{
    int warp = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
#pragma unroll
    for (int first = 0; first < STEP; first += 16) {
        uint32_t a[TILES][4], b[4];
        int row = first + lane % 16;
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            load_pieces_transposed(b, shared_address(&s.narrow[stage][row][i * 16 + lane / 16 * 8]));
            a[i][0] = b[0], a[i][1] = b[2], a[i][2] = b[1], a[i][3] = b[3];
        }
#pragma unroll
        for (int j = 0; j < PIECES; j += 2) {
            int chunk = warp * (STRIP / 8) + j + lane / 16;
            load_pieces_transposed(b, shared_address(&s.wide[stage][chunk_of(row, chunk)]));
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                multiply_piece(sums[i][j], a[i], b[0], b[1]);
                multiply_piece(sums[i][j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

template <int TILES>
__global__ void __launch_bounds__(WARPS *LANES) add_gradients(const __grid_constant__ struct problem p)
{
    extern __shared__ uint4 dynamic[];
    stages<TILES> &s = *reinterpret_cast<stages<TILES> *>(dynamic);
    const int first = p.border[blockIdx.z], end = p.border[blockIdx.z + 1];
    const int steps = (end - first + STEP - 1) / STEP;
    float sums[TILES][PIECES][4] = {};
    for (int i = 0; i < STAGES - 1; i++) fetch<TILES>(p, first + i * STEP, end, i, s);
    for (int i = 0; i < steps; i++) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads(); /* the rows of this step have arrived; the stage of the step before is free */
        fetch<TILES>(p, first + (i + STAGES - 1) * STEP, end, (i + STAGES - 1) % STAGES, s);
        multiply<TILES>(s, i % STAGES, sums);
    }
    if (steps == 0) return;
    const int lane = (int)threadIdx.x % LANES, g = lane / 4, t = lane % 4;
    float *dw = p.dw + blockIdx.z * p.each;
#pragma unroll
    for (int i = 0; i < TILES * PIECES * 4; i++) {
        int tile = i / (PIECES * 4), piece = i / 4 % PIECES, element = i % 4;
        int narrow = ((int)blockIdx.y * TILES + tile) * 16 + element / 2 * 8 + g;
        int wide =
            (int)blockIdx.x * WIDE + (int)threadIdx.x / LANES * STRIP + piece * 8 + 2 * t + element % 2;
        if (narrow < p.narrow.columns && wide < p.wide.columns)
            dw[narrow * p.narrow_step + wide * p.wide_step] += sums[tile][piece][element];
    }
}

template <int TILES> cudaError_t launch(const struct problem &p, int experts, cudaStream_t stream)
{
    dim3 blocks((unsigned)(p.wide.columns + WIDE - 1) / WIDE,
                (unsigned)(p.narrow.columns + TILES * 16 - 1) / (TILES * 16), (unsigned)experts);
    int bytes = (int)sizeof(stages<TILES>);
    cudaError_t error =
        cudaFuncSetAttribute(add_gradients<TILES>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    add_gradients<TILES><<<blocks, WARPS * LANES, (size_t)bytes, stream>>>(p);
    return cudaGetLastError();
}

struct operand operand_of(const tt_tensor &x)
{
    return {static_cast<const uint16_t *>(x.data), x.strides[0], (int)x.dims[1]};
}

/* Whether addresses and strides allow accesses of 16 bytes. */
bool fits(const tt_tensor &x)
{
    return x.dtype == TT_BF16 && is_aligned(x, 8) && x.dims[1] % 8 == 0 && x.dims[1] <= INT32_MAX / 2;
}

} // namespace

extern "C" tt_status tt_cuda_grouped_gradients(struct tt_stream *stream,
                                               const struct tt_grouped_gradients_args *args)
{
    const tt_tensor &dy = args->dy_MN, &x = args->x_MK, &dw = args->dw_XNK;
    if (tt_tensor_count(dw) == 0) return TT_OK;
    if (!fits(dy) || !fits(x)) return tt_cuda_grouped_gradients_plain(stream, args);
    bool is_wide = dy.dims[1] <= x.dims[1]; /* x is the wider side */
    struct problem p = {};
    p.border = static_cast<const int32_t *>(args->border_X1.data);
    p.narrow = operand_of(is_wide ? dy : x), p.wide = operand_of(is_wide ? x : dy);
    p.dw = static_cast<float *>(dw.data);
    p.each = dw.dims[1] * dw.dims[2];
    p.narrow_step = is_wide ? dw.dims[2] : 1, p.wide_step = is_wide ? 1 : dw.dims[2];
    cudaStream_t on = tt_cuda_handle(stream);
    int experts = (int)dw.dims[0], narrow = p.narrow.columns;
    cudaError_t error = narrow <= 16   ? launch<1>(p, experts, on)
                        : narrow <= 32 ? launch<2>(p, experts, on)
                                       : launch<4>(p, experts, on);
    return tt_cuda_check(error, stream, "grouped_gradients");
}
