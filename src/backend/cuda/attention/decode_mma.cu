/* Attention of single queries on tensor cores. A thread block computes one part of the keys of one row for all query
 * heads that share a key/value head: they are the rows of one tile, those behind the group being zero. The tiles of
 * keys are dealt to the warps in turns. Each warp has a ring of tiles of its own in shared memory, which it loads ahead
 * without waiting for the others, and running sums of its own; these are added up at the end, in the order of warps.
 * Bound by memory: what counts is how many bytes are under way, so several blocks share a multiprocessor. */
#include "backend/cuda/attention/decode.cuh"
#include "backend/cuda/attention/mma_softmax.h"

enum { WARPS = 4, THREADS = WARPS * 32, KEYS = 16, HEADS = TT_DECODE_GROUP_MAX };

template <int D> struct decode_tiles {
    enum {
        TILE = KEYS * D * 2,
        SLOTS = D > 128 ? 3 : 4,
        RING = SLOTS * TILE,
        QUERIES = HEADS * D * 2,
        STRIDE = D + 8, /* floats from one row of sums to the next: four rows are in different banks */
        TOTAL = QUERIES + WARPS * RING + (int)sizeof(float) * 2 * WARPS * HEADS,
        BLOCKS = D > 128  ? 2
                 : D > 64 ? 3
                          : 6 /* that share a multiprocessor of Hopper */
    };
    static_assert(HEADS * STRIDE * (int)sizeof(float) <= RING, "sums of a warp fit in its ring");
};

/* The tiles of a warp in the order of its steps: 2 i loads the keys of tile i, 2 i + 1 its values. */
template <int D> struct tile_ring {
    const __nv_bfloat16 *keys, *values; /* key 0 of the row */
    int64_t k_row, v_row;
    int begin, end; /* first key of tile 0, end of the part */
    int steps;
    uint32_t slots;

    __device__ __forceinline__ tile_ring(const decode_problem &p, const key_part &part, int first,
                                         int kv_head, int warp, uint32_t shared)
    {
        keys = (const __nv_bfloat16 *)p.k + first * p.k_row + kv_head * p.k_head;
        values = (const __nv_bfloat16 *)p.v + first * p.v_row + kv_head * p.v_head;
        k_row = p.k_row;
        v_row = p.v_row;
        begin = part.begin + warp * KEYS;
        end = part.end;
        steps = max(0, end - begin + WARPS * KEYS - 1) / (WARPS * KEYS) * 2;
        slots = shared + warp * decode_tiles<D>::RING;
    }
    /* First key of the step's tile. */
    __device__ __forceinline__ int key(int step) const
    {
        return begin + step / 2 * (WARPS * KEYS);
    }
    __device__ __forceinline__ uint32_t tile(int step) const
    {
        return slots + (unsigned)step % decode_tiles<D>::SLOTS * decode_tiles<D>::TILE;
    }
    /* Always one group of copies, which is empty behind the last step. */
    __device__ __forceinline__ void load(int step) const
    {
        if (step < steps)
            load_tile<KEYS, D, 32>(tile(step), step % 2 ? values : keys, step % 2 ? v_row : k_row, key(step),
                                   end, D, threadIdx.x % 32);
        copy_commit();
    }
    /* Waits for a step's tile, when the steps before it have been replaced. */
    __device__ __forceinline__ uint32_t wait(int step) const
    {
        copy_wait<decode_tiles<D>::SLOTS - 1>();
        __syncwarp();
        return lane_address<D>(tile(step));
    }
    /* Loads another tile in the place of the step's, which all lanes have read. */
    __device__ __forceinline__ void replace(int step) const
    {
        __syncwarp();
        load(step + decode_tiles<D>::SLOTS);
    }
};

/* Masks all columns but the first `count`. */
static __device__ __forceinline__ void mask_tail(float (&s)[1][KEYS / 8][4], int count)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (n * 8 + threadIdx.x % 4 * 2 + i % 2 >= count) s[0][n][i] = -INFINITY;
}

/* The sums that the warps leave for each other. */
struct warp_sums {
    float *o;               /* [WARPS], each in its ring: [HEADS] rows */
    float *maxima, *totals; /* [WARPS][HEADS] */
};

template <int D>
static __device__ __forceinline__ void keep_sums(const softmax_rows<1, D> &rows, const warp_sums &sums,
                                                 int warp, int heads, float scale_log2)
{
    using tiles = decode_tiles<D>;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int head = h * 8 + lane / 4;
        float total = rows.sum[0][h], max = rows.max[0][h];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        if (head >= heads) continue;
        if (lane % 4 == 0) {
            sums.maxima[warp * HEADS + head] = max == -INFINITY ? max : max * scale_log2;
            sums.totals[warp * HEADS + head] = total;
        }
        float *to = sums.o + warp * (tiles::RING / 4) + head * tiles::STRIDE + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            *(float2 *)(to + n * 8) = make_float2(rows.o[0][n][2 * h], rows.o[0][n][2 * h + 1]);
    }
}

static __device__ __forceinline__ void store_4(__nv_bfloat16 *to, float4 x)
{
    *(uint2 *)to = make_uint2(pack_bf16(x.x, x.y), pack_bf16(x.z, x.w));
}

/* Adds the sums of the warps up, and stores the part, or the result where it is the only one. */
template <int D>
static __device__ __forceinline__ void add_warps(const decode_problem &p, const warp_sums &sums, int row,
                                                 int first_head, bool is_whole)
{
    using tiles = decode_tiles<D>;
    for (int i = threadIdx.x; i < p.group * (D / 4); i += THREADS) {
        int g = i / (D / 4), e = i % (D / 4) * 4, head = first_head + g;
        float max = -INFINITY, total = 0.0f;
        float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int w = 0; w < WARPS; w++) max = fmaxf(max, sums.maxima[w * HEADS + g]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float shrink = power(sums.maxima[w * HEADS + g], max);
            float4 x = *(const float4 *)(sums.o + w * (tiles::RING / 4) + g * tiles::STRIDE + e);
            total += sums.totals[w * HEADS + g] * shrink;
            o.x += x.x * shrink;
            o.y += x.y * shrink;
            o.z += x.z * shrink;
            o.w += x.w * shrink;
        }
        if (is_whole) {
            float factor = 1.0f / with_sink(p, head, total, max);
            o = make_float4(o.x * factor, o.y * factor, o.z * factor, o.w * factor);
            store_4((__nv_bfloat16 *)p.o + row * p.o_token + head * p.o_head + e, o);
            continue;
        }
        float *to = p.parts + (((int64_t)row * p.heads + head) * p.part_count + blockIdx.x) * (D + 2);
        *(float2 *)(to + e) = make_float2(o.x, o.y);
        *(float2 *)(to + e + 2) = make_float2(o.z, o.w);
        if (e == 0) *(float2 *)(to + D) = make_float2(max, total);
    }
}

template <int D>
static __global__ void __launch_bounds__(THREADS, decode_tiles<D>::BLOCKS)
    decode_mma_kernel(const __grid_constant__ decode_problem p)
{
    using tiles = decode_tiles<D>;
    extern __shared__ __align__(1024) unsigned char shared[];
    int warp = threadIdx.x / 32, row = blockIdx.z, kv_head = blockIdx.y, head = kv_head * p.group;
    int first = p.first[row];
    key_part part = part_of(p, row, blockIdx.x);
    if ((int)blockIdx.x >= part.count) {
        if (part.count > 0 || blockIdx.x > 0) return;
        for (int i = threadIdx.x; i < p.group * (D / 4); i += THREADS)
            store_4((__nv_bfloat16 *)p.o + row * p.o_token + (head + i / (D / 4)) * p.o_head +
                        i % (D / 4) * 4,
                    make_float4(0.0f, 0.0f, 0.0f, 0.0f));
        return;
    }
    uint32_t base = shared_address(shared);
    load_tile<HEADS, D, THREADS>(base, (const __nv_bfloat16 *)p.q + row * p.q_token + head * p.q_head,
                                 p.q_head, 0, p.group, D);
    copy_commit();
    tile_ring<D> ring(p, part, first, kv_head, warp, base + tiles::QUERIES);
#pragma unroll
    for (int step = 0; step < tiles::SLOTS; step++) ring.load(step);
    float scale_log2 = (p.cap > 0 ? p.cap : p.scale) * TT_LOG2_E;
    softmax_rows<1, D> rows;
    clear(rows.o);
    rows.max[0][0] = rows.max[0][1] = -INFINITY;
    rows.sum[0][0] = rows.sum[0][1] = 0.0f;
    copy_wait<tiles::SLOTS>();
    __syncthreads(); /* the queries are loaded */
    uint32_t lane_q = lane_address<D>(base);
    for (int step = 0; step < ring.steps; step += 2) {
        float s[1][KEYS / 8][4];
        multiply_tiles<D>(s, lane_q, ring.wait(step));
        ring.replace(step);
        if (p.cap > 0) cap_scores(s, p);
        if (ring.end - ring.key(step) < KEYS) mask_tail(s, ring.end - ring.key(step));
        /* The largest weight is 1, which bf16 holds exactly, because sums always move to a new maximum. */
        rows_soften(rows, s, scale_log2, 0.0f);
        multiply_add<D>(rows.o, s, ring.wait(step + 1));
        ring.replace(step + 1);
    }
    float *ends = (float *)(shared + tiles::QUERIES + WARPS * tiles::RING);
    warp_sums sums = {(float *)(shared + tiles::QUERIES), ends, ends + WARPS * HEADS};
    keep_sums<D>(rows, sums, warp, p.group, scale_log2);
    __syncthreads();
    add_warps<D>(p, sums, row, head, part.count == 1);
}

template <int D> static void launch(const decode_problem &p, int rows, cudaStream_t stream)
{
    auto *kernel = decode_mma_kernel<D>;
    const int shared = decode_tiles<D>::TOTAL;
    dim3 grid((unsigned)p.part_count, (unsigned)p.kv_heads, (unsigned)rows);
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared) != cudaSuccess)
        return;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100) != cudaSuccess)
        return;
    kernel<<<grid, THREADS, shared, stream>>>(p);
}

int tt_attention_decode_mma_shared(int head_dim)
{
    return head_dim == 64    ? decode_tiles<64>::TOTAL
           : head_dim == 128 ? decode_tiles<128>::TOTAL
           : head_dim == 256 ? decode_tiles<256>::TOTAL
                             : 0;
}

void tt_attention_decode_mma(const decode_problem *problem, int rows, cudaStream_t stream)
{
    if (problem->head_dim == 64)
        launch<64>(*problem, rows, stream);
    else if (problem->head_dim == 128)
        launch<128>(*problem, rows, stream);
    else
        launch<256>(*problem, rows, stream);
}
