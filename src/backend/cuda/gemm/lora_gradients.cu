/* ops/lora_gradients.h in bf16: one pass over dy for both products and all adapters of a group.
 *
 * A thread block has a slice of the tokens and of the columns of one adapter, a warp 64 of these columns. In a step of
 * 16 tokens a warp multiplies its piece of dy with its rows of b, which stay in registers, and adds its transpose times
 * h to its sums of db, which stay there too. The sums of dh are added over the warps in shared memory. Partial sums of
 * several thread blocks are stored side by side, and a second kernel adds them up in a fixed order. */
#include <cuda_pipeline.h>

#include "backend/compose.h"
#include "backend/cuda/device_math.cuh"
#include "backend/cuda/gemm/slices.h"
#include "backend/cuda/mma.cuh"

namespace
{

constexpr int LANES = 32, TOKENS = 16, STRIP = 64 /* columns of a warp */, STEPS = STRIP / 16, STAGES = 4,
              TOKENS_MIN = 64 /* of a slice */, PARTS_MAX = TT_LOW_RANK_PARTS, FINISH_THREADS = 256,
              FINISH_LANES = 4 /* that share the partial sums of a place */;

struct adapter {
    const uint16_t *b; /* [n, r] */
    float *dh_sums;    /* [column slices, m, r], where there are several */
    float *db_sums;    /* [token slices, n, r] */
    int n, first_y, first_h;
    int first_slice, slices; /* of columns, thread blocks along x */
    float scaling;
};

struct problem {
    const uint16_t *dy, *h;
    uint16_t *dh;
    int64_t dy_row, h_row, dh_row;
    int m, r, count;
    int slice; /* tokens of a thread block */
    struct adapter part[PARTS_MAX];
};

/* TILES of 8 ranks. A row of h has a length that puts successive rows into different banks. */
template <int TILES, int WARPS> struct pass_memory {
    static constexpr int RANKS = TILES * 8, PITCH = (TILES + 1) / 2 * 16 + 8;
    uint4 wide[STAGES][WARPS][TOKENS * STRIP / 8]; /* a row of 8 times 16 bytes, places exchanged by token */
    float sums[2][WARPS][TOKENS][RANKS];
    uint16_t hidden[STAGES][TOKENS][PITCH];
};

/* Where 16 bytes of a token lie in a warp's piece. */
__device__ __forceinline__ int chunk_of(int token, int chunk)
{
    return token * (STRIP / 8) + (chunk ^ (token & 7));
}

/* Copies 16 bytes to shared memory, or zeros, with a cache policy. */
__device__ __forceinline__ void copy_once(uint4 *to, const uint16_t *from, bool there, uint64_t policy)
{
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared_address(to)),
                 "l"(from), "r"(there ? 16 : 0), "l"(policy)
                 : "memory");
}

/* The place of a thread block, and of a warp in it. */
struct place {
    const struct adapter *part;
    int column_slice, strip; /* first column of the warp */
    int begin, end;          /* tokens */
};

template <int WARPS> __device__ __forceinline__ struct place find_place(const struct problem &p)
{
    int index = 0;
    while (index + 1 < p.count && (int)blockIdx.x >= p.part[index + 1].first_slice) index++;
    int column_slice = (int)blockIdx.x - p.part[index].first_slice, begin = (int)blockIdx.y * p.slice;
    return {&p.part[index], column_slice, (column_slice * WARPS + (int)threadIdx.x / LANES) * STRIP, begin,
            min(begin + p.slice, p.m)};
}

/* Begins to copy dy and h of a step. */
template <int TILES, int WARPS>
__device__ __forceinline__ void fetch(const struct problem &p, const struct place &at, int step,
                                      uint64_t policy, pass_memory<TILES, WARPS> &shared)
{
    int thread = (int)threadIdx.x, warp = thread / LANES, lane = thread % LANES;
    int first = at.begin + step * TOKENS, stage = step % STAGES, n = at.part->n;
#pragma unroll
    for (int i = 0; i < TOKENS * STRIP / 8 / LANES && at.strip < n && first < at.end; i++) {
        int token = i * 4 + lane / 8, chunk = lane % 8, column = at.strip + chunk * 8;
        bool there = first + token < at.end && column < n;
        const uint16_t *from = p.dy + (there ? (first + token) * p.dy_row + at.part->first_y + column : 0);
        copy_once(&shared.wide[stage][warp][chunk_of(token, chunk)], from, there, policy);
    }
    for (int i = thread; i < TOKENS * TILES && first < at.end; i += WARPS * LANES) {
        int token = i / TILES, rank = i % TILES * 8;
        bool there = first + token < at.end && rank < p.r;
        const uint16_t *from = p.h + (there ? (first + token) * p.h_row + at.part->first_h + rank : 0);
        __pipeline_memcpy_async(&shared.hidden[stage][token][rank], from, 16, there ? 0 : 16);
    }
    __pipeline_commit();
}

/* Adds the sums of dh of a step over the warps, two ranks a thread. */
template <int TILES, int WARPS>
__device__ __forceinline__ void add_warps(const struct problem &p, const struct place &at, int step,
                                          const pass_memory<TILES, WARPS> &shared)
{
    constexpr int RANKS = TILES * 8;
    for (int i = (int)threadIdx.x; i < TOKENS * RANKS / 2; i += WARPS * LANES) {
        int token = i / (RANKS / 2), rank = i % (RANKS / 2) * 2, row = at.begin + step * TOKENS + token;
        float2 sum = make_float2(0, 0);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float2 one = *reinterpret_cast<const float2 *>(&shared.sums[step % 2][w][token][rank]);
            sum.x += one.x, sum.y += one.y;
        }
        if (row >= at.end || rank >= p.r) continue;
        if (at.part->slices > 1)
            *reinterpret_cast<float2 *>(at.part->dh_sums + ((int64_t)at.column_slice * p.m + row) * p.r +
                                        rank) = sum;
        else
            *reinterpret_cast<uint32_t *>(p.dh + row * p.dh_row + at.part->first_h + rank) =
                pack_bf16(sum.x * at.part->scaling, sum.y * at.part->scaling);
    }
}

/* The products of a warp in a step: dh of its 16 tokens over its columns, into shared memory, and additions to db. */
template <int TILES, int WARPS>
__device__ __forceinline__ void multiply(int step, bool inside, const uint32_t (&b)[STEPS][TILES][2],
                                         float (&db)[STEPS][TILES][4], pass_memory<TILES, WARPS> &shared)
{
    int warp = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES, g = lane / 4, t = lane % 4;
    int stage = step % STAGES;
    float dh[TILES][4] = {};
    uint32_t h[(TILES + 1) / 2][4];
#pragma unroll
    for (int n = 0; n < (TILES + 1) / 2; n++)
        load_pieces_transposed(h[n],
                               shared_address(&shared.hidden[stage][lane % 16][n * 16 + lane / 16 * 8]));
#pragma unroll
    for (int s = 0; s < STEPS && inside; s++) {
        uint32_t a[4], turned[4];
        uint32_t from = shared_address(&shared.wide[stage][warp][chunk_of(lane % 16, 2 * s + lane / 16)]);
        load_pieces(a, from);
        load_pieces_transposed(turned, from);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            multiply_piece(dh[n], a, b[s][n][0], b[s][n][1]);
            multiply_piece(db[s][n], {turned[0], turned[2], turned[1], turned[3]}, h[n / 2][n % 2 * 2],
                           h[n / 2][n % 2 * 2 + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < TILES * 2; i++)
        *reinterpret_cast<float2 *>(&shared.sums[step % 2][warp][g + i % 2 * 8][i / 2 * 8 + 2 * t]) =
            make_float2(dh[i / 2][i % 2 * 2], dh[i / 2][i % 2 * 2 + 1]);
}

template <int TILES, int WARPS>
__global__ void __launch_bounds__(WARPS *LANES, 1) read_once(const __grid_constant__ struct problem p)
{
    extern __shared__ uint4 dynamic[];
    pass_memory<TILES, WARPS> &shared = *reinterpret_cast<pass_memory<TILES, WARPS> *>(dynamic);
    int lane = (int)threadIdx.x % LANES, g = lane / 4, t = lane % 4;
    const struct place at = find_place<WARPS>(p);
    const struct adapter &part = *at.part;
    uint64_t policy; /* dy passes through the cache and leaves the partial sums there */
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    for (int step = 0; step < STAGES - 1; step++) fetch<TILES, WARPS>(p, at, step, policy, shared);
    uint32_t b[STEPS][TILES][2];
    float db[STEPS][TILES][4] = {};
#pragma unroll
    for (int i = 0; i < STEPS * TILES * 2; i++) {
        int s = i / 2 / TILES, n = i / 2 % TILES, row = at.strip + s * 16 + i % 2 * 8 + 2 * t,
            rank = n * 8 + g;
        const uint16_t *from = part.b + (int64_t)row * p.r + rank;
        bool there = row < part.n && rank < p.r; /* n is even */
        b[s][n][i % 2] = there ? (uint32_t)from[0] | (uint32_t)from[p.r] << 16 : 0;
    }
    int steps = (at.end - at.begin + TOKENS - 1) / TOKENS;
    for (int step = 0; step < steps; step++) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads(); /* h of this step has arrived; the sums and the stage of the step before are free */
        fetch<TILES, WARPS>(p, at, step + STAGES - 1, policy, shared);
        if (step > 0) add_warps<TILES, WARPS>(p, at, step - 1, shared);
        multiply<TILES, WARPS>(step, at.strip < part.n, b, db, shared);
    }
    __syncthreads();
    add_warps<TILES, WARPS>(p, at, steps - 1, shared);
#pragma unroll
    for (int i = 0; i < STEPS * TILES * 2; i++) {
        int s = i / 2 / TILES, n = i / 2 % TILES, column = at.strip + s * 16 + i % 2 * 8 + g,
            rank = n * 8 + 2 * t;
        if (column >= part.n || rank >= p.r) continue;
        *reinterpret_cast<float2 *>(part.db_sums + ((int64_t)blockIdx.y * part.n + column) * p.r + rank) =
            make_float2(db[s][n][i % 2 * 2], db[s][n][i % 2 * 2 + 1]);
    }
}

/* `count` partial sums of `width` numbers behind each other; their total is added to db, or times `scaling` written to
 * columns of dh. */
struct total {
    const float *sums;
    int64_t width;
    int count, first_block;
    float *db;
    uint16_t *dh;
    int64_t dh_row;
    float scaling;
};

struct totals {
    struct total one[2 * PARTS_MAX];
    int count, blocks, r;
};

__global__ void __launch_bounds__(FINISH_THREADS) add_up(const __grid_constant__ struct totals totals)
{
    int index = 0;
    while (index + 1 < totals.count && (int)blockIdx.x >= totals.one[index + 1].first_block) index++;
    const struct total &total = totals.one[index];
    int lane = (int)threadIdx.x % FINISH_LANES;
    int64_t at =
        (((int64_t)blockIdx.x - total.first_block) * FINISH_THREADS + threadIdx.x) / FINISH_LANES * 4;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int i = lane; i < total.count && at < total.width; i += FINISH_LANES) {
        float4 one = *reinterpret_cast<const float4 *>(total.sums + i * total.width + at);
        sum.x += one.x, sum.y += one.y, sum.z += one.z, sum.w += one.w;
    }
#pragma unroll
    for (int step = 1; step < FINISH_LANES; step *= 2) {
        sum.x += __shfl_xor_sync(~0u, sum.x, step), sum.y += __shfl_xor_sync(~0u, sum.y, step);
        sum.z += __shfl_xor_sync(~0u, sum.z, step), sum.w += __shfl_xor_sync(~0u, sum.w, step);
    }
    if (lane > 0 || at >= total.width) return;
    if (total.db != NULL) {
        float4 *to = reinterpret_cast<float4 *>(total.db + at), before = *to;
        *to = make_float4(before.x + sum.x, before.y + sum.y, before.z + sum.z, before.w + sum.w);
        return;
    }
    uint16_t *to = total.dh + at / totals.r * total.dh_row + at % totals.r;
    *reinterpret_cast<uint2 *>(to) = make_uint2(pack_bf16(sum.x * total.scaling, sum.y * total.scaling),
                                                pack_bf16(sum.z * total.scaling, sum.w * total.scaling));
}

void add_total(struct totals *totals, struct total total)
{
    total.first_block = totals->blocks;
    totals->blocks += (int)((total.width / 4 * FINISH_LANES + FINISH_THREADS - 1) / FINISH_THREADS);
    totals->one[totals->count++] = total;
}

struct kernel {
    void (*run)(struct problem p);
    int shared, warps;
};

template <int TILES, int WARPS> struct kernel kernel_of()
{
    return {read_once<TILES, WARPS>, (int)sizeof(pass_memory<TILES, WARPS>), WARPS};
}

/* 16 warps store the fewest partial sums, where a block may have that much shared memory. */
struct kernel choose(int64_t r, int shared_max)
{
    struct kernel kernel = r <= 8 ? kernel_of<1, 16>() : kernel_of<2, 16>();
    if (r > 16) return kernel_of<4, 8>();
    if (kernel.shared <= shared_max) return kernel;
    return r <= 8 ? kernel_of<1, 8>() : kernel_of<2, 8>();
}

/* Whether addresses and strides allow accesses of 16 bytes. */
bool fits(const struct tt_lora_gradients_args *args)
{
    if (!tt_lora_gradients_in_one_pass(args)) return false;
    if (!is_aligned(args->dy_MN, 8) || !is_aligned(args->h_MR, 8) || !is_aligned(args->dh_MR, 8))
        return false;
    if (args->dy_MN.dims[0] > INT32_MAX / 2) return false;
    for (int i = 0; i < args->count; i++) {
        const struct tt_lora_gradients_part *part = &args->part[i];
        if (part->first_y % 8 != 0 || part->first_h % 8 != 0 || part->b_NR.dims[0] > INT32_MAX / 2)
            return false;
        if (!tt_tensor_is_contiguous(part->b_NR) || !tt_tensor_is_contiguous(part->db_NR)) return false;
        if (part->db_NR.dtype != TT_F32 || !is_aligned(part->db_NR, 4)) return false;
    }
    return true;
}

/* The grid of a call: its column slices, and the rows and token slices whose partial sums have room. */
struct grid {
    struct kernel kernel;
    int across, rows, slices; /* rows of a pass */
};

bool plan_grid(const struct tt_stream *stream, const struct tt_lora_gradients_args *args, struct problem *p,
               struct grid *grid)
{
    struct tt_cuda_device *device = tt_cuda_device_of(stream);
    int shared_max = 0, each = 1;
    int64_t row_bytes = 0, slice_bytes = 0, half = TT_CUDA_GEMM_WORKSPACE_BYTES / 2;
    cudaDeviceGetAttribute(&shared_max, cudaDevAttrMaxSharedMemoryPerBlockOptin, device->index);
    *grid = {choose(p->r, shared_max), 0, 0, 0};
    if (grid->kernel.shared > shared_max) return false;
    for (int i = 0; i < args->count; i++) {
        const struct tt_lora_gradients_part &from = args->part[i];
        struct adapter &to = p->part[i];
        to.b = static_cast<const uint16_t *>(from.b_NR.data), to.n = (int)from.b_NR.dims[0];
        to.first_y = (int)from.first_y, to.first_h = (int)from.first_h, to.scaling = from.scaling;
        to.first_slice = grid->across;
        to.slices = (to.n + grid->kernel.warps * STRIP - 1) / (grid->kernel.warps * STRIP);
        grid->across += to.slices;
        row_bytes += to.slices > 1 ? (int64_t)to.slices * p->r * 4 : 0;
        slice_bytes += (int64_t)to.n * p->r * 4;
    }
    int64_t rows = args->dy_MN.dims[0], most = row_bytes > 0 ? half / row_bytes / TOKENS * TOKENS : rows;
    int64_t most_slices = half / slice_bytes, of_rows;
    if (most == 0 || most_slices == 0) return false;
    int64_t passes = (rows + most - 1) / most;
    grid->rows = (int)(((rows + passes - 1) / passes + TOKENS - 1) / TOKENS * TOKENS);
    of_rows = (grid->rows + TOKENS_MIN - 1) / TOKENS_MIN;
    cudaFuncSetAttribute(grid->kernel.run, cudaFuncAttributeMaxDynamicSharedMemorySize, grid->kernel.shared);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, grid->kernel.run, grid->kernel.warps * LANES,
                                                  (size_t)grid->kernel.shared);
    grid->slices = tt_cuda_slices(grid->across, (int)(most_slices < of_rows ? most_slices : of_rows),
                                  (each > 0 ? each : 1) * device->processors, 0.9);
    return true;
}

/* One pass over `rows` tokens, whose first pointers of dy, h and dh are set. */
void launch(struct tt_stream *stream, const struct tt_lora_gradients_args *args, const struct grid &grid,
            int rows, struct problem p)
{
    struct totals totals = {};
    float *sums = static_cast<float *>(tt_cuda_of(stream)->gemm_workspace);
    p.m = rows, totals.r = p.r;
    p.slice = ((rows + grid.slices - 1) / grid.slices + TOKENS - 1) / TOKENS * TOKENS;
    int slices = (rows + p.slice - 1) / p.slice;
    for (int i = 0; i < p.count; i++) {
        struct adapter &part = p.part[i];
        int64_t width = (int64_t)rows * p.r;
        if (part.slices > 1) {
            part.dh_sums = sums, sums += part.slices * width;
            add_total(&totals, {part.dh_sums, width, part.slices, 0, NULL, p.dh + part.first_h, p.dh_row,
                                part.scaling});
        }
        width = (int64_t)part.n * p.r;
        part.db_sums = sums, sums += slices * width;
        add_total(&totals, {part.db_sums, width, slices, 0, static_cast<float *>(args->part[i].db_NR.data),
                            NULL, 0, 1});
    }
    dim3 blocks((unsigned)grid.across, (unsigned)slices);
    grid.kernel
        .run<<<blocks, grid.kernel.warps * LANES, (size_t)grid.kernel.shared, tt_cuda_handle(stream)>>>(p);
    add_up<<<(unsigned)totals.blocks, FINISH_THREADS, 0, tt_cuda_handle(stream)>>>(totals);
}

} // namespace

extern "C" tt_status tt_cuda_lora_gradients(struct tt_stream *stream,
                                            const struct tt_lora_gradients_args *args)
{
    struct problem p = {};
    struct grid grid;
    if (!fits(args)) return tt_compose_lora_gradients(stream, args);
    p.r = (int)args->part[0].b_NR.dims[1], p.count = args->count;
    p.dy_row = args->dy_MN.strides[0], p.h_row = args->h_MR.strides[0], p.dh_row = args->dh_MR.strides[0];
    if (!plan_grid(stream, args, &p, &grid)) return tt_compose_lora_gradients(stream, args);
    for (int64_t first = 0; first < args->dy_MN.dims[0]; first += grid.rows) {
        int64_t left = args->dy_MN.dims[0] - first;
        p.dy = static_cast<const uint16_t *>(args->dy_MN.data) + first * p.dy_row;
        p.h = static_cast<const uint16_t *>(args->h_MR.data) + first * p.h_row;
        p.dh = static_cast<uint16_t *>(args->dh_MR.data) + first * p.dh_row;
        launch(stream, args, grid, (int)(left < grid.rows ? left : grid.rows), p);
    }
    return tt_cuda_launched(stream, "lora_gradients", &args->dy_MN);
}
