/* Shared by the kernels of wide.h: tiles in shared memory, their loads, products, and the writing of sums.
 *
 * A tile of R rows is stored as chunks of 64 columns, [R][64] each, in the layout of the 128-byte swizzle: the 16-byte
 * unit u of row r is at u ^ r % 8 of its row. R is 64 or 32. */
#ifndef TT_BACKEND_CUDA_ATTENTION_WIDE_CUH
#define TT_BACKEND_CUDA_ATTENTION_WIDE_CUH

#include "backend/cuda/attention/wide.h"
#include "backend/cuda/gemm/hopper.cuh"

namespace
{

typedef __nv_bfloat16 bf16;

enum {
    COLUMNS = 512,
    ROWS = 64,
    BOX = 32 * 64, /* elements that one copy brings */
    GROUP = 128,
    LOADER = 2 * GROUP, /* the thread that loads, the first of its group */
    THREADS = LOADER + GROUP,
    LOADER_REGISTERS = 24, /* of a thread; a block begins with 168 */
    PRODUCT_REGISTERS = 240,
    ROW_BYTES = 128,
    EIGHT_ROWS = 8 * ROW_BYTES,
};

/* Blocks of other rows that a block visits, of each head that it visits. */
struct tile_range {
    int begin, count;
};

/* The tiles of keys that the block's queries see; a valid block sees one key at least. */
template <int TILE>
__device__ __forceinline__ tile_range keys_seen(const tt_attention_problem &p, const block_span &span)
{
    int limit = min(span.first + ROWS, span.length_q) + span.offset;
    int begin = p.window > 0 ? max(0, span.first + span.offset - p.window + 1) / TILE : 0;
    return {begin, (limit + TILE - 1) / TILE - begin};
}

/* The tiles of queries that see the block's keys. */
template <int TILE>
__device__ __forceinline__ tile_range queries_seeing(const tt_attention_problem &p, const block_span &span)
{
    int last_key = min(span.first + ROWS, span.length_k) - 1;
    int begin = max(0, span.first - span.offset), limit = span.length_q;
    if (p.window > 0) limit = min(limit, last_key - span.offset + p.window);
    if (limit <= begin) return {0, 0};
    return {begin / TILE, (limit + TILE - 1) / TILE - begin / TILE};
}

/* The part of a tile that is seen: of the block's row r the columns low + r <= column < high + r, below count. */
struct band {
    int low, high, count;
    __device__ __forceinline__ bool is_whole(int columns) const
    {
        return low + ROWS - 1 <= 0 && high >= columns && count >= columns;
    }
    __device__ __forceinline__ bool sees(int row, int column) const
    {
        return column >= low + row && column < high + row && column < count;
    }
};

/* Columns are keys, from `key` on. */
__device__ __forceinline__ band band_of_keys(const tt_attention_problem &p, const block_span &span, int key)
{
    int high = span.first + span.offset + 1 - key;
    return {p.window > 0 ? high - p.window : -(1 << 29), high, span.length_k - key};
}

/* Columns are queries, from `query` on. */
__device__ __forceinline__ band band_of_queries(const tt_attention_problem &p, const block_span &span,
                                                int query)
{
    int low = span.first - span.offset - query;
    return {low, p.window > 0 ? low + p.window : 1 << 29, span.length_q - query};
}

#if defined(TT_HOPPER)

struct ring {
    int slot = 0;
    uint32_t phase = 0;

    template <int SLOTS> TT_DEVICE void next()
    {
        if (++slot < SLOTS) return;
        slot = 0;
        phase ^= 1;
    }
};

/* Synchronizes the two warp groups. */
TT_DEVICE void groups_sync()
{
    asm volatile("bar.sync 1, 256;" ::: "memory");
}

/* The reads of the calling warp group are over. */
TT_DEVICE void release(uint64_t *barrier)
{
    if (threadIdx.x % GROUP == 0) barrier_arrive(barrier);
}

/* Copies CHUNKS x 64 columns of RANGE rows (64 or 32) of a head. */
template <int RANGE, int CHUNKS>
TT_DEVICE void copy_rows(bf16 *to, const CUtensorMap *map, uint64_t *barrier, int column, int head, int row)
{
    static_assert(RANGE % 32 == 0, "whole boxes");
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int b = 0; b < RANGE / 32; b++)
            copy_tile_3d(to + c * RANGE * 64 + b * BOX, map, barrier, column + c * 64, head, row + b * 32);
}

/* The same, as all that the barrier's phase waits for. */
template <int RANGE, int CHUNKS>
TT_DEVICE void load_rows(bf16 *to, const CUtensorMap *map, uint64_t *barrier, int column, int head, int row)
{
    barrier_expect(barrier, RANGE * CHUNKS * ROW_BYTES);
    copy_rows<RANGE, CHUNKS>(to, map, barrier, column, head, row);
}

/* scores (+)= a b over 256 columns: of 64 rows at `a`, in chunks of 64 rows, and 32 at `b`, in chunks of CHUNK_ROWS. */
template <int CHUNK_ROWS>
TT_DEVICE void multiply_scores(float (&scores)[16], const bf16 *a, const bf16 *b, bool adds)
{
    uint64_t da = matrix_descriptor(a, 16, EIGHT_ROWS), db = matrix_descriptor(b, 16, EIGHT_ROWS);
#pragma unroll
    for (int c = 0; c < 4; c++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma_64x32x16(scores, da + c * (ROWS * ROW_BYTES / 16) + k * 2,
                           db + c * (CHUNK_ROWS * ROW_BYTES / 16) + k * 2, adds || c > 0 || k > 0);
}

/* sums += weights rows: columns `first` .. first + 32 of the weights [64][64], and 32 rows of 256 columns. */
TT_DEVICE void multiply_sums(float (&sums)[128], const bf16 *weights, int first, const bf16 *rows)
{
    uint64_t a = matrix_descriptor(weights, 16, EIGHT_ROWS) + first / 8,
             b = matrix_descriptor(rows, 32 * ROW_BYTES, EIGHT_ROWS);
#pragma unroll
    for (int k = 0; k < 2; k++) wgmma_64x256x16<1>(sums, a + k * 2, b + k * (2 * EIGHT_ROWS / 16), 1);
}

/* Makes rows from `count` on of 32 rows by 256 columns zero, so that what another sequence has there does not meet
 * weights of zero. One warp group. */
TT_DEVICE void clear_rows(bf16 *rows, int count)
{
    int thread = threadIdx.x % GROUP, unit = thread % 32;
    for (int r = max(count, 0) + thread / 32; r < 32; r += GROUP / 32)
        *reinterpret_cast<uint4 *>(rows + unit / 8 * BOX + r * 64 + unit % 8 * 8) = uint4{0, 0, 0, 0};
}

/* Stores 16 columns (two units from `unit` on) of the warp group's weights. */
TT_DEVICE void store_weights(bf16 *weights, int unit, const float *w)
{
    int lane = threadIdx.x % 32, row = threadIdx.x % GROUP / 32 * 16 + lane % 16;
    store_matrices(weights + row * 64 + (((unit + lane / 16) ^ row % 8) * 8), pack(w[0], w[1]),
                   pack(w[2], w[3]), pack(w[4], w[5]), pack(w[6], w[7]));
}

TT_DEVICE void clear_sums(float (&sums)[128])
{
#pragma unroll
    for (int i = 0; i < 128; i++) sums[i] = 0.0f;
}

/* tanh(scale s / cap), as cap_scores of mma_tiles.h. */
TT_DEVICE float capped(float score, float factor)
{
    return 1.0f - 2.0f * reciprocal_fast(1.0f + exp2_fast(score * factor));
}

TT_DEVICE float cap_factor(const tt_attention_problem &p)
{
    return 2.0f * p.scale / p.cap * TT_LOG2_E;
}

/* Stores the warp's 16 rows of the group's 256 columns as bf16, multiplied by the factors of the thread's row and of
 * the row 8 below. They pass through `stage`, 8 KiB of the warp's own. `first` is the warp's first row in its sequence,
 * whose row 0 is at `out`. */
TT_DEVICE void store_sums(const float (&sums)[128], const float (&factor)[2], bf16 *stage, const bf16 *out,
                          int64_t stride, int first, int length, int head_dim)
{
    int lane = threadIdx.x % 32, row = lane % 16, column = threadIdx.x / GROUP * (COLUMNS / 2) + lane * 8;
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
        int unit = i + lane / 16;
        const float *s = sums + 4 * i;
        store_matrices(stage + unit / 8 * (16 * 64) + row * 64 + ((unit % 8) ^ row % 8) * 8,
                       pack(s[0] * factor[0], s[1] * factor[0]), pack(s[2] * factor[1], s[3] * factor[1]),
                       pack(s[4] * factor[0], s[5] * factor[0]), pack(s[6] * factor[1], s[7] * factor[1]));
    }
    __syncwarp();
    if (column >= head_dim) return;
    for (int r = 0; r < 16 && first + r < length; r++) {
        uint4 value =
            *reinterpret_cast<const uint4 *>(stage + lane / 8 * (16 * 64) + r * 64 + (lane % 8 ^ r % 8) * 8);
        *reinterpret_cast<uint4 *>(const_cast<bf16 *>(out) + (int64_t)(first + r) * stride + column) = value;
    }
}

/* The work of a block: the third warp group's first thread loads, the two others multiply. */
template <typename Load, typename Multiply> TT_DEVICE void run_roles(Load load, Multiply multiply)
{
    __syncthreads(); /* barriers are initialized */
    if (threadIdx.x >= LOADER) {
        give_registers<LOADER_REGISTERS>();
        if (threadIdx.x == LOADER) load();
    } else {
        take_registers<PRODUCT_REGISTERS>();
        multiply();
    }
}

#endif

/* Launches a kernel with its shared memory. Errors are left to cudaGetLastError. */
inline void launch(void (*kernel)(tt_wide_params), int64_t blocks, size_t shared,
                   const tt_wide_params *params, cudaStream_t stream)
{
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared) != cudaSuccess)
        return;
    kernel<<<(unsigned)blocks, THREADS, shared, stream>>>(*params);
}

} // namespace

#endif
