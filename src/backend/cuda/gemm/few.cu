/* A thread block computes a tile of 16 columns of y at a time; its warps take turns along k, DEPTH at a time, and
 * their sums are added in the order of the warps. The columns are two runs of 8: neighbours, or the two halves of a
 * head, which are rotated together, or columns of gate and up.
 *
 * A lane loads 16 bytes, 8 neighbouring k, of a row of W or x. mma.sync wants other k in a lane, but the order of k in
 * a product is free, as long as it is the same on both sides: words 0 and 1 of both are one product, words 2 and 3
 * the next. So a lane needs exactly what it loads itself, and shared memory is a queue of each lane's own pieces,
 * without barriers. The queue goes on over the ends of tiles: a block has its tiles one after the other.
 *
 * H200, 8B bf16, one row, ms a step, 2026-11-25: cuBLASLt 4.82; this kernel with 6 stages and a block on each
 * processor 4.68; 4 stages and two blocks 4.71; through registers instead of the queue 5.04, because the compiler kept
 * few loads under way. With 16 rows 5.93, cuBLASLt 5.14. */
#include <cuda_bf16.h>

#include "backend/cuda/gemm/few.h"
#include "backend/cuda/mma.cuh"

enum {
    RUN = 8,  /* columns */
    ROWS = 8, /* of x in a product of mma.sync */
    DEPTH = 64,
    CHUNKS = DEPTH / 32,
    PIECES = 3 * CHUNKS, /* of 16 bytes in a lane: two of W and one of x for each 32 k */
    WARPS = 8,
    THREADS = WARPS * 32,
    ROWS_MAX = 4, /* from five rows on cuBLASLt is close: 4.96 ms a step, 4.78 with four */
};

enum few_kind { FEW_PLAIN, FEW_ROTATED, FEW_SWIGLU };

struct few_problem {
    const __nv_bfloat16 *x, *w;
    void *y;
    const void *addend; /* NULL: none */
    int64_t x_row, w_row, y_row;
    int m, n, k; /* n: rows of w */
    float alpha, beta;
    /* Columns from `paired` on are neighbours; before, the runs of a tile are `half` apart in groups of 2 * half:
     * heads, or all of gate and up. */
    int paired, half;
    const int32_t *positions;
    const float *cos, *sin; /* [positions, half] */
};

/* First columns of the two runs of a tile. */
struct few_runs {
    int first, second;
};

static __host__ __device__ __forceinline__ int tile_count(const few_problem &p)
{
    return p.paired / (2 * RUN) + (p.n - p.paired + 2 * RUN - 1) / (2 * RUN);
}

static __device__ __forceinline__ few_runs runs_of(const few_problem &p, int tile)
{
    int pairs = p.paired / (2 * RUN);
    if (tile >= pairs) {
        int first = p.paired + (tile - pairs) * 2 * RUN;
        return {first, first + RUN};
    }
    int in_half = p.half / RUN, first = tile / in_half * 2 * p.half + tile % in_half * RUN;
    return {first, first + p.half};
}

/* Zeros where not `is`. */
static __device__ __forceinline__ void copy_piece(uint32_t to, const __nv_bfloat16 *from, bool is)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(from), "r"(is ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ float widen(const float *from)
{
    return *from;
}
static __device__ __forceinline__ float widen(const __nv_bfloat16 *from)
{
    return __bfloat162float(*from);
}
static __device__ __forceinline__ void narrow(float *to, float x)
{
    *to = x;
}
static __device__ __forceinline__ void narrow(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}

template <typename T>
static __device__ __forceinline__ void put(const few_problem &p, int row, int column, float sum)
{
    int64_t at = row * p.y_row + column;
    if (column >= p.n) return;
    sum *= p.alpha;
    if (p.addend != NULL) sum += p.beta * widen((const T *)p.addend + at);
    narrow((T *)p.y + at, sum);
}

/* Stores the sums of two columns of a row, one of each run. */
template <typename T, int KIND>
static __device__ __forceinline__ void finish(const few_problem &p, int row, int first, int second, float a,
                                              float b)
{
    if (KIND == FEW_SWIGLU) {
        narrow((T *)p.y + row * p.y_row + first, a / (1.0f + expf(-a)) * b);
        return;
    }
    if (KIND == FEW_ROTATED && first < p.paired) {
        int64_t at = (int64_t)p.positions[row] * p.half + first % (2 * p.half);
        float c = p.cos[at], s = p.sin[at], rotated = a * c - b * s;
        b = b * c + a * s;
        a = rotated;
    }
    put<T>(p, row, first, a);
    put<T>(p, row, second, b);
}

template <typename T, int KIND, int STAGES>
static __global__ void __launch_bounds__(THREADS) few_kernel(const __grid_constant__ few_problem p)
{
    extern __shared__ uint4 queue[];
    __shared__ float shared[WARPS][ROWS][2 * RUN];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int tiles = tile_count(p), own_steps = (p.k / DEPTH - warp + WARPS - 1) / WARPS;
    uint4 *own = queue + (size_t)warp * STAGES * PIECES * 32 + lane;
    uint32_t own_address = shared_address(own);
    const __nv_bfloat16 *x = p.x + (g < p.m ? g : 0) * p.x_row;
    int next_tile = blockIdx.x, next_step = 0, slot = 0, taken = 0;
    float sums[4] = {};

    auto load_next = [&]() {
        if (own_steps > 0 && next_tile < tiles) {
            few_runs runs = runs_of(p, next_tile);
            int k = (next_step * WARPS + warp) * DEPTH + t * 8;
            uint32_t to = own_address + slot * (PIECES * 32 * 16);
            /* Columns beyond the last read the last one, and are not stored. */
            const __nv_bfloat16 *first = p.w + min(runs.first + g, p.n - 1) * p.w_row + k;
            const __nv_bfloat16 *second = p.w + min(runs.second + g, p.n - 1) * p.w_row + k;
#pragma unroll
            for (int i = 0; i < CHUNKS; i++) {
                copy_piece(to + 3 * i * 512, first + i * 32, true);
                copy_piece(to + (3 * i + 1) * 512, second + i * 32, true);
                copy_piece(to + (3 * i + 2) * 512, x + k + i * 32, g < p.m);
            }
            if (++next_step == own_steps) {
                next_step = 0;
                next_tile += gridDim.x;
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        slot = slot + 1 == STAGES ? 0 : slot + 1;
    };

    for (int i = 0; i < STAGES - 1; i++) load_next();
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        for (int step = 0; step < own_steps; step++) {
            uint4 pieces[PIECES];
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
#pragma unroll
            for (int i = 0; i < PIECES; i++) pieces[i] = own[taken * (PIECES * 32) + i * 32];
            load_next();
#pragma unroll
            for (int i = 0; i < CHUNKS; i++) {
                const uint4 &a = pieces[3 * i], &b = pieces[3 * i + 1], &row = pieces[3 * i + 2];
                multiply_piece(sums, {a.x, b.x, a.y, b.y}, row.x, row.y);
                multiply_piece(sums, {a.z, b.z, a.w, b.w}, row.z, row.w);
            }
            taken = taken + 1 == STAGES ? 0 : taken + 1;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            shared[warp][2 * t + i % 2][g + i / 2 * RUN] = sums[i];
            sums[i] = 0.0f;
        }
        __syncthreads();
        few_runs runs = runs_of(p, tile);
        for (int i = threadIdx.x; i < p.m * RUN; i += THREADS) {
            int row = i / RUN, c = i % RUN;
            float a = 0.0f, b = 0.0f;
            for (int w = 0; w < WARPS; w++) {
                a += shared[w][row][c];
                b += shared[w][row][c + RUN];
            }
            finish<T, KIND>(p, row, runs.first + c, runs.second + c, a, b);
        }
        __syncthreads();
    }
}

static bool is_aligned(tt_tensor x)
{
    return (uintptr_t)x.data % 16 == 0 && (x.dims[0] <= 1 || x.strides[0] % 8 == 0);
}

/* Whether the kernel serves x W^T. */
static bool takes(tt_tensor x, tt_tensor w)
{
    return x.dtype == TT_BF16 && w.dtype == TT_BF16 && x.dims[0] >= 1 && x.dims[0] <= ROWS_MAX &&
           x.dims[1] % DEPTH == 0 && x.dims[1] >= DEPTH && x.dims[1] <= INT32_MAX && w.dims[0] >= 2 * RUN &&
           w.dims[0] <= INT32_MAX - 2 * RUN && is_aligned(x) && is_aligned(w);
}

static few_problem problem_of(tt_tensor x, tt_tensor w, tt_tensor y)
{
    few_problem p = {};
    p.x = (const __nv_bfloat16 *)x.data;
    p.w = (const __nv_bfloat16 *)w.data;
    p.y = y.data;
    p.x_row = x.strides[0];
    p.w_row = w.strides[0];
    p.y_row = y.strides[0];
    p.m = (int)x.dims[0];
    p.n = (int)w.dims[0];
    p.k = (int)x.dims[1];
    p.alpha = 1.0f;
    return p;
}

template <typename T, int KIND, int STAGES>
static tt_status launch_stages(struct tt_stream *stream, const few_problem &p, const char *op)
{
    int tiles = tile_count(p), processors = tt_cuda_device_of(stream)->processors;
    const int bytes = WARPS * STAGES * PIECES * 32 * 16;
    TT_TRY(tt_cuda_check(cudaFuncSetAttribute(few_kernel<T, KIND, STAGES>,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                         stream, op));
    few_kernel<T, KIND, STAGES>
        <<<tiles < processors ? tiles : processors, THREADS, bytes, tt_cuda_handle(stream)>>>(p);
    return tt_cuda_launched(stream, op, NULL);
}

/* The queue of six stages takes 147 KB, which compute capability 8.9 has not got. */
template <typename T, int KIND>
static tt_status launch(struct tt_stream *stream, const few_problem &p, const char *op)
{
    int architecture = tt_cuda_device_of(stream)->architecture;
    return architecture == 80 || architecture >= 90 ? launch_stages<T, KIND, 6>(stream, p, op)
                                                    : launch_stages<T, KIND, 3>(stream, p, op);
}

tt_status tt_cuda_gemm_few(struct tt_stream *stream, const struct tt_gemm_args *args)
{
    if (args->trans_a || !args->trans_b || !takes(args->a, args->b)) return TT_ERR_UNSUPPORTED;
    few_problem p = problem_of(args->a, args->b, args->c);
    if (args->beta != 0.0f) p.addend = args->addend.dtype != TT_DTYPE_NONE ? args->addend.data : args->c.data;
    p.alpha = args->alpha;
    p.beta = args->beta;
    if (args->c.dtype == TT_F32) return launch<float, FEW_PLAIN>(stream, p, "gemm");
    return launch<__nv_bfloat16, FEW_PLAIN>(stream, p, "gemm");
}

/* Heads in whole runs, and tables without gaps. */
static bool takes_rotation(const struct tt_rotation *rotation)
{
    tt_tensor cos = rotation->cos_PE, sin = rotation->sin_PE;
    int64_t half = rotation->head_dim / 2;
    return !rotation->pairs && rotation->head_dim % (2 * RUN) == 0 && rotation->columns % rotation->head_dim == 0 &&
           cos.dims[1] == half && cos.strides[0] == half && sin.strides[0] == half;
}

tt_status tt_cuda_gemm_few_lora(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    const struct tt_rotation *rotation = &args->rotation;
    if (!args->trans_w || args->low.count > 0 || rotation->columns == 0 || args->y_MN.dtype != TT_BF16 ||
        args->addend_MN.dtype != TT_DTYPE_NONE || !takes(args->x_MK, args->w.dense) || !takes_rotation(rotation))
        return TT_ERR_UNSUPPORTED;
    few_problem p = problem_of(args->x_MK, args->w.dense, args->y_MN);
    p.paired = (int)rotation->columns;
    p.half = (int)rotation->head_dim / 2;
    p.positions = (const int32_t *)rotation->positions_T.data;
    p.cos = (const float *)rotation->cos_PE.data;
    p.sin = (const float *)rotation->sin_PE.data;
    return launch<__nv_bfloat16, FEW_ROTATED>(stream, p, "gemm_lora");
}

tt_status tt_cuda_gemm_few_swiglu(struct tt_stream *stream, const struct tt_gemm_swiglu_args *args)
{
    int64_t f = args->act_MF.dims[1];
    if (args->keep || args->low.count > 0 || args->activation != TT_ACTIVATION_SILU || f % RUN != 0 ||
        args->act_MF.dtype != TT_BF16 || !takes(args->x_MK, args->w_2FK.dense))
        return TT_ERR_UNSUPPORTED;
    few_problem p = problem_of(args->x_MK, args->w_2FK.dense, args->act_MF);
    p.paired = (int)(2 * f);
    p.half = (int)f;
    return launch<__nv_bfloat16, FEW_SWIGLU>(stream, p, "gemm_swiglu");
}
