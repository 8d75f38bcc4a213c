/* The columns of a tile of few_tiles.cuh are neighbours, or the two halves of a head, which are rotated together, or
 * columns of gate and up.
 *
 * H200, 8B bf16, one row, ms a step, 2026-11-25: cuBLASLt 4.82; this kernel with 6 stages and a block on each
 * processor 4.68; 4 stages and two blocks 4.71; through registers instead of the queue 5.04, because the compiler kept
 * few loads under way. With 16 rows 5.93, cuBLASLt 5.14. */
#include "backend/cuda/gemm/few.h"

#include "backend/cuda/gemm/few_tiles.cuh"

enum { ROWS_MAX = 4 }; /* from five rows on cuBLASLt is close: 4.96 ms a step, 4.78 with four */

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
    few_tiles<STAGES>(
        tile_count(p), p.k,
        [&](int tile, int g, int k) -> few_sources {
            few_runs runs = runs_of(p, tile);
            /* Columns beyond the last read the last one, and are not stored. */
            return {p.w + min(runs.first + g, p.n - 1) * p.w_row + k,
                    p.w + min(runs.second + g, p.n - 1) * p.w_row + k, p.x + (g < p.m ? g : 0) * p.x_row + k,
                    g < p.m};
        },
        [&](int) { return p.m; },
        [&](int tile, int row, int c, float a, float b) {
            few_runs runs = runs_of(p, tile);
            finish<T, KIND>(p, row, runs.first + c, runs.second + c, a, b);
        });
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
    constexpr int bytes = few_queue_bytes(STAGES);
    TT_TRY(tt_cuda_check(
        cudaFuncSetAttribute(few_kernel<T, KIND, STAGES>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        stream, op));
    int blocks = tiles < processors ? tiles : processors;
    few_kernel<T, KIND, STAGES><<<blocks, THREADS, bytes, tt_cuda_handle(stream)>>>(p);
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
    return !rotation->pairs && rotation->head_dim % (2 * RUN) == 0 &&
           rotation->columns % rotation->head_dim == 0 && cos.dims[1] == half && cos.strides[0] == half &&
           sin.strides[0] == half;
}

tt_status tt_cuda_gemm_few_lora(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    const struct tt_rotation *rotation = &args->rotation;
    if (!args->trans_w || args->low.count > 0 || rotation->columns == 0 || args->y_MN.dtype != TT_BF16 ||
        args->addend_MN.dtype != TT_DTYPE_NONE || !takes(args->x_MK, args->w.dense) ||
        !takes_rotation(rotation))
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
