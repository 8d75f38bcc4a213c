/* Shared by the kernels of fused.h: tiles and their order, the ring of stages, and the warps that write tiles of sums
 * from shared memory to the results. */
#ifndef TT_BACKEND_CUDA_GEMM_TILES_CUH
#define TT_BACKEND_CUDA_GEMM_TILES_CUH

#include "backend/cuda/gemm/fused.h"

#include <cuda_bf16.h>

#include "backend/cuda/fast_math.cuh"
#include "backend/cuda/gemm/hopper.cuh"

namespace
{

enum {
    ROWS = TT_FUSED_ROWS,
    COLUMNS = TT_FUSED_COLUMNS,
    DEPTH = TT_FUSED_DEPTH,
    CLUSTER = TT_FUSED_CLUSTER,
    STAGES = 3,
    GROUP = 128, /* threads of a warp group */
    THREADS = 3 * GROUP,
    WRITERS = 3,             /* warps that write tiles out */
    SLAB = ROWS * 64,        /* elements of 64 columns of a tile of sums */
    LOADER_REGISTERS = 88,   /* per thread of the first warp group; together at most 3 * 168 */
    PRODUCT_REGISTERS = 208, /* per thread of the two others: 128 hold sums */
};

using bf16 = __nv_bfloat16;

struct alignas(1024) shared {
    bf16 a[STAGES][ROWS * DEPTH];
    bf16 b[STAGES][COLUMNS * DEPTH];
    bf16 c[ROWS * COLUMNS]; /* four slabs of 64 columns */
    uint64_t full[STAGES], empty[STAGES], sums_full, sums_empty;
};

#if defined(TT_HOPPER)

struct tile {
    int m, n;
};

/* Finds the tile of turn `turn` of this CTA. The tiles of a cluster go column by column through a band of rows,
 * band after band. */
template <int KIND> TT_DEVICE bool tile_at(const tt_fused_params &p, int turn, tile &t)
{
    constexpr int step = KIND == TT_FUSED_SWIGLU ? COLUMNS / 2 : COLUMNS, high = CLUSTER * ROWS;
    int rows = (p.m + high - 1) / high, columns = (p.n + step - 1) / step;
    int at = turn * (int)(gridDim.x / CLUSTER) + (int)(blockIdx.x / CLUSTER);
    if (at >= rows * columns) return false;
    int band = at / (p.band * columns), first = band * p.band, in = at - first * columns;
    int band_rows = min(p.band, rows - first);
    t.m = (first + in % band_rows) * high + (int)(blockIdx.x % CLUSTER) * ROWS;
    t.n = in / band_rows * step;
    return true;
}

/* The low-rank part that a tile's columns belong to, -1: none. The borders of parts are borders of tiles. */
TT_DEVICE int part_of(const tt_fused_params &p, int n)
{
    for (int i = 0; i < p.parts; i++) {
        if (n >= p.part[i].first && n < p.part[i].end) return i;
    }
    return -1;
}

/* The number of steps along K that follow those of the wide product. */
template <int KIND> TT_DEVICE int narrow_steps(const tt_fused_params &p, const tile &t)
{
    if (p.parts == 0) return 0;
    if (KIND == TT_FUSED_SWIGLU) return (p.part[0].r + p.part[1].r + DEPTH - 1) / DEPTH;
    int part = part_of(p, t.n);
    return part < 0 ? 0 : (p.part[part].r + DEPTH - 1) / DEPTH;
}

struct ring {
    int slot = 0;
    uint32_t phase = 0;

    TT_DEVICE void next()
    {
        if (++slot < STAGES) return;
        slot = 0;
        phase ^= 1;
    }
};

/* The source of a step's operands: coordinates in two maps. */
struct step {
    const CUtensorMap *a, *b;
    int k_a, k_b, n; /* n: first column of this tile in b */
};

/* h holds, with SwiGLU, gate's columns and then up's. Each half of the tile multiplies the other half's columns of h by
 * values beyond the edge of its own b, which are zero. */
template <int KIND> TT_DEVICE step narrow_step(const tt_fused_params &p, const tile &t, int k, uint32_t rank)
{
    constexpr int nowhere = 1 << 20;
    if (KIND == TT_FUSED_SWIGLU) {
        int k_b = p.part[rank].r == 0 ? nowhere : k - (rank == 1 ? p.part[0].r : 0);
        return {&p.a2, &p.b2[rank], p.part[0].h + k, k_b, t.n};
    }
    int part = part_of(p, t.n);
    return {&p.a2, &p.b2[part], p.part[part].h + k, k, t.n - p.part[part].first};
}

/* The place in a tile of sums of 16 bytes: in rows of 128 bytes the k-th 16 bytes of row r are at k ^ r % 8, the copy
 * engine's layout, so that the threads of a store use different banks. */
TT_DEVICE bf16 *place_of(bf16 *c, uint32_t row, uint32_t unit)
{
    return c + unit / 8 * SLAB + row * 64 + (unit % 8 ^ row % 8) * 8;
}

/* Stores a warp group's 64 x 256 sums as bf16; `row`: of the lane's address, in the tile. */
TT_DEVICE void store_sums(const float (&sums)[128], bf16 *c, uint32_t row)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 32; i += 2)
        store_matrices(place_of(c, row, i + lane / 16), pack(sums[4 * i], sums[4 * i + 1]),
                       pack(sums[4 * i + 2], sums[4 * i + 3]), pack(sums[4 * i + 4], sums[4 * i + 5]),
                       pack(sums[4 * i + 6], sums[4 * i + 7]));
}

TT_DEVICE uint32_t add2(uint32_t x, uint32_t y)
{
    return pack(low_half(x) + low_half(y), high_half(x) + high_half(y));
}

TT_DEVICE uint4 add8(uint4 x, uint4 y)
{
    return {add2(x.x, y.x), add2(x.y, y.y), add2(x.z, y.z), add2(x.w, y.w)};
}

/* The same formula as in swiglu.cu. */
TT_DEVICE float swiglu(float gate, float up)
{
    return up * (gate * sigmoid_fast(gate));
}

TT_DEVICE uint32_t swiglu2(uint32_t gate, uint32_t up)
{
    return pack(swiglu(low_half(gate), low_half(up)), swiglu(high_half(gate), high_half(up)));
}

TT_DEVICE uint4 swiglu8(uint4 gate, uint4 up)
{
    return {swiglu2(gate.x, up.x), swiglu2(gate.y, up.y), swiglu2(gate.z, up.z), swiglu2(gate.w, up.w)};
}

struct derivative {
    float dgate, dup, act;
};

TT_DEVICE derivative differentiate(float dact, float gate, float up)
{
    float s = sigmoid_fast(gate), silu = gate * s;
    return {dact * up * (s * (1.0f + gate * (1.0f - s))), dact * silu, up * silu};
}

TT_DEVICE void differentiate2(uint32_t dact, uint32_t gate, uint32_t up, uint32_t &dgate, uint32_t &dup,
                              uint32_t &act)
{
    derivative low = differentiate(low_half(dact), low_half(gate), low_half(up)),
               high = differentiate(high_half(dact), high_half(gate), high_half(up));
    dgate = pack(low.dgate, high.dgate);
    dup = pack(low.dup, high.dup);
    act = pack(low.act, high.act);
}

/* Rows of a tile that a writing warp processes at a time, 16 bytes per thread and matrix. Their operands in
 * memory are loaded one batch ahead. */
template <int KIND> struct batch {
    /* pieces of 16 bytes in a row */
    static constexpr int units = KIND == TT_FUSED_SWIGLU ? COLUMNS / 16 : COLUMNS / 8;
    static constexpr int rows = 32 / units;
    static constexpr int size = KIND == TT_FUSED_SWIGLU_BACKWARD ? 2 : 4;
    static constexpr int step = WRITERS * rows * size;
    uint4 x[size], y[KIND == TT_FUSED_SWIGLU_BACKWARD ? size : 1];

    /* The row and the column of item i of the batch that begins at `first`; false beyond the matrix. */
    static TT_DEVICE bool place(const tt_fused_params &p, const tile &t, int first, int i, int &row,
                                int &column)
    {
        int lane = threadIdx.x % 32, in_tile = first + i * WRITERS * rows + lane / units;
        row = t.m + in_tile;
        column = t.n + lane % units * 8;
        return in_tile < ROWS && row < p.m && column < p.n;
    }
};

template <int KIND>
TT_DEVICE void read_batch(const tt_fused_params &p, const tile &t, int first, batch<KIND> &in)
{
    constexpr bool backward = KIND == TT_FUSED_SWIGLU_BACKWARD;
    if constexpr (KIND != TT_FUSED_SWIGLU) {
        const bf16 *from = static_cast<const bf16 *>(backward ? p.c : p.addend);
        if (from == nullptr) return;
#pragma unroll
        for (int i = 0; i < batch<KIND>::size; i++) {
            int row, column;
            if (!batch<KIND>::place(p, t, first, i, row, column)) continue;
            int64_t at = row * p.c_row + column;
            in.x[i] = __ldcs(reinterpret_cast<const uint4 *>(from + at));
            if (backward) in.y[backward ? i : 0] = __ldcs(reinterpret_cast<const uint4 *>(from + at + p.n));
        }
    }
}

TT_DEVICE uint4 sums_at(const shared &s, uint32_t row, uint32_t unit)
{
    return *reinterpret_cast<const uint4 *>(s.c + unit / 8 * SLAB + row * 64 + (unit % 8 ^ row % 8) * 8);
}

TT_DEVICE void put(void *matrix, int64_t at, uint4 value)
{
    *reinterpret_cast<uint4 *>(static_cast<bf16 *>(matrix) + at) = value;
}

template <int KIND>
TT_DEVICE void write_batch(const tt_fused_params &p, const shared &s, const tile &t, int first,
                           const batch<KIND> &in)
{
    const int unit = threadIdx.x % 32 % batch<KIND>::units;
#pragma unroll
    for (int i = 0; i < batch<KIND>::size; i++) {
        int row, column;
        if (!batch<KIND>::place(p, t, first, i, row, column)) continue;
        int64_t at = row * p.c_row + column, at_act = row * p.act_row + column;
        uint4 c = sums_at(s, row - t.m, unit);
        if (KIND == TT_FUSED_SWIGLU) {
            uint4 up = sums_at(s, row - t.m, unit + 16);
            if (p.c != nullptr) { /* a streaming store: not read again before backward */
                __stcs(reinterpret_cast<uint4 *>(static_cast<bf16 *>(p.c) + at), c);
                __stcs(reinterpret_cast<uint4 *>(static_cast<bf16 *>(p.c) + at + p.n), up);
            }
            put(p.act, at_act, swiglu8(c, up));
        } else if (KIND == TT_FUSED_SWIGLU_BACKWARD) {
            const uint4 &gate = in.x[i], &up = in.y[KIND == TT_FUSED_SWIGLU_BACKWARD ? i : 0];
            uint4 dgate, dup, act;
            differentiate2(c.x, gate.x, up.x, dgate.x, dup.x, act.x);
            differentiate2(c.y, gate.y, up.y, dgate.y, dup.y, act.y);
            differentiate2(c.z, gate.z, up.z, dgate.z, dup.z, act.z);
            differentiate2(c.w, gate.w, up.w, dgate.w, dup.w, act.w);
            put(p.c, at, dgate);
            put(p.c, at + p.n, dup);
            if (p.act != nullptr) put(p.act, at_act, act);
        } else {
            put(p.c, at, p.addend != nullptr ? add8(c, in.x[i]) : c);
        }
    }
}

/* cos and sin of 8 columns of a row. */
struct turn_of_row {
    float4 cos[2], sin[2];
};

TT_DEVICE void read_turn(const tt_fused_params &p, const tile &t, int row, int position, int column,
                         turn_of_row &turn)
{
    if (row >= ROWS || t.m + row >= p.m || t.n >= p.rotated) return;
    int64_t at = (int64_t)position * p.half + column;
    const float4 *cos = reinterpret_cast<const float4 *>(p.cos + at),
                 *sin = reinterpret_cast<const float4 *>(p.sin + at);
    turn.cos[0] = __ldg(cos), turn.cos[1] = __ldg(cos + 1);
    turn.sin[0] = __ldg(sin), turn.sin[1] = __ldg(sin + 1);
}

TT_DEVICE int position_of(const tt_fused_params &p, const tile &t, int row)
{
    return row < ROWS && t.m + row < p.m && t.n < p.rotated ? __ldg(p.positions + t.m + row) : 0;
}

/* Rotates two neighbouring columns of a head's first half with the two of its second half. */
TT_DEVICE void rotate2(uint32_t &first, uint32_t &second, float cos0, float sin0, float cos1, float sin1)
{
    float a0 = low_half(first), a1 = high_half(first), b0 = low_half(second), b1 = high_half(second);
    first = pack(a0 * cos0 - b0 * sin0, a1 * cos1 - b1 * sin1);
    second = pack(b0 * cos0 + a0 * sin0, b1 * cos1 + a1 * sin1);
}

/* A thread has 8 columns of a head's first half and those of its second half; a warp has two rows. Positions are
 * loaded two rounds ahead, cos and sin one. */
TT_DEVICE void write_rotated_tiles(const tt_fused_params &p, shared &s)
{
    constexpr int every = 2 * WRITERS;
    const int lane = threadIdx.x % 32, units = p.half / 8, pair = lane % 16, in_half = pair % units;
    const int low = pair / units * 2 * units + in_half, high = low + units;
    const int first_row = ((int)threadIdx.x / 32 - 1) * 2 + lane / 16;
    tile t;
    for (int turn = 0; tile_at<TT_FUSED_ROTATED>(p, turn, t); turn++) {
        turn_of_row now = {}, next = {};
        int position = position_of(p, t, first_row + every);
        read_turn(p, t, first_row, position_of(p, t, first_row), in_half * 8, now);
        barrier_wait(&s.sums_full, turn & 1);
        for (int row = first_row; row < ROWS; row += every) {
            int later = position_of(p, t, row + 2 * every);
            read_turn(p, t, row + every, position, in_half * 8, next);
            position = later;
            uint4 a = sums_at(s, row, low), b = sums_at(s, row, high);
            if (t.n < p.rotated) {
                rotate2(a.x, b.x, now.cos[0].x, now.sin[0].x, now.cos[0].y, now.sin[0].y);
                rotate2(a.y, b.y, now.cos[0].z, now.sin[0].z, now.cos[0].w, now.sin[0].w);
                rotate2(a.z, b.z, now.cos[1].x, now.sin[1].x, now.cos[1].y, now.sin[1].y);
                rotate2(a.w, b.w, now.cos[1].z, now.sin[1].z, now.cos[1].w, now.sin[1].w);
            }
            int64_t at = (int64_t)(t.m + row) * p.c_row + t.n;
            if (t.m + row < p.m && t.n + low * 8 < p.n) put(p.c, at + low * 8, a);
            if (t.m + row < p.m && t.n + high * 8 < p.n) put(p.c, at + high * 8, b);
            now = next;
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(&s.sums_empty);
    }
}

template <int KIND> TT_DEVICE void write_tiles(const tt_fused_params &p, shared &s)
{
    const int first_row = ((int)threadIdx.x / 32 - 1) * batch<KIND>::rows;
    tile t;
    for (int turn = 0; tile_at<KIND>(p, turn, t); turn++) {
        batch<KIND> now, next;
        read_batch<KIND>(p, t, first_row, now);
        barrier_wait(&s.sums_full, turn & 1);
        for (int first = first_row; first < ROWS; first += batch<KIND>::step) {
            if (first + batch<KIND>::step < ROWS) read_batch<KIND>(p, t, first + batch<KIND>::step, next);
            write_batch<KIND>(p, s, t, first, now);
            now = next;
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(&s.sums_empty);
    }
}

template <int KIND> TT_DEVICE void write_results(const tt_fused_params &p, shared &s)
{
    if constexpr (KIND == TT_FUSED_ROTATED)
        write_rotated_tiles(p, s);
    else
        write_tiles<KIND>(p, s);
}

/* A tile's steps along k; a warp group without rows of it is idle. */
struct work {
    int steps;
    bool idle;
};

/* A warp group computes 64 x 256 sums of each tile and stores them as bf16 in shared memory. `next` gives the work of a
 * turn, no steps after the last; `finish` changes the sums. */
template <int TRANSPOSED, typename Next, typename Finish>
TT_DEVICE void multiply_each(shared &s, int group, Next next, Finish finish)
{
    constexpr uint32_t b_lead = TRANSPOSED ? 64 * DEPTH * sizeof(bf16) : 16, eight_rows = 8 * 128;
    const int thread = threadIdx.x % GROUP, lane = thread % 32;
    const uint32_t row = group * 64 + thread / 32 * 16 + (lane / 8 & 1) * 8 + lane % 8;
    float sums[128];
    ring at;
    for (int turn = 0;; turn++) {
        work of = next(turn);
        if (of.steps == 0) return;
        int before = -1;
        for (int i = 0; i < of.steps; i++, at.next()) {
            uint64_t a = matrix_descriptor(s.a[at.slot] + group * 64 * DEPTH, 16, eight_rows),
                     b = matrix_descriptor(s.b[at.slot], b_lead, eight_rows);
            barrier_wait(&s.full[at.slot], at.phase);
            if (!of.idle) {
                wgmma_fence();
#pragma unroll
                for (int k = 0; k < DEPTH / 16; k++)
                    wgmma_64x256x16<TRANSPOSED>(sums, a + k * 2, b + k * (TRANSPOSED ? 128 : 2),
                                                i > 0 || k > 0);
                wgmma_commit();
                wgmma_wait<1>();
            }
            if (before >= 0 && thread < CLUSTER) barrier_arrive_at(&s.empty[before], thread);
            before = at.slot;
        }
        wgmma_wait<0>();
        wgmma_results(sums);
        if (thread < CLUSTER) barrier_arrive_at(&s.empty[before], thread);
        finish(sums);
        barrier_wait(&s.sums_empty, (turn & 1) ^ 1);
        store_sums(sums, s.c, row);
        __syncwarp();
        if (lane == 0) barrier_arrive(&s.sums_full);
    }
}

/* Barriers of a CTA; `writers`: arrivals after a tile was written. */
TT_DEVICE void init_barriers(shared &s, int writers)
{
    for (int i = 0; i < STAGES; i++) {
        barrier_init(&s.full[i], 1);
        barrier_init(&s.empty[i], CLUSTER * 2); /* both groups of both CTAs arrive after reading */
    }
    barrier_init(&s.sums_full, 2 * GROUP / 32);
    barrier_init(&s.sums_empty, writers);
    barriers_are_ready();
}

/* The work of a CTA: in the first warp group one thread loads stages and three warps write tiles, `writers` arrivals
 * for each; the two other groups, 0 and 1, multiply. */
template <typename Load, typename Write, typename Multiply>
TT_DEVICE void run_roles(shared &s, int writers, Load load, Write write, Multiply multiply)
{
    if (threadIdx.x == 0) init_barriers(s, writers);
    cluster_sync();
    if (threadIdx.x < GROUP) {
        give_registers<LOADER_REGISTERS>();
        if (threadIdx.x == 0) load();
        if (threadIdx.x >= 32) write();
    } else {
        take_registers<PRODUCT_REGISTERS>();
        multiply((int)threadIdx.x / GROUP - 1);
    }
    __syncwarp();
    cluster_sync(); /* the other CTA may still write to this one */
}

#endif

/* Queues a kernel of clusters of CTAs. */
template <typename Params>
cudaError_t launch_clusters(void (*kernel)(Params), const Params *params, size_t bytes, int ctas,
                            cudaStream_t stream)
{
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = CLUSTER;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)ctas);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return error != cudaSuccess ? error : cudaLaunchKernelEx(&config, kernel, *params);
}

} // namespace

#endif
