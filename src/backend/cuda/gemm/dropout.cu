/* ops/gemm_dropout.h in bf16. Elements are dropped in registers between memory and the tensor cores, so that a
 * pass reads x (or reads and writes dx) once for all adapters of a group. The generation of random numbers then
 * limits the speed.
 *
 * A lane moves 16 bytes at a time, the eight columns that share a random block. The assignment of columns to the
 * k (or n) of a fragment (mma.cuh) is arbitrary as long as both operands use the same one, so columns stay in
 * the lanes that loaded them. */
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include "backend/compose.h"
#include "backend/cuda/device_math.cuh"
#include "backend/cuda/gemm/slices.h"
#include "backend/cuda/mma.cuh"

namespace
{

/* SLICES_MAX: of the tokens */
constexpr int PARTS_MAX = TT_DROPOUT_PARTS, WARPS = 8, LANES = 32, THREADS = WARPS * LANES, SLICES_MAX = 128;

struct adapter {
    const uint16_t *a; /* [r, k] */
    float *lines;      /* partial sums of da: [slices, r, k] */
    struct round_keys keys;
    uint32_t threshold; /* in both halves of a word */
    float factor;       /* of elements that are kept; forward: times the scaling */
    int first;          /* first of its columns in h */
};

struct problem {
    uint16_t *wide, *narrow; /* x or dx [m, k]; h or dh [m, R] */
    int64_t wide_row, narrow_row;
    const int64_t *row_keys;
    int m, k, r;
    int slice; /* tokens of a thread block, a multiple of 16 */
    struct adapter part[PARTS_MAX];
};

__device__ __forceinline__ uint4 zeros()
{
    return make_uint4(0, 0, 0, 0);
}

/* Compares both halves of a word of random bits as fp16 (elementwise.h); returns a mask over two bf16. */
__device__ __forceinline__ uint32_t mask_of(uint32_t word, uint32_t threshold)
{
    uint32_t bits = word & (TT_DROPOUT_STEPS - 1) * 0x10001u;
    return __hge2_mask(reinterpret_cast<const __half2 &>(bits), reinterpret_cast<const __half2 &>(threshold));
}

/* The same for sums: a += low factor and b += high factor, where kept. */
__device__ __forceinline__ void add_kept(float &a, float &b, uint32_t word, const struct adapter &part,
                                         float low, float high)
{
    asm("{\n.reg .pred first, second;\n"
        "setp.ge.f16x2 first|second, %2, %3;\n"
        "@first fma.rn.f32 %0, %4, %6, %0;\n"
        "@second fma.rn.f32 %1, %5, %6, %1;\n}"
        : "+f"(a), "+f"(b)
        : "r"(word & (TT_DROPOUT_STEPS - 1) * 0x10001u), "r"(part.threshold), "f"(low), "f"(high),
          "f"(part.factor));
}

/* Drops from eight columns of a token; `block` is their first column / 8. */
__device__ __forceinline__ uint4 drop(const struct adapter &part, uint64_t row_key, uint32_t block, uint4 x)
{
    uint32_t words[4];
    random_block(part.keys, row_key, block, words);
    return make_uint4(x.x & mask_of(words[0], part.threshold), x.y & mask_of(words[1], part.threshold),
                      x.z & mask_of(words[2], part.threshold), x.w & mask_of(words[3], part.threshold));
}

/* Adds the sums of all warps into those of warp 0, pair by pair in a fixed order. */
template <int COUNT>
__device__ __forceinline__ void sum_warps(float (&sums)[COUNT], float (&shared)[WARPS / 2][COUNT][LANES])
{
    int warp = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
#pragma unroll
    for (int half = WARPS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (warp >= half && warp < 2 * half) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) shared[warp - half][i][lane] = sums[i];
        }
        __syncthreads();
        if (warp < half) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) sums[i] += shared[warp][i][lane];
        }
    }
}

/* h = drop(x) a^T for 32 tokens in two pieces of 16. The warps share the columns, 32 at a time: lane (g, t) has
 * columns 8 t to 8 t + 7 of tokens g and g + 8. Its words 0 and 1 are k 2t, 2t + 1, 2t + 8 and 2t + 9 of one
 * product, words 2 and 3 those of the next. */
template <int PARTS, int TILES> /* TILES of 8 ranks */
__global__ void __launch_bounds__(THREADS, 2) drop_down(const __grid_constant__ struct problem p)
{
    constexpr int PIECES = 2, SUMS = PARTS * TILES * PIECES * 4;
    __shared__ union {
        uint4 x[2][WARPS][PIECES * 2][LANES];
        float sums[WARPS / 2][SUMS][LANES];
    } shared;
    int warp = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES, g = lane / 4, t = lane % 4;
    uint64_t key[PIECES][2];
    auto token_of = [&](int i) { return min((int)blockIdx.x * 16 * PIECES + i * 8 + g, p.m - 1); };
#pragma unroll
    for (int i = 0; i < PIECES * 2; i++) key[i / 2][i % 2] = (uint64_t)p.row_keys[token_of(i)];
    float sums[SUMS] = {};
    auto tile = [&](int part, int n, int piece) -> float(&)[4] {
        return reinterpret_cast<float(&)[4]>(sums[((part * TILES + n) * PIECES + piece) * 4]);
    };
    auto fetch = [&](int column, int stage) {
#pragma unroll
        for (int i = 0; i < PIECES * 2 && column < p.k; i++)
            __pipeline_memcpy_async(&shared.x[stage][warp][i][lane],
                                    p.wide + token_of(i) * p.wide_row + column + 8 * t, 16);
        __pipeline_commit();
    };
    fetch(warp * 32, 0);
    for (int column = warp * 32, stage = 0; column < p.k; column += WARPS * 32, stage ^= 1) {
        uint4 x[PIECES][2];
        fetch(column + WARPS * 32, stage ^ 1);
        __pipeline_wait_prior(1);
#pragma unroll
        for (int i = 0; i < PIECES * 2; i++) x[i / 2][i % 2] = shared.x[stage][warp][i][lane];
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            uint4 kept[PIECES][2];
#pragma unroll
            for (int i = 0; i < PIECES * 2; i++)
                kept[i / 2][i % 2] =
                    drop(p.part[part], key[i / 2][i % 2], (uint32_t)(column / 8 + t), x[i / 2][i % 2]);
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                int rank = n * 8 + g;
                uint4 a = zeros();
                if (rank < p.r)
                    a = *reinterpret_cast<const uint4 *>(p.part[part].a + (int64_t)rank * p.k + column +
                                                         8 * t);
#pragma unroll
                for (int i = 0; i < PIECES; i++) {
                    const uint4 &low = kept[i][0], &high = kept[i][1];
                    multiply_piece(tile(part, n, i), {low.x, high.x, low.y, high.y}, a.x, a.y);
                    multiply_piece(tile(part, n, i), {low.z, high.z, low.w, high.w}, a.z, a.w);
                }
            }
        }
    }
    sum_warps(sums, shared.sums);
    if (warp > 0) return;
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < PIECES * 2; i++) {
                int token = (int)blockIdx.x * 16 * PIECES + i * 8 + g;
                const float(&sum)[4] = tile(part, n, i / 2);
                float factor = p.part[part].factor, first = sum[i % 2 * 2], second = sum[i % 2 * 2 + 1];
                if (token >= p.m || n * 8 >= p.r) continue;
                uint16_t *to = p.narrow + token * p.narrow_row + p.part[part].first + n * 8 + 2 * t;
                *reinterpret_cast<uint32_t *>(to) = pack_bf16(first * factor, second * factor);
            }
}

/* Partial sums of da over a slice of the tokens, for 64 columns. The warps share the tokens, 16 at a time: lane
 * (g, t) has columns 8 g to 8 g + 7 of tokens 2t, 2t + 1, 2t + 8 and 2t + 9. Product q has columns 8 g + 2q as
 * its rows g and 8 g + 2q + 1 as its rows g + 8. dh passes through shared memory, which transposes it. */
template <int PARTS, int TILES> struct weights_memory {
    /* PITCH puts rows into different banks */
    static constexpr int NARROW = PARTS * TILES, PITCH = (NARROW + 1) / 2 * 16 + 8;
    union {
        uint4 x[2][WARPS][4][LANES];
        float sums[WARPS / 2][NARROW * 4][LANES];
    };
    uint4 hidden[2][WARPS][16][PITCH / 8];
};

template <int PARTS, int TILES>
__global__ void __launch_bounds__(THREADS, PARTS *TILES > 2 ? 1 : 2)
    drop_weights(const __grid_constant__ struct problem p)
{
    using memory = weights_memory<PARTS, TILES>;
    constexpr int NARROW = memory::NARROW;
    extern __shared__ uint4 dynamic[];
    memory &shared = *reinterpret_cast<memory *>(dynamic);
    int warp = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES, g = lane / 4, t = lane % 4;
    int column = (int)blockIdx.x * 64 + 8 * g, begin = (int)blockIdx.y * p.slice,
        end = min(begin + p.slice, p.m);
    bool inside = column < p.k;
    float sums[4][NARROW * 4] = {};
    auto token_of = [&](int first, int i) { return min(first + 2 * t + i / 2 * 8 + i % 2, p.m - 1); };
    auto fetch = [&](int first, int stage) {
#pragma unroll
        for (int i = 0; i < 4 && first < end; i++)
            __pipeline_memcpy_async(&shared.x[stage][warp][i][lane],
                                    p.wide + token_of(first, i) * p.wide_row + (inside ? column : 0), 16);
        for (int i = lane; i < 16 * NARROW && first < end; i += LANES) {
            int token = first + i / NARROW, n = i % NARROW, rank = n % TILES * 8;
            bool there = token < end && rank < p.r;
            const uint16_t *from =
                p.narrow + (there ? token * p.narrow_row + p.part[n / TILES].first + rank : 0);
            __pipeline_memcpy_async(&shared.hidden[stage][warp][i / NARROW][n], from, 16, there ? 0 : 16);
        }
        __pipeline_commit();
    };
    fetch(begin + warp * 16, 0);
    for (int first = begin + warp * 16, stage = 0; first < end; first += WARPS * 16, stage ^= 1) {
        uint4 x[4];
        uint64_t key[4];
        uint32_t b[(NARROW + 1) / 2][4];
#pragma unroll
        for (int i = 0; i < 4; i++) key[i] = (uint64_t)__ldg(&p.row_keys[token_of(first, i)]);
        fetch(first + WARPS * 16, stage ^ 1);
        __pipeline_wait_prior(1);
        __syncwarp(); /* lanes transpose what other lanes have copied */
        uint32_t pieces = shared_address(&shared.hidden[stage][warp][lane % 16][lane / 16]);
#pragma unroll
        for (int n = 0; n < (NARROW + 1) / 2; n++) load_pieces_transposed(b[n], pieces + n * 32);
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = shared.x[stage][warp][i][lane];
        __syncwarp();
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            uint32_t kept[4][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint4 words = drop(p.part[part], key[i], (uint32_t)(column / 8), x[i]);
                kept[i][0] = words.x, kept[i][1] = words.y, kept[i][2] = words.z, kept[i][3] = words.w;
            }
#pragma unroll
            for (int q = 0; q < 4; q++) {
                uint32_t a[4] = {
                    __byte_perm(kept[0][q], kept[1][q], 0x5410), __byte_perm(kept[0][q], kept[1][q], 0x7632),
                    __byte_perm(kept[2][q], kept[3][q], 0x5410), __byte_perm(kept[2][q], kept[3][q], 0x7632)};
#pragma unroll
                for (int n = part * TILES; n < (part + 1) * TILES; n++)
                    multiply_piece(reinterpret_cast<float(&)[4]>(sums[q][n * 4]), a, b[n / 2][n % 2 * 2],
                                   b[n / 2][n % 2 * 2 + 1]);
            }
        }
    }
#pragma unroll
    for (int q = 0; q < 4; q++) {
        sum_warps(sums[q], shared.sums);
        if (warp > 0 || !inside) continue;
#pragma unroll
        for (int n = 0; n < NARROW; n++) {
            const struct adapter &part = p.part[n / TILES];
            int rank = n % TILES * 8 + 2 * t;
            if (n % TILES * 8 >= p.r) continue;
            float *to = part.lines + ((int64_t)blockIdx.y * p.r + rank) * p.k + column + 2 * q;
            const float *sum = &sums[q][n * 4];
            *reinterpret_cast<float2 *>(to) = make_float2(sum[0] * part.factor, sum[2] * part.factor);
            *reinterpret_cast<float2 *>(to + p.k) = make_float2(sum[1] * part.factor, sum[3] * part.factor);
        }
    }
}

/* dx += drop'(dh a) for a slice of the tokens. A warp has 32 columns, keeps their part of a in registers, and
 * processes 16 tokens at a time: lane (g, t) has columns 8 t to 8 t + 7 of tokens g and g + 8. The columns 2t
 * and 2t + 1 of product j are its columns 2 j and 2 j + 1. */
template <int PARTS, int TILES>
__global__ void __launch_bounds__(THREADS, PARTS *TILES > 6 ? 1 : 2)
    drop_input(const __grid_constant__ struct problem p)
{
    constexpr int STEPS = (TILES + 1) / 2; /* steps of 16 ranks */
    int warp = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES, g = lane / 4, t = lane % 4;
    int first_column = ((int)blockIdx.x * WARPS + warp) * 32, column = first_column + 8 * t;
    int begin = (int)blockIdx.y * p.slice, end = min(begin + p.slice, p.m);
    if (first_column >= p.k) return;
    uint32_t b[PARTS][STEPS][4][2];
#pragma unroll
    for (int i = 0; i < PARTS * STEPS * 8; i++) {
        int part = i / 8 / STEPS, rank = i / 8 % STEPS * 16 + i % 2 * 8 + 2 * t, j = i / 2 % 4;
        const uint16_t *from =
            p.part[part].a + (int64_t)rank * p.k + first_column + g / 2 * 8 + 2 * j + g % 2;
        b[part][i / 8 % STEPS][j][i % 2] = rank < p.r ? (uint32_t)from[0] | (uint32_t)from[p.k] << 16 : 0;
    }
    uint4 next[2];
    uint64_t next_key[2];
    auto fetch = [&](int first) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int token = min(first + i * 8 + g, p.m - 1);
            next[i] = *reinterpret_cast<const uint4 *>(p.wide + token * p.wide_row + column);
            next_key[i] = (uint64_t)__ldg(&p.row_keys[token]);
        }
    };
    fetch(begin);
    for (int first = begin; first < end; first += 16) {
        float out[2][8];
        uint64_t key[2] = {next_key[0], next_key[1]};
        const uint16_t *hidden[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            vec<bf16, 8> v = {{next[i].x, next[i].y, next[i].z, next[i].w}};
            widen(v, out[i]);
            hidden[i] = p.narrow + min(first + i * 8 + g, p.m - 1) * p.narrow_row + 2 * t;
        }
        if (first + 16 < end) fetch(first + 16);
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const struct adapter &adapter = p.part[part];
            float through[4][4] = {};
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                uint32_t a[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int rank = step * 16 + i / 2 * 8;
                    const uint16_t *from = hidden[i % 2] + adapter.first + rank;
                    a[i] = rank < p.r ? __ldg(reinterpret_cast<const uint32_t *>(from)) : 0;
                }
#pragma unroll
                for (int j = 0; j < 4; j++)
                    multiply_piece(through[j], a, b[part][step][j][0], b[part][step][j][1]);
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t words[4];
                random_block(adapter.keys, key[i], (uint32_t)(column / 8), words);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    float low = through[j][2 * i], high = through[j][2 * i + 1];
                    add_kept(out[i][2 * j], out[i][2 * j + 1], words[j], adapter, low, high);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            vec<bf16, 8> rounded;
            narrow(rounded, out[i]);
            int token = first + i * 8 + g;
            if (token < end) store(reinterpret_cast<bf16 *>(p.wide + token * p.wide_row + column), rounded);
        }
    }
}

/* Whether there is a kernel for the parts, and all addresses and strides allow accesses of 16 bytes. */
bool fits(const struct tt_dropout_parts &parts, bool weights, const tt_tensor &wide, const tt_tensor &narrow)
{
    if (!tt_dropout_is_one_pass(wide, &parts, weights)) return false;
    if (!is_aligned(wide, 8) || !is_aligned(narrow, 8)) return false;
    if (wide.dims[0] > INT32_MAX / 2 || wide.dims[1] > INT32_MAX / 2) return false;
    for (int i = 0; i < parts.count; i++) {
        const tt_tensor &matrix = weights ? parts.part[i].da_RK : parts.part[i].a_RK;
        if (parts.part[i].first_h % 8 != 0 || !tt_tensor_is_contiguous(matrix)) return false;
        if (weights ? matrix.dtype != TT_F32 : !is_aligned(matrix, 8)) return false;
    }
    return true;
}

struct problem problem_of(const tt_tensor &wide, const tt_tensor &narrow,
                          const struct tt_dropout_parts &parts, int64_t r)
{
    struct problem p = {};
    p.wide = static_cast<uint16_t *>(wide.data), p.wide_row = wide.strides[0];
    p.narrow = static_cast<uint16_t *>(narrow.data), p.narrow_row = narrow.strides[0];
    p.row_keys = static_cast<const int64_t *>(parts.row_keys_M.data);
    p.m = (int)wide.dims[0], p.k = (int)wide.dims[1], p.r = (int)r;
    return p;
}

struct adapter adapter_of(const struct tt_dropout_part &part)
{
    struct adapter adapter = {};
    adapter.a = static_cast<const uint16_t *>(part.a_RK.data);
    adapter.keys = make_round_keys(part.rng);
    adapter.threshold = tt_dropout_threshold(part.p) * 0x10001u;
    adapter.factor = tt_dropout_factor(part.p);
    adapter.first = (int)part.first_h;
    return adapter;
}

struct kernel {
    void (*run)(struct problem p);
    int shared; /* bytes */
};

struct kernels {
    struct kernel down, weights, input;
};

template <int PARTS, int TILES> struct kernels kernels_of()
{
    return {{drop_down<PARTS, TILES>, 0},
            {drop_weights<PARTS, TILES>, (int)sizeof(weights_memory<PARTS, TILES>)},
            {drop_input<PARTS, TILES>, 0}};
}

struct kernels choose(int r, int count)
{
    switch (count * 100 + (r <= 8 ? 1 : r <= 16 ? 2 : r <= 32 ? 4 : 8)) {
    case 101:
        return kernels_of<1, 1>();
    case 102:
        return kernels_of<1, 2>();
    case 104:
        return kernels_of<1, 4>();
    case 108:
        return kernels_of<1, 8>();
    case 201:
        return kernels_of<2, 1>();
    case 202:
        return kernels_of<2, 2>();
    case 301:
        return kernels_of<3, 1>();
    default:
        return kernels_of<3, 2>();
    }
}

/* Errors are left to cudaGetLastError. */
void launch(const struct kernel &kernel, const struct problem &p, dim3 blocks, cudaStream_t stream)
{
    kernel.run<<<blocks, THREADS, (size_t)kernel.shared, stream>>>(p);
}

/* The number of thread blocks that the GPU runs at a time. */
int blocks_at_once(const struct tt_stream *stream, const struct kernel &kernel)
{
    int each = 1;
    cudaFuncSetAttribute(kernel.run, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel.run, THREADS, (size_t)kernel.shared);
    return (each > 0 ? each : 1) * tt_cuda_device_of(stream)->processors;
}

/* Chooses the thread blocks along the columns, `columns` each, and the slices of the tokens (slices.h). */
dim3 blocks_for(struct problem *p, int columns, int tokens, int at_once, double turns_min, int slices_max)
{
    int across = (p->k + columns - 1) / columns, most = (p->m + tokens - 1) / tokens;
    int slices = tt_cuda_slices(across, most < slices_max ? most : slices_max, at_once, turns_min);
    p->slice = ((p->m + slices - 1) / slices + tokens - 1) / tokens * tokens;
    return dim3((unsigned)across, (unsigned)((p->m + p->slice - 1) / p->slice));
}

} // namespace

extern "C" tt_status tt_cuda_gemm_dropout(struct tt_stream *stream, const struct tt_gemm_dropout_args *args)
{
    const struct tt_dropout_parts &parts = args->parts;
    if (!fits(parts, false, args->x_MK, args->h_MR)) return tt_compose_gemm_dropout(stream, args);
    struct problem p = problem_of(args->x_MK, args->h_MR, parts, parts.part[0].a_RK.dims[0]);
    int at_once = tt_dropout_together(p.r, parts.count);
    struct kernel kernel = choose(p.r, at_once).down;
    for (int first = 0; first < parts.count; first += at_once) {
        for (int i = 0; i < at_once; i++) {
            p.part[i] = adapter_of(parts.part[first + i]);
            p.part[i].factor *= parts.part[first + i].scaling;
        }
        launch(kernel, p, dim3((unsigned)((p.m + 31) / 32)), tt_cuda_handle(stream));
    }
    return tt_cuda_launched(stream, "gemm_dropout", &args->x_MK);
}

extern "C" tt_status tt_cuda_gemm_dropout_weights(struct tt_stream *stream,
                                                  const struct tt_gemm_dropout_weights_args *args)
{
    const struct tt_dropout_parts &parts = args->parts;
    if (!fits(parts, true, args->x_MK, args->dh_MR)) return tt_compose_gemm_dropout_weights(stream, args);
    struct problem p = problem_of(args->x_MK, args->dh_MR, parts, parts.part[0].da_RK.dims[0]);
    int at_once = tt_dropout_together(p.r, parts.count);
    int64_t width = (int64_t)p.r * p.k, fits_slices = TT_CUDA_SCRATCH_BYTES / (width * 4 * at_once);
    if (fits_slices == 0) return tt_compose_gemm_dropout_weights(stream, args);
    struct kernel kernel = choose(p.r, at_once).weights;
    dim3 blocks = blocks_for(&p, 64, 16 * WARPS, blocks_at_once(stream, kernel), 0.9,
                             fits_slices > SLICES_MAX ? SLICES_MAX : (int)fits_slices);
    float *lines = static_cast<float *>(tt_cuda_scratch(stream));
    for (int first = 0; first < parts.count; first += at_once) {
        for (int i = 0; i < at_once; i++) {
            p.part[i] = adapter_of(parts.part[first + i]);
            p.part[i].lines = lines + i * width * blocks.y;
        }
        launch(kernel, p, blocks, tt_cuda_handle(stream));
        for (int i = 0; i < at_once; i++)
            launch_add_lines(stream, static_cast<float *>(parts.part[first + i].da_RK.data), p.part[i].lines,
                             (int)blocks.y, width);
    }
    return tt_cuda_launched(stream, "gemm_dropout_weights", &args->x_MK);
}

extern "C" tt_status tt_cuda_gemm_dropout_input(struct tt_stream *stream,
                                                const struct tt_gemm_dropout_input_args *args)
{
    const struct tt_dropout_parts &parts = args->parts;
    if (!fits(parts, false, args->dx_MK, args->dh_MR)) return tt_compose_gemm_dropout_input(stream, args);
    struct problem p = problem_of(args->dx_MK, args->dh_MR, parts, parts.part[0].a_RK.dims[0]);
    int at_once = tt_dropout_together(p.r, parts.count);
    struct kernel kernel = choose(p.r, at_once).input;
    dim3 blocks = blocks_for(&p, 32 * WARPS, 16, blocks_at_once(stream, kernel), 2.5, SLICES_MAX);
    for (int first = 0; first < parts.count; first += at_once) {
        for (int i = 0; i < at_once; i++) p.part[i] = adapter_of(parts.part[first + i]);
        launch(kernel, p, blocks, tt_cuda_handle(stream));
    }
    return tt_cuda_launched(stream, "gemm_dropout_input", &args->dx_MK);
}
